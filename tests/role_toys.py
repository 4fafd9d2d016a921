"""Classes as an import would make them, and the check of a recipe with them."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe


def made(role: type, **members: Any) -> type:
    """A class of that role with these members, as an import would make it."""
    return type("Odd", (role,), {"__module__": "acme.odd", "__qualname__": "Odd", "__doc__": "Odd.", **members})


def method(*names: str) -> Any:
    """A method with these arguments after self."""
    found: Any = eval(f"lambda {', '.join(('self', *names))}: None")
    return found


def protecting(classes: dict[str, dict[str, type]], plain: dict[str, Any], found: type) -> list[str]:
    """The check's result for a recipe that protects with a class."""
    classes["protect"]["odd"] = found
    changed = plain | {"protect": {"encrypted": ["odd"], "noised": []}, "postprocess": {}}
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(changed, Catalog.of(classes))
    return caught.value.problems
