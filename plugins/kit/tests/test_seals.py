"""Encryptions that hide nothing, as an author may write them by mistake, are refused. Two that do hide pass.

`Masked` and `Shared` are right: toys, but without one of these mistakes. Each other class has one.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextvars import ContextVar
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, Client, FixedPoint, Known, Reveals, Seal, at_client
from fedplug.api import secrets
from fedplug_kit import conformance
from toy_sealers import AtClients

STEP = 2.0**-16


def words(key: bytes, count: int) -> Any:
    """A mask: as many words as there are values, of a stream that a key gives."""
    return np.frombuffer(hashlib.shake_256(key).digest(4 * count), np.uint32)


class Masked(fedplug.Sealer):
    """Add a mask of a key that the clients share, modulo 2^32; every client takes the masks of all off the sum."""

    cohort_secret = True

    def protect(self, known: Known, facts: Any) -> Any:
        return (Seal(scheme="masks", opened_by="clients", numbers=FixedPoint(2.0**12, STEP)),)

    def seal(self, block: Block, client: Client, facts: Any) -> Block:
        nonce = os.urandom(16)
        return self.masked(block, client, self.mask(client, nonce, block.size), {"nonces": [nonce]})

    def masked(self, block: Block, client: Client, mask: Any, meta: dict[str, Any]) -> Block:
        whole = np.rint(block.plain().astype(np.float64) * client.weight / STEP).astype(np.int64).astype(np.uint32)
        return block.replace(
            values=None, ciphertexts=((whole + mask).tobytes(),), sealed_by=self.name, weighted=True, meta=meta
        )

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return words(client.secret(self, nonce), count)

    def reveals(self, facts: Any) -> list[Reveals]:
        return []

    def add_blocks(self, blocks: dict[int, Block], server: Any, facts: Any) -> Block:
        first, total = next(iter(blocks.values())), np.zeros(0, np.uint32)
        total = sum((np.frombuffer(block.ciphertexts[0], np.uint32) for block in blocks.values()), np.uint32(0))
        nonces = [nonce for block in blocks.values() for nonce in block.meta.get("nonces", [])]
        return first.replace(
            ciphertexts=(np.asarray(total).tobytes(),), contributors=len(blocks),
            divisor=float(sum(block.divisor for block in blocks.values())), meta={"nonces": nonces},
        )  # fmt: skip

    def open(self, block: Block, party: Any, facts: Any) -> Block:
        total = np.frombuffer(block.ciphertexts[0], np.uint32).copy()
        for nonce in block.meta["nonces"]:
            total -= self.mask(party, nonce, block.size)
        return self.bare(block, total)

    def bare(self, block: Block, total: Any) -> Block:
        values = (total.astype(np.int32) * STEP).astype(np.float32)
        return block.replace(values=values, ciphertexts=(), sealed_by=None, meta={})


class Shared(Masked):
    """Add a mask that is split among all clients, each of whom tells the server the sum of its parts."""

    cohort_secret = False
    site = "server"

    def protect(self, known: Known, facts: Any) -> Any:
        opens_with = self.enough(facts)
        numbers = FixedPoint(2.0**12, STEP)
        return (Seal(scheme="shared masks", opened_by="shares", opens_with=opens_with, numbers=numbers),)

    def enough(self, facts: Any) -> int:
        return int(facts.num_clients)

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        cohort.tell(self.take_keys, cohort.ask(self.make_key))

    @at_client
    def make_key(self, client: Client) -> bytes:
        client.memory(self)["private"], public = secrets.key_pair()
        return public

    @at_client
    def take_keys(self, client: Client, keys: dict[int, bytes]) -> None:
        client.memory(self)["keys"] = dict(keys)

    def reveals(self, facts: Any) -> list[Reveals]:
        return [
            Reveals("public keys", ("server",), covered_by="nothing to pay", asked=("make_key",), note="fresh"),
            Reveals("sums", ("server",), asked=("sum_of_parts",), note="of masks, which open the sum of updates"),
        ]

    def parts(self, count: int, receivers: list[int]) -> tuple[Any, dict[int, Any]]:
        """A mask, and what each receiver gets of it."""
        found = {receiver: words(os.urandom(32), count) for receiver in receivers}
        return sum(found.values(), np.uint32(0)), found

    def seal(self, block: Block, client: Client, facts: Any) -> Block:
        keys = client.memory(self)["keys"]
        mask, parts = self.parts(block.size, list(keys))
        boxes = {each: secrets.seal(parts[each].tobytes(), key, b"a part") for each, key in keys.items()}
        return self.masked(block, client, mask, {"boxes": boxes})

    def add_blocks(self, blocks: dict[int, Block], server: Any, facts: Any) -> Block:
        total = super().add_blocks(blocks, server, facts)
        return total.replace(meta={"boxes": {dealer: block.meta["boxes"] for dealer, block in blocks.items()}})

    def open(self, block: Block, party: Any, facts: Any) -> Block:
        everybody, given = party.cohort, {}
        for each in everybody.client_ids:
            boxes = {dealer: held[each] for dealer, held in block.meta["boxes"].items()}
            given |= everybody.only([each]).ask(self.sum_of_parts, block.zone, boxes)
        return self.bare(block, np.frombuffer(block.ciphertexts[0], np.uint32) - self.joined(given, facts))

    def joined(self, given: dict[int, bytes], facts: Any) -> Any:
        if len(given) < self.enough(facts):
            raise fedplug.FedplugError(f"parts of {len(given)} clients; {self.enough(facts)} are needed")
        return sum((np.frombuffer(part, np.uint32) for part in given.values()), np.uint32(0))

    @at_client
    def sum_of_parts(self, client: Client, zone: str, boxes: dict[int, bytes]) -> bytes:
        if len(boxes) < client.facts.min_clients:
            raise fedplug.FedplugError(f"parts of {len(boxes)} updates; min_clients is {client.facts.min_clients}")
        with client.openings.once(client.facts.round, zone, "", boxes, [boxes[dealer] for dealer in sorted(boxes)]):
            return self.added(client, boxes)

    def added(self, client: Client, boxes: dict[int, bytes]) -> bytes:
        private = client.memory(self)["private"]
        parts = [np.frombuffer(secrets.unseal(box, private, b"a part"), np.uint32) for box in boxes.values()]
        return np.asarray(sum(parts, np.uint32(0))).tobytes()


# -- the six -----------------------------------------------------------------------------------------------------------


class PlainWords(Masked):
    """Uses fixed-point words as ciphertexts, without any mask."""

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return np.zeros(count, np.uint32)


class OneShareOpens(Shared):
    """Gives every client the whole mask, but declares that three of them are needed."""

    def enough(self, facts: Any) -> int:
        return 3

    def parts(self, count: int, receivers: list[int]) -> tuple[Any, dict[int, Any]]:
        mask = words(os.urandom(32), count)
        return mask, dict.fromkeys(receivers, mask)

    def joined(self, given: dict[int, bytes], facts: Any) -> Any:
        return np.frombuffer(next(iter(given.values())), np.uint32)


class ConstantKey(Masked):
    """Takes its key from its source code, where the server reads it."""

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return words(b"correct horse battery staple" + nonce, count)


class SameMaskTwice(Masked):
    """Derives each client's mask from the key alone: it is the same in every round."""

    def seal(self, block: Block, client: Client, facts: Any) -> Block:
        nonce = str(client.client_id).encode()
        return self.masked(block, client, self.mask(client, nonce, block.size), {"nonces": [nonce]})


class OpensAllThatIsAsked(Shared):
    """Does not note which sums its clients have helped to open."""

    @at_client
    def sum_of_parts(self, client: Client, zone: str, boxes: dict[int, bytes]) -> bytes:
        return self.added(client, boxes)


class UnstatedReply(Masked):
    """Asks every client how large its values are, but declares it nowhere."""

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        cohort.server.memory(self)["scale"] = max(cohort.ask(self.brightness).values())

    @at_client
    def brightness(self, client: Client) -> float:
        return float(client.data.train.inputs.mean())


class FreeReply(UnstatedReply):
    """Declares that the replies follow from nobody's data."""

    def reveals(self, facts: Any) -> list[Reveals]:
        told = "the same for all clients"
        return [Reveals("scale", ("server",), covered_by="nothing to pay", asked=("brightness",), note=told)]


# -- further ones ------------------------------------------------------------------------------------------------------


class TellsTheLargest(Masked):
    """Sends its largest value along."""

    def seal(self, block: Block, client: Client, facts: Any) -> Block:
        closed = super().seal(block, client, facts)
        return closed.replace(meta={**closed.meta, "scale": float(np.abs(block.plain()).max())})


class OpensOne(Shared):
    """Each client gives its part of the mask of a single update as well."""

    protect = Shared.protect

    @at_client
    def sum_of_parts(self, client: Client, zone: str, boxes: dict[int, bytes]) -> bytes:
        with client.openings.once(client.facts.round, zone, "", boxes, [boxes[dealer] for dealer in sorted(boxes)]):
            return self.added(client, boxes)


class ServerHasTheKey(Masked):
    """Draws the key at the server, which keeps it."""

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        cohort.server.memory(self)["key"] = secrets.draw()
        cohort.tell(self.take, cohort.server.memory(self)["key"])

    @at_client
    def take(self, client: Client, key: bytes) -> None:
        client.memory(self)["key"] = key

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return words(client.memory(self)["key"] + nonce, count)


class Coarse(Masked):
    """Rounds to coarser steps than it declares."""

    def masked(self, block: Block, client: Client, mask: Any, meta: dict[str, Any]) -> Block:
        return super().masked(block.replace(values=np.rint(block.plain() * 64) / 64), client, mask, meta)


class ForgetsTheDivisor(Masked):
    """Leaves the divisor of a sum at that of its first upload."""

    def add_blocks(self, blocks: dict[int, Block], server: Any, facts: Any) -> Block:
        return super().add_blocks(blocks, server, facts).replace(divisor=next(iter(blocks.values())).divisor)


class SameInEveryRun(Shared):
    """Draws masks from a stream that follows from the recipe; the boxes that hold them are right."""

    def seal(self, block: Block, client: Client, facts: Any) -> Block:
        memory = client.memory(self)
        memory["count"] = memory.get("count", 0) + 1
        self.stream.set(client.rng(self, memory["count"]))
        return super().seal(block, client, facts)

    stream: ContextVar[np.random.Generator] = ContextVar("stream")

    def parts(self, count: int, receivers: list[int]) -> tuple[Any, dict[int, Any]]:
        found = {each: words(self.stream.get().bytes(32), count) for each in receivers}
        return sum(found.values(), np.uint32(0)), found


class SendsTheKey(Masked):
    """Tells the server the key that all clients share, and calls that fresh."""

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        cohort.ask(self.key)

    @at_client
    def key(self, client: Client) -> bytes:
        return client.secret(self)

    def reveals(self, facts: Any) -> list[Reveals]:
        return [Reveals("keys", ("server",), covered_by="nothing to pay", asked=("key",), note="fresh")]


class KeyOfItsNumber(SendsTheKey):
    """Has each client send a key that follows from its number."""

    @at_client
    def key(self, client: Client) -> bytes:
        return hashlib.sha256(f"key of {client.client_id}".encode()).digest()


class KeyForGood(SendsTheKey):
    """Sends one key again in every round."""

    def prepare(self, cohort: Any, facts: Any) -> None:
        cohort.ask(self.key)

    @at_client
    def key(self, client: Client) -> bytes:
        return client.memory(self).setdefault("key", os.urandom(32))


REFUSED = [
    (PlainWords, "hook protect, Seal of zone clear: zeros are sealed to bytes that compress to", "add a mask"),
    (OneShareOpens, "hook protect, Seal of zone clear: the shares of 2 clients open a sum, but it declares",
     r"share the secret so that fewer shares reveal nothing \(Shamir\)"),
    (ConstantKey, "hook protect, Seal of zone clear: another run of the same recipe opens its sums", "draw it with"),
    (SameMaskTwice, r"hook protect, Seal of zone clear: one vector sealed once more .* \d+% of the same bytes",
     "draw a fresh mask or nonce"),
    (OpensAllThatIsAsked, "Seal of zone clear: a second sum of one round is opened, of 3 of the 4 clients",
     r"note each opening with client\.openings\.once"),
    (UnstatedReply, "asks clients for brightness, and says nowhere what the answers show", "name the method in"),
    (FreeReply, "method brightness: its replies are declared to cost nothing .* change with the clients' data",
     "leave covered_by out of their Reveals"),
    (TellsTheLargest, r"meta\['scale'\] of the sealed block follows from the values", "leave it out"),
    (OpensOne, "a sum of 1 update is opened, but min_clients is 3", "refuse sums of fewer than facts.min_clients"),
    (ServerHasTheKey, "the aggregation server opens it with what it holds, but only clients are", "give the key to"),
    (Coarse, "the mean of 4 uploads differs from that of the plain values by", "its declared range and step"),
    (ForgetsTheDivisor, r"the mean of 4 uploads differs .* 4 times as long", "look at the divisor"),
    (SameInEveryRun, r"one vector sealed in another run gives \d+% of the same bytes", "draw a fresh mask"),
    (SendsTheKey, "method key: its replies are declared to cost nothing .* the same bytes at two clients", "draw it"),
    (KeyOfItsNumber, "method key: .* hold the same bytes in two runs", "draw it"),
    (KeyForGood, "method key: .* hold the same bytes in two rounds", "whenever it is asked for"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "rule", "remedy"), REFUSED, ids=[each[0].__name__ for each in REFUSED])
def test_a_seal_that_hides_nothing_is_refused(found: type, rule: str, remedy: str) -> None:
    with pytest.raises(AssertionError) as caught:
        conformance(found)
    said = str(caught.value)
    assert re.search(rule, said), said
    assert re.search(remedy, said), said
    assert said.count("\n") == 1, said  # one mistake, one sentence
    assert f"kit.{found.__name__.lower()}" in said


@pytest.mark.parametrize("found", [Masked, Shared, AtClients])
def test_a_seal_without_these_mistakes_passes(found: type) -> None:
    conformance(found)
