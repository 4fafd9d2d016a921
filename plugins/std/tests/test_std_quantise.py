"""Fixed-point numbers: no sum overflows a field, sums are exact, and what cannot be represented is refused."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug.api.errors import ProtectionError
from fedplug_std import quantise
from fedplug_std.quantise import FixedPoint, most_bits, round_to_grid
from hypothesis import given, settings
from hypothesis import strategies as st


@given(st.integers(2, 31), st.integers(1, 5000))
def test_most_bits_is_the_largest_that_cannot_carry(field_bits: int, max_clients: int) -> None:
    bits = most_bits(field_bits, max_clients)
    assert max_clients * (2**bits - 1) < 2**field_bits
    assert max_clients * (2 ** (bits + 1) - 1) >= 2**field_bits


def test_twenty_clients_get_18_bits_and_128_get_16() -> None:
    assert [most_bits(23, clients) for clients in (1, 20, 32, 33, 128)] == [23, 18, 18, 17, 16]


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 23), st.integers(1, 200), st.integers(0, 40), st.integers(0, 2**32), st.floats(1e-3, 1e3))
def test_packed_sums_equal_plain_sums(field_bits: int, clients: int, size: int, seed: int, range_: float) -> None:
    bits = most_bits(field_bits, clients)
    if bits < 2:
        return
    numbers = FixedPoint(range_, bits, field_bits, clients)
    rng = np.random.default_rng(seed)
    updates = rng.uniform(-range_, range_, (clients, size))
    updates[: clients // 2] = np.sign(updates[: clients // 2]) * range_
    codes = [numbers.encode(update)[0] for update in updates]
    slots = sum((numbers.pack(code) for code in codes), np.zeros((size + 1) // 2, np.int64))
    fields = numbers.unpack(slots, size)
    assert np.array_equal(fields, np.sum(codes, axis=0))
    total = numbers.decode(fields, clients)
    with pytest.MonkeyPatch.context() as patch:  # some values at a time, the same words and sums
        patch.setattr(quantise, "_AT_ONCE", 3)
        assert numbers.encode(updates[0])[0].tolist() == codes[0].tolist()
        assert np.array_equal(numbers.decode(fields, clients), total)
        by_block = numbers.decode(np.array([fields] * 5), np.full((5, 1), clients))
        assert np.array_equal(by_block, [total] * 5)
    rounding = 1e-6 * clients * range_  # float32 of the result
    assert np.abs(total - updates.sum(0)).max(initial=0) <= clients * numbers.step / 2 + rounding


@pytest.mark.parametrize("clients", [1, 2, 20, 127, 128])
@pytest.mark.parametrize("sign", [1, -1])
def test_worst_case_sums_do_not_carry(clients: int, sign: int) -> None:
    numbers = FixedPoint(1.0, most_bits(23, clients), 23, clients)
    codes, _ = numbers.encode(np.array([sign, -sign, sign], np.float32))
    total = numbers.decode(numbers.unpack(numbers.pack(codes) * clients, 3), clients)
    assert total.tolist() == [sign * clients, -sign * clients, sign * clients]


def test_zero_is_exact_and_saturation_is_counted() -> None:
    numbers = FixedPoint(0.5, 16, 23, 100)
    codes, saturated = numbers.encode(np.array([0.0, -0.5, 0.5, 0.6, -np.float32(1e30)]))
    assert saturated == 0.4
    assert numbers.decode(codes, 1).tolist() == [0.0, -0.5, 0.5, 0.5, -0.5]


def test_empty_vectors_pass() -> None:
    numbers = FixedPoint(1.0, 16, 23, 100)
    codes, saturated = numbers.encode(np.empty(0, np.float32))
    assert saturated == 0.0
    assert numbers.decode(numbers.unpack(numbers.pack(codes), 0), 3).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1.0, 19, 23, 20), ["max_clients=20", "bits=19", "field of 23 bits", "lower bits to 18", "max_clients to 16"]),
        ((1.0, 0, 20, 2_000_000), ["bits=0", "max_clients=2000000", "lower max_clients"]),
        ((1.0, 2, 20, 2_000_000), ["max_clients=2000000", "fewer clients"]),
        ((1.0, 8, 32, 20), ["field_bits=32"]),
        ((0.0, 8, 23, 20), ["range=0.0"]),
        ((float("inf"), 8, 23, 20), ["range=inf"]),
        ((1.0, 8, 23, 0), ["max_clients=0"]),
    ],
)
def test_what_could_overflow_is_refused(arguments: tuple[float, int, int, int], words: list[str]) -> None:
    with pytest.raises(ProtectionError) as caught:
        FixedPoint(*arguments)
    for word in words:
        assert word in str(caught.value)


def test_impossible_sums_are_refused() -> None:
    numbers = FixedPoint(1.0, 16, 23, 100)
    with pytest.raises(ProtectionError, match="3 codes sum to 0 to 196602") as caught:
        numbers.decode(np.array([3 * 65534 + 1, 77_777]), 3)
    assert not any(opened in str(caught.value) for opened in ("196603", "77777"))  # errors travel to the server
    with pytest.raises(ProtectionError, match="101 updates are more than max_clients=100"):
        numbers.decode(np.array([0]), 101)


@given(st.lists(st.floats(-3, 3), max_size=30), st.integers(1, 20))
def test_the_grid_is_hit_and_near(values: list[float], grid_bits: int) -> None:
    grid = 2.0**-grid_bits
    rounded, saturated = round_to_grid(np.array(values), 2.0, grid)
    assert np.array_equal(np.rint(rounded / grid) * grid, rounded)
    assert np.abs(rounded - np.clip(values, -2, 2)).max(initial=0) <= grid / 2
    assert saturated == pytest.approx(np.mean(np.abs(values) > 2) if values else 0.0)
