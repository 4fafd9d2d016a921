"""What a run wrote into its folder, read back: rows, ledger, summary, pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError
from fedplug.api.pictures import Pictures
from fedplug.api.rows import Row
from fedplug.runs.summary import Summary


def read_rows(run_dir: Path) -> list[Row]:
    """The metrics, a row for each round; empty where no round was finished.

    Raises:
        CheckpointError: the file is damaged; names the line and the field.
    """
    file, rows = run_dir / "metrics.jsonl", []
    for number, line in enumerate(_contents(file).splitlines() if file.is_file() else [], 1):
        try:
            rows.append(Row.from_json(line))
        except ValueError as error:
            raise CheckpointError(f"{file}, line {number}, is damaged ({error}); {_remedy(file)}") from error
    return rows


def read_ledger(run_dir: Path) -> dict[str, Any]:
    """The privacy ledger as plain data.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    file = run_dir / "ledger.json"
    return _parsed(file, _contents(file))


def read_summary(run_dir: Path) -> Summary:
    """What ran.

    Raises:
        CheckpointError: the file is missing or damaged; names the field.
    """
    file = run_dir / "summary.json"
    written = _contents(file)
    try:
        return Summary.from_json(written)
    except ValueError as error:
        raise CheckpointError(f"{file} is damaged ({error}); {_remedy(file)}") from error


def read_pictures(run_dir: Path) -> dict[str, dict[str, Any]]:
    """What components drew, by name; of a damaged file what can be used, since the run has said what cannot."""
    pictures = Pictures(lambda note: None)
    pictures.load(run_dir / "figures.json")
    return pictures.kept


def _contents(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read ({error}); {_remedy(file)}") from error


def _parsed(file: Path, written: str) -> dict[str, Any]:
    try:
        content = json.loads(written)
        if not isinstance(content, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is damaged ({error}); {_remedy(file)}") from error
    return content


def _remedy(file: Path) -> str:
    return f"a run writes it: put it back as it was, or resume the run: fedplug resume {file.parent}"
