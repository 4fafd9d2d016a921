"""The cost of threshold encryption for a client and the server: `threshold.bfv` next to `secagg.plus` and `std.bfv`.

    python benchmarks/threshold.py [--clients 10 100 1000] [--parameters 61000 1000000] [--out FILE]

The three run on the same values in one process, in turn; times are CPU seconds of one thread, the fastest of some
repetitions. No whole round is run: one client does all its work of a round, and each operation of the server is
timed and multiplied by its count in a round. `t` of `threshold.bfv` is more than half of the clients. The
graph of `secagg.plus` is for a tenth of the clients corrupt and a tenth gone, but no client drops out here. The key
of `std.bfv` is at a key server, so its clients encrypt with a public key, as those of `threshold.bfv` do.

A client that opens is one of the t that a round asks; the others only send their upload. Set-up happens once a run.
"""

from __future__ import annotations

import argparse
import csv
import gc
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api import secrets
from fedplug_secagg import graph, masks
from fedplug_secagg import shamir as mask_shares
from fedplug_secagg.fixed_point import FixedPoint as MaskNumbers
from fedplug_std.bfv import Bfv
from fedplug_threshold.fixed_point import FixedPoint
from fedplug_threshold.parameters import choose
from fedplug_threshold.scheme import Scheme

BOUND = 8.0
CORRUPT, DROPPED = 0.1, 0.1
LETTER = 28
"""Bytes by which a letter is longer than its content: nonce and tag."""
COLUMNS = [
    "clients", "parameters", "scheme", "N", "log2 q", "values a coefficient", "bits", "opens",
    "set-up client s", "set-up client MB", "upload s", "upload MB", "opening client s", "opening client MB",
    "server s", "server MB",
]  # fmt: skip


class Timer:
    """CPU seconds by name, of some repetitions the least."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        """Runs something once under that name. Returns its result."""
        gc.collect()
        start = time.process_time()
        result = work()
        seconds = time.process_time() - start
        self.best[name] = min(self.best.get(name, seconds), seconds)
        return result


class Threshold:
    """One client of a run, its part of the key and of an opening, and the server."""

    def __init__(self, clients: int, values: np.ndarray, degree: int | None) -> None:
        self.clients, self.values = clients, values
        self.parameters = choose(clients, clients // 2 + 1, 40, None, degree)
        self.scheme, self.numbers = Scheme(self.parameters), FixedPoint(BOUND, clients, self.parameters.bits)
        (self.common,) = self.scheme.chain.uniform(os.urandom(16))

    def set_up(self, timer: Timer) -> None:
        """All work of a client once a run, without its letters' cipher."""
        scheme, holders = self.scheme, range(self.clients)
        self.public, shares = timer("set-up", lambda: scheme.contribution(self.common, holders))
        packed = timer("set-up, bytes", lambda: scheme.chain.pack(shares))
        parts = timer("set-up, read", lambda: scheme.chain.unpack(packed, "shares"))
        self.share = timer("set-up, sum", lambda: scheme.chain.total(parts))
        self.key = timer("key", lambda: scheme.public_key(self.public, self.common))

    def round(self, timer: Timer) -> None:
        """An upload, a part of an opening, and the server's operations once each."""
        scheme, chain = self.scheme, self.scheme.chain

        def upload() -> tuple[bytes, ...]:
            return scheme.pack_pairs(scheme.encrypt(self.key, self.numbers.numbers(self.values.astype(np.float64))))

        packed = timer("upload", upload)
        self.uploaded = sum(map(len, packed))
        chosen = list(range(self.parameters.threshold))
        total = scheme.unpack_pairs(packed, "an upload")
        c1 = chain.pack(total[:, 1])

        def part() -> list[bytes]:
            seeds = {other: os.urandom(16) for other in chosen}
            polynomials = chain.unpack(c1, "a sum")
            return chain.pack(scheme.partial(self.share, 0, chosen, polynomials, os.urandom(32), seeds))

        opened = timer("opening", part)
        self.opening = sum(map(len, c1)), sum(map(len, opened))

        def add() -> None:
            nonlocal total
            total += scheme.unpack_pairs(packed, "an upload")

        timer("add", add)
        timer("reduce", lambda: chain.reduce(total))
        timer("add part", lambda: chain.plus(total[:, 0], chain.unpack(opened, "a part")))
        secret = np.zeros((len(chain.primes), chain.degree), np.uint64)
        zero = self.scheme.encrypt(self.scheme.public_key(secret, secret), np.zeros(len(self.values), np.int64))
        sums = timer("read", lambda: scheme.read(zero[:, 0], len(self.values)))
        timer("values", lambda: self.numbers.values(sums, self.clients).astype(np.float32))

    def rows(self, timer: Timer) -> list[object]:
        """The columns after `parameters`."""
        best, found, opens = timer.best, self.parameters, self.parameters.threshold
        share = self.scheme.chain.packed
        set_up = sum(best[name] for name in ("set-up", "set-up, bytes", "set-up, read", "set-up, sum", "key"))
        server = self.clients * best["add"] + best["reduce"] + opens * best["add part"] + best["read"] + best["values"]
        # Letters to all clients, and as many from them.
        dealt = 2 * self.clients * (share + LETTER) + 2 * share
        down, up = self.opening
        moved = self.clients * self.uploaded + opens * (down + up)
        return [
            f"threshold.bfv, N={found.degree}", found.degree, f"{found.log2_modulus:.0f}", found.per_coefficient,
            found.bits, opens, f"{set_up:.4f}", mb(dealt), f"{best['upload']:.4f}", mb(self.uploaded),
            f"{best['opening']:.4f}", mb(down + up), f"{server:.3f}", mb(moved),
        ]  # fmt: skip


class SecAggPlus:
    """One client of a round of `secagg.plus`, and the server, where no client drops out."""

    def __init__(self, clients: int, values: np.ndarray) -> None:
        self.clients, self.values = clients, values
        self.graph = graph.smallest(clients, CORRUPT, DROPPED)
        self.numbers = MaskNumbers(BOUND, clients, 32)
        self.others = range(1, self.graph.degree + 1)
        self.peers = {other: secrets.key_pair() for other in self.others}

    def round(self, timer: Timer) -> None:
        """The work of both, once each."""
        private, _ = timer("keys", secrets.key_pair)
        drawn = secrets.draw()
        ends = masks.KeyAgreement(private)

        def deal() -> dict[int, bytes]:
            shares = mask_shares.deal([drawn, private], list(self.others), self.graph.threshold)
            return {
                other: secrets.lock(ends.seed(self.peers[other][1], b"shares"), share, b"")
                for other, share in shares.items()
            }

        letters = timer("deal", deal)

        def upload() -> bytes:
            pairs = masks.KeyAgreement(private)
            vector = self.numbers.residues(self.values)
            masks.add_masks(vector, [(drawn, 1), *((pairs.seed(self.peers[v][1], b"mask"), 1) for v in self.others)])
            return masks.pack(vector, 32)

        data = timer("upload", upload)
        timer("answer", lambda: [
            mask_shares.part(secrets.unlock(ends.seed(self.peers[other][1], b"shares"), letter, b""), 0)
            for other, letter in letters.items()
        ])  # fmt: skip
        sealed = 2 * sum(map(len, letters.values()))
        self.uploaded, self.shares = len(data) + sealed + 64, mask_shares.SHARE * self.graph.degree
        total = np.zeros(len(self.values), masks.word(32))
        timer("add", lambda: np.add(total, masks.unpack(data, len(self.values), 32), out=total))
        shares = mask_shares.deal([drawn], list(self.others), self.graph.threshold)
        timer("open", lambda: mask_shares.combine(shares, self.graph.threshold))
        timer("self mask", lambda: masks.add_masks(total, [(drawn, -1)]))
        timer("values", lambda: self.numbers.values(total))

    def rows(self, timer: Timer) -> list[object]:
        """The columns after `parameters`."""
        best = timer.best
        upload = best["keys"] + best["deal"] + best["upload"]
        server = self.clients * (best["add"] + best["open"] + best["self mask"]) + best["values"]
        return [
            "secagg.plus", "", "", "", 32, self.graph.threshold, "", "", f"{upload:.4f}", mb(self.uploaded),
            f"{best['answer']:.4f}", mb(self.shares), f"{server:.3f}", mb(self.clients * (self.uploaded + self.shares)),
        ]  # fmt: skip


class KeyHolder:
    """One client of `std.bfv` under the public key of a key server, and both servers."""

    def __init__(self, clients: int, values: np.ndarray) -> None:
        self.clients, self.values = clients, values
        self.component = Bfv(Bfv.Options(range=BOUND))
        self.context, self.terms = self.component.new_keys(clients)
        self.packing = self.component.packing(self.terms)

    def _rows(self) -> np.ndarray:
        slots = self.packing.pack(self.packing.numbers.encode(self.values.astype(np.float64))[0])
        payload = np.zeros((-(-len(slots) // (self.component.slots - 1)), self.component.slots - 1), np.int64)
        payload.reshape(-1)[: len(slots)] = slots
        rows = np.empty((len(payload), self.component.slots), np.int64)
        rows[:, 0], rows[:, 1:] = self.packing.count_unit, payload
        return rows

    def round(self, timer: Timer) -> None:
        """The work of all, once each."""
        backend = self.component.backend
        data = timer("upload", lambda: backend.encrypt(self.context, self._rows()))
        self.uploaded = sum(map(len, data))
        timer("add 8", lambda: backend.add(self.context, [data] * 8, self.component.slots))
        rows = timer("open", lambda: backend.decrypt(self.context, data, self.component.slots))
        slots = rows[:, 1:].reshape(-1)[: self.packing.num_slots(len(self.values))]
        timer("values", lambda: self.packing.numbers.decode(self.packing.unpack(slots, len(self.values)), 1))

    def rows(self, timer: Timer) -> list[object]:
        """The columns after `parameters`."""
        best = timer.best
        server = self.clients * best["add 8"] / 8 + best["open"] + best["values"]
        return [
            "std.bfv, key server", 4096, 109, 2, self.terms["field_bits"], 1, "", "", f"{best['upload']:.4f}",
            mb(self.uploaded), "", "", f"{server:.3f}", mb((self.clients + 1) * self.uploaded),
        ]  # fmt: skip


def mb(size: int) -> str:
    """Megabytes."""
    return f"{size / 1e6:.3f}"


def measure(clients: int, parameters: int, repeat: int) -> list[list[object]]:
    """The rows of one size."""
    values = np.random.default_rng(1).normal(0, 0.1, parameters).astype(np.float32)
    parts: list[Any] = [Threshold(clients, values, degree) for degree in (None, 8192)]
    for part in parts:
        part.timer = Timer()
        part.set_up(part.timer)
    others: list[Any] = [SecAggPlus(clients, values), KeyHolder(clients, values)]
    for part in others:
        part.timer = Timer()
    for _ in range(repeat):
        for part in (*parts, *others):
            part.round(part.timer)
    return [[clients, parameters, *part.rows(part.timer)] for part in (*parts, *others)]


def main() -> None:
    """Measures all sizes and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--parameters", type=int, nargs="+", default=[61_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "docs/numbers/threshold.csv")
    options = parser.parse_args()
    rows = []
    for clients, parameters in itertools.product(options.clients, options.parameters):
        for row in measure(clients, parameters, options.repeat):
            rows.append(row)
            print(dict(zip(COLUMNS, row, strict=True)), flush=True)
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
