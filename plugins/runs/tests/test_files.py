"""A run's files, read back. Damaged ones are named with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import CheckpointError
from fedplug_ledger.ledger_record import SCHEMA, RoundsReport
from fedplug_runs.folder import read_ledger, read_rows, read_summary
from row_toys import a_ledger, a_row, a_summary, a_verdict


def test_everything_that_was_written_is_read(tmp_path: Path) -> None:
    rows = [a_row(1), a_row(2)]
    (tmp_path / "metrics.jsonl").write_text("".join(row.to_json() + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "summary.json").write_text(a_summary().to_json(indent=2), encoding="utf-8")
    ledger = a_ledger(verdict=a_verdict().to_plain(for_json=True))
    (tmp_path / "ledger.json").write_text(ledger.to_json(indent=2), encoding="utf-8")
    assert read_rows(tmp_path) == rows
    assert read_summary(tmp_path) == a_summary()
    assert read_ledger(tmp_path) == ledger


def test_a_run_that_stopped_before_its_first_row_has_none(tmp_path: Path) -> None:
    assert read_rows(tmp_path) == []
    (tmp_path / "ledger.json").write_text(a_ledger(rounds=RoundsReport(2, 0)).to_json(), encoding="utf-8")
    assert read_rows(tmp_path) == []


def test_rows_that_are_gone_are_not_taken_for_rounds_that_were_not_run(tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text(a_ledger(rounds=RoundsReport(2, 2)).to_json(), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl is missing, though .* 2 rounds; .*fedplug resume"):
        read_rows(tmp_path)


@pytest.mark.parametrize(
    ("read", "name", "text", "said"),
    [
        (read_rows, "metrics.jsonl", '{"round": 1}\n', r"metrics\.jsonl, line 1, is damaged \(accuracy: field"),
        (read_rows, "metrics.jsonl", "{", r"metrics\.jsonl, line 1, is damaged \(.*JSON"),
        (read_ledger, "ledger.json", "{", r"ledger\.json is damaged \("),
        (read_ledger, "ledger.json", "[]", r"ledger\.json is damaged \(it is a list: "),
        (read_ledger, "ledger.json", "[" * 100_000, r"ledger\.json is damaged \("),
        (read_ledger, "ledger.json", None, r"ledger\.json cannot be read"),
        (read_summary, "summary.json", None, r"summary\.json cannot be read"),
        (read_summary, "summary.json", "{}", r"summary\.json is damaged \(name: field required"),
    ],
)
def test_what_is_missing_or_damaged_is_named_with_a_remedy(
    read: Callable[[Path], Any], name: str, text: str | None, said: str, tmp_path: Path
) -> None:
    (tmp_path / "recipe.yaml").write_text("name: x")
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointError, match=said) as caught:
        read(tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert f"resume the run: fedplug resume {tmp_path}" in str(caught.value)


def test_what_is_no_run_folder_is_not_asked_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere is not a run folder: it has no ledger\.json; a run prints its"):
        read_ledger(tmp_path / "nowhere")


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"summary\.json cannot be read"):
        read_summary(tmp_path)


def test_a_ledger_of_another_version_says_so(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("")
    (tmp_path / "ledger.json").write_text('{"schema": 5, "verdict": "NO DP"}')
    with pytest.raises(CheckpointError, match=f"another version of fedplug .schema 5, this one reads {SCHEMA}"):
        read_ledger(tmp_path)
