"""Budgets of layers: PSI scores divide epsilon among them, and each share gives an amount of noise (FedRE, Sec. 3.2.2).

Every layer l of one upload has Gaussian noise of standard deviation C_l sigma_l on values clipped to C_l. All layers go
out together, so their joint cost counts: one Gaussian release of multiplier (sum over l of 1/sigma_l^2)^(-1/2), for any
clips. Three allocations turn shares of epsilon into multipliers:

* `exact`: sigma_l = s / eps_l as in eq. 9, so that the shares set the noise, with the factor s for which all layers of
  all T rounds together cost exactly (epsilon, delta). 1/sigma_l is a layer's budget in Gaussian DP (Dong et al. 2019),
  where budgets compose as squares; the shares keep their ratios there.
* `sum`: each layer's rounds cost exactly (eps_l, delta / L), by the analytic Gaussian. Adding epsilons up as Corollary
  1 does is then valid, and an upper bound: the layers together cost less.
* `as_published`: eq. 9 as printed. It gives eps_l only up to a limit (7.97 for delta 1e-5). Above it, the cost is more.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from fedplug.api.errors import ProtectionError
from fedplug_ledger.accounting import effective_multiplier, gaussian_epsilon, gaussian_noise_multiplier

if TYPE_CHECKING:
    from numpy.typing import NDArray

Allocation = Literal["exact", "sum", "as_published"]
FLOOR = 1e-12
"""Scores count as at least this share of the largest, because eq. 6 divides by them."""
_ROUND_UP = 1 + 2.0**-40
"""Margin against rounding in float64, so that the noise is never less than `released_multiplier` says."""


@dataclasses.dataclass(frozen=True, eq=False)
class Budgets:
    """The permitted cost of each of L layers, and its noise.

    Attributes:
        epsilons: eps_l of eq. 6, (L,); their sum is epsilon.
        sigmas: noise multiplier of one round, (L,): standard deviation over clipping norm.
        rounds: T, the number of rounds that epsilon is for.
    """

    epsilons: NDArray[np.float64]
    sigmas: NDArray[np.float64]
    rounds: int

    @property
    def multiplier(self) -> float:
        """The multiplier of the one Gaussian release that costs as much as all layers of one round together."""
        return effective_multiplier(self.sigmas.tolist())

    def cost(self, delta: float, adjacency: Literal["zero_out", "replace_one"] = "zero_out") -> float:
        """Exact epsilon of all layers and rounds together."""
        half = 2 if adjacency == "replace_one" else 1
        return gaussian_epsilon(self.multiplier / math.sqrt(self.rounds) / half, delta)

    def costs(self, delta: float) -> NDArray[np.float64]:
        """Exact epsilon of each layer alone over all rounds, zero-out, (L,)."""
        return np.array([gaussian_epsilon(sigma / math.sqrt(self.rounds), delta) for sigma in self.sigmas])


def floored(scores: NDArray[np.floating], floor: float = FLOOR) -> NDArray[np.float64]:
    """Scores without zeros: a score below `floor` times the largest is lifted to that.

    Args:
        scores: PSI scores of the L layers, >= 0.
        floor: share of the largest score.

    Raises:
        ProtectionError: a score is NaN, infinite or negative, or all are 0.
    """
    exact = np.asarray(scores, np.float64)
    unusable = int(np.count_nonzero(~(np.isfinite(exact) & (exact >= 0))))
    if unusable:
        raise ProtectionError(
            f"{unusable} of {len(exact)} layer scores are NaN, infinite or negative, and budgets cannot go by them; "
            "the model diverged: lower lr in train"
        )
    largest = float(exact.max(initial=0.0))
    if largest == 0:
        raise ProtectionError(
            f"all {len(exact)} layer scores are 0, so no layer differs from another: the privacy-sensitive region does "
            "not reach any gradient; choose another region, or noise all layers alike with std.clip and std.gaussian"
        )
    return np.maximum(exact, floor * largest)


def shares(scores: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Eq. 6: eps_l = epsilon * (1 / S_l) / sum over t of 1 / S_t. The most sensitive layer gets the least.

    Args:
        scores: S_l > 0, (L,); see `floored`.
        epsilon: the total to divide, > 0.
    """
    inverse = float(scores.min(initial=math.inf)) / scores  # 1 / S_l, up to a factor that cancels; within (0, 1]
    found: NDArray[np.float64] = epsilon * inverse / inverse.sum()
    return found


def budgets(
    scores: NDArray[np.float64], epsilon: float, delta: float, rounds: int, allocation: Allocation, layers: int
) -> Budgets:
    """Eq. 6 and the noise that an allocation derives from it.

    Args:
        scores: S_l > 0 of the layers that share epsilon.
        epsilon, delta: for all of these layers and all rounds together.
        rounds: T.
        allocation: `exact`, `sum` or `as_published`; see the module.
        layers: L of delta_l = delta / L. It counts all layers of the model, even where only some get noise, so that
            delta_l is the same in every round and at every client.
    """
    epsilons = shares(scores, epsilon)
    if allocation == "exact":
        # The sum of 1/sigma_l^2 over layers and rounds is T sum(eps_l^2) / s^2, which must be 1/total^2.
        total = gaussian_noise_multiplier(epsilon, delta) * _ROUND_UP
        sigmas = math.sqrt(rounds) * total * math.hypot(*epsilons) / epsilons
    elif allocation == "sum":
        analytic = [gaussian_noise_multiplier(one, delta / layers) for one in epsilons.tolist()]
        sigmas = math.sqrt(rounds) * np.array(analytic) * _ROUND_UP
    else:
        sigmas = math.sqrt(2 * rounds * math.log(layers / delta)) / epsilons  # eq. 9
    return Budgets(epsilons, sigmas, rounds)


def released_multiplier(epsilon: float, delta: float, rounds: int, allocation: Allocation, layers: int) -> float:
    """A lower bound on the multiplier of one round's layers together, for any scores. The ledger uses it.

    `exact` has exactly this multiplier. In `sum` the layers cost at most (epsilon, delta) by basic composition, so a
    Gaussian with that cost has a multiplier no smaller than the analytic one. In `as_published` the sum of eps_l^2 is
    at most epsilon^2, which a single layer reaches.

    Args:
        epsilon, delta, rounds, allocation, layers: as in `budgets`.
    """
    if allocation == "as_published":
        return math.sqrt(2 * rounds * math.log(layers / delta)) / epsilon
    return math.sqrt(rounds) * gaussian_noise_multiplier(epsilon, delta)


@functools.lru_cache(maxsize=64)
def literal_limit(delta: float) -> float:
    """The largest eps_l that eq. 9 really gives. Above it, sqrt(2 ln(1/delta)) / eps_l is too small a multiplier.

    The number of rounds cancels. About 7.97 for delta 1e-5.

    Args:
        delta: delta_l of the layer.
    """
    low, high = 1e-3, 1e3
    for _ in range(100):
        middle = math.sqrt(low * high)
        holds = gaussian_epsilon(math.sqrt(2 * math.log(1 / delta)) / middle, delta) <= middle
        low, high = (middle, high) if holds else (low, middle)
    return low
