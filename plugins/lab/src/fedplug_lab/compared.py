"""The compared protocols: names, and the finished runs of each, read from their folders."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_runs.folder import Summary, read_ledger, read_rows, read_summary
from fedplug_runs.rows import Row

from fedplug_lab.grid import SEED, Combination, short_names
from fedplug_lab.records import result_of
from fedplug_lab.results import Result
from fedplug_lab.zones import as_sent

_APART = ("name", "description", SEED)  # of runs that differ in nothing else, the protocol is the same
_DIFFERENCES = 3  # the most that a name has


@dataclasses.dataclass(frozen=True, eq=False)
class OneRun:
    """A run that is compared, as its folder has it."""

    folder: Path
    rows: Sequence[Row]
    ledger: LedgerReport
    summary: Summary
    result: Result

    @property
    def seed(self) -> int:
        """That of its recipe."""
        return int(self.summary.recipe[SEED])

    @property
    def planned(self) -> int:
        """How many rounds its recipe has."""
        return int(self.summary.recipe["rounds"])


@dataclasses.dataclass(frozen=True, eq=False)
class Compared:
    """One of those that are compared: its name, and its runs, at least one, by seed."""

    name: str
    runs: Sequence[OneRun]

    @property
    def by_seed(self) -> dict[int, OneRun]:
        """Its runs."""
        return {run.seed: run for run in self.runs}

    @property
    def one(self) -> OneRun:
        """Its first run, for what all of them have in common."""
        return self.runs[0]


class NotBegun(CheckpointError):
    """A run without a finished round."""


def open_run(folder: Path) -> OneRun:
    """Reads what a run left behind.

    Raises:
        CheckpointError: it is not a run folder, or a file in it is missing or damaged.
    """
    if not (folder / "recipe.yaml").is_file():
        inside = sorted(file.parent.name for file in folder.glob("*/recipe.yaml"))
        more = f"; there are runs in it, such as {folder / inside[0]}" if inside else ""
        raise CheckpointError(f"{folder} is not a run folder: it has no recipe.yaml{more}")
    rows = read_rows(folder)
    if not rows:
        raise NotBegun(f"{folder} has no finished round; continue it first: fedplug resume {folder}")
    summary = read_summary(folder)
    if not {SEED, "rounds", "data"} <= summary.recipe.keys():
        raise CheckpointError(f"{folder / 'summary.json'} holds no whole recipe; put it back as the run wrote it")
    return OneRun(folder, as_sent(rows, summary.recipe), read_ledger(folder), summary, result_of(folder))


def of_folders(folders: Sequence[Path]) -> list[Compared]:
    """Runs that are there, those of one protocol together: they differ in their seeds alone.

    Several protocols of one name are told apart by what they set otherwise.

    Raises:
        CheckpointError: holds what is wrong with each folder; or two runs are of one recipe and seed.
    """
    opened: list[OneRun] = []
    problems: list[str] = []
    for folder in folders:
        try:
            opened.append(open_run(folder))
        except CheckpointError as error:
            problems.append(str(error))
    known: dict[str, Path] = {}
    for run in opened:
        if (other := known.setdefault(run.summary.digest, run.folder)) is not run.folder:
            problems.append(f"{run.folder} and {other} are of one recipe and seed; name one of them")
    if problems:
        raise CheckpointError("\n".join(problems))
    groups: dict[str, list[OneRun]] = {}
    for run in opened:
        plain = {key: value for key, value in run.summary.recipe.items() if key not in _APART}
        groups.setdefault(run.summary.name + json.dumps(plain, sort_keys=True), []).append(run)
    return [Compared(name, runs) for name, runs in zip(_names([*groups.values()]), groups.values(), strict=True)]


def of_combinations(runs: Sequence[Combination], found: Mapping[str, Path]) -> list[Compared]:
    """The runs of each recipe that are there, by digest; a recipe without any is left out."""
    groups: dict[str, list[OneRun]] = {}
    for one in runs:
        if folder := found.get(one.recipe.digest):
            groups.setdefault(one.case, []).append(open_run(folder))
    return [Compared(name, members) for name, members in groups.items()]


def _names(groups: Sequence[Sequence[OneRun]]) -> list[str]:
    """A different name for each group."""
    names = [group[0].summary.name for group in groups]
    flat = [dict(_flat(group[0].summary.recipe)) for group in groups]
    made = []
    for name, own in zip(names, flat, strict=True):
        alike = [other for other, its in zip(flat, names, strict=True) if its == name]
        differing = [path for path in dict.fromkeys(path for other in alike for path in other)
                     if path not in _APART and len({repr(other.get(path)) for other in alike}) > 1]  # fmt: skip
        short = short_names(differing)
        made.append(" ".join([name, *(f"{short[path]}={own.get(path)}" for path in differing[:_DIFFERENCES])]))
    return [name if made.count(name) == 1 else f"{name} ({group[0].folder.name})"
            for name, group in zip(made, groups, strict=True)]  # fmt: skip


def _flat(data: Any, before: str = "") -> list[tuple[str, Any]]:
    if isinstance(data, Mapping | list) and data:
        items = data.items() if isinstance(data, Mapping) else enumerate(data)
        return [pair for key, value in items for pair in _flat(value, f"{before}{key}.")]
    return [(before[:-1], data)]
