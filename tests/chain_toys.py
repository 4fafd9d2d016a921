"""Links that say what a test gives them, and chains of them."""

from __future__ import annotations

import math
from typing import Any

import fedplug
from fedplug import (
    Clip,
    Combine,
    Facts,
    FixedPoint,
    Known,
    Layout,
    Map,
    Misplaced,
    Noise,
    Operations,
    Post,
    Scramble,
    Seal,
    WeightedSum,
    Widen,
)
from fedplug.api.links import Hook, Link, Step, fold
from fedplug.api.roles import Site


class Says(fedplug.Protector):
    """Returns the given operations in every hook."""

    def __init__(self, name: str, *given: Any) -> None:
        self.name, self.given = name, given

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Whatever it is."""
        return self.given

    aggregate = postprocess = protect


class Seals(Says, fedplug.Sealer):
    """May close and open values."""

    def seal(self, *_: Any) -> Any:
        raise AssertionError("links are folded here, and not run")

    add = open = unseal = reseal = seal

    def reveals(self, facts: Any) -> tuple[()]:
        return ()


class Scrambles(Seals, fedplug.Scrambler):
    """The same where the server reads."""


class Refuses(Says):
    """Fits nowhere."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Nothing."""
        raise Misplaced("not here")


class Fails(Says):
    """Is broken."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Nothing."""
        raise KeyError("what")


def context() -> Facts:
    return Facts(0, 1, Layout.of([("a.w", (3,)), ("b.w", (1,))]), (), 3, 2, 7, "")


ADD = Says("sum", WeightedSum())
MAP, POST = Map(lambda block, client, facts: block), Post(lambda values, public: values)
COMBINE = Combine(lambda blocks, weights, facts: blocks[0])


def links_of(*parts: Says, behind: tuple[Says, ...] = (), site: Site = "server") -> tuple[Link, ...]:
    chain = [Link("noised", "protect", part.name, part, "client") for part in parts]
    opened = [Link("noised", "postprocess", part.name, part, site) for part in behind]
    return (*chain, Link("noised", "aggregate", "sum", ADD, "server"), *opened)


CLIP, HIDE = Says("clip", Clip(1.0)), Says("hide", Widen())
SEAL = Seals("seal", Seal(scheme="a test", opened_by="key_server", numbers=FixedPoint(math.inf, 0.0)))
SCRAMBLE = Scrambles("scramble", Scramble(hides="values", numbers=FixedPoint(math.inf, 0.0)))


def noise(std: Any, **given: Any) -> Says:
    return Says("noise", Noise.gaussian(std, **given))


def by_scores(at_least: float) -> Noise:
    return Noise.by(lambda scores, present: [1.0, 1.0], reads="scores", at_least=at_least)


def only(*given: Any, hook: Hook = "protect", site: Site = "client", before: tuple[Says, ...] = ()) -> Step:
    """The steps of a link that returns these operations after others."""
    links = [Link("noised", "protect", part.name, part, "client") for part in before]
    if hook == "postprocess":
        links.append(Link("noised", "aggregate", "sum", ADD, "server"))
    return fold([*links, Link("noised", hook, "odd", Seals("odd", *given), site)], context())[-1]
