"""How a run is shown: by lines, by a display of the caller's own, or in a terminal by what a plugin draws there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from fedplug.api.errors import PluginError, SetupError
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

    Args:
        quiet: show warnings and the end of the run only.

    Raises:
        PluginError: what draws in terminals cannot be imported.
    """
    if not quiet and sys.stdout.isatty():
        from importlib_metadata import entry_points

        from fedplug.recipe.catalog import DISPLAY

        for point in sorted(entry_points(group=f"fedplug.{DISPLAY}"), key=lambda point: point.name):
            try:
                display: Display | None = point.load()()
            except (Exception, SystemExit) as error:
                raise PluginError(f"the display {point.value} cannot be imported: {error}") from error
            if display is not None:
                return display
    return PlainDisplay(sys.stdout, quiet=quiet)
