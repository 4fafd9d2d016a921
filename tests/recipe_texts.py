"""Recipes as text for tests of reading them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_runs.overlay import load_recipe
from hypothesis import strategies as st

GOOD = """\
name: two-zones
description: for the tests
seed: 7
rounds: 3
data: {use: std.digits, clients: 4, partition: {use: dirichlet, alpha: 0.5}}
model: {use: std.mlp, hidden: [16, 8]}
train: std.sgd
score_parameters: [{use: std.size}]
negotiate_mask: {use: acme.vote, ratio: 0.25}
protect:
  encrypted: [{use: std.ckks}]
  noised:    [{use: std.clip, norm: 1e-2}, {use: std.gaussian, epsilon: 8}]
aggregate: std.mean
postprocess: {encrypted: [std.ckks]}
"""


def write(folder: Path, text: str, name: str = "r.yaml") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def problems(path: Path, catalog: Catalog, *sets: str) -> list[str]:
    """The problems of a recipe file, with the folder cut off."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, sets, catalog)
    return [problem.replace(f"{path.parent}/", "") for problem in caught.value.problems]


def changed(plain: dict[str, Any], catalog: Catalog, **changes: Any) -> list[str]:
    """The problems of plain data with some sections replaced."""
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(plain | changes, catalog)
    return caught.value.problems


PLAIN_DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**64, 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\ufeff")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcxyz_.<1e5 ", max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
