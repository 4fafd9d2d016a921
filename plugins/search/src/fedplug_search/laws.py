"""By which law the number of trials of a private choice is drawn, and what the best of them costs.

Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential Privacy", ICLR 2022. A trial draws its values from
a fixed distribution, and runs. How many trials there are is drawn too, and told to nobody. Then the best run costs
little more than one, whatever the number. With a number that is known, it costs as much as all trials together.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from fedplug_ledger.accounting import ORDERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAMED = {"logarithmic": 0.0, "geometric": 1.0}
"""Truncated negative binomial laws with a name, by their eta."""
POISSON = "poisson"
_NOTHING = -745.0
"""The logarithm of a chance below which it is 0 in float64."""


@dataclasses.dataclass(frozen=True)
class Law:
    """Of the number of trials: the truncated negative binomial, or Poisson's.

    Attributes:
        eta: of the former, > -1: the smaller, the less a choice costs and the more the number varies; None: Poisson.
        mean: number of trials, >= 1; above 1 but for Poisson.
    """

    eta: float | None
    mean: float

    @classmethod
    def read(cls, text: str, mean: float) -> Law:
        """From what people write: `geometric`, `logarithmic`, `poisson`, or an eta.

        Raises:
            ValueError: it is no law, or has no such mean.
        """
        if text != POISSON and mean <= 1:
            raise ValueError(f"{text} has a mean above 1, and --trials is {mean:g}; write --trials 10")
        if text in NAMED or text == POISSON:
            return cls(NAMED.get(text), mean)
        try:
            eta = float(text)
        except ValueError:
            eta = math.nan
        if not -1 < eta < 1e3:
            raise ValueError(f"{text!r} is no law; write geometric, logarithmic, poisson, or an eta above -1")
        return cls(eta, mean)

    @property
    def log_gamma(self) -> float:
        """Natural logarithm of gamma, in (0, 1), of the truncated negative binomial with this mean (Definition 1)."""
        eta, wanted = self.eta, math.log(self.mean)
        assert eta is not None

        def excess(log_gamma: float) -> float:
            return math.log(-math.expm1(log_gamma)) - (1 + min(eta, 0.0)) * log_gamma - self._norm(log_gamma) - wanted

        from scipy.optimize import brentq  # here: a check does without

        return float(brentq(excess, -(wanted + 50) / (1 + min(eta, 0.0)), -1e-9))

    def _norm(self, log_gamma: float) -> float:
        """log((1 - gamma^|eta|) / |eta|), and what that is where eta is 0."""
        size = abs(self.eta or 0.0)
        return math.log(-log_gamma) if size < 1e-9 else math.log(-math.expm1(size * log_gamma) / size)

    def draw(self) -> int:
        """A number of trials, from the system's randomness, which nobody can foresee."""
        left = random.SystemRandom().random()
        for number, chance in self._chances():
            left -= chance  # a sum would have no room for small ones
            if left < 0:
                return number
        raise AssertionError("the chances add up to 1")

    def _chances(self) -> Iterator[tuple[int, float]]:
        """Numbers of trials from the smallest on, each with its chance; by logarithms, since the first may be tiny."""
        if self.eta is None:
            log, number = -self.mean, 0
        else:
            log_gamma, eta = self.log_gamma, self.eta
            stays = math.log(-math.expm1(log_gamma))  # log(1 - gamma)
            log, number = stays + max(eta, 0.0) * log_gamma - self._norm(log_gamma), 1
        while number < self.mean or log > _NOTHING:
            yield number, math.exp(log)
            if self.eta is None:
                log += math.log(self.mean / (number + 1))
            else:
                log += stays + math.log((number + eta) / (number + 1))
            number += 1
        yield number, 1.0  # what float64 has lost of the sum

    def renyi(self, rdp: NDArray[np.float64]) -> NDArray[np.float64]:
        """Renyi DP of the best run, at each of `ORDERS`, of that of every single run there; infinite where unknown."""
        if self.eta is None:
            return self._of_poisson(rdp)
        # Theorem 2. The second order is any, so the best one serves all.
        other = (1 + self.eta) * ((1 - 1 / ORDERS) * rdp - self.log_gamma / ORDERS)
        return _monotone(rdp + np.nanmin(other) + math.log(self.mean) / (ORDERS - 1))

    def _of_poisson(self, rdp: NDArray[np.float64]) -> NDArray[np.float64]:
        """Theorem 6, with the delta that Renyi DP gives at the largest epsilon which it allows."""
        most = np.log1p(1 / (ORDERS - 1))
        by_order = (ORDERS - 1) * (rdp + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
        log_delta = np.array([np.nanmin(by_order - (ORDERS - 1) * epsilon) for epsilon in most])
        apart = math.sqrt(-math.expm1(-float(np.nanmin(rdp))))  # no delta is larger (Bretagnolle and Huber 1979)
        return _monotone(rdp + self.mean * np.minimum(np.exp(log_delta), apart) + math.log(self.mean) / (ORDERS - 1))

    def __str__(self) -> str:
        name = next((name for name, eta in NAMED.items() if eta == self.eta), f"negative binomial, eta {self.eta}")
        return f"{POISSON if self.eta is None else name}, {self.mean:g} on average"


def _monotone(rdp: NDArray[np.float64]) -> NDArray[np.float64]:
    """Renyi DP of an order is that of each smaller one too."""
    return np.asarray(np.minimum.accumulate(np.where(np.isnan(rdp), np.inf, rdp)[::-1])[::-1])
