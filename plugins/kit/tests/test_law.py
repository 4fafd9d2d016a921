"""The law that noise is stated to follow, and the standard normal draws that it stands for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fedplug_kit.law import Draws, below, odds
from scipy import stats

VALUES = np.array([-30.0, -9.0, -2.5, -0.1, 0.0, 0.1, 2.5, 6.0])


def test_shares_are_those_of_the_laws() -> None:
    assert below(VALUES, "gaussian") == pytest.approx(stats.norm.cdf(VALUES), rel=1e-12)
    assert below(VALUES, "laplace") == pytest.approx(stats.laplace.cdf(VALUES, scale=math.sqrt(0.5)), rel=1e-12)


def test_the_difference_of_two_laplace_draws_has_a_law_of_its_own() -> None:
    rng = np.random.default_rng(5)
    drawn = (rng.laplace(size=400_000) - rng.laplace(size=400_000)) / 2
    for value in (-2.5, -0.5, 0.1, 1.5):
        (share,) = below(np.array([value]), "laplace", apart=True)
        assert share == pytest.approx((drawn < value).mean(), abs=3e-3)


def discrete(std: float, size: int, rng: np.random.Generator) -> np.ndarray:  # type: ignore[type-arg]
    steps = np.arange(-60, 61)
    weights = np.exp(-np.square(steps) / (2 * std**2))
    return rng.choice(steps, size, p=weights / weights.sum()).astype(np.float64)


@pytest.mark.parametrize(("mechanism", "step"), [
    ("gaussian", 0.0), ("gaussian", 0.5), ("gaussian", 2.0), ("laplace", 0.5), ("discrete_gaussian", 0.5),
    ("discrete_gaussian", 1.0),
])  # fmt: skip
def test_scores_of_honest_noise_are_standard_normal_on_every_grid(mechanism: str, step: float) -> None:
    """So the rounding of noise is no reason for suspicion, nor does it hide anything but what it hides."""
    rng, size = np.random.default_rng(6), 40_000
    if mechanism == "discrete_gaussian":
        noise = discrete(1 / step, size, rng) * step
    else:
        noise = rng.standard_normal(size) if mechanism == "gaussian" else rng.laplace(size=size) / math.sqrt(2)
        noise = np.rint(noise / step) * step if step else noise
    shape = np.ones((1, 1, size))
    draws = Draws.of(noise.reshape(shape.shape), shape, shape * step, mechanism, np.zeros(size, np.int64), ("it",))
    assert stats.kstest(draws.scores.ravel(), "norm").pvalue > 1e-3
    assert np.abs(draws.scores.std() - 1) < 0.015


def test_scalars_without_stated_noise_or_with_noise_without_end_are_left_out() -> None:
    std = np.array([[[0.0, 1.0, math.inf]]])
    draws = Draws.of(np.ones((1, 1, 3)), std, np.zeros((1, 1, 3)), "gaussian", np.arange(3), ("it",))
    assert draws.layers.tolist() == [1]
    assert draws.rows == pytest.approx(np.ones((1, 1)))


def test_odds_are_said_in_words() -> None:
    assert odds(25.0) == "once in 10^10 runs at most"
    assert odds(math.inf) == "never"
