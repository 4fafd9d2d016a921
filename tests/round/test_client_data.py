"""Public examples: set aside before the clients get theirs, or a separate data set. All parties have the same."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug import Examples
from fedplug.api.errors import DataError, RecipeError
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.world import load_data
from toy_components import recipe_of, toy_catalog
from toy_protocol import build


def loaded(**changes: Any) -> Any:
    recipe = Recipe.from_plain(recipe_of(**changes), toy_catalog())
    return load_data(recipe, Composition(recipe).components, None)


def data_with(**changes: Any) -> dict[str, Any]:
    return recipe_of()["data"] | changes


def keys(examples: Examples) -> set[bytes]:
    return {image.tobytes() for image in examples.inputs}


def test_examples_set_aside_belong_to_no_client() -> None:
    everything, _ = loaded()
    data, public = loaded(data=data_with(public=40))
    assert len(public.examples) == 40
    assert len(data.train) == len(everything.train) - 40
    assert keys(public.examples) | keys(data.train) == keys(everything.train)
    assert public.shape == data.shape
    again, same = loaded(data=data_with(public=40))
    assert np.array_equal(same.examples.inputs, public.examples.inputs)
    assert np.array_equal(again.train.labels, data.train.labels)


def test_every_party_but_the_key_server_sees_them() -> None:
    protocol, engine, _ = build(recipe_of(data=data_with(public=25)))
    try:
        clients = [host.clients[address] for address, host in engine._hosts.items()]  # type: ignore[attr-defined]
        for client in clients:
            assert np.array_equal(client.facts.public.examples.labels, protocol.server.facts.public.examples.labels)
            assert len(client.facts.public.examples) == 25
    finally:
        engine.close()


def test_a_separate_data_set() -> None:
    data, public = loaded(public={"use": "std.digits", "name": "others", "train_size": 12})
    assert len(public.examples) == 12
    assert len(data.train) == len(loaded()[0].train)


def test_both_at_once_are_refused() -> None:
    with pytest.raises(RecipeError, match="keep one of them"):
        Recipe.from_plain(recipe_of(data=data_with(public=3), public={"use": "std.digits"}), toy_catalog())


@pytest.mark.parametrize("count", [-1, 1.5, True, "many"])
def test_a_number_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(RecipeError, match=r"public=.* must be (a whole number|>= 0)"):
        Recipe.from_plain(recipe_of(data=data_with(public=count)), toy_catalog())


def test_too_many_are_refused() -> None:
    with pytest.raises(DataError, match="leaves fewer than one for each"):
        loaded(data=data_with(public=1436))


def test_a_recipe_reads_back_with_its_public_examples() -> None:
    recipe = Recipe.from_plain(recipe_of(data=data_with(public=7)), toy_catalog())
    again = Recipe.from_plain(recipe.to_plain(), toy_catalog())
    assert again.data.public == 7
    assert again.digest == recipe.digest
    assert again.digest != Recipe.from_plain(recipe_of(), toy_catalog()).digest


def test_what_equals_a_public_example_is_no_clients() -> None:
    """Otherwise somebody's example is public, and nobody pays for that."""
    everything, _ = loaded()
    twice = np.repeat(np.arange(len(everything.train)), 2)
    doubled = dataclasses.replace(everything, train=everything.train.take(twice))
    recipe = Recipe.from_plain(recipe_of(data=data_with(public=16)), toy_catalog())
    source = SimpleNamespace(load=lambda root: doubled)
    private, public = load_data(recipe, {recipe.data.name: source}, None)
    assert public is not None
    assert len(public.examples) == 16
    assert not keys(private.train) & keys(public.examples)
    assert keys(private.train) | keys(public.examples) == keys(everything.train)
