"""Which display suits a standard output."""

from __future__ import annotations

import io
import sys

import pytest
from display_toys import look_at_stdout
from fedplug.console.choice import make_display
from fedplug.console.display import PlainDisplay
from fedplug.console.live import LiveDisplay


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
