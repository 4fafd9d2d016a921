"""The body of `fedplug check`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fedplug.api.errors import RecipeError
from fedplug.recipe.plugin_files import with_files
from fedplug.runs import functions


def check_recipes(
    recipes: Sequence[Path | str], sets: Sequence[str] | None = None, plugins: Sequence[Path] = ()
) -> int:
    """Prints of each recipe that it is well, with its digest, or everything that is wrong. Gives the exit code."""
    catalog, problems = with_files(None, plugins), 0
    for path in map(Path, recipes):
        try:
            recipe = functions.check(path, sets, catalog=catalog)
            print("\n".join([f"{path}: ok ({recipe.digest[:12]})", *(f"note: {note}" for note in recipe.notes)]))
        except RecipeError as error:
            problems += len(error.problems)
            print("\n".join(error.problems))
    if problems:
        print(f"{problems} problem{'s' if problems > 1 else ''}", file=sys.stderr)
    return 1 if problems else 0
