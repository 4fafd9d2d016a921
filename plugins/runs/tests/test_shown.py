"""The display for a standard output, and the drawings of plugins in terminals."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from display_toys import look_at_stdout
from fedplug.api.errors import PluginError
from fedplug.api.events import Events
from fedplug.recipe.catalog import Entry
from fedplug_lab.live import LiveDisplay
from fedplug_runs import shown
from fedplug_runs.events import RunStopped
from fedplug_runs.pace import TRAINING
from fedplug_runs.shown import LinesDisplay, display_of, show
from fedplug_std import progress
from fedplug_terminal.plain import PlainDisplay
from row_toys import a_verdict
from shown_toys import FACTS, PLAN, a_row


def test_no_terminal_gives_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert isinstance(display_of("terminal", quiet=False), PlainDisplay)


def test_terminal_gives_the_live_display_unless_quiet_or_dumb(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_stdout(monkeypatch)
    assert isinstance(display_of("terminal", quiet=False), LiveDisplay)
    assert isinstance(display_of("terminal", quiet=True), PlainDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_of("terminal", quiet=False), PlainDisplay)


def test_without_a_plugin_that_draws_a_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_stdout(monkeypatch)
    monkeypatch.setattr(shown, "installed", lambda group: {})
    assert type(display_of("terminal", quiet=False)) is LinesDisplay


def test_a_display_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_stdout(monkeypatch)
    film = Entry("film", "display", "no_such_module:make", "unknown", "unknown")
    monkeypatch.setattr(shown, "installed", lambda group: {"film": film})
    with pytest.raises(PluginError, match=r"display film \(no_such_module:make\) cannot be imported: ModuleNotFound"):
        display_of("terminal", quiet=False)


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


def test_a_long_round_is_not_silent_and_a_short_one_says_nothing_more() -> None:
    """Two minutes in one training of DP-SGD, seen every five seconds: a line after each half minute of silence."""
    clock, out = [0.0], io.StringIO()
    display = LinesDisplay(out, clock=lambda: clock[0])
    display.start((), {"recipe": "long", "rounds": 3})
    display.phase(1, TRAINING, 0, 4)
    for second in range(5, 121, 5):
        clock[0] = float(second)
        progress.step(0, 0, second, 200)
        display.beat()
    display.close()
    said = out.getvalue().splitlines()[1:]
    assert len(said) == 4
    assert said[0] == (
        "round 1/3: training, 0 of 4 clients have answered, client 0 trains, step 30 of 200  30.0 s so far  "
        "about 39 min 30 s left"
    )
    assert said[-1].startswith("round 1/3: training, 0 of 4 clients have answered, client 0 trains, step 120 of 200")


def test_rows_tell_the_time_that_is_left() -> None:
    clock, out = [0.0], io.StringIO()
    display = LinesDisplay(out, clock=lambda: clock[0])
    display.start((), {"rounds": 4})
    display.phase(1, "upload", 1, 1)
    clock[0] = 60.0
    display.phase(2, "upload", 1, 1)
    display.round_done(a_row(1))
    display.close()
    assert out.getvalue().splitlines()[-1].endswith("about 3 min 00 s left")


def test_notes_that_differ_in_their_round_alone_are_counted() -> None:
    """What differs otherwise is shown, and so is the first of each kind; an error of the run hides no count."""
    out, events = io.StringIO(), Events()
    show(LinesDisplay(out), events)
    for number in range(1, 5):
        events.note(f"round {number}: client 2 dropped out: its disk is full")
    events.note("round 3: client 1 dropped out: its disk is full")
    events.tell(RunStopped(RuntimeError("full"), 4, Path("runs/x")))
    assert out.getvalue().splitlines() == [
        "note: round 1: client 2 dropped out: its disk is full",
        "note: round 3: client 1 dropped out: its disk is full",
        "note: 3 times more, the last time: round 4: client 2 dropped out: its disk is full",
    ]
