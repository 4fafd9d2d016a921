"""Where two of the runs that are compared are not comparable, and in what: sentences for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from fedplug_runs.onward import resume_command
from fedplug_runs.units import many

from fedplug_lab.records import Compared, OneRun, attacks_on

_MANY = 8  # names in one sentence
_OF_TIME = frozenset({"time"})
ACCURACY, PRIVACY, TRAFFIC, TIME = GROUPS = ("accuracy", "privacy", "traffic", "time")
"""The groups of numbers of a comparison, in the order of its table."""
HEADINGS = {group: group.capitalize() for group in GROUPS if group != ACCURACY} | {PRIVACY: "Privacy toward"}
"""Of the groups, where people read; below the one of privacy each row is a party."""


class Unlike(NamedTuple):
    """Something that runs differ in, besides the protocol, and that their numbers depend on.

    Attributes:
        text: a sentence for people.
        spoils: the groups of numbers that do not compare because of it.
    """

    text: str
    spoils: frozenset[str] = frozenset()


class Aspect(NamedTuple):
    """What must be alike, how it reads, which numbers do not compare where it differs, and that in a sentence."""

    what: str
    read: Callable[[OneRun], str]
    spoils: tuple[str, ...]
    consequence: str


def warnings(everyone: Sequence[Compared]) -> list[Unlike]:
    """Everything that the runs differ in and that their numbers depend on, besides the protocol itself."""
    said = [*_parts(everyone), *_incomplete(everyone), *_seeds(everyone), *_versions(everyone)]
    for aspect in _ASPECTS:
        said += _differing(everyone, aspect)
    return [*said, *_epsilons(everyone, _OF_GUARANTEE), *_attacks(everyone), *_at_once(everyone)]


def unlike(everyone: Sequence[Compared], names: Collection[str]) -> list[str]:
    """The same where the protocols are meant to differ in their options: what makes these numbers of another kind.

    Args:
        everyone: what is compared.
        names: of the numbers by which it is, as in `compare.csv`.
    """
    said = [*_incomplete(everyone), *_differing(everyone, _ASPECTS[0])]
    if any(name.startswith("epsilon") for name in names):
        said += _epsilons(everyone, (*_OF_GUARANTEE, *_OF_EPSILON))
    if "leakage" in names:
        said += _attacks(everyone)
    if "seconds" in names:
        said += [*_versions(everyone), *_differing(everyone, _ASPECTS[-1]), *_at_once(everyone)]
    return [found.text for found in said]


def _epsilons(everyone: Sequence[Compared], aspects: Sequence[Aspect]) -> list[Unlike]:
    priced = [each for each in everyone if any(run.result.epsilon is not None for run in each.runs)]
    return [line for aspect in aspects for line in _differing(priced, aspect)]


def _attacks(everyone: Sequence[Compared]) -> list[Unlike]:
    attacked = [each for each in everyone if attacks_on(each)]
    if len({frozenset(attacks_on(each)) for each in attacked}) < 2 and len(attacked) in (0, len(everyone)):
        return []
    counts = ", ".join(f"{len(attacks_on(each))} on {each.name}" for each in everyone)
    return [Unlike(f"attacks: not the same ones were made ({counts}); fewer attacks protect nobody better")]


def _differing(everyone: Sequence[Compared], aspect: Aspect) -> list[Unlike]:
    found: dict[str, list[str]] = {}
    for each in everyone:
        for value in dict.fromkeys(map(aspect.read, each.runs)):
            found.setdefault(value, []).append(each.name)
    if len(found) < 2:
        return []
    groups = "; ".join(f"{value or 'nothing stated'} in {_some(names)}" for value, names in found.items())
    return [Unlike(f"{aspect.what}: {groups}. {aspect.consequence}", frozenset(aspect.spoils))]


def _some(names: Sequence[str]) -> str:
    """Names, of many the first ones."""
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more


def _options(use: Any, *without: str) -> str:
    """A component of a recipe with its options, as text; one that another place of the recipe defines by its name."""
    if isinstance(use, str):
        return use
    if not isinstance(use, Mapping):
        return "none"
    rest = {key: value for key, value in use.items() if key not in ("use", "name", *without) and value is not None}
    return " ".join([str(use.get("use")), *(f"{key}={_text(value)}" for key, value in rest.items())])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _data(run: OneRun) -> str:
    return _options(run.summary.recipe["data"], "clients", "partition")


def _split(run: OneRun) -> str:
    data = run.summary.recipe["data"]
    return f"{many(data['clients'], 'client')}, {_options(data.get('partition'))}"


def _work(run: OneRun) -> str:
    """Rounds, local training and how many take part: what a client computes."""
    recipe = run.summary.recipe
    train = recipe.get("train") or {}
    train = {"use": train} if isinstance(train, str) else train  # defined in another place of the recipe
    epochs = f" of {train.get('use')}, which counts no epochs"
    if "epochs" in train:
        epochs = f" x {many(train['epochs'], 'epoch')}"
    batch = f" in batches of {train['batch_size']}" if "batch_size" in train else ""
    rate = (recipe.get("sampling") or {}).get("rate")
    return f"{many(recipe['rounds'], 'round')}{epochs}{batch}" + (f", {rate} of the clients a round" if rate else "")


def _machine(run: OneRun) -> str:
    return f"engine {run.summary.engine} on {run.summary.device}"


_ASPECTS = (
    Aspect("data", _data, (ACCURACY,), "Figures are not of one task."),
    Aspect("clients and their data", _split, (ACCURACY, TRAFFIC), "Figures and bytes are not of one setting."),
    Aspect("model", lambda run: _options(run.summary.recipe.get("model")), (ACCURACY, TRAFFIC),
           "Figures and bytes are not of one model."),
    Aspect("local work", _work, (ACCURACY, TRAFFIC, TIME), "Figures, bytes and seconds are not of equal work."),
    Aspect("machine", _machine, (TIME,), "Seconds do not compare."),
)  # fmt: skip
_OF_GUARANTEE = (
    Aspect("unit of epsilon", lambda run: run.ledger.unit, (PRIVACY,), "Epsilons are not of one kind."),
    Aspect("adjacency", lambda run: run.ledger.adjacency, (PRIVACY,), "Epsilons are not of one kind."),
    Aspect("delta", lambda run: str(run.ledger.delta), (PRIVACY,), "Epsilons do not compare."),
)
_OF_EPSILON = (
    Aspect("what epsilon prices", lambda run: run.ledger.epsilon_prices, (),
           "These epsilons are not one promise: compare party by party."),
    Aspect("who is trusted", lambda run: run.ledger.trust, (),
           "These epsilons hold toward different parties: compare party by party."),
)  # fmt: skip
"""Of the one epsilon that a run leads with."""


def _parts(everyone: Sequence[Compared]) -> list[Unlike]:
    return [
        Unlike(f"{each.name}: its runs were made by different recipes", frozenset(GROUPS))
        for each in everyone
        if len({json.dumps({**run.summary.recipe, "seed": 0}, sort_keys=True) for run in each.runs}) > 1
    ]


def _incomplete(everyone: Sequence[Compared]) -> list[Unlike]:
    unequal = frozenset({ACCURACY, TRAFFIC, TIME})
    return [
        Unlike(f"{each.name}, seed {run.seed}: {len(run.rows)} of {many(run.planned, 'round')}; "
               f"{resume_command(run.folder)} goes on", frozenset(GROUPS))
        for each in everyone for run in each.runs if len(run.rows) < run.planned
    ] + [
        Unlike(f"{each.name}, seed {run.seed}: {skipped} of {many(run.planned, 'round')} fell short and moved no "
               "model. Figures, bytes and seconds are not of equal work.", unequal)
        for each in everyone for run in each.runs if (skipped := sum(bool(row.skipped) for row in run.rows))
    ]  # fmt: skip


def _seeds(everyone: Sequence[Compared]) -> list[Unlike]:
    found = {each.name: sorted(each.by_seed) for each in everyone}
    if len({tuple(seeds) for seeds in found.values()}) < 2:
        return []
    groups = "; ".join(f"{name} has {', '.join(map(str, seeds))}" for name, seeds in found.items())
    return [Unlike(f"seeds: {groups}. Differences are over the seeds that both have, means over all.")]


def _versions(everyone: Sequence[Compared]) -> list[Unlike]:
    """Distributions of which two runs used different versions."""
    found: dict[str, dict[str, None]] = {}
    for each in everyone:
        for run in each.runs:
            for name, version in run.summary.versions.items():
                found.setdefault(name, {})[version] = None
    differing = [f"{name} {' and '.join(versions)}" for name, versions in found.items() if len(versions) > 1]
    said = []
    if differing:
        said = [Unlike(f"versions: {', '.join(differing)}. Seconds, and perhaps more, do not compare.", _OF_TIME)]
    older = {name: (version, now) for name, versions in found.items() for version in versions
             if (now := _installed(name)) not in (None, version)}  # fmt: skip
    if older:
        pairs = ", ".join(f"{name} {version} (installed: {now})" for name, (version, now) in older.items())
        now_others = "What is installed now may give other numbers."
        said.append(Unlike(f"versions: runs were made with {pairs}. {now_others}"))
    return said


def _installed(name: str) -> str | None:
    """Which version of a distribution is here; None where it is none, such as Python, or not installed."""
    from importlib_metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _at_once(everyone: Sequence[Compared]) -> list[Unlike]:
    """Runs that shared the machine: their files say when they began and ended."""
    spans = []
    for each in everyone:
        for run in each.runs:
            began, ended = ((run.folder / name).stat().st_mtime for name in ("recipe.yaml", "metrics.jsonl"))
            if ended > began and not run.summary.resumed:
                spans.append((began, ended))
    spans.sort()
    over = sum(later[0] < earlier[1] for earlier, later in pairwise(spans))
    shared = "machine: some of the runs went on at the same time. Seconds do not compare."
    return [Unlike(shared, _OF_TIME)] if over else []
