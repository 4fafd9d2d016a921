"""Contexts of encryption, which the parties of a process share if they hold the same keys."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from fedplug import Client, KeyServer
from fedplug.api.blocks import Block
from fedplug.api.errors import ProtectionError
from fedplug.api.parties import Server
from fedplug_std import he_keys
from fedplug_std.bfv import DEGREE, Bfv
from he_toys import closed, facts_of, make
from rlwe_toys import bfv


def parties(key_holder: str, count: int = 4) -> tuple[Any, Server, KeyServer, list[Client]]:
    component = make(Bfv, key_holder=key_holder)
    server, key_server, clients = Server(), KeyServer(), [Client(client_id=index) for index in range(count)]
    for client in clients:
        client.remembered.cohort_secret = bytes(32)
    if key_holder == "clients":
        made = component.make_shared_key(clients[0], count)
    else:
        made = component.make_keys(key_server, count)
    facts = facts_of(component, count, 2, terms=made["terms"])
    for party in (server, key_server, *clients):
        party.facts = facts
    server.memory(component)["context"] = made["adding"]
    for client in clients:
        component.adopt_keys(client, bytes(bytearray(made["keys"])))  # separate bytes, as from a message
    return component, server, key_server, clients


@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
def test_parties_of_a_process_share_a_context_and_its_bytes_if_they_hold_the_same_keys(key_holder: str) -> None:
    component, server, key_server, clients = parties(key_holder)
    contexts = [he_keys.context_of(component, client)[0] for client in clients]
    assert len({id(context) for context in contexts}) == 1
    assert len({id(client.memory(component)["context"]) for client in clients}) == 1
    at_server, _ = he_keys.context_of(component, server)
    assert at_server is not contexts[0]
    assert (at_server.public_key, at_server.secret_key) == (b"", b"")
    assert contexts[0].has_secret_key() == (key_holder == "clients")
    if key_holder == "key_server":
        holder, _ = he_keys.context_of(component, key_server)
        assert holder.has_secret_key()
        assert holder is not contexts[0]


def test_a_context_goes_with_its_last_party() -> None:
    component, _, _, clients = parties("clients")
    for client in clients:
        he_keys.context_of(component, client)
    mine = {place for place, held in he_keys._IN_USE.items() if held.data == clients[0].memory(component)["context"]}
    assert len(mine) == 1
    for client in clients:
        client.cache.clear()
    gc.collect()
    assert not mine & set(he_keys._IN_USE)


def test_a_party_that_gets_other_keys_gets_another_context() -> None:
    component, _, _, clients = parties("clients")
    first, _ = he_keys.context_of(component, clients[0])
    _, _, _, others = parties("clients")
    clients[0].state = others[0].state
    assert he_keys.context_of(component, clients[0])[0] is not first


def test_an_upload_of_a_client_with_the_key_takes_less_than_float32() -> None:
    component, _, _, clients = parties("clients")
    size = 50 * component.position_block
    upload = closed(Block("encrypted", size, np.zeros(size, np.float32)), clients[0], clients[0].facts)
    assert sum(map(len, upload.ciphertexts)) < 3.77 * size


def test_a_party_without_keys_cannot_encrypt_or_decrypt() -> None:
    backend, context, server = bfv(False)
    with pytest.raises(ProtectionError, match="it can only add"):
        backend.encrypt(server, np.zeros((1, DEGREE), np.int64))
    with pytest.raises(ProtectionError, match="no secret key"):
        backend.decrypt(server, backend.encrypt(context, np.zeros((1, DEGREE), np.int64)), DEGREE)


def test_keys_are_not_shown_with_a_context() -> None:
    _, context, _ = bfv(False)
    assert "key" not in repr(context)
