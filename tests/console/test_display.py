"""The displays: what a person reads of a run, in a log and in a terminal."""

from __future__ import annotations

import io
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import row_toys
from display_toys import Clock, look_at_stdout, picture, without_codes
from fedplug.api import units
from fedplug.api.rows import Row
from fedplug.console.choice import make_display
from fedplug.console.display import PlainDisplay, resume_command, thin_out
from fedplug.console.live import LiveDisplay, clock_time, rounds_table
from rich.console import Console

PLAN = [
    ("negotiate_mask", "paraaegis.vote", "encrypt 30% [of the model]"),
    ("protect encrypted", "std.ckks", "4096 [40, 40]"),
]
FACTS = {"name": "demo [red]x", "clients": 10, "rounds": 4, "engine": "local"}


def a_row(round: int, **changes: Any) -> Row:
    known: dict[str, Any] = {
        "accuracy": 0.5 + round / 100, "loss": 1.25, "zones": {"encrypted": 0.3, "noised": 0.7}, "epsilon": 1.5,
        "clients": {"asked": 10, "answered": 9, "dropped": {3: "boom"}},
        "bytes": {"up": {"total": 1_234_567}, "down": {"total": 950}, "key_server": {}},
    }  # fmt: skip
    return row_toys.a_row(round, **{**known, **changes})


@pytest.fixture
def live(out: io.StringIO, clock: Clock) -> LiveDisplay:
    return LiveDisplay(Console(file=out, force_terminal=True, width=100, height=30), clock, refresh=0)


def test_plain_prints_the_plan_then_one_line_a_round(out: io.StringIO) -> None:
    display = PlainDisplay(out)
    display.start(PLAN, FACTS)
    before = len(out.getvalue().splitlines())
    for done in range(50):
        display.phase(1, "train", done, 50)
    display.round_done(a_row(1))
    display.round_done(a_row(2, accuracy=None, loss=math.nan, epsilon=math.inf))
    lines = out.getvalue().splitlines()
    assert "4096 [40, 40]" in lines[2]
    bytes_ = "HE 30.0%  up 1.2 MB  down 950 B"
    assert lines[before:] == [
        f"round 1/4  accuracy 0.510  loss 1.250  {bytes_}  epsilon 1.500  clients 9/10  time 2.0 s",
        f"round 2/4  loss NaN  {bytes_}  epsilon ∞  clients 9/10  time 2.0 s",
    ]


def test_plain_ends_with_totals_verdict_and_paths(out: io.StringIO) -> None:
    PlainDisplay(out).finish([a_row(1), a_row(2, accuracy=0.4)], "NO end-to-end DP", [Path("r/report.html")], Path("r"))
    assert out.getvalue().splitlines() == [
        "rounds: 2", "accuracy: 0.400 (best 0.510 after round 1)", "bytes: 2.5 MB up, 1.9 kB down", "epsilon: 1.500",
        "time: 4.0 s", "verdict: NO end-to-end DP", "run folder: r", "report: r/report.html",
    ]  # fmt: skip


def test_personal_models_have_a_number_where_there_are_any(out: io.StringIO) -> None:
    display = PlainDisplay(out)
    rows = [a_row(1, personal_accuracy={0: 0.4, 1: 0.8}), a_row(2, personal_accuracy={0: 0.5, 1: 0.8})]
    display.round_done(rows[0])
    display.finish(rows, "NO", [Path("r/report.html")], Path("r"))
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
    display.finish([], "none", [Path("report.html")], Path("r"))
    assert "note: client 3 dropped\n" in out.getvalue()
    assert "verdict: none\n" in out.getvalue()


def test_resume_command_can_be_pasted(out: io.StringIO) -> None:
    assert resume_command(Path("runs/a b")) == "fedplug resume 'runs/a b'"
    PlainDisplay(out).interrupted(3, Path("runs/a b"))
    assert "up to round 3 is saved" in out.getvalue()
    assert out.getvalue().rstrip().endswith("fedplug resume 'runs/a b'")


def test_live_prints_plan_and_facts_without_reading_markup(live: LiveDisplay, out: io.StringIO) -> None:
    live.start(PLAN, FACTS)
    live.close()
    text = without_codes(out.getvalue())
    assert "demo [red]x" in text
    assert "encrypt 30% [of the model]" in text
    assert text.index("what it does here") < text.index("round 1 of 4")


def test_live_shows_the_next_round_while_the_last_waits_for_its_accuracy(live: LiveDisplay, clock: Clock) -> None:
    live.start(PLAN, FACTS)
    live.phase(1, "train", 10, 10)
    clock.now += 6
    live.phase(2, "train", 7, 10)
    shown = picture(live)
    assert "round 2 of 4" in shown
    assert "7 of 10 clients" in shown
    assert re.search(r"^ +1 +on its way", shown, re.MULTILINE)
    live.round_done(a_row(1))
    shown = picture(live)
    assert "on its way" not in shown
    assert re.search(r"^ +1 +0\.510 .*30\.0% .*1\.2 MB .*1\.500 .*9/10", shown, re.MULTILINE)
    live.close()


def test_live_expects_the_end_from_whole_rounds(live: LiveDisplay, clock: Clock) -> None:
    live.start(PLAN, FACTS)
    live.phase(1, "train", 0, 10)
    assert live.seconds_left() is None
    clock.now += 6
    live.phase(2, "train", 0, 10)
    clock.now += 2
    # Six seconds a round, two of them gone, two more rounds to come.
    assert live.seconds_left() == pytest.approx(4 + 12)
    assert live.rounds_done() == pytest.approx(1 + 2 / 6)
    assert "0:08 so far, about 0:16 left" in picture(live)
    clock.now += 100
    assert live.seconds_left() == pytest.approx(12)
    assert live.rounds_done() == pytest.approx(1.95)
    live.close()


def test_live_resumed_in_the_middle(live: LiveDisplay, clock: Clock) -> None:
    live.start(PLAN, FACTS)
    live.phase(3, "train", 0, 10)
    clock.now += 5
    live.phase(4, "train", 0, 10)
    assert live.seconds_left() == pytest.approx(5)
    assert "round 4 of 4" in picture(live)
    live.close()


def test_live_keeps_notes_and_ends_with_table_verdict_and_paths(live: LiveDisplay, out: io.StringIO) -> None:
    live.start(PLAN, FACTS)
    live.phase(1, "train", 1, 10)
    live.note("client 3 dropped: [boom]")
    live.round_done(a_row(1, loss=math.nan, accuracy=None))
    folder = Path("runs") / ("x" * 120)
    live.finish([a_row(i) for i in range(1, 31)], "NO end-to-end DP", [folder / "report.html"], folder)
    live.close()
    text = without_codes(out.getvalue())
    assert "client 3 dropped: [boom]" in text
    assert "12 of 30 rounds" in text
    assert "NO end-to-end DP" in text
    assert str(folder / "report.html") in text, "a path is never wrapped"
    assert out.getvalue().count("\x1b[?25l") == out.getvalue().count("\x1b[?25h"), "the cursor is shown again"


def test_live_interrupted_says_how_to_go_on(live: LiveDisplay, out: io.StringIO) -> None:
    live.start(PLAN, FACTS)
    live.phase(3, "protect", 1, 10)
    live.interrupted(2, Path("runs/a b"))
    assert "fedplug resume 'runs/a b'" in without_codes(out.getvalue())
    assert "up to round 2 is saved" in without_codes(out.getvalue())


def test_interrupted_before_anything_was_saved(out: io.StringIO) -> None:
    PlainDisplay(out).interrupted(0, Path("r"))
    assert out.getvalue() == "Interrupted in the first round. To go on: fedplug resume r\n"


def test_live_draws_odd_numbers(live: LiveDisplay) -> None:
    live.start(PLAN, {})
    for row in (a_row(1, zones={}, accuracy=math.nan, wall_seconds=math.inf), a_row(2, loss=-math.inf)):
        live.round_done(row)
    assert "-∞" in picture(live)
    live.close()


def test_figures_of_a_task_are_columns_whatever_they_are_called(out: io.StringIO) -> None:
    rows = [a_row(1), a_row(2, figures={"hits": 0.25, "Dice": 0.5})]
    display = PlainDisplay(out)
    for row in rows:
        display.round_done(row)
    display.finish(rows, "NO", [], Path("r"))
    shown = out.getvalue().splitlines()
    assert "accuracy 0.510  loss" in shown[0]
    assert "accuracy 0.520  hits 0.250  Dice 0.500  loss" in shown[1]
    assert {"hits: 0.250", "Dice: 0.500"} <= set(shown)
    heads = {width: [column.header for column in rounds_table(rows, [], width).columns] for width in (30, 40, 120)}
    assert heads[120][:5] == ["round", "accuracy", "hits", "Dice", "loss"]
    assert heads[40] == ["round", "accuracy", "hits", "Dice", "epsilon"], "the task stays longest"
    assert heads[30] == ["round", "accuracy", "hits", "Dice"]


def test_phase_draws_a_few_times_a_second_only(out: io.StringIO) -> None:
    display = LiveDisplay(Console(file=out, force_terminal=True, width=100))
    display.start(PLAN, FACTS)
    for i in range(20_000):
        display.phase(1, "train", i, 20_000)
    display.close()
    assert len(out.getvalue()) < 200_000, "drawn a few times a second, not once a call"


def test_no_terminal_gives_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert isinstance(make_display(quiet=False), PlainDisplay)


def test_terminal_gives_the_live_display_unless_quiet_or_dumb(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_stdout(monkeypatch)
    assert isinstance(make_display(quiet=False), LiveDisplay)
    assert isinstance(make_display(quiet=True), PlainDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_display(quiet=False), PlainDisplay)


def test_thin_out_keeps_the_ends() -> None:
    rows = list(range(200))
    thin = thin_out(rows, 12)
    assert thin[0] == 0
    assert thin[-1] == 199
    assert len(set(thin)) == 12
    assert thin_out(rows[:12], 12) == rows[:12]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (41.9, "0:41"), (725, "12:05"), (3723, "1:02:03"), (-1, "0:00")]
)
def test_clock_time(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (34_500_000, "34.5 MB"),
     (1e12, "1.0 TB"), (2.5e15, "2500.0 TB"), (None, "–"), (math.nan, "–")],
)  # fmt: skip
def test_size(value: Any, text: str) -> None:
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ms"), (0.0041, "4.1 ms"), (0.35, "350 ms"), (0.9999, "1.0 s"), (2, "2.0 s"), (59.99, "1 min 00 s"),
     (200, "3 min 20 s"), (3599.7, "1 h 00 min"), (7500, "2 h 05 min"), (math.inf, "–")],
)  # fmt: skip
def test_duration(value: Any, text: str) -> None:
    assert units.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "NaN"), (math.inf, "∞"), (-math.inf, "-∞"), (0, "0.000"), (0.83149, "0.831"),
     (1e-5, "1.00e-05"), (3e30, "3.00e+30"), (12.3, "12.300"), ("NaN", "NaN")],
)  # fmt: skip
def test_number(value: Any, text: str) -> None:
    assert units.number(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.0%"), (0.3, "30.0%"), (0.0001, "<0.1%"), (1, "100.0%"), (None, "–")]
)
def test_percent(share: Any, text: str) -> None:
    assert units.percent(share) == text


def test_a_narrow_terminal_does_without_the_least_important_columns(clock: Clock) -> None:
    shown = {}
    for width in (40, 60, 100):
        console = Console(file=io.StringIO(), force_terminal=True, width=width, height=30)
        display = LiveDisplay(console, clock, refresh=0)
        display.start(PLAN, FACTS)
        display.phase(0, "setup", 10, 10)
        for round in (1, 2, 3):
            clock.now += 60
            display.phase(round, "upload", 4, 10)
        display.round_done(a_row(1))
        console = Console(file=io.StringIO(), width=width, height=30)
        console.print(display.picture())
        shown[width] = console.file.getvalue()  # type: ignore[attr-defined]
        display.close()
        assert "…" not in shown[width]
        assert re.search(r"^ +1 +0\.510", shown[width], re.MULTILINE)
        assert re.search(r"^ +2 +on its way", shown[width], re.MULTILINE)
        assert not re.search(r"^ +0 ", shown[width], re.MULTILINE), "the set-up is no round"
    heads = {width: next(line for line in text.splitlines() if "accuracy" in line) for width, text in shown.items()}
    assert heads[40].split() == ["round", "accuracy", "epsilon", "clients"]
    assert heads[60].split() == ["round", "accuracy", "loss", "up", "down", "epsilon", "clients"]
    assert heads[100].split()[-1] == "time"
    assert "round 3 of 4  3:00, 2:00 left\n" in shown[40], "one line, without a bar"


def test_columns_without_a_value_are_the_first_to_go() -> None:
    table = rounds_table([a_row(1, epsilon=None)], width=40)
    assert [column.header for column in table.columns] == ["round", "accuracy", "loss", "up", "clients"]


def test_the_picture_ends_in_an_empty_line(live: LiveDisplay) -> None:
    """Where the cursor waits: behind a full line of blanks, the terminal's ^C would begin another line."""
    console = Console(file=io.StringIO(), width=100)
    lines = console.render_lines(live.picture(), console.options, pad=False)
    assert "".join(segment.text for segment in lines[-1]) == ""
