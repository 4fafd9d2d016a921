"""Whether what an aggregator gave is the sum that it states."""

from __future__ import annotations

import fedplug
import numpy as np
import pytest
from fedplug import (
    Adds,
    Block,
    Bound,
    Changes,
    Context,
    Effects,
    Known,
    Layout,
    Noise,
    Rounding,
    Scales,
    Server,
    Shifts,
)
from fedplug.api.operations import Effect, Misplaced
from fedplug.api.links import Link, Step, fold
from fedplug.round.borders import sum_problem

LAYOUT = Layout.of([("a.w", (6,)), ("b.w", (4,))])
VALUES = np.array([3, 0, 4, 0, 0, 0, 0, 0, 0, 0], np.float32)
TOTAL = Block("noised", 10, VALUES * 2, divisor=2.0, contributors=2)
ADDS: Effects = (Adds(),)
SLOWER: Effects = (Adds(divided_by="all", rate=0.5),)


def problem(total: Block, said: Effects = ADDS) -> str:
    """What is wrong with it as the sum of two uploads of the same values."""
    uploads = {client_id: Block("noised", 10, VALUES, divisor=1.0) for client_id in (0, 1)}
    return of(uploads, {0: 1.0, 1: 1.0}, total, said)


def of(uploads: dict[int, Block], weights: dict[int, float], total: Block, said: Effects) -> str:
    known = Known(zone="noised", link="odd", layers=(6, 4))
    step = Step(Link("noised", "aggregate", "sum", None, "server"), known, said, known.after(said))
    return sum_problem(total, uploads, weights, step)[0]


def test_what_a_sum_is_divided_by_is_the_weight_behind_it() -> None:
    """Noise is added to the sum and never to its divisor: what that follows from is released as it is."""
    assert problem(TOTAL) == ""
    normed = TOTAL.replace(divisor=float(np.linalg.norm(VALUES)))
    assert "divides them by something else than their weight" in problem(normed)
    assert problem(normed, (Changes(), Adds())) == ""
    assert problem(TOTAL.replace(divisor=4.0), SLOWER) == ""
    assert "divides them by something else" in problem(TOTAL, SLOWER)


def test_who_states_more_than_a_sum_divides_by_the_weights_too() -> None:
    normed = TOTAL.replace(divisor=float(np.linalg.norm(VALUES)), values=VALUES * 6)
    assert "divides them by something else" in problem(normed, (Scales(3.0), Adds()))
    assert "divides them by something else" in problem(normed, (Adds(), Bound(100.0)))
    assert "up to 4 away" in problem(TOTAL.replace(values=VALUES * 3), (Adds(), Scales(1.0)))
    assert problem(TOTAL.replace(values=VALUES * 3), (Adds(), Scales(1.5))) == ""
    assert problem(TOTAL.replace(values=VALUES * 3), (Adds(), Bound(100.0))) == ""


def test_a_sum_is_of_the_uploads() -> None:
    assert "up to 7 away" in problem(TOTAL.replace(values=VALUES * 2 + np.float32(7)))
    short = Block("noised", 9, VALUES[:9] * 2, divisor=2.0, contributors=2)
    assert problem(short) == "it states that it adds uploads of 10 scalars up, and gave 9"


def test_a_sum_does_not_claim_more_updates_than_it_holds() -> None:
    """Credit for the noise of others follows from that."""
    assert "states 9 updates behind every value" in problem(TOTAL.replace(contributors=9))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sum_of_positions_is_compared_position_by_position(weighted: bool) -> None:
    here = np.array([1, 4], np.uint32), np.array([4, 8], np.uint32)
    values = np.array([3, 5], np.float32)
    uploads = {i: Block("noised", 2, values, there, divisor=1.0, weighted=weighted) for i, there in enumerate(here)}
    weights = {0: 1.0, 1: 0.5}
    total = fedplug.add_blocks(uploads, weights, Context(0, 1, LAYOUT, ("noised",), 4, 2, 7, "", Server()))
    assert total.positions is not None
    assert total.positions.tolist() == [1, 4, 8]
    assert of(uploads, weights, total, ADDS) == ""
    assert of(uploads, weights, total.replace(divisor=1.5), (Adds(divided_by="all"),)) == ""
    moved = total.plain() + np.array([0, 3, 0], np.float32)
    assert "up to 3 away" in of(uploads, weights, total.replace(values=moved), ADDS)
    uneven = total.replace(divisor=np.array([1.0, 1.0, 0.5]))
    assert "something else than their weight" in of(uploads, weights, uneven, ADDS)
    dense = total.replace(positions=None)
    assert "with positions of uploads without, or the other way round" in of(uploads, weights, dense, ADDS)
    assert "states 2 updates" in of(uploads, weights, total.replace(contributors=2), ADDS)


def test_a_rate_is_a_number_that_a_sum_can_be_divided_by() -> None:
    with pytest.raises(ValueError, match="rate=-1"):
        Adds(rate=-1)
    assert "something else than their weight" in problem(TOTAL, (Adds(rate=0.0),))


def test_a_sum_is_compared_whatever_else_is_stated_of_it() -> None:
    """Whoever stated a rounding, a norm or noise besides was compared with nothing."""
    twice = TOTAL.replace(values=VALUES * 4)
    assert "went elsewhere, up to 8 away" in problem(twice, (Adds(), Rounding(0.5)))
    assert problem(TOTAL.replace(values=VALUES * 2 + np.float32(0.25)), (Adds(), Rounding(0.25))) != ""
    assert problem(TOTAL.replace(values=VALUES * 2 + np.float32(0.5)), (Adds(), Rounding(0.5))) != ""
    assert problem(TOTAL.replace(values=VALUES * 2 + np.float32(0.5)), (Rounding(0.5), Adds())) == ""
    assert "an L2 norm of at most 9, and gave values of norm 10" in problem(TOTAL, (Adds(), Bound(9.0)))
    assert problem(TOTAL, (Adds(), Bound(10.0))) == ""
    assert "norm 10" in problem(TOTAL, (Adds(), Bound(6.0, per="layer")))  # sqrt(72) in all
    assert "up to 8 away" in problem(twice, (Adds(), Noise(mechanism="gaussian", scale=0.01, trust="central")))


def test_a_sum_carries_nothing_besides() -> None:
    """Clients get it with the sum, and noise does not reach it."""
    beside = TOTAL.replace(meta={"norm": 5.0})
    assert "it put meta beside the sum, which no noise hides" in problem(beside)
    assert problem(beside, (Adds(), Changes())) == ""


class Odd:
    """An aggregator, and a clip before it."""

    said: Effects | None = ()

    def sums(self, known: Known, ctx: Context) -> Effects | None:
        return self.said

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (Bound(1.0),)


def behind(said: Effects | None) -> Known:
    odd = Odd()
    odd.said = said
    links = [Link("noised", "protect", "clip", odd, "client"), Link("noised", "aggregate", "odd", odd, "server")]
    return fold(links, Context(0, 1, LAYOUT, ("noised",), 4, 2, 7, "", Server()))[-1].after


@pytest.mark.parametrize("said", [(), (Changes("kept"),), (Changes("kept"), Adds()), (Scales(0.5),)])
def test_no_norm_of_a_client_bounds_what_is_no_sum_of_uploads(said: Effects) -> None:
    """A median moves farther than the client's values are long, although it is no longer than any of them."""
    known = behind(said)
    assert known.sensitivity() is None
    assert known.uncredited
    assert behind((Scales(0.5), Adds())).sensitivity() == 0.5


@pytest.mark.parametrize("effect", [Bound(1.0), Shifts(), Noise(mechanism="gaussian", scale=1.0, trust="central")])
def test_an_aggregator_promises_nothing_of_single_uploads(effect: Effect) -> None:
    for said in ((effect, Adds()), (effect,)):
        with pytest.raises(Misplaced, match="of single uploads, which nothing compares"):
            behind(said)


@pytest.mark.parametrize("said", [(Adds(), Changes()), (Changes(), Adds()), (Changes(),), None])
def test_noise_counts_on_no_sum_whose_divisor_may_be_anything(said: Effects | None) -> None:
    """A clip of the sum bounds its values alone."""
    clipped = behind(said).after((Bound(1.0),))
    assert clipped.norm() is clipped.sensitivity() is None
    with pytest.raises(Misplaced, match="what the sum is divided by may follow from values"):
        clipped.need_norm("clip it", central=True)
    assert behind((Adds(),)).after((Bound(1.0),)).sensitivity() == 2.0
