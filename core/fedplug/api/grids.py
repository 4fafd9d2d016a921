"""Public grids: every noised value is a multiple of a power of two that was fixed beforehand.

The low bits of a floating-point sum `value + noise` depend on `value` in ways that the analysis does not cover
(Mironov, CCS 2012; Haney et al., CCS 2022); rounding to a grid removes them. Every result is a float32 without further
rounding.
"""

from __future__ import annotations

import math

from fedplug.api.errors import ProtectionError

STEPS = 2.0**24
"""float32 represents k * grid exactly for every integer |k| <= 2^24."""
COARSER = 16
"""Steps of the noise's grid to which noised values may be rounded when a public vector is added."""
_SMALLEST_REACH, _LARGEST_REACH = 2.0**-102, 2.0**127
"""Between them every multiple of the grid, from one step to 2^24, is a normal float32."""
_TAILS = {"laplace": 74.0}
_TAIL = 12.0
"""Standard deviations of Gaussian noise that the grid leaves room for; P(|noise| > 12 std) is 4e-33 for each value.
Beyond 74 scales of Laplace noise lie as few."""
FEWEST_EXACT = 2.0**15
"""Fewest grid steps in a standard deviation for which the discrete Gaussian is accounted as the continuous one."""
LEAST_INTEGER, LARGEST_INTEGER = 1.0, 2.0**12
"""Standard deviations of one client's noise in whole numbers, in steps: below the first nothing is known of sums of
discrete Gaussian noise, and beyond the second its law is no table."""


def finest(reach: float, std: float, mechanism: str = "gaussian") -> float:
    """The finest power of two on which every value of the zone is a float32: values of that reach, and the noise.

    For Gaussian multipliers of 1 and more that is about 2^-20 of the standard deviation, so that rounding adds less
    than 1e-12 of the noise's variance. It follows from public numbers alone.

    Args:
        reach: bound of the values before noise, finite.
        std: standard deviation, or b of Laplace noise, in the same units.
        mechanism: of the noise.

    Raises:
        ProtectionError: float32 holds no such values.
    """
    far = reach + _TAILS.get(mechanism, _TAIL) * std
    if not _SMALLEST_REACH <= far <= _LARGEST_REACH:
        raise ProtectionError(
            f"values of up to {reach:g} with noise of scale {std:g} are not numbers of float32, which reach from "
            f"{_SMALLEST_REACH:.1g} to {_LARGEST_REACH:.1g} here; choose the clipping norm and the noise between them"
        )
    return 2.0 ** math.ceil(math.log2(far / STEPS))


def power_of_two(grid: float | None) -> float | None:
    """A grid that is a power of two, or None; for validators of options.

    Raises:
        ValueError: it is none.
    """
    possible = grid is not None and 0 < grid < math.inf
    if grid is not None and not (possible and math.frexp(grid)[0] == 0.5):
        nearest = 2.0 ** round(math.log2(grid)) if possible else 2.0**-20
        raise ValueError(f"grid={grid} must be a power of two, such as {nearest!r}; or leave it out")
    return grid


def too_fine(grid: float, least: float) -> ProtectionError:
    """The complaint about a grid that is finer than the finest."""
    return ProtectionError(
        f"grid={grid!r} must be at least {least!r}, or float32 cannot hold the results; use that, or leave grid out"
    )


def check_exact(std: float, grid: float) -> None:
    """Refuses a grid on which the discrete Gaussian differs too much from the continuous one.

    Raises:
        ProtectionError: fewer than 2^15 steps to a standard deviation.
    """
    if std < FEWEST_EXACT * grid:
        raise ProtectionError(
            f"grid={grid:g} must be at most std / 2^15 = {std / FEWEST_EXACT:g} for source exact; leave grid "
            "out, use more noise, or source secure"
        )


def check_integer(std: float, grid: float) -> None:
    """Refuses a grid on which noise in whole numbers has no price, or which no table of its law holds.

    Raises:
        ProtectionError: less than one step to a standard deviation, or more than 2^12.
    """
    if not LEAST_INTEGER <= std / grid <= LARGEST_INTEGER:
        raise ProtectionError(
            f"grid={grid:g} must be between std / {LARGEST_INTEGER:g} = {std / LARGEST_INTEGER:g} and the std of one "
            f"client's noise, {std:g}; choose a power of two there, or leave grid out"
        )


def exact_slack(std_in_steps: float, samples: float) -> float:
    """Bound on the total variation between discrete Gaussian samples and rounded continuous ones.

    Rounding the continuous mechanism on grid values is post-processing, so the exact Gaussian curve holds for it. With
    s = std / grid, one sample of the discrete Gaussian differs from it by a Kullback-Leibler divergence of
    1 / (576 s^4) to leading order (doubled here); Pinsker's inequality bounds the rest. delta grows by at most
    (1 + e^epsilon) times this.
    """
    return math.sqrt(samples * 2 / (576 * std_in_steps**4) / 2)


def note_of(source: str, mechanism: str, slack: float) -> str:
    """A note on a source for readers of the ledger, as a sentence; empty if there is none."""
    if source == "reproducible":
        return "anyone who knows the seed can subtract this noise"
    if mechanism in ("skellam_sum", "discrete_gaussian_sum"):
        how = "an exact sampler" if source == "exact" else "a table of its law, exact to one part in 10^11"
        return f"whole numbers drawn by {how}, from a cryptographic stream"
    if source == "exact":
        return f"discrete Gaussian; over the run delta grows by less than (1 + e^epsilon) * {slack:.0e}"
    return (
        "floating-point samples of a cryptographic stream, the result rounded to a public grid; the proof leaves out "
        "the rounding inside the sampler"
    )
