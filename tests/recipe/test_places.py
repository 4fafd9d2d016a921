"""The places of components in a recipe, and paths that cannot be a place."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.parts import leaves
from fedplug.recipe.reader import places
from fedplug.recipe.source import Source
from recipe_texts import changed


def test_each_section_keeps_its_form_and_zones_are_in_order_of_label() -> None:
    data = {
        "data": {"use": "d", "partition": "p"}, "score_parameters": ["a", "b"],
        "protect": {"own": ["c"], "noised": ["e", "f"], "clear": [], "encrypted": None},
    }  # fmt: skip
    source = Source("recipe", data)
    found = places(source, {})
    assert [(place.path, place.raw) for place in leaves(found)] == [
        (("data",), data["data"]), (("data", "partition"), "p"), (("score_parameters", 0), "a"),
        (("score_parameters", 1), "b"), (("protect", "noised", 0), "e"), (("protect", "noised", 1), "f"),
        (("protect", "own", 0), "c"),
    ]  # fmt: skip
    assert set(found["protect"]) == {"noised", "own", "clear"}, "an empty chain is one, null is none"
    assert found["extensions"] == []
    assert "model" not in found
    assert not source.problems


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"train": None}, "recipe.train: train must name a component, not null"),
        ({"data": {"use": "std.digits", "clients": 4}}, "recipe.data: data needs 'partition', for instance"),
        (
            {"score_parameters": "std.size"},
            "recipe.score_parameters: score_parameters must be a list: put the component",
        ),
        ({"protect": []}, "recipe.protect: protect must be a mapping from zones to lists"),
        ({"protect": {"Noised": []}}, "recipe.protect.Noised: zone 'Noised' must be lower-case"),
    ],
)
def test_what_cannot_be_a_place_is_named(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, change: dict[str, Any], expected: str
) -> None:
    found = changed(plain_recipe, fake_catalog, **change)
    assert any(problem.startswith(expected) for problem in found), found
