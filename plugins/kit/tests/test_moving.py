"""A link that puts what it keeps of one scalar onto another is found; one that keeps it by position passes."""

from __future__ import annotations

import functools
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, Client, Facts, Known, Map, Operations, Post, Public
from fedplug_kit import conformance
from numpy.typing import NDArray
from toy_sealers import AtClients


class ByPosition(fedplug.Protector):
    """Send the larger half of the values, and keep the rest for later rounds, by position."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Map(self.larger),)

    def larger(self, block: Block, client: Client, facts: Facts) -> NDArray[np.float32]:
        assert client.plan is not None
        whole = client.memory(self).setdefault("left", np.zeros(facts.layout.size, np.float32))
        where = client.plan.positions(block.zone)
        sent, whole[where] = self.split(block.plain() + whole[where])
        return sent

    def split(self, values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        large = np.abs(values) >= np.median(np.abs(values)) if values.size else values > 0
        return np.where(large, values, 0), np.where(large, 0, values)


class ByIndex(ByPosition):
    """Keep it by index within the zone; begin anew where the zone has another size."""

    def larger(self, block: Block, client: Client, facts: Facts) -> NDArray[np.float32]:
        memory = client.memory(self)
        left = memory.get("left", np.zeros(0, np.float32))
        left = left if left.size == block.size else np.zeros(block.size, np.float32)
        sent, memory["left"] = self.split(block.plain() + left)
        return sent


class Mirrored(ByPosition):
    """Keep it by position, and in the opposite order within the zone."""

    def larger(self, block: Block, client: Client, facts: Facts) -> NDArray[np.float32]:
        assert client.plan is not None
        whole = client.memory(self).setdefault("left", np.zeros(facts.layout.size, np.float32))
        where = client.plan.positions(block.zone)[::-1]
        sent, whole[where] = self.split(block.plain() + whole[where])
        return sent


class OfOneSize(ByPosition):
    """Keep the values of the last round alone, with their positions, and never look at how many there are now."""

    def larger(self, block: Block, client: Client, facts: Facts) -> NDArray[np.float32]:
        left = client.memory(self).get("left", np.zeros(block.size, np.float32))
        client.memory(self)["left"] = left * np.float32(0)
        return block.plain() + left


class SealedByPosition(AtClients):
    """What `ByPosition` does, in the link that seals."""

    first: type[Any] = ByPosition

    def protect(self, known: Known, facts: Facts) -> Operations:
        function = functools.partial(self.first.larger, self)
        return (Map(function), *super().protect(known, facts))

    split = ByPosition.split


class SealedByIndex(SealedByPosition):
    """What `ByIndex` does, in the link that seals."""

    first = ByIndex


class ByLayer(fedplug.Protector):
    """Divide by a running mean of the largest value, of which there is one."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Post(self.divided),)

    def divided(self, values: NDArray[np.float32], public: Public) -> NDArray[np.float32]:
        most = float(np.abs(values).max(initial=1e-6))
        kept = public.memory["most"] = 0.5 * public.memory.get("most", most) + 0.5 * most
        return values / np.float32(kept)


class Momentum(fedplug.Opener):
    """Add a share of the means of the rounds before, at the server, by index within the zone."""

    site = "server"

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        return (Post(self.moved),)

    def moved(self, values: NDArray[np.float32], public: Public) -> NDArray[np.float32]:
        before = public.memory.get("moved", np.zeros(0, np.float32))
        moved = values + np.float32(0.9) * before if before.size == values.size else values
        public.memory["moved"] = moved
        return moved


class OfOneZone(Momentum):
    """Says that it needs zones that stay."""

    def check(self, recipe: Any) -> list[str]:
        stays = recipe.negotiate_mask.use == "std.single_zone"
        return [] if stays else [f"{self.name} needs zones that stay; use negotiate_mask: std.single_zone"]


FEW = {"model": {"use": "kit.two_layers", "hidden": 8}}
"""Fewer scalars, between which values go astray as well."""


@pytest.mark.parametrize("found", [ByPosition, SealedByPosition, ByLayer, OfOneZone])
def test_what_is_kept_by_position_or_of_all_scalars_passes(found: type) -> None:
    conformance(found, recipe=FEW)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ByIndex, "hook protect, zone clear: what it keeps of one scalar in a round, it puts onto another"),
        (Mirrored, "hook protect, zone clear: what it keeps of one scalar in a round, it puts onto another"),
        (SealedByIndex, "hook protect, zone clear: what it keeps of one scalar in a round, it puts onto another"),
        (Momentum, "hook postprocess, zone clear: what it keeps of one scalar in a round, it puts onto another"),
        (OfOneSize, "hook protect, zone clear: it fails once its zone has other positions than in the round before"),
    ],
)
def test_what_is_kept_by_index_is_found(found: type, said: str) -> None:
    with pytest.raises(AssertionError) as caught:
        conformance(found, recipe=FEW | {"rounds": 1})
    assert said in str(caught.value)
    assert r"keep it by position: client.plan.positions(zone), or public.positions," in str(caught.value)
