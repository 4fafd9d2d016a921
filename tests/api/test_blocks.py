"""Sums of blocks: every position is divided by its contributors, and order never matters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Layout, Server, add_blocks
from fedplug.api.blocks import fewest_in
from fedplug.api.errors import ProtectionError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

SIZE = 20
VALUES = st.floats(-1, 1, width=32)
SIGNALLING = np.array([0x7FA00000], np.uint32).view(np.float32)  # a NaN about which numpy warns when it is cast
WEIGHTS = {0: 1.0, 3: 0.25, 4: 0.7, 9: 1 / 3}


SERVER = Server()


class Adder:
    """Takes the place of an encryption component."""

    def add_blocks(self, blocks: dict[int, Block], server: Any, facts: Any) -> Block:
        assert server is SERVER
        return Block("encrypted", sum(block.size for block in blocks.values()), sealed_by="seal")


def context() -> Any:
    return SimpleNamespace(layout=Layout.of([("w", (SIZE,))]), component={"seal": Adder()}.__getitem__)


def test_plain_blocks_without_positions_are_averaged_by_weight() -> None:
    blocks = {c: Block("clear", 3, np.array([c, 1, -c], np.float32), divisor=WEIGHTS[c]) for c in WEIGHTS}
    total = add_blocks(blocks, WEIGHTS, SERVER, context())
    expected = sum(w * np.array([c, 1, -c]) for c, w in WEIGHTS.items()) / sum(WEIGHTS.values())
    assert np.allclose(total.mean(), expected, rtol=1e-6)
    assert (total.contributors, total.weighted) == (4, True)


@given(st.permutations(sorted(WEIGHTS)), hnp.arrays(np.float32, (4, 5), elements=VALUES))
def test_the_sum_does_not_depend_on_who_answered_first(order: list[int], values: np.ndarray) -> None:
    for positions in (None, np.arange(5, dtype=np.uint32)):
        blocks = {c: Block("clear", 5, row, positions) for c, row in zip(sorted(WEIGHTS), values, strict=True)}
        first = add_blocks(blocks, WEIGHTS, SERVER, context()).mean()
        assert np.array_equal(first, add_blocks({c: blocks[c] for c in order}, WEIGHTS, SERVER, context()).mean())


@given(
    st.dictionaries(
        st.sampled_from(sorted(WEIGHTS)), st.dictionaries(st.integers(0, SIZE - 1), VALUES, max_size=8), min_size=1
    )
)
def test_each_position_is_divided_by_its_true_contributors(uploads: dict[int, dict[int, float]]) -> None:
    blocks = {
        client_id: Block(
            "clear", len(values), np.array([values[p] for p in sorted(values)], np.float32),
            np.array(sorted(values), np.uint32),
        )
        for client_id, values in uploads.items()
    }  # fmt: skip
    total = add_blocks(blocks, WEIGHTS, SERVER, context())
    covered = sorted({position for values in uploads.values() for position in values})
    assert total.positions is not None
    assert total.positions.tolist() == covered
    for position, mean in zip(covered, total.mean(), strict=True):
        sent = {c: values[position] for c, values in uploads.items() if position in values}
        expected = sum(WEIGHTS[c] * v for c, v in sent.items()) / sum(WEIGHTS[c] for c in sent)
        assert mean == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_weights_are_multiplied_in_once() -> None:
    for positions in (None, np.array([2, 5], np.uint32)):
        plain = Block("clear", 2, np.array([4, 8], np.float32), positions)
        done = plain.replace(values=plain.plain() * np.float32(0.25), weighted=True)
        assert add_blocks({3: plain}, WEIGHTS, SERVER, context()).mean().tolist() == [4, 8]
        assert add_blocks({3: done}, WEIGHTS, SERVER, context()).mean().tolist() == [4, 8]


def test_sealed_blocks_go_to_the_component_that_sealed_them() -> None:
    sealed = Block("encrypted", 3, ciphertexts=(b"x",), sealed_by="seal")
    assert add_blocks({0: sealed, 3: sealed}, WEIGHTS, SERVER, context()).size == 6


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Block("noised", 2, np.zeros(2, np.float32)), "client 3 sent a noised block"),
        (Block("clear", 2, ciphertexts=(b"x",), sealed_by="seal"), "sealed by seal"),
        (Block("clear", 3, np.zeros(3, np.float32)), "client 3 sent 3 clear scalars, others 2"),
        (Block("clear", 2, np.zeros(2, np.float32), np.array([0, SIZE], np.uint32)), "position 20 of 20"),
        (Block("clear", 2, np.zeros(2, np.float32), np.array([0, 1], np.uint32)), "without positions"),
    ],
)
def test_blocks_that_do_not_fit_together_are_refused(other: Block, message: str) -> None:
    first = Block("clear", 2, np.zeros(2, np.float32))
    if "position 20" in message:
        first = first.replace(positions=np.array([0, 1], np.uint32))
    with pytest.raises(ProtectionError, match=message):
        add_blocks({0: first, 3: other}, WEIGHTS, SERVER, context())


@pytest.mark.parametrize("positions", [None, np.arange(3, dtype=np.uint32)])
@pytest.mark.parametrize(
    ("bad", "what"),
    [*((bad, "NaN or infinite") for bad in (np.nan, -np.inf, SIGNALLING)), (3e38, "far too large")],
)
@pytest.mark.filterwarnings("error")
def test_values_that_spoil_a_sum_are_blamed_on_their_client(positions: Any, bad: float, what: str) -> None:
    blocks = {c: Block("clear", 3, np.array([0, c, 1], np.float32), positions) for c in WEIGHTS}
    values = np.array([0, 0, 1], np.float32)
    values[1:2] = bad
    blocks[4] = blocks[4].replace(values=values)
    if what == "far too large":
        blocks[4] = blocks[4].replace(weighted=True)
        blocks[9] = blocks[9].replace(values=np.array([0, 1e38, 1], np.float32), weighted=True)
    with pytest.raises(ProtectionError, match=f"client 4 sent {what}.* lower lr in train") as caught:
        add_blocks(blocks, WEIGHTS, SERVER, context())
    assert caught.value.client_id == 4


@pytest.mark.parametrize(
    "positions",
    [np.array([1, 0], np.uint32), np.array([1, 1], np.uint32), np.array([0, SIZE], np.uint32), np.array([-1, 3])],
    ids=str,
)
def test_positions_that_cannot_be_are_blamed_on_their_client(positions: Any) -> None:
    blocks = {c: Block("clear", 2, np.zeros(2, np.float32), np.array([0, 1], np.uint32)) for c in WEIGHTS}
    blocks[3] = blocks[3].replace(positions=positions)
    with pytest.raises(ProtectionError, match="client 3") as caught:
        add_blocks(blocks, WEIGHTS, SERVER, context())
    assert caught.value.client_id == 3


@pytest.mark.parametrize(
    ("said", "expected"),
    [({}, 3), ({"fewest": 2}, 2), ({"fewest": 0}, 0), ({"fewest": 9}, 3),
     # A value that is not a count promises nothing, rather than everything.
     ({"fewest": -1}, 0), ({"fewest": "x"}, 0), ({"fewest": 2.0}, 0), ({"fewest": None}, 0), ({"fewest": True}, 0)],
    ids=str,
)  # fmt: skip
def test_the_fewest_behind_a_sum_are_never_more_than_its_contributors(said: dict[str, Any], expected: int) -> None:
    sealed = Block("encrypted", 2, ciphertexts=(b"x",), sealed_by="std.bfv", contributors=3, meta=said)
    assert fewest_in(sealed) == expected
    plain = Block("noised", 2, np.zeros(2, np.float32), contributors=3, meta=said)
    assert fewest_in(plain) == 3  # the meta of a plain sum is not used
