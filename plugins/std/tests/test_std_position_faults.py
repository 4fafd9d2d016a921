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


# -- faults ------------------------------------------------------------------------------------------------------------


def test_the_server_cannot_open_a_sum(parties: OneClient) -> None:
    total = parties.add({c: parties.seal_masked(mask_of("other", c), UPDATES[c]) for c in range(4)})
    with pytest.raises(ProtectionError, match="no secret key"):
        parties.open(total, parties.server)


def test_a_damaged_ciphertext_is_blamed_on_its_client(parties: OneClient) -> None:
    blocks = {c: parties.seal_masked(mask_of("first", c), UPDATES[c]) for c in range(3)}
    blocks[1] = blocks[1].replace(ciphertexts=(b"garbage",))
    with pytest.raises(MessageError, match="client 1, position block 0: ciphertext 0 ") as caught:
        parties.add(blocks)
    assert caught.value.client_id == 1


def test_ciphertexts_cut_for_other_blocks_are_blamed(parties: OneClient) -> None:
    """A client that packs twice as many positions into a ciphertext sends fewer than its positions take."""
    wider = parties.seal_masked(mask_of("all", 0), UPDATES[0])
    wider = wider.replace(ciphertexts=wider.ciphertexts[::2])
    with pytest.raises(MessageError, match=r"client 2 sent .* its sender uses another packing") as caught:
        parties.add({0: parties.seal_masked(mask_of("all", 0), UPDATES[0]), 2: wider})
    assert caught.value.client_id == 2


def test_counts_that_are_claimed_wrongly_stay_closed(parties: OneClient) -> None:
    blocks = {c: parties.seal_masked(mask_of("first", c), UPDATES[c]) for c in range(3)}
    total = parties.add(blocks)
    for counts in ([2], [4]):
        with pytest.raises(ProtectionError, match=rf"does not hold the {counts[0]} updates that are claimed"):
            parties.open(total.replace(meta={"counts": np.array(counts, np.uint32)}))
    shapes: list[Any] = [None, [3], np.array([3, 3], np.uint32), np.array([3.0])]
    for wrong in shapes:
        with pytest.raises(MessageError, match="must give the number of updates in each of its 1 parts"):
            parties.open(total.replace(meta={"counts": wrong}))
    with pytest.raises(MessageError, match="0 ciphertexts for 40 values, expected 1"):
        parties.open(total.replace(ciphertexts=()))
    # An upload alone, claimed to be what it is: too few.
    lone = blocks[0].replace(meta={"counts": np.array([1], np.uint32)}, contributors=2)
    with pytest.raises(ProtectionError, match="holds 1 updates; opening fewer than min_clients=2"):
        parties.open(lone, min_clients=2)
