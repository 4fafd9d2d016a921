"""Gaussian noise: distribution, independence, grids, options, and what the ledger is told."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np
import pytest
from fedplug import Block, FixedPoint, Seal
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.grids import exact_slack, finest
from fedplug.api.operations import Misplaced
from fedplug.mechanisms.noise import add_noise
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.accounting import effective_multiplier, epsilon_with_slack, gaussian_epsilon
from fedplug_std.gaussian import Gaussian
from hypothesis import given
from hypothesis import strategies as st
from noise_toys import SIZE, client, clip, facts_of, gaussian, known, named, noise_of, noised, passed, stated
from pydantic import ValidationError
from scipy import stats  # type: ignore[import-untyped]
from toy_components import recipe_of, toy_catalog
from toy_protocol import run_protocol

# -- the distribution of the noise -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "size"), [("secure", SIZE), ("reproducible", SIZE), ("exact", 4000)])
def test_noise_is_gaussian_with_the_stated_deviation(source: str, size: int) -> None:
    """Item 18. A right sampler fails with probability below 1e-8; the exact one is slow, hence fewer samples."""
    values = np.linspace(-0.01, 0.01, size)
    noise = noised(values, noise_multiplier=1.5, source=source) - values.astype(np.float32)
    statistic = float(np.sum((noise / 3.0) ** 2))
    low, high = stats.chi2.ppf([1e-9, 1 - 1e-9], size)
    assert low < statistic < high
    assert abs(noise.mean()) < 6 * 3.0 / math.sqrt(size)
    assert stats.kstest(noise / 3.0, "norm").pvalue > 1e-9


@pytest.mark.parametrize("source", ["secure", "reproducible"])
def test_noise_is_independent_across_clients_rounds_and_zones(source: str) -> None:
    """Item 18. Streams that coincide would correlate fully."""
    other_zone = Block("head", SIZE, np.zeros(SIZE, np.float32))
    noise = gaussian(noise_multiplier=1, source=source)
    draws = [noised(np.zeros(SIZE), client_id, round, noise_multiplier=1, source=source)
             for client_id in range(2) for round in range(2)]  # fmt: skip
    draws.append(passed(other_zone, client(), clip(2.0), noise))
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < 6 / math.sqrt(SIZE)


def test_reproducible_noise_repeats_and_secure_noise_never_does() -> None:
    again = {source: [noised(np.zeros(100), noise_multiplier=1, source=source) for _ in range(2)]
             for source in ("reproducible", "secure")}  # fmt: skip
    assert np.array_equal(again["reproducible"][0], again["reproducible"][1])
    assert not np.any(again["secure"][0] == again["secure"][1])


def test_noise_does_not_touch_the_rest_of_the_update() -> None:
    values = np.ones(10, np.float32)
    noised(values, noise_multiplier=1)
    assert np.all(values == 1)


# -- the grid ----------------------------------------------------------------------------------------------------------


@given(st.floats(1e-4, 1e4), st.floats(1e-3, 1e4), st.sampled_from(["secure", "reproducible"]), st.integers(0, 2**32))
def test_results_lie_on_a_grid_that_float32_holds(norm: float, multiplier: float, source: str, seed: int) -> None:
    grid = finest(norm, norm * multiplier)
    values = np.full(64, norm / 8, np.float32)
    result = add_noise(values, norm * multiplier, grid, source, np.random.default_rng(seed))
    assert result.dtype == np.float32
    steps = result.astype(np.float64) / grid
    assert math.frexp(grid)[0] == 0.5
    assert np.array_equal(steps, np.rint(steps))
    assert np.abs(steps).max() <= 2**24


def test_exact_noise_lies_on_the_grid_and_accepts_nothing_coarse() -> None:
    grid = finest(1.0, 3.0)
    result = add_noise(np.full(50, 0.1, np.float32), 3.0, grid, "exact", np.random.default_rng())
    assert np.array_equal(np.rint(result / grid), result / grid)
    assert add_noise(np.zeros(0, np.float32), 3.0, grid, "exact", np.random.default_rng()).shape == (0,)
    with pytest.raises(ProtectionError, match=r"grid=1 must be at most std / 2\^15"):
        add_noise(np.zeros(5, np.float32), 3.0, 1.0, "exact", np.random.default_rng())


def test_discrete_and_rounded_gaussian_differ_as_stated() -> None:
    """The divergence behind `exact_slack`, computed from the two distributions themselves at 4 steps a deviation."""
    steps, std = np.arange(-60, 61), 4.0
    discrete = np.exp(-(steps**2) / (2 * std**2))
    discrete /= discrete.sum()
    # Both tails are taken on the left, where the distribution function keeps its digits.
    rounded = stats.norm.cdf((0.5 - abs(steps)) / std) - stats.norm.cdf((-0.5 - abs(steps)) / std)
    divergence = float(np.sum(discrete * np.log(discrete / rounded)))
    assert divergence == pytest.approx(1 / (576 * std**4), rel=0.1)
    distance = 0.5 * float(np.abs(discrete - rounded).sum())
    assert distance < exact_slack(std, 1)


def test_a_grid_too_fine_for_float32_is_refused() -> None:
    with pytest.raises(ProtectionError, match=r"grid=9.3132\S+ must be at least \S+, or float32 cannot hold"):
        noised(np.zeros(5), noise_multiplier=1, grid=2.0**-30)
    coarse = noised(np.zeros(50), noise_multiplier=1, grid=0.25)
    assert np.array_equal(np.rint(coarse * 4), coarse * 4)


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 0, "delta": 1e-5}, "greater than 0"),
        ({"epsilon": -1.5, "delta": 1e-5}, r"greater than 0"),
        ({}, "neither of epsilon and noise_multiplier given"),
        ({"epsilon": 1, "delta": 1e-5, "noise_multiplier": 1}, "both of epsilon and noise_multiplier given"),
        ({"epsilon": 1}, "epsilon needs a delta"),
        ({"noise_multiplier": 1, "delta": 1e-5}, "delta belongs to epsilon"),
        ({"epsilon": 1, "delta": 1}, "less than 1"),
        ({"noise_multiplier": 1, "grid": 0.3}, "grid=0.3 must be a power of two, such as 0.25"),
        ({"noise_multiplier": 1, "source": "fast"}, "'secure', 'exact' or 'reproducible'"),
    ],
)
def test_bad_options_say_value_rule_and_remedy(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Gaussian.Options(**options)


@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_all_rounds_together_cost_epsilon(decay: float) -> None:
    noise = gaussian(epsilon=2, delta=1e-5, decay=decay)
    facts = facts_of(noise)
    rounds = [dataclasses.replace(facts, round=round) for round in range(10)]
    released = [stated(clip(0.5), noise, facts=each).noise_multiplier for each in rounds]
    assert gaussian_epsilon(effective_multiplier(released), 1e-5) == pytest.approx(2)
    assert released[1] / released[0] == pytest.approx(decay)


def test_the_schedule_of_a_million_rounds_is_found_at_once() -> None:
    noise = gaussian(epsilon=2, delta=1e-5)
    started = time.process_time()
    multipliers = {noise.options.multiplier(round, 10**6) for round in range(1000)}
    assert time.process_time() - started < 0.5
    assert gaussian_epsilon(multipliers.pop() / 1000, 1e-5) == pytest.approx(2)
    assert not multipliers


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"noise_multiplier": 0.001, "source": "exact"}, r"at most std / 2\^15 = .* use more noise"),
        ({"noise_multiplier": 1, "decay": 0.5, "source": "exact"}, r"std / 2\^15"),
        ({"noise_multiplier": 1, "grid": 2.0**-30}, "float32 cannot hold"),
        ({"epsilon": 8, "delta": 1e-5, "decay": 1e-60}, "leaves the range of float64"),
        ({"noise_multiplier": 1, "source": "exact"}, None),
        ({"noise_multiplier": 0, "source": "exact"}, None),
    ],
)
def test_noise_that_every_client_would_refuse_is_refused_by_the_check(
    options: dict[str, Any], said: str | None
) -> None:
    chain = [{"use": "std.clip", "norm": 0.5}, {"use": "std.gaussian", **options}]
    plain = recipe_of("noised", chain, rounds=10)
    if said is None:
        Recipe.from_plain(plain, toy_catalog())
        return
    with pytest.raises(RecipeError, match=said) as caught:
        Recipe.from_plain(plain, toy_catalog())
    (problem,) = caught.value.problems
    assert problem.startswith("recipe.protect.noised.1: ")


# -- what the ledger and the checks are told ---------------------------------------------------------------------------


def test_release_names_norm_source_and_trust() -> None:
    noise, exact = gaussian(noise_multiplier=2), gaussian(noise_multiplier=2, source="exact")
    release = stated(clip(0.5), noise)
    assert (release.mechanism, release.noise_multiplier, release.clipping_norm) == ("gaussian", 2, 0.5)
    assert (release.trust, release.source) == ("local", "secure")
    assert noise_of(clip(0.5), noise).std == 2 * 0.5
    release = stated(clip(0.5), exact)
    assert release.mechanism == "discrete_gaussian"
    assert "delta grows by less than (1 + e^epsilon)" in release.note
    seeded = gaussian(noise_multiplier=2, source="reproducible")
    assert "subtract" in stated(clip(0.5), seeded).note


def test_exact_noise_takes_of_delta_for_the_samples_of_all_clients() -> None:
    noise = noise_of(clip(1.0), gaussian(noise_multiplier=1, source="exact"))
    assert noise.grid is not None
    assert noise.slack == exact_slack(1.0 / noise.grid, SIZE * 10 * 4) == 2 * exact_slack(1.0 / noise.grid, SIZE * 10)


def test_a_sum_of_exact_noises_is_stated_at_the_delta_that_all_of_them_leave() -> None:
    chain = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1.0, "source": "exact"}]
    chain[1]["grid"] = grid = 2.0**-15
    data = {"use": "std.digits", "clients": 8, "partition": {"use": "std.iid"}}
    aggregate = {"use": "std.mean", "weighting": "uniform"}
    plain = recipe_of("noised", chain, rounds=1, delta=1e-7, data=data, aggregate=aggregate)
    protocol = run_protocol(plain).protocol
    size = protocol.server.facts.layout.size
    slack = exact_slack(1 / grid, float(size) * 8)
    (release,) = protocol.ledger.log[0].zones["noised"].releases
    assert release.slack == slack
    released = protocol.ledger.report().views["released_model"].epsilon
    true = epsilon_with_slack(lambda left: gaussian_epsilon(math.sqrt(8), left), 1e-7, slack)
    claimed = epsilon_with_slack(lambda left: gaussian_epsilon(math.sqrt(8), left), 1e-7, exact_slack(1 / grid, size))
    assert released == pytest.approx(true, rel=1e-9)
    assert released > 1.001 * claimed  # what was claimed while the noise of seven others was taken for exact


def test_noise_follows_a_clip_and_comes_once() -> None:
    party, noise = client(), gaussian(noise_multiplier=1)
    with pytest.raises(Misplaced, match=r"this needs a bound of the L2 norm .* zone noised; .*std\.clip"):
        noise.protect(known(), party.facts)
    clipped = known(1.0)
    noised_before = clipped.after(*noise.protect(clipped, party.facts))
    assert noised_before.norm() is None
    with pytest.raises(Misplaced, match="after noise in the chain of zone noised"):
        noise.protect(noised_before, party.facts)
    sealed = clipped.after(Seal(scheme="a test", opened_by="clients", numbers=FixedPoint(1.0, 0.0)))
    for component in (noise, clip(1.0)):
        with pytest.raises(Misplaced, match="after encryption in the chain of zone noised"):
            component.protect(sealed, party.facts)


def test_a_clip_behind_noise_keeps_its_price() -> None:
    noise = gaussian(noise_multiplier=1)
    assert stated(clip(1.0), noise, named(clip(0.5), "again")).noise_multiplier == 1


@pytest.mark.parametrize(
    ("norm", "scale"), [(5e-324, 0.0), (1e-300, 1e-300), (1.0, 1e300), (1e300, 1.0), (0.0, math.inf)]
)
def test_bounds_that_float32_cannot_hold_are_named(norm: float, scale: float) -> None:
    for mechanism in ("gaussian", "laplace"):
        with pytest.raises(ProtectionError, match="are not numbers of float32"):
            finest(norm, scale, mechanism)
    for reach in (2.0**-102, 2.0**127):
        assert np.float32(finest(reach, 0.0)) * np.float32(2**24) == np.float32(reach)
