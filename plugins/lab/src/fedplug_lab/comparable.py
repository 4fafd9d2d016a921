"""Where two of the runs that are compared are not comparable, and in what: sentences for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from fedplug_lab.compared import Compared, OneRun
from fedplug_lab.leakage import attacks_on

_MANY = 8  # names in one sentence
Aspect = tuple[str, Callable[[OneRun], str], str]
"""What must be alike, how it reads, and what does not compare where it differs."""


def warnings(everyone: Sequence[Compared]) -> list[str]:
    """Everything that the runs differ in and that their numbers depend on, beside the protocol itself."""
    said = [*_parts(everyone), *_incomplete(everyone), *_seeds(everyone), *_versions(everyone)]
    for what, read, consequence in _ASPECTS:
        said += _differing(everyone, what, read, consequence)
    return [*said, *_epsilons(everyone), *_attacks(everyone), *_at_once(everyone)]


def unlike(everyone: Sequence[Compared], names: Collection[str]) -> list[str]:
    """The same where the protocols are meant to differ in their options: what makes these numbers of another kind.

    Args:
        everyone: what is compared.
        names: of the numbers by which it is, as in `compare.csv`.
    """
    said = [*_incomplete(everyone), *_differing(everyone, *_ASPECTS[0])]
    if any(name.startswith("epsilon") for name in names):
        said += _epsilons(everyone)
    if "leakage" in names:
        said += _attacks(everyone)
    if "seconds" in names:
        said += [*_versions(everyone), *_differing(everyone, *_ASPECTS[-1]), *_at_once(everyone)]
    return said


def _epsilons(everyone: Sequence[Compared]) -> list[str]:
    priced = [each for each in everyone if any(run.result.epsilon is not None for run in each.runs)]
    return [line for aspect in _OF_EPSILON for line in _differing(priced, *aspect)]


def _attacks(everyone: Sequence[Compared]) -> list[str]:
    attacked = [each for each in everyone if attacks_on(each)]
    if len({frozenset(attacks_on(each)) for each in attacked}) < 2 and len(attacked) in (0, len(everyone)):
        return []
    counts = ", ".join(f"{len(attacks_on(each))} on {each.name}" for each in everyone)
    return [f"attacks: not the same ones were made ({counts}); fewer attacks protect nobody better"]


def _differing(everyone: Sequence[Compared], what: str, read: Callable[[OneRun], str], consequence: str) -> list[str]:
    found: dict[str, list[str]] = {}
    for each in everyone:
        for value in dict.fromkeys(map(read, each.runs)):
            found.setdefault(value, []).append(each.name)
    if len(found) < 2:
        return []
    groups = "; ".join(f"{value or 'nothing stated'} in {_some(names)}" for value, names in found.items())
    return [f"{what}: {groups}. {consequence}"]


def _some(names: Sequence[str]) -> str:
    """Names, of many the first ones."""
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more


def _options(use: Any, *without: str) -> str:
    """A component of a recipe with its options, as text."""
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
    return f"{data.get('clients')} clients, {_options(data.get('partition'))}"


def _work(run: OneRun) -> str:
    """Rounds, local training and how many take part: what a client computes."""
    recipe = run.summary.recipe
    train = recipe.get("train") or {}
    epochs = f" x {train['epochs']} epochs" if "epochs" in train else f" of {train.get('use')}, which counts no epochs"
    batch = f" in batches of {train['batch_size']}" if "batch_size" in train else ""
    rate = (recipe.get("sampling") or {}).get("rate")
    return f"{recipe['rounds']} rounds{epochs}{batch}" + (f", {rate} of the clients a round" if rate else "")


def _machine(run: OneRun) -> str:
    return f"engine {run.summary.engine} on {run.summary.device}"


_ASPECTS: tuple[Aspect, ...] = (
    ("data", _data, "Accuracies are not of one task."),
    ("clients and their data", _split, "Accuracies and bytes are not of one setting."),
    ("model", lambda run: _options(run.summary.recipe.get("model")), "Accuracies and bytes are not of one model."),
    ("local work", _work, "Accuracies, bytes and seconds are not of equal work."),
    ("machine", _machine, "Seconds do not compare."),
)
_OF_EPSILON: tuple[Aspect, ...] = (
    ("unit of epsilon", lambda run: run.ledger.unit, "Epsilons are not of one kind."),
    ("adjacency", lambda run: run.ledger.adjacency, "Epsilons are not of one kind."),
    ("delta", lambda run: str(run.ledger.delta), "Epsilons do not compare."),
    ("what epsilon prices", lambda run: run.ledger.epsilon_prices,
     "These epsilons are not one promise: compare view by view."),
    ("who is trusted", lambda run: run.ledger.trust,
     "These epsilons hold toward different parties: compare view by view."),
)  # fmt: skip


def _parts(everyone: Sequence[Compared]) -> list[str]:
    return [
        f"{each.name}: its runs were made by different recipes"
        for each in everyone
        if len({json.dumps({**run.summary.recipe, "seed": 0}, sort_keys=True) for run in each.runs}) > 1
    ]


def _incomplete(everyone: Sequence[Compared]) -> list[str]:
    return [
        f"{each.name}, seed {run.seed}: {len(run.rows)} of {run.planned} rounds; fedplug resume {run.folder} goes on"
        for each in everyone for run in each.runs if len(run.rows) < run.planned
    ] + [
        f"{each.name}, seed {run.seed}: {skipped} of {run.planned} rounds fell short and moved no model. Accuracies, "
        "bytes and seconds are not of equal work."
        for each in everyone for run in each.runs if (skipped := sum(bool(row.skipped) for row in run.rows))
    ]  # fmt: skip


def _seeds(everyone: Sequence[Compared]) -> list[str]:
    found = {each.name: sorted(each.by_seed) for each in everyone}
    if len({tuple(seeds) for seeds in found.values()}) < 2:
        return []
    groups = "; ".join(f"{name} has {', '.join(map(str, seeds))}" for name, seeds in found.items())
    return [f"seeds: {groups}. Differences are over the seeds that both have, means over all."]


def _versions(everyone: Sequence[Compared]) -> list[str]:
    """Distributions of which two runs used different versions."""
    found: dict[str, dict[str, None]] = {}
    for each in everyone:
        for run in each.runs:
            for name, version in run.summary.versions.items():
                found.setdefault(name, {})[version] = None
    differing = [f"{name} {' and '.join(versions)}" for name, versions in found.items() if len(versions) > 1]
    said = [f"versions: {', '.join(differing)}. Seconds, and perhaps more, do not compare."] if differing else []
    older = {name: (version, now) for name, versions in found.items() for version in versions
             if (now := _installed(name)) not in (None, version)}  # fmt: skip
    if older:
        pairs = ", ".join(f"{name} {version} (installed: {now})" for name, (version, now) in older.items())
        said.append(f"versions: runs were made with {pairs}. What is installed now may give other numbers.")
    return said


def _installed(name: str) -> str | None:
    """Which version of a distribution is here; None where it is none, such as Python, or not installed."""
    from importlib_metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _at_once(everyone: Sequence[Compared]) -> list[str]:
    """Runs that shared the machine: their files say when they began and ended."""
    spans = []
    for each in everyone:
        for run in each.runs:
            began, ended = ((run.folder / name).stat().st_mtime for name in ("recipe.yaml", "metrics.jsonl"))
            if ended > began and not run.summary.resumed:
                spans.append((began, ended))
    spans.sort()
    over = sum(later[0] < earlier[1] for earlier, later in pairwise(spans))
    return ["machine: some of the runs went on at the same time. Seconds do not compare."] if over else []
