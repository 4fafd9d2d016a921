"""The display for a standard output, and the drawings of plugins in terminals."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from display_toys import look_at_stdout
from fedplug.api.errors import PluginError
from fedplug.recipe.catalog import Entry
from fedplug_lab.live import LiveDisplay
from fedplug_runs import shown
from fedplug_runs.shown import LinesDisplay, display_of
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
