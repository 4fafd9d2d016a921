"""Letters: what clients tell each other through the server, which relays them and cannot read them.

Every client makes an X25519 key pair, once a run. Two of them share a key, which both work out (HKDF-SHA256 of their
Diffie-Hellman secret); a letter is locked under it (ChaCha20-Poly1305, random nonce) and bound to the recipe, the
component, the round, what it is about, its sender and its receiver, so that it opens nowhere else.

This holds against a server that is honest but curious. The server relays the public keys too, and could put its own in
their place: without certificates nobody can tell (docs/edges/encryption.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedplug.api import secrets
from fedplug.api.component import at_client
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.roles import Component, Reveals

if TYPE_CHECKING:
    from fedplug.api.cohort import Cohort
    from fedplug.api.parties import Client, Context

_PRIVATE, _PUBLIC, _OTHERS = "letters: private key", "letters: public keys", "letters: keys of others"
SEALED = 28
"""Bytes by which a letter is longer than what it holds: the nonce, and the tag of the cipher."""


class Correspondent(Component):
    """A component whose clients write letters to each other; a second base: `class Mine(Correspondent, Sealer)`.

    In `setup` or `prepare` it calls `introduce`; at a client `write_letters` gives what to answer, the server hands
    each receiver its own (`cohort.ask_each`), and `read_letters` reads them there.
    """

    def introduce(self, cohort: Cohort, ctx: Context, among: Mapping[int, Iterable[int]] | None = None) -> None:
        """Has clients make their key pairs, where they have none yet, and tells each the public keys of others.

        Args:
            cohort: those that are introduced.
            ctx: at the server.
            among: by client, to whom it will write or who will write to it; None: everybody in the cohort.

        Raises:
            TooFewClients: fewer than `min_clients` have made a key.
        """
        keys: dict[int, bytes] = ctx.party.memory(self).setdefault(_PUBLIC, {})
        if new := [client_id for client_id in cohort.client_ids if client_id not in keys]:
            for client_id, key in cohort.only(new).ask(self.make_key).items():
                if isinstance(key, bytes) and len(key) == 32:
                    keys[client_id] = key
                else:
                    cohort.drop(client_id, f"{self.name}: its public key is not 32 bytes")
        present = [client_id for client_id in cohort.client_ids if client_id in keys]
        if among is None:
            cohort.tell(self.take_keys, {client_id: keys[client_id] for client_id in present})
            return
        told: dict[int, list[int]] = ctx.party.memory(self).setdefault(_OTHERS, {})
        for client_id in present:
            before = told.get(client_id, [])
            if new := [other for other in among.get(client_id, ()) if other in keys and other not in before]:
                cohort.tell_each(self.take_keys, {client_id: {other: keys[other] for other in new}})
                told[client_id] = [*before, *new]

    @at_client
    def make_key(self, client: Client) -> bytes:
        """Makes this client's key pair of the run, once; gives the public half."""
        memory = client.memory(self)
        if _PRIVATE not in memory:
            memory[_PRIVATE], memory[_PUBLIC] = secrets.key_pair()
        public: bytes = memory[_PUBLIC]
        return public

    @at_client
    def take_keys(self, client: Client, keys: dict[int, bytes]) -> None:
        """Keeps public keys of others. That of a client which it has already does not change any more."""
        others = client.memory(self).setdefault(_OTHERS, {})
        for other, key in keys.items():
            if others.setdefault(other, key) != key:
                raise ProtectionError(f"{self.name}: client {other} has another public key now; keys stay as they are")

    def write_letters(self, client: Client, contents: Mapping[int, bytes], about: str) -> dict[int, bytes]:
        """Letters of this round to other clients, or to itself, by receiver; each can be read there alone.

        Args:
            client: who writes.
            contents: by receiver.
            about: binds a letter to what it is for.

        Raises:
            ProtectionError: it was not told a receiver's public key.
        """
        me = client.client_id
        return {
            other: secrets.lock(self._shared(client, other), content, self._place(client, me, other, about))
            for other, content in contents.items()
        }

    def read_letters(self, client: Client, letters: Mapping[int, bytes], about: str) -> dict[int, bytes]:
        """What letters of this round to this client hold, by sender.

        Raises:
            MessageError: one was altered, or is for somebody, some round or something else; names the sender.
            ProtectionError: it was not told a sender's public key.
        """
        contents = {}
        for other, letter in letters.items():
            place = self._place(client, other, client.client_id, about)
            try:
                contents[other] = secrets.unlock(self._shared(client, other), letter, place)
            except MessageError as error:
                raise MessageError(f"{self.name}: the letter of client {other} about {about} does not open") from error
        return contents

    def correspondence(self) -> Reveals:
        """What the keys show, for `reveals`."""
        note = "halves of key pairs that are drawn before any training; letters under them are relayed unread"
        return Reveals("public keys", ("aggregator",), covered_by="nothing to pay", asked=("make_key",), note=note)

    def _shared(self, client: Client, other: int) -> bytes:
        """The key of this client and another one."""
        memory: dict[str, Any] = client.memory(self)
        public = memory.get(_OTHERS, {}).get(other)
        if other == client.client_id:
            public = memory.get(_PUBLIC)
        if public is None or _PRIVATE not in memory:
            raise ProtectionError(
                f"{self.name}: client {client.client_id} was not told the public key of client {other}"
            )
        keys: dict[bytes, bytes] = client.cache.setdefault(f"{self.name} letters", {})
        if public not in keys:
            ends = sorted((client.client_id, other))
            keys[public] = secrets.shared(memory[_PRIVATE], public, client.ctx.digest, self.name, "letters", *ends)
        return keys[public]

    def _place(self, client: Client, sender: int, receiver: int, about: str) -> bytes:
        return f"{client.ctx.digest} {self.name} round {client.ctx.round} {about} from {sender} to {receiver}".encode()
