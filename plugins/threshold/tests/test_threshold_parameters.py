"""The parts of the modulus, which is no larger than the table of 128-bit security allows."""

from __future__ import annotations

import math

import fedplug
import pytest
from examples import examples
from fedplug.api.errors import ProtectionError
from fedplug_threshold.fixed_point import FixedPoint
from fedplug_threshold.parameters import LIMITS, MARGIN_BITS, TAIL, choose
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("clients", [2, 3, 6, 10, 33, 100, 1000])
def test_up_to_a_thousand_clients_fit_into_the_smallest_ring(clients: int) -> None:
    found = choose(clients, clients // 2 + 1)
    assert found.degree == 4096
    assert found.log2_modulus <= LIMITS[4096]
    assert found.bits >= 16 + math.log2(clients)


def test_ten_thousand_clients_need_the_next_ring() -> None:
    assert choose(10_000, 5001).degree == 8192


def test_the_addends_are_those_of_the_budget() -> None:
    found = choose(100, 51)
    addends = found.addends()
    assert list(addends) == [
        "1 sums of 32 bits", "noise of 100 ciphertexts", "smudging", "of 51 clients", "sign and check", "rounded up",
    ]  # fmt: skip
    # Sub-Gaussian variance by hand: n ciphertexts of e u + s e1 + e0, s and e of n clients, norms twice the expected.
    variance = 100 * (2 * 4096 * 100 * (10.5 * 2 / 3 + 2 / 3 * 10.5) + 10.5)
    assert addends["noise of 100 ciphertexts"] == pytest.approx(math.log2(12 * math.sqrt(variance)))
    assert addends["smudging"] == 40
    assert addends["of 51 clients"] == pytest.approx(math.log2(12 * math.sqrt(51)), abs=1.01)
    assert 0 <= addends["rounded up"] < 2
    assert sum(addends.values()) == pytest.approx(found.log2_modulus)
    assert "log2 q = 100.0 of 106 allowed at 128 bits" in found.describe()


@settings(max_examples=examples(160))
@given(
    st.integers(2, 3000), st.floats(0, 1), st.integers(10, 64), st.none() | st.integers(14, 40),
    st.sampled_from([None, 8192, 16384]),
)  # fmt: skip
def test_sums_noise_and_smudging_fit_into_the_digits(clients, share, smudging, bits, degree):
    threshold = max(2, round(share * clients))
    try:
        found = choose(clients, threshold, smudging, bits, degree)
    except ProtectionError:
        return
    assert found.log2_modulus <= LIMITS[found.degree]
    assert found.smudge_deviation >= 2**smudging * found.noise
    # Twice the noise, for both signs, and the same again to detect a wrong share.
    noise_room = found.primes[0] << found.guard
    assert found.guard >= 2
    assert noise_room >= 4 * found.opened_noise
    assert len(set(found.primes)) == len(found.primes) == len(found.fields) + 1
    for place, (many, prime) in enumerate(zip(found.fields, found.primes[1:], strict=True)):
        lowest = found.guard if place == 0 else 0
        top = sum((2**found.bits - 2 ** (found.bits - MARGIN_BITS)) << k * found.bits for k in range(many))
        assert (top + 1) << lowest <= prime
    for prime in found.primes:
        assert prime % (2 * found.degree) == 1
        assert pow(3, prime - 1, prime) == 1
    assert found.opened_noise >= TAIL * math.sqrt(threshold) * found.smudge_deviation


@settings(max_examples=examples(100))
@given(st.floats(2**-20, 2**20, width=32), st.integers(2, 1000), st.integers(14, 40))
def test_the_step_is_the_smallest_with_which_sums_fit_their_field(bound, clients, bits):
    numbers = FixedPoint(bound, clients, bits)
    most = 2**bits - 2 ** (bits - MARGIN_BITS)
    assert 2 * clients * numbers.largest <= most < 2 * clients * round(2 * bound / numbers.step)


@pytest.mark.parametrize(("given", "message"), [
    ((6, 1), "threshold=1 must be at least 2, since one share would be the key"),
    ((6, 7), "at most the number of clients, 6"),
    ((1000, 501, 64, 48), "needs a modulus of"),
])  # fmt: skip
def test_what_cannot_be_is_refused(given: tuple[int, ...], message: str) -> None:
    with pytest.raises(ProtectionError, match=message):
        choose(*given)


def test_the_leak_grows_with_the_square_root_of_the_values_and_halves_with_each_bit() -> None:
    found, finer = choose(10, 6, 40), choose(10, 6, 44, degree=8192)
    assert found.log2_leak(4e6) - found.log2_leak(1e6) == pytest.approx(1)
    assert finer.log2_leak(1e6) < found.log2_leak(1e6) - 3
    # For a value, on average: noise of sqrt(2) B / 12 hidden by smudging of at least 2^40 B.
    assert found.log2_leak(1) <= math.log2(math.sqrt(2) / 12 * math.sqrt(1.0386) / 2) - 40


def test_bits_that_hold_no_sum_are_refused() -> None:
    with pytest.raises(ProtectionError, match=r"bits=12 hold no sum of 3000 clients: .* raise bits to at least 13"):
        FixedPoint(1.0, 3000, 12)
    assert FixedPoint(1.0, 3000, 14).largest == 2
    with pytest.raises(ProtectionError, match="must be finite and > 0; clip first"):
        FixedPoint(float("inf"), 3, 20)


def test_data_that_cannot_be_read_states_no_number_of_clients_to_complain_about() -> None:
    """A recipe of five clients had "at most the number of clients, 1" next to the one mistake that it makes."""
    data = {"use": "std.breast_cancer", "clients": 5, "at": "sites"}
    with pytest.raises(fedplug.RecipeError) as raised:
        fedplug.check("threshold-distributed-dp", data=data)
    assert "at: sites needs 'agreed'" in str(raised.value)
    assert "threshold=" not in str(raised.value)
