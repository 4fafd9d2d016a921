"""An audit of a recipe: runs with canary clients, and what they show of epsilon beside what the ledger claims."""

from __future__ import annotations

import dataclasses
import secrets
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api.errors import SetupError
from fedplug.api.files import write_text
from fedplug.api.operations import GAUSSIAN, INTEGER, Party
from fedplug.api.records import Count, Number, Record, Text
from fedplug.api.roles import Sealer
from fedplug.api.verdict import PARTIES, Line, number
from fedplug.privacy.ledger_record import LedgerReport
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.own_files import with_files
from fedplug.recipe.recipe import Recipe
from fedplug.runs import execution
from fedplug.runs.functions import Sets, check
from fedplug.runs.result import Run
from fedplug.runs.settings import Settings
from fedplug.wire.record import read_wire, recordings
from numpy.typing import NDArray

from fedplug_audit.canaries import Canaries, with_canaries
from fedplug_audit.estimators import estimate

FILE = "audit.json"
"""Written into the folder of the last run."""
REPLAYED = ", less a replay"
_LOOKS_OF: dict[str, tuple[str, ...]] = {
    "aggregator": ("server",), "client": ("models",), "client_and_aggregator": ("server", "models"),
    "released_model": ("models",),
}  # fmt: skip
"""On what canaries are scored: how far it lies along their directions, added up over the rounds. `server`: a canary's
uploads as far as the server can read them, and elsewhere the sums that the server sees open; `models`: how the global
model moved. A key server is not looked at: what it opens alone is not in the messages to anybody else."""


class Shown(Record):
    """What the audit shows of one party.

    Attributes:
        party: in the word of the ledger.
        scored: the look that shows most: `server`, `models`, either less a replay.
        claimed: epsilon toward this party as the ledger has it, add-or-remove one client; None where it claims nothing.
        delta: of both.
        canaries, guesses, right: see `Estimate`.
        any_mechanism: lower bound of epsilon, whatever the mechanism is.
        gaussian: lower bound where all noise is Gaussian.
        gaussian_counts: whether it is, by the ledger, no sampling is credited, and there is a claim.
        most: what `any_mechanism` would be if every guess had been right.
    """

    party: Text
    scored: Text
    claimed: Number | None
    delta: Number
    canaries: Count
    guesses: Count
    right: Count
    any_mechanism: Number
    gaussian: Number
    gaussian_counts: bool
    most: Number

    @property
    def bound(self) -> float:
        """The larger of the bounds that hold for this party."""
        return max(self.any_mechanism, self.gaussian) if self.gaussian_counts else self.any_mechanism

    @property
    def exceeds(self) -> bool:
        """Whether what was measured refutes the claim."""
        return self.claimed is not None and self.bound > self.claimed

    @property
    def who(self) -> str:
        """The party in words."""
        return {**PARTIES}.get(typing.cast(Party, self.party), self.party)


class Audit(Record):
    """The outcome of an audit, as `audit.json` has it.

    Attributes:
        recipe, digest: what was audited.
        confidence: with which the bounds of one party hold.
        runs: the folders of its runs.
        seed: of coins and directions, in hexadecimal; secret until the runs were over.
        inside, outside: by run, the canaries that were in and out.
        parties: what each party's view shows.
    """

    recipe: Text
    digest: Text
    confidence: Number
    runs: list[Text]
    seed: Text
    inside: list[list[Count]]
    outside: list[list[Count]]
    parties: list[Shown]

    @property
    def refuted(self) -> list[Shown]:
        """The parties toward whom the ledger claims less than was measured."""
        return [shown for shown in self.parties if shown.exceeds]

    def text(self) -> list[str]:
        """The outcome for a terminal."""
        head = ("who looks", "claimed", "measured", "any noise", "Gaussian", "right guesses", "can show")
        table = [head, *(_cells(shown) for shown in self.parties)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        lines.append(
            f"Lower bounds of epsilon at {self.confidence:.4g} confidence, from {len(self.runs)} "
            f"run{'s' if len(self.runs) > 1 else ''}; they prove a violation, never safety."
        )
        if not all(shown.gaussian_counts for shown in self.parties):
            lines.append("In brackets: as if all noise were Gaussian, which nothing claims there; it does not count.")
        for shown in self.refuted:
            lines.append(
                f"THE CLAIM DOES NOT HOLD: toward {shown.who} the ledger claims epsilon "
                f"{number(shown.claimed or 0.0)}, and at least {number(shown.bound)} was measured."
            )
        if self.refuted:
            lines.append(
                "What to look at: first what the verdict rests on the word of (Noise.own, accounts, Post), then where "
                "its noise comes from (a fixed seed, one draw for all), its size, and what is sent beside the zones."
            )
        elif not any(shown.claimed is not None for shown in self.parties):
            lines.append("The ledger claims no epsilon for clients, so nothing is refuted: bounds say what is lost.")
        else:
            lines.append("No claim is refuted.")
        return lines


def _cells(shown: Shown) -> tuple[str, ...]:
    claimed = "none" if shown.claimed is None else number(shown.claimed)
    gaussian = number(shown.gaussian) if shown.gaussian_counts else f"({number(shown.gaussian)})"
    return (
        shown.who, claimed, number(shown.bound), number(shown.any_mechanism), gaussian,
        f"{shown.right} of {shown.guesses}", number(shown.most),
    )  # fmt: skip


def audit(
    recipe: Path | str | Mapping[str, Any] | Recipe,
    sets: Sets | None = None,
    *,
    canaries: int | None = None,
    runs: int = 1,
    replay: bool = False,
    confidence: float = 0.95,
    seed: int | None = None,
    settings: Settings | None = None,
    catalog: Catalog | None = None,
    watch: Any = "lines",
) -> tuple[Audit, Path]:
    """Runs a recipe with canary clients, and compares what they show with what the ledger claims.

    Canary clients take the place of as many of the recipe's clients, so that the number of clients, `min_clients` and
    the ledger stay as they are. Nothing but what these clients learn is changed.

    Args:
        recipe, sets: as in `fedplug.run`.
        canaries: how many clients are canaries, from the last one down; None: all.
        runs: how many runs, each with coins of its own; canaries of all are counted together.
        replay: run each once more with all canaries out, and score too what is left when that is subtracted: what an
            adversary can do who knows the seed. It finds noise that is not drawn anew.
        confidence: of the bounds of one party.
        seed: of coins and directions, for tests; None: a secret one.
        settings: of this machine; by default those of the user's config file.
        catalog: the components on offer; by default what is installed.
        watch: as `display` in `fedplug.run`.

    Returns:
        The outcome, and the run folder that has it as `audit.json`.

    Raises:
        RecipeError: the recipe is wrong.
        SetupError: there is too little to audit, or what is asked for cannot be.
        FedplugError: a run failed.
    """
    settings = Settings.load() if settings is None else settings
    offered = with_files(catalog, settings.plugins)
    checked = check(recipe, sets, catalog=offered)
    count = checked.data.clients if canaries is None else canaries
    _require(checked, settings, count, runs, confidence)
    seed = secrets.randbits(128) if seed is None else seed
    made = [_run_with_canaries(checked, settings, offered, count, (seed << 16) + k, watch) for k in range(runs)]
    last = made[-1][1]
    inside = np.concatenate([canaries.inside for canaries, _ in made])
    scores = _scores(made)
    if replay:
        again = [
            _run_with_canaries(checked, settings, offered, count, (seed << 16) + k, watch, all_out=True)
            for k in range(runs)
        ]
        replayed = _scores(again)
        scores |= {look + REPLAYED: scores[look] - replayed[look] for look in replayed}
    counts = _all_gaussian(last.ledger)
    parties = [
        _shown(line, scores, inside, counts, 1 - confidence)
        for line in last.ledger.verdict.lines
        if line.state != "absent" and any(scores[look].any() for look in _LOOKS_OF.get(line.party, ()))
    ]
    found = Audit(
        checked.name, last.recipe.digest, confidence, [str(run.folder) for _, run in made], f"{seed:x}",
        [[c for c, there in zip(canary.ids, canary.inside, strict=True) if there] for canary, _ in made],
        [[c for c, there in zip(canary.ids, canary.inside, strict=True) if not there] for canary, _ in made],
        parties,
    )  # fmt: skip
    write_text(last.folder / FILE, found.to_json(indent=2))
    return found, last.folder


LEAST = 10
"""Canaries of all runs together: fewer show nothing at any usual confidence."""


def _require(recipe: Recipe, settings: Settings, count: int, runs: int, confidence: float) -> None:
    """Refuses what cannot be audited.

    Raises:
        SetupError: says why, and what to do.
    """
    clients = recipe.data.clients
    if settings.engine != "local":
        raise SetupError(
            f"engine={settings.engine}: an audit runs all parties in this process, on the engine local; the chain of "
            "protection is the same on every engine"
        )
    if not 0 < count <= clients:
        raise SetupError(f"canaries={count} must be from 1 to {clients}, the clients of the recipe (data.clients)")
    if runs < 1:
        raise SetupError(f"runs={runs} must be >= 1")
    if not 0.5 <= confidence < 1:
        raise SetupError(f"confidence={confidence} must be from 0.5 to below 1, such as 0.95")
    if count * runs < LEAST:
        raise SetupError(
            f"{count} canaries in {runs} run{'s' if runs > 1 else ''} show nothing; there must be {LEAST} at least: "
            f"--runs {-(-LEAST // count)}, or more clients"
        )
    if recipe.train.own is not None:
        raise SetupError(
            f"train: {recipe.train.use} is in a file of the recipe's own, where what clients learn cannot be replaced; "
            "name the file with --plugin, and the class as an installed one"
        )


def _sends_plain(recipe: Recipe) -> bool:
    """Whether some zone leaves the clients unsealed."""
    return any(
        not any(issubclass(typing.cast(type, use.made_of), Sealer) for use in uses) for uses in recipe.protect.values()
    )


def _run_with_canaries(
    recipe: Recipe, settings: Settings, catalog: Catalog, count: int, seed: int, watch: Any, all_out: bool = False
) -> tuple[Canaries, Run]:
    clients = recipe.data.clients
    canaries = Canaries(tuple(range(clients - count, clients)), seed, all_out)
    entry = catalog.groups["trainer"][recipe.train.use]
    audited = dataclasses.replace(entry, _class=with_canaries(typing.cast(Any, entry.load()), canaries))
    groups = {**catalog.groups, "trainer": {**catalog.groups["trainer"], entry.name: audited}}
    offered = Catalog(groups, catalog.strays, catalog.sections)
    plain = {key: value for key, value in recipe.to_plain().items() if key != "attack"}
    settings = dataclasses.replace(
        settings, record_wire=_sends_plain(recipe), listeners=(*settings.listeners, canaries)
    )
    code, folder = execution.start(
        Recipe.from_plain(plain, offered), settings, offered, f"{recipe.name}-audit", watch=watch
    )
    if code == execution.INTERRUPTED:
        raise KeyboardInterrupt("an audit cannot be resumed, since its coins were never written down; begin again")
    return canaries, Run(folder, settings, code, offered)


def _scores(made: list[tuple[Canaries, Run]]) -> dict[str, NDArray[np.float64]]:
    """By look (m,), the scores of the canaries of all runs."""
    return {
        "server": np.concatenate([_along_server(canaries, run) for canaries, run in made]),
        "models": np.concatenate([canaries.along_models() for canaries, _ in made]),
    }


def _along_server(canaries: Canaries, run: Run) -> NDArray[np.float64]:
    """(m,), how far what the server can read of the canaries lies along their directions."""
    found, read = np.zeros(len(canaries.ids)), set[str]()
    wire = run.folder / "wire"
    for path in recordings(wire).values() if wire.is_dir() else ():
        for message in read_wire(path):
            sender = int(message.sender.partition(":")[2] or -1)
            place = canaries.number_of(sender) if message.phase == "upload" else None
            answered = None if place is None else message.answered()
            for block in ((answered and answered.blocks) or {}).values():
                if block.values is not None and place is not None:
                    read.add(block.zone)
                    found[place] += canaries.along(message.round, sender, block)
    return found + sum(along for zone, along in canaries.along_sums().items() if zone not in read)


def _all_gaussian(ledger: LedgerReport) -> bool:
    """Whether every noise of the run was Gaussian or nearly so, and no sampling is credited."""
    kinds = {release.mechanism for entry in ledger.log for zone in entry.zones.values() for release in zone.releases}
    return kinds <= {*GAUSSIAN, *INTEGER} and not ledger.sampling.amplified


def _shown(
    line: Line, scores: Mapping[str, NDArray[np.float64]], inside: NDArray[np.bool_], counts: bool, level: float
) -> Shown:
    """What one party's view shows; of several looks the one that shows most, each at its share of the level."""
    looks = [name for look in _LOOKS_OF[line.party] for name in (look, look + REPLAYED) if name in scores]
    estimates = {look: estimate(scores[look], inside, line.delta, level / len(looks)) for look in looks}
    claimed = None if line.epsilons is None else line.epsilons.epsilon
    counts = counts and claimed is not None
    # Where only the bound for any mechanism counts, it also chooses what is shown.
    best = max(looks, key=lambda look: (estimates[look].gaussian if counts else 0.0, estimates[look].any_mechanism))
    shown, most = estimates[best], max(each.any_mechanism for each in estimates.values())
    return Shown(
        line.party, best, claimed, line.delta, shown.canaries, shown.guesses, shown.right, most,
        max(each.gaussian for each in estimates.values()), counts, shown.most,
    )  # fmt: skip
