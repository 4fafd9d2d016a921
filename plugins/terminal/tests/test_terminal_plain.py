"""The plain displays, and the text of a row in all: for a person who reads a log, and for a script."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path

import pytest
from fedplug_ledger.verdict import Verdict
from fedplug_runs.onward import resume_command
from fedplug_terminal.plain import PlainDisplay
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
    bytes_ = "sealed 30.0%  up 1.2 MB  down 950 B"
    assert lines[before:] == [
        f"round 1/4  accuracy 0.510  loss 1.250  {bytes_}  epsilon 1.50 (model)  clients 9/10  time 2.0 s",
        f"round 2/4  loss NaN  {bytes_}  epsilon ∞ (model)  clients 9/10  time 2.0 s",
    ]


def test_plain_ends_with_totals_verdict_and_paths(out: io.StringIO) -> None:
    verdict = a_verdict()
    PlainDisplay(out).finish([a_row(1), a_row(2, accuracy=0.4)], verdict, [Path("r/report.html")], Path("r"))
    assert out.getvalue().splitlines() == [
        "rounds: 2", "accuracy: 0.400 (best 0.510 after round 1)", "bytes: 2.5 MB up, 1.9 kB down",
        "time: 4.0 s", *verdict.text(), "run folder: r", "report: r/report.html",
    ]  # fmt: skip


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






