"""Whole rounds from the parts: the exact sum of the uploads, with clients lost in every phase."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug.api import secrets
from fedplug.api.errors import ProtectionError
from fedplug_secagg import graph, masks, shamir
from fedplug_secagg.fixed_point import FixedPoint
from hypothesis import given, settings
from hypothesis import strategies as st

SELF, PAIR = 0, 1


@dataclasses.dataclass
class Party:
    """A client of a round."""

    me: int
    neighbours: tuple[int, ...]
    threshold: int
    grid: FixedPoint

    def __post_init__(self) -> None:
        (channel, self.channel_key), (mask, self.mask_key) = secrets.key_pair(), secrets.key_pair()
        self.channel, self.mask, self._mask_private = masks.KeyAgreement(channel), masks.KeyAgreement(mask), mask
        self._self_seed, self.shares = secrets.draw(), dict[int, bytes]()

    def _channel(self, other: int, keys: Mapping[int, tuple[bytes, bytes]]) -> bytes:
        return self.channel.seed(keys[other][0], b"shares")

    def deal(self, keys: Mapping[int, tuple[bytes, bytes]]) -> dict[int, bytes]:
        shares = shamir.deal([self._self_seed, self._mask_private], self.neighbours, self.threshold)
        return {
            other: secrets.lock(self._channel(other, keys), share, f"{self.me} to {other}".encode())
            for other, share in shares.items()
            if other in keys
        }

    def upload(self, values: np.ndarray, boxes: Mapping[int, bytes], keys: Mapping[int, tuple[bytes, bytes]]) -> bytes:
        for dealer, box in boxes.items():
            self.shares[dealer] = secrets.unlock(self._channel(dealer, keys), box, f"{dealer} to {self.me}".encode())
        vector = self.grid.residues(values)
        pairs = [(self.mask.seed(keys[v][1], b"mask"), 1 if v > self.me else -1) for v in boxes]
        masks.add_masks(vector, [(self._self_seed, 1), *pairs])
        return masks.pack(vector, self.grid.bits)

    def answer(self, uploaded: Collection[int], gone: Collection[int]) -> dict[int, bytes]:
        assert not set(uploaded) & set(gone)
        which = {**dict.fromkeys(uploaded, SELF), **dict.fromkeys(gone, PAIR)}
        return {dealer: shamir.part(self.shares[dealer], which[dealer]) for dealer in which if dealer in self.shares}


def run(
    values: np.ndarray,
    grid: FixedPoint,
    degree: int,
    threshold: int,
    silent: Collection[int] = (),
    shared_only: Collection[int] = (),
    no_answer: Collection[int] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """The server's sum of residues, and all uploads that it saw.

    Args:
        values: shape (n, m).
        silent: clients that are gone after their keys.
        shared_only: gone after their shares.
        no_answer: gone after their upload.
    """
    n, m = values.shape
    drawn = graph.draw(range(n), degree, bytes(32))
    parties = {u: Party(u, drawn[u], threshold, grid) for u in range(n)}
    keys = {u: (party.channel_key, party.mask_key) for u, party in parties.items()}
    boxes = {u: party.deal(keys) for u, party in parties.items() if u not in silent}
    uploads: dict[int, Any] = {
        u: parties[u].upload(values[u], {v: boxes[v][u] for v in drawn[u] if v in boxes}, keys)
        for u in boxes
        if u not in shared_only
    }
    seen = np.stack([masks.unpack(data, m, grid.bits) for data in uploads.values()])
    total = np.zeros(m, masks.word(grid.bits))
    for row in seen:
        total += row
    parts: dict[int, dict[int, bytes]] = {}
    for u in set(uploads) - set(no_answer):
        asked = [v for v in drawn[u] if v in boxes]
        answers = parties[u].answer([v for v in asked if v in uploads], [v for v in asked if v not in uploads])
        for dealer, part in answers.items():
            parts.setdefault(dealer, {})[u] = part
    off: list[tuple[bytes, int]] = []
    for u in boxes:
        secret = shamir.combine(parts.get(u, {}), threshold)
        if u in uploads:
            off.append((secret, -1))
        else:
            ends = masks.KeyAgreement(secret)
            # The mask that v added for u, removed with v's sign.
            off += [(ends.seed(keys[v][1], b"mask"), -1 if u > v else 1) for v in drawn[u] if v in uploads]
    masks.add_masks(total, off)
    return total, seen


@settings(max_examples=examples(24))
@given(st.sampled_from([12, 16, 20, 32, 33, 64]), st.integers(4, 14), st.integers(1, 200), st.randoms(), st.booleans())
def test_the_sum_is_that_of_the_integers_with_clients_lost_in_every_phase(bits, clients, size, random, sparse):
    seed = random.randrange(2**32)
    values = np.random.default_rng(seed).uniform(-2, 2, (clients, size)).astype(np.float32)
    order = random.sample(range(clients), clients)
    degree = 6 if sparse and clients > 7 else clients - 1
    # Each neighbourhood keeps two of those that answer: at most degree - 2 are gone.
    gone = random.randint(0, min(degree - 2, clients - 3))
    kinds = [random.randint(0, 2) for _ in range(gone)]
    silent, shared_only, no_answer = ([u for u, kind in zip(order, kinds, strict=False) if kind == k] for k in range(3))
    grid = FixedPoint(2.0, clients, bits)
    total, _ = run(values, grid, degree, 2, silent, shared_only, no_answer)
    uploaded = [u for u in range(clients) if u not in {*silent, *shared_only}]
    plain = np.rint(values[uploaded].astype(np.float64) / grid.step).astype(np.int64).sum(axis=0)
    assert (grid.integers(total) == plain).all()
    assert (grid.values(total) == plain * grid.step).all()


@pytest.mark.parametrize("bits", [32, pytest.param(64, marks=pytest.mark.slow)])
def test_a_hundred_clients_on_the_graph_of_the_paper(bits):
    found = graph.smallest(100, 0.1, 0.2)
    assert found.degree < 99
    values = np.random.default_rng(1).normal(0, 0.1, (100, 1000)).clip(-0.5, 0.5).astype(np.float32)
    grid = FixedPoint(0.5, 100, bits)
    silent, shared_only, no_answer = range(10), range(10, 19), [50]
    total, seen = run(values, grid, found.degree, found.threshold, silent, shared_only, no_answer)
    plain = np.rint(values[19:].astype(np.float64) / grid.step).astype(np.int64).sum(axis=0)
    assert (grid.integers(total) == plain).all()
    # An upload alone is noise: as often in one half of the residues as in the other.
    upper = (seen >> seen.dtype.type(bits - 1)).mean()
    assert abs(upper - 0.5) < 6 * 0.5 / seen.size**0.5


def test_too_many_gone_open_nothing():
    values = np.zeros((6, 3), np.float32)
    with pytest.raises(ProtectionError, match="open nothing; threshold=4"):
        run(values, FixedPoint(1.0, 6, 32), 5, 4, shared_only=[0, 1], no_answer=[2])
