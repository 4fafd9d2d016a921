"""Secret noise, side by side in one process: numpy's samplers over ChaCha20 against fedplug's own.

    python benchmarks/noise.py [--json] [--params 262144] [--repeats 31]

Both add noise to the same values, clipped to norm 1, and round to the same grid; times are CPU time of one thread,
medians over the repeats, in which the samplers take turns. The baseline is fedplug's earlier method: randomgen's
ChaCha20 keyed by the system as the bits of numpy's ziggurat, and the same rounding in whole arrays. Machines differ and
are shared, so the target is a ratio: 8 ns a sample where numpy over ChaCha20 takes 24.5, for the samples alone. The
additional cost of adding values and rounding to the grid is printed too, and is nearly the same for both. Exits with 1
if the target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from fedplug.api.grids import finest
from fedplug.mechanisms.noise import add_laplace, add_noise
from fedplug.mechanisms.secure import BLOCK, SecureNoise
from numpy.typing import NDArray
from randomgen import ChaCha

BEFORE, AFTER = 24.5, 8.0
"""Nanoseconds a sample, of the baseline and at most, on one machine."""


def chacha() -> np.random.Generator:
    """A fresh stream under a key from the system."""
    return np.random.Generator(ChaCha(key=int.from_bytes(os.urandom(32), "little"), rounds=20))


def baseline(values: NDArray[np.float32], grid: float, draw: Callable[[np.random.Generator], NDArray[Any]]) -> Any:
    """Values plus noise on the grid, as earlier with numpy's samplers."""
    noise = draw(chacha())
    noise += values
    noise /= grid
    np.rint(noise, out=noise)
    np.clip(noise, -(2.0**24), 2.0**24, out=noise)
    noise *= grid
    return noise.astype(np.float32)


def samples_alone(size: int) -> None:
    """Gaussian samples, without values and grid."""
    noise = SecureNoise()
    for start in range(0, size, BLOCK):
        noise.gaussian(1.0, min(BLOCK, size - start))


def calls(size: int) -> dict[str, Callable[[], Any]]:
    """The measured functions, by name."""
    values = np.random.default_rng(0).normal(0, size**-0.5, size).astype(np.float32)
    grid, coarse, stream = finest(1.0, 1.0), finest(1.0, 1.0, "laplace"), np.random.default_rng(0)

    def exponentials(generator: np.random.Generator) -> NDArray[Any]:
        drawn: NDArray[Any] = generator.standard_exponential(size) - generator.standard_exponential(size)
        return drawn

    return {
        "samples alone, numpy over ChaCha20": lambda: chacha().standard_normal(size),
        "samples alone, secure": lambda: samples_alone(size),
        "Gaussian, numpy over ChaCha20": lambda: baseline(values, grid, lambda found: found.standard_normal(size)),
        "Gaussian, secure": lambda: add_noise(values, 1.0, grid, "secure", stream),
        "Laplace, numpy over ChaCha20": lambda: baseline(values, coarse, exponentials),
        "Laplace, secure": lambda: add_laplace(values, 1.0, coarse, "secure", stream),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="secret noise: numpy's samplers over ChaCha20, against fedplug's")
    parser.add_argument("--params", type=int, default=262_144, help="values that get noise (default: 262144)")
    parser.add_argument("--repeats", type=int, default=31, help="repeats, of which medians are taken (default: 31)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    arguments = parser.parse_args()
    measured = calls(arguments.params)
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(arguments.repeats + 1):
        for name, call in measured.items():
            started = time.thread_time()
            call()
            seconds[name].append(time.thread_time() - started)
    each = {name: statistics.median(taken[1:]) / arguments.params * 1e9 for name, taken in seconds.items()}
    ratios = {name: each[f"{name.split(',')[0]}, numpy over ChaCha20"] / took for name, took in each.items()}
    met = ratios["samples alone, secure"] >= BEFORE / AFTER
    if arguments.json:
        print(json.dumps({"params": arguments.params, "nanoseconds": each, "ratios": ratios, "met": met}))
    else:
        print(f"{arguments.params} values; CPU ns a sample (times faster than numpy over ChaCha20)")
        for name, took in each.items():
            print(f"{name:36}{took:8.1f} (x{ratios[name]:.2f})")
        verdict = "met" if met else "MISSED"
        print(f"samples alone: x{ratios['samples alone, secure']:.2f}, at least x{BEFORE / AFTER:.2f}: {verdict}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
