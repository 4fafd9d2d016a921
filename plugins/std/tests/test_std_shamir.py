"""Shares of secrets: any t open them and sums of them, fewer reveal nothing, and wrong ones are found."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import ProtectionError
from fedplug_std.he_random import Secrets
from fedplug_std.shamir import Sharing
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

PRIMES = (2**23 - 15, 2**31 - 1, 36028797018652673)


def test_a_worked_example() -> None:
    """Modulo 13, the secret 5 under f(x) = 5 + 3 x + 2 x^2: clients 0, 1, 2 and 4 get f(1), f(2), f(3), f(5)."""
    shares = {client: (5 + 3 * (client + 1) + 2 * (client + 1) ** 2) % 13 for client in (0, 1, 2, 4)}
    assert shares == {0: 10, 1: 6, 2: 6, 4: 5}
    sharing = Sharing(13, 3)
    weights = {client: int(sharing.weight(client, (0, 1, 4))[0]) for client in (0, 1, 4)}
    # lambda_0 = 2/(2-1) 5/(5-1) = 10/4, lambda_1 = 1/(1-2) 5/(5-2) = -5/3, lambda_4 = 1/(1-5) 2/(2-5) = 2/12.
    assert weights == {0: 9, 1: 7, 4: 11}
    assert sum(weights[client] * shares[client] for client in weights) % 13 == 5
    assert sharing.open({client: np.array([share]) for client, share in shares.items()}).tolist() == [[5]]


@settings(max_examples=examples(60))
@given(st.data(), st.sampled_from(PRIMES), st.randoms())
def test_any_threshold_of_shares_opens_a_sum(data, prime, random) -> None:
    threshold, more, dealers = (data.draw(st.integers(low, high)) for low, high in ((2, 12), (0, 10), (1, 4)))
    sharing = Sharing(prime, threshold, data.draw(st.integers(1, threshold - 1)))
    holders = [*random.sample(range(1000), threshold + more - 1), prime % 2**30 - sharing.packing - 1]
    secrets = [Secrets().uniform(prime, sharing.packing, 3) for _ in range(dealers)]
    shares = sum(sharing.deal(secret, holders) for secret in secrets) % np.uint64(prime)
    chosen = random.sample(range(len(holders)), random.randint(threshold, len(holders)))
    opened = sharing.open({holders[place]: shares[place] for place in chosen})
    assert np.array_equal(opened, sum(secrets) % np.uint64(prime))


@pytest.mark.parametrize(("threshold", "packing"), [(3, 1), (3, 2), (2, 1)])
def test_fewer_shares_say_nothing(monkeypatch: pytest.MonkeyPatch, threshold: int, packing: int) -> None:
    """Exact, in the field of seven elements: over all randomness, any threshold - packing shares are uniform, for any
    secret. With packing 1 that is one share fewer than needed to open."""
    small, free = 7, threshold - packing
    sharing = Sharing(small, threshold, packing)
    for secret in itertools.product(range(small), repeat=packing):
        seen: dict[tuple[int, ...], Counter[tuple[int, ...]]] = {}
        for drawn in itertools.product(range(small), repeat=free):
            column = np.array(drawn, np.uint64)[:, None]
            monkeypatch.setattr(Secrets, "uniform", lambda *_, column=column: column)
            shares = sharing.deal(np.array(secret, np.uint64)[:, None], range(4))[:, 0]
            for few in itertools.combinations(range(4), free):
                seen.setdefault(few, Counter())[tuple(int(shares[c]) for c in few)] += 1
        assert all(len(counts) == small**free and set(counts.values()) == {1} for counts in seen.values())


@pytest.mark.parametrize("prime", PRIMES)
def test_shares_are_spread_evenly(prime: int) -> None:
    zeros = np.zeros((1, 6000), np.uint64)
    shares = Sharing(prime, 3).deal(zeros, range(3))
    # Two that interpolate as if they were enough give what is just as uniform, and not zero.
    opened = Sharing(prime, 2).open(dict(enumerate(shares[:2])))[0]
    for values in (*shares, opened):
        counts = np.histogram(values.astype(np.float64), bins=16, range=(0, prime))[0]
        assert abs(counts - 375).max() < 6 * 375**0.5


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("extra", [1, 2, 10])
def test_a_wrong_share_beyond_the_threshold_is_found(prime: int, extra: int) -> None:
    sharing = Sharing(prime, 5)
    dealt = dict(enumerate(sharing.deal(Secrets().uniform(prime, 1, 2), range(5 + extra))))
    for wrong in dealt:
        other: dict[int, NDArray[np.uint64]] = dealt | {wrong: (dealt[wrong] + np.uint64(1)) % np.uint64(prime)}
        with pytest.raises(ProtectionError, match="do not belong together: at least one of them is wrong"):
            sharing.open(other)


@pytest.mark.parametrize(("numbers", "message"), [
    ((1,), "threshold=1 must be >= 2"), ((3, 3), "packing=3 must be below threshold=3"),
    ((3, 0), "packing=0 must be below threshold=3"),
])  # fmt: skip
def test_sharings_that_cannot_be(numbers: tuple[int, ...], message: str) -> None:
    with pytest.raises(ProtectionError, match=message):
        Sharing(PRIMES[0], *numbers)


@pytest.mark.parametrize(("holders", "message"), [
    ([0], "threshold=2 must be at most the number of clients, 1"), ([1, 1], "named twice"),
    ([-1, 1], "client -1 can hold no share"), ([0, PRIMES[0] - 1], "from 0 to 8388591"),
])  # fmt: skip
def test_holders_that_cannot_be(holders: list[int], message: str) -> None:
    with pytest.raises(ProtectionError, match=message):
        Sharing(PRIMES[0], 2).deal(np.zeros((1, 1), np.uint64), holders)


def test_too_few_shares_and_strangers() -> None:
    with pytest.raises(ProtectionError, match="1 shares open nothing; threshold=2"):
        Sharing(PRIMES[0], 2).open({0: np.zeros(1)})
    with pytest.raises(ProtectionError, match="client 3 is not among those that open: 0, 1"):
        Sharing(PRIMES[0], 2).weight(3, (0, 1))
