"""Shared code of additive encryption components, and the interface for new ones.

A component encrypts a zone at the clients (`seal`), adds ciphertexts at a server without a key (`add`), and opens sums
at the key holder (`open`). A new scheme is a subclass of `Encryption` with

    Options         a nested subclass of `he_keys.Options`: who holds the key, `range`, `max_clients`, and its own
    name            such as "std.bfv"; a class attribute
    slots           how many numbers a ciphertext adds side by side, at least 2: the first counts contributors
    position_block  how many words fill the other `slots - 1`; `packing.num_slots(position_block) == slots - 1`
    backend         a `Backend`: encrypts rows of slots, adds, decrypts, and turns contexts into bytes
    packing(terms)  a `Packing`: how values become words, and words slots
    agree(n)        raises `ProtectionError` where sums of n clients could overflow; called before any key is made
    new_keys(n)     (context, terms): a context (parameters and new keys), and what every party must know to use it, as
                    whole numbers, of which `max_clients` is one
    scheme()        its parameters, one line for the plan of a run and the record
    step(n)         the grid step of weighted values in sums of n clients, at its coarsest
    coarsest(n)     terms of sums of n clients before there are keys

`slots`, `position_block` and `backend` are attributes, of the class or set in `__init__`; nothing there may import a
heavy library. All else is inherited: making and distributing keys (`he_keys`), and the counting slot. `bfv.py` is the
example. The costly parts are measured as operations `<name>.encrypt`, `<name>.add` and `<name>.decrypt`, counted in
ciphertexts.

Each ciphertext carries one slot that counts contributors. So the party that decrypts learns the true number of added
updates, and the core refuses to use fewer than `min_clients`, whatever the server claims. This detects mistakes, lost
and doubled uploads. It does not stop a server that adds one upload several times on purpose: additive encryption is
malleable, and here as in the papers the server is honest but curious.
"""

from __future__ import annotations

import abc
import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from fedplug import Opened, Seal, Sealed
from fedplug.api.errors import MessageError, ProtectionError

from fedplug_std import he_keys
from fedplug_std.he_keys import Keyed, context_of, opened_of

if TYPE_CHECKING:
    from fedplug import (
        Client,
        Facts,
        Known,
        Operations,
        Party,
        Recipe,
        Reveals,
        Total,
        Words,
    )
    from fedplug.api.roles import Site
    from fedplug.api.words import Numbers
    from numpy.typing import NDArray

    from fedplug_std.he_keys import Terms

_KEPT_BYTES = 1 << 24
"""Largest number of ciphertexts of an opened sum that is kept until the next one; larger sums take too much memory."""


class Backend(Protocol):
    """The cryptography of a component: all code that depends on the form of contexts and ciphertexts."""

    def encrypt(self, context: Any, rows: NDArray[Any]) -> tuple[bytes, ...]:
        """One serialised ciphertext for each row of slots, shape (m, slots), of the codec's dtype; m may be 0.

        The context is a client's, dumped with the public key or with the secret key.
        """

    def add(self, context: Any, uploads: Iterable[Sequence[bytes]], slots: int) -> tuple[bytes, ...]:
        """Sums ciphertexts index by index; `uploads` are the ciphertexts of each, equally many, at least one.

        The context is the server's, dumped without keys.

        Raises:
            MessageError: a ciphertext is damaged, or of other parameters. Raised before the next upload is drawn from
                the iterable: so the client of the last upload is blamed.
        """

    def decrypt(self, context: Any, ciphertexts: Sequence[bytes], slots: int) -> NDArray[Any]:
        """Rows of summed slots, shape (m, slots).

        Raises:
            ProtectionError: the context holds no secret key.
            MessageError: a ciphertext is damaged, or of other parameters.
        """

    def dump_context(self, context: Any, *, public_key: bool = False, secret_key: bool = False) -> bytes:
        """A context as bytes: the parameters for adding, the requested keys, and nothing else."""

    def load_context(self, data: bytes) -> Any:
        """Inverse of `dump_context`.

        Raises:
            MessageError: the bytes are not a context.
        """


class Packing(Protocol):
    """How values become words, and words slots that can be added."""

    @property
    def numbers(self) -> Numbers:
        """How values become words."""

    count_unit: float
    """Each contributor's value in the slot that counts contributors."""

    def pack(self, words: NDArray[Any]) -> NDArray[Any]:
        """Slots, shape (..., num_slots(n)), of words (..., n)."""

    def num_slots(self, size: int) -> int:
        """Number of slots for `size` words."""

    def unpack(self, slots: NDArray[Any], size: int) -> NDArray[Any]:
        """The sums of `size` words, (..., size), from sums of slots, which may be padded at the end."""

    def counts(self, slots: NDArray[Any]) -> NDArray[np.int64]:
        """Contributors in each counting slot; -1 if it does not hold a whole number."""


class Encryption(Keyed):
    """An additive encryption component; the module's documentation describes subclasses."""

    slots: int
    position_block: int
    backend: Backend

    # -- declarations of a scheme ----------------------------------------------------------------------------------

    @abc.abstractmethod
    def scheme(self) -> str:
        """Its parameters in a line."""

    @abc.abstractmethod
    def step(self, num_clients: int) -> float:
        """Grid step of the weighted values in sums of that many clients, at its coarsest."""

    @abc.abstractmethod
    def packing(self, terms: Terms, facts: Facts | None = None) -> Packing:
        """How values become slots, as agreed when the keys were made.

        Raises:
            KeyError: the terms lack something, or mean a choice that there is not.
        """

    def coarsest(self, max_clients: int) -> Terms:
        """Terms of sums of that many clients before there are keys."""
        return {"max_clients": max_clients}

    # -- what the core asks before a run -------------------------------------------------------------------------------

    @property
    def site(self) -> Site:
        """Where sums are opened: `client` or `key_server`."""
        return "client" if self.options.key_holder == "clients" else "key_server"

    @property
    def cohort_secret(self) -> bool:
        """True if the clients hold the key, which then travels under their shared secret."""
        return self.site == "client"

    def describe(self) -> str:
        """One line for the plan of a run."""
        return f"{self.scheme()}; secret key at {'every client' if self.site == 'client' else 'the key server'}"

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Values leave encrypted, rounded to the scheme's grid."""
        options, clients = self.options, self.options.max_clients or facts.num_clients
        terms = facts.of(self).get("terms") or self.coarsest(clients)
        return (
            Seal(
                scheme=self.scheme(), opened_by=options.key_holder, sums_visible_to=options.sums_visible_to,
                numbers=self.packing(terms, facts).numbers, step=self.step(clients), position_block=self.position_block,
            ),
        )  # fmt: skip

    def check(self, recipe: Recipe) -> list[str]:
        """Problems with this number of clients, or with `sums_visible_to`."""
        problems = self.problems(recipe.clients)
        if self.options.sums_visible_to == "clients" and self.site == "client":
            problems.append("sums_visible_to: clients needs a key server; with key_holder: clients leave it out")
        return problems

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Leaks that no guarantee covers."""
        return he_keys.reveals(self.options, facts)

    # -- a round -------------------------------------------------------------------------------------------------------

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """Packs the words and encrypts them, with a counting slot in each ciphertext; no words give no ciphertexts.

        Raises:
            ProtectionError: the keys were made for fewer clients than the run has.
        """
        context, terms = context_of(self, client)
        if terms["max_clients"] < facts.num_clients:
            raise ProtectionError(
                f"{self.name}: the keys were made for max_clients={terms['max_clients']}, but {facts.num_clients} "
                f"clients take part; a sum could overflow, so this client does not encrypt"
            )
        packing = self.packing(terms, facts)
        slots, width = packing.pack(words.values).reshape(-1), self.slots - 1
        rows = np.zeros((math.ceil(len(slots) / width), self.slots), slots.dtype)
        rows[:, 0] = packing.count_unit
        full = len(slots) // width
        rows[:full, 1:] = slots[: full * width].reshape(full, width)
        if full < len(rows):
            rows[full, 1 : 1 + len(slots) - full * width] = slots[full * width :]
        del slots
        with client.operation(f"{self.name}.encrypt", len(rows)):
            return Sealed(self.backend.encrypt(context, rows))

    def add(self, uploads: Sequence[Total], server: Party, facts: Facts) -> tuple[bytes, ...]:
        """Adds ciphertexts at the server, which holds no secret key, with the bare parameters."""
        context, _ = context_of(self, server)
        with server.operation(f"{self.name}.add", sum(len(each.parts) for each in uploads)):
            return self.backend.add(context, (each.parts for each in uploads), self.slots)

    def open(self, total: Total, party: Party, facts: Facts) -> Opened:
        """Decrypts the sum at the key holder, and says how many updates each ciphertext really holds.

        Parties of a process that hold the same key decrypt a small sum once; each reports the time that it takes.

        Raises:
            ProtectionError: this party holds no secret key.
            MessageError: a ciphertext is damaged or missing.
        """
        context, terms = context_of(self, party)
        packing, width = self.packing(terms, facts), self.slots - 1
        expected = math.ceil(packing.num_slots(total.size) / width) if total.index is None else len(total.index)
        if len(total.parts) != expected:
            raise MessageError(f"{len(total.parts)} ciphertexts for {total.size} values, expected {expected}")
        held = opened_of(self, party)
        sum_of = total.parts, total.size, terms
        small = total.index is None and sum(map(len, total.parts)) <= _KEPT_BYTES
        with party.operation(f"{self.name}.decrypt", expected):
            if small and held.sum_of == sum_of:
                party.saved(held.seconds)
                return held.found
            started = time.perf_counter()
            rows = self.backend.decrypt(context, total.parts, self.slots)
        counts = packing.counts(rows[:, 0])
        if total.index is None:
            found = Opened(packing.unpack(rows[:, 1:].reshape(-1), total.size), counts)
        else:
            found = Opened(packing.unpack(rows[:, 1:], self.position_block), counts)
        if small:
            held.sum_of, held.found, held.seconds = sum_of, found, time.perf_counter() - started
        return found
