"""Lower bounds of epsilon from canaries that were in or out by independent fair coins, all in one run.

`dp_epsilon` counts right guesses (Steinke, Nasr, Jagielski, NeurIPS 2023) and holds for any mechanism. `normal_mu`
compares the scores of those in and out as two normal distributions (Andrew et al. 2023), as they are under Gaussian
noise. It gives a far higher bound from the same canaries, but holds for Gaussian noise only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from fedplug_ledger.accounting import gaussian_epsilon
from numpy.typing import NDArray

SHARES = (1.0, 0.5, 0.2)
"""Shares of the canaries that are guessed. They are fixed before a run, and each is tested at a third of the level."""
LARGEST = 64.0
"""Largest bound that is searched for: m canaries can show an epsilon of about log(m) at most."""
_LARGEST_MU = 32.0
"""Two normal distributions so far apart overlap nowhere that matters: epsilon is above 600 at any delta."""
_STEPS = 50


def dp_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The largest probability of this many right guesses, if the mechanism is (epsilon, delta)-DP.

    Steinke, Nasr, Jagielski (2023), Theorem 3.1 as in Appendix D: P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i
    with B of Binomial(r, e^epsilon / (1 + e^epsilon)).

    Args:
        canaries: m, each in or out by a fair coin.
        guesses: r <= m, how many were guessed; the others were left open.
        right: v <= r.
        epsilon, delta: the tested claim.

    Raises:
        ValueError: not 0 <= right <= guesses <= canaries, or epsilon or delta out of range.
    """
    from scipy.stats import binom  # takes over a second, and every report asks this plugin for its section

    if not 0 <= right <= guesses <= canaries:
        rule = "must be 0 <= right <= guesses <= canaries"
        raise ValueError(f"right={right}, guesses={guesses}, canaries={canaries} {rule}")
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise ValueError(f"epsilon={epsilon} must be >= 0, and delta={delta} from 0 to 1")
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if right == 0 or delta == 0:
        return min(1.0, tail)
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    steepest = float(np.max(below / np.arange(1, right + 1)))
    return min(1.0, tail + 2 * canaries * delta * steepest)


def dp_epsilon(canaries: int, guesses: int, right: int, delta: float, level: float) -> float:
    """The largest epsilon that this many right guesses refute.

    Args:
        canaries, guesses, right, delta: see `dp_p_value`.
        level: 1 - confidence, such as 0.05.

    Returns:
        A lower bound; 0 if nothing is refuted. It is the lower end of a bisection, so it is never too large.
    """
    return _largest(lambda epsilon: dp_p_value(canaries, guesses, right, epsilon, delta) < level, LARGEST)


def normal_mu(scores: NDArray[np.float64], inside: NDArray[np.bool_], level: float) -> float:
    """A lower bound of the distance between the scores of canaries in and out, in standard deviations.

    Andrew et al. (2023) fit a normal distribution to each; here the bound is exact for normal scores of one variance:
    Student's statistic of the two means has a noncentral t distribution, whose parameter is bounded. What other clients
    and other canaries add to a score makes it vary more, and the bound smaller.

    Args:
        scores: (m,), higher where a canary looks more as if it were in.
        inside: (m,), the coins.
        level: 1 - confidence.

    Returns:
        mu, as of noise with the multiplier 1 / mu; 0 if nothing is shown, and at most 32.
    """
    from scipy.stats import nct

    first, second = scores[inside], scores[~inside]
    if min(len(first), len(second)) < 2:
        return 0.0
    freedom = len(scores) - 2
    squares = float(((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum())
    unit = math.sqrt(1 / len(first) + 1 / len(second))
    apart, deviation = float(first.mean() - second.mean()), math.sqrt(squares / freedom)
    if apart <= 0:
        return 0.0
    if apart > 2 * _LARGEST_MU * deviation:  # no noise to speak of, and tails too thin to compute
        return _LARGEST_MU
    statistic = apart / deviation / unit
    return _largest(lambda mu: float(nct.sf(statistic, freedom, mu / unit)) < level, _LARGEST_MU)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The bounds that the scores of one view give.

    Attributes:
        canaries: how many there were.
        guesses, right: for the number of guesses with the highest bound.
        any_mechanism: lower bound of epsilon, whatever the mechanism is.
        gaussian: lower bound of epsilon where all noise is Gaussian.
        most: the value of `any_mechanism` if every guess had been right.
    """

    canaries: int
    guesses: int
    right: int
    any_mechanism: float
    gaussian: float
    most: float


def estimate(scores: NDArray[np.float64], inside: NDArray[np.bool_], delta: float, level: float) -> Estimate:
    """Both lower bounds, which hold together with probability 1 - level.

    The highest scores are guessed to be in, and an equal number of the lowest to be out. Half of the level goes to each
    bound.

    Args:
        scores: (m,), higher where a canary looks more as if it were in.
        inside: (m,), the coins.
        delta: of the claim, 0 < delta < 1.
        level: 1 - confidence.
    """
    count, part = len(scores), level / 2 / len(SHARES)
    tried = [right_guesses(scores, inside, share) for share in SHARES]
    shown = [dp_epsilon(count, *each, delta, part) for each in tried]
    best = int(np.argmax(shown))  # the first, all of them, where nothing is shown
    mu = normal_mu(scores, inside, level / 2)
    gaussian = gaussian_epsilon(1 / mu, delta) if mu > 0 else 0.0
    return Estimate(count, *tried[best], shown[best], gaussian, most_shown(count, delta, level))


def most_shown(canaries: int, delta: float, level: float) -> float:
    """The value of `Estimate.any_mechanism` if every guess is right."""
    part = level / 2 / len(SHARES)
    guesses = [2 * (round(share * canaries) // 2) for share in SHARES]
    return max(dp_epsilon(canaries, each, each, delta, part) for each in guesses)


def right_guesses(scores: NDArray[np.float64], inside: NDArray[np.bool_], share: float) -> tuple[int, int]:
    """Number of guesses and of right guesses, if this share of the canaries is guessed, half of them in."""
    half = round(share * len(scores)) // 2
    order = np.argsort(scores, kind="stable")
    right = int(inside[order[len(order) - half :]].sum() + (~inside[order[:half]]).sum())
    return 2 * half, right


def _largest(refuted: Callable[[float], bool], most: float) -> float:
    """The largest refuted number up to `most`, by bisection from below; every smaller one is refuted too."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
