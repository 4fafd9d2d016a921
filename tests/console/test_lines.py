"""What a script or a notebook sees: a line for the run, one a round, and how to go on in Python."""

from __future__ import annotations

import io
from pathlib import Path

from fedplug.console.lines import LinesDisplay
from shown_toys import FACTS, PLAN, a_row


def test_one_line_for_the_run_and_one_a_round_and_none_at_the_end(out: io.StringIO) -> None:
    display = LinesDisplay(out)
    display.start(PLAN, FACTS)
    display.round_done(a_row(1))
    display.finish([a_row(1)], "NO DP", [Path("r/report.html")], Path("r"))
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
        'Interrupted; everything up to round 2 is saved. To go on: fedplug.resume("runs/it\'s")\n'
    )
