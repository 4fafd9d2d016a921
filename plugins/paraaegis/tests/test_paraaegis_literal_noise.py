"""Remark 1 as printed, and its true guarantee."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Client, Facts, Layout, gaussian_epsilon
from fedplug.api.data import ClientData
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.known import Release
from fedplug.api.links import Link, Step, fold
from fedplug.mechanisms.execution import execute
from fedplug.recipe.recipe import Recipe
from fedplug_kit.static import check_component
from fedplug_paraaegis.literal_noise import LiteralNoise
from fedplug_std.clip import Clip
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_components import paraaegis, toy_catalog
from toy_protocol import run_protocol


def component(**options: Any) -> LiteralNoise:
    made = LiteralNoise(LiteralNoise.Options(**{"epsilon": 1.0, **options}))
    made.name = "paraaegis.literal_noise"
    return made


def facts_of(largest: int | None = None) -> Facts:
    """A round behind a set-up that found the largest number of examples, or before it."""
    published = {} if largest is None else {"paraaegis.literal_noise": {"largest": largest}}
    return Facts(0, 10, Layout.of([("w", (20_000,))]), (), 2, 2, 7, "", published=published)


def steps_of(made: LiteralNoise, facts: Facts) -> tuple[Step, ...]:
    """Behind a clip to 2."""
    clip = Clip(Clip.Options(norm=2.0))
    clip.name = "std.clip"
    return fold([Link("noised", "protect", each.name, each, "client") for each in (clip, made)], facts)


def release_of(made: LiteralNoise, facts: Facts) -> Release:
    """Its cost."""
    (release,) = steps_of(made, facts)[-1].after.releases
    return release


def client_of(examples: int, largest: int) -> Client:
    """A client with that number of examples, which knows the largest number."""
    held: Any = range(examples)
    client = Client(client_id=1, data=ClientData(held, held, held, classes=("x",), mean=(0.5,), std=(0.5,)))
    client.facts = facts_of(largest)
    return client


def true_epsilon(multiplier: float, rounds: int, sensitivity: float = 1.0) -> float:
    """The exact epsilon of T Gaussian releases (delta 1e-5)."""
    return gaussian_epsilon(multiplier / sensitivity / math.sqrt(rounds), 1e-5)


def test_conforms() -> None:
    check_component("paraaegis.literal_noise")


def test_the_scale_is_the_printed_one() -> None:
    """sigma = (2 C / |D_k|) sqrt(2 q T ln(1/delta)) / epsilon, by hand for C=1, |D_k|=3000, T=10, delta=1e-5."""
    assert component().stddev(1.0, 3000, 10) == pytest.approx(2 / 3000 * math.sqrt(20 * 11.512925))
    assert component(epsilon=8, sampling_rate=0.1).stddev(3.0, 600, 40) == pytest.approx(
        6 / 600 * math.sqrt(2 * 0.1 * 40 * 11.512925) / 8
    )


def test_the_noise_has_that_scale() -> None:
    client = client_of(500, largest=3000)
    block = Block("noised", 20_000, np.zeros(20_000, np.float32))
    for step in steps_of(component(), client.facts):
        block = execute(step, block, client, client.facts)
    noise = block.plain()
    expected = component().stddev(2.0, 500, 10)
    assert abs(float(noise.std()) / expected - 1) < 5 / math.sqrt(2 * 20_000)
    assert abs(float(noise.mean())) < 5 * expected / math.sqrt(20_000)


def test_the_true_epsilon_of_a_client_is_larger_by_orders_of_magnitude() -> None:
    """Claimed 1; with C=1, 3000 examples. T cancels, because the printed scale grows with sqrt(T)."""
    for rounds in (1, 10, 100):
        multiplier = component().stddev(1.0, 3000, rounds)
        assert true_epsilon(multiplier, rounds) == pytest.approx(5.0190e4, rel=1e-4)
        assert true_epsilon(multiplier, rounds, sensitivity=2) == pytest.approx(1.9810e5, rel=1e-4)  # replace-one
    # Spec 1.3 states 1.9e6: that is the one-round scale (T missing, ln(1.25/delta)), ten rounds of it, replace-one.
    one_round = 2 / 3000 * math.sqrt(2 * math.log(1.25e5))
    assert true_epsilon(one_round, 10, sensitivity=2) == pytest.approx(1.9255e6, rel=1e-4)
    # The printed scale reaches that with a sampling rate of 1/40, for which visible uploads earn no credit.
    assert true_epsilon(component(sampling_rate=0.025).stddev(1.0, 3000, 10), 10) == pytest.approx(1.9628e6, rel=1e-4)


def set_up(counts: dict[int, Any]) -> tuple[dict[str, Any], dict[int, str]]:
    """What the set-up publishes where clients answer so, and why it leaves clients out."""
    published: dict[str, Any] = {}
    dropped: dict[int, str] = {}

    def publish(by: LiteralNoise, values: dict[str, Any], *, covered_by: str | None = None) -> None:
        assert covered_by is None
        published.update(values)

    cohort = SimpleNamespace(ask=lambda method: counts, drop=dropped.__setitem__, publish=publish)
    component().setup(cohort, None, facts_of())  # type: ignore[arg-type]
    return published, dropped


def test_the_release_states_the_true_multiplier_of_the_worst_client() -> None:
    assert set_up({0: 100, 1: 3000, 2: 40}) == ({"largest": 3000}, {})
    release = release_of(component(), facts_of(3000))
    assert release.noise_multiplier == pytest.approx(component().stddev(1.0, 3000, 10))
    assert (release.as_published, release.trust, release.source) == (True, "local", "reproducible")
    assert "different sizes" in release.uncredited  # each client's noise is as large as its data set is small
    (numbers,) = component().reveals(facts_of(3000))
    assert (numbers.to, numbers.asked, numbers.covered_by) == (("server",), ("count",), None)


def test_a_client_that_has_more_examples_than_the_account_goes_by_refuses() -> None:
    liar = client_of(4000, largest=3000)
    step, block = steps_of(component(), liar.facts)[-1], Block("noised", 20_000, np.zeros(20_000, np.float32))
    with pytest.raises(ProtectionError, match="is what is charged for; state in at_least the least of any client"):
        execute(step, block, liar, liar.facts)


@given(st.integers(1, 5000), st.integers(1, 5000), st.floats(0.1, 100), st.sampled_from([0.01, 1.0]))
@settings(max_examples=25, deadline=None)
def test_no_client_has_less_noise_for_its_bound_than_the_ledger_charges(
    examples: int, largest: int, epsilon: float, rate: float
) -> None:
    """As executed: the root mean square of noise on zeros, within six standard errors; or it refuses."""
    made, client = component(epsilon=epsilon, sampling_rate=rate), client_of(examples, largest)
    clip, step = steps_of(made, client.facts)
    block = execute(clip, Block("noised", 20_000, np.zeros(20_000, np.float32)), client, client.facts)
    try:
        noise = execute(step, block, client, client.facts).plain().astype(np.float64)
    except ProtectionError:
        assert examples > largest
    else:
        assert examples <= largest
        least = release_of(made, client.facts).noise_multiplier * 2.0
        assert math.sqrt(np.mean(noise**2)) >= least * (1 - 6 / math.sqrt(2 * 20_000))


def test_before_the_set_up_there_is_no_guarantee() -> None:
    """It is still noise, so no bound holds after it."""
    assert release_of(component(), facts_of()).noise_multiplier == 0
    assert steps_of(component(), facts_of())[-1].after.bounds == ()


def test_a_number_of_examples_that_is_none_costs_its_client_the_round() -> None:
    published, dropped = set_up({0: 7, 1: "many", 2: 0, 3: 9, 4: None})
    assert published == {"largest": 9}
    assert sorted(dropped) == [1, 2, 4]
    assert "reproducible from the seed" in component().describe()


def test_it_needs_a_clip() -> None:
    noise = {"use": "paraaegis.literal_noise", "epsilon": 1}
    with pytest.raises(RecipeError, match=r"literal_noise needs a bound of the L2 norm earlier.*put \{use: std\.clip"):
        Recipe.from_plain(paraaegis(noised=[noise]), toy_catalog())
    late = [{"use": "std.clip", "norm": 1.0}, {"use": "std.bfv"}, noise]
    plain = paraaegis(noised=late, postprocess={"encrypted": ["std.bfv"], "noised": ["std.bfv"]})
    with pytest.raises(RecipeError, match=r"paraaegis\.literal_noise must not come after encryption"):
        Recipe.from_plain(plain, toy_catalog())


def test_the_ledger_of_a_run_states_the_truth() -> None:
    noised = [{"use": "std.clip", "norm": 1.0}, {"use": "paraaegis.literal_noise", "epsilon": 1}]
    outcome = run_protocol(paraaegis(0.1, noised=noised, rounds=2))
    epsilon = outcome.rows[-1].epsilon
    largest = outcome.protocol.facts(1).of("paraaegis.literal_noise")["largest"]
    multiplier = component().stddev(1.0, largest, 2)
    assert epsilon == pytest.approx(true_epsilon(multiplier, 2), rel=1e-6)
    assert epsilon > 100  # claimed: 1
    assert any("does not give the epsilon that it claims" in w for w in outcome.protocol.ledger.report().warnings)
