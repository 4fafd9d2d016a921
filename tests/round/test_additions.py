"""Whether what an aggregator gave is the sum that it states."""

from __future__ import annotations

import fedplug
import numpy as np
import pytest
from fedplug import Adds, Block, Bound, Changes, Context, Effects, Known, Layout, Scales, Server
from fedplug.api.links import Link, Step
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
    assert "values up to 4 away from their sum" in problem(TOTAL.replace(values=VALUES * 3), (Adds(), Scales(1.0)))
    assert problem(TOTAL.replace(values=VALUES * 3), (Adds(), Scales(1.5))) == ""
    assert problem(TOTAL.replace(values=VALUES * 3), (Adds(), Bound(100.0))) == ""


def test_a_sum_is_of_the_uploads() -> None:
    assert "gave values up to 7 away from their sum" in problem(TOTAL.replace(values=VALUES * 2 + np.float32(7)))
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
    assert "up to 3 away from their sum" in of(uploads, weights, total.replace(values=moved), ADDS)
    uneven = total.replace(divisor=np.array([1.0, 1.0, 0.5]))
    assert "something else than their weight" in of(uploads, weights, uneven, ADDS)
    dense = total.replace(positions=None)
    assert "with positions of uploads without, or the other way round" in of(uploads, weights, dense, ADDS)
    assert "states 2 updates" in of(uploads, weights, total.replace(contributors=2), ADDS)


def test_a_rate_is_a_number_that_a_sum_can_be_divided_by() -> None:
    with pytest.raises(ValueError, match="rate=-1"):
        Adds(rate=-1)
    assert "something else than their weight" in problem(TOTAL, (Adds(rate=0.0),))
