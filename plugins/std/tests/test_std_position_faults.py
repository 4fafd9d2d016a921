"""Encrypted zones with clients' own masks: excess, damage and wrong claims are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import MessageError, ProtectionError
from he_toys import SCHEMES, OneClient
from position_toys import SIZE, UPDATES, mask_of, masked


@pytest.fixture(scope="module", params=SCHEMES)
def parties(request: pytest.FixtureRequest) -> OneClient:
    """Four clients with keys of BFV or CKKS, as one object."""
    return masked(request.param)


# -- what a sum can hold -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_sums_still_fit(parties: OneClient, sign: float) -> None:
    block = parties.seal_masked(mask_of("last", 0), np.full(SIZE, sign))
    opened = parties.open(parties.add(dict.fromkeys(range(4), block)))
    assert opened.plain().tolist() == [4 * sign]


def test_more_updates_than_a_sum_holds_are_refused(parties: OneClient) -> None:
    block = parties.seal_masked(mask_of("first", 0), UPDATES[0])
    with pytest.raises(ProtectionError, match="sum of 5 updates could overflow: max_clients=4"):
        parties.add(dict.fromkeys(range(5), block))


# -- faults ------------------------------------------------------------------------------------------------------------


def test_the_server_cannot_open_a_sum(parties: OneClient) -> None:
    total = parties.add({c: parties.seal_masked(mask_of("other", c), UPDATES[c]) for c in range(4)})
    with pytest.raises(ProtectionError, match="no secret key"):
        parties.component.open(total, parties.context(parties.server))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"meta": {"key": 1}}, "client 1 encrypted its encrypted block under another key"),
        ({"meta": {}}, "block whose meta says key=None, which must be the whole number of the key"),
        ({"meta": {"key": 1.0}}, "says key=1.0, which must be the whole number"),
        ({"meta": {"key": np.ones(3)}}, "says key=a ndarray, which must be the whole number"),
        ({"meta": {"key": 10**5000}}, "says key=a whole number of 16610 bits, which must be"),
        ({"ciphertexts": (b"garbage",)}, "ciphertext 0 of client 1, position block 0, "),
        ({"ciphertexts": ()}, r"client 1 sent 0 ciphertexts for 40 values in 1 blocks of \d+ positions"),
        ({"positions": np.arange(SIZE - 39, SIZE + 1, dtype=np.uint32)}, "encrypted position 9000, but the model has"),
        ({"positions": np.arange(40, dtype=np.uint32)[::-1]}, "must be as many and strictly ascending"),
        ({"positions": np.arange(39, dtype=np.uint32)}, "39 encrypted positions for 40 scalars"),
        ({"contributors": 2}, "client 1 sent a encrypted block of 2 contributors"),
        ({"divisor": 0.5}, "another weight than 1.0"),
    ],
)
def test_a_fault_of_one_upload_is_blamed_on_its_client(
    parties: OneClient, change: dict[str, Any], message: str
) -> None:
    parties.server.remembered.weights = dict.fromkeys(range(3), 1.0)
    blocks = {c: parties.seal_masked(mask_of("first", c), UPDATES[c]) for c in range(3)}
    blocks[1] = blocks[1].replace(**change)
    with pytest.raises((ProtectionError, MessageError), match=message) as caught:
        parties.component.add_blocks(blocks, parties.context(parties.server))
    parties.server.remembered.weights = {}
    assert caught.value.client_id == 1


def test_ciphertexts_cut_for_other_blocks_are_blamed(parties: OneClient) -> None:
    """A client that packs twice as many positions into a ciphertext sends fewer than its positions take."""
    wider = parties.seal_masked(mask_of("all", 0), UPDATES[0])
    wider = wider.replace(ciphertexts=wider.ciphertexts[::2])
    with pytest.raises(MessageError, match=r"client 2 sent .* its sender uses a different packing") as caught:
        parties.add({0: parties.seal_masked(mask_of("all", 0), UPDATES[0]), 2: wider})
    assert caught.value.client_id == 2


def test_gathered_and_positioned_blocks_do_not_mix(parties: OneClient) -> None:
    block = parties.seal_masked(mask_of("first", 0), UPDATES[0])
    with pytest.raises(ProtectionError, match="client 1 sent a encrypted block without positions, others with"):
        parties.add({0: block, 1: block.replace(positions=None)})


def test_counts_that_are_claimed_wrongly_stay_closed(parties: OneClient) -> None:
    blocks = {c: parties.seal_masked(mask_of("first", c), UPDATES[c]) for c in range(3)}
    total = parties.add(blocks)
    for counts in ([2], [4]):
        with pytest.raises(ProtectionError, match=rf"does not hold the {counts[0]} updates that are claimed"):
            parties.open(total.replace(meta={"counts": np.array(counts, np.uint32)}))
    for wrong in ({}, {"counts": [3]}, {"counts": np.array([3, 3], np.uint32)}, {"counts": np.array([3.0])}):
        with pytest.raises(MessageError, match="must give the number of updates in each of its 1 ciphertexts"):
            parties.open(total.replace(meta=wrong))
    with pytest.raises(MessageError, match="0 ciphertexts for 40 values, expected 1"):
        parties.open(total.replace(ciphertexts=()))
    # An upload alone, claimed to be what it is: too few.
    parties.min_clients = 2
    lone = blocks[0].replace(meta={"counts": np.array([1], np.uint32)}, contributors=2)
    with pytest.raises(ProtectionError, match="holds 1 updates; opening fewer than min_clients=2"):
        parties.open(lone)
