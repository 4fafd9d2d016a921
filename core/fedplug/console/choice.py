"""Which display suits this process's standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fedplug.console.display import Display, PlainDisplay

if TYPE_CHECKING:
    from rich.console import Console


def terminal(quiet: bool) -> Console | None:
    """Where to draw a picture that moves: this process's terminal; None where there is none, or it is to be quiet."""
    # Not `console.is_terminal`: FORCE_COLOR, as continuous integration sets it, would turn a log file into a terminal.
    if quiet or not sys.stdout.isatty():
        return None
    from rich.console import Console  # here, because logs and pipes do without rich, which takes a while to import

    console = Console()
    return None if console.is_dumb_terminal else console


def make_display(quiet: bool) -> Display:
    """The display for this process's standard output.

    Args:
        quiet: show warnings and the end of the run only.
    """
    console = terminal(quiet)
    if console is None:
        return PlainDisplay(sys.stdout, quiet=quiet)
    from fedplug.console.live import LiveDisplay

    return LiveDisplay(console)
