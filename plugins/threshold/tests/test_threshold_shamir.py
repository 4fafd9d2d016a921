"""Shares of polynomials: any t open them, fewer reveal nothing."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import ProtectionError
from fedplug_threshold import shamir
from fedplug_threshold.ring import Chain
from hypothesis import given, settings
from hypothesis import strategies as st

CHAIN = Chain(64, (36028797018652673, 1073692673))


def test_a_worked_example() -> None:
    """Modulo 13, the secret 5 under f(x) = 5 + 3 x + 2 x^2: clients 0, 1, 2 and 4 get f(1), f(2), f(3), f(5)."""
    shares = {client: (5 + 3 * (client + 1) + 2 * (client + 1) ** 2) % 13 for client in (0, 1, 2, 4)}
    assert shares == {0: 10, 1: 6, 2: 6, 4: 5}
    weights = {client: int(shamir.weight((0, 1, 4), client, [13])[0, 0]) for client in (0, 1, 4)}
    # lambda_0 = 2/(2-1) 5/(5-1) = 10/4, lambda_1 = 1/(1-2) 5/(5-2) = -5/3, lambda_4 = 1/(1-5) 2/(2-5) = 2/12.
    assert weights == {0: 9, 1: 7, 4: 11}
    assert sum(weights[client] * shares[client] for client in weights) % 13 == 5


@settings(max_examples=examples(28))
@given(st.integers(2, 12), st.integers(0, 10), st.randoms())
def test_any_threshold_shares_open_and_sums_of_shares_open_sums(threshold, more, random):
    holders = random.sample(range(1000), threshold + more)
    secrets = CHAIN.uniform(os.urandom(16), 2)
    one, other = (shamir.deal(CHAIN, secret, holders, threshold) for secret in secrets)
    chosen = random.sample(range(len(holders)), threshold)
    opened = shamir.combine(CHAIN, {holders[i]: CHAIN.plus(one[i], other[i]) for i in chosen})
    assert np.array_equal(opened, CHAIN.plus(*secrets))


def test_fewer_shares_fit_every_secret() -> None:
    """Two shares of three, modulo 13: each secret has exactly one polynomial through them, so all are as likely."""
    for first, second in itertools.product((0, 6, 12), repeat=2):
        curves = [
            (a, b, c) for a, b, c in itertools.product(range(13), repeat=3)
            if (a + b + c) % 13 == first and (a + 2 * b + 4 * c) % 13 == second
        ]  # fmt: skip
        assert sorted(a for a, _, _ in curves) == list(range(13))


def test_the_shares_of_fewer_are_uniform_whatever_the_secret_is() -> None:
    zero = np.zeros((2, 64), np.uint64)
    drawn = np.stack([shamir.deal(CHAIN, zero, range(3), 3)[:2] for _ in range(200)])  # 200 sharings, two holders
    for place, prime in enumerate(CHAIN.primes):
        for holder in range(2):
            counts = np.histogram(drawn[:, holder, place].astype(np.float64), bins=16, range=(0, prime))[0]
            assert abs(counts - 800).max() < 6 * 800**0.5
    # If they interpolate as if they were enough, the result is just as uniform, and not zero.
    opened = np.stack([shamir.combine(CHAIN, {0: one[0], 1: one[1]}) for one in drawn])
    counts = np.histogram(opened[:, 0].astype(np.float64), bins=16, range=(0, CHAIN.primes[0]))[0]
    assert abs(counts - 800).max() < 6 * 800**0.5


@pytest.mark.parametrize(("holders", "threshold", "message"), [
    ([0, 1], 1, "threshold=1 must be at least 2"), ([0, 1], 3, "at most the number of holders, 2"),
    ([1, 1], 2, "named twice"), ([-1, 1], 2, "client -1 can hold no share"),
])  # fmt: skip
def test_sharings_that_cannot_be(holders: list[int], threshold: int, message: str) -> None:
    with pytest.raises(ProtectionError, match=message):
        shamir.deal(CHAIN, np.zeros((2, 64), np.uint64), holders, threshold)


def test_a_client_outside_the_set_has_no_weight() -> None:
    with pytest.raises(ProtectionError, match="client 3 is not among those that open: 0, 1"):
        shamir.weight((0, 1), 3, CHAIN.primes)
