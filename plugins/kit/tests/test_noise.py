"""The law of noise: what is not as stated is found, and chance is taken for a lie as rarely as is promised."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from fedplug_kit.law import Draws
from fedplug_kit.noise import law_problems, noise_problems, scale_problems, shape_problems
from scipy import stats

RNG = np.random.default_rng(11)
SIZE = 4420


def draws_of(noise: np.ndarray, std: float = 1.0, mechanism: str = "gaussian", grid: float = 0.0) -> Draws:  # type: ignore[type-arg]
    """Noise (rounds, clients, n) in two layers."""
    every = np.ones_like(noise)
    layers = (np.arange(noise.shape[-1]) >= noise.shape[-1] * 0.9).astype(np.int64)
    who = tuple(f"client {number}" for number in range(noise.shape[1]))
    return Draws.of(noise, std * every, grid * every, mechanism, layers, who)


def test_the_stated_scale_is_believed_within_chance() -> None:
    assert list(law_problems(draws_of(2 * RNG.normal(size=(2, 4, SIZE)), 2.0), 1e-6)) == []


@pytest.mark.parametrize(("factor", "said"), [(1.2, r"adds 2\.\d+: \+(19|20|21)"), (0.8, "adds 1.")])
def test_another_scale_is_found(factor: float, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(*law_problems(draws_of(factor * 2 * RNG.normal(size=(2, 4, SIZE)), 2.0), 1e-6))


def test_a_scale_that_no_draw_alone_shows_is_found() -> None:
    with pytest.raises(AssertionError, match=r"\(all draws"):
        raise AssertionError(*law_problems(draws_of(1.04 * RNG.normal(size=(2, 4, SIZE))), 1e-6))


def test_another_scale_of_one_client_layer_or_round_is_found() -> None:
    noise = RNG.normal(size=(2, 4, SIZE))
    noise[1, 2, -300:] *= 1.5
    with pytest.raises(AssertionError, match=r"\(client 2, round 2, layer 2\)"):
        raise AssertionError(*law_problems(draws_of(noise), 1e-6))


LAWS: dict[str, Callable[[tuple[int, ...]], np.ndarray]] = {  # type: ignore[type-arg]
    "coins": lambda shape: RNG.choice([-1.0, 1.0], shape),
    "uniform": lambda shape: RNG.uniform(-math.sqrt(3), math.sqrt(3), shape),
    "cut": lambda shape: stats.truncnorm.rvs(-1.75, 1.75, size=shape, random_state=RNG),
    "cut far out": lambda shape: stats.truncnorm.rvs(-3, 3, size=shape, random_state=RNG),
    "rare": lambda shape: math.sqrt(2) * RNG.normal(size=shape) * (RNG.random(shape) < 0.5),
    "laplace": lambda shape: RNG.laplace(size=shape) / math.sqrt(2),
}


@pytest.mark.parametrize("law", LAWS)
def test_another_law_of_the_stated_scale_is_found(law: str) -> None:
    """Each of them hides less than what the ledger charges, and most hide nothing."""
    noise = LAWS[law]((2, 4, SIZE))
    noise /= math.sqrt(float(np.mean(np.square(noise))))
    (said,) = law_problems(draws_of(noise), 1e-6)
    assert "is not gaussian, as it states" in said


@pytest.mark.parametrize("grid", [0.0, 0.25])
def test_laplace_noise_is_compared_with_its_own_law(grid: float) -> None:
    noise = RNG.laplace(size=(2, 4, SIZE))
    noise = np.rint(noise / grid) * grid if grid else noise
    assert list(law_problems(draws_of(noise, math.sqrt(2), "laplace", grid), 1e-6)) == []
    gaussian = math.sqrt(2) * RNG.normal(size=(2, 4, SIZE))
    assert list(law_problems(draws_of(gaussian, math.sqrt(2), "laplace", grid), 1e-6))


# -- how often chance is suspected -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 10, 300, SIZE])
@pytest.mark.parametrize("chance", [1e-3, 1e-6, 1e-9])
def test_scales_are_suspected_no_more_often_than_promised(size: int, chance: float) -> None:
    """The mean square of n normal draws is chi squared, so the true rate is known."""
    ratios = np.exp(np.linspace(math.log(1e-12), math.log(60), 4000))
    suspected = np.array([bool(list(scale_problems(np.full(size, math.sqrt(r)), 1.0, r, chance))) for r in ratios])
    low = ratios[(ratios < 1) & suspected].max(initial=0.0)
    high = ratios[(ratios > 1) & suspected].min(initial=math.inf)
    rate = stats.chi2.cdf(low * size, size) + stats.chi2.sf(high * size, size)
    assert 0 < rate <= chance


@pytest.mark.parametrize("size", [1, 7, 500])
def test_laws_are_suspected_no_more_often_than_promised(size: int) -> None:
    found = sum(bool(list(shape_problems(RNG.normal(size=size), "gaussian", 0.05))) for _ in range(400))
    assert found <= 20  # of 400, where the bound allows 20 to be expected


@pytest.mark.parametrize("size", [2, 40, 200])
@pytest.mark.parametrize(("mechanism", "grid"), [("gaussian", 0.0), ("gaussian", 1.0), ("laplace", 0.25)])
def test_all_tests_together_suspect_no_more_often_than_promised(mechanism: str, grid: float, size: int) -> None:
    """With a chance of a fifth, since nobody can wait for one in a million; the same bounds hold for each."""

    def honest() -> Draws:
        noise = RNG.normal(size=(2, 4, size)) if mechanism == "gaussian" else RNG.laplace(size=(2, 4, size))
        std = 1.0 if mechanism == "gaussian" else math.sqrt(2)
        return draws_of(np.rint(noise / grid) * grid if grid else noise, std, mechanism, grid)

    found = [list(noise_problems(honest(), honest(), 0.2)) for _ in range(40)]
    assert sum(map(bool, found)) <= 8, found
