"""A seal whose shares meet at the clients: each sends its part of the masks of a sum to the others, not the server."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import fedplug
import numpy as np
from fedplug import Block, Client, Cohort, Facts, Known, Operations, Seal, at_client
from fedplug.api import secrets
from fedplug.api.errors import TooFewClients
from fedplug.api.letters import Correspondent
from fedplug.api.parties import Party, Server
from numpy.typing import NDArray
from toy_base import Toy

STEP = 2.0**-20


def pad(seed: bytes, zone: str, size: int) -> NDArray[np.uint64]:
    """A mask that follows from a seed."""
    return np.frombuffer(hashlib.shake_256(seed + zone.encode()).digest(8 * size), np.uint64)


class AtClients(Correspondent, Toy, fedplug.Sealer):
    """Masks of pads, one dealt to each other client. All pads together remove a client's masks.

    A single client in league with the server sees sums of pads, since each client sends the others such a sum.
    """

    site = "client"
    cohort_secret = True

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Closes the zone."""
        seal = Seal(scheme="pads", opened_by="shares", opens_with=max(1, facts.num_clients - 1),
                    sums_visible_to="clients", range=float("inf"), step=STEP)  # fmt: skip
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

    def seal(self, block: Block, client: Client, facts: Facts) -> Block:
        """Whole steps and the pads."""
        whole = np.rint(block.plain().astype(np.float64) * client.weight / STEP).astype(np.int64).astype(np.uint64)
        for seed in client.memory(self)["seeds"].values():
            whole = whole + pad(seed, block.zone, block.size)
        return block.replace(
            values=None, ciphertexts=(whole.tobytes(),), sealed_by=self.name, weighted=True, divisor=client.weight
        )

    def add_blocks(self, blocks: dict[int, Block], server: Party, facts: Facts) -> Block:
        """The sum, modulo 2^64."""
        first = next(iter(blocks.values()))
        total = sum(np.frombuffer(block.ciphertexts[0], np.uint64) for block in blocks.values())
        return first.replace(
            ciphertexts=(np.asarray(total).tobytes(),), contributors=len(blocks),
            divisor=sum(float(block.divisor) for block in blocks.values()), meta={},
        )  # fmt: skip

    def gather(self, block: Block, server: Server, facts: Facts) -> Block:
        """Each client's part of the masks, locked for the others."""
        cohort = server.cohort
        assert cohort is not None
        asked = [block.zone, block.size, cohort.client_ids]
        boxes = cohort.ask_each(self.tell_part, dict.fromkeys(cohort.client_ids, asked))
        if len(boxes) < block.contributors:
            raise TooFewClients(f"{len(boxes)} of {block.contributors} clients told their part")
        return block.replace(meta={"boxes": list(boxes.values())})

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

    def open(self, block: Block, party: Any, facts: Facts) -> Block:
        """At each client: the sum without the pads."""
        total = np.frombuffer(block.ciphertexts[0], np.uint64)
        for box in block.meta["boxes"]:
            part = secrets.unlock(party.secret(self, facts.round), box, block.zone.encode())
            total = total - np.frombuffer(part, np.uint64)
        return self._plain(block, total)

    def open_upload(self, block: Block, sender: int, parties: Sequence[Party], facts: Facts) -> Block | None:
        """All others open it together, with the seeds that they received."""
        dealt = [p for p in parties if isinstance(p, Client) and sender in p.memory(self).get("letters", {})]
        if not dealt or len(dealt) < dealt[0].facts.num_clients - 1:
            return None
        total = np.frombuffer(block.ciphertexts[0], np.uint64)
        for client in dealt:
            letter = {sender: client.memory(self)["letters"][sender]}
            total = total - pad(self.read_letters(client, letter, "seeds")[sender], block.zone, block.size)
        return self._plain(block, total)

    def _plain(self, block: Block, total: NDArray[np.uint64]) -> Block:
        values = (total.astype(np.int64) * STEP).astype(np.float32)
        return block.replace(values=values, ciphertexts=(), sealed_by=None, meta={})

    def reveals(self, facts: Facts) -> Sequence[fedplug.Reveals]:
        """Public keys, letters, locked parts."""
        note = "locked: the server cannot read them"
        return [
            self.correspondence(),
            fedplug.Reveals("letters", ("server",), covered_by="nothing to pay", asked=("deal",), note=note),
            fedplug.Reveals("parts", ("server",), covered_by="nothing to pay", asked=("tell_part",), note=note),
        ]
