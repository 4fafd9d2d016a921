"""Recomputes the ledger from its charges, without the run, its data or torch, and compares it with the stated one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from fedplug.api.blocks import RETAINED, Layout
from fedplug.api.errors import FedplugError
from fedplug.api.facts import Facts
from fedplug.api.known import Release
from fedplug.api.links import amplified, released
from fedplug.api.operations import INTEGER, OF_EPSILON
from fedplug.api.roles import Accountant, Reveals
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition, instantiate, shipped
from fedplug.recipe.composition import strange as titles_of_strangers
from fedplug.recipe.parts import Sampling, Use
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import leaves
from fedplug.round.base import facts_of
from fedplug_ledger.charging import ledger_of, releases_of
from fedplug_ledger.costs import credit_in_steps, strongest, strongest_other
from fedplug_ledger.entries import RoundEntry
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_ledger.verdict import Verdict
from fedplug_runs.compared import Compared
from fedplug_runs.own_files import is_own
from fedplug_runs.plan import plan_of

from fedplug_evidence.facts import Charges, Contents

CLOSE = 1e-6
"""The largest relative difference of numbers: other versions of numpy and scipy round differently."""
MOST_CLIENTS = 1_000_000
"""A ledger has a number for each client, and the machine of a reviewer may be small."""
_OF_EPSILON = {"epsilons", "zones"}
"""The keys of a ledger with epsilons, in addition to the verdict."""


@dataclasses.dataclass(frozen=True, eq=False)
class Reckoned:
    """The result of recomputing a ledger.

    Attributes:
        differences: place, stated and recomputed value, in words.
        notes: the assumptions behind the figures.
        unchecked: what could not be recomputed, and why.
        figures: how many numbers and texts were compared.
    """

    differences: list[str]
    notes: list[str]
    unchecked: list[str]
    figures: int = 0


@dataclasses.dataclass(eq=False)
class _Begun:
    """An empty ledger of a recipe.

    Attributes:
        ledger: without a round.
        protocol: the recipe, its components and the public facts of a round; None if they cannot be read here.
        left_out: keys of a ledger that cannot be recomputed.
        unpriced: whether no epsilon can be recomputed.
        unchecked: the reasons.
    """

    ledger: Ledger
    protocol: tuple[Recipe, Composition, Facts] | None = None
    left_out: set[str] = dataclasses.field(default_factory=set)
    unpriced: bool = False
    unchecked: list[str] = dataclasses.field(default_factory=list)


def reckon(contents: Contents, catalog: Catalog | None = None) -> Reckoned:
    """Recomputes the ledger from the charges and compares every figure with the stated one.

    Args:
        contents: of a folder.
        catalog: the available components; default: those installed.
    """
    charges, stated = contents.charges, contents.ledger
    differences, notes = [*_unlike_recipe(contents), *_unlike_log(charges, stated)], list[str]()
    unchecked: list[str] = []
    if charges.clients > MOST_CLIENTS:
        return Reckoned([*differences, f"charges.json, clients: {charges.clients} is more than any run has"], notes, [])
    try:
        begun = _begun(contents, catalog or Catalog.discover())
        unchecked += begun.unchecked
        # If participation is secret, the ledger states everything as if all clients had been asked.
        log = [dataclasses.replace(each, charged="all") if each.charged == "secret" else each for each in charges.log]
        reveals = [shown.to_plain() for shown in charges.reveals]
        unopened = [list(place) for place in charges.unopened]
        said = {"uncovered": stated.uncovered_messages, "reveals": reveals}
        begun.ledger.restore({**said, "unopened": unopened}, log)
        again = begun.ledger.report()
        if begun.protocol:
            differences += _unlike_protocol(contents, *begun.protocol[:2])
            differences += _unlike_noise(charges, *begun.protocol, unchecked)
    except ImportError as error:
        return Reckoned(differences, notes, [*unchecked, f"The ledger cannot be recomputed here: {error}"])
    except (FedplugError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        # No run wrote this: a ledger always follows from the charges of a run.
        return Reckoned([*differences, f"charges.json: no ledger follows from it ({error})"], notes, unchecked)
    secret = {each.charged == "secret" for each in charges.log}
    if True in secret:
        notes.append(
            "Participation is secret in this run, so no charge names a client: every figure is computed as if all "
            "clients had been asked in every round, as in the ledger"
        )
    if begun.unpriced:  # whether sampling hides participation then depends on an accountant that is missing here
        sampled = begun.ledger.sampling
        may_hide = sampled is not None and (sampled.scheme, sampled.source) == ("poisson", "secure")
        hides = {True, False} if may_hide else {False}
    else:
        hides = {again.sampling.amplified}
    if len(secret) > 1 or not secret <= hides:
        differences.append(
            f"charges.json, log: it {'hides' if True in secret else 'names'} who took part, but by the recipe and the "
            f"releases that {'is' if True in hides else 'cannot be'} secret"
        )
    said, reckoned = stated.to_plain(for_json=True), again.to_plain(for_json=True)
    left_out = {"log", *begun.left_out}  # the log was compared directly
    untold = {*stated.levels} & ({*begun.ledger.keepers} if begun.protocol else {*stated.levels})
    if untold and (secret == {True} or not begun.protocol):
        left_out.add("levels")
        why = "of clients is secret" if begun.protocol else "is kept by a component that cannot be read here"
        unchecked.append(f"The account of levels ({', '.join(sorted(untold))}) {why}, so it was not recomputed")
    else:
        untold = set()
    if untold or begun.unpriced:
        left_out.add("verdict")
        differences += _unlike_lines(stated.verdict, again.verdict, untold, begun.unpriced)
    for key in left_out:
        reckoned.pop(key, None)
        said.pop(key, None)
    return Reckoned([*differences, *unlike(said, reckoned, "ledger.json")], notes, unchecked, len([*leaves(said)]))


def shown_in_run(contents: Contents, catalog: Catalog | None = None) -> list[Reveals]:
    """The entries in a ledger's list of revealed facts that do not follow from the recipe."""
    follows = _begun(contents, catalog or Catalog.discover()).ledger.reveals
    return [shown for shown in contents.ledger.reveals if shown not in follows]


def _unlike_lines(stated: Verdict, again: Verdict, untold: set[str], unpriced: bool) -> Iterator[str]:
    """Differences of a verdict in lines that can be recomputed: not those of levels or with an epsilon.

    Args:
        stated, again: the two verdicts.
        untold: levels that were not recomputed.
        unpriced: whether no epsilon was recomputed.
    """
    if [line.party for line in stated.lines] != [line.party for line in again.lines]:
        yield "ledger.json, verdict, lines: the parties or their order differ"
        return
    for number, (line, reckoned) in enumerate(zip(stated.lines, again.lines, strict=True)):
        of_level = line.unit in untold and reckoned.state != "absent"
        if not (of_level or (unpriced and reckoned.epsilons is not None)):
            one, other = line.to_plain(for_json=True), reckoned.to_plain(for_json=True)
            yield from unlike(one, other, f"ledger.json, verdict, lines, {number}")
    yield from unlike(stated.not_judged, again.not_judged, "ledger.json, verdict, not_judged")
    if (status := Verdict.of(stated.lines).status) != stated.status:
        yield f"ledger.json, verdict, status: {stated.status!r}, but its lines give {status!r}"


def _begun(contents: Contents, catalog: Catalog) -> _Begun:
    """An empty ledger of this recipe."""
    charges, stated, plain = contents.charges, contents.ledger, contents.recipe
    if not (own := sorted(own_uses(plain))):
        try:
            recipe = Recipe.from_plain(plain, catalog)
            engine = catalog.get("engine", contents.facts.engine)
            # More words than the recipe has never promise more: listeners are known from them alone.
            around = [*contents.ledger.words, *titles_of_strangers([engine] if engine else [])]
            composition, layout = Composition(recipe, around), Layout.of([("all", (contents.facts.parameters,))])
            facts = facts_of(composition, layout, 0)
            return _Begun(ledger_of(recipe, composition, layout), (recipe, composition, facts))
        except (FedplugError, ImportError) as error:
            why = f"the recipe cannot be read here ({str(error).splitlines()[0]})"
    else:
        why = f"the recipe names {' and '.join(own)}, and the user's own code is not run here"
    unchecked, left_out, unpriced = (
        [f"The statements of the components were not checked, because {why}"],
        set[str](),
        False,
    )
    accountant, word = None, ""
    if charges.accountant:
        accountant, word = _accountant(plain.get("accountant"), catalog)
        if accountant is None:
            left_out |= _OF_EPSILON | ({"sampling", "warnings"} if charges.sampling else set())
            unpriced = True
            unchecked.append(f"The accountant {charges.accountant} is not installed here, so no epsilon was recomputed")
    kinds = {release.mechanism for entry in charges.log for z in entry.zones.values() for release in z.releases}
    if strange := {f.other[0] for e in charges.log for f in e.zones.values() if f.other} - {*OF_EPSILON}:
        left_out |= _OF_EPSILON | {"warnings"}
        unpriced = True
        named = " and ".join(sorted(strange & kinds))
        unchecked.append(f"The cost of {named} noise is stated by its component and was not recomputed")
    ledger = Ledger(
        recipe_name=stated.recipe, num_clients=charges.clients, rounds=charges.rounds, min_clients=charges.min_clients,
        delta=charges.delta, sampling=None if charges.sampling is None else Sampling(**charges.sampling),
        encryption=stated.encryption, accountant=accountant,
        words=sorted({*stated.words, *([word] if word else [])}), reveals=stated.reveals, presence=charges.presence,
        colluders=max([1, *(r.colluders for e in charges.log for z in e.zones.values() for r in z.releases)]),
    )  # fmt: skip
    return _Begun(ledger, None, left_out, unpriced, unchecked)


def _accountant(plain: Any, catalog: Catalog) -> tuple[Accountant | None, str]:
    """The accountant that a recipe names, with its options, and its name where it is not of fedplug itself; None if it
    is not installed.
    """
    entry = catalog.get("accountant", plain["use"]) if isinstance(plain, Mapping) else None
    if entry is None:
        return None, ""
    try:
        kind: Any = entry.load()
        options = {key: value for key, value in plain.items() if key not in ("use", "name")}
        use = Use(
            entry.name, plain.get("name", entry.name), "accountant", kind.Options.model_validate(options),
            made_of=kind, distribution=entry.distribution,
        )  # fmt: skip
        made = instantiate(use)
    except (FedplugError, ValueError):
        return None, ""
    return (made, "" if shipped(use) else use.name) if isinstance(made, Accountant) else (None, "")


def own_uses(plain: Any) -> Iterator[str]:
    """The user's own files that a recipe names."""
    for path, use, _ in leaves(plain):
        if path[-1:] == ("use",) and isinstance(use, str) and is_own(use):
            yield use.rpartition(":")[0]


def _unlike_recipe(contents: Contents) -> Iterator[str]:
    """Differences between the recipe and the charges and facts."""
    charges, facts, plain = contents.charges, contents.facts, contents.recipe
    data = plain.get("data")
    clients = data.get("clients") if isinstance(data, Mapping) else None
    sampling, ledger, accountant = plain.get("sampling"), contents.ledger, plain.get("accountant")
    for place, said, recipe in (
        ("run.json, digest", facts.digest, contents.digest),
        ("run.json, name", facts.name, plain.get("name")),
        ("run.json, clients", facts.clients, clients),
        ("run.json, rounds", facts.rounds, plain.get("rounds")),
        ("charges.json, clients", charges.clients, clients),
        ("charges.json, rounds", charges.rounds, plain.get("rounds")),
        ("charges.json, min_clients", charges.min_clients, plain.get("min_clients")),
        ("charges.json, delta", charges.delta, plain.get("delta")),
        ("charges.json, sampling", charges.sampling, sampling),
        ("charges.json, accountant", charges.accountant, accountant["use"] if isinstance(accountant, Mapping) else ""),
        ("ledger.json, recipe", ledger.recipe, plain.get("name")),
        ("own_files.json", contents.own_files.sha256, dict(own_files(plain))),
    ):
        if said != recipe:
            yield f"{place}: {said!r}, but recipe.yaml says {recipe!r}"
    yield from _unlike_zones(contents)


def _unlike_zones(contents: Contents) -> Iterator[str]:
    """Zones and rounds in the facts that do not exist, and sizes that differ."""
    plain, sent, facts = contents.recipe, contents.sent, contents.facts
    known = {RETAINED, *(plain.get("protect") or ()), *(plain.get("postprocess") or ())}
    compared = sent.compared or Compared()
    for place, zones in (
        ("messages.json, closed", [closed.zone for closed in sent.closed]),
        ("messages.json, values", sent.values),
        ("messages.json, compared, values", compared.values),
        ("messages.json, compared, found", compared.found),
        ("messages.csv", [way.zone for way in contents.ways if way.zone != "other"]),
    ):
        if strange := sorted({*zones} - known):
            yield f"{place}: it names the zone {strange[0]}, which recipe.yaml does not have"
    if strange := sorted({*compared.found} - {*compared.values}):
        yield f"messages.json, compared, found: values of the {strange[0]} zone, for which no client looked"
    if sent.recorded and compared.messages > sent.answers:
        yield f"messages.json, compared, messages: {compared.messages}, but clients sent only {sent.answers}"
    secret = any(entry.charged == "secret" for entry in contents.charges.log)
    first, last = (0, 0) if secret else (1, facts.rounds)
    for way in contents.ways:
        if not first <= way.round <= last or way.way not in ("up", "down", "key_server"):
            yield f"messages.csv: it has {way.way} bytes of round {way.round}, which cannot exist"
            break
    for number, entry in enumerate(contents.charges.log):
        if entry.total != facts.parameters:
            yield f"run.json, parameters: {facts.parameters}, but charges.json, log, {number} says {entry.total}"
            break


def _unlike_protocol(contents: Contents, recipe: Recipe, composition: Composition) -> Iterator[str]:
    """Differences between the files and the components that the recipe names."""
    plan = [*map(list, plan_of(recipe, composition))]
    presence = math.prod((section.presence for section in recipe.sections.values()), start=1.0)
    yield from unlike([*map(list, contents.facts.plan)], plan, "run.json, plan", "recipe.yaml gives")
    yield from unlike(contents.charges.presence, presence, "charges.json, presence", "recipe.yaml gives")
    if strange := sorted({*contents.ledger.levels} - {*composition.keepers}):
        yield f"ledger.json, levels: {strange[0]}, but no component of recipe.yaml keeps an account of it"


def _unlike_noise(
    charges: Charges, recipe: Recipe, composition: Composition, facts: Facts, unchecked: list[str]
) -> Iterator[str]:
    """Noise in the charges that the recipe does not have. Numbers that differ are `unchecked`.

    Numbers may depend on what components published in a run, which is not known here.
    """
    doubts: dict[str, None] = {}
    for number, entry in enumerate(charges.log):
        now, at = facts.at(entry.round - 1), f"charges.json, log, {number}"
        behind = {zone: released(now.steps(zone)) for zone in composition.links}
        known = {zone: [*found.releases] if found else [] for zone, found in behind.items()}
        known |= {f"ballots of {name}": releases_of(name, given) for name, given in composition.ballots(now)}
        for zone, entered in entry.zones.items():
            if zone not in known:
                yield f"{at}, zones: {zone}, which recipe.yaml does not have"
                continue
            said, found = entered.releases, known[zone]
            if [_kind(release) for release in said] != [_kind(release) for release in found]:
                kinds = [", ".join(map(_kind, each)) or "none" for each in (said, found)]
                yield f"{at}, zones, {zone}, releases: the noise is {kinds[0]}, but recipe.yaml gives {kinds[1]}"
                continue
            # Bounds and steps also depend on the model's layers, which are not known here. They cost nothing.
            pairs = [
                [dataclasses.replace(release, clipping_norm=0.0, step=0.0).to_plain(for_json=True) for release in each]
                for each in (said, found)
            ]
            place = f"of the {zone} zone, releases"
            doubts |= dict.fromkeys(unlike(pairs[0], pairs[1], place, "recipe.yaml gives"))
        if entry.secret_cohort and not {*entry.zones} <= amplified(recipe.sampling, now):
            yield f"{at}, secret_cohort: true, but by recipe.yaml the sums show who took part"
    unchecked += [
        f"The noise in charges.json may depend on events in the run: {doubt}" for doubt in [*doubts][:3]
    ]


def _kind(release: Release) -> str:
    return f"{release.mechanism} ({release.trust})"


def _unlike_log(charges: Charges, stated: LedgerReport) -> Iterator[str]:
    """Contradictions between the charges and the stated ledger, or in the charges."""
    yield from unlike(
        [entry.to_plain(for_json=True) for entry in stated.log],
        [entry.to_plain(for_json=True) for entry in charges.log],
        "ledger.json, log", "charges.json says",
    )  # fmt: skip
    for number, entry in enumerate(charges.log):
        place = f"charges.json, log, {number}"
        clients = entry.charged if isinstance(entry.charged, list) else []
        if strange := [client for client in clients if client >= charges.clients]:
            yield f"{place}: it charges client {strange[0]}, but there are {charges.clients} clients"
        if not 1 <= entry.round <= charges.rounds:
            yield f"{place}: it is of round {entry.round}, but there are {charges.rounds} rounds"
        yield from _unlike_releases(entry, place)
        for zone, entered in entry.zones.items():
            steps = [credit_in_steps(r, charges.clients) for r in entered.releases if r.mechanism in INTEGER]
            most = 1.0 if entered.uncredited else max([math.sqrt(charges.clients), *steps]) * (1 + CLOSE)
            for name in ("sum_factor", "peer_factor"):
                if (factor := getattr(entered, name)) is not None and not 1 <= factor <= most:
                    yield f"{place}, zones, {zone}, {name}: {factor:g}, but it must be 1 to {most:g}"


def _unlike_releases(entry: RoundEntry, place: str) -> Iterator[str]:
    """Multipliers of an entry that do not follow from its releases."""
    for zone, entered in entry.zones.items():
        releases = entered.releases
        found = {
            "local": strongest(release for release in releases if release.trust != "central"),
            "central": strongest(release for release in releases if release.trust == "central"),
            "slack": max((release.slack for release in releases), default=0.0),
            "other": strongest_other(releases, {entered.other[0]} if entered.other else ()),
        }
        for name, value in found.items():
            if getattr(entered, name) != value:
                yield f"{place}, zones, {zone}, {name}: {getattr(entered, name)!r}, but its releases give {value!r}"


def own_files(plain: Any) -> Iterator[tuple[str, str]]:
    """Name and SHA-256 of each of the user's own files, from the resolved recipe, sorted."""
    found = dict[str, str]()
    for path, digest, around in leaves(plain):
        if path[-1:] == ("sha256",) and isinstance(digest, str):
            use, named = around.get("use"), around.get("file")
            if isinstance(use, str):
                found[use.rpartition(":")[0]] = digest
            elif isinstance(named, str):
                found[named] = digest
    yield from sorted(found.items())


def data_files(plain: Any) -> list[str]:
    """The data files that a recipe names, of which it has no SHA-256."""
    data = plain.get("data") if isinstance(plain, Mapping) else None
    if not isinstance(data, Mapping):
        return []
    return [each for key, each in data.items() if isinstance(each, str) and (key == "file" or key.endswith("_file"))]


def unlike(stated: Any, again: Any, place: str, how: str = "recomputing gives") -> Iterator[str]:
    """Differences between two pieces of plain data. Numbers may differ by `CLOSE`."""
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        for key in [*stated, *(key for key in again if key not in stated)]:
            if key not in again:
                yield f"{place}, {key}: {_shown(stated[key])}, but {how} none"
            elif key not in stated:
                yield f"{place}, {key}: missing, but {how} {_shown(again[key])}"
            else:
                yield from unlike(stated[key], again[key], f"{place}, {key}", how)
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for number, (one, other) in enumerate(zip(stated, again, strict=True)):
            yield from unlike(one, other, f"{place}, {number}", how)
    elif not _alike(stated, again):
        yield f"{place}: {_shown(stated)}, but {how} {_shown(again)}"


def _alike(one: Any, other: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return math.isclose(one, other, rel_tol=CLOSE) if numbers else type(one) is type(other) and bool(one == other)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."

