"""What the kit makes of links whose noise is not what they state."""

from __future__ import annotations

import math
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Noise, hookimpl
from fedplug.testing import conformance


class Honest(fedplug.Protector):
    """Fresh Gaussian noise on every scalar."""

    def effects(self, known: Any, ctx: Any) -> Any:
        return (Noise(mechanism="gaussian", scale=4.0 * known.need_norm("clip first"), source="secure"),)

    def noise(self, size: int, client_id: int, round: int) -> Any:
        return np.random.default_rng().standard_normal(size)

    @hookimpl
    def protect(self, block: Any, client: Any, ctx: Any) -> Any:
        noise = 4.0 * ctx.known.norm() * self.noise(block.size, client.client_id, ctx.round)
        return block.replace(values=block.plain() + noise.astype(np.float32))


class Half(Honest):
    """Twice the variance on every other scalar, and none on the rest."""

    effects, protect = Honest.effects, Honest.protect

    def noise(self, size: int, client_id: int, round: int) -> Any:
        return super().noise(size, client_id, round) * np.where(np.arange(size) % 2, math.sqrt(2), 0)


class Opposite(Honest):
    """One half the opposite of the other: sums of pairs have no noise."""

    effects, protect = Honest.effects, Honest.protect

    def noise(self, size: int, client_id: int, round: int) -> Any:
        half = super().noise(size - size // 2, client_id, round)
        return np.concatenate([half, -half])[:size]


class Seeded(Honest):
    """From a seed that stands in the source."""

    effects, protect = Honest.effects, Honest.protect

    def noise(self, size: int, client_id: int, round: int) -> Any:
        return np.random.default_rng([1234, client_id, round]).standard_normal(size)


def test_noise_as_it_is_stated_passes() -> None:
    conformance(Honest)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (Half, "2210 of 4420 scalars have no noise in 4 draws"),
        (Opposite, "have the noise of another one, or its opposite"),
        (Seeded, "its noise is that of another run of the same recipe: a correlation of .1.00"),
    ],
)
def test_noise_that_is_not_what_is_stated_is_found(link: type, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        conformance(link)


class OnTheSum(fedplug.Opener):
    """Honest noise on the sum, at the server."""

    site = "server"

    def opens(self, known: Any, ctx: Any) -> Any:
        return (Noise(mechanism="gaussian", scale=4.0 * known.need_norm("clip first", central=True), trust="central"),)

    def noise(self, size: int, round: int) -> Any:
        return np.random.default_rng().standard_normal(size)

    @hookimpl
    def postprocess(self, block: Any, ctx: Any) -> Any:
        noise = 4.0 * ctx.known.norm() * self.noise(block.size, ctx.round)
        return block.replace(values=block.plain() + noise.astype(np.float32))


class HalfOfTheSum(OnTheSum):
    """Noise on every other scalar of the sum."""

    opens, postprocess = OnTheSum.opens, OnTheSum.postprocess

    def noise(self, size: int, round: int) -> Any:
        return super().noise(size, round) * np.where(np.arange(size) % 2, math.sqrt(2), 0)


class SeededSum(OnTheSum):
    """Noise on the sum from a seed."""

    opens, postprocess = OnTheSum.opens, OnTheSum.postprocess

    def noise(self, size: int, round: int) -> Any:
        return np.random.default_rng([1234, round]).standard_normal(size)


def test_noise_on_sums_is_looked_at_likewise() -> None:
    conformance(OnTheSum)
    with pytest.raises(AssertionError, match="2210 of 4420 scalars have no noise in 2 draws"):
        conformance(HalfOfTheSum)
    with pytest.raises(AssertionError, match="its noise is that of another run of the same recipe"):
        conformance(SeededSum)
