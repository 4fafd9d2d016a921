"""Which display suits this process's standard output."""

from __future__ import annotations

import sys

from rich.console import Console

from fedplug.console.display import Display, PlainDisplay
from fedplug.console.live import LiveDisplay


def terminal(quiet: bool) -> Console | None:
    """Where to draw a picture that moves: this process's terminal; None where there is none, or it is to be quiet."""
    console = Console()
    # Not `console.is_terminal`: FORCE_COLOR, as continuous integration sets it, would turn a log file into a terminal.
    return None if quiet or not sys.stdout.isatty() or console.is_dumb_terminal else console


def make_display(quiet: bool) -> Display:
    """The display for this process's standard output.

    Args:
        quiet: show warnings and the end of the run only.
    """
    console = terminal(quiet)
    return PlainDisplay(sys.stdout, quiet=quiet) if console is None else LiveDisplay(console)
