"""The small federation of the kit: its parts, the recipe around a component, and the notes of its run."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Plan, Plans, at_client
from fedplug.api.errors import RecipeError
from fedplug_kit import conformance
from fedplug_kit.functions import awkward, executed
from fedplug_kit.parts import PARTS
from fedplug_kit.world import CLIENTS, build, catalog_with, name_of, recipe_around, run, staged
from fedplug_std.clip import Clip
from fedplug_std.mean import Mean


def test_a_link_is_executed_by_itself() -> None:
    catalog = catalog_with("x.clip", Clip, ["protect"])
    recipe = recipe_around("x.clip", Clip(Clip.Options(norm=0.25)), {"norm": 0.25}, {}, catalog, 0)
    world = run(*build(recipe, catalog))
    assert world.problems == []
    (step,) = world.steps("x.clip", "protect")
    assert step.operations == (fedplug.Clip(0.25),)
    values = awkward(world.protocol.layout.size)["huge values"]
    assert np.linalg.norm(executed(world, step, values).astype(float)) <= 0.25


def test_rounds_of_a_staged_run_are_played_by_hand() -> None:
    catalog = catalog_with("x.sum", Mean, ["aggregate"])
    world = staged(recipe_around("x.sum", Mean(Mean.Options()), {}, {"rounds": 5}, catalog, 0), catalog)
    world.enter(3)
    assert {client.facts.round for client in world.clients.clients.values()} == {3}
    assert world.protocol.server.facts.round == world.protocol.office.round == 3
    assert len(world.clients.clients) == CLIENTS


def test_no_class_gets_the_name_of_a_part() -> None:
    assert name_of("Halve") == "kit.halve"
    assert {name_of(name.partition(".")[2]) for parts in PARTS.values() for name in parts}.isdisjoint(
        name for parts in PARTS.values() for name in parts
    )


def test_a_recipe_that_no_part_of_the_kit_makes_right_says_why() -> None:
    catalog = catalog_with("x.sum", Mean, ["aggregate"])
    with pytest.raises(RecipeError, match="rounds=0 must be >= 1"):
        recipe_around("x.sum", Mean(Mean.Options()), {}, {"rounds": 0}, catalog, 0)


@pytest.mark.parametrize("group", sorted(PARTS))
def test_the_kits_parts_are_on_offer_beside_what_is_installed(group: str) -> None:
    catalog = catalog_with("x.sum", Mean, ["aggregate"])
    assert PARTS[group].keys() <= catalog.groups[group].keys()
    assert catalog.get("aggregate", "std.mean") is not None


class Elsewhere(fedplug.Negotiation):
    """Lets every client keep another half, but does not say that the zones are its own."""

    plans = Plans(zones=frozenset({"clear", "retained"}))

    def negotiate_mask(self, cohort: Any, facts: Any) -> None:
        cohort.tell(self.adopt)

    @at_client
    def adopt(self, client: Any) -> None:
        size = client.facts.layout.size
        kept = np.random.default_rng(self.seed(client)).permutation(size)[: size // 2]
        client.plan = Plan.of(client.facts, "clear", retained=kept)

    def reveals(self, facts: Any) -> list[fedplug.Reveals]:
        return []

    def seed(self, client: Any) -> int:
        return int(client.client_id)


class InRoundTwo(Elsewhere):
    """Does so in the second round alone."""

    def seed(self, client: Any) -> int:
        return int(client.client_id * client.facts.round)


class Together(Elsewhere):
    """Has all clients keep the same half."""

    def seed(self, client: Any) -> int:
        return 0


@pytest.mark.parametrize("found", [Elsewhere, InRoundTwo])
def test_a_zone_that_lies_alike_in_words_alone_is_found(found: type) -> None:
    with pytest.raises(AssertionError) as caught:
        conformance(found)
    said = str(caught.value)
    assert "the clients of group all ended with different models; a zone that lies in other places at another" in said


def test_a_zone_that_lies_alike_in_deeds_passes() -> None:
    conformance(Together)
