"""Making, distributing and storing the keys of an encryption component.

With `key_holder: key_server`, the key server makes the pair and gives the clients a context with the public key alone.
With `key_holder: clients` one client makes a secret key, locks it under a key that only the clients share, and the
server relays the locked box without being able to open it. In both cases the aggregation server keeps only what it
needs for adding: bare parameters (0.1 kB), or a public modulus. Contexts travel once, before round 1, never with a
round's message.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import secrets as randomness
import weakref
from typing import TYPE_CHECKING, Any, Literal

import fedplug
from fedplug import Field, at_client, at_key_server
from fedplug.api import secrets
from fedplug.api.errors import FedplugError, MessageError, ProtectionError, TooFewClients
from fedplug.api.records import is_count, shown

if TYPE_CHECKING:
    from fedplug import Client, Cohort, Facts, KeyServer, KeyServerLine, Party
    from fedplug.api.operations import Party as SeenBy

Terms = dict[str, int]
"""Terms that the parties agreed on with the keys, such as `max_clients`, bits of a field, the number of the key."""

SINGLE_UPDATES = "single updates of the encrypted zone"


class Options(fedplug.Options):
    """Options that every encryption component has."""

    key_holder: Literal["key_server", "clients"] = Field(
        "key_server",
        description="the party that can decrypt: the key server, which opens sums only, or every client; one client "
        "that colludes with the server can then open every upload",
    )
    sums_visible_to: Literal["server", "clients"] = Field(
        "server", json_schema_extra={"formerly": "answer"},
        description="the parties that see the sums opened by the key server: the aggregation server, which passes them "
        "on to the clients, or the clients alone, with an aggregation server that relays them without reading",
    )  # fmt: skip
    range: float = Field(
        1.0, gt=0, allow_inf_nan=False,
        description="largest |update value x weight| that is represented; larger values saturate, and the share of "
        "them is logged",
    )  # fmt: skip
    max_clients: int | None = Field(
        None, ge=1, le=100_000, description="the most updates in one sum; default: all clients of the recipe"
    )


def reveals(options: Options, facts: Facts) -> list[fedplug.Reveals]:
    """The facts that encryption leaves visible, for the ledger."""
    channels = [
        fedplug.Reveals(
            "size of the encrypted zone", ("server",), note="the number of scalars is sent with the ciphertexts"
        )
    ]
    if options.key_holder == "clients":
        box = "parameters for adding, and the secret key in a box that only clients can open; made before any training"
        channels.append(
            fedplug.Reveals(
                "locked key", ("server",), covered_by="nothing to pay", asked=("make_shared_key",), note=box
            )
        )
        note = "all clients hold the one secret key; a client that has another's upload can open its values"
        channels.append(fedplug.Reveals(SINGLE_UPDATES, ("client_and_server",), note=note))
    else:
        note = "the public key and parameters for adding; the key server makes them before any training"
        channels.append(
            fedplug.Reveals("public key", ("server",), covered_by="nothing to pay", asked=("make_keys",), note=note)
        )
    # A client that holds the key subtracts its own upload from a sum of two.
    seen_by: SeenBy = "client" if options.key_holder == "clients" else "key_holder"
    least = 3 if options.key_holder == "clients" else 2
    if facts.min_clients < least:
        note = f"min_clients is {facts.min_clients}; with {least} or more, no opened sum shows one update"
        channels.append(fedplug.Reveals(SINGLE_UPDATES, (seen_by,), note=note))
    return channels


class Keyed(fedplug.Sealer):
    """An encryption, as its keys see it: it makes contexts with keys, and the parties that need them get them.

    Attributes:
        options: say who holds the key.
        backend: turns contexts into bytes and back; see `he_blocks.Backend`.
    """

    options: Any
    backend: Any

    @abc.abstractmethod
    def agree(self, max_clients: int) -> Any:
        """Checks that sums of that many clients fit.

        Raises:
            ProtectionError: they could overflow.
        """

    @abc.abstractmethod
    def new_keys(self, max_clients: int) -> tuple[Any, Terms]:
        """A context with new keys, and the terms of its use, `max_clients` among them.

        Raises:
            ProtectionError: the options cannot hold sums of that many clients.
        """

    @abc.abstractmethod
    def packing(self, terms: Terms, facts: Facts | None = None) -> Any:
        """How values become slots, as agreed when the keys were made: a `he_blocks.Packing`.

        Raises:
            KeyError: the terms lack something, or mean a choice that there is not.
        """

    def problems(self, num_clients: int) -> list[str]:
        """Why the options cannot hold sums of all clients; empty if they can."""
        max_clients = self.options.max_clients or num_clients
        if max_clients < num_clients:
            return [
                f"max_clients={max_clients} is fewer than the {num_clients} clients of the recipe, whose sum could "
                f"overflow; raise max_clients to {num_clients} or leave it out"
            ]
        try:
            self.agree(max_clients)
        except ProtectionError as error:
            return [str(error)]
        return []

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """Requests the keys and distributes them, before round 1.

        Raises:
            ProtectionError: the options cannot hold sums of that many clients, or the reply does not hold keys.
            TooFewClients: the client that makes the key failed.
        """
        for problem in self.problems(facts.num_clients):
            raise ProtectionError(f"{self.name}: {problem}")
        max_clients = self.options.max_clients or facts.num_clients
        if self.options.key_holder == "clients":
            leader = min(cohort.client_ids)
            replies = cohort.only([leader]).ask(self.make_shared_key, max_clients)
            if leader not in replies:
                raise TooFewClients(f"client {leader} failed to make the key of {self.name}; start the run again")
            maker, made = f"client {leader}", replies[leader]
        else:
            maker, made = "the key server", key_server.ask(self.make_keys, max_clients)
        if isinstance(made, dict) and isinstance(made.get("error"), str):
            raise ProtectionError(f"{self.name}: {made['error']}")
        if problem := _made_problem(self, made, max_clients):
            raise ProtectionError(f"{self.name}: {maker} makes the keys, but {problem}; start the run again")
        cohort.server.memory(self)["context"] = made["adding"]
        cohort.publish(self, {"terms": made["terms"]}, covered_by="nothing to pay")
        cohort.tell(self.adopt_keys, made["keys"])

    @at_client
    def make_shared_key(self, client: Client, max_clients: int) -> dict[str, Any]:
        """Where every client holds the key: makes the secret key that all clients share. One client does this, and the
        key leaves it only in a locked box.
        """
        try:
            context, terms = _numbered(*self.new_keys(max_clients))
        except ProtectionError as error:
            return {"error": str(error)}
        data = self.backend.dump_context(context, secret_key=True)
        box = secrets.lock(client.secret(self, "keys"), data, _purpose(self, terms))
        return {"adding": self.backend.dump_context(context), "keys": box, "terms": terms}

    @at_key_server
    def make_keys(self, key_server: KeyServer, max_clients: int) -> dict[str, Any]:
        """Where the key server holds the key: makes the key pair. The secret key stays here."""
        try:
            context, terms = _numbered(*self.new_keys(max_clients))
        except ProtectionError as error:
            return {"error": str(error)}
        key_server.memory(self)["context"] = self.backend.dump_context(context, secret_key=True)
        # Serialised without the secret key, since a context made public would keep a working decryptor.
        return {
            "adding": self.backend.dump_context(context),
            "keys": self.backend.dump_context(context, public_key=True),
            "terms": terms,
        }

    @at_client
    def adopt_keys(self, client: Client, keys: bytes) -> None:
        """Stores this client's context for encryption.

        Raises:
            MessageError: keys or terms are invalid, or the box does not open: it or the terms were altered, or this
                client has another cohort secret.
        """
        terms: Any = client.facts.of(self).get("terms")
        if problem := _bytes_problem("keys", keys) or _terms_problem(self, terms):
            raise MessageError(f"{self.name}: {problem}; this client refuses these keys")
        if self.options.key_holder == "clients":
            keys = secrets.unlock(client.secret(self, "keys"), keys, _purpose(self, terms))
        client.memory(self)["context"] = _same(keys)


@functools.lru_cache(maxsize=4)
def _same(keys: bytes) -> bytes:
    """The keys, as one object for all clients of a process with the same keys."""
    return keys


def context_of(component: Keyed, party: Party) -> tuple[Any, Terms]:
    """This party's encryption context, rebuilt from its memory once in a process, and the terms.

    Raises:
        ProtectionError: no keys were made yet.
        MessageError: the stored context is damaged.
    """
    memory, terms = party.memory(component), party.facts.of(component).get("terms")
    if "context" not in memory or terms is None:
        raise ProtectionError(f"{component.name} has no keys at this party; its setup runs once, before round 1")
    held = party.cache.get(component.name)
    if held is None or held.data is not memory["context"]:
        held = party.cache[component.name] = _held(component, memory["context"])
        memory["context"] = held.data  # equal bytes, once in this process
    return held.context, terms


class LastOpened:
    """The last small sum opened by parties of this process with one key: its identity, its words, and the time."""

    sum_of: Any = None
    found: fedplug.Opened
    seconds: float


def opened_of(component: Keyed, party: Party) -> LastOpened:
    """The opened sums of parties with the key of this one; after `context_of`."""
    opened: LastOpened = party.cache[component.name].opened
    return opened


class _Held:
    """A context and its bytes."""

    def __init__(self, data: bytes, context: Any) -> None:
        self.data, self.context, self.opened = data, context, LastOpened()


_IN_USE: weakref.WeakValueDictionary[tuple[str, type, bytes], _Held] = weakref.WeakValueDictionary()
"""Contexts of the parties in this process, by component, backend and all their bytes.

Parties share a context if their bytes, including keys, are equal: a party without a secret key has different bytes. A
context is removed with the last party that uses it.
"""


def _held(component: Keyed, data: bytes) -> _Held:
    # By digest, not by the bytes: dictionary keys would be one more copy of a secret key.
    place = component.name, type(component.backend), hashlib.sha256(data).digest()
    held = _IN_USE.get(place)
    if held is None or held.data != data:
        held = _IN_USE[place] = _Held(data, component.backend.load_context(data))
    return held


def _made_problem(component: Keyed, made: Any, max_clients: int) -> str:
    """The problem with the key maker's reply; empty if there is none."""
    if not isinstance(made, dict):
        return f"its answer is {shown(made)}, not keys by name"
    for name in ("adding", "keys"):
        if problem := _bytes_problem(name, made.get(name)):
            return problem
    if problem := _terms_problem(component, made.get("terms")):
        return problem
    granted = made["terms"]["max_clients"]
    return "" if granted == max_clients else f"they are for sums of {granted} clients, not of {max_clients}"


def _bytes_problem(name: str, data: Any) -> str:
    return "" if isinstance(data, bytes) else f"{name} is {shown(data)}, which must be bytes"


def _terms_problem(component: Keyed, terms: Any) -> str:
    """The problem with received terms; empty if they hold whole numbers by the names that the scheme reads."""
    if not isinstance(terms, dict) or not all(isinstance(name, str) for name in terms):
        return f"terms are {shown(terms)}, which must be whole numbers by name"
    for name, number in terms.items():
        if not is_count(number):
            return f"terms say {name[:40]}={shown(number)}, which must be a whole number >= 0"
    if lacking := sorted({"max_clients", "key"} - terms.keys()):
        return f"terms lack {lacking[0]}"
    try:
        component.packing(terms)
    except KeyError as error:  # a missing name, or an unknown choice
        return f"terms do not fit the scheme: they lack {error}, or mean a choice that it does not have"
    except (FedplugError, ArithmeticError, ValueError) as error:
        return f"terms do not fit the scheme: {error}"
    return ""


def _numbered(context: Any, terms: Terms) -> tuple[Any, Terms]:
    """The terms with a number of the key, by which the server detects an upload under another key.

    Drawn at random, and always of the same length in a message.
    """
    return context, {**terms, "key": 2**31 + randomness.randbelow(2**31)}


def _purpose(component: Keyed, terms: Terms) -> bytes:
    """Binds the box to the terms, so that a server that relays different terms is detected."""
    return f"{component.name} keys for {sorted(terms.items())}".encode()
