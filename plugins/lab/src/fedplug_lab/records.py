"""What is known of runs that ended, read from their folders: results, and which runs are of one protocol."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fedplug.api.blocks import CLEAR, NOISED
from fedplug.api.data import ACCURACY
from fedplug.api.errors import CheckpointError, SetupError
from fedplug.api.records import Count, Record, Text
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_runs import units
from fedplug_runs.files import open_private, private_folder
from fedplug_runs.folder import Summary, read_ledger, read_rows, read_summary
from fedplug_runs.onward import resume_command
from fedplug_runs.rows import Row, Sent, Traffic

from fedplug_lab.grid import SEED, Combination, short_names
from fedplug_lab.sections import Leak, Result, Spread, Volume, sections_of_plugins

T = TypeVar("T", int, float)


def bare(recipe: Mapping[str, Any]) -> bool:
    """Whether a recipe, as plain data, has a zone `noised` whose chain is empty, so that nothing is added to it."""
    protect = recipe.get("protect")
    return isinstance(protect, Mapping) and NOISED in protect and not protect[NOISED]


def as_sent(rows: Sequence[Row], recipe: Mapping[str, Any]) -> list[Row]:
    """The rows with a zone `noised` that got no noise counted as clear.

    Args:
        rows: of a run.
        recipe: of the run, as plain data.
    """
    if not bare(recipe):
        return list(rows)
    return [
        dataclasses.replace(
            row,
            zones=_shares(row.zones),
            bytes=Traffic(_sent(row.bytes.up), _sent(row.bytes.down), _sent(row.bytes.key_server)),
        )
        for row in rows
    ]


def _sent(found: Sent) -> Sent:
    return dataclasses.replace(found, zones=_merged(found.zones))


def _shares(zones: Mapping[str, float | None]) -> dict[str, float | None]:
    known = _merged({zone: share for zone, share in zones.items() if share is not None})
    return {zone: known.get(zone) for zone in zones if zone != NOISED} | known


def _merged(by_zone: Mapping[str, T]) -> dict[str, T]:
    """The same with `noised` added to `clear`; where there is neither, as it was."""
    merged = {zone: amount for zone, amount in by_zone.items() if zone != NOISED}
    if NOISED in by_zone:
        merged[CLEAR] = merged[CLEAR] + by_zone[NOISED] if CLEAR in merged else by_zone[NOISED]
    return merged


class Line(Record):
    """A run of a study that ended.

    Attributes:
        digest: of its recipe.
        case, parameters, seed: of the combination that made it.
        run: its folder, inside that of the sweep; empty where it failed.
        resumed: whether it went on from a checkpoint.
        result: None where it failed.
        error: why it failed.
    """

    digest: Text
    case: Text
    parameters: dict[Text, Any]
    seed: Count
    run: Text = ""
    resumed: bool = False
    result: Result | None = None
    error: Text = ""


def csv_text(columns: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV; names that are no column yet follow, and what a row lacks is empty."""
    names = dict.fromkeys([*columns, *(name for row in rows for name in row)])
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@contextlib.contextmanager
def at_work(folder: Path, command: str) -> Iterator[None]:
    """Inside, this process alone runs what the folder of a sweep or comparison lacks.

    Raises:
        SetupError: another process is at it, or the folder cannot be made.
    """
    try:
        if not folder.is_dir():  # one that the user names stays as it is
            private_folder(folder)
    except OSError as error:
        raise SetupError(f"cannot create {folder} ({error}); choose another place with --output") from error
    with open_private(folder / f"{command}.lock", "w") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has other locks; there the user sees to it
            pass
        except OSError as error:
            remedy = "wait for it, or take another --output"
            raise SetupError(f"another fedplug {command} is at work in {folder}; {remedy}") from error
        yield


def result_of(run_dir: Path) -> Result:
    """What is recorded of a run that has finished a round or more: read from its folder."""
    ledger, summary = read_ledger(run_dir), read_summary(run_dir)
    rows = as_sent(read_rows(run_dir), summary.recipe)
    last, sent = rows[-1], sum((row.bytes for row in rows[1:]), rows[0].bytes)
    simulated = [row.simulated_seconds for row in rows if row.simulated_seconds is not None]
    phases = dict.fromkeys(phase for row in rows for phase in row.seconds)
    groups, by_accuracy = _spread(dict(enumerate(last.of_groups.values()))), last.leads.name == ACCURACY.name
    return Result(
        rounds=len(rows),
        accuracy=last.accuracy,
        best_accuracy=max(units.finite(row.accuracy for row in rows), default=None),
        loss=last.loss,
        leads=last.leads,
        figures=last.figures,
        recalls=last.recalls,
        guess=last.guess,
        client_accuracy=_spread(last.client_accuracy),
        group_accuracy=groups if by_accuracy else None,
        client_leading=_spread(last.client_leading),
        group_leading=None if by_accuracy else groups,
        personal_leading=_spread(last.personal_leading),
        personal_public_leading=_spread(last.personal_public_leading),
        tuned=_spread(last.tuned),
        clusters=last.clusters,
        personal_accuracy=_spread(last.personal_accuracy),
        personal_public_accuracy=_spread(last.personal_public_accuracy),
        zones={zone: share for zone, share in last.zones.items() if share is not None},
        log=last.log,
        seconds={phase: units.total(row.seconds.get(phase) for row in rows) for phase in phases},
        wall_seconds=units.total(row.wall_seconds for row in rows),
        cpu_seconds=None if any(row.cpu_seconds is None for row in rows) else units.total(r.cpu_seconds for r in rows),
        simulated_seconds=units.total(simulated) if simulated else None,
        bytes=Volume(sent.up.total, sent.down.total, sent.key_server.total),
        epsilon=last.epsilon,
        level_epsilons=last.level_epsilons,
        verdict=str(ledger.verdict),
        guarantees={
            line.party: line.value if line.state == "guaranteed" else None
            for line in ledger.verdict.lines
            if line.state != "absent"
        },
        units={
            line.party: line.unit
            for line in ledger.verdict.lines
            if line.state == "guaranteed" and line.unit != "client"
        },
        assessments=summary.assessments,
        added={section.key: found for section in sections_of_plugins() if (found := section.record(run_dir))},
    )


def _spread(by_client: Mapping[int, float]) -> Spread | None:
    found = units.spread(by_client)
    return Spread(*found) if found else None


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
        raise NotBegun(f"{folder} has no finished round; continue it first: {resume_command(folder)}")
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


# ---- what attacks took from runs


def leaks_of(run: OneRun) -> list[Leak]:
    """Every attack on a run that was scored."""
    return [
        leak for section in sections_of_plugins() for leak in section.leaks(run.result.added.get(section.key, {}))
    ]  # fmt: skip


def worst_of(each: Compared) -> Leak | None:
    """The attack that succeeded most often on any of its runs; None where none applied."""
    known = [leak for run in each.runs for leak in leaks_of(run) if leak.succeeded is not None]
    return max(known, key=lambda leak: (leak.succeeded or 0.0, leak.targets), default=None)


def worst_by_adversary(each: Compared) -> dict[str, Leak]:
    """Of each adversary on its runs the attack that succeeded most often; one that applied before one that did not."""
    found: dict[str, Leak] = {}
    for leak in (leak for run in each.runs for leak in leaks_of(run) if leak.adversary):
        before = found.get(leak.adversary)
        if before is None or _took(leak) > _took(before):
            found[leak.adversary] = leak
    return found


def _took(leak: Leak) -> tuple[float, int]:
    return (-1.0 if leak.succeeded is None else leak.succeeded), leak.targets


def sees(leak: Leak) -> str:
    """How much of an update the adversary sees, in words."""
    if not leak.states:
        return "sees no update"
    shares = {state: leak.states.get(state, 0.0) for state in ("clear", "noised")}
    shares["hidden"] = 1 - sum(shares.values())
    words = {"clear": "opened", "noised": "opened, with noise", "hidden": "hidden"}
    kept = [(words[state], share) for state, share in shares.items() if share > 5e-4]
    return kept[0][0] if len(kept) == 1 else ", ".join(f"{share:.0%} {word}" for word, share in kept)


def attacks_on(each: Compared) -> set[str]:
    """The names of the attacks on its runs."""
    return {leak.attack for run in each.runs for leak in leaks_of(run)}
