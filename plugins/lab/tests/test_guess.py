"""What a guess gets, in words next to what the model gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fedplug_lab.guess import BALANCED, guess_of, guess_words
from fedplug_runs.rows import Row
from report_toys import Page, written
from row_toys import a_row


def guessing(guess: dict[str, float], **changes: Any) -> Row:
    """A row whose run knows what a guess gets."""
    row = a_row(1, **changes)
    row.guess = guess
    return row


@pytest.mark.parametrize(
    ("accuracy", "guess", "common", "said"),
    [
        (0.99, 0.983, "healthy", "a guess gets 0.983 (always healthy)"),
        (0.983, 0.983, "healthy", "a guess gets 0.983 (always healthy): the model is no better"),
        (0.1, 0.103, "", "a guess gets 0.103: the model is no better"),
        (0.5, float("nan"), "", ""),
    ],
)
def test_the_words_say_whether_the_model_is_better(accuracy: float, guess: float, common: str, said: str) -> None:
    assert guess_words(guessing({"accuracy": guess}, accuracy=accuracy), common) == said


def test_a_smaller_error_is_better() -> None:
    rmse = {"name": "RMSE", "better": "lower", "unit": ""}
    row = guessing({"RMSE": 2.0}, leads=rmse, figures={"RMSE": 1.0, BALANCED: 0.5})
    assert guess_words(row) == "a guess gets 2.000"
    assert guess_words(guessing({"RMSE": 2.0}, leads=rmse, figures={"RMSE": 2.5})).endswith("the model is no better")


def test_of_runs_that_do_not_say_nothing_is_said() -> None:
    assert guess_of(guessing({})) is None
    assert guess_words(guessing({})) == ""


def test_a_report_leads_with_it(tmp_path: Path) -> None:
    row = guessing({"accuracy": 0.983, BALANCED: 0.5}, accuracy=0.983, figures={BALANCED: 0.5})
    shown = Page(written(tmp_path, [row])).visible()
    assert "Accuracy\n0.983\na guess gets 0.983: the model is no better; best 0.983" in shown
    assert "Balanced accuracy\n0.500\na guess gets 0.500: the model is no better" in shown
