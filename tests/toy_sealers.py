"""A seal whose shares meet at the clients: each keeps the seed of its mask, and tells the others, not the server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import fedplug
import numpy as np
from fedplug import Block, Client, Context, Known, Operations, Seal, at_client, hookimpl
from fedplug.api import secrets
from fedplug.api.errors import TooFewClients
from numpy.typing import NDArray
from toy_base import Toy

STEP = 2.0**-20


def pad(seed: bytes, size: int) -> NDArray[np.uint64]:
    """A mask that follows from a seed."""
    return np.random.default_rng(int.from_bytes(seed, "big")).integers(0, 2**64, size, np.uint64)


class AtClients(Toy, fedplug.Sealer):
    """Masks that only all clients of a sum together take off, each at home."""

    site = "client"
    cohort_secret = True

    @hookimpl
    def protect(self, known: Known, ctx: Context) -> Operations:
        """Closes the zone."""
        seal = Seal(scheme="pads", opened_by="shares", opens_with=3, answers="clients", range=float("inf"), step=STEP)
        return (seal,)

    def seal(self, block: Block, client: Client, ctx: Context) -> Block:
        """Whole steps and a pad."""
        seed = client.memory(self)["seed"] = os.urandom(32)
        whole = np.rint(block.plain().astype(np.float64) * client.weight / STEP).astype(np.int64).astype(np.uint64)
        data = (whole + pad(seed, block.size)).tobytes()
        return block.replace(
            values=None, ciphertexts=(data,), sealed_by=self.name, weighted=True, divisor=client.weight
        )

    def add_blocks(self, blocks: dict[int, Block], ctx: Context) -> Block:
        """The sum, modulo 2^64."""
        first = next(iter(blocks.values()))
        total = sum(np.frombuffer(block.ciphertexts[0], np.uint64) for block in blocks.values())
        return first.replace(
            ciphertexts=(np.asarray(total).tobytes(),), contributors=len(blocks),
            divisor=sum(float(block.divisor) for block in blocks.values()), meta={},
        )  # fmt: skip

    def gather(self, block: Block, ctx: Context) -> Block:
        """Each client's seed, locked for the others."""
        cohort: Any = ctx.party.cohort  # type: ignore[attr-defined]
        boxes = cohort.ask_each(self.tell_seed, dict.fromkeys(cohort.client_ids, block.zone))
        if len(boxes) < block.contributors:
            raise TooFewClients(f"{len(boxes)} of {block.contributors} clients told their seeds")
        return block.replace(meta={"boxes": list(boxes.values())})

    @at_client
    def tell_seed(self, client: Client, zone: str) -> bytes:
        """This client's seed, as the other clients can read it."""
        return secrets.lock(client.secret(self, client.ctx.round), client.memory(self)["seed"], zone.encode())

    def open(self, block: Block, ctx: Context) -> Block:
        """At each client: the sum without the pads."""
        client: Any = ctx.party
        total = np.frombuffer(block.ciphertexts[0], np.uint64)
        for box in block.meta["boxes"]:
            seed = secrets.unlock(client.secret(self, ctx.round), box, block.zone.encode())
            total = total - pad(seed, block.size)
        values = (total.astype(np.int64) * STEP).astype(np.float32)
        return block.replace(values=values, ciphertexts=(), sealed_by=None, meta={})

    def reveals(self, ctx: Context) -> Sequence[fedplug.Reveals]:
        """Locked seeds."""
        asked = ("tell_seed",)
        return [fedplug.Reveals("seeds", ("aggregator",), covered_by="nothing to pay", asked=asked, note="locked")]
