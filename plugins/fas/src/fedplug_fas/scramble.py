"""FAS's scrambling of the zone that is not encrypted, through a round: at the clients, at the server, and back.

The aggregation server holds the scrambling key, as in the paper. Against this server, scrambling protects nothing: it
is a second transport encryption, against a party that taps a line. The ledger counts the zone as sent in the clear,
after its noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Field, Misplaced, Reveals, add_blocks, at_client
from fedplug.api import secrets
from fedplug.api.errors import FedplugError, MessageError, ProtectionError

from fedplug_fas.words import Scrambler, to_values, to_words

if TYPE_CHECKING:
    from fedplug import Block, Client, Cohort, Facts, KeyServerLine, Known, Operations, Party


class Scramble(fedplug.Sealer):
    """Scramble values that are not encrypted, under a key that the clients and the aggregation server share (FAS).

    Values become fixed-point words. In every word the bits are permuted and a keystream is added (`fedplug_fas.words`).
    The server, which holds the key, unscrambles each upload, adds the uploads, and scrambles the sum under fresh keys.
    The clients unscramble it. In a chain: std.clip_l1, std.laplace, fas.scramble.

    FAS, Algorithm 1, lines 20-25 (`seal`), Algorithm 2, lines 11-21 (`add_blocks`), Algorithm 3, lines 10-13
    (`open`). The paper formats, adds noise and scrambles. Here noise comes before the format, since Laplace noise on
    hexadecimal text has no meaning. The title of Algorithm 3 speaks of restoring noise, but none of its lines does so,
    and neither does this component.

    Works with masks that differ from client to client. Positions then travel with the words, in the clear.
    """

    class Options(fedplug.Options):
        """How words are made and sent."""

        style: Literal["keyed", "static"] = Field(
            "keyed",
            description="keyed: fresh keys and an integrity tag for every message; static: the paper taken literally, "
            "one bit permutation for the whole run, no keystream, no nonce, no tag",
        )
        fraction_bits: int = Field(
            32, ge=8, le=52,
            description="bits after the point of a 64-bit word: values are rounded to 2^-bits, and saturate at "
            "2^(62-bits); their share is logged",
        )  # fmt: skip
        framing: Literal["binary", "hex"] = Field(
            "binary", description="hex: as hexadecimal text, like the paper, for twice the bytes and no protection"
        )

    def __init__(self, options: Options) -> None:
        self.options: Scramble.Options = options

    def check(self, recipe: Any) -> list[str]:
        """No component can protect scrambled words further."""
        found = []
        for zone, chain in recipe.protect.items():
            names = [use.name for use in chain]
            if self.name in names and names[-1] != self.name:
                found.append(f"{names[-1]} comes after it in the chain of zone {zone}; scrambling is the last link")
        return found

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Fixed-point words that the server and the clients can read, as the last link of the chain.

        The style as published hides nothing: a party that taps a line learns the permutation from the words alone. The
        bits of small numbers before the first significant one are all equal, and later bits are ever less alike.

        Raises:
            Misplaced: the values are scrambled or encrypted already.
        """
        if any(isinstance(closed, fedplug.Scramble) for closed in known.sealed):
            raise Misplaced(
                f"{self.name} must not come after {known.sealers[-1]} in the chain of zone {known.zone}; scramble "
                "once: a zone's chain holds one scrambling, as its last link"
            )
        known.before("encryption", "ciphertexts need no scrambling; put it on the zone that is not encrypted")
        bits = self.options.fraction_bits
        return (
            fedplug.Scramble(
                range=2.0 ** (62 - bits), step=2.0**-bits,
                hides="values" if self.options.style == "keyed" else "nothing proved",
            ),
        )  # fmt: skip

    # -- the key -------------------------------------------------------------------------------------------------------

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """The server draws the scrambling key and sends each client a copy that only that client can open (HPKE)."""
        key = secrets.draw()
        copies = {}
        for client_id, public_key in cohort.ask(self.publish).items():
            try:
                copies[client_id] = secrets.seal(key, public_key, self._purpose(facts, client_id))
            except Exception as error:
                cohort.drop(client_id, f"its public key for the scrambling key cannot be used: {error}")
        cohort.server.memory(self)["key"] = key
        cohort.tell_each(self.take_key, copies)

    @at_client
    def publish(self, client: Client) -> bytes:
        """A fresh public key (X25519, 32 bytes). The private half stays at the client."""
        client.cache[self.name], public_key = secrets.key_pair()
        return public_key

    @at_client
    def take_key(self, client: Client, sealed: bytes) -> None:
        """Opens this client's copy of the scrambling key.

        Raises:
            MessageError: it was altered, or was sealed for another party.
        """
        if self.name not in client.cache:
            raise MessageError(f"client {client.client_id} has published no key for {self.name}'s")
        purpose = self._purpose(client.facts, client.client_id)
        client.memory(self)["key"] = secrets.unseal(sealed, client.cache.pop(self.name), purpose)

    def _purpose(self, facts: Facts, client_id: int) -> bytes:
        return f"{self.name} key of {facts.digest} for client {client_id}".encode()

    def _scrambler(self, party: Party) -> Scrambler:
        memory = party.memory(self)
        if "key" not in memory:
            raise ProtectionError(f"{self.name} has no key at this party; its setup runs once, before round 1")
        return Scrambler(memory["key"], self.options.style, self.options.framing == "hex")

    # -- a round -------------------------------------------------------------------------------------------------------

    def seal(self, block: Block, client: Client, facts: Facts) -> Block:
        """Scrambles one client's values (Algorithm 1, lines 20-25). Logs the share that saturated.

        Raises:
            ProtectionError: a value is NaN or infinite, or this client has no key.
        """
        values = block.plain()
        if not np.isfinite(values).all():
            raise ProtectionError(
                f"client {client.client_id}: the {block.zone} zone holds NaN or infinite values, which are not "
                "fixed-point numbers; its training diverged: lower lr in train"
            )
        words, saturated = to_words(values, self.options.fraction_bits)
        client.log[f"{self.name}.saturated"] = saturated / max(1, block.size)
        scrambler = self._scrambler(client)
        with client.operation(f"{self.name}.scramble", block.size):
            message = scrambler.scramble(words, "upload", client.client_id, facts.round, block.zone)
        return block.replace(values=None, ciphertexts=(message,), sealed_by=self.name)

    def add_blocks(self, blocks: dict[int, Block], server: Party, facts: Facts) -> Block:
        """Unscrambles the uploads, adds them as plain values, scrambles the sum (Algorithm 2, lines 11-21).

        The order of the additions is that of plain uploads, so the sum differs from theirs only by the fixed point.

        Raises:
            MessageError: an upload does not open; its client is blamed.
            ProtectionError: an upload cannot be summed, or the words cannot hold a sum. The client with the largest
                value is blamed.
        """
        scrambler, plain = self._scrambler(server), {}
        for client_id, block in sorted(blocks.items()):
            try:
                with server.operation(f"{self.name}.unscramble", block.size):
                    plain[client_id] = self._opened(scrambler, block, "upload", client_id, facts.round, block.zone)
            except FedplugError as error:
                raise error.blame(client_id) from error.__cause__
        # The protocol has checked that each divisor is its client's weight.
        weights = {client_id: float(block.divisor) for client_id, block in plain.items()}
        total = add_blocks(plain, weights, server, facts)
        words, saturated = to_words(total.plain(), self.options.fraction_bits)
        if saturated:
            largest = {client_id: float(np.abs(block.plain()).max()) for client_id, block in plain.items()}
            worst = max(largest, key=largest.__getitem__)
            raise ProtectionError(
                f"{saturated} values of the {total.zone} sum exceed {2.0 ** (62 - self.options.fraction_bits):g}, the "
                f"largest that words with fraction_bits={self.options.fraction_bits} hold, and client {worst} sent the "
                f"largest; lower fraction_bits in {self.name}, or lr in train"
            ).blame(worst)
        with server.operation(f"{self.name}.scramble", total.size):
            message = scrambler.scramble(words, "sum", facts.round, total.zone)
        return total.replace(values=None, ciphertexts=(message,), sealed_by=self.name)

    def open(self, block: Block, party: Party, facts: Facts) -> Block:
        """Unscrambles the sum at a client (Algorithm 3, lines 10-13)."""
        with party.operation(f"{self.name}.unscramble", block.size):
            return self._opened(self._scrambler(party), block, "sum", facts.round, block.zone)

    def _opened(self, scrambler: Scrambler, block: Block, *header: object) -> Block:
        """The block with plain values.

        Raises:
            ProtectionError: another component sealed it.
            MessageError: it is not a message under this key and header.
        """
        if block.sealed_by != self.name or len(block.ciphertexts) != 1:
            raise ProtectionError(f"{self.name} cannot open a {block.zone} block sealed by {block.sealed_by}")
        words = scrambler.unscramble(block.ciphertexts[0], block.size, *header)
        values = to_values(words, self.options.fraction_bits)
        return block.replace(values=values, ciphertexts=(), sealed_by=None)

    # -- what it reveals -----------------------------------------------------------------------------------------------

    def reveals(self, facts: Facts) -> list[Reveals]:
        """The server reads everything: the ledger's epsilon counts these zones as sent in the clear.

        With the style as published, a party that taps a line does not even need the key.
        """
        note = (
            "the aggregation server holds the scrambling key and unscrambles every upload; scrambling hides nothing "
            "from it, and nothing from a client that taps another's line, since all clients hold the key too. Only "
            "noise counts, and epsilon counts no more than that"
        )
        if self.options.style == "static":
            note += (
                "; style: static: one bit permutation for the whole run follows from the scrambled words alone, so "
                "any party that taps a line reads them without a key"
            )
        keys = "drawn afresh at each client before round 1, from no data"
        return [
            Reveals("scrambled uploads", ("server", "client_and_server"), covered_by="epsilon", note=note),
            Reveals("public keys", ("server",), covered_by="nothing to pay", asked=("publish",), note=keys),
        ]

    def describe(self) -> str:
        """One line for the plan of the run."""
        keyed = self.options.style == "keyed"
        how = "AES keystream and keyed bit permutation" if keyed else "as published: one static bit permutation"
        return f"scrambled ({how}), {self.options.framing}; the aggregation server holds the key and sees through it"
