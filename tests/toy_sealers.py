"""A seal whose shares meet at the clients: each sends its part of the masks of a sum to the others, not the server."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, FixedPoint, Known, Opened, Operations, Seal, Sealed, Total, Words, at_client
from fedplug.api import secrets
from fedplug.api.errors import TooFewClients
from fedplug.api.parties import Party, Server
from fedplug_std.letters import Correspondent
from numpy.typing import NDArray
from toy_base import Toy

STEP = 2.0**-20


def pad(seed: bytes, zone: str, size: int) -> NDArray[np.uint64]:
    """A mask that follows from a seed."""
    return np.frombuffer(hashlib.shake_256(seed + zone.encode()).digest(8 * size), np.uint64)


class Bare(Toy, fedplug.Sealer):
    """Hides nothing, and is as short as a sealer can be: words are their bytes."""

    site = "client"
    opened_by: Any = "clients"
    numbers: Any = FixedPoint(range=1.0, step=STEP)

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Closes the zone."""
        return (Seal(scheme="none", opened_by=self.opened_by, numbers=self.numbers),)

    def reveals(self, facts: Facts) -> Sequence[fedplug.Reveals]:
        """Nothing that the ledger does not see."""
        return ()

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """Their bytes."""
        return Sealed((words.values.astype(np.int64).tobytes(),))

    def add(self, uploads: Sequence[Total], server: Party, facts: Facts) -> tuple[bytes, ...]:
        """The sum, modulo 2^64."""
        return (np.sum([np.frombuffer(each.parts[0], np.int64) for each in uploads], 0).tobytes(),)

    def open(self, total: Total, party: Any, facts: Facts) -> Opened:
        """Anybody can."""
        return Opened(np.frombuffer(total.parts[0], np.int64))


class AtClients(Correspondent, Toy, fedplug.Sealer):
    """Masks of pads, one dealt to each other client. All pads together remove a client's masks.

    A single client in league with the server sees sums of pads, since each client sends the others such a sum.
    """

    site = "client"
    cohort_secret = True

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Closes the zone."""
        seal = Seal(scheme="pads", opened_by="shares", opens_with=max(1, facts.num_clients - 1),
                    sums_visible_to="clients", numbers=FixedPoint(range=2.0**20, step=STEP))  # fmt: skip
        return (seal,)

    def prepare(self, cohort: Cohort, facts: Facts) -> None:
        """Every client deals a seed to each other one, in a letter."""
        self.introduce(cohort, facts)
        others = {c: [o for o in cohort.client_ids if o != c] for c in cohort.client_ids}
        relayed: dict[int, dict[int, bytes]] = {c: {} for c in others}
        for dealer, letters in cohort.ask_each(self.deal, others).items():
            for receiver, letter in zip(others[dealer], letters, strict=True):
                relayed[receiver][dealer] = letter
        cohort.tell_each_now(self.take, relayed)

    @at_client
    def deal(self, client: Client, others: list[int]) -> list[bytes]:
        """A seed for each of the others."""
        seeds = client.memory(self)["seeds"] = {other: os.urandom(32) for other in others}
        return list(self.write_letters(client, seeds, "seeds").values())

    @at_client
    def take(self, client: Client, letters: dict[int, bytes]) -> None:
        """Keeps the letters."""
        client.memory(self)["letters"] = letters

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """Whole steps and the pads."""
        total = words.values.view(np.uint64)
        for seed in client.memory(self)["seeds"].values():
            total = total + pad(seed, words.zone, len(total))
        return Sealed((total.tobytes(),))

    def add(self, uploads: Sequence[Total], server: Party, facts: Facts) -> tuple[bytes, ...]:
        """The sum, modulo 2^64."""
        return (np.asarray(sum(np.frombuffer(each.parts[0], np.uint64) for each in uploads)).tobytes(),)

    def gather(self, total: Total, server: Server, facts: Facts) -> Total:
        """Each client's part of the masks, locked for the others."""
        cohort = server.cohort
        assert cohort is not None
        asked = [total.zone, total.size, cohort.client_ids]
        boxes = cohort.ask_each(self.tell_part, dict.fromkeys(cohort.client_ids, asked))
        if len(boxes) < len(total.clients):
            raise TooFewClients(f"{len(boxes)} of {len(total.clients)} clients told their part")
        return total.replace(gathered=list(boxes.values()))

    @at_client
    def tell_part(self, client: Client, asked: tuple[str, int, list[int]]) -> bytes:
        """The sum of the pads that others in the sum dealt to this client, readable by the other clients."""
        zone, size, inside = asked
        if len(inside) < client.facts.min_clients:
            raise fedplug.FedplugError(f"a sum of {len(inside)} updates; min_clients is {client.facts.min_clients}")
        letters = {c: letter for c, letter in client.memory(self)["letters"].items() if c in inside}
        with client.openings.once(client.facts.round, self.name, "", inside, letters.values()):
            seeds = self.read_letters(client, letters, "seeds").values()
            part = sum((pad(seed, zone, size) for seed in seeds), np.zeros(size, np.uint64))
        return secrets.lock(client.secret(self, client.facts.round), part.tobytes(), zone.encode())

    def open(self, total: Total, party: Any, facts: Facts) -> Opened:
        """At each client: the sum without the pads."""
        words = np.frombuffer(total.parts[0], np.uint64)
        for box in total.gathered:
            part = secrets.unlock(party.secret(self, facts.round), box, total.zone.encode())
            words = words - np.frombuffer(part, np.uint64)
        return Opened(words.view(np.int64))

    def open_upload(self, upload: Total, parties: Sequence[Party], facts: Facts) -> Opened | None:
        """All others open it together, with the seeds that they received."""
        (sender,) = upload.clients
        dealt = [p for p in parties if isinstance(p, Client) and sender in p.memory(self).get("letters", {})]
        if len(dealt) < facts.num_clients - 1:
            return None
        words = np.frombuffer(upload.parts[0], np.uint64)
        for client in dealt:
            letter = {sender: client.memory(self)["letters"][sender]}
            words = words - pad(self.read_letters(client, letter, "seeds")[sender], upload.zone, upload.size)
        return Opened(words.view(np.int64))

    def reveals(self, facts: Facts) -> Sequence[fedplug.Reveals]:
        """Public keys, letters, locked parts."""
        note = "locked: the server cannot read them"
        return [
            self.correspondence(),
            fedplug.Reveals("letters", ("server",), covered_by="nothing to pay", asked=("deal",), note=note),
            fedplug.Reveals("parts", ("server",), covered_by="nothing to pay", asked=("tell_part",), note=note),
        ]
