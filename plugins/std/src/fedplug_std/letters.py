"""Letters: what clients tell each other through the server, which relays them and cannot read them.

Every client makes an X25519 key pair, once a run. Two of them share a key, which both work out (HKDF-SHA256 of their
Diffie-Hellman secret); a letter is locked under it (ChaCha20-Poly1305, random nonce) and bound to the recipe, the
component, the round, what it is about, its sender and its receiver, so that it opens nowhere else.

Without signatures this holds against a server that is honest but curious. The server relays the public keys too, and
could put its own in their place: nobody can tell (docs/edges/encryption.md).

A component whose `signers` gives something has clients sign their keys (Ed25519), and can have them sign more. Whose
signature is whose comes from one of two places:

    a list     of all clients' public keys, a file of the recipe: every site holds its own copy, and the digest of the
               recipe binds it, so the server cannot change it. Each site has the private half for its client
    the run    clients make their key pairs in it, and keep the first public key that the server shows them of another
               client. A server that lies from the start, about all keys, is not noticed
"""

from __future__ import annotations

import base64
import binascii
import functools
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedplug.api import codec, secrets
from fedplug.api.component import at_client
from fedplug.api.errors import MessageError, ProtectionError, SetupError
from fedplug.api.parties import Client
from fedplug.api.roles import Component, Reveals

if TYPE_CHECKING:
    from fedplug.api.cohort import Cohort
    from fedplug.api.facts import Facts
    from fedplug.api.parties import Party

_PRIVATE, _PUBLIC, _OTHERS = "letters: private key", "letters: public keys", "letters: keys of others"
_SIGNING, _SIGNERS = "letters: signing key", "letters: signing keys of others"
SEALED = 28
"""Bytes by which a letter is longer than what it holds: the nonce, and the tag of the cipher."""
SIGNATURE = 64
"""Bytes of a signature."""
_KEY = 32


class Correspondent(Component):
    """A component whose clients write letters to each other; a second base: `class Mine(Correspondent, Sealer)`.

    In `setup` or `prepare` it calls `introduce`; at a client `write_letters` gives what to answer, the server hands
    each receiver its own (`cohort.ask_each`), and `read_letters` reads them there.
    """

    def signers(self) -> Mapping[int, bytes] | None:
        """By client, the Ed25519 public keys, 32 bytes, that all sites know. Empty: those of the run. None, as by
        default: nothing is signed. See `read_signers`.
        """
        return None

    def introduce(self, cohort: Cohort, facts: Facts, among: Mapping[int, Iterable[int]] | None = None) -> None:
        """Has clients make their key pairs, where they have none yet, and tells each the public keys of others.

        Args:
            cohort: those that are introduced.
            facts: at the server.
            among: by client, to whom it will write or who will write to it; None: everybody in the cohort.

        Raises:
            TooFewClients: fewer than `min_clients` have made a key.
        """
        keys: dict[int, bytes] = cohort.server.memory(self).setdefault(_PUBLIC, {})
        if new := [client_id for client_id in cohort.client_ids if client_id not in keys]:
            for client_id, key in cohort.only(new).ask(self.make_key).items():
                if problem := self._key_problem(facts, client_id, key, None):
                    cohort.drop(client_id, f"{self.name}: {problem}")
                else:
                    keys[client_id] = key
        present = [client_id for client_id in cohort.client_ids if client_id in keys]
        if among is None:
            cohort.tell(self.take_keys, {client_id: keys[client_id] for client_id in present})
            return
        told: dict[int, list[int]] = cohort.server.memory(self).setdefault(_OTHERS, {})
        for client_id in present:
            before = told.get(client_id, [])
            if new := [other for other in among.get(client_id, ()) if other in keys and other not in before]:
                cohort.tell_each(self.take_keys, {client_id: {other: keys[other] for other in new}})
                told[client_id] = [*before, *new]

    @at_client
    def make_key(self, client: Client) -> bytes:
        """Makes this client's key pair of the run, once; gives the public half, and with signatures the public half of
        its signing key and the signature over both.

        Raises:
            ProtectionError: the recipe lists signing keys, and this client does not have the private half of its key.
        """
        memory, signers = client.memory(self), self.signers()
        if _PRIVATE not in memory:
            memory[_PRIVATE], memory[_PUBLIC] = secrets.key_pair()
        public: bytes = memory[_PUBLIC]
        if signers is None:
            return public
        if not signers and _SIGNING not in memory:
            memory[_SIGNING], _ = secrets.signing_pair()
        _, signer = secrets.signing_pair(self._signing_key(client))
        introduction = self._introduction(client.facts, client.client_id, public, signer)
        return public + signer + self._signature(client, introduction)

    @at_client
    def take_keys(self, client: Client, keys: dict[int, bytes]) -> None:
        """Keeps public keys of others. That of a client which it has already does not change any more.

        Raises:
            ProtectionError: a key is another one now, or is not signed by its client; names the client.
        """
        memory = client.memory(self)
        others, known = memory.setdefault(_OTHERS, {}), memory.setdefault(_SIGNERS, {})
        for other, key in keys.items():
            if problem := self._key_problem(client.facts, other, key, known.get(other)):
                raise ProtectionError(f"{self.name}: client {other}: {problem}")
            if others.setdefault(other, key[:_KEY]) != key[:_KEY]:
                raise ProtectionError(f"{self.name}: client {other} has another public key now; keys stay as they are")
            if self.signers() is not None:
                known[other] = key[_KEY : 2 * _KEY]

    def _key_problem(self, facts: Facts, other: int, key: Any, before: bytes | None) -> str:
        """What is wrong with a client's key as `make_key` gives it, where another signing key was known of it or none;
        empty: nothing.
        """
        signers = self.signers()
        size = _KEY if signers is None else 2 * _KEY + SIGNATURE
        if not isinstance(key, bytes) or len(key) != size:
            return f"its public key is not {size} bytes"
        if signers is None:
            return ""
        public, signer = key[:_KEY], key[_KEY : 2 * _KEY]
        if signer != (signers.get(other) if signers else before or signer):
            where = "in the list that the recipe names" if signers else "that it had before"
            return f"its public key comes with another signing key than the one {where}; somebody may have put it there"
        if not secrets.signs(signer, key[2 * _KEY :], self._introduction(facts, other, public, signer)):
            return "its public key is not signed by it; somebody may have put another in its place"
        return ""

    # -- signatures ----------------------------------------------------------------------------------------------------

    def sign(self, client: Client, *statement: object) -> bytes:
        """This client's signature, 64 bytes, for this recipe, component and round.

        Args:
            client: who signs.
            statement: numbers, strings, bytes, lists of these; what it says, beginning with what it is about.

        Raises:
            ProtectionError: it has no signing key.
        """
        public = client.memory(self)[_PUBLIC]
        return self._signature(client, self._statement(client.facts, client.client_id, public, statement))

    def require_signed(self, party: Party, other: int, signature: Any, *statement: object) -> None:
        """Refuses what a client has not signed, in this round, for this recipe and component.

        Args:
            party: who looks: the server, or a client that was told the other's keys.
            other: who is said to have signed.
            signature: 64 bytes, or whatever came in their place.
            statement: as `sign` was given it.

        Raises:
            ProtectionError: it has not; names the client.
        """
        known = self._keys_of(party, other)
        if known is None or not isinstance(signature, bytes):
            signed = False
        else:
            signed = secrets.signs(known[1], signature, self._statement(party.facts, other, known[0], statement))
        if not signed:
            raise ProtectionError(
                f"{self.name}: {statement[0]} of client {other} is not signed by it for round {party.facts.round + 1}; "
                "somebody may have put another in its place"
            )

    def _keys_of(self, party: Party, other: int) -> tuple[bytes, bytes] | None:
        """A client's public key and its signing key, as a party was told them."""
        memory: dict[str, Any] = party.memory(self)
        if not isinstance(party, Client):
            key = memory.get(_PUBLIC, {}).get(other, b"")
            return (key[:_KEY], key[_KEY : 2 * _KEY]) if key else None
        keys, signers = memory.get(_OTHERS, {}), memory.get(_SIGNERS, {})
        return (keys[other], signers[other]) if other in signers else None

    def _signature(self, client: Client, statement: bytes) -> bytes:
        return secrets.sign(self._signing_key(client), statement)

    def _signing_key(self, client: Client) -> bytes:
        """The private half.

        Raises:
            ProtectionError: it has none, or another than the list says.
        """
        if not self.signers():
            key: bytes = client.memory(self)[_SIGNING]
            return key
        if problem := self.signing_problem(client.client_id, client.signing_key):
            raise ProtectionError(f"{self.name}: {problem}")
        assert client.signing_key is not None
        return client.signing_key

    def signing_problem(self, client_id: int, key: bytes | None) -> str:
        """Why a client cannot sign with the private key that its site has, or with none; empty: it can, or need not."""
        if not (signers := self.signers()):
            return ""
        if key is None:
            return (
                f"client {client_id} has no signing key, and the recipe lists its public half; give its site the "
                "private one (fedplug party --signing-key FILE), or, for a trial of the recipe on one machine, leave "
                "the list out"
            )
        if secrets.signing_pair(key)[1] != signers.get(client_id):
            return f"the signing key of client {client_id} is not the one that the recipe lists for it"
        return ""

    def _introduction(self, facts: Facts, client_id: int, public: bytes, signer: bytes) -> bytes:
        return codec.encode(["fedplug letters", facts.digest, self.name, client_id, public, signer])

    def _statement(self, facts: Facts, signer: int, public: bytes, statement: Iterable[object]) -> bytes:
        """The bytes that are signed. The signer's public key of the run among them, which was drawn for it: what was
        signed in another run of the same recipe does not count.
        """
        place = ["fedplug statement", facts.digest, self.name, facts.round]
        return codec.encode([*place, signer, public, list(statement)])

    # -- letters -------------------------------------------------------------------------------------------------------

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
        """The statement about the keys, for `reveals`."""
        note = "halves of key pairs that are drawn before any training; letters under them are relayed unread"
        return Reveals("public keys", ("server",), covered_by="nothing to pay", asked=("make_key",), note=note)

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
            keys[public] = secrets.shared(memory[_PRIVATE], public, client.facts.digest, self.name, "letters", *ends)
        return keys[public]

    def _place(self, client: Client, sender: int, receiver: int, about: str) -> bytes:
        facts = client.facts
        return f"{facts.digest} {self.name} round {facts.round} {about} from {sender} to {receiver}".encode()


@functools.lru_cache(maxsize=16)
def read_signers(content: bytes, file: str) -> Mapping[int, bytes]:
    """The public keys of a list, by client: what `signers` may give.

    Args:
        content: lines such as `client:3 ssh-ed25519 AAAA... a comment`, as OpenSSH's lists of allowed signers have
            them; the key is what `ssh-keygen -t ed25519` writes into the file that ends with .pub.
        file: its name, for errors.

    Raises:
        SetupError: a line is none of these, or names a client or a key twice; says which.
    """
    found: dict[int, bytes] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        who, _, digits = words[0].partition(":")
        key = _ssh_key(words[2]) if len(words) > 2 and words[1] == "ssh-ed25519" else None
        if who != "client" or not (digits.isascii() and digits.isdigit()) or key is None:
            raise SetupError(
                f"{file}, line {number}: {line[:60]!r} is not client:N ssh-ed25519 KEY, where ssh-keygen -t ed25519 "
                "makes the key"
            )
        if int(digits) in found or key in found.values():
            what = "client" if int(digits) in found else "key"
            raise SetupError(f"{file}, line {number}: this {what} is in the list already; each client has one key")
        found[int(digits)] = key
    return types.MappingProxyType(found)


def read_signing_key(content: bytes, file: str) -> bytes:
    """The private half of a signing key, 32 bytes.

    Args:
        content: an Ed25519 key without a password, as `ssh-keygen -t ed25519` writes it, or as PEM.
        file: its name, for errors.

    Raises:
        SetupError: it is none.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    for load in (load_ssh_private_key, load_pem_private_key):
        try:
            key = load(content, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        if isinstance(key, Ed25519PrivateKey):
            return key.private_bytes_raw()
    raise SetupError(
        f"{file} holds no Ed25519 private key without a password; make one with ssh-keygen -t ed25519 -N '' -f {file}"
    )


def _ssh_key(text: str) -> bytes | None:
    """The 32 bytes of an Ed25519 key as OpenSSH writes it; None: it is none."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    head = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"
    return data[len(head) :] if data.startswith(head) and len(data) == len(head) + _KEY else None
