"""Record-level privacy accounting of DP-SGD: noise for a target epsilon by Opacus, and epsilon of the steps taken."""

from __future__ import annotations

import collections
import functools
import math
import warnings
from collections.abc import Iterable
from typing import NamedTuple

from fedplug.api.errors import ProtectionError
from fedplug_ledger.accounting import gaussian_noise_multiplier
from fedplug_std.accountants import Pld


class SampledSteps(NamedTuple):
    """Noisy steps of one client's training, each on a Poisson batch.

    Attributes:
        noise_multiplier: standard deviation over the norm to which each example's gradient is clipped.
        sampling_rate: q, the probability of each example to be in a batch.
        steps: their number.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int


_LEAST_NOISE, _MOST_NOISE, _LEAST_RATE = 1e-100, 1e100, 1e-12
"""Between these the formulas stay within floating point. Less noise counts as none. More noise, or a smaller rate,
counts as these bounds, which cost more."""
_TOLERANCE = 1e-3
"""How far below the target Opacus' search may end, in units of epsilon."""


def steps_of_a_round(num_examples: int, batch_size: int, epochs: int) -> int:
    """Gradient steps of one round: E ceil(n / B)."""
    return epochs * math.ceil(num_examples / batch_size)


def sampling_rate(num_examples: int, batch_size: int) -> float:
    """q = B / n, at most 1: the probability with which each example is in a batch."""
    return min(1.0, batch_size / num_examples)


@functools.cache
def noise_multiplier_for(epsilon: float, delta: float, rate: float, steps: int, accountant: str) -> float:
    """The noise multiplier with which `steps` Poisson-sampled Gaussian steps are (epsilon, delta)-DP for a record.

    Args:
        epsilon: privacy loss of all steps together, > 0.
        delta: failure probability, 0 < delta < 1.
        rate: q of the Poisson batches, in (0, 1]. At 1 nothing is sampled, and the exact Gaussian curve holds.
        steps: of all rounds together.
        accountant: `rdp` (Mironov et al. 2019) or `prv` (Gopi et al. 2021, needs less noise and seconds to find it).

    Raises:
        ProtectionError: Opacus finds none.
    """
    if rate == 1:
        return math.sqrt(steps) * gaussian_noise_multiplier(epsilon, delta)
    from opacus.accountants.utils import get_noise_multiplier

    target = {"target_epsilon": epsilon, "target_delta": delta, "sample_rate": rate, "steps": steps}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warns that the best order is the first or the last
        try:
            found = get_noise_multiplier(**target, accountant=accountant, epsilon_tolerance=_TOLERANCE)
        except (ValueError, RuntimeError) as error:
            raise ProtectionError(
                f"Opacus finds no noise for epsilon={epsilon:g} over {steps} steps at sampling rate {rate:.3g}: "
                f"{error}; give noise_multiplier instead"
            ) from error
    return float(found)


def record_epsilons(releases: Iterable[tuple[float, float, float]], delta: float) -> dict[str, float]:
    """Epsilon of one record of a client whose training has taken all of these steps.

    A record is present or absent (add-remove); the number of examples, which sets q, is public.

    Args:
        releases: of each round, as `SampledSteps`.
        delta: failure probability, 0 < delta < 1.

    Returns:
        `epsilon_pld` and `epsilon_rdp`, by `std.pld`.
    """
    counts: collections.Counter[tuple[float, float]] = collections.Counter()
    for (multiplier, rate, steps), times in collections.Counter(releases).items():
        if rate > 0 and steps > 0 and math.isfinite(multiplier):
            known = min(float(multiplier), _MOST_NOISE), max(float(rate), _LEAST_RATE)
            counts[known] += times * int(steps)
    return dict(_record_epsilons(tuple(sorted(counts.items())), delta))


@functools.lru_cache(maxsize=1024)
def _record_epsilons(counts: tuple[tuple[tuple[float, float], int], ...], delta: float) -> dict[str, float]:
    """The same for sorted, merged releases. Clients with equally many examples have equal ones."""
    if not counts:
        return {"epsilon_pld": 0.0, "epsilon_rdp": 0.0}
    if any(multiplier < _LEAST_NOISE for (multiplier, _), _ in counts):
        return {"epsilon_pld": math.inf, "epsilon_rdp": math.inf}
    releases = [("gaussian", multiplier, rate, steps) for (multiplier, rate), steps in counts]
    return {f"epsilon_{method}": value for method, value in _ACCOUNTANT.compose(releases, delta, "zero_out").items()}


_ACCOUNTANT = Pld(Pld.Options())
