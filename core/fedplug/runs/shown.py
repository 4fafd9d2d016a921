"""How a run is shown: by lines, by a display of the caller's own, or in a terminal by what a plugin draws there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, cast

from fedplug.api.errors import SetupError
from fedplug.console.display import LinesDisplay, PlainDisplay

if TYPE_CHECKING:
    from fedplug.console.display import Display

Shown = Literal["lines", "terminal"]


def chosen(display: Shown | Display, quiet: bool) -> Display | None:
    """The display that `fedplug.run` was asked for; None: what suits this process's standard output.

    Raises:
        SetupError: it is a word that means nothing.
    """
    if display == "terminal":
        return None
    if display == "lines":
        return LinesDisplay(sys.stdout, quiet)
    if isinstance(display, str):
        raise SetupError(f"display={display!r} must be 'lines', 'terminal', or a display of your own")
    return display


def make_display(quiet: bool) -> Display:
    """The display for this process's standard output: lines, unless it is a terminal and a plugin draws there.

    Raises:
        PluginError: what draws in terminals cannot be imported.
    """
    if not quiet and sys.stdout.isatty():
        from fedplug.recipe.catalog import DISPLAY, installed

        for entry in installed(DISPLAY).values():
            if (display := entry.imported()()) is not None:
                return cast("Display", display)
    return PlainDisplay(sys.stdout, quiet=quiet)
