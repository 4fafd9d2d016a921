"""Sizes of noise by public scores: exact where everybody can work them out, and unknown otherwise."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Facts, Known, Layout, Noise, Plans, Scoring
from fedplug.api.parties import Server
from fedplug_ledger.public_sizes import sized_in_public
from toy_base import Toy

LAYOUT = Layout.of([("a", (2,)), ("b", (3,))])


class Everywhere(Toy, fedplug.PublicPlan):
    """One zone."""

    plans = Plans(zones=frozenset({"noised"}))

    def plan(self, facts: Facts) -> str:
        return "noised"


class Sizes(Toy, fedplug.Scorer):
    """Scores layers by the model."""

    scoring = Scoring(per="layer", public=True)
    given: Any = None

    def score_parameters(self, client: fedplug.Client, facts: Facts) -> Any:
        raise AssertionError("no client is asked")

    def public_scores(self, model: Any, vector: Any, facts: Facts) -> dict[int, Any]:
        return self.given if self.given is not None else dict.fromkeys(range(3), vector[[0, 2]].astype(np.float64))


def named(part: Any, name: str, **fields: Any) -> Any:
    part.name = name
    vars(part).update(fields)
    return part


def sized(vector: Any, groups: int = 1, **fields: Any) -> Any:
    """The standard deviations of noise that a server works out: its scores, by layer."""
    parts = {"plan": named(Everywhere(Everywhere.Options()), "plan"),
             "sizes": named(Sizes(Sizes.Options()), "sizes", **fields)}  # fmt: skip
    facts = Facts(0, 1, LAYOUT, ("noised",), 3, 2, 7, "", components=parts)
    server = Server()
    server.model, server.vector = None if vector is None else object(), vector  # type: ignore[assignment]
    server.remembered.groups = {str(number): [number] for number in range(groups)}
    noise = Noise.by(lambda scores, present: scores * len(present), reads="scores", at_least=1.0)
    found = sized_in_public(noise, Known(zone="noised", link="odd", layers=(2, 3)), server, facts)
    return found and found.std


def test_it_is_that_of_the_scores_of_the_layers_that_are_sent() -> None:
    assert sized(np.arange(1, 6, dtype=np.float32)) == (2.0, 6.0)


@pytest.mark.parametrize(
    "given",
    [{}, dict.fromkeys(range(2), np.ones(2)), {0: np.ones(2), 1: np.ones(2), 2: np.zeros(2)},
     dict.fromkeys(range(3), np.zeros(2)), dict.fromkeys(range(3), np.array([1.0, np.inf]))],
    ids=["none", "not of all", "not alike", "all zero", "not finite"],
)  # fmt: skip
def test_scores_that_are_not_those_of_all_clients_say_nothing(given: dict[int, Any]) -> None:
    assert sized(np.ones(5, np.float32), given=given) is None


def test_without_the_model_of_the_clients_nobody_can_tell() -> None:
    assert sized(None) is None
    assert sized(np.ones(5, np.float32), groups=2) is None
    assert sized(np.ones(5, np.float32), scoring=Scoring(per="layer")) is None
