"""Shared code of additive encryption components, and the interface for new ones.

A component encrypts a zone at the clients (`seal`), adds ciphertexts at a server without a key (`add_blocks`), and
opens sums at the key holder (`open`). A new scheme is a subclass of `Encryption` with

    Options         a nested subclass of `he_keys.Options`: who holds the key, `range`, `max_clients`, and its own
    name            such as "std.bfv"; a class attribute
    slots           how many numbers a ciphertext adds side by side, at least 2: the first counts contributors
    position_block  how many values fill the other `slots - 1`; `codec.num_slots(position_block) == slots - 1`
    backend         a `Backend`: encrypts rows of slots, adds, decrypts, and turns contexts into bytes
    codec(terms)    a `Codec`: turns values into slots, and sums of slots into values
    agree(n)        raises `ProtectionError` where sums of n clients could overflow; called before any key is made
    new_keys(n)     (context, terms): a context (parameters and new keys), and what every party must know to use it, as
                    whole numbers, of which `max_clients` is one
    scheme()        its parameters, one line for the plan of a run and the record
    step(n)         the grid step of weighted values in sums of n clients

`slots`, `position_block` and `backend` are attributes, of the class or set in `__init__`; nothing there may import a
heavy library. All else is inherited: making and distributing keys (`he_keys`), weighting, the counting slot and the
checks of uploads and sums (`he_sums`), gathered zones (`he_gathered`) and zones in which each client has its own
positions (`he_positions`). `bfv.py` is the example. The costly parts are measured as operations `<name>.encrypt`,
`<name>.add` and `<name>.decrypt`, counted in ciphertexts.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import fedplug
import numpy as np
from fedplug import Seal, at_client, at_key_server

from fedplug_std import he_keys, he_sums

if TYPE_CHECKING:
    from fedplug import (
        Block,
        Client,
        Cohort,
        Facts,
        KeyServer,
        KeyServerLine,
        Known,
        Operations,
        Party,
        Recipe,
        Reveals,
    )
    from fedplug.api.roles import Site
    from numpy.typing import NDArray

    from fedplug_std.he_keys import Terms


class Backend(Protocol):
    """The cryptography of a component: all code that depends on the form of contexts and ciphertexts."""

    def encrypt(self, context: Any, rows: NDArray[Any]) -> tuple[bytes, ...]:
        """One serialised ciphertext for each row of slots, shape (m, slots), of the codec's dtype; m may be 0.

        The context is a client's, dumped with the public key or with the secret key.
        """

    def add(self, context: Any, uploads: Iterable[tuple[str, Sequence[bytes]]], slots: int) -> tuple[bytes, ...]:
        """Sums ciphertexts index by index; `uploads` are (whose, ciphertexts), all of the same length, at least one.

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


class Codec(Protocol):
    """Turns values into slots that can be added, and sums of slots into values."""

    count_unit: float
    """Each contributor's value in the slot that counts contributors."""

    def encode(self, values: NDArray[Any]) -> tuple[NDArray[Any], float]:
        """Slots of one update, shape (num_slots(n),) for values (n,), and the share of values that saturated.

        Raises:
            ProtectionError: a value is NaN or infinite.
        """

    def num_slots(self, size: int) -> int:
        """Number of slots for `size` values."""

    def decode(self, slots: NDArray[Any], size: int, contributors: int) -> NDArray[np.float32]:
        """The sum of `contributors` updates, shape (size,), from at least `num_slots(size)` slots.

        Raises:
            ProtectionError: this number of updates cannot give such a sum. The message must not contain decrypted
                values.
        """

    def counts(self, slots: NDArray[Any]) -> NDArray[np.int64]:
        """Contributors in each counting slot; -1 if it does not hold a whole number."""


class Encryption(fedplug.Sealer):
    """An additive encryption component; the module's documentation describes subclasses."""

    slots: int
    position_block: int
    backend: Backend

    def __init__(self, options: Any) -> None:
        self.options: Any = options

    # -- declarations of a scheme ----------------------------------------------------------------------------------

    @abc.abstractmethod
    def scheme(self) -> str:
        """Its parameters in a line."""

    @abc.abstractmethod
    def step(self, num_clients: int) -> float:
        """Grid step of the weighted values in sums of that many clients, at its coarsest."""

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
    def codec(self, terms: Terms) -> Codec:
        """How values become slots, as agreed when the keys were made."""

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
        """Values leave encrypted, rounded to the scheme's grid; once, as the last link.

        Raises:
            Misplaced: they are encrypted already.
        """
        known.before("encryption", "encrypt once: a zone's chain holds one encryption, as its last link")
        options = self.options
        return (
            Seal(
                scheme=self.scheme(), opened_by=options.key_holder, sums_visible_to=options.sums_visible_to,
                range=options.range, step=self.step(options.max_clients or facts.num_clients),
                position_block=self.position_block,
            ),
        )  # fmt: skip

    def check(self, recipe: Recipe) -> list[str]:
        """Problems with this number of clients, or with `sums_visible_to`."""
        problems = he_keys.problems(self, recipe.clients)
        if self.options.sums_visible_to == "clients" and self.site == "client":
            problems.append("sums_visible_to: clients needs a key server; with key_holder: clients leave it out")
        return problems

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Leaks that no guarantee covers."""
        return he_keys.reveals(self.options, facts)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """Requests the keys and distributes them, before round 1."""
        he_keys.distribute(self, cohort, key_server, facts)

    @at_client
    def make_shared_key(self, client: Client, max_clients: int) -> dict[str, Any]:
        """Where every client holds the key: makes the secret key that all clients share. One client does this."""
        return he_keys.make_shared_key(self, client, max_clients)

    @at_key_server
    def make_keys(self, key_server: KeyServer, max_clients: int) -> dict[str, Any]:
        """Where the key server holds the key: makes the key pair. The secret key stays here."""
        return he_keys.make_keys(self, key_server, max_clients)

    @at_client
    def adopt_keys(self, client: Client, keys: bytes, terms: Terms) -> None:
        """Stores this client's context for encryption."""
        he_keys.adopt_keys(self, client, keys, terms)

    # -- a round -------------------------------------------------------------------------------------------------------

    def seal(self, block: Block, client: Client, facts: Facts) -> Block:
        """Multiplies the client's weight in, encodes and encrypts; logs the share of values that saturated."""
        return he_sums.seal(self, block, client, facts)

    def add_blocks(self, blocks: dict[int, Block], server: Party, facts: Facts) -> Block:
        """Adds the clients' ciphertexts at the server, which holds no secret key."""
        return he_sums.add_blocks(self, blocks, server, facts)

    @property
    def joins(self) -> bool:
        """Whether it adds like the schemes here; a scheme with different packing may join sums differently."""
        return type(self).add_blocks is Encryption.add_blocks

    def join_sums(self, sums: Sequence[Block], server: Party, facts: Facts) -> Block:
        """Adds the ciphertexts of sums of different clients."""
        return he_sums.join_sums(self, sums, server)

    def open(self, block: Block, party: Party, facts: Facts) -> Block:
        """Decrypts the weighted sum at the key holder, unless it holds too few updates."""
        return he_sums.open_sum(self, block, party, facts)
