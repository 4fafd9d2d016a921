"""SenseCrypt's model parameter selection problem (Sec. 3.3, Eq. 4 to 9), solved exactly with one sort.

Every scalar costs the same to encrypt, so among all masks with k ones the best is that of the k largest sensitivities:
it has the largest sum f2, and satisfies Eq. 7 if any of them does. The binary program then reduces to one number, k.
The paper relaxes it to a linear program and rounds, which takes 12 to 18 s where this takes milliseconds.

This module uses only numpy, and knows nothing about clients or rounds.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 64
"""Equal-width bins of the plug-in estimate of mutual information. The paper names no estimator. For a mask that follows
from the weights the continuous quantity is infinite, so every value depends on a chosen number of bins."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """The constants of the selection problem at one client, named as in the paper.

    Attributes:
        alpha: encryption budget, share of the model that may be encrypted, in [0, 1].
        B, C: security level 1 - C exp(-B alpha), Eq. 7.
        beta1, beta2: weights of the objectives f1 (scalars encrypted) and f2 (sensitivity covered), > 0.
        raw: f1 and f2 as counted (as published) instead of normalised to [0, 1].
        eta: bound on the mutual information, in bits, Eq. 8; None leaves it out.
    """

    alpha: float
    B: float
    C: float
    beta1: float = 1.0
    beta2: float = 1.0
    raw: bool = False
    eta: float | None = None

    @property
    def level(self) -> float:
        """Share of the sensitivity that must be encrypted, Eq. 7."""
        return security_level(self.alpha, self.B, self.C)

    def cap(self, size: int) -> int:
        """The most scalars that may be encrypted: floor(alpha N), Eq. 6."""
        # The tiny addend keeps products such as 0.29 * 100 from falling below the integer that they represent.
        return min(size, math.floor(self.alpha * size + 1e-9))


@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """A solution.

    Attributes:
        mask: bool (N,), X of the paper: True where a scalar is encrypted.
        count: number of scalars to encrypt.
        level: share of the sensitivity that Eq. 7 demands.
        covered: share of the sensitivity that the mask covers.
        information: I(W; (1 - X) W) in bits, of the 64-bin plug-in estimate. NaN where no weights were given.
        security_violated: the budget is too small for `level`, and is used up.
        information_violated: the budget is too small for `eta`, and is used up.
    """

    mask: NDArray[np.bool_]
    count: int
    level: float
    covered: float
    information: float
    security_violated: bool
    information_violated: bool


def security_level(alpha: float, B: float, C: float) -> float:
    """1 - C exp(-B alpha): the share of the sensitivity that a client with budget alpha must encrypt, Eq. 7."""
    return 1 - C * math.exp(-B * alpha)


def solve(gamma: NDArray[np.float32], problem: Problem, weights: NDArray[np.float32] | None = None) -> Selection:
    """The mask that minimises beta1 f1 - beta2 f2 under Eq. 6, 7 and, if wanted, 8.

    Over prefixes of the descending order f2 is concave in k. So the objective falls while the next sensitivity exceeds
    its price, and rises from there on. Eq. 7 and Eq. 8 hold from some k on. So k is the largest of these three, but at
    most the budget. Of equal sensitivities the lowest index comes first. Where all are 0 the scalars do not differ, and
    each counts for 1/N of the sensitivity.

    Args:
        gamma: sensitivities, finite and >= 0, (N,).
        problem: the constants.
        weights: W, the local model, (N,); needed for the mutual information.

    Raises:
        ProtectionError: a sensitivity is negative, NaN or infinite.
        ValueError: `eta` without weights.
    """
    size, cap = len(gamma), problem.cap(len(gamma))
    if not size:
        return Selection(np.zeros(0, np.bool_), 0, problem.level, 1.0, math.nan, False, False)
    if problem.eta is not None and weights is None:
        raise ValueError("the mutual information needs the weights")
    ascending = _sorted(gamma)
    if ascending[-1] == 0:
        gamma = ascending = np.ones(size, np.float32)
    prefix = np.cumsum(ascending[::-1], dtype=np.float64)  # prefix[k - 1]: sum of the k largest
    total = float(prefix[-1])
    price = problem.beta1 / problem.beta2 * (1.0 if problem.raw else total / size)
    worthwhile = size - int(np.searchsorted(ascending, price, side="right"))
    # A share that misses the level by the rounding of a sum of 10^7 numbers counts as met.
    required = problem.level * total * (1 - 1e-12)
    secure = min(size, int(np.searchsorted(prefix, required)) + 1) if required > 0 else 0
    bins = None if weights is None else Bins.of(weights)
    informed = 0 if bins is None else _informed(gamma, ascending, bins, problem.eta)
    count = min(cap, max(secure, informed, worthwhile))
    mask = top(gamma, ascending, count)
    return Selection(
        mask,
        count,
        problem.level,
        covered=float(prefix[count - 1]) / total if count else 0.0,
        information=math.nan if bins is None else bins.information(mask),
        security_violated=secure > cap,
        information_violated=informed > cap,
    )


def top(gamma: NDArray[np.float32], ascending: NDArray[np.float32], count: int) -> NDArray[np.bool_]:
    """Mask of the `count` largest sensitivities; of equal ones the lowest indices.

    Args:
        gamma: (N,).
        ascending: the same values, sorted.
        count: 0 to N.
    """
    size = len(gamma)
    if count == 0 or count == size:
        return np.full(size, count == size)
    least = ascending[size - count]
    mask: NDArray[np.bool_] = gamma > least
    mask[np.flatnonzero(gamma == least)[: count - int(np.count_nonzero(mask))]] = True
    return mask


def _sorted(gamma: NDArray[np.float32]) -> NDArray[np.float32]:
    ascending = np.sort(gamma)  # NaN comes last
    if not (ascending[0] >= 0 and np.isfinite(ascending[-1])):
        wrong = int(np.count_nonzero(~(gamma >= 0) | np.isinf(gamma)))
        raise ProtectionError(
            f"{wrong} of {len(gamma)} sensitivities are negative, NaN or infinite; they are magnitudes, so either the "
            "scorer gives none, or the local training diverged: lower lr in train"
        )
    return ascending


def _informed(gamma: NDArray[np.float32], ascending: NDArray[np.float32], bins: Bins, eta: float | None) -> int:
    """The fewest scalars with which Eq. 8 holds, by bisection: the information falls with each of them, to 0."""
    low, high = 0, 0 if eta is None else len(gamma)
    while low < high:
        middle = (low + high) // 2
        if bins.information(top(gamma, ascending, middle)) <= (eta or 0.0):
            high = middle
        else:
            low = middle + 1
    return low


@dataclasses.dataclass(frozen=True, eq=False)
class Bins:
    """The weights of a model, sorted into equal bins from min(W, 0) to max(W, 0).

    Attributes:
        of_weight: uint8 (N,), the bin of each weight.
        counts: int64 (BINS,), weights in each bin.
        zero: the bin of 0, the apparent value of an encrypted weight.
    """

    of_weight: NDArray[np.uint8]
    counts: NDArray[np.int64]
    zero: int

    @classmethod
    def of(cls, weights: NDArray[np.float32]) -> Bins:
        """Sorts the weights.

        Raises:
            ProtectionError: a weight is NaN or infinite.
        """
        lowest, highest = min(float(weights.min()), 0.0), max(float(weights.max()), 0.0)
        if not math.isfinite(highest - lowest):
            raise ProtectionError("a weight is NaN or infinite: the local training diverged; lower lr in train")
        scale = BINS / (highest - lowest) if highest > lowest else 0.0
        places = np.append(weights, np.float32(0)).astype(np.float64)
        places -= lowest
        places *= scale
        found = np.minimum(places, BINS - 1).astype(np.uint8)
        return cls(found[:-1], np.bincount(found[:-1], minlength=BINS), int(found[-1]))

    def information(self, mask: NDArray[np.bool_]) -> float:
        """I(W; (1 - X) W) in bits (Eq. 3 and 8), the plug-in estimate over the bins.

        With Y = (1 - X) W it is H(W) - H(W | Y). Given Y, W is uncertain only where Y is in the bin of 0. That bin
        holds the encrypted weights of all bins and the weights that are near 0 themselves. The information never rises
        when one more weight is encrypted.
        """
        hidden = np.bincount(self.of_weight[mask], minlength=BINS)
        hidden[self.zero] = self.counts[self.zero]
        open_entropy = _x_log_x(np.array([hidden.sum()])) - _x_log_x(hidden)
        entropy = _x_log_x(np.array([self.counts.sum()])) - _x_log_x(self.counts)
        return max(0.0, (entropy - open_entropy) / int(self.counts.sum()))


def _x_log_x(counts: NDArray[np.int64]) -> float:
    """Sum of n log2 n, where 0 log 0 = 0."""
    positive = counts[counts > 0].astype(np.float64)
    return float(positive @ np.log2(positive))
