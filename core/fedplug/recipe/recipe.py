"""A recipe: the YAML file that composes components into a protocol, as a typed, validated, frozen object.

Every mistake is reported at once, with its place. How components get their names, under which state, messages and
noise streams are filed:

* `name:` if written, else the name of the component, `std.clip`;
* a second `{use: std.clip}` elsewhere is a separate component, named after its place: `std.clip@noised`. Zones are
  counted in the order of `Recipe.zones`, not of the file, so the order of keys in a file changes nothing;
* plain text such as `std.ckks` refers to the component of that name anywhere in the recipe; if there is none, it
  means `{use: std.ckks}`.

A name without a dot that no plugin offers means the plugin `std`: `dirichlet` is `std.dirichlet`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fedplug.api.errors import RecipeError
from fedplug.api.records import shown
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.check import find_problems
from fedplug.recipe.reader import Draft
from fedplug.recipe.sections import Resolved
from fedplug.recipe.source import LONGEST, Source, in_order, leaves, too_long


class Recipe(Resolved):
    """A protocol: which components do what, with which options; what it holds is in `Resolved`."""

    @classmethod
    def from_plain(cls, data: Mapping[str, Any], catalog: Catalog | None = None, origin: str = "recipe") -> Recipe:
        """Validates plain data, such as `to_plain` gives.

        Raises:
            RecipeError: holds every mistake, with its path.
        """
        return cls.of(Source(origin, data), catalog)

    @classmethod
    def of(cls, source: Source, catalog: Catalog | None = None) -> Recipe:
        """Validates what was read, with the position of every mistake. Raises as `from_plain`."""
        for path, value, _ in leaves(source.data):
            if too_long(value):  # in plain data; of text the reader has complained
                source.complain(path, f"{shown(value)}: {LONGEST}")
                raise RecipeError(in_order(source, source.problems))
        if isinstance(source.data, Mapping):
            catalog = catalog or Catalog.discover()
            catalog.files.covers(source)
            draft = Draft(source, catalog)
            fields = draft.fields()
            recipe = cls(**fields) if fields else None
            notes = catalog.right.get(recipe.digest) if recipe else None
            if notes is None:
                problems, notes = find_problems(draft, recipe)
                for path, message in problems:
                    of_zone = path[0] in ("protect", "postprocess") and len(path) == 2
                    source.complain(path, message, key=of_zone)  # of a zone, point at its name
            if recipe is not None and not source.problems:
                catalog.right[recipe.digest] = notes
                return dataclasses.replace(recipe, notes=tuple(notes))
        elif not source.problems:
            kind = "empty" if source.data is None else f"a {type(source.data).__name__}"
            source.complain((), f"a recipe is a mapping of keys such as name, rounds, protect; this one is {kind}")
        lines = [in_order(source, found) for found in (source.problems + source.not_run, source.not_run)]
        raise RecipeError(*lines)
