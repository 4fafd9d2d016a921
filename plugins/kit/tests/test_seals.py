"""Encryptions that hide nothing, as an author may write them by mistake, are refused. Two that do hide pass.

`Masked` and `Shared` are right: toys, but without one of these mistakes. Each other class has one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Client, FixedPoint, Known, Opened, Reveals, Seal, Sealed, Total, Words, at_client
from fedplug.api import secrets
from fedplug_kit import conformance
from toy_sealers import AtClients

STEP = 2.0**-16


def words_of(key: bytes, count: int) -> Any:
    """A mask: as many words as there are values, of a stream that a key gives."""
    return np.frombuffer(hashlib.shake_256(key).digest(8 * count), np.uint64)


class Masked(fedplug.Sealer):
    """Add a mask of a key that the clients share, modulo 2^64; every client takes the masks of all off the sum."""

    cohort_secret = True

    def protect(self, known: Known, facts: Any) -> Any:
        return (Seal(scheme="masks", opened_by="clients", numbers=FixedPoint(range=2.0**12, step=STEP)),)

    def reveals(self, facts: Any) -> list[Reveals]:
        return []

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        nonce = os.urandom(16)
        return self.masked(words, self.mask(client, nonce, len(words.values)), nonce)

    def masked(self, words: Words, mask: Any, nonce: bytes = b"", letters: Any = ()) -> Sealed:
        return Sealed(((words.values.view(np.uint64) + mask).tobytes(), nonce), dict(letters))

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return words_of(client.secret(self, nonce), count)

    def add(self, uploads: Sequence[Total], server: Any, facts: Any) -> tuple[bytes, ...]:
        total = sum((np.frombuffer(each.parts[0], np.uint64) for each in uploads), np.uint64(0))
        return np.asarray(total).tobytes(), b"".join(each.parts[1] for each in uploads)

    def open(self, total: Total, party: Any, facts: Any) -> Opened:
        words, nonces = np.frombuffer(total.parts[0], np.uint64).copy(), total.parts[1]
        for start in range(0, len(nonces), 16):
            words -= self.mask(party, nonces[start : start + 16], total.size)
        return Opened(words.view(np.int64))


class Shared(Masked):
    """Add a mask that is split among all clients, each of whom tells the server the sum of its parts."""

    cohort_secret = False
    site = "server"

    def protect(self, known: Known, facts: Any) -> Any:
        seal = Seal(scheme="shared masks", opened_by="shares", opens_with=self.enough(facts),
                    numbers=FixedPoint(range=2.0**12, step=STEP))  # fmt: skip
        return (seal,)

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
        found = {receiver: words_of(os.urandom(32), count) for receiver in receivers}
        return sum(found.values(), np.uint64(0)), found

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        keys = client.memory(self)["keys"]
        mask, parts = self.parts(len(words.values), list(keys))
        boxes = {each: secrets.seal(parts[each].tobytes(), key, b"a part") for each, key in keys.items()}
        return self.masked(words, mask, letters=boxes)

    def open(self, total: Total, party: Any, facts: Any) -> Opened:
        everybody, given = party.cohort, {}
        for each in everybody.client_ids:
            given |= everybody.only([each]).ask(self.sum_of_parts, total.zone, dict(total.letters[each]))
        return Opened((np.frombuffer(total.parts[0], np.uint64) - self.joined(given, facts)).view(np.int64))

    def joined(self, given: dict[int, bytes], facts: Any) -> Any:
        if len(given) < self.enough(facts):
            raise fedplug.FedplugError(f"parts of {len(given)} clients; {self.enough(facts)} are needed")
        return sum((np.frombuffer(part, np.uint64) for part in given.values()), np.uint64(0))

    @at_client
    def sum_of_parts(self, client: Client, zone: str, boxes: dict[int, bytes]) -> bytes:
        if len(boxes) < client.facts.min_clients:
            raise fedplug.FedplugError(f"parts of {len(boxes)} updates; min_clients is {client.facts.min_clients}")
        return self.once(client, zone, boxes)

    def once(self, client: Client, zone: str, boxes: dict[int, bytes]) -> bytes:
        with client.openings.once(client.facts.round, zone, "", boxes, [boxes[dealer] for dealer in sorted(boxes)]):
            return self.added(client, boxes)

    def added(self, client: Client, boxes: dict[int, bytes]) -> bytes:
        private = client.memory(self)["private"]
        parts = [np.frombuffer(secrets.unseal(box, private, b"a part"), np.uint64) for box in boxes.values()]
        return np.asarray(sum(parts, np.uint64(0))).tobytes()


# -- the six -----------------------------------------------------------------------------------------------------------


class PlainWords(Masked):
    """Uses fixed-point words as ciphertexts, without any mask."""

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return np.zeros(count, np.uint64)


class OneShareOpens(Shared):
    """Gives every client the whole mask, but declares that three of them are needed."""

    def enough(self, facts: Any) -> int:
        return 3

    def parts(self, count: int, receivers: list[int]) -> tuple[Any, dict[int, Any]]:
        mask = words_of(os.urandom(32), count)
        return mask, dict.fromkeys(receivers, mask)

    def joined(self, given: dict[int, bytes], facts: Any) -> Any:
        return np.frombuffer(next(iter(given.values())), np.uint64)


class ConstantKey(Masked):
    """Takes its key from its source code, where the server reads it."""

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return words_of(b"correct horse battery staple" + nonce, count)


class SameMaskTwice(Masked):
    """Derives each client's mask from the key alone: it is the same in every round."""

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        nonce = bytes([client.client_id] * 16)
        return self.masked(words, self.mask(client, nonce, len(words.values)), nonce)


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
    """Sends its largest word along."""

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        closed = super().seal(words, client, facts)
        return Sealed(closed.parts, {0: np.abs(words.values).max().tobytes()})


class OpensOne(Shared):
    """Has clients give their parts of a single update as well."""

    @at_client
    def sum_of_parts(self, client: Client, zone: str, boxes: dict[int, bytes]) -> bytes:
        return self.once(client, zone, boxes)


class ServerHasTheKey(Masked):
    """Draws the key at the server, which keeps it."""

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        cohort.server.memory(self)["key"] = secrets.draw()
        cohort.tell(self.take, cohort.server.memory(self)["key"])

    @at_client
    def take(self, client: Client, key: bytes) -> None:
        client.memory(self)["key"] = key

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return words_of(client.memory(self)["key"] + nonce, count)


class Coarse(Masked):
    """Rounds to coarser steps than it declares."""

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        return super().seal(Words(words.zone, words.values // 1024 * 1024), client, facts)


class ForgetsTheTail(Masked):
    """Masks whole blocks of 16 words, and leaves the last words bare."""

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        whole = count - count % 16
        return np.append(super().mask(client, nonce, whole), np.zeros(count - whole, np.uint64))


class HalfOfEachWord(Masked):
    """Masks 31 of the 64 bits of each word."""

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return super().mask(client, nonce, count) >> np.uint64(33)


class WeighsOnceMore(Masked):
    """Multiplies the client's weight in, as the core has done."""

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        return super().seal(Words(words.zone, np.rint(words.values * client.weight).astype(np.int64)), client, facts)


class Overflows(Masked):
    """Adds in 28 bits, where one client's word may take all of them."""

    def open(self, total: Total, party: Any, facts: Any) -> Opened:
        return Opened(super().open(total, party, facts).words << 35 >> 35)


class OnePadForTwoZones(AtClients):
    """Masks all zones of a round with the same pads."""

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        return super().seal(Words("", words.values), client, facts)

    def gather(self, total: Total, server: Any, facts: Any) -> Total:
        return super().gather(total.replace(zone=""), server, facts).replace(zone=total.zone)

    def open(self, total: Total, party: Any, facts: Any) -> Opened:
        return super().open(total.replace(zone=""), party, facts)


class SameInEveryRun(Shared):
    """Draws masks from a stream that follows from the recipe; the boxes that hold them are right."""

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        memory = client.memory(self)
        memory["count"] = memory.get("count", 0) + 1
        self.stream.set(client.rng(self, memory["count"]))
        return super().seal(words, client, facts)

    stream: ContextVar[np.random.Generator] = ContextVar("stream")

    def parts(self, count: int, receivers: list[int]) -> tuple[Any, dict[int, Any]]:
        found = {each: words_of(self.stream.get().bytes(32), count) for each in receivers}
        return sum(found.values(), np.uint64(0)), found


class SendsTheKey(Masked):
    """Tells the server the key that all clients share, and calls that fresh."""

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        cohort.ask(self.key)

    @at_client
    def key(self, client: Client) -> bytes:
        return client.secret(self)

    def reveals(self, facts: Any) -> list[Reveals]:
        return [Reveals("keys", ("server",), covered_by="nothing to pay", asked=("key",), note="fresh")]


class ClientKeys(Masked):
    """Has each client write the key of its masks to all others."""

    cohort_secret = False

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        public = cohort.ask(self.introduced)
        boxes = cohort.ask_each(self.boxes, dict.fromkeys(public, public))
        cohort.tell_each(self.take, {each: {of: found[each] for of, found in boxes.items()} for each in public})

    @at_client
    def introduced(self, client: Client) -> bytes:
        memory = client.memory(self)
        memory["private"], memory["public"] = secrets.key_pair()
        memory["key"] = secrets.draw()
        return bytes(memory["public"])

    @at_client
    def boxes(self, client: Client, public: dict[int, bytes]) -> dict[int, bytes]:
        return {each: secrets.seal(client.memory(self)["key"], key, b"key") for each, key in public.items()}

    @at_client
    def take(self, client: Client, boxes: dict[int, bytes]) -> None:
        memory = client.memory(self)
        memory["keys"] = {each: secrets.unseal(box, memory["private"], b"key") for each, box in boxes.items()}

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        nonce = bytes([client.client_id]) + os.urandom(15)
        return self.masked(words, self.mask(client, nonce, len(words.values)), nonce)

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        return words_of(client.memory(self)["keys"][nonce[0]] + nonce, count)

    def reveals(self, facts: Any) -> list[Reveals]:
        asked = ("introduced", "boxes")
        return [Reveals("keys", ("server",), covered_by="nothing to pay", asked=asked, note="fresh")]


class ClientKeysInTheClear(ClientKeys):
    """Has the server pass them on as they are."""

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        cohort.tell(self.take, cohort.ask(self.introduced))

    @at_client
    def introduced(self, client: Client) -> bytes:
        return secrets.draw()

    @at_client
    def take(self, client: Client, keys: dict[int, bytes]) -> None:
        client.memory(self)["keys"] = keys

    def reveals(self, facts: Any) -> list[Reveals]:
        return [Reveals("keys", ("server",), covered_by="nothing to pay", asked=("introduced",), note="fresh")]


class MaskAndKey(Masked):
    """Sends the key of each mask along with it."""

    def masked(self, words: Words, mask: Any, nonce: bytes = b"", letters: Any = ()) -> Sealed:
        return super().masked(words, mask, nonce, {0: KEYS.get()})

    def mask(self, client: Client, nonce: bytes, count: int) -> Any:
        KEYS.set(key := client.secret(self, nonce))
        return words_of(key, count)


KEYS: ContextVar[bytes] = ContextVar("keys")


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


class Scrambled(fedplug.Scrambler):
    """Add a mask of a key that the server and all clients have, and nobody else."""

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        key = cohort.server.memory(self)["key"] = self.key()
        cohort.tell(self.take, key)

    def key(self) -> bytes:
        return secrets.draw()

    def nonce(self) -> bytes:
        return os.urandom(16)

    @at_client
    def take(self, client: Client, key: bytes) -> None:
        client.memory(self)["key"] = key

    def protect(self, known: Known, facts: Any) -> Any:
        return (fedplug.Scramble(hides="values", numbers=FixedPoint(range=2.0**12, step=STEP)),)

    def masked(self, words: Words, party: Any) -> tuple[bytes, bytes]:
        nonce = self.nonce()
        mask = words_of(party.memory(self)["key"] + nonce, len(words.values))
        return (words.values.view(np.uint64) + mask).tobytes(), nonce

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        return Sealed(self.masked(words, client))

    def unseal(self, upload: Total, party: Any, facts: Any) -> Opened:
        mask = words_of(party.memory(self)["key"] + upload.parts[1], upload.size)
        return Opened((np.frombuffer(upload.parts[0], np.uint64) - mask).view(np.int64))

    def reseal(self, words: Words, server: Any, facts: Any) -> tuple[bytes, ...]:
        return self.masked(words, server)

    def open(self, total: Total, party: Any, facts: Any) -> Opened:
        return self.unseal(total, party, facts)

    def reveals(self, facts: Any) -> list[Reveals]:
        return []


class ScrambledByItsSource(Scrambled):
    """Takes that key from its source code."""

    def key(self) -> bytes:
        return b"correct horse battery staple"


class ScrambledAlike(Scrambled):
    """Uses one mask for all uploads."""

    def nonce(self) -> bytes:
        return bytes(16)


class MaskOfTheRound(Masked):
    """Add the mask of the round, which a run that was cut off in it adds once more."""

    def prepare(self, cohort: Any, facts: Any) -> None:
        cohort.ask(self.comes)

    @fedplug.at_client
    def comes(self, client: Client) -> bool:
        return True

    def seal(self, words: Words, client: Client, facts: Any) -> Sealed:
        nonce = f"{words.zone:8.8}{client.client_id:4}{facts.round:4}".encode()
        return self.masked(words, self.mask(client, nonce, len(words.values)), nonce)


REFUSED = [
    (MaskOfTheRound, r"one vector sealed in the same round, begun anew gives \d+% of the same", "draw a fresh mask"),
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
    (TellsTheLargest, r"letters\[0\] of the sealed block follows from the values", "leave it out"),
    (OpensOne, "the shares of 4 clients open a single update, but min_clients is 3", "refuse sums of fewer than facts"),
    (ServerHasTheKey, "the aggregation server opens it with what it holds, but only clients are", "give the key to"),
    (Coarse, "the mean of 4 uploads differs from that of the plain values by", "its declared range and step"),
    (ForgetsTheTail, r"\d+ bytes in a row are the same in each of 8 seals of zeros", "word, also of the last ones"),
    (HalfOfEachWord, r"zeros are sealed to bytes that compress to \d+ of", "covers every bit of every word"),
    (WeighsOnceMore, "the mean of 4 uploads differs from that of the plain", "they hold the client's weight"),
    (Overflows, "the mean of 4 uploads of values at both ends of its range differs", "hold the sum of all clients"),
    (OnePadForTwoZones, r"sealed in zones clear and clear_rest of a round gives \d+% of the same", "words.zone too"),
    (SameInEveryRun, r"one vector sealed in another run gives \d+% of the same bytes", "draw a fresh mask"),
    (SendsTheKey, "method key: its replies are declared to cost nothing .* the same bytes at two clients", "draw it"),
    (KeyOfItsNumber, "method key: .* hold the same bytes in two runs", "draw it"),
    (ClientKeysInTheClear, "method introduced: .* hold all keys that a party who opens sums has", "letters to those"),
    (MaskAndKey, r"an upload holds what client\.secret\(\.\.\.\) has given", "send a nonce that is drawn"),
    (KeyForGood, "method key: .* hold the same bytes in two rounds", "whenever it is asked for"),
    (ScrambledByItsSource, "Scramble of zone clear: another run of the same recipe opens its sums", "draw it with"),
    (ScrambledAlike, r"Scramble of zone clear: one vector sealed .* \d+% of the same bytes", "draw a fresh mask"),
]  # fmt: skip


FEW = {"model": {"use": "kit.two_layers", "hidden": 8}}
"""Fewer scalars, of which these mistakes show as well."""


@pytest.mark.parametrize(("found", "rule", "remedy"), REFUSED, ids=[each[0].__name__ for each in REFUSED])
def test_a_seal_that_hides_nothing_is_refused(found: type, rule: str, remedy: str) -> None:
    rounds = 2 if found is KeyForGood else 1
    with pytest.raises(AssertionError) as caught:
        conformance(found, recipe=FEW | {"rounds": rounds})
    said = str(caught.value)
    assert re.search(rule, said), said
    assert re.search(remedy, said), said
    assert said.count("\n") == 1, said  # one mistake, one sentence
    assert f"kit.{found.__name__.lower()}" in said


@pytest.mark.parametrize("found", [Masked, Shared, AtClients, Scrambled, ClientKeys])
def test_a_seal_without_these_mistakes_passes(found: type) -> None:
    conformance(found, recipe=FEW)
