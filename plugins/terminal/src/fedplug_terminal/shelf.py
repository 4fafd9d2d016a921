"""The body of `fedplug recipes`."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from fedplug.api.errors import SetupError
from fedplug_runs.installing import install
from fedplug_runs.shelf import ENDING, meant, named, shipped

_ONWARD = {
    "recipe": "change it, then: fedplug run", "comparison": "change it, then: fedplug compare",
    "grid": "fedplug sweep RECIPE",
}  # fmt: skip
"""The next command for a copy, by its kind."""


def list_recipes(word: str, every: bool) -> Iterator[str]:
    """The lines to print.

    Args:
        word: a name, whose text is printed; or a part of those that are listed.
        every: list comparisons and grids too.

    Raises:
        SetupError: nothing is installed, or nothing has that word in its name.
        PluginError: two distributions ship something of that name.
    """
    if word and (found := named(word)):
        yield found.text.rstrip()
        return
    _require_any()
    listed = [each for each in shipped() if word in each.name and (every or word or each.kind == "recipe")]
    if not listed:
        raise _unknown(word)
    width = max(len(each.name) for each in listed)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for each in listed:
        line = f"{each.name:<{width}}  {each.summary}".rstrip()
        yield line if len(line) <= columns else textwrap.shorten(line, columns, placeholder=" ...")


def copy_recipe(name: str, out: Path | None) -> str:
    """Writes a recipe to a file, by default with the last part of its name in the working directory; says what is next.

    Raises:
        SetupError: there is no such recipe, or the file is there already.
        PluginError: two distributions ship something of that name.
    """
    _require_any()
    found = named(name)
    if found is None:
        raise _unknown(name)
    file = out or Path(f"{name.rpartition('/')[2]}{ENDING}")
    if not file.parent.is_dir():
        raise SetupError(f"{file.parent} is not a folder; create it, or name another file: --out FILE")
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(found.copied())
    except FileExistsError:
        raise SetupError(f"{file} exists already and was not changed; name another file: --out FILE") from None
    return f"{file} has {found}; {_ONWARD[found.kind]} {file}"


def _require_any() -> None:
    if not shipped():
        raise SetupError(
            "no installed package has recipes; those of this project are in fedplug-recipes: "
            f"{install('fedplug-recipes')}"
        )


def _unknown(name: str) -> SetupError:
    if not name:
        return SetupError("say which: fedplug recipes NAME --copy; fedplug recipes lists them")
    return SetupError(f"there is no recipe {name!r}; {meant(Path(name)) or 'fedplug recipes lists them'}")
