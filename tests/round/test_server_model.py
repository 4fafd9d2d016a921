"""The server's copy of the model: only the sums that it reads move it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fedplug.api.blocks import CLEAR, NOISED
from fedplug.recipe.recipe import Recipe
from fedplug_runs.execution import resume, start
from fedplug_runs.settings import Settings
from toy_components import Peek, paraaegis, recipe_of, toy_catalog
from toy_protocol import initial_vector, run_protocol


@pytest.fixture(autouse=True)
def _forget() -> None:
    Peek.seen.clear()


PEEK = {"use": "toy.peek"}


def test_the_server_follows_a_model_that_it_sees_whole() -> None:
    recipe = recipe_of(aggregate=PEEK, data=recipe_of()["data"] | {"public": 9})
    outcome = run_protocol(recipe)
    first, second = Peek.seen
    assert np.array_equal(first["vector"], initial_vector(recipe))
    moved = np.mean([block.values for block in first["blocks"].values()], axis=0)
    assert np.allclose(second["vector"], first["vector"] + moved, atol=1e-6)
    assert np.allclose(outcome.protocol.server.remembered.vectors["all"], outcome.vector, atol=1e-6)
    assert len(first["public"].examples) == 9
    assert first["layout"].size == len(outcome.vector)
    assert {c: blocks[CLEAR].size for c, blocks in first["uploads"].items()} == dict.fromkeys(range(4), 650)


def test_of_encrypted_parts_the_server_keeps_what_it_knew() -> None:
    recipe = paraaegis(0.5, aggregate=PEEK)
    run_protocol(recipe)
    start_at = initial_vector(recipe)
    last = Peek.seen[-1]["vector"]
    changed = np.flatnonzero(last != start_at)
    noised = [seen["blocks"] for seen in Peek.seen if next(iter(seen["blocks"].values())).zone == NOISED]
    # Only what clients sent outside the encryption, with positions, as the aggregator asked for.
    assert set(changed) <= set(noised[0][0].positions)
    assert 0 < len(changed) <= 325


def test_without_a_component_that_wants_it_the_server_has_no_model() -> None:
    outcome = run_protocol(recipe_of())
    assert outcome.protocol.server.model is None
    assert outcome.protocol.server.remembered.vectors == {}


def test_a_resumed_server_knows_the_same_model(tmp_path: Path) -> None:
    recipe = Recipe.from_plain(recipe_of(aggregate=PEEK, rounds=3), toy_catalog())
    settings = Settings(output=tmp_path, engine="local", workers=1, quiet=True)
    _, whole = start(recipe, settings, toy_catalog(), folder_name="whole")
    vectors = [seen["vector"] for seen in Peek.seen]
    Peek.seen.clear()
    resume(whole, settings, 2, toy_catalog())
    assert [seen["vector"].tolist() for seen in Peek.seen] == [vector.tolist() for vector in vectors[2:]]
