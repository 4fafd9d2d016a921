"""Shares of secrets: any t open them, fewer reveal nothing, and wrong ones are found."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import ProtectionError
from fedplug_secagg import shamir
from hypothesis import given, settings
from hypothesis import strategies as st


@st.composite
def _sharings(draw: st.DrawFn) -> tuple[list[bytes], list[int], int]:
    holders = draw(st.lists(st.integers(0, shamir.P - 2), min_size=2, max_size=40, unique=True))
    secrets = draw(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3))
    return secrets, holders, draw(st.integers(2, len(holders)))


@settings(max_examples=examples(60))
@given(_sharings(), st.randoms())
def test_any_threshold_shares_or_more_open_each_secret(sharing, random):
    secrets, holders, threshold = sharing
    shares = shamir.deal(secrets, holders, threshold)
    assert {len(share) for share in shares.values()} == {36 * len(secrets)}
    for which, secret in enumerate(secrets):
        chosen = random.sample(holders, random.randint(threshold, len(holders)))
        parts = {holder: shamir.part(shares[holder], which) for holder in chosen}
        assert shamir.combine(parts, threshold) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_extreme_secrets_with_more_shares_than_one_exact_sum_of_products_holds(secret):
    holders = [*range(300), shamir.P - 2]
    shares = shamir.deal([secret], holders, 280)
    assert shamir.combine(shares, 280) == secret


def test_products_of_the_largest_elements_are_exact():
    largest = np.full((3, 1000), shamir.P - 1)
    assert shamir._product(largest, largest.T).tolist() == [[1000] * 3] * 3  # (-1)^2, a thousand times


def test_fewer_shares_fit_every_secret():
    # Two shares of three: each value at 0 has exactly one polynomial through them, so all are equally likely.
    x = np.array([1, 2])
    for secret, first, second in itertools.product((0, 5, shamir.P - 1), (7, 8), (9, 10)):
        inverse = pow(2, -1, shamir.P)
        curve = (second - 2 * first + secret) * inverse % shamir.P
        slope = (first - secret - curve) % shamir.P
        assert ((secret + slope * x + curve * x * x) % shamir.P).tolist() == [first, second]


def test_shares_of_one_secret_are_spread_evenly():
    shares = [shamir.deal([bytes(32)], [0, 1], 2)[0] for _ in range(500)]
    elements = np.concatenate([shamir._elements(share) for share in shares])
    assert elements.max() < shamir.P
    counts = np.histogram(elements, bins=16, range=(0, shamir.P))[0]
    assert abs(counts - 375).max() < 6 * 375**0.5


@pytest.mark.parametrize("extra", [1, 2, 10])
def test_a_wrong_share_beyond_the_threshold_is_found(extra):
    shares = shamir.deal([os.urandom(32)], range(5 + extra), 5)
    for wrong in shares:
        other = {**shares, wrong: bytes([shares[wrong][0] ^ 1]) + shares[wrong][1:]}
        with pytest.raises(ProtectionError, match="do not belong together"):
            shamir.combine(other, 5)


def test_random_shares_do_not_open_even_at_the_threshold():
    # 20 bits of a sharing are redundant, so this fails once in a million runs of the suite.
    shares = {holder: shamir.deal([os.urandom(32)], [holder, 9], 2)[holder] for holder in range(5)}
    with pytest.raises(ProtectionError, match="do not belong together"):
        shamir.combine(shares, 5)


def test_a_malformed_share_blames_its_holder():
    shares = shamir.deal([os.urandom(32)], [3, 4, 9], 2)
    for wrong, message in ((b"", "client 9 has 0 bytes, expected 36"), (b"\xff" * 36, "client 9 holds a number")):
        with pytest.raises(ProtectionError, match=message) as caught:
            shamir.combine({**shares, 9: wrong}, 2)
        assert caught.value.client_id == 9


@pytest.mark.parametrize(
    ("secrets", "holders", "threshold", "message"),
    [
        ([bytes(31)], [0, 1], 2, "secrets of 31 bytes"),
        ([bytes(32)], [0, 1], 1, "threshold=1 must be >= 2"),
        ([bytes(32)], [0, 1], 3, "at most the number of holders, 2"),
        ([bytes(32)], [1, 1], 2, "named twice"),
        ([bytes(32)], [-1, 1], 2, "client -1 can hold no share"),
        ([bytes(32)], [0, shamir.P - 1], 2, "from 0 to 8388591"),
    ],
)
def test_sharings_that_cannot_be(secrets, holders, threshold, message):
    with pytest.raises(ProtectionError, match=message):
        shamir.deal(secrets, holders, threshold)


def test_too_few_shares():
    with pytest.raises(ProtectionError, match="1 shares open nothing; threshold=2"):
        shamir.combine({0: bytes(36)}, 2)


@pytest.mark.parametrize(("length", "which"), [(36, 1), (71, 0), (72, -1)])
def test_a_part_that_is_not_there(length, which):
    with pytest.raises(ProtectionError, match="hold no share of secret"):
        shamir.part(bytes(length), which)
