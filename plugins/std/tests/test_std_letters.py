"""Letters between clients: relayed by the server, read only by their receivers. Also the exchange before uploads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fedplug import Client
from fedplug.api import secrets
from fedplug.api.errors import MessageError, ProtectionError, SetupError
from fedplug_std.letters import SEALED, read_signers, read_signing_key
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
    client.facts = context(client, round)
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
    clients[1].facts = context(clients[1], 1)
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


# -- signed keys -------------------------------------------------------------------------------------------------------


class Signed(Ring):
    """The ring, with keys that are signed in the run."""

    def signers(self) -> dict[int, bytes]:
        return {}


class Listed(Signed):
    """With a list."""

    known: dict[int, bytes] = {}  # noqa: RUF012  # of one test

    def signers(self) -> dict[int, bytes]:
        return self.known


def keys_of(component: Ring, clients: dict[int, Client]) -> dict[int, bytes]:
    return {client_id: component.make_key(client) for client_id, client in clients.items()}


def test_a_signed_key_that_was_swapped_is_refused_with_whose_it_is() -> None:
    component = Signed(Signed.Options())
    component.name = "toy.ring"
    clients = {client_id: client_of(component, client_id) for client_id in range(3)}
    keys = keys_of(component, clients)
    assert keys == keys_of(component, clients)
    stranger = client_of(component, 1)
    component.take_keys(clients[0], {2: keys[2]})
    for swapped, problem in (
        (secrets.key_pair()[1] + keys[1][32:], "client 1: its public key is not signed by it"),
        (keys[2], "client 1: its public key is not signed by it"),  # a client's is signed with its number
        (keys[1][:32], "client 1: its public key is not 128 bytes"),
    ):
        with pytest.raises(ProtectionError, match=problem):
            component.take_keys(clients[0], {1: swapped})
    component.take_keys(clients[0], {1: keys[1]})
    with pytest.raises(ProtectionError, match=r"client 1: .* another signing key than the one that it had before"):
        component.take_keys(clients[0], {1: component.make_key(stranger)})
    # The server's first keys are believed. A list of keys prevents that.
    component.take_keys(clients[2], {1: component.make_key(stranger)})


def test_a_list_leaves_the_server_nothing_to_introduce() -> None:
    component = Listed(Listed.Options())
    component.name = "toy.ring"
    pairs = {client_id: secrets.signing_pair() for client_id in range(2)}
    component.known.update({client_id: public for client_id, (_, public) in pairs.items()})
    clients = {}
    for client_id in range(2):
        clients[client_id] = Client(client_id=client_id, signing_key=pairs[client_id][0])
        clients[client_id].facts = context(clients[client_id])
    keys = keys_of(component, clients)
    component.take_keys(clients[0], {1: keys[1]})
    own = Signed(Signed.Options())
    own.name = "toy.ring"
    with pytest.raises(ProtectionError, match=r"client 1: .* another signing key than the one in the list"):
        component.take_keys(clients[0], {1: own.make_key(client_of(own, 1))})
    clients[1].signing_key = pairs[0][0]
    with pytest.raises(ProtectionError, match="client 1 is not the one that the recipe lists"):
        component.sign(clients[1], "something")


def test_a_statement_counts_for_its_signer_round_component_and_content_alone() -> None:
    component = Signed(Signed.Options())
    component.name = "toy.ring"
    clients = {client_id: client_of(component, client_id) for client_id in range(3)}
    keys = keys_of(component, clients)
    for client in clients.values():
        component.take_keys(client, keys)
    signature = component.sign(clients[1], "the vote", [1, 2])
    component.require_signed(clients[0], 1, signature, "the vote", [1, 2])
    for other, given, statement in (
        (2, signature, ("the vote", [1, 2])), (1, signature, ("the vote", [1, 3])), (1, signature, ("a vote", [1, 2])),
        (1, signature[:-1], ("the vote", [1, 2])), (1, None, ("the vote", [1, 2])),
        (7, signature, ("the vote", [1, 2])),
    ):  # fmt: skip
        with pytest.raises(ProtectionError, match=f"of client {other} is not signed by it for round 1"):
            component.require_signed(clients[0], other, given, *statement)
    clients[0].facts = context(clients[0], 1)
    with pytest.raises(ProtectionError, match="not signed by it for round 2"):
        component.require_signed(clients[0], 1, signature, "the vote", [1, 2])


def test_signing_keys_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert dict(read_signers(b"# sites\n\nclient:4 " + line + b" me@site\n", "signers")) == {4: public}
    plain = serialization.NoEncryption()
    ssh = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, plain)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    assert read_signing_key(ssh, "key") == read_signing_key(pem, "key") == key.private_bytes_raw()
    other = generate_private_key(SECP256R1())
    wrong = other.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    for content in (wrong, line, b""):
        with pytest.raises(SetupError, match=r"key holds no Ed25519 private key without a password; .*ssh-keygen"):
            read_signing_key(content, "key")
