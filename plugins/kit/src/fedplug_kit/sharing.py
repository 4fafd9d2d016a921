"""What noise at scalars, clients, rounds and runs must not share, tested of its scores (`fedplug_kit.law`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedplug_kit.law import Draws, below, odds

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OF_ANOTHER_RUN = "is that of another run of the same recipe", "what is said to be secret must not follow from a seed"


def repeated_problems(draws: Draws, fresh: Draws | None, chance: float) -> Iterator[str]:
    """Whether noises are alike: between two rounds, two clients or two runs."""
    scores = draws.scores
    rounds, clients = (list(itertools.combinations(range(size), 2)) for size in scores.shape[:2])
    pairs = [
        (scores[one], scores[two], f"of round {two + 1} follows that of round {one + 1}", "draw it anew in each round")
        for one, two in rounds
    ]
    pairs += [
        (scores[:, one], scores[:, two], _of(draws, one, two), "let each draw its own")
        for one, two in clients
    ]
    if fresh is not None:
        pairs.append((scores, fresh.scores, *_OF_ANOTHER_RUN))
    for first, second, other, remedy in pairs:
        yield from repeated_problem(first.ravel(), second.ravel(), other, remedy, chance / len(pairs))


def _of(draws: Draws, one: int, two: int) -> str:
    return f"of {draws.who[two]} follows that of {draws.who[one]}"


def repeated_problem(
    first: NDArray[np.float64], second: NDArray[np.float64], other: str, remedy: str, chance: float
) -> Iterator[str]:
    """Whether two noises are alike: the ledger adds up rounds whose noises know nothing of each other.

    Each product is as often positive as negative, so their sum exceeds c times their norm with a probability of at most
    2 exp(-c^2 / 2) (Hoeffding).
    """
    products, size = first * second, float(np.linalg.norm(first) * np.linalg.norm(second))
    found, explained = float(products.sum()), hoeffding(chance) * float(np.linalg.norm(products))
    if abs(found) > explained:
        yield (
            f"its noise {other}: a correlation of {found / size:+.2f}, where chance explains {explained / size:.2f}; "
            f"whoever has both subtracts what they share: {remedy}"
        )


def follows_problems(draws: Draws, values: NDArray[np.float32], chance: float) -> Iterator[str]:
    """Whether what is added to values goes with them, so that values come out longer than they went in."""
    if len(values) != draws.scores.shape[-1]:
        return
    products = draws.scores * values
    found, explained = float(products.sum()), hoeffding(chance) * float(np.linalg.norm(products))
    if abs(found) > explained:
        size = float(np.linalg.norm(draws.scores) * np.linalg.norm(np.broadcast_to(values, products.shape)))
        yield (
            f"what it adds follows the values: a correlation of {found / size:+.2f}, where chance explains "
            f"{explained / size:.2f}; leave them as they are, or state what becomes of them"
        )


def hoeffding(chance: float) -> float:
    return math.sqrt(2 * math.log(2 / chance))


def missing_problems(draws: Draws, chance: float) -> Iterator[str]:
    """Whether some scalars have no noise in any draw; what is rounded to a grid is 0 now and then, as often as known.

    So many of n are, or more, with a probability of at most exp(-count ln(count / mean) + count - mean) (Chernoff).
    """
    found, cells = (each.reshape(-1, each.shape[-1]) for each in (draws.found, draws.cells))
    count = int((np.abs(found) <= cells).all(0).sum())
    mean = float((1 - 2 * below(-cells, draws.mechanism)).clip(1e-300).prod(0).sum())
    if count > mean and count * math.log(count / max(mean, 1e-300)) - count + mean > math.log(1 / chance):
        yield f"{count} of {found.shape[1]} scalars have no noise in {len(found)} draws; each must have its own"


def uneven_problems(rows: NDArray[np.float64], chance: float) -> Iterator[str]:
    """Whether some scalars have more noise than others: where two draws are large together.

    Sizes are taken by rank in the stated law, from -1 to 1, as often above 0 as below it, so that Hoeffding holds.

    Args:
        rows: shape (m, n), m draws of scores for n scalars.
        chance: of suspecting noise that is as stated.
    """
    if len(rows) < 2:
        return
    ranks = 1 - 4 * below(-np.abs(rows), "gaussian")
    products = ranks[::2].mean(0) * ranks[1::2].mean(0)
    found, explained = float(products.sum()), hoeffding(chance) * float(np.linalg.norm(products))
    if found > explained:
        yield (
            f"its noise is larger for some scalars than for others: the sizes of two draws have a covariance of "
            f"{found / products.size:.2g}, where chance explains {explained / products.size:.2g}; give each the same"
        )


def shared_problems(rows: NDArray[np.float64], chance: float) -> Iterator[str]:
    """Whether scalars share noise: correlated at a distance or about a middle.

    Args:
        rows: shape (m, n), m draws of noise that is as often positive as negative.
        chance: of suspecting noise that is as stated.
    """
    if rows.shape[1] < 2:
        return
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
    # No product is in a circle of products, so each has a sign of its own, and Hoeffding holds for every sum.
    most = hoeffding(chance / (3 * size))
    for what, sums, norms in (("apart", apart, apart_norm), ("about a middle", middle / 2, middle_norm / 2)):
        # Rounding of the transform, where few pairs are left and no sum could be large.
        floor = 1e-6 * float(np.square(rows).mean()) ** 2 * rows.size
        over = np.abs(sums) / np.sqrt(np.maximum(norms, floor))
        place = int(np.argmax(over))
        if over[place] > most:
            yield (
                f"its noise is shared between scalars {f'{place + 1} {what}' if what == 'apart' else what}: "
                f"{over[place]:.0f} standard deviations of what chance explains; draw each one's by itself"
            )


def copied_problems(rows: NDArray[np.float64]) -> Iterator[str]:
    """Scalars with the same noise but for its sign, wherever they are, in all of m draws; shape (m, n)."""
    sizes = np.abs(rows)
    noisy = sizes[:, (sizes > 0).any(0)]
    count = noisy.shape[1]
    ties = 1.0  # chance that two scalars are alike, on a coarse grid
    for row in noisy:
        counts = np.unique(row, return_counts=True)[1]
        ties *= float((counts * (counts - 1.0)).sum()) / max(1, count * (count - 1))
    alike = count - len(np.unique(noisy, axis=1).T)
    # At most 0.005 are expected, so chance makes four, if one does not make the next, once in 10^10 runs.
    if ties * count**2 < 0.01 and alike > 3:
        yield f"{alike} of {count} scalars have the noise of another one, or its opposite; draw each one's by itself"


def rank_problems(rows: NDArray[np.float64], chance: float) -> Iterator[str]:
    """Whether noise at n scalars is a mix of fewer than n draws, whatever the mix: rows are then less orthogonal.

    The determinant of the correlations of m rows of normal draws is a product of independent Beta variables, whose
    moments are known; Markov's inequality with the best of them is the bound. With 8 rows it finds most mixes of n/8
    draws, with 16 of n/3.

    Args:
        rows: shape (m, n), scores.
        chance: of suspecting noise that is as stated.
    """
    count, size = rows.shape
    if count < 2 or size < 4 * count:
        return
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found = units @ units.T
    lost = -float(np.linalg.slogdet(found)[1])
    bound = 0.0
    for power in np.linspace(0, (size - count + 1) / 2, 65)[1:-1].tolist():
        moment = 0.0
        for before in range(1, count):
            a, b = (size - before) / 2, before / 2
            moment += math.lgamma(a - power) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(a + b - power)
        bound = min(bound, moment - power * lost)
    if bound < math.log(chance):
        mean = float((np.square(found).sum() - count) / (count * (count - 1)))
        yield (
            f"its noise at {size} scalars is as that of about {1 / mean:.0f} draws, mixed: whoever knows the mix "
            f"subtracts it ({odds(-bound)} by chance); draw each scalar's by itself"
        )
