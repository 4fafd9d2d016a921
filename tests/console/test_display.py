"""The plain displays, and the text of a row in all: for a person who reads a log, and for a script."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.verdict import Verdict
from fedplug.console.display import LinesDisplay, PlainDisplay, epsilon_of, resume_command, thin_out
from fedplug_lab.live import rounds_table
from rich.console import Console
from row_toys import a_verdict
from shown_toys import FACTS, PLAN, a_row


def test_plain_prints_the_plan_then_one_line_a_round(out: io.StringIO) -> None:
    display = PlainDisplay(out)
    display.start(PLAN, FACTS)
    before = len(out.getvalue().splitlines())
    for done in range(50):
        display.phase(1, "train", done, 50)
    display.round_done(a_row(1))
    display.round_done(a_row(2, accuracy=None, loss=math.nan, view_epsilons={"released_model": math.inf}))
    lines = out.getvalue().splitlines()
    assert "4096 [40, 40]" in lines[2]
    bytes_ = "HE 30.0%  up 1.2 MB  down 950 B"
    assert lines[before:] == [
        f"round 1/4  accuracy 0.510  loss 1.250  {bytes_}  epsilon 1.50  clients 9/10  time 2.0 s",
        f"round 2/4  loss NaN  {bytes_}  epsilon ∞  clients 9/10  time 2.0 s",
    ]


def test_plain_ends_with_totals_verdict_and_paths(out: io.StringIO) -> None:
    verdict = a_verdict()
    PlainDisplay(out).finish([a_row(1), a_row(2, accuracy=0.4)], verdict, [Path("r/report.html")], Path("r"))
    assert out.getvalue().splitlines() == [
        "rounds: 2", "accuracy: 0.400 (best 0.510 after round 1)", "bytes: 2.5 MB up, 1.9 kB down",
        "time: 4.0 s", *verdict.text(), "run folder: r", "report: r/report.html",
    ]  # fmt: skip


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


def test_plain_flushes_every_line() -> None:
    class Buffered(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    stream = Buffered()
    PlainDisplay(stream).round_done(a_row(1))
    assert stream.flushed == 1


def test_plain_survives_a_stream_that_cannot_hold_a_sign() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", newline="\n")
    PlainDisplay(stream).note("ε is ∞")
    assert raw.getvalue() == b"note: ? is ?\n"


def test_quiet_prints_warnings_and_the_end_only(out: io.StringIO) -> None:
    display = PlainDisplay(out, quiet=True)
    display.start(PLAN, FACTS)
    display.round_done(a_row(1))
    assert out.getvalue() == ""
    display.note("client 3 dropped")
    display.finish([], Verdict("nothing_run"), [Path("report.html")], Path("r"))
    assert "note: client 3 dropped\n" in out.getvalue()
    assert "Nothing to judge. No round was recorded, so nothing was released.\n" in out.getvalue()


def test_resume_command_can_be_pasted(out: io.StringIO) -> None:
    assert resume_command(Path("runs/a b")) == "fedplug resume 'runs/a b'"
    PlainDisplay(out).interrupted(3, Path("runs/a b"))
    assert "up to round 3 is saved" in out.getvalue()
    assert out.getvalue().rstrip().endswith("fedplug resume 'runs/a b'")


def test_interrupted_before_anything_was_saved(out: io.StringIO) -> None:
    PlainDisplay(out).interrupted(0, Path("r"))
    assert out.getvalue() == "Interrupted in the first round. To continue: fedplug resume r\n"


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
        ({"view_epsilons": {"server": 8.0, "released_model": 2.0}}, "8.00"),
        ({"view_epsilons": {"server": 8.0, "client": 2.0}, "unprotected": ["released_model"]},
         "8.00 (server; 1 without)"),
        ({"view_epsilons": {"client": math.inf}, "unprotected": ["server", "released_model"]},
         "∞ (client; 2 without)"),
        ({"view_epsilons": {"server": 0.0}, "unprotected": ["client", "released_model"]}, "0 (server; 2 without)"),
        ({"view_epsilons": {}, "unprotected": ["server"]}, "no guarantee"),
        ({"view_epsilons": {}}, "–"),
        ({"view_epsilons": {}, "level_epsilons": {"record": 2.0}}, "2.00 (each record)"),
        ({"view_epsilons": {}, "level_epsilons": {"record": 2.0}, "unprotected": ["client"]},
         "2.00 (each record; 1 without)"),
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


def test_a_reader_that_has_seen_enough_ends_no_run(capfd: pytest.CaptureFixture[str]) -> None:
    """As `fedplug run recipe.yaml | head -1`."""
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:
        display = PlainDisplay(stream)
        display.note("one")
        os.close(reader)
        display.note("two")
        display.note("three")
    said = capfd.readouterr().err
    assert said.startswith("note: nobody reads the standard output any more; the run continues")
    assert said.count("note:") == 1


def test_one_line_for_the_run_and_one_a_round_and_none_at_the_end(out: io.StringIO) -> None:
    display = LinesDisplay(out)
    display.start(PLAN, FACTS)
    display.round_done(a_row(1))
    display.finish([a_row(1)], a_verdict(), [Path("r/report.html")], Path("r"))
    first, second = out.getvalue().splitlines()
    assert first == "name demo [red]x, clients 10, rounds 4, engine local"
    assert second.startswith("round 1/4  accuracy 0.510")


def test_where_it_is_quiet_warnings_are_left(out: io.StringIO) -> None:
    display = LinesDisplay(out, quiet=True)
    display.start(PLAN, FACTS)
    display.round_done(a_row(1))
    display.note("client 3 dropped out")
    assert out.getvalue() == "note: client 3 dropped out\n"


def test_an_interruption_is_continued_from_python(out: io.StringIO) -> None:
    LinesDisplay(out).interrupted(2, Path("runs/it's"))
    assert out.getvalue() == (
        'Interrupted; everything up to round 2 is saved. To continue: fedplug.resume("runs/it\'s")\n'
    )
