"""How a run is shown: by lines, by a display of the caller's own, or in a terminal by what a plugin draws there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, cast

from fedplug.api.errors import SetupError
from fedplug.console.display import LinesDisplay, PlainDisplay

if TYPE_CHECKING:
    from fedplug.console.display import Display

Shown = Literal["lines", "terminal"]


def display_of(shown: Shown | Display, quiet: bool) -> Display:
    """The display that was asked for; in a terminal lines as well, unless a plugin draws there.

    Raises:
        SetupError: it is a word that means nothing.
        PluginError: what draws in terminals cannot be imported.
    """
    if shown == "lines":
        return LinesDisplay(sys.stdout, quiet)
    if shown != "terminal":
        if isinstance(shown, str):
            raise SetupError(f"display={shown!r} must be 'lines', 'terminal', or your own display")
        return shown
    if not quiet and sys.stdout.isatty():
        from fedplug.recipe.catalog import DISPLAY, installed

        for entry in installed(DISPLAY).values():
            if (display := entry.imported()()) is not None:
                return cast("Display", display)
    return PlainDisplay(sys.stdout, quiet=quiet)
