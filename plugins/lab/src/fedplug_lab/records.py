"""What a study records of its runs, read from the run's own folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedplug.api.data import ACCURACY
from fedplug.api.errors import SetupError
from fedplug.api.records import Count, Record, Text
from fedplug_runs import units
from fedplug_runs.files import open_private, private_folder
from fedplug_runs.folder import read_ledger, read_rows, read_summary

from fedplug_lab.results import Result, Spread, Volume
from fedplug_lab.sections import sections_of_plugins
from fedplug_lab.zones import as_sent


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
    """What a sweep records of a run that ended: read from its folder."""
    ledger, summary = read_ledger(run_dir), read_summary(run_dir)
    rows = as_sent(read_rows(run_dir), summary.recipe)
    last = rows[-1] if rows else None
    simulated = [row.simulated_seconds for row in rows if row.simulated_seconds is not None]
    phases = dict.fromkeys(phase for row in rows for phase in row.seconds)
    groups = _spread(dict(enumerate(last.of_groups.values()))) if last else None
    by_accuracy = last is None or last.leads.name == ACCURACY.name
    return Result(
        rounds=len(rows),
        accuracy=last.accuracy if last else None,
        best_accuracy=max(units.finite(row.accuracy for row in rows), default=None),
        loss=last.loss if last else None,
        leads=last.leads if last else ACCURACY,
        figures=last.figures if last else {},
        client_accuracy=_spread(last.client_accuracy) if last else None,
        group_accuracy=groups if by_accuracy else None,
        client_leading=_spread(last.client_leading) if last else None,
        group_leading=None if by_accuracy else groups,
        personal_leading=_spread(last.personal_leading) if last else None,
        personal_public_leading=_spread(last.personal_public_leading) if last else None,
        tuned=_spread(last.tuned) if last else None,
        clusters=last.clusters if last else {},
        personal_accuracy=_spread(last.personal_accuracy) if last else None,
        personal_public_accuracy=_spread(last.personal_public_accuracy) if last else None,
        zones={zone: share for zone, share in last.zones.items() if share is not None} if last else {},
        log=last.log if last else {},
        seconds={phase: units.total(row.seconds.get(phase) for row in rows) for phase in phases},
        wall_seconds=units.total(row.wall_seconds for row in rows),
        cpu_seconds=None if any(row.cpu_seconds is None for row in rows) else units.total(r.cpu_seconds for r in rows),
        simulated_seconds=units.total(simulated) if simulated else None,
        bytes=Volume(
            sum(row.bytes.up.total for row in rows),
            sum(row.bytes.down.total for row in rows),
            sum(row.bytes.key_server.total for row in rows),
        ),
        epsilon=last.epsilon if last else None,
        level_epsilons=last.level_epsilons if last else {},
        verdict=str(ledger.verdict),
        guarantees={
            line.party: line.value if line.state == "guaranteed" else None
            for line in ledger.verdict.lines
            if line.state != "absent"
        },
        assessments=summary.assessments,
        added={section.key: found for section in sections_of_plugins() if (found := section.record(run_dir))},
    )


def _spread(by_client: Mapping[int, float]) -> Spread | None:
    found = units.spread(by_client)
    return Spread(*found) if found else None
