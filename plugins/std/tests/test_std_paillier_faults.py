"""Packed Paillier finds a mistake of key, packing or number of clients, and names who made it."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_std.paillier import PackedPaillier
from he_toys import OneClient
from numpy.typing import NDArray
from paillier_toys import make, parties_of
from pydantic import ValidationError

pytestmark = pytest.mark.usefixtures("small_tables")


@pytest.fixture(scope="module", params=["key_server", "clients"])
def parties(request: pytest.FixtureRequest) -> OneClient:
    """Five clients with a key of 2048 bits, for tests that add and open."""
    return parties_of(make(key_holder=request.param))


def test_the_server_cannot_decrypt(parties: OneClient) -> None:
    total = parties.add({index: parties.seal([0.5]) for index in range(2)})
    with pytest.raises(ProtectionError, match="no secret key"):
        parties.open(total, parties.server)
    if parties.component.site == "key_server":
        with pytest.raises(ProtectionError, match="no secret key"):
            parties.open(total, parties.client)
        backend = parties.component.backend
        public = backend.load_context(parties.made_keys)
        with pytest.raises(ProtectionError, match="no secret key to give"):
            backend.dump_context(public, secret_key=True)


@pytest.mark.parametrize(("really", "claimed"), [(1, 2), (2, 3), (4, 3)])
def test_a_sum_of_another_number_than_claimed_is_not_opened(parties: OneClient, really: int, claimed: int) -> None:
    total = parties.add({index: parties.seal([0.5]) for index in range(really)})
    with pytest.raises(ProtectionError, match=f"does not hold the {claimed} updates that are claimed") as caught:
        parties.open(total.replace(contributors=claimed))
    assert f" {really} " not in str(caught.value)


def test_ciphertexts_of_another_key_are_blamed_on_their_client(parties: OneClient) -> None:
    strange = parties_of(make(key_holder=parties.component.options.key_holder)).seal([0.5])
    blocks = {index: parties.seal([0.5]) for index in range(2)}
    with pytest.raises(MessageError, match=r"client 2: ciphertext 0 .*another key or packing") as caught:
        parties.add({**blocks, 2: strange})
    assert caught.value.client_id == 2
    assert parties.open(parties.add(blocks)).plain().tolist() == pytest.approx([1.0], abs=1e-5)  # the others go on
    with pytest.raises(MessageError, match="another key or packing"):
        parties.open(parties.add(blocks).replace(ciphertexts=strange.ciphertexts))


def test_ciphertexts_of_another_packing_are_blamed_on_their_client(parties: OneClient) -> None:
    blocks = {index: parties.seal([0.5]) for index in range(3)}
    context, other = parties.component.backend.load_context(parties.made_keys), PackedPaillier(16, 2048)
    row = np.array([[1, *[2] * 126]])
    blocks[1] = blocks[1].replace(ciphertexts=other.encrypt(context, row))
    with pytest.raises(MessageError, match=r"client 1: ciphertext 0 .*another key or packing") as caught:
        parties.add(blocks)
    assert caught.value.client_id == 1


@pytest.mark.parametrize("positions", [None, np.array([5, 200], np.uint32)], ids=["gathered", "own mask"])
@pytest.mark.parametrize("damage", ["cut", "zero", "empty", "garbage", "two", "divisor"])
def test_damaged_ciphertexts_are_blamed_on_their_client(
    parties: OneClient, damage: str, positions: NDArray[Any] | None
) -> None:
    blocks = {index: parties.seal([0.5, 0.25], positions=positions) for index in range(3)}
    data = blocks[1].ciphertexts[-1]
    modulus = parties.component.backend.load_context(parties.server.memory(parties.component)["context"]).n
    bad = {
        "cut": data[:-1], "zero": data[:4] + bytes(512), "empty": b"", "garbage": b"garbage" * 80,
        "two": data + data[4:], "divisor": data[:4] + modulus.to_bytes(512, "little"),
    }[damage]  # fmt: skip
    blocks[1] = blocks[1].replace(ciphertexts=(*blocks[1].ciphertexts[:-1], bad))
    with pytest.raises(MessageError, match=r"client 1(, position block \d+)?: ciphertext 0 ") as caught:
        parties.add(blocks)
    assert caught.value.client_id == 1


def test_an_altered_number_is_found_when_the_sum_is_opened(parties: OneClient) -> None:
    blocks = {index: parties.seal([0.5]) for index in range(2)}
    total = parties.add(blocks)
    for spot in (4, 100, 300):
        altered = bytearray(total.ciphertexts[0])
        altered[spot] ^= 0x5A
        with pytest.raises((ProtectionError, MessageError), match="damaged"):
            parties.open(total.replace(ciphertexts=(bytes(altered),)))


def test_keys_of_another_length_are_not_taken(parties: OneClient) -> None:
    longer = PackedPaillier(24, 3072)
    with pytest.raises(MessageError, match="a key of 2048 bits, but key_bits=3072"):
        longer.load_context(parties.made_keys)
    for data in (b"", b"x", b"p", b"p" + codec.encode([]), b"s" + parties.made_keys[1:]):
        if data[:1] != b"s" or parties.component.site == "key_server":
            with pytest.raises(MessageError, match="bytes"):
                parties.component.backend.load_context(data)


@pytest.mark.parametrize(
    ("options", "clients", "words"),
    [
        ({"bits": 20}, 20, ["max_clients=20", "bits=20", "lower bits to 19", "or raise field_bytes"]),
        ({"bits": 24, "field_bytes": 4}, 200, ["bits=24", "lower bits to 23", "max_clients to 128"]),
        ({"field_bytes": 2}, 40_000, ["bits=1 must be at least 2", "or raise field_bytes"]),
        ({"max_clients": 3}, 4, ["max_clients=3", "raise max_clients to 4"]),
    ],
)
def test_what_could_overflow_is_refused_before_the_run(options: dict[str, Any], clients: int, words: list[str]) -> None:
    (problem,) = make(**options).check(types.SimpleNamespace(clients=clients))  # type: ignore[arg-type]
    for word in words:
        assert word in problem


@pytest.mark.parametrize(
    "bad",
    [{"key_bits": 1024}, {"key_bits": "3072"}, {"field_bytes": 1}, {"field_bytes": 5}, {"bits": 1}, {"bits": 25},
     {"range": 0}, {"max_clients": 0}, {"key_holder": "server"}, {"short_exponents": "often"}, {"window": 8}],
    ids=str,
)  # fmt: skip
def test_bad_options_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make(**bad)


def test_the_ledger_learns_what_stays_visible() -> None:
    parties = parties_of(make(key_holder="clients"))
    channels = parties.component.reveals(parties.facts)
    assert [channel.what for channel in channels] == [
        "size of the encrypted zone", "locked key", "single updates of the encrypted zone",
        "single updates of the encrypted zone",
    ]  # fmt: skip
    assert parties.component.cohort_secret
    assert parties.component.site == "client"
    assert not make().cohort_secret
