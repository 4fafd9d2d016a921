"""BFV and CKKS refuse sums of too few, of too many and of what does not fit, and blame who sent it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_std.bfv import Bfv
from fedplug_std.ckks import Ckks
from he_toys import Parties, make


@pytest.mark.parametrize("really", [1, 2, 4])
def test_a_sum_of_another_number_than_claimed_is_not_opened(parties: Parties, really: int) -> None:
    total = parties.add({index: parties.seal(index, [0.5]) for index in range(really)})
    with pytest.raises(ProtectionError, match="does not hold the 3 updates that are claimed") as caught:
        parties.open(total.replace(contributors=3))
    assert f" {really} " not in str(caught.value)  # what was decrypted does not travel to the server


def test_a_single_ciphertext_slipped_into_a_sum_is_found(parties: Parties) -> None:
    values = np.zeros(3 * 4096)
    blocks = {index: parties.seal(index, values) for index in range(3)}
    total = parties.add(blocks)
    forged = total.replace(ciphertexts=(*total.ciphertexts[:1], blocks[0].ciphertexts[1], *total.ciphertexts[2:]))
    with pytest.raises(ProtectionError, match="part 1 of the encrypted sum does not hold the 3 updates"):
        parties.open(forged)


def test_a_missing_ciphertext_is_found(parties: Parties) -> None:
    block = parties.seal(0, np.zeros(9000))
    short = block.replace(ciphertexts=block.ciphertexts[:-1])
    total = parties.add(dict.fromkeys(range(3), short))
    with pytest.raises(MessageError, match=r"\d ciphertexts for 9000 values, expected \d"):
        parties.open(total)


@pytest.mark.parametrize("keep", [0, 1, 7, 50, 1000, 0.5, -1])
def test_truncated_ciphertexts_are_refused(parties: Parties, keep: float) -> None:
    block = parties.seal(1, [0.5])
    data = block.ciphertexts[0]
    cut = block.replace(ciphertexts=(data[: int(len(data) * keep) if 0 < keep < 1 else int(keep)],))
    with pytest.raises(MessageError, match="client 1: ciphertext 0 ") as caught:
        parties.add({0: block, 1: cut, 2: block})
    assert caught.value.client_id == 1
    with pytest.raises(MessageError, match="ciphertext 0 "):
        parties.open(cut.replace(contributors=3))


def test_altered_bytes_end_in_an_error_and_never_in_a_crash(parties: Parties) -> None:
    rng = np.random.default_rng(3)
    good = {index: parties.seal(index, [0.5]) for index in range(3)}
    data = good[2].ciphertexts[0]
    spots = [*range(90), *rng.integers(90, len(data), 60), *range(len(data) - 20, len(data))]
    refused = 0
    for spot in spots:
        altered = bytearray(data)
        altered[spot] ^= int(rng.integers(1, 256))
        try:
            total = parties.add({**good, 2: good[2].replace(ciphertexts=(bytes(altered),))})
            parties.open(total)
        except (MessageError, ProtectionError):
            refused += 1
    assert refused > 0.8 * len(spots)


def test_a_sum_with_an_upload_under_another_key_is_not_opened(parties: Parties) -> None:
    stranger = Parties(make(type(parties.component), key_holder=parties.component.options.key_holder), 5).setup()
    blocks = {index: parties.seal(index, [0.5]) for index in range(2)}
    strange = stranger.seal(2, [0.5])
    with pytest.raises((ProtectionError, MessageError)):  # neither is it opened, nor added where that can be told
        parties.open(parties.add({**blocks, 2: strange}))


def test_ciphertexts_of_another_packing_are_blamed_on_their_client(parties: Parties) -> None:
    component = parties.component
    other: Any = make(Ckks if component.name == "std.bfv" else Bfv)
    stranger, _ = other.new_keys(3)
    strange = other.backend.encrypt(stranger, np.ones((1, component.slots), np.int64))
    blocks = {index: parties.seal(index, [0.5]) for index in range(3)}
    blocks[1] = blocks[1].replace(ciphertexts=strange)
    with pytest.raises(MessageError, match="client 1: ciphertext 0 ") as caught:
        parties.add(blocks)
    assert caught.value.client_id == 1

