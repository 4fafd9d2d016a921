"""Uploads are added up: by weights, by layers, or by a function of a plugin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug import (
    Block,
    Clip,
    Combine,
    Facts,
    Post,
    Public,
    Scale,
    WeightedSum,
)
from fedplug.api.errors import PluginError, ProtectionError
from fedplug.api.links import Link, fold
from fedplug.api.parties import Server
from fedplug.mechanisms.adding import add_up
from fedplug.mechanisms.execution import execute
from hypothesis import given
from hypothesis import strategies as st
from operation_toys import (
    ADD,
    FLOATS,
    VALUES,
    Part,
    broken,
    context,
    norm_of,
    steps,
    uploads,
)


def summed(*operations: Any, blocks: dict[int, Block], weights: dict[int, float] | None = None) -> Block:
    """The sum that an aggregator gives of uploads."""
    part = Part(*operations)
    server = Server()
    facts = context(server, part)
    (step,) = fold([Link("noised", "aggregate", "odd", part, "server")], facts)
    return add_up(step, blocks, weights or dict.fromkeys(blocks, 1.0), server, facts)


@given(st.lists(FLOATS, min_size=1, max_size=5), st.data())
def test_a_weighted_sum_is_that_of_numpy(values: list[Any], data: Any) -> None:
    weights = {i: data.draw(st.floats(0.1, 1.0)) for i in range(len(values))}
    total = summed(ADD, blocks=uploads(*values), weights=weights)
    expected = sum(weights[i] * value.astype(np.float64) for i, value in enumerate(values))
    assert np.allclose(total.plain(), expected, rtol=1e-6, atol=1e-30)
    assert (total.divisor, total.contributors) == (pytest.approx(sum(weights.values())), len(values))
    assert np.allclose(total.mean(), expected / sum(weights.values()), rtol=1e-5, atol=1e-30)


def test_positions_are_divided_by_those_who_sent_them_or_by_all() -> None:
    blocks = {0: Block("noised", 2, np.array([3, 5], np.float32), np.array([1, 4], np.uint32)),
              1: Block("noised", 2, np.array([7, 9], np.float32), np.array([4, 8], np.uint32))}  # fmt: skip
    weights = {0: 1.0, 1: 0.5}
    sent = summed(ADD, blocks=blocks, weights=weights)
    assert sent.positions is not None
    assert sent.positions.tolist() == [1, 4, 8]
    assert sent.plain().tolist() == [3.0, 5 + 3.5, 4.5]
    assert np.asarray(sent.divisor).tolist() == [1.0, 1.5, 0.5]
    everybody = summed(WeightedSum(divided_by="all"), blocks=blocks, weights=weights)
    assert everybody.divisor == 1.5
    assert everybody.mean() == pytest.approx(np.array([3.0, 8.5, 4.5]) / 1.5)


@pytest.mark.parametrize("divided_by", ["sent", "all"])
def test_a_rate_multiplies_the_mean(divided_by: Any) -> None:
    one = summed(WeightedSum(divided_by=divided_by), blocks=uploads(VALUES, VALUES))
    slower = summed(WeightedSum(divided_by=divided_by, rate=0.25), blocks=uploads(VALUES, VALUES))
    assert slower.mean() == pytest.approx(one.mean() / 4)
    assert np.array_equal(slower.plain(), one.plain())


def test_layers_are_weighed_one_by_one() -> None:
    where = np.arange(10, dtype=np.uint32)
    blocks = uploads(VALUES, VALUES * 2, positions=where)
    factors = {0: (np.array([1.0, 0.5]), np.array([1.0, 0.5])), 1: (np.array([0.25, 0.0]), np.array([0.25, 0.0]))}
    total = summed(WeightedSum(by=lambda blocks, server, facts: factors), blocks=blocks, weights={0: 0.1, 1: 0.9})
    layer = np.repeat([0, 1], [6, 4])
    expected = factors[0][0][layer] * VALUES + factors[1][0][layer] * VALUES * 2
    assert total.plain() == pytest.approx(expected)
    assert np.asarray(total.divisor) == pytest.approx(np.array([1.25, 0.5])[layer])


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({}, "its function must give for client 0 two arrays of finite floats [2]"),
        (None, "its function must give for client 0 two"), ({0: np.ones(2)}, "for client 0 two arrays"),
        ({0: (np.ones(2), np.ones(2)), 1: (np.ones(3), np.ones(2))}, "for client 1 two arrays"),
        ({0: (np.full(2, np.nan), np.ones(2))}, "for client 0 two arrays of finite"),
        ({0: (np.ones(2), np.array([1.0, -1.0]))}, "it adds less than 0 to the divisor for client 0"),
    ],
)  # fmt: skip
def test_weights_of_layers_are_two_arrays_a_client(shares: Any, said: str) -> None:
    blocks = uploads(VALUES, VALUES, positions=np.arange(10, dtype=np.uint32))
    with pytest.raises(ProtectionError) as caught:
        summed(WeightedSum(by=lambda blocks, server, facts: shares), blocks=blocks)
    assert str(caught.value).startswith("component odd, hook aggregate, zone noised, WeightedSum: ")
    assert said in str(caught.value)
    right = {c: (np.ones(2), np.ones(2)) for c in (0, 1)}
    with pytest.raises(ProtectionError, match=r"came without positions.*ask for Wants\(positions=True\)"):
        summed(WeightedSum(by=lambda blocks, server, facts: right), blocks=uploads(VALUES, VALUES))


def test_what_follows_the_sum_is_done_to_it() -> None:
    total = summed(ADD, Scale(0.5), Clip(1.0), blocks=uploads(VALUES, VALUES))
    assert norm_of(total.plain(), 2) == pytest.approx(1.0, rel=1e-6)
    assert total.divisor == 2.0


def test_a_combination_gives_a_block() -> None:
    def middle(blocks: dict[int, Block], weights: dict[int, float], facts: Facts) -> Block:
        assert weights == {0: 1.0, 1: 1.0, 2: 1.0}
        values = np.median([block.plain() for block in blocks.values()], 0).astype(np.float32)
        return blocks[0].replace(values=values, divisor=1.0, contributors=3)

    total = summed(Combine(middle), blocks=uploads(VALUES, VALUES * 9, -VALUES))
    assert np.array_equal(total.plain(), VALUES)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda first: VALUES, r"it gave an array float32\[10\]; it must give a Block"),
        (lambda first: first.replace(zone="clear"), "it gave a block of zone clear"),
        (lambda first: first.replace(values=VALUES.astype(np.float64)), r"its values are float64\[10\]"),
        (lambda first: first.replace(divisor=math.nan), "its divisor is nan, which must be a number >= 0"),
        (lambda first: first.replace(contributors=-1), "its contributors is -1, which must be a whole number >= 0"),
        (lambda first: first.replace(values=np.full(10, np.inf, np.float32)), "it made 10 of 10 values NaN or infin"),
    ],
)  # fmt: skip
def test_a_combination_that_cannot_be_is_the_aggregators_fault(given: Any, said: str) -> None:
    with pytest.raises(ProtectionError, match=f"^component odd, hook aggregate, zone noised, Combine: {said}"):
        summed(Combine(lambda blocks, weights, facts: given(blocks[0])), blocks=uploads(VALUES))
    with pytest.raises(PluginError, match="component odd, hook aggregate, zone noised, Combine: KeyError"):
        summed(Combine(broken), blocks=uploads(VALUES))


@pytest.mark.parametrize("operation", [ADD, Combine(lambda b, w, c: b[1].replace(values=b[0].plain() + b[1].plain()))])
def test_a_sum_that_an_upload_spoilt_is_its_clients_fault(operation: Any) -> None:
    with pytest.raises(ProtectionError, match=r"client 1 sent .*NaN or infinite") as caught:
        summed(operation, blocks=uploads(VALUES, VALUES * np.float32(np.nan)))
    assert caught.value.client_id == 1


def test_a_post_on_a_sum_sees_the_mean() -> None:
    seen: list[Any] = []

    def post(values: Any, public: Public) -> Any:
        seen.append(values.copy())
        return values * np.float32(2)

    server = Server()
    part = Part(Post(post))
    facts = context(server, part)
    (step,) = steps(part, hook="postprocess", site="server", facts=facts)
    total = Block("noised", 10, VALUES, divisor=4.0, contributors=4)
    found = execute(step, total, server, facts)
    assert np.array_equal(seen[0], VALUES / 4)
    assert np.array_equal(found.mean(), VALUES / 2)
    assert found.contributors == 4
    # With positions the divisor may be shared with other zones, and stays.
    where = np.arange(10, dtype=np.uint32)
    scattered = total.replace(positions=where, divisor=np.full(10, 4.0))
    found = execute(step, scattered, server, facts)
    assert np.array_equal(np.asarray(found.divisor), np.full(10, 4.0))
    assert np.array_equal(found.mean(), VALUES / 2)
