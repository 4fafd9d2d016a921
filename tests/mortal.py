"""Sealers whose clients kill the program that holds them, or lie, in one phase of one round: a user's own file.

Recipes name it as such (`fault_toys.MORTAL`), so that it travels to the processes, actors and parties of every engine.
Each of `faults` is a round (from 1), a client and its fault there:

    introduced    killed before it has made the key pair of its letters; in the set-up, round 0
    advertise     killed before it has made keys
    dealt         killed after it has dealt shares of them, before any client has one
    sealing       killed after others have its shares, before it has an upload
    sealed        killed with its upload in hand
    agreeing      killed when it is asked to sign who is in the sum
    opening       killed when it is asked for shares
    answered      killed with its shares in hand, after it has noted that it gave them
    lies          its shares are wrong
    replays       its letters are those of the round before
"""

from __future__ import annotations

import os
import signal
from typing import Any

from fedplug import Client, Facts, Field, Options, Sealed, Words, at_client
from fedplug.api.errors import ProtectionError
from fedplug_baselines import lwe
from fedplug_secagg import bonawitz, plus


class Faults(Options):
    """The fault."""

    faults: tuple[str, ...] = Field((), description="what happens when, and to whom")
    raises: bool = Field(False, description="an error in the place of a kill: the same round, in one process")


class Mortal:
    """Acts as a sealer until its fault is due."""

    def has(self: Any, client: Client, what: str) -> bool:
        """Whether this fault is due at the client in this round."""
        return f"{client.facts.round + 1} {client.client_id} {what}" in self.options.faults

    def dies(self: Any, client: Client, what: str) -> None:
        """Kills this process, as `kill -9` does."""
        if self.has(client, what):
            if self.options.raises:
                raise ProtectionError("as if it had been killed")
            os.kill(os.getpid(), signal.SIGKILL)

    def seal(self: Any, words: Words, client: Client, facts: Facts) -> Sealed:
        """Before it, and after it."""
        self.dies(client, "sealing")
        found: Sealed = super().seal(words, client, facts)  # type: ignore[misc]
        self.dies(client, "sealed")
        return found


class Masks(Mortal):
    """The exchange of masks."""

    @at_client
    def make_key(self: Any, client: Client) -> bytes:
        """Before it."""
        self.dies(client, "introduced")
        return super().make_key(client)  # type: ignore[misc]

    @at_client
    def advertise(self: Any, client: Client) -> bytes:
        """Before it."""
        self.dies(client, "advertise")
        return super().advertise(client)  # type: ignore[misc]

    @at_client
    def share_keys(self: Any, client: Client, asked: tuple[int, dict[int, bytes]]) -> list[bytes]:
        """After it."""
        letters = super().share_keys(client, asked)  # type: ignore[misc]
        self.dies(client, "dealt")
        former = client.memory(self).get("former", letters)
        client.memory(self)["former"] = letters
        return former if self.has(client, "replays") else letters

    @at_client
    def unmask(self: Any, client: Client, asked: tuple[Any, ...]) -> list[bytes]:
        """Before it, after it, or with one bit of each share flipped."""
        self.dies(client, "opening")
        shares = super().unmask(client, asked)  # type: ignore[misc]
        self.dies(client, "answered")
        if self.has(client, "lies"):
            return [bytes([share[0] ^ 1]) + share[1:] for share in shares]
        return shares


class Bonawitz(Masks, bonawitz.Bonawitz):
    """`secagg.bonawitz` that fails as told."""

    class Options(Faults, bonawitz.Bonawitz.Options):
        """And when."""

    options: Options

    @at_client
    def agree(self, client: Client, inside: list[int]) -> bytes:
        """Before it."""
        self.dies(client, "agreeing")
        return super().agree(client, inside)


class Plus(Masks, plus.SecAggPlus):
    """`secagg.plus` that fails as told."""

    class Options(Faults, plus.SecAggPlus.Options):
        """And when."""

    options: Options


class Lwe(Mortal, lwe.Lwe):
    """`baselines.lwe` that fails as told."""

    class Options(Faults, lwe.Lwe.Options):
        """And when."""

    options: Options

    @at_client
    def sum_of_shares(self, client: Client, asked: tuple[str, dict[int, bytes]]) -> Any:
        """Before it, and after it."""
        self.dies(client, "opening")
        found = super().sum_of_shares(client, asked)
        self.dies(client, "answered")
        return found
