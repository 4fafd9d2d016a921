"""What a run wrote into its folder, read back: rows, ledger, summary.

A file that is missing or damaged is a CheckpointError, which names the field, and of rows the line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from fedplug.api.errors import CheckpointError
from fedplug.api.record import Record
from fedplug.api.rows import Row
from fedplug.privacy.ledger_record import LedgerReport
from fedplug.runs.summary import Summary

R = TypeVar("R", bound=Record)


def read_rows(run_dir: Path) -> list[Row]:
    """The metrics, a row for each round; empty where no round was finished."""
    file, rows = run_dir / "metrics.jsonl", []
    if not file.is_file() and (run_dir / "ledger.json").is_file() and (rounds := read_ledger(run_dir).rounds.actual):
        raise CheckpointError(f"{file} is missing, though ledger.json accounts for {rounds} rounds; {_remedy(file)}")
    for number, line in enumerate(_contents(file).splitlines() if file.is_file() else [], 1):
        try:
            rows.append(Row.from_json(line))
        except ValueError as error:
            raise CheckpointError(f"{file}, line {number}, is damaged ({error}); {_remedy(file)}") from error
    return rows


def read_ledger(run_dir: Path) -> LedgerReport:
    """The privacy ledger."""
    return _read(LedgerReport, run_dir / "ledger.json")


def read_summary(run_dir: Path) -> Summary:
    """What ran."""
    return _read(Summary, run_dir / "summary.json")


def _contents(file: Path) -> str:
    if not (file.parent / "recipe.yaml").exists() and not file.exists():
        raise CheckpointError(f"{file.parent} is not a run folder: it has no {file.name}; a run prints its folder")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read ({error}); {_remedy(file)}") from error


def _read(kind: type[R], file: Path) -> R:
    written = _contents(file)
    try:
        return kind.from_json(written)
    except ValueError as error:
        raise CheckpointError(f"{file} is damaged ({error}); {_remedy(file)}") from error


def _remedy(file: Path) -> str:
    return f"a run writes it: put it back as it was, or resume the run: fedplug resume {file.parent}"
