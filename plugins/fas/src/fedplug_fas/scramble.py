"""FAS's scrambling of the zone that is not encrypted, through a round: at the clients, at the server, and back.

The aggregation server holds the scrambling key, as in the paper. Against this server, scrambling protects nothing: it
is a second transport encryption, against a party that taps a line. The ledger counts the zone as sent in the clear,
after its noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import fedplug
from fedplug import Field, Opened, Reveals, Sealed, at_client
from fedplug.api import secrets
from fedplug.api.errors import MessageError, ProtectionError

from fedplug_fas.words import FixedWords, Scrambler

if TYPE_CHECKING:
    from fedplug import Client, Cohort, Facts, KeyServerLine, Known, Operations, Party, Total, Words


class Scramble(fedplug.Scrambler):
    """Scramble values that are not encrypted, under a key that the clients and the aggregation server share (FAS).

    Values become fixed-point words. In every word the bits are permuted and a keystream is added (`fedplug_fas.words`).
    The server, which holds the key, unscrambles each upload, adds the uploads, and scrambles the sum under fresh keys.
    The clients unscramble it. In a chain: std.clip_l1, std.laplace, fas.scramble.

    FAS, Algorithm 1, lines 20-25 (`seal`), Algorithm 2, lines 11-21 (`unseal`, `reseal`), Algorithm 3, lines 10-13
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

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Fixed-point words that the server and the clients can read, as the last link of the chain.

        The style as published hides nothing: a party that taps a line learns the permutation from the words alone. The
        bits of small numbers before the first significant one are all equal, and later bits are ever less alike.
        """
        hides: Literal["values", "nothing proved"] = "values" if self.options.style == "keyed" else "nothing proved"
        return (fedplug.Scramble(numbers=FixedWords(self.options.fraction_bits), hides=hides),)

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

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """Scrambles one client's words (Algorithm 1, lines 20-25)."""
        with client.operation(f"{self.name}.scramble", len(words.values)):
            header = ("upload", client.client_id, facts.round, words.zone)
            return Sealed((self._scrambler(client).scramble(words.values, *header),))

    def unseal(self, upload: Total, party: Party, facts: Facts) -> Opened:
        """Unscrambles an upload (Algorithm 2, lines 11-15). The core adds the values up."""
        with party.operation(f"{self.name}.unscramble", upload.size):
            return self._opened(upload, party, "upload", *upload.clients, facts.round, upload.zone)

    def reseal(self, words: Words, server: Party, facts: Facts) -> tuple[bytes, ...]:
        """Scrambles the sum (Algorithm 2, lines 16-21)."""
        with server.operation(f"{self.name}.scramble", len(words.values)):
            return (self._scrambler(server).scramble(words.values, "sum", facts.round, words.zone),)

    def open(self, total: Total, party: Party, facts: Facts) -> Opened:
        """Unscrambles the sum at a client (Algorithm 3, lines 10-13)."""
        with party.operation(f"{self.name}.unscramble", total.size):
            return self._opened(total, party, "sum", facts.round, total.zone)

    def _opened(self, total: Total, party: Party, *header: object) -> Opened:
        """Words of a message.

        Raises:
            MessageError: it is none under this key and header.
        """
        if len(total.parts) != 1:
            raise MessageError(f"{len(total.parts)} scrambled messages, expected one")
        return Opened(self._scrambler(party).unscramble(total.parts[0], total.size, *header))

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
