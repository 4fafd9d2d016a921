"""Checks that what a link keeps of one scalar never gets onto another: zones may move from round to round.

Error feedback keeps what a round did not send, and adds it in the next. Kept by index within the zone, it lands on
other scalars as soon as the zone has other positions, and nobody notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import FedplugError
from fedplug.api.operations import Map, Noise, Post, Widen
from fedplug.recipe.composition import Composition
from fedplug.round.base import facts_of

from fedplug_kit.again import steps_of
from fedplug_kit.functions import awkward, executed, plain_parts, within

if TYPE_CHECKING:
    from fedplug.api.facts import Snapshots
    from fedplug.api.links import Step
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.protocol import Protocol
    from numpy.typing import NDArray

    from fedplug_kit.world import World

_REMEDY = "keep it by position: client.plan.positions(zone), or public.positions, says where the values of a zone lie"


def has_functions(name: str, recipe: Recipe, protocol: Protocol, published: Snapshots) -> bool:
    """Whether links of a component have functions, which may keep something; True where only a run shows it.

    Args:
        name: of the component.
        recipe: in which its zone moves.
        protocol: of a run with the same model.
        published: what components have published in that run.
    """
    composition = Composition(recipe)
    rounds = (facts_of(composition, protocol.layout, n, protocol.public, published) for n in range(recipe.rounds))
    try:
        return any(step.has(Map, Post) for facts in rounds for step in steps_of(composition, facts, name))
    except FedplugError:
        return True


def moving_problems(name: str, stage: Callable[[], World]) -> Iterator[str]:
    """Yields all problems that these checks find.

    Args:
        name: of the component.
        stage: makes parties of a recipe in which its zone moves.
    """
    world = stage()
    for number, part in enumerate(_parts(world, name)):
        found = next(_Trial(world, name, number).problems(), "")
        if found:
            yield f"component {name}, hook {part.link.hook}, zone {part.link.zone}: {found}; {_REMEDY}"


def _parts(world: World, name: str) -> list[Step]:
    """The parts of a component's links that have functions, without noise, in the current round."""
    steps = [step for hook in ("protect", "postprocess") for step in world.steps(name, hook)]
    return [part for step in steps for part in plain_parts(step, Noise, Widen) if part.has(Map, Post)]


class _Trial:
    """One part, at a party that forgets everything before each trial."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.world, self.name, self.number = world, name, number
        world.at(0)
        self.zone, site = _parts(world, name)[number].link.zone, _parts(world, name)[number].link.site
        self.party: Any = world.client(0) if site == "client" else world.protocol.server

    def problems(self) -> Iterator[str]:
        """What one scalar has in one round must not change what others give in the next.

        `kit.alternating` puts two of three scalars into the zone, then another two of three, and then one of three.
        The second round has the same values each time. In the first, those that the second lacks have another order
        within their layer, so that a norm or a quantile that a link keeps is the same.
        """
        try:
            first, again = self._second(1), self._second(1)
            if np.array_equal(first, again) and not np.allclose(first, self._second(-1), rtol=1e-3, atol=1e-7):
                yield "what it keeps of one scalar in a round, it puts onto another one in the next"
            self._given(2)
        except FedplugError as error:
            yield f"it fails once its zone has other positions than in the round before: {error}"

    def _second(self, order: int) -> NDArray[np.float32]:
        """What it gives in the second of two rounds, whose zone lacks some scalars of the first."""
        self.party.state = {}
        self._given(0, order)
        return self._given(1)

    def _given(self, round: int, order: int = 1) -> NDArray[np.float32]:
        """What it gives for the same values in their order, or those that the second round lacks from last to first."""
        self.world.at(1)
        later = self._where()
        self.world.at(round)
        facts, part = self.world.facts, _parts(self.world, self.name)[self.number]
        where = self._where()
        values = within(awkward(len(where))["random values"], part.before)
        layers = facts.layout.per_scalar(np.arange(len(facts.layout.layers)))[where]
        layers, numbers = np.where(np.isin(where, later), -1, layers), np.arange(len(where))
        values[np.lexsort((numbers, layers))] = values[np.lexsort((np.where(layers < 0, 1, order) * numbers, layers))]
        return executed(self.world, part, values, plan=facts.plan)

    def _where(self) -> NDArray[np.uint32]:
        """Where the zone lies in the current round."""
        assert self.world.facts.plan is not None  # kit.alternating's is public
        return self.world.facts.plan.positions(self.zone)
