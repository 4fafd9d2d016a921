"""Statistics of noise: what must hold of it where the ledger counts it, and how far chance explains what is found.

The ledger takes noise to be independent from scalar to scalar, from round to round and from run to run, and everywhere
of the stated scale. Where a test asks many questions at once, such as one for every distance between two scalars, the
bound is wide enough for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DEVIATIONS = 6.0
"""Standard errors by which an estimate may miss what is stated: by chance once in five hundred million tries."""

_OF_MANY = 7.5
"""The same where 10,000 estimates are looked at. For sums of products of independent symmetric values, over the norm of
these products, chance exceeds it once in 10^12 tries (Hoeffding), so once in 10^8 runs."""


def scale_problem(noise: NDArray[np.float64], std: float, mechanism: str, in_layer: bool) -> Iterator[str]:
    """Whether noise has the stated standard deviation, all scalars together."""
    found, count = math.sqrt(float(np.mean(np.square(noise)))), len(noise)
    kurtosis = 6.0 if mechanism == "laplace" else 3.0
    tolerance = _DEVIATIONS * math.sqrt((kurtosis - 1) / count) / 2
    if std == 0:
        if found:
            yield f"it states no noise, and adds some of standard deviation {found:.4g}"
    elif abs(found / std - 1) > tolerance:
        where = " in a layer" if in_layer else ""
        yield (
            f"it states noise of standard deviation {std:.4g}{where}, and adds {found:.4g}: {found / std - 1:+.1%}, "
            f"where chance explains {tolerance:.1%}"
        )


def repeated_problem(
    first: NDArray[np.float64], second: NDArray[np.float64], other: str = "of round 2 follows that of round 1",
    remedy: str = "draw it anew in each round",
) -> Iterator[str]:  # fmt: skip
    """Whether two noises are alike: the ledger adds up rounds whose noises know nothing of each other.

    Each product is its own measure of what chance does, so values may have noise of different scales.
    """
    products, size = first * second, float(np.linalg.norm(first) * np.linalg.norm(second))
    found, chance = float(products.sum()), _DEVIATIONS * float(np.linalg.norm(products))
    if abs(found) > chance:
        yield (
            f"its noise {other}: a correlation of {found / size:+.2f}, where chance explains {chance / size:.2f}; "
            f"whoever has both subtracts what they share: {remedy}"
        )


def uneven_problems(rows: NDArray[np.float64]) -> Iterator[str]:
    """Whether some scalars have more noise than others: where two draws are large together.

    Args:
        rows: shape (m, n), m >= 2 draws for n scalars, over what is stated of them.
    """
    none, ties = int((rows == 0).all(0).sum()), float(np.mean(rows == 0))
    expected = rows.shape[1] * ties ** len(rows)  # values on a coarse grid are 0 now and then
    if none > expected + _DEVIATIONS * math.sqrt(expected) + 3:
        yield f"{none} of {rows.shape[1]} scalars have no noise in {len(rows)} draws; each must have its own"
        return
    half = len(rows) // 2
    first, second = (np.square(part).mean(0) for part in (rows[:half], rows[half:]))
    products = (first - first.mean()) * (second - second.mean())
    found, chance = float(products.sum()), _DEVIATIONS * float(np.linalg.norm(products))
    if found > chance:
        yield (
            f"its noise is larger for some scalars than for others: the squares of two draws have a covariance of "
            f"{found / products.size:.2g}, where chance explains {chance / products.size:.2g}; give each the same"
        )


def shared_problems(rows: NDArray[np.float64]) -> Iterator[str]:
    """Whether scalars share noise: equal but for the sign anywhere, or correlated at a distance or about a middle.

    Args:
        rows: shape (m, n), m draws of noise that is as often positive as negative.
    """
    if rows.shape[1] < 2:
        return
    yield from _copied(rows)
    size, width = rows.shape[1], 1 << (2 * rows.shape[1]).bit_length()

    def transformed(values: NDArray[np.float64]) -> NDArray[np.complex128]:
        found: NDArray[np.complex128] = np.fft.rfft(values, width, axis=1)
        return found

    values, squares = transformed(rows), transformed(np.square(rows))
    # Sums over all pairs that lie k apart, and over those on both sides of a middle, where each pair comes twice.
    apart, apart_norm = (np.fft.irfft((np.abs(each) ** 2).sum(0), width)[1:size] for each in (values, squares))
    middle, middle_norm = (np.fft.irfft((each**2).sum(0), width)[: 2 * size - 1] for each in (values, squares))
    middle[::2] -= np.square(rows).sum(0)  # a scalar with itself
    middle_norm[::2] -= (rows**4).sum(0)
    for what, sums, norms in (("apart", apart, apart_norm), ("about a middle", middle / 2, middle_norm / 2)):
        # Rounding of the transform, where few pairs are left and no sum could be large.
        floor = 1e-6 * float(np.square(rows).mean()) ** 2 * rows.size
        over = np.abs(sums) / np.sqrt(np.maximum(norms, floor))
        place = int(np.argmax(over))
        if over[place] > _OF_MANY:
            yield (
                f"its noise is shared between scalars {f'{place + 1} {what}' if what == 'apart' else what}: "
                f"{over[place]:.0f} standard deviations of what chance explains; draw each one's by itself"
            )


def _copied(rows: NDArray[np.float64]) -> Iterator[str]:
    """Scalars with the same noise but for its sign, wherever they are."""
    sizes = np.abs(rows)
    noisy = sizes[:, (sizes > 0).any(0)]
    count = noisy.shape[1]
    ties = 1.0  # chance that two scalars are alike, on a coarse grid
    for row in noisy:
        counts = np.unique(row, return_counts=True)[1]
        ties *= float((counts * (counts - 1.0)).sum()) / max(1, count * (count - 1))
    alike = count - len(np.unique(noisy, axis=1).T)
    if ties * count**2 < 0.01 and alike > 3:
        yield f"{alike} of {count} scalars have the noise of another one, or its opposite; draw each one's by itself"
