"""The words for rows, in displays, tables and reports."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from fedplug_lab.live import rounds_table
from fedplug_ledger.verdict import Verdict
from fedplug_runs.row_text import epsilon_of, thin_out
from fedplug_terminal.plain import PlainDisplay
from rich.console import Console
from shown_toys import a_row


def test_personal_models_have_a_number_where_there_are_any(out: io.StringIO) -> None:
    display = PlainDisplay(out)
    rows = [a_row(1, personal_accuracy={0: 0.4, 1: 0.8}), a_row(2, personal_accuracy={0: 0.5, 1: 0.8})]
    display.round_done(rows[0])
    display.finish(rows, Verdict("nothing_run"), [Path("r/report.html")], Path("r"))
    assert "accuracy 0.510  personal mean 0.600  loss" in out.getvalue()
    assert "personal mean: 0.650 (0.500 to 0.800)" in out.getvalue().splitlines()
    shown = Console(file=io.StringIO(), width=120)
    shown.print(rounds_table(rows), rounds_table([a_row(1)]))
    with_them, without = shown.file.getvalue().split("round")[1:]  # type: ignore[attr-defined]
    assert "personal mean" in with_them
    assert "0.650" in with_them
    assert "personal" not in without
    for width in range(1, 120):
        rounds_table(rows, [3], width)
        rounds_table([a_row(1)], [2], width)


def test_figures_of_a_task_are_columns_whatever_they_are_called(out: io.StringIO) -> None:
    rows = [a_row(1), a_row(2, figures={"hits": 0.25, "Dice": 0.5})]
    display = PlainDisplay(out)
    for row in rows:
        display.round_done(row)
    display.finish(rows, Verdict("nothing_run"), [], Path("r"))
    shown = out.getvalue().splitlines()
    assert "accuracy 0.510  loss" in shown[0]
    assert "accuracy 0.520  hits 0.250  Dice 0.500  loss" in shown[1]
    assert {"hits: 0.250", "Dice: 0.500"} <= set(shown)
    heads = {width: [column.header for column in rounds_table(rows, [], width).columns] for width in (30, 40, 120)}
    assert heads[120][:5] == ["round", "accuracy", "hits", "Dice", "loss"]
    assert heads[40] == ["round", "accuracy", "hits", "Dice", "epsilon"], "the task stays longest"
    assert heads[30] == ["round", "accuracy", "hits", "Dice"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"view_epsilons": {"server": 8.0, "released_model": 2.0}}, "8.00 (server)"),
        ({"view_epsilons": {"server": 8.0, "released_model": 8.0}}, "8.00"),
        ({"view_epsilons": {"server": 8.0, "client": 2.0}, "unprotected": ["released_model"]},
         "8.00 (server; none for 1)"),
        ({"view_epsilons": {"client": math.inf}, "unprotected": ["server", "released_model"]},
         "∞ (client; none for 2)"),
        ({"view_epsilons": {"server": 0.0}, "unprotected": ["client", "released_model"]}, "0 (server; none for 2)"),
        ({"view_epsilons": {}, "unprotected": ["server"]}, "no guarantee"),
        ({"view_epsilons": {}}, "–"),
        ({"view_epsilons": {}, "level_epsilons": {"record": 2.0}}, "2.00 (each record)"),
        ({"view_epsilons": {}, "level_epsilons": {"record": 2.0}, "unprotected": ["client"]},
         "2.00 (each record; none for 1)"),
        ({"view_epsilons": {"client": 3.0}, "level_epsilons": {"record": 2.0}}, "3.00"),
    ],
)  # fmt: skip
def test_the_column_names_the_largest_epsilon_and_for_how_many_there_is_none(
    changes: dict[str, Any], said: str
) -> None:  # fmt: skip
    assert epsilon_of(a_row(1, epsilon=99.0, **changes)) == said


def test_thin_out_keeps_the_ends() -> None:
    rows = list(range(200))
    thin = thin_out(rows, 12)
    assert thin[0] == 0
    assert thin[-1] == 199
    assert len(set(thin)) == 12
    assert thin_out(rows[:12], 12) == rows[:12]
