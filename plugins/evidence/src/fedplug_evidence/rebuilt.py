"""The ledger reckoned again from its charges, without the run, its data or torch; and what differs from the stated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedplug.api.blocks import Layout
from fedplug.api.errors import FedplugError
from fedplug.api.operations import OF_EPSILON
from fedplug.api.roles import Accountant
from fedplug.privacy.charging import ledger_of
from fedplug.privacy.ledger import Ledger
from fedplug.privacy.ledger_record import LedgerReport, RoundEntry, strongest, strongest_other
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition, instantiate
from fedplug.recipe.own_files import is_own
from fedplug.recipe.parts import Sampling, Use
from fedplug.recipe.recipe import Recipe

from fedplug_evidence.facts import Charges, Contents

CLOSE = 1e-6
"""By how much a number may differ, relative: other versions of numpy and scipy round otherwise."""
_OF_EPSILON = {"epsilons", "verdict", "zones"}
"""What of a ledger holds epsilons."""


@dataclasses.dataclass(frozen=True, eq=False)
class Reckoned:
    """What came of it.

    Attributes:
        differences: place, stated and reckoned, in words.
        notes: what could not be reckoned again, and why; what the figures go by.
        figures: how many numbers and texts were compared.
    """

    differences: list[str]
    notes: list[str]
    figures: int


def reckon(contents: Contents, catalog: Catalog | None = None) -> Reckoned:
    """Reckons the ledger from the charges, and compares every figure with the stated one.

    Args:
        contents: of a folder.
        catalog: the components on offer; by default what is installed.
    """
    charges, stated = contents.charges, contents.ledger
    differences = [*_unlike_recipe(contents), *_unlike_log(charges, stated)]
    ledger, left_out, notes = _begun(contents, catalog or Catalog.discover())
    if any(entry.charged == "secret" for entry in charges.log):
        notes.append(
            "Who took part is secret in this run, so no charge names a client: every figure is reckoned as if all had "
            "been asked in every round, as the ledger states it"
        )
        if stated.levels:
            left_out |= {"levels", "verdict"}
            notes.append("What single clients released at levels of a component's own is secret too, and not reckoned")
    log = [dataclasses.replace(entry, charged="all") if entry.charged == "secret" else entry for entry in charges.log]
    unopened = [list(place) for place in charges.unopened]
    try:
        ledger.restore({"uncovered": stated.uncovered_messages, "unopened": unopened, "reveals": []}, log)
        again = ledger.report().to_plain(for_json=True)
    except ImportError as error:
        return Reckoned(differences, [*notes, f"The ledger cannot be reckoned here: {error}"], 0)
    except (FedplugError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        # What nobody wrote: charges of a run can always be reckoned.
        return Reckoned([*differences, f"charges.json: no ledger follows from it ({error})"], notes, 0)
    said = stated.to_plain(for_json=True)
    for key in ("log", *left_out):  # the log was compared as it is
        again.pop(key, None)
        said.pop(key, None)
    return Reckoned([*differences, *unlike(said, again, "ledger.json")], notes, _leaves(said))


def _begun(contents: Contents, catalog: Catalog) -> tuple[Ledger, set[str], list[str]]:
    """An empty ledger of this recipe, which of its keys cannot be reckoned with it, and why."""
    charges, stated, plain = contents.charges, contents.ledger, contents.recipe
    if not (own := sorted(own_uses(plain))):
        try:
            recipe = Recipe.from_plain(plain, catalog)
            layout = Layout.of([("all", (contents.facts.parameters,))])
            return ledger_of(recipe, Composition(recipe), layout), set(), []
        except (FedplugError, ImportError) as error:
            why = f"the recipe cannot be read here ({str(error).splitlines()[0]})"
    else:
        why = f"the recipe names {' and '.join(own)}, and code of the user's own is not run here"
    notes, left_out = [f"What the components say was taken as it is stated, since {why}"], set[str]()
    accountant = None
    if charges.accountant:
        accountant = _accountant(plain.get("accountant"), catalog)
        if accountant is None:
            left_out |= _OF_EPSILON
            notes.append(f"The accountant {charges.accountant} is not installed here, so no epsilon was reckoned")
    if stated.levels:
        left_out |= {"levels", "verdict"}
        notes.append(f"Levels ({', '.join(stated.levels)}) are accounted by a component, and were not reckoned")
    kinds = {release.mechanism for entry in charges.log for z in entry.zones.values() for release in z.releases}
    if strange := {f.other[0] for e in charges.log for f in e.zones.values() if f.other} - {*OF_EPSILON}:
        left_out |= _OF_EPSILON | {"warnings"}
        notes.append(f"The cost of {' and '.join(sorted(strange & kinds))} noise is its component's, and not reckoned")
    ledger = Ledger(
        recipe_name=stated.recipe, num_clients=charges.clients, rounds=charges.rounds, min_clients=charges.min_clients,
        delta=charges.delta, sampling=None if charges.sampling is None else Sampling(**charges.sampling),
        encryption=stated.encryption, accountant=accountant, reveals=stated.reveals, presence=charges.presence,
    )  # fmt: skip
    return ledger, left_out, notes


def _accountant(plain: Any, catalog: Catalog) -> Accountant | None:
    """The accountant that a recipe names, with its options; None where it is not installed."""
    entry = catalog.get("accountant", plain["use"]) if isinstance(plain, Mapping) else None
    if entry is None:
        return None
    try:
        kind: Any = entry.load()
        options = {key: value for key, value in plain.items() if key not in ("use", "name")}
        made = instantiate(
            Use(entry.name, entry.name, "accountant", kind.Options.model_validate(options), made_of=kind)
        )
    except (FedplugError, ValueError):
        return None
    return made if isinstance(made, Accountant) else None


def own_uses(plain: Any) -> Iterator[str]:
    """The files of the user's own that a recipe names."""
    if isinstance(plain, Mapping):
        use = plain.get("use")
        if isinstance(use, str) and is_own(use):
            yield use.rpartition(":")[0]
        plain = list(plain.values())
    if isinstance(plain, list):
        for inner in plain:
            yield from own_uses(inner)


def _unlike_recipe(contents: Contents) -> Iterator[str]:
    """Where charges and facts say other than the recipe."""
    charges, facts, plain = contents.charges, contents.facts, contents.recipe
    data = plain.get("data")
    clients = data.get("clients") if isinstance(data, Mapping) else None
    sampling, ledger = plain.get("sampling"), contents.ledger
    for place, said, recipe in (
        ("run.json, digest", facts.digest, contents.digest),
        ("run.json, name", facts.name, plain.get("name")),
        ("run.json, clients", facts.clients, clients),
        ("charges.json, clients", charges.clients, clients),
        ("charges.json, rounds", charges.rounds, plain.get("rounds")),
        ("charges.json, min_clients", charges.min_clients, plain.get("min_clients")),
        ("charges.json, delta", charges.delta, plain.get("delta")),
        ("charges.json, sampling", charges.sampling, sampling),
        ("ledger.json, recipe", ledger.recipe, plain.get("name")),
    ):
        if said != recipe:
            yield f"{place}: {said!r}, and by recipe.yaml {recipe!r}"


def _unlike_log(charges: Charges, stated: LedgerReport) -> Iterator[str]:
    """Where the charges contradict the stated ledger, or themselves."""
    yield from unlike(
        [entry.to_plain(for_json=True) for entry in stated.log],
        [entry.to_plain(for_json=True) for entry in charges.log],
        "ledger.json, log", "by charges.json",
    )  # fmt: skip
    for number, entry in enumerate(charges.log):
        place = f"charges.json, log, {number}"
        clients = entry.charged if isinstance(entry.charged, list) else []
        if strange := [client for client in clients if client >= charges.clients]:
            yield f"{place}: it charges client {strange[0]}, and there are {charges.clients}"
        if not 1 <= entry.round <= charges.rounds:
            yield f"{place}: it is of round {entry.round}, and there are {charges.rounds}"
        yield from _unlike_releases(entry, place)


def _unlike_releases(entry: RoundEntry, place: str) -> Iterator[str]:
    """Where the multipliers of an entry do not follow from its releases."""
    for zone, facts in entry.zones.items():
        releases = facts.releases
        found = {
            "local": strongest(release for release in releases if release.trust != "central"),
            "central": strongest(release for release in releases if release.trust == "central"),
            "slack": max((release.slack for release in releases), default=0.0),
            "other": strongest_other(releases, {facts.other[0]} if facts.other else ()),
        }
        for name, value in found.items():
            if getattr(facts, name) != value:
                yield f"{place}, zones, {zone}, {name}: {getattr(facts, name)!r}, and by its releases {value!r}"


def unlike(stated: Any, again: Any, place: str, how: str = "reckoned again") -> Iterator[str]:
    """Where two pieces of plain data differ; numbers may differ by `CLOSE`."""
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        for key in [*stated, *(key for key in again if key not in stated)]:
            if key not in again:
                yield f"{place}, {key}: {_shown(stated[key])}, and {how} there is none"
            elif key not in stated:
                yield f"{place}, {key}: it is missing, and {how} {_shown(again[key])}"
            else:
                yield from unlike(stated[key], again[key], f"{place}, {key}", how)
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for number, (one, other) in enumerate(zip(stated, again, strict=True)):
            yield from unlike(one, other, f"{place}, {number}", how)
    elif not _alike(stated, again):
        yield f"{place}: {_shown(stated)}, and {how} {_shown(again)}"


def _alike(one: Any, other: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return math.isclose(one, other, rel_tol=CLOSE) if numbers else type(one) is type(other) and bool(one == other)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _leaves(plain: Any) -> int:
    inner: Sequence[Any] = [*plain.values()] if isinstance(plain, Mapping) else plain if isinstance(plain, list) else ()
    return sum(map(_leaves, inner)) if isinstance(plain, Mapping | list) else 1
