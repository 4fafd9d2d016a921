"""Audits a recipe: runs it with canary clients and compares the epsilon they show with the ledger's claim."""

from __future__ import annotations

import dataclasses
import secrets
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api.blocks import Block
from fedplug.api.errors import SetupError
from fedplug.api.events import Events
from fedplug.api.operations import GAUSSIAN, INTEGER, Party
from fedplug.api.records import Count, Number, Record, Text
from fedplug.api.roles import AccountKeeper, Closer
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.grades import PARTIES, quoted
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_ledger.verdict import Line
from fedplug_ledger.verdict_words import number
from fedplug_runs import execution
from fedplug_runs.events import ResultsWritten
from fedplug_runs.files import write_text
from fedplug_runs.folder import load_run
from fedplug_runs.functions import Sets, check
from fedplug_runs.listeners import listen, listeners
from fedplug_runs.own_files import with_files
from fedplug_runs.result import Run
from fedplug_runs.settings import Settings
from fedplug_runs.trust import RUNS
from fedplug_runs.wire_record import read_wire, recordings
from numpy.typing import NDArray

from fedplug_audit.canaries import Canaries
from fedplug_audit.estimators import estimate
from fedplug_audit.records import CanaryRecords

FILE = "audit.json"
"""Written into the folder of the last run."""
REPLAYED = ", less a replay"
_LOOKS_OF: dict[str, tuple[str, ...]] = {
    "server": ("server", "differences"), "key_holder": ("sums",), "client": ("models",),
    "client_and_server": ("server", "differences", "models"),
    "released_model": ("models",),
}  # fmt: skip
"""What canaries are scored on. A score is the component along a canary's direction, added up over the rounds. `server`:
the canary's uploads where the server can read them, and the opened sums elsewhere. `sums`: the sums that a key server
opens, with the noise that the server adds. `models`: the movement of the global model. `differences`: the canary's
uploads less the mean of the other clients', which cancels noise that all of them draw from one seed."""
_OF_GROSS_FAULTS = ("differences",)
_LITTLE = 0.01
"""The share of the level for a scoring that finds gross faults alone, where next to no noise is left: these show at any
level, and the other scorings keep theirs."""


class Shown(Record):
    """What the audit shows about one party.

    Attributes:
        party: the ledger's name for it.
        scored: the scoring that gives the highest bound: `server`, `differences`, `sums` or `models`, each with or
            without a replay subtracted.
        unit: the kind of a canary: `client`, or `record`.
        claimed: the ledger's epsilon toward this party for that unit, add-or-remove; None if it claims none.
        delta: of both epsilons.
        canaries, guesses, right: see `Estimate`.
        any_mechanism: lower bound of epsilon, whatever the mechanism is.
        gaussian: lower bound where all noise is Gaussian.
        gaussian_counts: whether `gaussian` applies: the ledger says that all noise is Gaussian, credits no sampling,
            and makes a claim.
        most: the value of `any_mechanism` if every guess had been right.
    """

    party: Text
    scored: Text
    unit: Text
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
        """The larger of the bounds that apply to this party."""
        return max(self.any_mechanism, self.gaussian) if self.gaussian_counts else self.any_mechanism

    @property
    def exceeds(self) -> bool:
        """Whether the measured bound refutes the claim."""
        return self.claimed is not None and self.bound > self.claimed

    @property
    def who(self) -> str:
        """The party in words."""
        return {**PARTIES}.get(typing.cast(Party, self.party), self.party)


class Audit(Record):
    """The outcome of an audit, as stored in `audit.json`.

    Attributes:
        recipe, digest: the audited recipe.
        confidence: of the bounds of one party.
        runs: the folders of its runs.
        seed: of coins and directions, in hexadecimal; it stays secret until the runs are over.
        inside, outside: the canaries that were in and out, by run.
        parties: the result for each party's view.
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
        """The parties toward whom the ledger claims less epsilon than the audit measured."""
        return [shown for shown in self.parties if shown.exceeds]

    def words(self) -> dict[str, str]:
        """For each party of the verdict, the measured bound in a sentence."""
        return {shown.party: self._words_of(shown) for shown in self.parties}

    def _words_of(self, shown: Shown) -> str:
        of_records = "" if shown.unit == "client" else f" for each {shown.unit}"
        said = f"audit: epsilon is at least {number(shown.bound)}{of_records}, at {self.confidence:.4g} confidence"
        return f"{said}: THE CLAIM DOES NOT HOLD" if shown.exceeds else said

    def cells(self) -> list[tuple[str, ...]]:
        """The outcome as a table, header row first."""
        head = ("who looks", "claimed", "measured", "any noise", "Gaussian", "right guesses", "can show")
        return [head, *(_cells(shown) for shown in self.parties)]

    def text(self) -> list[str]:
        """The outcome for a terminal."""
        table = self.cells()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table] + self.notes()

    def notes(self) -> list[str]:
        """Explains what the table proves and what it does not prove."""
        lines = [
            f"Lower bounds of epsilon at {self.confidence:.4g} confidence, from {len(self.runs)} "
            f"run{'s' if len(self.runs) > 1 else ''}; they prove a violation, never safety."
        ]
        if not all(shown.gaussian_counts for shown in self.parties):
            lines.append("In brackets: the bound if all noise were Gaussian. No claim says so, so it does not count.")
        if self.refuted:
            return [
                *lines, *self.refutations(),
                "What to check: first the parts that the verdict takes on a plugin's word (Noise.own, accounts, Post), "
                "then the source of the noise (a fixed seed, one draw for all), its size, and the data sent with the "
                "zones.",
            ]  # fmt: skip
        if not any(shown.claimed is not None for shown in self.parties):
            return [*lines, "The ledger claims no epsilon here, so nothing is refuted. The bounds show the loss."]
        return [*lines, "No claim is refuted."]

    def refutations(self) -> list[str]:
        """One sentence for each party toward whom the claim does not hold."""
        return [
            f"THE CLAIM DOES NOT HOLD: toward {shown.who} the ledger claims epsilon "
            f"{number(shown.claimed or 0.0)}, and at least {number(shown.bound)} was measured."
            for shown in self.refuted
        ]


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
    records: int | None = None,
    runs: int = 1,
    replay: bool = False,
    confidence: float = 0.95,
    seed: int | None = None,
    settings: Settings | None = None,
    catalog: Catalog | None = None,
    watch: Any = "lines",
) -> tuple[Audit, Path]:
    """Runs a recipe with canary clients, and compares the epsilon they show with the ledger's claim.

    Canary clients replace an equal number of the recipe's clients, so the number of clients, `min_clients` and the
    ledger stay the same. Only the updates that these clients learn are different.

    Args:
        recipe, sets: as in `fedplug.run`. Or the folder of a run, without `sets`: its recipe is audited, and its report
            then shows the outcome.
        canaries: number of clients that are canaries, from the last one down; None: all.
        records: number of training examples that are canaries instead of clients; for recipes whose trainer keeps an
            account of single records.
        runs: number of runs, each with fresh coins; the canaries of all runs are counted together.
        replay: also run each with all canaries out, subtract it, and score the rest, as an adversary who knows the seed
            can. This finds noise that is not drawn afresh.
        confidence: of the bounds of one party.
        seed: of coins and directions, for tests; None: a secret one.
        settings: settings of this machine; by default those of the user's config file.
        catalog: the available components; by default the installed ones.
        watch: as `display` in `fedplug.run`.

    Returns:
        The outcome, and the run folder of the audit. That folder and the folder of the audited run hold the outcome as
        `audit.json`.

    Raises:
        RecipeError: the recipe is wrong.
        SetupError: there is too little to audit, or the request is impossible.
        FedplugError: a run failed.
    """
    settings = Settings.load() if settings is None else settings
    offered = with_files(catalog, settings.plugins, RUNS)
    run_dir = recipe if isinstance(recipe, Path) and recipe.is_dir() else None
    if run_dir is not None and sets:
        raise SetupError(f"{run_dir} is a run, which is audited as it ran; to audit it with changes, give its recipe")
    if run_dir is not None:
        checked = load_run(run_dir, offered, settings.trust, ask=True)
    else:
        checked = check(recipe, sets, catalog=offered)
    clients = checked.data.clients
    if records is not None and canaries is not None:
        raise SetupError(f"records={records} and canaries={canaries}: clients or records are canaries; leave one out")
    of_records = records is not None
    count = next(number for number in (records, canaries, clients) if number is not None)
    _require(checked, settings, count, runs, confidence, None if of_records else clients)
    seed = secrets.randbits(128) if seed is None else seed
    first = 0 if of_records else clients - count

    def run_all(all_out: bool) -> list[tuple[Canaries | CanaryRecords, Run]]:
        kind = CanaryRecords if of_records else Canaries
        each = (kind(tuple(range(first, first + count)), (seed << 16) + k, all_out) for k in range(runs))
        return [(made, _run_with(made, checked, settings, offered, watch)) for made in each]

    made = run_all(False)
    last = made[-1][1]
    inside = np.concatenate([canary.inside for canary, _ in made])
    scores = _scores(made)
    if replay:
        scores |= {look + REPLAYED: scores[look] - found for look, found in _scores(run_all(True)).items()}
    unit = "record" if of_records else "client"
    counts = _all_gaussian(last.ledger)
    parties = [
        _shown(line, unit, scores, inside, counts, 1 - confidence)
        for line in last.ledger.verdict.lines
        if line.state != "absent" and any(scores[look].any() for look in _LOOKS_OF.get(line.party, ()))
    ]
    found = Audit(
        checked.name, last.recipe.digest, confidence, [str(run.folder) for _, run in made], f"{seed:x}",
        [[c for c, there in zip(canary.ids, canary.inside, strict=True) if there] for canary, _ in made],
        [[c for c, there in zip(canary.ids, canary.inside, strict=True) if not there] for canary, _ in made],
        parties,
    )  # fmt: skip
    for folder in filter(None, (last.folder, run_dir)):
        write_text(folder / FILE, found.to_json(indent=2))
        events = Events()
        others = listeners(offered, settings.listeners, settings.muted)
        listen((extension for _, extension in others), events, folder)
        events.tell(ResultsWritten(folder))
    return found, last.folder


LEAST = 10
"""Least number of canaries of all runs together: fewer show nothing at any usual confidence."""


def _require(
    recipe: Recipe, settings: Settings, count: int, runs: int, confidence: float, most: int | None
) -> None:  # fmt: skip
    """Refuses settings that cannot be audited. `most` canaries are possible; None if that depends on the data.

    Raises:
        SetupError: with the reason and a remedy.
    """
    if settings.engine != "local":
        raise SetupError(
            f"engine={settings.engine}: an audit runs all parties in this process, so it needs engine=local; the chain "
            "of protection is the same on every engine"
        )
    if count < 1 and most is None:
        raise SetupError(f"records={count} must be >= 1")
    if most is not None and not 0 < count <= most:
        raise SetupError(f"canaries={count} must be from 1 to {most}, the clients of the recipe (data.clients)")
    if runs < 1:
        raise SetupError(f"runs={runs} must be >= 1")
    if not 0.5 <= confidence < 1:
        raise SetupError(f"confidence={confidence} must be from 0.5 to below 1, such as 0.95")
    if count * runs < LEAST:
        raise SetupError(
            f"{count} canaries in {runs} run{'s' if runs > 1 else ''} show nothing; at least {LEAST} are needed: "
            f"--runs {-(-LEAST // count)}, or more clients"
        )
    if most is None and not issubclass(typing.cast(type, recipe.train.made_of), AccountKeeper):
        raise SetupError(
            f"records={count}: {recipe.train.use} keeps no account of single records; leave it out to audit clients"
        )
    if recipe.train.own is not None:
        raise SetupError(
            f"train: {recipe.train.use} is in a file that the recipe names, so an audit cannot replace what clients "
            "learn; name the file with --plugin and refer to the class by name, like an installed one"
        )


def _sealed(recipe: Recipe) -> set[str]:
    """The zones that leave the clients sealed."""
    return {
        zone for zone, uses in recipe.protect.items()
        if any(issubclass(typing.cast(type, use.made_of), Closer) for use in uses)
    }  # fmt: skip


def _run_with(
    canaries: Canaries | CanaryRecords, recipe: Recipe, settings: Settings, catalog: Catalog, watch: Any
) -> Run:
    """Runs a recipe with the classes that canaries need instead of the catalog's."""
    groups = {group: dict(entries) for group, entries in catalog.groups.items()}
    for (group, name), made in canaries.replaced(recipe, catalog).items():
        groups[group][name] = dataclasses.replace(groups[group][name], made_of=made)
    offered = Catalog(groups, catalog.strays, catalog.sections)
    plain = {key: value for key, value in recipe.to_plain().items() if key != "attack"}
    settings = dataclasses.replace(
        settings, record_wire=_sealed(recipe) != {*recipe.protect}, listeners=(*settings.listeners, canaries)
    )
    code, folder = execution.start(
        Recipe.from_plain(plain, offered), settings, offered, f"{recipe.name}-audit", watch=watch
    )
    if code == execution.INTERRUPTED:
        raise KeyboardInterrupt("an audit cannot be resumed because its coins are not stored; start it again")
    return Run(folder, settings, code, offered)


def _scores(made: list[tuple[Canaries | CanaryRecords, Run]]) -> dict[str, NDArray[np.float64]]:
    """The scores (m,) of the canaries of all runs, by scoring; a scoring that sees nothing is left out."""
    apart = [canaries.along_differences(_uploads(run)) for canaries, run in made if isinstance(canaries, Canaries)]
    seen = {"differences": np.concatenate(apart)} if any(found.any() for found in apart) else {}
    return seen | {
        "server": np.concatenate([canaries.along_server(_uploads(run)) for canaries, run in made]),
        "sums": np.concatenate([canaries.along_sums(_sealed(run.recipe)) for canaries, run in made]),
        "models": np.concatenate([canaries.along_models() for canaries, _ in made]),
    }


def _uploads(run: Run) -> Iterator[tuple[int, int, Mapping[str, Block]]]:
    """Round, client and blocks of each upload that the server received, if the run kept them."""
    for path in recordings(run.folder / "wire").values():
        for message in read_wire(path):
            uploads = message.phase == "upload" and message.sender.startswith("client:")
            answered = message.answered() if uploads else None
            if answered is not None and answered.blocks is not None:
                yield message.round, int(message.sender.partition(":")[2]), answered.blocks


def _all_gaussian(ledger: LedgerReport) -> bool:
    """Whether every noise of the run was Gaussian or nearly so, and no sampling is credited."""
    kinds = {release.mechanism for entry in ledger.log for zone in entry.zones.values() for release in zone.releases}
    return kinds <= {*GAUSSIAN, *INTEGER} and not ledger.sampling.amplified


def _shown(
    line: Line, unit: str, scores: Mapping[str, NDArray[np.float64]], inside: NDArray[np.bool_], counts: bool,
    level: float,
) -> Shown:
    """The result for one party's view: the scoring with the highest bound, each tested at its share of the level."""
    looks = [name for look in _LOOKS_OF[line.party] for name in (look, look + REPLAYED) if name in scores]
    gross = [look for look in looks if look in _OF_GROSS_FAULTS]
    equal = (1 - _LITTLE * len(gross)) / (len(looks) - len(gross))
    levels = {look: level * (_LITTLE if look in gross else equal) for look in looks}
    estimates = {look: estimate(scores[look], inside, line.delta, levels[look]) for look in looks}
    if unit == "client":
        claimed = None if line.epsilons is None else line.epsilons.epsilon
    else:
        claimed = quoted(line.stated) if line.unit == unit and line.stated else None
    counts = counts and claimed is not None and unit == "client"  # the distribution of losses is unknown
    # If only the bound for any mechanism counts, it also selects the scoring that is shown.
    best = max(looks, key=lambda look: (estimates[look].gaussian if counts else 0.0, estimates[look].any_mechanism))
    shown, most = estimates[best], max(each.any_mechanism for each in estimates.values())
    return Shown(
        line.party, best, unit, claimed, line.delta, shown.canaries, shown.guesses, shown.right, most,
        max(each.gaussian for each in estimates.values()), counts, shown.most,
    )  # fmt: skip
