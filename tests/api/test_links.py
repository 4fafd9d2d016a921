"""Rules that no link can judge by itself: what must come later in the chain, once all effects are folded."""

from __future__ import annotations

import math
from typing import Any

import fedplug
import pytest
from fedplug import Adds, Block, Bound, Client, Context, CoversSupport, Effects, Known, Layout, Noise, Scramble, Seal
from fedplug.api.context import Server
from fedplug.api.operations import Misplaced
from fedplug.api.folded import uploaded
from fedplug.api.links import Link, fold, misplaced_links


class Says(fedplug.Protector):
    """States what it is told to."""

    class Options(fedplug.Options):
        """No options."""

    def __init__(self, name: str, *stated: Any) -> None:
        self.name, self.stated = name, stated

    def effects(self, known: Known, ctx: Context) -> Effects:
        """Whatever it is."""
        return self.stated

    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """Not called: links are folded here."""
        raise AssertionError("links are folded here, and not run")


class Refuses(Says):
    """Cannot stand anywhere."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        """Nothing."""
        raise Misplaced("not here")


class Sums(fedplug.Aggregator):
    """A sum."""

    name = "sum"

    class Options(fedplug.Options):
        """No options."""

    def sums(self, known: Known, ctx: Context) -> Effects:
        """One."""
        return (Adds(),)

    def aggregate(self, blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Block:
        """Not called: links are folded here."""
        raise AssertionError("links are folded here, and not run")


def context() -> Context:
    return Context(0, 1, Layout.of([("w", (4,))]), (), 3, 2, 7, "", Server())


def links_of(*parts: Says) -> tuple[Link, ...]:
    chain = [Link("noised", "protect", part.name, part, "client") for part in parts]
    return (*chain, Link("noised", "aggregate", "sum", Sums(None), "server"))


def problems(*parts: Says) -> list[str]:
    return [f"{link.name}: {message}" for link, message in misplaced_links(links_of(*parts), context())]


CLIP, HIDE = Says("clip", Bound(1.0)), Says("hide", CoversSupport())
SEAL = Says("seal", Seal(scheme="a test", opened_by="key_server", range=math.inf, step=0.0))
SCRAMBLE = Says("scramble", Scramble(hides="values", range=math.inf, step=0.0))


def noise(scale: Any, **stated: Any) -> Says:
    return Says("noise", Noise(mechanism="gaussian", scale=scale, **stated))


@pytest.mark.parametrize("scale", [0.0, (0.3, 0.0), None])
def test_zeros_over_what_a_client_keeps_need_noise_on_every_value(scale: Any) -> None:
    """None is noise of which nobody says that it is any."""
    expected = [
        "hide: zone noised gets no noise, so the zeros would show what a client retains; put noise after hide, for "
        "instance {use: std.gaussian, epsilon: 8, delta: 1.0e-5}"
    ]
    assert problems(HIDE, CLIP) == problems(HIDE, SEAL) == problems(HIDE, CLIP, noise(scale)) == expected


def test_zeros_under_noise_are_no_problem() -> None:
    assert problems(HIDE, CLIP, noise(0.1)) == problems(CLIP, HIDE, noise((0.1, 0.2))) == []
    assert problems(HIDE, CLIP, noise(None, multiplier=0.5)) == []
    assert problems(HIDE, CLIP, noise(None, multiplier=float("nan"))) == []  # known from the set-up on


def test_noise_for_a_sum_needs_an_encryption_behind_it() -> None:
    ours = noise(0.1, trust="distributed")
    for chain in ((CLIP, ours), (CLIP, ours, SCRAMBLE)):
        (problem,) = problems(*chain)
        assert problem.startswith("noise: the noise of noise is enough for a sum, not for an upload, and uploads of")
        assert "encrypt the zone after noise" in problem
    assert problems(CLIP, ours, SEAL) == []
    both = Says("both", Noise(mechanism="gaussian", scale=0.1, trust="distributed"), *SEAL.stated)
    assert problems(CLIP, both) == []
    assert problems(CLIP, noise(0.1)) == []


def test_what_is_misplaced_is_said_once() -> None:
    """It counts as if it did nothing, so whatever waits for it would complain, too."""
    assert problems(HIDE, Refuses("noise")) == ["noise: not here"]


def test_noise_that_is_worth_nothing_still_moves_values() -> None:
    """Without a bound its multiplier is 0; what else was known of the values is gone all the same."""
    for scale, left in ((0.1, ()), (None, ()), (0.0, (Bound(2.0, order=1),))):
        steps = fold(links_of(Says("clip", Bound(2.0, order=1)), noise(scale)), context())
        behind = uploaded(steps)
        assert behind is not None
        assert [release.noise_multiplier for release in behind.releases] == [0.0]
        assert behind.bounds == left
