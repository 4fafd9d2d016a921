"""The kit's checks of training and scores; two runs end alike if nothing is drawn in secret."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Client, Reveals, Scoring, at_client
from fedplug_kit import conformance, outcomes
from fedplug_kit.world import World, build, catalog_with, recipe_around, run
from fedplug_std.mean import Mean


def world_of(draw: int = 0) -> World:
    catalog = catalog_with("x.sum", Mean, ["aggregate"])
    return run(*build(recipe_around("x.sum", Mean(Mean.Options()), {}, {"rounds": 1}, catalog, draw), catalog))


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


class TellsLabels(fedplug.Protector):
    """Asks clients how many examples they have of each class, and says that it costs nothing."""

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        cohort.ask(self.told)

    @at_client
    def told(self, client: Client) -> Any:
        return np.bincount(client.data.train.labels, minlength=len(client.data.classes))

    def protect(self, known: Any, facts: Any) -> Any:
        return ()

    def reveals(self, facts: Any) -> list[Reveals]:
        return [Reveals("counts", ("server",), covered_by="nothing to pay", asked=("told",), note="of no data")]


class TellsClasses(TellsLabels):
    """Asks how many classes there are, which everybody knows."""

    @at_client
    def told(self, client: Client) -> Any:
        return len(client.data.classes)


class ByLabels(fedplug.Scorer):
    """Scores by the classes that a client has, declared as public."""

    scoring = Scoring(public=True)

    def score_parameters(self, client: Client, facts: Any) -> Any:
        return np.full(facts.layout.size, client.data.train.labels.mean(), np.float32)


@pytest.mark.parametrize(("found", "said"), [
    (TellsLabels, "method told: its replies are declared to cost nothing ('counts'), but change with the"),
    (ByLabels, "its scores are declared as public, but change with the"),
])  # fmt: skip
def test_what_follows_from_labels_follows_from_data(found: type, said: str) -> None:
    with pytest.raises(AssertionError) as caught:
        conformance(found)
    assert said in str(caught.value)


def test_what_follows_from_no_data_passes() -> None:
    conformance(TellsClasses)
