"""Shares of secrets: any t open them, fewer reveal nothing, and wrong ones are found."""

from __future__ import annotations

import os

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
    ],
)
def test_sharings_that_cannot_be(secrets, holders, threshold, message):
    with pytest.raises(ProtectionError, match=message):
        shamir.deal(secrets, holders, threshold)


@pytest.mark.parametrize(("length", "which"), [(36, 1), (71, 0), (72, -1)])
def test_a_part_that_is_not_there(length, which):
    with pytest.raises(ProtectionError, match="hold no share of secret"):
        shamir.part(bytes(length), which)
