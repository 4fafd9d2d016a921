"""Runs inside another framework's server: the way to their parties, and the folder that brings the recipe there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Generic, TypeVar

from fedplug.api.errors import SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_runs import own_files, yaml_source
from fedplug_runs.files import write_text

RECIPE = "recipe.yaml"
"""In a folder that another framework takes to its server."""
Line = TypeVar("Line")


class Serving(Generic[Line]):
    """What a framework's server gives its engine, since engines are made by name.

    Args:
        framework: whose server it is.
    """

    def __init__(self, framework: str) -> None:
        self._given: ContextVar[tuple[Line, float]] = ContextVar(framework)

    @contextlib.contextmanager
    def __call__(self, line: Line, patience: float) -> Iterator[None]:
        """Lets a run on this thread reach its parties, while the context is open.

        Args:
            line: the way to them.
            patience: seconds to wait for parties that are not there yet.
        """
        token = self._given.set((line, patience))
        try:
            yield
        finally:
            self._given.reset(token)

    def given(self, otherwise: str) -> tuple[Line, float]:
        """The way to the parties, and seconds.

        Raises:
            SetupError: this thread is in no server of the framework; the message is `otherwise`.
        """
        try:
            return self._given.get()
        except LookupError:
            raise SetupError(otherwise) from None


def require_empty(folder: Path) -> None:
    """Checks that a folder is empty or does not exist.

    Raises:
        SetupError: it has something in it, or is a file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SetupError(f"{folder} is not empty; name an empty folder, or one that does not exist yet")


def write_recipe(recipe: Recipe, folder: Path) -> None:
    """Writes a recipe with all its values and its own files, so that it depends on nothing outside the folder."""
    write_text(folder / RECIPE, yaml_source.dump(recipe.to_plain()))
    own_files.keep(recipe.own_files, folder)
