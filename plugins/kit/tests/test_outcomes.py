"""The kit's checks of training and scores; two runs end alike if nothing is drawn in secret."""

from __future__ import annotations

from fedplug_kit import outcomes
from fedplug_kit.world import World, catalog_with, recipe_around, run
from fedplug_std.mean import Mean


def world_of(draw: int = 0) -> World:
    catalog = catalog_with("x.sum", Mean, ["aggregate"])
    return run(recipe_around("x.sum", Mean(Mean.Options()), {}, {"rounds": 1}, catalog, draw), catalog)


def test_a_run_without_secrets_repeats_and_other_data_gives_another_model() -> None:
    world, same, other = world_of(), world_of(), world_of(draw=1)
    assert world.problems == []
    assert outcomes.repeats(world)
    assert list(outcomes.difference(world, same)) == []
    assert list(outcomes.difference(world, other)) != []


def test_scores_that_follow_from_data_are_no_public_ones() -> None:
    world, same, other = world_of(), world_of(), world_of(draw=1)
    assert list(outcomes.public_problems(world, same, "kit.scores")) == []
    assert "its scores are declared as public, but change with the clients' data" in list(
        outcomes.public_problems(world, other, "kit.scores")
    )
