"""The body of `fedplug run --dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedplug.api.errors import RecipeError, SetupError
from fedplug_runs import functions
from fedplug_runs.estimate import estimate
from fedplug_runs.execution import Equipment
from fedplug_runs.own_files import with_files
from fedplug_runs.settings import Settings
from fedplug_runs.trust import Consent

from fedplug_terminal.lines import tell


def dry_run(recipe: Path, sets: Sequence[str] | None, settings: Settings) -> int:
    """Prints what a run would take; gives the exit code.

    Raises:
        RecipeError: the recipe is wrong.
        SetupError: it brings code that nobody says may run, or this machine lacks something.
        FedplugError: the run would fail.
    """
    catalog = with_files(None, settings.plugins, Consent(settings.trust, ask=True))
    try:
        checked = functions.check(recipe, sets, catalog=catalog)
    except RecipeError as error:
        if error.not_run and len(error.problems) == len(error.not_run):
            raise SetupError("\n".join(error.not_run)) from error
        raise
    Equipment(settings, catalog)
    tell(f"{checked.name}: ok ({checked.digest[:12]}); a dry run makes no run folder")
    for note in checked.notes:
        tell(f"note: {note}")
    for line in estimate(checked, settings, catalog).text(settings.engine):
        tell(line)
    return 0
