"""Where noise comes from: AES keyed by the system, OpenDP's exact sampler, or a reproducible stream.

Every source gives values on a public grid, a power of two. The low bits of a floating-point sum `value + noise` depend
on `value` in ways that the analysis does not cover (Mironov, CCS 2012; Haney et al., CCS 2022); rounding to a
grid that was fixed beforehand removes them. Every result is a float32 without further rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fedplug.api.grids import STEPS, check_exact
from fedplug.mechanisms.secure import BLOCK, LARGEST_GAUSSIAN, LARGEST_LAPLACE, SecureNoise

if TYPE_CHECKING:
    from numpy.typing import NDArray


def add_laplace(
    values: NDArray[np.float32], scale: float, grid: float, source: str, stream: np.random.Generator
) -> NDArray[np.float32]:
    """Values plus Laplace noise of density exp(-|x| / scale) / (2 scale), on the grid.

    Args:
        values: float32 (n,), each of magnitude at most 2^24 grid steps.
        scale: b > 0, in units of the values; the standard deviation is sqrt(2) b.
        grid: a power of two; `fedplug.api.grids.finest` or coarser.
        source: `secure` (AES-256 keyed by the operating system, see `fedplug.mechanisms.secure`) or `reproducible`
            (`stream`, no protection).
        stream: used by `reproducible` alone.

    Returns:
        float32 (n,), integer multiples of `grid`; results beyond 2^24 steps saturate there.
    """
    if source == "secure":
        secret = functools.partial(SecureNoise().laplace, scale)
        return _on_grid(values, secret, grid, LARGEST_LAPLACE * scale)

    def draw(size: int) -> NDArray[np.float64]:
        # The difference of two exponentials. Inverting the distribution function at a float64 would end the tail early.
        return (stream.standard_exponential(size) - stream.standard_exponential(size)) * scale

    return _on_grid(values, draw, grid, math.inf)


def add_noise(
    values: NDArray[np.float32], std: float, grid: float, source: str, stream: np.random.Generator
) -> NDArray[np.float32]:
    """Values plus Gaussian noise, on the grid.

    Args:
        values: float32 (n,), of norm at most 2^24 grid steps.
        std: standard deviation, > 0, in units of the values.
        grid: a power of two; `fedplug.api.grids.finest` or coarser.
        source: `secure` (AES-256 keyed by the operating system, see `fedplug.mechanisms.secure`; 8 ns a sample),
            `exact` (discrete Gaussian, OpenDP, about 10 us a sample) or `reproducible` (`stream`, no protection).
        stream: used by `reproducible` alone.

    Returns:
        float32 (n,), integer multiples of `grid`. Results beyond 2^24 steps saturate there, which as a function of the
        noised value alone costs no privacy.

    Raises:
        ProtectionError: the grid is too coarse for `exact`.
    """
    if source == "exact":
        check_exact(std, grid)
        steps = exact_steps(values, std, grid)
        np.clip(steps, -STEPS, STEPS, out=steps)
        steps *= grid
        return steps.astype(np.float32)
    if source == "secure":
        draw = functools.partial(SecureNoise().gaussian, std)
        return _on_grid(values, draw, grid, LARGEST_GAUSSIAN * std)
    return _on_grid(values, lambda size: stream.standard_normal(size) * std, grid, math.inf)


def add_correlated(
    values: NDArray[np.float32], std: float, grid: float, source: str, stream: np.random.Generator,
    taken: NDArray[np.float64],
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:  # fmt: skip
    """Values plus fresh Gaussian noise less some of the noise of earlier rounds, on the grid.

    Args:
        values, std, grid, source, stream: as of `add_noise`; the source is `secure` or `reproducible`.
        taken: float64 (n,), what is taken back of the noise of earlier rounds.

    Returns:
        The noised values, float32 (n,), and the noise that lies on them, float64 (n,), as it was before the results
        were rounded to the grid: what is rounded is the exact sum, and rounding it costs no privacy.
    """
    fresh = SecureNoise() if source == "secure" else None
    noise, done = np.empty(len(values)), 0

    def draw(size: int) -> NDArray[np.float64]:
        nonlocal done
        drawn = stream.standard_normal(size) * std if fresh is None else fresh.gaussian(std, size)
        here = slice(done, done + size)
        drawn -= taken[here]
        noise[here], done = drawn, done + size
        return drawn

    reach = LARGEST_GAUSSIAN * std + max(-float(taken.min(initial=0)), float(taken.max(initial=0)))
    return _on_grid(values, draw, grid, reach if fresh else math.inf), noise


def _on_grid(
    values: NDArray[np.float32], draw: Callable[[int], NDArray[np.float64]], grid: float, largest: float
) -> NDArray[np.float32]:
    """Values plus noise of magnitude up to `largest`, rounded to the grid and saturated at 2^24 steps."""
    noised = np.empty(len(values), np.float32)
    reach = max(-float(values.min(initial=0)), float(values.max(initial=0))) + largest
    saturates = not reach < (STEPS - 1) * grid
    # Between 2^52 and 2^53 grids float64 holds multiples of the grid alone, so that adding this rounds, to even.
    shift = 1.5 * 2.0**52 * grid
    for start in range(0, len(values), BLOCK):  # a block stays in the cache
        noise = draw(min(BLOCK, len(values) - start))
        if saturates:
            np.clip(noise, -2 * STEPS * grid, 2 * STEPS * grid, out=noise)  # values are at most half of that
        noise += values[start : start + BLOCK]
        noise += shift
        noise -= shift
        if saturates:
            np.clip(noise, -STEPS * grid, STEPS * grid, out=noise)
        noised[start : start + BLOCK] = noise
    return noised


def exact_steps(values: NDArray[np.float32], std: float, grid: float) -> NDArray[np.float64]:
    """Values on the grid plus discrete Gaussian noise (Canonne, Kamath & Steinke 2020), in grid steps."""
    import opendp.prelude as dp

    # Towards zero: rounding must not lift the norm of the values over the clipping norm.
    steps = np.trunc(values.astype(np.float64) / grid).astype(np.int64)
    if not len(steps):
        return steps.astype(np.float64)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    mechanism = dp.m.make_gaussian(*space, scale=std / grid)
    return np.array(mechanism(steps.tolist()), np.float64)
