"""Packed Paillier: as many values a ciphertext as fit, and sums that are exact whatever the masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import ProtectionError
from fedplug_kit.static import check_component
from fedplug_std import paillier_scheme
from fedplug_std._fixed_base import fixed_base
from fedplug_std.paillier import PackedPaillier
from fedplug_std.paillier_scheme import PublicKey
from fedplug_std.quantise import most_bits
from he_toys import OneClient, codes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from paillier_toys import SIZE, make, parties_of
from pydantic import ValidationError

pytestmark = pytest.mark.usefixtures("small_tables")
SMALL = paillier_scheme._generate(256)
NARROW = PackedPaillier(24, 256)
"""Ten fields of three bytes."""


@pytest.fixture(scope="module", params=["key_server", "clients"])
def parties(request: pytest.FixtureRequest) -> OneClient:
    """Five clients with a key of 2048 bits, for tests that add and open."""
    return parties_of(make(key_holder=request.param))


def test_conforms() -> None:
    check_component("std.paillier")


# -- packing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "values", "num_bytes"),
    [({}, 84, 516), ({"key_bits": 3072}, 126, 772), ({"field_bytes": 2}, 126, 516), ({"field_bytes": 4}, 62, 516)],
    ids=str,
)
def test_a_ciphertext_holds_as_many_values_as_fit(options: dict[str, Any], values: int, num_bytes: int) -> None:
    component = make(**options)
    assert component.position_block == component.slots - 1 == values
    field_bits, key_bits = 8 * component.options.field_bytes, component.options.key_bits
    assert component.slots * field_bits < key_bits <= (component.slots + 1) * field_bits  # below n, which has key_bits
    assert PublicKey(2**key_bits - 1).ciphertext_bytes + 4 == num_bytes
    assert f"{values} values a ciphertext" in component.describe()


def test_with_one_value_a_ciphertext_a_client_encrypts_its_mask_and_no_more() -> None:
    parties, rng = parties_of(make(values=1, short_exponents=True), num_clients=3), np.random.default_rng(4)
    updates = rng.uniform(-1, 1, (3, SIZE))
    masks = [np.arange(start, start + 12, 2).astype(np.uint32) for start in (0, 4, 8)]  # 0 to 10, 4 to 14, 8 to 18
    blocks = {c: parties.seal(updates[c][where], positions=where) for c, where in enumerate(masks)}
    assert [len(block.ciphertexts) for block in blocks.values()] == [6, 6, 6]
    total = parties.add(blocks)
    assert total.positions is not None
    assert total.positions.tolist() == [4, 6, 8, 10, 12, 14]  # two clients or three
    assert total.meta["fewest"] == 2  # nothing else is in these ciphertexts
    expected = [sum(updates[c][at] for c in range(3) if at in masks[c]) for at in total.positions]
    assert parties.open(total).plain() == pytest.approx(np.array(expected), abs=3 * parties.numbers.step)
    assert "1 value a ciphertext" in parties.component.describe()


def test_more_values_than_a_ciphertext_has_room_for_are_refused() -> None:
    assert make(values=84).position_block == 84 == make().position_block
    with pytest.raises(ValidationError, match=r"values=85 must be at most 84, .* at field_bytes=3"):
        make(values=85)


@pytest.mark.parametrize(
    ("options", "clients", "bits"),
    [({}, 32, 19), ({}, 33, 18), ({}, 256, 16), ({"field_bytes": 2}, 20, 11), ({"field_bytes": 4}, 20, 24),
     ({"field_bytes": 4}, 128, 24), ({"bits": 16}, 20, 16)],
    ids=str,
)  # fmt: skip
def test_values_get_the_bits_that_sums_leave(options: dict[str, Any], clients: int, bits: int) -> None:
    component = make(**options)
    numbers = component.agree(clients)
    assert numbers.bits == bits
    assert clients * (2**bits - 1) < 2**numbers.field_bits <= 256**component.options.field_bytes
    assert (component.options.range, component.step(clients)) == (1.0, numbers.step)


@settings(deadline=None, max_examples=60)
@given(st.integers(8, 56), st.integers(1, 40), st.integers(0, 5), st.integers(1, 50), st.integers(0, 2**32))
def test_fields_of_sums_are_sums_of_fields(width: int, slots: int, count: int, clients: int, seed: int) -> None:
    backend = PackedPaillier(width, 2048)
    largest = (2**width - 1) // clients
    rows = np.random.default_rng(seed).integers(0, largest, (clients, count, slots), endpoint=True)
    rows[:, :, ::2] = largest
    packed = [backend.pack(update) for update in rows]
    naive = [sum(int(value) << width * index for index, value in enumerate(row)) for row in rows[0]]
    assert packed[0] == naive
    totals = [sum(column) for column in zip(*packed, strict=True)]
    opened = backend.unpack(totals, slots)
    assert opened.dtype == np.int64
    assert opened.shape == (count, slots)
    assert np.array_equal(opened, rows.sum(0))


@pytest.mark.parametrize("bad", [-1, 2**24])
def test_a_slot_out_of_range_is_refused_and_does_not_spill(bad: int) -> None:
    rows = np.array([[1, 2**24 - 1, 0], [1, bad, 0]])
    with pytest.raises(ProtectionError, match="a slot must be 0 to 16777215 to fit a field of 24 bits") as caught:
        NARROW.encrypt(SMALL, rows)
    assert f"{bad}" not in str(caught.value).replace("16777215", "")
    opened = NARROW.decrypt(SMALL, NARROW.encrypt(SMALL, rows[:1]), 3)
    assert opened.tolist() == [[1, 2**24 - 1, 0]]


# -- sums --------------------------------------------------------------------------------------------------------------


def test_sums_of_128_worst_case_clients_are_exact() -> None:
    parties = parties_of(make(), 128)
    assert (parties.numbers.bits, parties.numbers.field_bits) == (most_bits(24, 128), 24)
    rng = np.random.default_rng(0)
    updates = rng.uniform(-1, 1, (3, SIZE)).astype(np.float32)
    updates[:, :100], updates[:, 100:200] = 1, -1
    blocks = [parties.seal(update) for update in updates]
    total = parties.add({index: blocks[index % 3] for index in range(128)})
    assert (total.contributors, total.divisor, total.weighted) == (128, 128.0, True)
    opened, numbers = parties.open(total).plain(), parties.numbers
    assert np.array_equal(opened, numbers.decode(codes(updates[np.arange(128) % 3], numbers), 128))
    error = np.abs(opened - updates[np.arange(128) % 3].astype(np.float64).sum(0))
    assert error.max() <= 128 * numbers.step / 2 + 1e-5  # the result is float32
    assert error[:200].max() == 0  # the ends of the range are on the grid


def test_a_weighted_sum_is_exact_after_rounding(parties: OneClient) -> None:
    rng = np.random.default_rng(1)
    updates, weights = rng.normal(0, 0.2, (3, SIZE)).astype(np.float32), [1.0, 0.5, 0.25]
    total = parties.add({i: parties.seal(u, w) for i, (u, w) in enumerate(zip(updates, weights, strict=True))})
    assert total.divisor == 1.75
    assert [len(ciphertext) for ciphertext in total.ciphertexts] == [516] * 4
    numbers = parties.numbers
    assert np.array_equal(parties.open(total).plain(), numbers.decode(codes(updates, numbers, weights), 3))


@pytest.mark.parametrize("min_clients", [1, 2, 3])
def test_every_client_may_have_a_mask_of_its_own(parties: OneClient, min_clients: int) -> None:
    rng = np.random.default_rng(min_clients)
    updates = rng.uniform(-1, 1, (5, SIZE)).astype(np.float32)
    masks = rng.random((5, SIZE)) < 0.3
    masks[0], masks[1], masks[2], masks[3, :200] = False, True, np.arange(SIZE) >= 250, False
    weights = np.array([1.0, 0.5, 0.75, 1.0, 0.25])
    blocks = {}
    for index, (update, mask) in enumerate(zip(updates, masks, strict=True)):
        positions = np.flatnonzero(mask).astype(np.uint32)
        blocks[index] = parties.seal(update[mask], weights[index], positions)
        touched = {position // 84 for position in positions.tolist()}
        assert len(blocks[index].ciphertexts) == len(touched)
    opened = parties.open(parties.add(blocks, min_clients), min_clients=min_clients)
    assert np.array_equal(opened.positions, np.flatnonzero(masks.sum(0) >= min_clients))
    where = opened.positions
    exact = (updates * weights[:, None] * masks).sum(0)[where]
    assert np.abs(opened.plain() - exact).max() <= 5 * parties.numbers.step / 2 + 1e-6
    assert np.allclose(opened.divisor, (weights[:, None] * masks).sum(0)[where])


def test_an_empty_zone_has_no_ciphertexts(parties: OneClient) -> None:
    total = parties.add({index: parties.seal([]) for index in range(3)})
    assert total.ciphertexts == ()
    assert parties.open(total).plain().shape == (0,)


def test_values_beyond_the_range_saturate_and_are_counted(parties: OneClient) -> None:
    total = parties.add({index: parties.seal([0.0, 3.0, -1e30, 0.5]) for index in range(2)})
    assert parties.client.log["std.paillier.saturated"] == 0.5
    opened = parties.open(total).plain()
    assert opened[:3].tolist() == [0.0, 2.0, -2.0]
    assert abs(opened[3] - 1) <= parties.numbers.step


def test_the_table_is_built_before_the_clock_of_an_encryption_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    parties, built, encrypt = parties_of(make()), [], PackedPaillier.encrypt

    def watched(self: PackedPaillier, context: Any, rows: NDArray[Any]) -> tuple[bytes, ...]:
        built.append(fixed_base.cache_info().misses)
        ciphertexts = encrypt(self, context, rows)
        built.append(fixed_base.cache_info().misses)
        return ciphertexts

    monkeypatch.setattr(PackedPaillier, "encrypt", watched)
    before = fixed_base.cache_info().misses
    parties.seal([0.5])
    assert built == [before + 1, before + 1]
    assert parties.client.operations["std.paillier.encrypt"][0] == 1


def test_short_exponents_add_and_open_like_long_ones() -> None:
    short = parties_of(make(short_exponents=True))
    assert "short exponents" in short.component.describe()
    assert "short exponents" not in make().describe()
    total = short.add({index: short.seal(np.full(200, 0.5)) for index in range(2)})
    assert np.abs(short.open(total).plain() - 1).max() <= short.numbers.step
    assert make().backend.short_exponents is False
