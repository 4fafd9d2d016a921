"""Bits a scalar and error of noise in whole numbers: means of vectors under it, beside central Gaussian noise.

    python benchmarks/distributed_noise.py [--clients 1000] [--size 250] [--trials 20] [--out FILE]

Distributed mean estimation as in Kairouz, Liu & Steinke (ICML 2021) and Agarwal, Kairouz & Liu (NeurIPS 2021): n
vectors of length 1 are clipped, turned, rounded at random and noised by the core, as `std.rotate` and
`std.distributed_skellam` have it done; their sum is taken modulo 2^bits, as `secagg.plus` with `wraps: 4` does, and
turned back. The grid is the finest power of two on which 4 standard deviations of the sum fit half the modulus. Vectors
are `random` (uniform on the sphere, `aligned: 1 / sqrt(n)`) or `equal` (one vector n times, `aligned: 1`: the worst).

The ratio is the mean squared error over that of Gaussian noise on the sum at one trusted server, of the same epsilon
and delta by its exact curve. A ratio of 1.06 is noise of 1.03 times the size.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
from fedplug import Block, Client, Context, Layout, Server
from fedplug.api.errors import ProtectionError
from fedplug.api.links import Link, fold
from fedplug.mechanisms.execution import execute
from fedplug.mechanisms.rotation import rotate
from fedplug.privacy.accounting import gaussian_noise_multiplier
from fedplug_secagg.fixed_point import Wrapping, bits_needed
from fedplug_std.clip import Clip
from fedplug_std.distributed import DistributedDiscreteGaussian, DistributedSkellam
from fedplug_std.rotation import Rotate

DELTA, WRAPS = 1e-5, 4.0
KINDS: dict[str, Any] = {"Skellam": DistributedSkellam, "discrete Gaussian": DistributedDiscreteGaussian}
COLUMNS = [
    "vectors", "noise", "epsilon", "bits", "grid", "steps in a client's std", "wrapped", "mse ratio", "+-",
    "bits without wraps",
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
        self.ctx = Context(0, 1, layout, ("encrypted",), clients, clients, 1, "", Server(), parts)
        self.steps = fold([Link("encrypted", "protect", name, part, "client") for name, part in parts.items()], self.ctx)
        (release,) = self.steps[-1].after.releases
        self.std, self.norm, self.grid = release.noise_multiplier * release.clipping_norm, release.clipping_norm, grid

    def numbers(self, bits: int, aligned: float) -> Wrapping:
        """The residues of a sum, as `secagg.plus` has them."""
        clients, turned = self.ctx.num_clients, 1 << (self.ctx.layout.size.bit_length() - 1)
        signal = aligned * clients * self.norm / math.sqrt(turned)
        return Wrapping(self.grid, clients, bits, math.hypot(signal, math.sqrt(clients) * self.std))

    def mean(self, vectors: np.ndarray, trial: int, numbers: Wrapping) -> tuple[np.ndarray, float]:
        """The mean that the server finds, and the share of the sum's scalars that wrapped."""
        ctx, total, true = self.ctx, np.zeros(len(vectors[0]), np.uint64), np.zeros(len(vectors[0]))
        for number, vector in enumerate(vectors):
            client = Client(client_id=trial * len(vectors) + number, ctx=ctx)
            block = Block("encrypted", len(vector), vector)
            for step in self.steps:
                block = execute(step, block, client, ctx)
            total += numbers.residues(block.plain()).astype(np.uint64)
            true += block.plain()
        found = numbers.values(total)
        wrapped = float(np.mean(found != true))
        rotate(found, ctx.public_rng("rotation", "rotate", "encrypted"), back=True)
        return found / len(vectors), wrapped


def finest(kind: str, epsilon: float, bits: int, clients: int, size: int, aligned: float) -> Round | None:
    """The round on the finest grid whose sums fit; None where that is coarser than the noise."""
    for power in range(-30, 10):
        try:
            found = Round(kind, epsilon, 2.0**power, clients, size)
        except ProtectionError:  # too fine for float32, or beside the noise; or too coarse
            continue
        if found.numbers(bits, aligned).held >= WRAPS:
            return found
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--size", type=int, default=250)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--bits", type=int, nargs="+", default=[10, 12, 14, 16, 18])
    out = Path(__file__).resolve().parents[1] / "docs/numbers/distributed_noise.csv"
    parser.add_argument("--out", type=Path, default=out)
    args = parser.parse_args()
    clients, size, rng = args.clients, args.size, np.random.default_rng(1)
    drawn = rng.standard_normal((args.trials, clients, size))
    drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
    sets = {"random": (drawn, 1 / math.sqrt(clients)), "equal": (np.repeat(drawn[:, :1], clients, 1), 1.0)}
    with open(args.out, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for which, (vectors, aligned) in sets.items():
            for kind in KINDS:
                for epsilon in args.epsilons:
                    central = gaussian_noise_multiplier(epsilon, DELTA) ** 2 * size / clients**2
                    for bits in args.bits:
                        row = {"vectors": which, "noise": kind, "epsilon": epsilon, "bits": bits}
                        found = finest(kind, epsilon, bits, clients, size, aligned)
                        if found is not None:
                            row |= measured(found, bits, aligned, vectors, central)
                        writer.writerow(row)
                        file.flush()
                        print(row)


def measured(found: Round, bits: int, aligned: float, vectors: np.ndarray, central: float) -> dict[str, Any]:
    """The numbers of a row."""
    numbers = found.numbers(bits, aligned)
    ratios, wrapped = [], []
    for trial, each in enumerate(vectors):
        mean, share = found.mean(each.astype(np.float32), trial, numbers)
        ratios.append(float(np.square(mean - each.mean(0)).sum()) / central)
        wrapped.append(share)
    spread = np.std(ratios, ddof=1) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return {
        "grid": found.grid, "steps in a client's std": f"{found.std / found.grid:.3g}",
        "wrapped": f"{np.mean(wrapped):.2g}", "mse ratio": f"{np.mean(ratios):.3f}", "+-": f"{spread:.3f}",
        "bits without wraps": bits_needed(found.norm + 12 * found.std, found.grid, len(vectors[0])),
    }  # fmt: skip


if __name__ == "__main__":
    main()
