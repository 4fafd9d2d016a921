"""Data sets that runs have in common are loaded once, equal bit for bit also in another process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.world import World
from fedplug_runs.loaded import MOST, Loaded, Once, keeping, place_of
from fedplug_std.datasets import Digits
from toy_components import recipe_of, toy_catalog


def recipe_with(**data: Any) -> Recipe:
    plain = recipe_of()
    plain["data"] |= {"use": "std.digits", **data}
    return Recipe.from_plain(plain, toy_catalog())


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes that digits were loaded in."""
    found: list[int] = []
    whole = Digits.load

    def watched(component: Digits, root: str | None) -> Any:
        found.append(component.options.train_size or 0)
        return whole(component, root)

    monkeypatch.setattr(Digits, "load", watched)
    return found


def world_of(recipe: Recipe) -> tuple[World, str]:
    once = Once(recipe, Composition(recipe))
    return World(recipe, once.composition, None), once.digest


def test_one_place_is_loaded_once_and_another_again(loads: list[int]) -> None:
    loaded = Loaded()
    one, other = recipe_with(train_size=100), recipe_with(train_size=120)
    with keeping(loaded):
        first, digest = world_of(one)
        again, same = world_of(one)
        _, unlike = world_of(other)
    assert loads == [100, 120]
    assert digest == same == loaded.digest(one, None) != unlike
    assert first.data is not None
    assert again.data is not None
    assert np.array_equal(first.data.train.inputs, again.data.train.inputs)
    assert place_of(one, None) != place_of(other, None) != place_of(other, "/data")
    world_of(one)
    assert loads == [100, 120, 100], "outside of a study every run loads its data"


def test_another_process_gets_equal_data(loads: list[int]) -> None:
    loaded, recipe = Loaded(), recipe_with(train_size=100)
    digest = loaded.digest(recipe, None)
    with keeping(Loaded.unpacked(loaded.packed())):
        world, theirs = world_of(recipe)
    assert loads == [100]
    assert theirs == digest
    assert world.data is not None
    with pytest.raises(ValueError, match="read-only"):
        world.data.train.inputs[0] = 0


def test_what_cannot_travel_is_left_out(loads: list[int]) -> None:
    loaded = Loaded()
    loaded._kept["stays"] = "digest", lambda: None  # type: ignore[assignment]
    loaded.digest(recipe_with(train_size=100), None)
    assert len(loaded.packed()) == 1


def test_only_the_last_few_are_kept(loads: list[int]) -> None:
    loaded = Loaded()
    for size in range(100, 100 + MOST + 1):
        loaded.digest(recipe_with(train_size=size), None)
    assert len(loaded.packed()) == MOST
    loaded.digest(recipe_with(train_size=100), None)
    assert loads.count(100) == 2


def test_data_sets_that_are_large_together_are_not_kept(loads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedplug_runs.loaded.BYTES", 1000)
    loaded = Loaded()
    for size in (100, 101, 101):
        loaded.digest(recipe_with(train_size=size), None)
    assert loads == [100, 101], "the newest stays, however large"
    assert len(loaded.packed()) == 1
