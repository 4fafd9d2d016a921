"""Which display suits this process's standard output."""

from __future__ import annotations

import sys

from rich.console import Console

from fedplug.console.display import Display, PlainDisplay
from fedplug.console.live import LiveDisplay


def make_display(quiet: bool) -> Display:
    """The display for this process's standard output.

    Args:
        quiet: show warnings and the end of the run only.
    """
    console = Console()
    # Not `console.is_terminal`: FORCE_COLOR, as continuous integration sets it, would turn a log file into a terminal.
    if quiet or not sys.stdout.isatty() or console.is_dumb_terminal:
        return PlainDisplay(sys.stdout, quiet=quiet)
    return LiveDisplay(console)
