"""The display for a standard output, and the drawings of plugins in terminals."""

from __future__ import annotations

import io
import sys

import importlib_metadata
import pytest
from display_toys import look_at_stdout
from fedplug.api.errors import PluginError
from fedplug.console.display import PlainDisplay
from fedplug.runs.shown import display_of
from fedplug_lab.live import LiveDisplay


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
    monkeypatch.setattr(importlib_metadata, "entry_points", lambda group: [])
    assert isinstance(display_of("terminal", quiet=False), PlainDisplay)


def test_a_display_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_stdout(monkeypatch)
    point = importlib_metadata.EntryPoint("film", "no_such_module:make", "fedplug.display")
    monkeypatch.setattr(importlib_metadata, "entry_points", lambda group: [point])
    with pytest.raises(PluginError, match=r"display film \(no_such_module:make\) cannot be imported: ModuleNotFound"):
        display_of("terminal", quiet=False)
