"""A stream, a clock and a terminal for displays, and the output of a live display."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
from rich.console import Console


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def look_at_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, standard output is a terminal."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")


def picture(display: Any, width: int = 100) -> str:
    """The output of a live display on a terminal of that width."""
    console = Console(file=io.StringIO(), width=width, height=30)
    console.print(display.picture())
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def without_codes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
