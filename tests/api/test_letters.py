"""Letters between clients: relayed by the server, read by their receivers alone; and the exchange before uploads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fedplug import Client
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.letters import SEALED
from toy_components import recipe_of
from toy_negotiations import SECRET, Ring
from toy_protocol import calls_of, run_protocol


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_letters_are_relayed_in_every_round_and_the_server_cannot_read_them(engine: str) -> None:
    outcome = run_protocol(recipe_of(negotiate_mask={"use": "toy.ring"}), engine)
    asked = [call for m in outcome.wire.messages if m.receiver.startswith("client") for call in calls_of(m)]
    assert (asked.count("toy.ring.send"), asked.count("toy.ring.receive")) == (2 * 4, 2 * 4)
    assert asked.count("toy.ring.make_key") == 4  # once a run
    assert not any(SECRET[:8] in message.data for message in outcome.wire.messages)
    assert outcome.rows[-1].clients.dropped == {}


def client_of(component: Ring, client_id: int, round: int = 0) -> Client:
    client = Client(client_id=client_id)
    client.ctx = context(client, round)
    component.make_key(client)
    return client


def context(party: Any, round: int = 0) -> Any:
    return SimpleNamespace(round=round, digest="d", party=party)


def introduced() -> tuple[Ring, dict[int, Client]]:
    component = Ring(Ring.Options())
    component.name = "toy.ring"
    clients = {client_id: client_of(component, client_id) for client_id in range(3)}
    keys = {client_id: component.make_key(client) for client_id, client in clients.items()}
    for client in clients.values():
        component.take_keys(client, keys)
    return component, clients


def test_a_letter_opens_at_its_receiver_for_its_round_and_purpose_alone() -> None:
    component, clients = introduced()
    letter = component.write_letters(clients[0], {1: SECRET, 0: b"to myself"}, "shares")
    assert len(letter[1]) == len(SECRET) + SEALED
    assert component.read_letters(clients[1], {0: letter[1]}, "shares") == {0: SECRET}
    assert component.read_letters(clients[0], {0: letter[0]}, "shares") == {0: b"to myself"}
    spoilt = bytes([letter[1][0] ^ 1]) + letter[1][1:]
    for reader, sender, box, about in ((2, 0, letter[1], "shares"), (1, 2, letter[1], "shares"),
                                       (1, 0, letter[1], "votes"), (1, 0, spoilt, "shares")):  # fmt: skip
        with pytest.raises(MessageError, match=f"the letter of client {sender} about {about} does not open"):
            component.read_letters(clients[reader], {sender: box}, about)
    clients[1].ctx = context(clients[1], 1)
    with pytest.raises(MessageError, match="does not open"):
        component.read_letters(clients[1], {0: letter[1]}, "shares")


def test_public_keys_do_not_change_and_strangers_get_no_letter() -> None:
    component, clients = introduced()
    public = component.make_key(clients[0])
    assert component.make_key(clients[0]) == public  # once a run
    with pytest.raises(ProtectionError, match="client 0 has another public key now"):
        component.take_keys(clients[1], {0: bytes(32)})
    with pytest.raises(ProtectionError, match="was not told the public key of client 7"):
        component.write_letters(clients[0], {7: SECRET}, "shares")
    component.take_keys(clients[0], {7: bytes(32)})
    with pytest.raises(MessageError, match="none that X25519 can use"):
        component.write_letters(clients[0], {7: SECRET}, "shares")
