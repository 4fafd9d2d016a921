"""The live display: what a person reads of a run in a terminal."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest
from display_toys import Clock, picture, without_codes
from fedplug_lab.live import LiveDisplay, clock_time, rounds_table, verdict_table
from fedplug_ledger.verdict import Line, Verdict
from rich.console import Console
from row_toys import a_line, a_verdict
from shown_toys import FACTS, PLAN, a_row


@pytest.fixture
def live(out: io.StringIO, clock: Clock) -> LiveDisplay:
    return LiveDisplay(Console(file=out, force_terminal=True, width=100, height=30), clock, refresh=0)


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
    assert re.search(r"^ +1 +0\.510 .*30\.0% .*1\.2 MB .*1\.50 .*9/10", shown, re.MULTILINE)
    live.close()


def test_live_expects_the_end_from_whole_rounds(live: LiveDisplay, clock: Clock) -> None:
    live.start(PLAN, FACTS)
    live.phase(1, "train", 0, 10)
    assert live.pace.left() is None
    clock.now += 6
    live.phase(2, "train", 0, 10)
    clock.now += 2
    # Six seconds a round, two of them gone, two more rounds to come.
    assert live.pace.left() == pytest.approx(4 + 12)
    assert live.pace.rounds_done() == pytest.approx(1 + 2 / 6)
    assert "0:08 so far, about 0:16 left" in picture(live)
    clock.now += 100
    assert live.pace.left() == pytest.approx(12)
    assert live.pace.rounds_done() == pytest.approx(1.95)
    live.close()


def test_live_resumed_in_the_middle(live: LiveDisplay, clock: Clock) -> None:
    live.start(PLAN, FACTS)
    live.phase(3, "train", 0, 10)
    clock.now += 5
    live.phase(4, "train", 0, 10)
    assert live.pace.left() == pytest.approx(5)
    assert "round 4 of 4" in picture(live)
    live.close()


def test_live_keeps_notes_and_ends_with_table_verdict_and_paths(live: LiveDisplay, out: io.StringIO) -> None:
    live.start(PLAN, FACTS)
    live.phase(1, "train", 1, 10)
    live.note("client 3 dropped: [boom]")
    live.round_done(a_row(1, loss=math.nan, accuracy=None))
    folder = Path("runs") / ("x" * 120)
    rows = [a_row(i, accuracy=0.9 if i == 32 else 0.5) for i in range(1, 101)]
    live.finish(rows, a_verdict(), [folder / "report.html"], folder)
    live.close()
    text = without_codes(out.getvalue())
    assert "client 3 dropped: [boom]" in text
    assert "41 of 100 rounds" in text
    assert re.search(r"^ +32 +0\.900", text, re.MULTILINE), "the best round is among them"
    assert "Protected from some, not from everybody." in text
    assert re.search("^✗ a client together .*no guarantee +reads it", text, re.MULTILINE)
    assert str(folder / "report.html") in text, "a path is never wrapped"
    assert out.getvalue().count("\x1b[?25l") == out.getvalue().count("\x1b[?25h"), "the cursor is shown again"


def test_a_run_of_few_rounds_shows_all_of_them(live: LiveDisplay, out: io.StringIO) -> None:
    live.finish([a_row(i) for i in range(1, 31)], Verdict("nothing_run"), [], Path("r"))
    text = without_codes(out.getvalue())
    assert all(re.search(rf"^ +{i} +0\.", text, re.MULTILINE) for i in range(1, 31))
    assert "rounds; the report" not in text


def test_groups_lead_with_their_own_accuracy(live: LiveDisplay, out: io.StringIO) -> None:
    grouped = {"client_accuracy": {0: 0.9, 1: 1.0, 2: 0.8}, "group_members": {"a": [0, 1], "b": [2]}}
    live.start(PLAN, FACTS)
    live.phase(1, "train", 1, 10)
    live.phase(2, "train", 1, 10)
    live.round_done(a_row(1, accuracy=0.249, **grouped))
    live.phase(3, "train", 1, 10)
    shown = picture(live)
    assert re.search(r"^ +1 +0\.875", shown, re.MULTILINE)
    assert re.search(r"^ +2 +on its way", shown, re.MULTILINE)
    live.finish([a_row(1, accuracy=0.249, **grouped)], Verdict("nothing_run"), [], Path("r"))
    text = without_codes(out.getvalue())
    assert "0.875 on average (a 0.950, b 0.800)" in text
    assert "accuracy on all classes  0.249 (best 0.249 after round 1)" in text


def test_live_interrupted_says_how_to_go_on(live: LiveDisplay, out: io.StringIO) -> None:
    live.start(PLAN, FACTS)
    live.phase(3, "protect", 1, 10)
    live.interrupted(2, Path("runs/a b"))
    assert "fedplug resume 'runs/a b'" in without_codes(out.getvalue())
    assert "up to round 2 is saved" in without_codes(out.getvalue())


def test_live_draws_odd_numbers(live: LiveDisplay) -> None:
    live.start(PLAN, {})
    for row in (a_row(1, zones={}, accuracy=math.nan, wall_seconds=math.inf), a_row(2, loss=-math.inf)):
        live.round_done(row)
    assert "-∞" in picture(live)
    live.close()


def test_phase_draws_a_few_times_a_second_only(out: io.StringIO) -> None:
    display = LiveDisplay(Console(file=out, force_terminal=True, width=100))
    display.start(PLAN, FACTS)
    for i in range(20_000):
        display.phase(1, "train", i, 20_000)
    display.close()
    assert len(out.getvalue()) < 200_000, "drawn a few times a second, not once a call"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (41.9, "0:41"), (725, "12:05"), (3723, "1:02:03"), (-1, "0:00")]
)
def test_clock_time(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


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
        assert not re.search(r"^ +0 ", shown[width], re.MULTILINE), "the set-up is not a round"
    heads = {width: next(line for line in text.splitlines() if "accuracy" in line) for width, text in shown.items()}
    assert heads[40].split() == ["round", "accuracy", "epsilon", "clients"]
    assert heads[60].split() == ["round", "accuracy", "loss", "up", "epsilon", "clients"]
    assert heads[100].split()[-1] == "time"
    assert "round 3 of 4  3:00, 2:00 left\n" in shown[40], "one line, without a bar"


def test_columns_without_a_value_are_the_first_to_go() -> None:
    table = rounds_table([a_row(1, epsilon=None, view_epsilons={})], width=40)
    assert [column.header for column in table.columns] == ["round", "accuracy", "loss", "up", "clients"]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_verdict_has_a_row_for_each_party_at_every_width(width: int) -> None:
    hostile = a_line("client", "none", reason="sees [bold]x[/bold] of [red]all")
    verdict = a_verdict(client=hostile, released_model=a_line("released_model", "guaranteed", not_covered=["mask"]))
    console = Console(file=io.StringIO(), width=width)
    console.print(verdict_table(verdict))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= width
    words = " ".join(shown.split())
    assert f"{verdict.opening}. {verdict.headline}" in words
    for line in verdict.lines:
        assert re.search(rf"^{line.mark} {line.who.split()[0]}", shown, re.MULTILINE), line.who
    if width == 160:
        assert "[bold]x[/bold] of [red]all" in shown, "read as it is"
        assert all(line.guarantee in shown for line in verdict.lines)
        assert all(f"sees {line.sees}" in shown for line in verdict.lines)
        assert "not covered: mask" in shown


GREEN, AMBER, RED, DIM = "32", "33", "31", "2"


@pytest.mark.parametrize(
    ("lines", "colour"),
    [
        ([a_line("server", "guaranteed", 0.4)], GREEN),
        ([a_line("server", "guaranteed", 8.0)], AMBER),
        ([a_line("server", "weak")], AMBER),
        ([a_line("server", "guaranteed", unit="record", stated={"pld": 0.1})], AMBER),
        ([a_line("server", "guaranteed", 0.4), a_line("client", "none")], AMBER),
        ([a_line("server", "beyond")], RED),
        ([a_line("server", "none")], RED),
    ],
)
def test_the_colour_of_the_verdict_is_never_all_that_is_said(lines: list[Line], colour: str) -> None:
    verdict = Verdict.of(lines)
    console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system="standard")
    console.print(verdict_table(verdict))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(rf"\x1b\[1;{colour}m{re.escape(verdict.opening)}\.", shown)
    assert [without_codes(shown).count(line.mark) for line in lines] == [1] * len(lines)


def test_the_picture_ends_in_an_empty_line(live: LiveDisplay) -> None:
    """Where the cursor waits: behind a full line of blanks, the terminal's ^C would begin another line."""
    console = Console(file=io.StringIO(), width=100)
    lines = console.render_lines(live.picture(), console.options, pad=False)
    assert "".join(segment.text for segment in lines[-1]) == ""
