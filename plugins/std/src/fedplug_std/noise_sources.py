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
from fedplug.api.errors import ProtectionError

from fedplug_std.secure_noise import BLOCK, LARGEST_GAUSSIAN, LARGEST_LAPLACE, SecureNoise

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOURCES = ("secure", "exact", "reproducible")
_STEPS = 2.0**24
"""float32 represents k * grid exactly for every integer |k| <= 2^24."""
_SMALLEST_REACH, _LARGEST_REACH = 2.0**-102, 2.0**127
"""Between them every multiple of the grid, from one step to 2^24, is a normal float32."""
_TAIL = 12.0
"""Standard deviations of noise that the grid leaves room for; P(|noise| > 12 std) is 4e-33 for each value."""
_LAPLACE_TAIL = 74.0
"""Scales of Laplace noise that the grid leaves room for: beyond lie as few values as beyond 12 std of a Gaussian."""
_FINEST_EXACT = 2.0**15
"""Fewest grid steps in a standard deviation for which the discrete Gaussian is accounted as the continuous one."""


def default_grid(norm: float, std: float) -> float:
    """The finest power of two on which every value of the zone is a float32: clipped values plus 12 std of noise.

    For multipliers of 1 and more that is about 2^-20 of the standard deviation, so that rounding adds less than 1e-12
    of the noise's variance. It follows from public numbers alone.

    Args:
        norm: L2 bound of the values before noise, finite.
        std: standard deviation of the noise, in the same units.

    Raises:
        ProtectionError: float32 holds no such values.
    """
    return _finest(norm, std, _TAIL)


def laplace_grid(norm: float, scale: float) -> float:
    """The finest power of two on which every value of the zone is a float32: clipped values plus 74 scales of noise.

    Args:
        norm: L1 bound of the values before noise, finite; no single value exceeds it.
        scale: b of the Laplace noise, in the same units.

    Raises:
        ProtectionError: float32 holds no such values.
    """
    return _finest(norm, scale, _LAPLACE_TAIL)


def _finest(norm: float, scale: float, tail: float) -> float:
    reach = norm + tail * scale
    if not _SMALLEST_REACH <= reach <= _LARGEST_REACH:
        raise ProtectionError(
            f"values of up to {norm:g} with noise of scale {scale:g} are not numbers of float32, which reach from "
            f"{_SMALLEST_REACH:.1g} to {_LARGEST_REACH:.1g} here; choose the clipping norm and the noise between them"
        )
    return 2.0 ** math.ceil(math.log2(reach / _STEPS))


def power_of_two(grid: float | None) -> float | None:
    """A grid that is a power of two, or None; for validators of options.

    Raises:
        ValueError: it is none.
    """
    if grid is not None and math.frexp(grid)[0] != 0.5:
        nearest = 2.0 ** round(math.log2(grid))
        raise ValueError(f"grid={grid} must be a power of two, such as {nearest!r}; or leave it out")
    return grid


def add_laplace(
    values: NDArray[np.float32], scale: float, grid: float, source: str, stream: np.random.Generator
) -> NDArray[np.float32]:
    """Values plus Laplace noise of density exp(-|x| / scale) / (2 scale), on the grid.

    Args:
        values: float32 (n,), each of magnitude at most 2^24 grid steps.
        scale: b > 0, in units of the values; the standard deviation is sqrt(2) b.
        grid: a power of two; `laplace_grid` or coarser.
        source: `secure` (AES-256 keyed by the operating system, see `secure_noise`) or `reproducible` (`stream`, no
            protection).
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
        grid: a power of two; `default_grid` or coarser.
        source: `secure` (AES-256 keyed by the operating system, see `secure_noise`; 8 ns a sample), `exact` (discrete
            Gaussian, OpenDP, about 10 us a sample) or `reproducible` (`stream`, no protection).
        stream: used by `reproducible` alone.

    Returns:
        float32 (n,), integer multiples of `grid`. Results beyond 2^24 steps saturate there, which as a function of the
        noised value alone costs no privacy.

    Raises:
        ProtectionError: the grid is too coarse for `exact`.
    """
    if source == "exact":
        steps = _exact_steps(values, std, grid)
        np.clip(steps, -_STEPS, _STEPS, out=steps)
        steps *= grid
        return steps.astype(np.float32)
    if source == "secure":
        draw = functools.partial(SecureNoise().gaussian, std)
        return _on_grid(values, draw, grid, LARGEST_GAUSSIAN * std)
    return _on_grid(values, lambda size: stream.standard_normal(size) * std, grid, math.inf)


def _on_grid(
    values: NDArray[np.float32], draw: Callable[[int], NDArray[np.float64]], grid: float, largest: float
) -> NDArray[np.float32]:
    """Values plus noise of magnitude up to `largest`, rounded to the grid and saturated at 2^24 steps."""
    noised = np.empty(len(values), np.float32)
    reach = max(-float(values.min(initial=0)), float(values.max(initial=0))) + largest
    saturates = not reach < (_STEPS - 1) * grid
    # Between 2^52 and 2^53 grids float64 holds multiples of the grid alone, so that adding this rounds, to even.
    shift = 1.5 * 2.0**52 * grid
    for start in range(0, len(values), BLOCK):  # a block stays in the cache
        noise = draw(min(BLOCK, len(values) - start))
        if saturates:
            np.clip(noise, -2 * _STEPS * grid, 2 * _STEPS * grid, out=noise)  # values are at most half of that
        noise += values[start : start + BLOCK]
        noise += shift
        noise -= shift
        if saturates:
            np.clip(noise, -_STEPS * grid, _STEPS * grid, out=noise)
        noised[start : start + BLOCK] = noise
    return noised


def check_exact(std: float, grid: float) -> None:
    """Refuses a grid on which the discrete Gaussian differs too much from the continuous one.

    Raises:
        ProtectionError: fewer than 2^15 steps to a standard deviation.
    """
    if std < _FINEST_EXACT * grid:
        raise ProtectionError(
            f"grid={grid:g} must be at most std / 2^15 = {std / _FINEST_EXACT:g} for source exact; leave grid "
            "out, use more noise, or source secure"
        )


def exact_slack(std_in_steps: float, samples: float) -> float:
    """Bound on the total variation between discrete Gaussian samples and rounded continuous ones.

    Rounding the continuous mechanism on grid values is post-processing, so the exact Gaussian curve holds for it. With
    s = std / grid, one sample of the discrete Gaussian differs from it by a Kullback-Leibler divergence of
    1 / (576 s^4) to leading order (doubled here); Pinsker's inequality bounds the rest. delta grows by at most
    (1 + e^epsilon) times this.
    """
    return math.sqrt(samples * 2 / (576 * std_in_steps**4) / 2)


def _exact_steps(values: NDArray[np.float32], std: float, grid: float) -> NDArray[np.float64]:
    """Values on the grid plus discrete Gaussian noise (Canonne, Kamath & Steinke 2020), in grid steps."""
    import opendp.prelude as dp

    check_exact(std, grid)
    # Towards zero: rounding must not lift the norm of the values over the clipping norm.
    steps = np.trunc(values.astype(np.float64) / grid).astype(np.int64)
    if not len(steps):
        return steps.astype(np.float64)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    mechanism = dp.m.make_gaussian(*space, scale=std / grid)
    return np.array(mechanism(steps.tolist()), np.float64)
