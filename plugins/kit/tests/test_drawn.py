"""What the kit makes of links whose noise is not what they state, and how often it errs."""

from __future__ import annotations

import functools
import math
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Noise, hookimpl
from fedplug_kit import conformance, drawn, noise, sharing
from fedplug_kit.drawn import _pairings


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


class Gaps(Honest):
    """More variance on three of four scalars, and none on the rest. Of half of them the borders find it."""

    effects, protect = Honest.effects, Honest.protect

    def noise(self, size: int, client_id: int, round: int) -> Any:
        return super().noise(size, client_id, round) * np.where(np.arange(size) % 4, math.sqrt(4 / 3), 0)


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


class Coins(Honest):
    """Plus or minus the standard deviation: of two values that lie closer, an upload tells which."""

    effects, protect = Honest.effects, Honest.protect

    def noise(self, size: int, client_id: int, round: int) -> Any:
        return np.random.default_rng().choice([-1.0, 1.0], size)


class Cut(Honest):
    """Drawn again beyond 1.75 standard deviations, and stretched to the stated one."""

    effects, protect = Honest.effects, Honest.protect

    def noise(self, size: int, client_id: int, round: int) -> Any:
        drawn = super().noise(3 * size, client_id, round)
        return drawn[np.abs(drawn) < 1.75][:size] / 0.81959


@functools.cache
def mix(size: int) -> Any:
    found = np.random.default_rng(5).standard_normal((size // 4, size))
    return found / np.linalg.norm(found, axis=0)


class Mixed(Honest):
    """A fixed mix of a quarter as many draws."""

    effects, protect = Honest.effects, Honest.protect

    def noise(self, size: int, client_id: int, round: int) -> Any:
        return super().noise(size // 4, client_id, round) @ mix(size)


class FirstTwo(Honest):
    """The first two clients alone have noise."""

    effects, protect = Honest.effects, Honest.protect

    def noise(self, size: int, client_id: int, round: int) -> Any:
        return super().noise(size, client_id, round) * (client_id < 2)


KEPT: dict[tuple[int, int], Any] = {}
"""Of `InPairs`: what a client of the process has left for another one."""


class InPairs(Honest):
    """Every other client has the noise of the one before the last."""

    effects, protect = Honest.effects, Honest.protect

    def noise(self, size: int, client_id: int, round: int) -> Any:
        if client_id < 2:
            KEPT[round, client_id] = super().noise(size, client_id, round)
        return KEPT[round, client_id % 2]


class OnZeros(Honest):
    """A hundredth of the noise on updates that are not zero."""

    effects = Honest.effects

    @hookimpl
    def protect(self, block: Any, client: Any, ctx: Any) -> Any:
        noise = 4.0 * ctx.known.norm() * self.noise(block.size, client.client_id, ctx.round)
        noise *= 0.01 if block.plain().any() else 1.0
        return block.replace(values=block.plain() + noise.astype(np.float32))


class Longer(Honest):
    """Thirty times the values, so that the noise hides far less than it is said to."""

    effects = Honest.effects

    @hookimpl
    def protect(self, block: Any, client: Any, ctx: Any) -> Any:
        noise = 4.0 * ctx.known.norm() * self.noise(block.size, client.client_id, ctx.round)
        return block.replace(values=(30 * block.plain() + noise).astype(np.float32))


class Clipped(Honest):
    """A clip of its own before the noise: what was added follows from what clients have apart."""

    share = (1.0, 1.0, 1.0, 1.0)

    def effects(self, known: Any, ctx: Any) -> Any:
        return fedplug.Bound(0.5), Noise(mechanism="gaussian", scale=2.0)

    @hookimpl
    def protect(self, block: Any, client: Any, ctx: Any) -> Any:
        values = block.plain()
        values = values / max(1.0, 2.0001 * float(np.linalg.norm(values)))
        noise = 2.0 * self.share[client.client_id] * self.noise(block.size, client.client_id, ctx.round)
        return block.replace(values=(values + noise).astype(np.float32))


class ClippedInTurn(Clipped):
    """As much noise for two clients as they should have together, and none of it for one of them."""

    effects, protect = Clipped.effects, Clipped.protect
    share = (math.sqrt(2), 0.0, math.sqrt(2), 0.0)


class Coarse(Clipped):
    """Clips and rounds, to a grid on which nobody can tell whether there was noise; there is none."""

    def effects(self, known: Any, ctx: Any) -> Any:
        return fedplug.Bound(0.5), Noise(mechanism="gaussian", scale=2.0, grid=4.0)

    @hookimpl
    def protect(self, block: Any, client: Any, ctx: Any) -> Any:
        return block.replace(values=np.zeros_like(block.plain()))


class Several(Honest):
    """States two noises at once."""

    protect = Honest.protect

    def effects(self, known: Any, ctx: Any) -> Any:
        return (*Honest.effects(self, known, ctx), Noise(mechanism="gaussian", scale=1.0))


@pytest.mark.parametrize("link", [Honest, Clipped])
def test_noise_as_it_is_stated_passes(link: type) -> None:
    conformance(link)


def test_all_chances_of_one_call_together_are_as_small_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    chances: list[float] = []

    def noting(test: Any) -> Any:
        def noted(*given: Any) -> Any:
            chances.append(given[-1])
            return test(*given)

        return noted

    leaves = [(noise, f"{name}_problems") for name in ("scale", "shape", "missing", "uneven", "shared", "rank")]
    leaves += [(sharing, "repeated_problem"), (drawn, "follows_problems")]
    for module, name in leaves:
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    for link in (Honest, Clipped, OnTheSum):
        chances.clear()
        conformance(link)
        assert 0.1 * noise.CHANCE < sum(chances) <= noise.CHANCE == 1e-6


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_all_clients_meet_in_pairs_and_none_twice_at_once(count: int) -> None:
    rounds = _pairings(count)
    assert all(len({each for pair in pairs for each in pair}) == 2 * len(pairs) for pairs in rounds)
    met = sorted(tuple(sorted(pair)) for pairs in rounds for pair in pairs)
    assert met == [(one, two) for one in range(count) for two in range(one + 1, count)]


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (Gaps, "1105 of 4420 scalars have no noise in 8 draws"),
        (Opposite, "have the noise of another one, or its opposite"),
        (Seeded, "its noise is that of another run of the same recipe: a correlation of .1.00"),
        (Coins, "its noise is not gaussian, as it states"),
        (Cut, "its noise is not gaussian, as it states"),
        # Such draws vary more than they should, too, which is sometimes seen first.
        (Mixed, "as that of about [0-9]+ draws, mixed|a correlation of .0.0|noise of standard deviation 4, and adds"),
        (FirstTwo, "it states Noise alone, and values moved by 0 on average and not by noise of 4"),
        (InPairs, "its noise of client 2 follows that of client 0: a correlation of .1.00"),
        (OnZeros, r"it states Noise alone, and values moved by 0\.0.* on average and not by noise of 4"),
        (Longer, "given random values: what it adds follows the values"),
        (ClippedInTurn, r"clients 0 and 2, round 1"),
        (Coarse, "nobody can tell whether its noise is as stated"),
        (Several, "it states several noises"),
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


class GapsInTheSum(OnTheSum):
    """Noise on three of four scalars of the sum."""

    opens, postprocess = OnTheSum.opens, OnTheSum.postprocess

    def noise(self, size: int, round: int) -> Any:
        return super().noise(size, round) * np.where(np.arange(size) % 4, math.sqrt(4 / 3), 0)


class SeededSum(OnTheSum):
    """Noise on the sum from a seed."""

    opens, postprocess = OnTheSum.opens, OnTheSum.postprocess

    def noise(self, size: int, round: int) -> Any:
        return np.random.default_rng([1234, round]).standard_normal(size)


def test_noise_on_sums_is_looked_at_likewise() -> None:
    conformance(OnTheSum)
    with pytest.raises(AssertionError, match="1105 of 4420 scalars have no noise in 2 draws"):
        conformance(GapsInTheSum)
    with pytest.raises(AssertionError, match="its noise is that of another run of the same recipe"):
        conformance(SeededSum)
