"""The keys of BFV and CKKS go where they should and nowhere else, and no plain value travels."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Total
from fedplug.api import codec
from fedplug.api.errors import MessageError, ProtectionError, TooFewClients
from fedplug_std import he_keys
from fedplug_std.bfv import Bfv
from fedplug_std.ckks import Ckks
from he_toys import Parties, make


def as_sum(upload: Block) -> Total:
    """An upload as a sum of one."""
    return Total(upload.zone, upload.size, upload.ciphertexts, (0,), 1)


def test_no_plain_value_is_in_the_ciphertexts(parties: Parties) -> None:
    values = np.random.default_rng(2).uniform(-1, 1, 1000).astype(np.float32)
    upload = b"".join(parties.seal(0, values).ciphertexts)
    assert not [index for index in range(999) if values[index : index + 2].tobytes() in upload]


def test_the_server_cannot_decrypt(parties: Parties) -> None:
    upload = parties.seal(0, [0.25])
    memory = parties.server.memory(parties.component)
    context = parties.component.backend.load_context(memory["context"])
    assert not context.has_secret_key()
    assert len(memory["context"]) < 200
    with pytest.raises(ProtectionError, match="no secret key"):
        parties.component.open(as_sum(upload), parties.server, parties.facts)
    assert (context.secret_key, context.public_key) == (b"", b"")
    with pytest.raises(ProtectionError, match="holds no key of the encryption, so it cannot encrypt"):
        parties.component.backend.encrypt(context, np.zeros((1, parties.component.slots), np.int64))


def test_no_byte_of_the_secret_key_passes_the_server(parties: Parties) -> None:
    stored = parties.holder.memory(parties.component)["context"]
    secret = parties.component.backend.dump_context(parties.component.backend.load_context(stored), secret_key=True)
    pieces = [secret[start : start + 24] for start in range(200, len(secret) - 200, 97)]
    assert len(pieces) > 300
    assert sum(piece in stored for piece in pieces) == len(pieces)  # so the search below can find something
    seen = b"".join(parties.seen_by_server)
    assert len(seen) > 40_000
    assert not [piece for piece in pieces if piece in seen]


def test_clients_get_no_secret_key_from_the_key_server(parties: Parties) -> None:
    component = parties.component
    contexts = [component.backend.load_context(c.memory(component)["context"]) for c in parties.clients.values()]
    assert {context.has_secret_key() for context in contexts} == {parties.component.site == "client"}
    if parties.component.site == "key_server":
        with pytest.raises(ProtectionError, match="no secret key"):
            parties.component.open(as_sum(parties.seal(0, [0.5])), parties.clients[0], parties.facts)


def test_memory_is_plain_data_and_rebuilds_after_a_checkpoint(parties: Parties) -> None:
    total = parties.add({index: parties.seal(index, [0.5, 0.25]) for index in range(3)})
    for party in (parties.server, parties.key_server, *parties.clients.values()):
        party.state, party.cache = codec.decode(codec.encode(party.state)), {}
    again = parties.add({index: parties.seal(index, [0.5, 0.25]) for index in range(3)})
    assert np.array_equal(parties.open(total).plain(), parties.open(again).plain())


def test_contexts_do_not_travel_with_messages(parties: Parties) -> None:
    upload = parties.seal(0, np.zeros(parties.component.slots - 1))
    assert len(upload.ciphertexts) == 1
    assert len(upload.ciphertexts[0]) < 66_000


def test_the_box_opens_only_for_clients_and_only_with_its_terms() -> None:
    parties = Parties(make(Bfv, key_holder="clients"), 3)
    made = parties.component.make_shared_key(parties.clients[0], 3)
    client = parties.clients[1]
    for terms in ({**made["terms"], "bits": made["terms"]["bits"] - 1}, {**made["terms"], "key": 5}):
        parties.publish({"terms": terms})
        with pytest.raises(MessageError, match="do not open"):
            parties.component.adopt_keys(client, made["keys"])
    parties.publish({"terms": made["terms"]})
    client.remembered.cohort_secret = bytes(32)
    with pytest.raises(MessageError, match="do not open"):
        parties.component.adopt_keys(client, made["keys"])
    client.memory(parties.component)["context"] = made["keys"]
    with pytest.raises(MessageError, match="not an encryption context"):
        he_keys.context_of(parties.component, client)


@pytest.mark.parametrize("kind", [Bfv, Ckks])
def test_too_few_max_clients_is_refused_before_any_key_is_made(kind: Any) -> None:
    parties = Parties(make(kind, max_clients=5), 6)
    assert parties.component.check(types.SimpleNamespace(clients=5)) == []
    assert len(parties.component.check(types.SimpleNamespace(clients=6))) == 1
    with pytest.raises(ProtectionError, match=r"max_clients=5 is fewer than the 6 clients.* raise max_clients to 6"):
        parties.setup()
    assert parties.seen_by_server == []


def test_a_leader_that_fails_is_named() -> None:
    parties = Parties(make(Bfv, key_holder="clients"), 3)
    parties.broken.add(0)
    with pytest.raises(TooFewClients, match=r"client 0 failed to make the key of std\.bfv"):
        parties.setup()


def test_a_party_without_keys_says_so() -> None:
    parties = Parties(make(Bfv), 3)
    with pytest.raises(ProtectionError, match=r"std\.bfv has no keys"):
        parties.seal(0, [1.0])


def test_clients_refuse_keys_made_for_fewer_clients(parties: Parties) -> None:
    more = Parties(parties.component, 6)
    more.publish(parties.facts.of(parties.component))
    more.clients[0].state = parties.clients[0].state
    with pytest.raises(ProtectionError, match="made for max_clients=5, but 6 clients"):
        more.seal(0, [1.0])
