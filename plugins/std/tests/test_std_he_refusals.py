"""BFV and CKKS refuse sums of too few, of too many and of what does not fit, and blame who sent it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api.blocks import Block
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_std.bfv import Bfv
from fedplug_std.ckks import Ckks
from he_toys import Parties, make


def test_a_sum_of_too_few_updates_is_not_opened(parties: Parties) -> None:
    total = parties.add({index: parties.seal(index, [0.5]) for index in range(2)})
    with pytest.raises(ProtectionError, match=r"holds 2 updates.* min_clients=3"):
        parties.open(total)


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
    with pytest.raises(ProtectionError, match=r"ciphertext 1 .* does not hold the 3 updates"):
        parties.open(forged)


def test_more_updates_than_agreed_are_not_added(parties: Parties) -> None:
    block = parties.seal(0, [0.5])
    with pytest.raises(ProtectionError, match="sum of 6 updates could overflow: max_clients=5"):
        parties.add(dict.fromkeys(range(6), block))
    with pytest.raises(ProtectionError, match="sum of 7 updates"):
        parties.add({0: block, 1: block.replace(contributors=6)})


def test_blocks_that_differ_are_not_added(parties: Parties) -> None:
    one, other = parties.seal(0, [0.5]), parties.seal(1, [0.5, 0.1])
    with pytest.raises(ProtectionError, match=r"client 1 encrypted 2 scalars .* client 0 1; all clients must encrypt"):
        parties.add({0: one, 1: other})
    with pytest.raises(ProtectionError, match=r"sealed by other\.thing"):
        parties.add({0: one.replace(sealed_by="other.thing")})
    with pytest.raises(ProtectionError, match="sealed by None"):
        parties.open(Block("encrypted", 1, np.zeros(1, np.float32)))


def test_a_missing_ciphertext_is_found(parties: Parties) -> None:
    block = parties.seal(0, np.zeros(9000))
    short = block.replace(ciphertexts=block.ciphertexts[:-1])
    with pytest.raises(MessageError, match=r"client 0 sent .* ciphertexts for 9000 values, expected"):
        parties.add({0: short})
    with pytest.raises(MessageError, match="ciphertexts for 9000 values, expected"):
        parties.open(short)


@pytest.mark.parametrize("keep", [0, 1, 7, 50, 1000, 0.5, -1])
def test_truncated_ciphertexts_are_refused(parties: Parties, keep: float) -> None:
    block = parties.seal(1, [0.5])
    data = block.ciphertexts[0]
    cut = block.replace(ciphertexts=(data[: int(len(data) * keep) if 0 < keep < 1 else int(keep)],))
    with pytest.raises(MessageError, match="ciphertext 0 of client 1 "):
        parties.add({0: block, 1: cut})
    with pytest.raises(MessageError, match="ciphertext 0 "):
        parties.open(cut)


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


def test_bytes_of_other_keys_are_refused(parties: Parties) -> None:
    stranger = Parties(make(type(parties.component), key_holder=parties.component.options.key_holder), 5).setup()
    blocks = {index: parties.seal(index, [0.5]) for index in range(2)}
    strange = stranger.seal(2, [0.5])
    with pytest.raises(ProtectionError, match="client 2 encrypted its encrypted block under another key") as caught:
        parties.add({**blocks, 2: strange})
    assert caught.value.client_id == 2
    # The number of the key finds what was mixed up; whatever it says, the sum does not open.
    with pytest.raises((ProtectionError, MessageError)):
        parties.open(parties.add({**blocks, 2: strange.replace(meta=blocks[0].meta)}))


def test_ciphertexts_of_another_packing_are_blamed_on_their_client(parties: Parties) -> None:
    component = parties.component
    other: Any = make(Ckks if component.name == "std.bfv" else Bfv)
    stranger, _ = other.new_keys(3)
    strange = other.backend.encrypt(stranger, np.ones((1, component.slots), np.int64))
    blocks = {index: parties.seal(index, [0.5]) for index in range(3)}
    blocks[1] = blocks[1].replace(ciphertexts=strange)
    with pytest.raises(MessageError, match="ciphertext 0 of client 1 ") as caught:
        parties.component.add_blocks(blocks, parties.context(parties.server))
    assert caught.value.client_id == 1


@pytest.mark.parametrize(
    "fault",
    [{"contributors": 2}, {"contributors": 0}, {"divisor": 0.5}, {"divisor": -1.0}, {"divisor": np.ones(1)},
     {"ciphertexts": ()}, {"ciphertexts": (b"garbage",)}, {"weighted": False}],
    ids=str,
)  # fmt: skip
def test_a_fault_of_one_upload_is_blamed_on_its_client(parties: Parties, fault: dict[str, Any]) -> None:
    parties.server.remembered.weights = dict.fromkeys(range(5), 1.0)
    blocks = {index: parties.seal(index, [0.5]) for index in range(3)}
    assert parties.component.add_blocks(blocks, parties.context(parties.server)).contributors == 3
    blocks[1] = blocks[1].replace(**fault)
    with pytest.raises((ProtectionError, MessageError), match="client 1") as caught:
        parties.component.add_blocks(blocks, parties.context(parties.server))
    parties.server.remembered.weights = {}
    assert caught.value.client_id == 1
