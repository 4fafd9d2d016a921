"""Epsilon of sampled releases against the specification's table, Opacus and the exact curve."""

from __future__ import annotations

import math

import pytest
from fedplug.accounting import gaussian_epsilon, gaussian_rdp_epsilon, rdp_to_epsilon
from fedplug_std.accountants import Pld
from hypothesis import given, settings
from hypothesis import strategies as st

DELTA = 1e-5


@pytest.fixture(scope="module")
def pld() -> Pld:
    return Pld(Pld.Options())


def epsilon(multiplier: float, rate: float, rounds: int, adjacency: str = "zero_out") -> dict[str, float]:
    return Pld(Pld.Options()).epsilon([(multiplier, rate)] * rounds, DELTA, adjacency)


def test_worked_numbers_of_the_specification() -> None:
    """`specs/protocols.md`, section 3."""
    assert epsilon(1.1, 0.1, 100)["pld"] == pytest.approx(5.913, abs=1e-3)
    assert epsilon(1.1, 0.1, 100)["rdp"] == pytest.approx(6.614, abs=1e-3)
    assert epsilon(3.942, 0.1, 100)["pld"] == pytest.approx(1.0, abs=1e-3)
    assert epsilon(1.1, 1, 10)["pld"] == pytest.approx(15.783, abs=1e-3)
    assert epsilon(1.1, 1, 10)["rdp"] == pytest.approx(16.857, abs=2e-3)


def test_replace_one_doubles_the_sensitivity_in_both_methods() -> None:
    """The trap of section 3: at sigma 4 RDP says 1.01 where PLD says 1.99, unless its caller halves the multiplier."""
    found = epsilon(4, 1, 1, "replace_one")
    assert found["pld"] == pytest.approx(1.99, abs=5e-3)
    assert found["pld"] == pytest.approx(gaussian_epsilon(2, DELTA), abs=1e-3)
    assert found["rdp"] == pytest.approx(gaussian_rdp_epsilon(2, DELTA), rel=1e-3)
    sampled = epsilon(4, 0.1, 10, "replace_one")
    assert list(sampled) == ["pld"], "Opacus knows no sampling under replace-one, so no RDP figure may be given"
    assert epsilon(4, 0.1, 10)["pld"] < sampled["pld"] < gaussian_epsilon(2 / math.sqrt(10), DELTA)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.8, 20), st.integers(1, 30))
def test_lemma_2_is_opacus(multiplier: float, rounds: int) -> None:
    """Item 20: the closed form at Opacus' orders is Opacus; at the best order it is no larger."""
    from opacus.accountants.analysis import rdp as opacus_rdp

    orders = [1 + k / 10 for k in range(1, 100)] + list(range(12, 64))
    curve = opacus_rdp.compute_rdp(q=1, noise_multiplier=multiplier, steps=rounds, orders=orders)
    ours = [rounds * order / (2 * multiplier**2) for order in orders]
    assert list(curve) == pytest.approx(ours)
    theirs = min(rdp_to_epsilon(order, value, DELTA) for order, value in zip(orders, ours, strict=True))
    opacus, _ = opacus_rdp.get_privacy_spent(orders=orders, rdp=curve, delta=DELTA)
    assert float(opacus) == pytest.approx(theirs)
    assert gaussian_rdp_epsilon(multiplier / math.sqrt(rounds), DELTA) <= theirs * (1 + 1e-9)


def test_no_sampling_is_the_exact_curve() -> None:
    """Item 21: q=1 is the no-sampling case."""
    for multiplier in (1.0, 5.0, 40.0):
        assert epsilon(multiplier, 1, 10)["pld"] == pytest.approx(
            gaussian_epsilon(multiplier / math.sqrt(10), DELTA), abs=1e-3
        )


def test_epsilon_grows_with_rate_and_rounds_and_falls_with_noise() -> None:
    """Item 21."""
    for method in ("pld", "rdp"):
        by_rate = [epsilon(2, rate, 20)[method] for rate in (0, 0.01, 0.1, 0.5, 1)]
        by_rounds = [epsilon(2, 0.1, rounds)[method] for rounds in (1, 10, 100)]
        by_noise = [epsilon(multiplier, 0.1, 20)[method] for multiplier in (0, 0.7, 2, 10, math.inf)]
        assert by_rate == sorted(by_rate)
        assert by_rounds == sorted(by_rounds)
        assert by_noise == sorted(by_noise, reverse=True)
        assert by_rate[0] == by_noise[-1] == 0
        assert by_noise[0] == math.inf


def test_rounds_may_differ_and_their_order_does_not_matter(pld: Pld) -> None:
    releases = [(1.5, 1.0), (2.0, 1.0), (3.0, 1.0), (8.0, 1.0)]
    found = pld.epsilon(releases, DELTA, "zero_out")["pld"]
    assert found == pytest.approx(3.9069, abs=1e-3)
    assert pld.epsilon(releases[::-1], DELTA, "zero_out")["pld"] == pytest.approx(found, abs=1e-6)


def test_a_finer_interval_is_no_looser() -> None:
    fine = Pld(Pld.Options(interval=1e-4)).epsilon([(3.942, 0.1)] * 100, DELTA, "zero_out")["pld"]
    assert fine <= epsilon(3.942, 0.1, 100)["pld"] + 1e-9


@pytest.mark.parametrize(
    ("releases", "adjacency", "said"),
    [
        ([(1.0, 1.5)], "zero_out", r"sampling rate=1.5 in \[0, 1\]"),
        ([(-1.0, 0.5)], "zero_out", "multiplier=-1.0 must be >= 0"),
        ([(1.0, 0.5)], "add_remove", "adjacency='add_remove' must be zero_out or replace_one"),
    ],
)
def test_bad_input_is_refused(pld: Pld, releases: list[tuple[float, float]], adjacency: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pld.epsilon(releases, DELTA, adjacency)
