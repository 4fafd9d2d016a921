"""L1 clipping and Laplace noise: norms, distribution, calibration against the ledger, sources, and what is refused."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from fedplug import Clip
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.grids import finest
from fedplug.api.operations import Misplaced
from fedplug.mechanisms.noise import add_laplace
from fedplug.recipe.recipe import Recipe
from fedplug_kit.static import check_component
from fedplug_ledger.accounting import composed_epsilon
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.views import zone_epsilons
from fedplug_std.accountants import Pld
from fedplug_std.laplace import Laplace
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from noise_toys import SIZE, client, facts_of, known, laplace, named, passed, stated
from noise_toys import clip_l1 as clip
from pydantic import ValidationError
from scipy import stats  # type: ignore[import-untyped]
from toy_components import recipe_of, toy_catalog
from toy_protocol import run_protocol

CLIP = {"use": "std.clip_l1", "norm": 0.5}


def noised(values: Any, client_id: int = 0, round: int = 0, norm: float = 2.0, **options: Any) -> np.ndarray[Any, Any]:
    return passed(values, client(client_id, round=round), clip(norm), laplace(**options))


@pytest.mark.parametrize("name", ["std.clip_l1", "std.laplace"])
def test_conforms(name: str) -> None:
    check_component(name)


# -- clip --------------------------------------------------------------------------------------------------------------

finite = st.floats(-1e6, 1e6, width=32)


@given(arrays(np.float32, st.integers(0, 50), elements=finite), st.floats(1e-3, 1e6))
def test_clipped_l1_norm_is_at_most_the_bound_and_smaller_updates_pass_unchanged(values: Any, norm: float) -> None:
    party = client()
    clipped = passed(values, party, clip(norm))
    before, length = (math.fsum(abs(float(v)) for v in each) for each in (values, clipped))
    assert clipped.dtype == np.float32
    assert clip(norm).protect(known(), party.facts) == (Clip(norm, order=1),)
    assert known().after(Clip(norm, order=1)).norm(2) is None
    assert length <= norm
    if before <= norm:
        assert np.array_equal(clipped, values)
        assert party.log == {"std.clip_l1.clipped": 0.0}
    else:
        assert length >= norm * (1 - 1e-6)
        assert party.log == {"std.clip_l1.clipped": 1.0}


def test_clip_holds_for_as_many_values_as_a_model_has() -> None:
    party, values = client(), np.random.default_rng(0).standard_normal(235_146).astype(np.float32)
    clipped = passed(values, party, clip(1.0))
    assert 1 - 1e-6 < math.fsum(map(abs, clipped.tolist())) <= 1.0


def test_clip_refuses_what_diverged() -> None:
    party = client(3)
    with pytest.raises(ProtectionError, match=r"client 3.*1 NaN or infinite values.*lower lr"):
        passed([1.0, math.nan], party, clip(1.0))


# -- noise -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["secure", "reproducible"])
def test_noise_is_laplace_of_the_stated_scale(source: str) -> None:
    noise = noised(np.zeros(SIZE), norm=2.0, noise_multiplier=1.5, source=source)
    assert stats.kstest(noise, stats.laplace(scale=3.0).cdf).pvalue > 1e-6
    # var of a Laplace sample's squares is 20 b^4: std of the mean square is b^2 sqrt(20 / n)
    assert np.mean(np.square(noise, dtype=np.float64)) == pytest.approx(2 * 9.0, abs=6 * 9.0 * math.sqrt(20 / SIZE))


def test_noise_lies_on_a_public_grid() -> None:
    grid = finest(2.0, 3.0, "laplace")
    assert math.frexp(grid)[0] == 0.5
    values = np.random.default_rng(1).uniform(-1e-4, 1e-4, SIZE).astype(np.float32)
    steps = noised(values, norm=2.0, noise_multiplier=1.5).astype(np.float64) / grid
    assert np.array_equal(steps, np.rint(steps))
    assert len(np.unique(steps)) > SIZE * 0.9


def test_noise_saturates_at_the_end_of_the_grid() -> None:
    stream = np.random.default_rng(0)
    assert add_laplace(np.full(4, 2.0**30, np.float32), 1.0, 1.0, "secure", stream).tolist() == [2.0**24] * 4


def test_reproducible_noise_is_another_for_each_client_and_round_and_secure_noise_for_each_call() -> None:
    options: dict[str, Any] = {"noise_multiplier": 1.0, "source": "reproducible"}
    zero = np.zeros(100)
    first = noised(zero, **options)
    assert np.array_equal(first, noised(zero, **options))
    for other in (noised(zero, client_id=1, **options), noised(zero, round=1, **options)):
        assert np.count_nonzero(first == other) < 5
    assert np.count_nonzero(noised(zero, noise_multiplier=1.0) == noised(zero, noise_multiplier=1.0)) < 5


def test_multiplier_zero_leaves_values_as_they_are() -> None:
    values = np.linspace(-1, 1, 100).astype(np.float32)
    assert np.array_equal(noised(values, norm=100.0, noise_multiplier=0), values)


def test_refuses_values_without_a_bound() -> None:
    with pytest.raises(Misplaced, match=r"needs a bound of the L1 norm earlier in .*std\.clip_l1"):
        passed([1.0], client(), laplace(epsilon=1))


# -- how much ----------------------------------------------------------------------------------------------------------


def test_pure_epsilon_is_split_over_the_rounds() -> None:
    """b = C1 T / epsilon, so that T rounds of 1 / multiplier each add up to epsilon."""
    assert laplace(epsilon=8).options.multiplier(10) == 1.25
    assert laplace(epsilon=8).options.multiplier(1) == 1 / 8


@pytest.mark.parametrize(("epsilon", "rounds"), [(1.0, 10), (8.0, 10), (2.0, 100), (5.0, 1)])
def test_delta_buys_less_noise_that_costs_just_epsilon(epsilon: float, rounds: int) -> None:
    multiplier = laplace(epsilon=epsilon, delta=1e-5).options.multiplier(rounds)
    assert multiplier <= rounds / epsilon
    spent = composed_epsilon(0.0, [("laplace", multiplier, rounds)], 1e-5)
    assert spent == pytest.approx(epsilon, rel=1e-6)
    assert spent <= epsilon * (1 + 1e-12)
    if rounds == 100:
        assert multiplier < 0.7 * rounds / epsilon
    tight = Pld(Pld.Options()).compose([("laplace", multiplier, 1.0, rounds)], 1e-5, "zero_out")["pld"]
    assert 0 < tight <= epsilon


def test_one_release_has_the_delta_of_the_laplace_mechanism() -> None:
    """One scalar, shift C1: delta(eps) = 1 - exp((eps - 1/m) / 2) for eps < 1/m (Balle et al.), and 0 beyond."""
    multiplier, delta = 0.5, 1e-5
    exact = 1 / multiplier + 2 * math.log(1 - delta)
    tight = Pld(Pld.Options()).compose([("laplace", multiplier, 1.0, 1)], delta, "zero_out")["pld"]
    assert exact <= tight <= 1 / multiplier


def test_vertex_of_the_l1_ball_is_the_worst_shift() -> None:
    """The hockey-stick divergence of two scalars whose shift is spread is less than with all of it in one."""
    rng, epsilon = np.random.default_rng(5), 0.5

    def delta(shift: tuple[float, float]) -> float:
        noise = rng.laplace(size=(400_000, 2))
        loss = np.abs(noise - shift).sum(axis=1) - np.abs(noise).sum(axis=1)
        return float(np.mean(np.maximum(0, 1 - np.exp(epsilon - loss))))

    worst = delta((1.0, 0.0))
    assert worst == pytest.approx(1 - math.exp((epsilon - 1) / 2), abs=0.003)
    assert delta((0.5, 0.5)) < worst - 0.01
    assert delta((0.8, 0.2)) < worst - 0.005


def test_release_says_scale_over_norm() -> None:
    release = stated(clip(0.25), laplace(epsilon=8, source="reproducible"))
    assert (release.mechanism, release.noise_multiplier, release.clipping_norm) == ("laplace", 1.25, 0.25)
    assert (release.trust, release.source, release.as_published) == ("local", "reproducible", False)


def test_ledger_states_no_more_than_was_asked_for() -> None:
    part = laplace(epsilon=8)
    ledger = Ledger("toy", 4, 10, 2, 1e-5)
    for round in range(10):
        release = stated(clip(0.25), part, facts=facts_of(round=round))
        ledger.record(
            round, charged=range(4), zone_sizes={"noised": 10.0}, total=10, releases={"noised": [release]},
            contributors={"noised": 4}, weights=dict.fromkeys(range(4), 1.0),
        )  # fmt: skip
    found = zone_epsilons(ledger)
    assert found is not None
    zero_out, replace_one = (next(iter(stated.values())) for stated in (found.zero_out, found.replace_one))
    assert 6 < zero_out <= 8
    assert zero_out < replace_one <= 16


# -- recipes -----------------------------------------------------------------------------------------------------------


def problems(chain: list[Any]) -> str:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(recipe_of("noised", chain), toy_catalog())
    return str(caught.value)


def test_needs_an_l1_clip_before_it() -> None:
    noise = {"use": "std.laplace", "epsilon": 1}
    needs = "std.laplace needs a bound of the L1 norm earlier in the chain of zone noised; "
    assert needs in problems([{"use": "std.clip", "norm": 1.0}, noise])
    assert needs in problems([{**CLIP, "norm": math.inf}, noise])
    assert "has noise already" in problems([CLIP, noise, {**noise, "name": "more"}])


def test_a_clip_behind_the_noise_keeps_its_price() -> None:
    again = stated(clip(0.5), laplace(epsilon=8), named(clip(0.25), "again"))
    assert again.noise_multiplier == stated(clip(0.5), laplace(epsilon=8)).noise_multiplier


def test_grid_too_fine_for_float32_is_refused_before_a_run() -> None:
    assert "must be at least" in problems([CLIP, {"use": "std.laplace", "epsilon": 1, "grid": 2.0**-60}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "neither of epsilon and noise_multiplier"),
        ({"epsilon": 1, "noise_multiplier": 1}, "both of epsilon and noise_multiplier"),
        ({"epsilon": 0}, "greater than 0"),
        ({"noise_multiplier": 1, "delta": 1e-5}, "delta belongs to epsilon"),
        ({"epsilon": 1, "grid": 0.3}, "must be a power of two"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Laplace.Options(**options)


def test_run_is_charged() -> None:
    """Two rounds of multiplier 2 cost at most 1 under zero-out."""
    noise = {"use": "std.laplace", "noise_multiplier": 2.0, "source": "reproducible"}
    local = run_protocol(recipe_of("noised", [CLIP, noise], train={"use": "toy.push"}))
    stated = zone_epsilons(local.protocol.ledger, "noised")
    assert stated is not None
    assert 0 < stated.zero_out["epsilon_rdp"] <= 1.0
    assert local.rows[-1].log["std.clip_l1.clipped"] == 1.0


@pytest.mark.parametrize("epsilon", [5e-324, 1e308])
def test_the_multiplier_of_any_epsilon_comes_to_an_end(epsilon: float) -> None:
    multiplier = Laplace.Options(epsilon=epsilon, delta=1e-5).multiplier(3)
    assert multiplier == 0 if epsilon == math.inf else 0 < multiplier < math.inf
    small = [Laplace.Options(epsilon=tiny, delta=1e-5).multiplier(3) for tiny in (1e-300, 5e-324)]
    assert small[0] == small[1]  # delta alone decides
