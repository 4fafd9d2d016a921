"""Bits per scalar and error of noise in whole numbers: means of vectors under it, compared with central Gaussian noise.

    python benchmarks/distributed_noise.py [--trials 20] [--out FILE] [--table FILE]

Distributed mean estimation as in Kairouz, Liu & Steinke (ICML 2021) and Agarwal, Kairouz & Liu (NeurIPS 2021): n
vectors of length 1 are clipped, rotated, rounded at random and noised by the core, as with `std.rotate` and
`std.distributed_skellam`. Their sum is taken modulo 2^bits, as by `secagg.plus` with `wraps: 4`, and rotated
back. The grid is the finest power of two on which 4 standard deviations of the sum fit half the modulus. Vectors
are `random` (uniform on the sphere, `aligned: 1 / sqrt(n)`) or `equal` (one vector n times, `aligned: 1`: the worst).

The ratio is the mean squared error over that of Gaussian noise on the sum at one trusted server, of the same epsilon
and delta: by its exact curve, and by Renyi DP of whole orders, the only price of noise in whole numbers. A
ratio of 1.06 is noise of 1.03 times the size.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fedplug import Block, Client, Facts, Layout
from fedplug.api.errors import ProtectionError
from fedplug.api.links import Link
from fedplug.mechanisms.execution import execute
from fedplug.mechanisms.rotation import rotate
from fedplug_ledger.accounting import gaussian_noise_multiplier
from fedplug_ledger.integers import concentrated_multiplier
from fedplug_secagg.fixed_point import Wrapping, bits_needed
from fedplug_std.clip import Clip
from fedplug_std.distributed import DistributedDiscreteGaussian, DistributedSkellam
from fedplug_std.rotation import Rotate

DELTA, WRAPS, BITS = 1e-5, 4.0, (10, 12, 14, 16, 18)
SETTINGS = ((1000, 250, 1), (100, 61_706, 10))
"""Clients, scalars, and by how many there are fewer trials: the papers' mean estimation, and a small image model."""
KINDS: dict[str, Any] = {"Skellam": DistributedSkellam, "discrete Gaussian": DistributedDiscreteGaussian}
COLUMNS = [
    "clients", "scalars", "vectors", "noise", "epsilon", "bits", "grid", "steps in a client's std", "wrapped",
    "mse ratio", "mse ratio by Renyi DP", "+-", "bits without wraps",
]  # fmt: skip


class Round:
    """The links of all clients, at one grid."""

    def __init__(self, kind: str, epsilon: float, grid: float, clients: int, size: int) -> None:
        made = [
            ("clip", Clip, {"norm": 1.0}), ("rotate", Rotate, {}),
            ("noise", KINDS[kind], {"epsilon": epsilon, "delta": DELTA, "grid": grid, "shared_by": clients}),
        ]  # fmt: skip
        parts = {}
        for name, cls, options in made:
            parts[name] = cls(cls.Options(**options))
            parts[name].name = name
        layout = Layout.of([("vector", (size,))])
        links = tuple(Link("encrypted", "protect", name, part, "client") for name, part in parts.items())
        self.facts = Facts(0, 1, layout, ("encrypted",), clients, clients, 1, "", parts, chains={"encrypted": links})
        self.steps = self.facts.steps("encrypted")
        (release,) = self.steps[-1].after.releases
        self.std, self.norm, self.grid = release.noise_multiplier * release.clipping_norm, release.clipping_norm, grid

    def numbers(self, bits: int, aligned: float) -> Wrapping:
        """The residues of a sum, as in `secagg.plus`."""
        clients, turned = self.facts.num_clients, 1 << (self.facts.layout.size.bit_length() - 1)
        signal = aligned * clients * self.norm / math.sqrt(turned)
        return Wrapping(self.grid, clients, bits, math.hypot(signal, math.sqrt(clients) * self.std))

    def mean(self, vectors: np.ndarray, trial: int, numbers: Wrapping) -> tuple[np.ndarray, float]:
        """The mean that the server finds, and the share of the sum's scalars that wrapped."""
        facts, total, true = self.facts, np.zeros(len(vectors[0]), np.uint64), np.zeros(len(vectors[0]))
        for number, vector in enumerate(vectors):
            client = Client(client_id=trial * len(vectors) + number, facts=facts)
            block = Block("encrypted", len(vector), vector)
            for step in self.steps:
                block = execute(step, block, client, facts)
            total += numbers.residues(block.plain()).astype(np.uint64)
            true += block.plain()
        found = numbers.values(total)
        wrapped = float(np.mean(found != true))
        rotate(found, facts.public_rng("rotation", "rotate", "encrypted"), back=True)
        return found / len(vectors), wrapped


def finest(kind: str, epsilon: float, bits: int, clients: int, size: int, aligned: float) -> Round | None:
    """The round on the finest grid whose sums fit; None where that is coarser than the noise."""
    for power in range(-30, 10):
        try:
            found = Round(kind, epsilon, 2.0**power, clients, size)
        except ProtectionError:  # too fine for float32 or for the noise, or too coarse
            continue
        if found.numbers(bits, aligned).held >= WRAPS:
            return found
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 6.0])
    parser.add_argument("--out", type=Path, default=Path("distributed_noise.csv"), help="every measurement")
    parser.add_argument("--table", type=Path, default=Path("docs/numbers/distributed-noise.csv"), help="ratios by bits")
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    with open(args.out, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for clients, size, fewer in SETTINGS:
            for row in rows(clients, size, max(2, args.trials // fewer), args.epsilons):
                found.append({"clients": clients, "scalars": size, **row})
                writer.writerow(found[-1])
                file.flush()
                print(row)
    tabulate(found, args.table)


def tabulate(found: list[dict[str, Any]], path: Path) -> None:
    """Writes the ratios by Renyi DP, a column for each number of bits."""
    keys = ("clients", "scalars", "vectors", "noise", "epsilon")
    table: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in found:
        place = tuple(row[key] for key in keys)
        line = table.setdefault(place, dict(zip(keys, place, strict=True)))
        line[f"{row['bits']} bits"] = row.get("mse ratio by Renyi DP") or "none fits"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*keys, *(f"{bits} bits" for bits in BITS)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table.values())


def rows(clients: int, size: int, trials: int, epsilons: list[float]) -> Iterator[dict[str, Any]]:
    """The rows of a setting."""
    choices = itertools.product((("random", 1 / math.sqrt(clients)), ("equal", 1.0)), KINDS, epsilons, BITS)
    for (which, aligned), kind, epsilon, bits in choices:
        row = {"vectors": which, "noise": kind, "epsilon": epsilon, "bits": bits}
        found = finest(kind, epsilon, bits, clients, size, aligned)
        yield row if found is None else row | measured(found, bits, aligned, trials, epsilon)


def measured(found: Round, bits: int, aligned: float, trials: int, epsilon: float) -> dict[str, Any]:
    """The numbers of a row."""
    numbers, clients, size = found.numbers(bits, aligned), found.facts.num_clients, found.facts.layout.size
    errors, wrapped = [], []
    for trial in range(trials):
        vectors = np.random.default_rng(trial).standard_normal((clients, size)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        if aligned == 1:
            vectors = np.repeat(vectors[:1], clients, 0)
        mean, share = found.mean(vectors, trial, numbers)
        errors.append(float(np.square(mean - vectors.mean(0, dtype=np.float64)).sum()) * clients**2 / size)
        wrapped.append(share)
    error, spread = float(np.mean(errors)), float(np.std(errors, ddof=1)) / math.sqrt(trials)
    exact = gaussian_noise_multiplier(epsilon, DELTA) ** 2
    return {
        "grid": found.grid, "steps in a client's std": f"{found.std / found.grid:.3g}",
        "wrapped": f"{np.mean(wrapped):.2g}", "mse ratio": f"{error / exact:.3f}", "+-": f"{spread / exact:.3f}",
        "mse ratio by Renyi DP": f"{error / concentrated_multiplier(epsilon, DELTA) ** 2:.3f}",
        "bits without wraps": bits_needed(found.norm + 12 * found.std, found.grid, clients),
    }  # fmt: skip


if __name__ == "__main__":
    main()
