"""LDP-Fed: the exponential mechanism draws what it says, costs what it says, and the layers take turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug import Block, Client, FixedPoint, Known, Layout, Misplaced, Noise, Plans, Seal
from fedplug.api.errors import ProtectionError, RecipeError, SetupError
from fedplug.api.norms import Bound
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.ldp_fed import LdpFed, LdpFedCycle
from fedplug_baselines.ldp_fed_mechanism import alpha_for, cost_of, gaussian_cost, perturb, zero_out_epsilon
from fedplug_ledger.accounting import gaussian_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st
from link_toys import behind, passed
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]
from toy_components import recipe_of
from toy_protocol import run_protocol

LAYOUT = Layout.of([("fc1.weight", (3, 2)), ("fc1.bias", (2,)), ("fc2.weight", (2, 2)), ("fc3.weight", (5,))])


def noise(**options: Any) -> LdpFed:
    made = LdpFed(LdpFed.Options(**{"bound": 0.5, "precision": 2, "source": "reproducible"} | options))
    made.name = "baselines.ldp_fed"
    return made


def cycle(**options: Any) -> LdpFedCycle:
    made = LdpFedCycle(LdpFedCycle.Options(**options))
    made.name = "baselines.ldp_fed_cycle"
    return made


def mechanism(largest: int, alpha: float) -> NDArray[np.float64]:
    """Pr[y | v] of the paper by enumeration, (2m + 1, 2m + 1), v down, y across."""
    universe = np.arange(-largest, largest + 1)
    weights = np.exp(-alpha * np.abs(universe[:, None] - universe[None, :]) / 2)
    return weights / weights.sum(1, keepdims=True)


def recipe(alpha: float | None = 0.05, *, layers: bool = True, **changes: Any) -> dict[str, Any]:
    budget = {"alpha": alpha} if alpha is not None else {}
    use = {"use": "baselines.ldp_fed", "bound": 0.1, "precision": 3, "source": "reproducible", **budget}
    plain = recipe_of("noised", [use | changes.pop("noise", {})], model={"use": "std.mlp", "hidden": [8]}, rounds=3)
    if layers:
        plain["negotiate_mask"] = {"use": "baselines.ldp_fed_cycle"}
    return plain | changes


# -- the mechanism -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-9, 0.05, 0.7, 40.0])
@pytest.mark.parametrize("value", [-6, 0, 2, 6])
def test_draws_follow_the_exponential_mechanism(alpha: float, value: int) -> None:
    draws = perturb(np.full(60_000, value), 6, alpha, np.random.default_rng(3))
    expected = len(draws) * mechanism(6, alpha)[value + 6]
    counts = np.bincount(draws + 6, minlength=13)
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected.max())
    likely = expected > 10
    assert np.sum((counts - expected)[likely] ** 2 / expected[likely]) < 40  # 12 degrees of freedom: p < 1e-4


@settings(max_examples=examples(100))
@given(st.integers(1, 2**52), st.floats(1e-18, 1e3), st.data())
def test_draws_stay_in_the_universe_however_large(largest: int, alpha: float, data: Any) -> None:
    values = np.array(data.draw(st.lists(st.integers(-largest, largest), min_size=1, max_size=20)), np.int64)
    draws = perturb(values, largest, alpha, np.random.default_rng(1))
    assert draws.dtype == np.int64
    assert np.abs(draws).max() <= largest


@settings(max_examples=examples(100))
@given(st.integers(1, 25), st.floats(1e-6, 8))
def test_epsilon_is_the_largest_ratio_against_zero(largest: int, alpha: float) -> None:
    logs = np.log(mechanism(largest, alpha))
    worst = np.abs(logs - logs[largest]).max()
    found = zero_out_epsilon(alpha, largest)
    assert found == pytest.approx(worst, rel=1e-6, abs=1e-12)
    assert alpha * largest / 2 <= found * (1 + 1e-12) <= alpha * largest * (1 + 1e-6)
    # What the ledger takes for replace-one, twice as much, covers any two values; they are alpha * m apart at most.
    assert (logs.max(0) - logs.min(0)).max() == pytest.approx(alpha * largest, rel=1e-6, abs=1e-12)


def test_alpha_is_for_neighbouring_steps_and_no_epsilon() -> None:
    """alpha 1 with c = 1 and ten digits: neighbours are e apart at most, and one single value costs 5 * 10^9."""
    neighbours = mechanism(20, 1.0)
    assert np.abs(np.log(neighbours[1:] / neighbours[:-1])).max() <= 1
    assert zero_out_epsilon(1.0, 10**10) == pytest.approx(5e9, rel=1e-6)


@settings(max_examples=examples(100))
@given(st.floats(1e-3, 1e6), st.integers(1, 10**6), st.integers(1, 10**9))
def test_alpha_for_a_budget_uses_it_up(epsilon: float, coordinates: int, largest: int) -> None:
    cost = coordinates * zero_out_epsilon(alpha_for(epsilon, coordinates, largest), largest)
    assert epsilon * (1 - 1e-6) <= cost <= epsilon * (1 + 1e-12)


def curve(null: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best tests of `null` against `other`, at the corners of the curve: thresholds that would have as many false
    alarms on N(0, 1), and how many they miss."""
    order = np.argsort(null / other, kind="stable")  # most telling for `other` first
    alarms, quiet = np.cumsum(null[order])[:-1], np.cumsum(null[order][::-1])[::-1][1:]
    thresholds = np.where(alarms < 0.5, stats.norm.isf(np.minimum(alarms, 1)), stats.norm.ppf(np.minimum(quiet, 1)))
    return thresholds, np.cumsum(other[order][::-1])[::-1][1:]


@settings(max_examples=examples(100))
@given(st.integers(1, 12), st.floats(1e-3, 8))
def test_two_gaussians_are_told_apart_better_than_any_value_from_zero(largest: int, alpha: float) -> None:
    """By enumeration, for every v and both directions; and not much better: some test is as good."""
    rows, mu = mechanism(largest, alpha), gaussian_cost(alpha, largest)
    slack = []
    for value in range(2 * largest + 1):
        for null, other in ((rows[largest], rows[value]), (rows[value], rows[largest])):
            thresholds, missed = curve(null, other)
            found = stats.norm.cdf(thresholds - mu)  # misses of the best test of two Gaussians
            assert (found <= missed * (1 + 1e-9)).all()
            slack.append((thresholds - stats.norm.ppf(np.minimum(missed, 1))).max())
    assert max(slack) >= 0.7 * mu  # the search is over all t, of which few are integers where m is small
    if largest >= 6:
        assert max(slack) >= 0.98 * mu


@pytest.mark.parametrize(("largest", "alpha", "values"), [(3, 0.02, 200), (3, 0.3, 60), (10, 0.05, 100), (2, 0.8, 40)])
def test_many_values_cost_no_more_than_the_account_says(largest: int, alpha: float, values: int) -> None:
    """Against the exact privacy loss of all of them: its distribution, convolved."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    rows = mechanism(largest, alpha)
    epsilon, mu = cost_of(alpha, values, largest, 1e-5)
    assert mu > 0
    for value in (0, 2 * largest):
        lower, upper = ({y: math.log(p) for y, p in enumerate(rows[v])} for v in (largest, value))
        one = pld.from_two_probability_mass_functions(lower, upper, value_discretization_interval=1e-4)
        exact = one.self_compose(values).get_epsilon_for_delta(1e-5)
        assert exact <= epsilon * 1.001  # it rounds losses up, by at most 1e-4 each
        assert exact >= 0.4 * epsilon


@settings(max_examples=examples(24))
@given(st.floats(0.1, 1e4), st.integers(1, 10**5), st.integers(1, 10**5))
def test_alpha_for_a_budget_at_delta_uses_it_up_and_is_no_smaller(epsilon: float, values: int, largest: int) -> None:
    alpha = alpha_for(epsilon, values, largest, 1e-5)
    assert epsilon * (1 - 1e-6) <= cost_of(alpha, values, largest, 1e-5)[0] <= epsilon * (1 + 1e-12)
    assert alpha >= alpha_for(epsilon, values, largest) * (1 - 1e-9)


def test_a_model_of_many_values_gets_tens_of_times_less_noise_at_delta() -> None:
    assert alpha_for(10, 8460, 500, 1e-5) / alpha_for(10, 8460, 500) == pytest.approx(35.0, abs=0.1)
    sharp = alpha_for(1e8, 8460, 500)
    assert alpha_for(1e8, 8460, 500, 1e-5) == pytest.approx(sharp)  # here adding up is the better account
    assert cost_of(sharp, 8460, 500, 1e-5)[1] == 0


# -- the protector -----------------------------------------------------------------------------------------------------


def test_values_are_clipped_rounded_and_drawn_on_the_grid(make_client: Callable[..., Client]) -> None:
    client = make_client(LAYOUT)
    values = np.array([0.123, -0.256, 3.0, -3.0, 0.0, 0.5], np.float32)
    sharp = passed(Block("noised", 6, values=values), client, noise(alpha=500.0))  # stays where it is
    assert np.allclose(sharp.plain(), [0.12, -0.26, 0.5, -0.5, 0, 0.5], atol=1e-7)
    assert client.log["baselines.ldp_fed.clipped"] == pytest.approx(2 / 6)
    flat = passed(Block("noised", 4000, values=np.full(4000, 0.5, np.float32)), client, noise(alpha=1e-6))
    steps = flat.plain().astype(np.float64) * 100
    assert np.allclose(steps, np.rint(steps), atol=1e-4)
    assert np.abs(steps).max() <= 50.001
    assert np.std(steps) == pytest.approx(math.sqrt((101**2 - 1) / 12), rel=0.05)  # uniform on -50 to 50


def test_nan_is_refused(make_client: Callable[..., Client]) -> None:
    client = make_client(LAYOUT)
    with pytest.raises(ProtectionError, match="client 0: the update of zone noised holds 1 NaN"):
        passed(Block("noised", 1, values=np.array([np.nan], np.float32)), client, noise(alpha=1.0))


def test_secure_draws_differ_between_runs_and_reproducible_ones_do_not(make_client: Callable[..., Client]) -> None:
    client, block = make_client(LAYOUT), Block("noised", 50, values=np.zeros(50, np.float32))

    def drawn(source: str) -> NDArray[np.float32]:
        return passed(block, client, noise(alpha=0.1, source=source)).plain()

    assert np.array_equal(drawn("reproducible"), drawn("reproducible"))
    assert not np.array_equal(drawn("secure"), drawn("secure"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "neither of alpha and epsilon"),
        ({"alpha": 1, "epsilon": 1}, "both of alpha and epsilon"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": 1, "bound": -1}, "bound"),
        ({"alpha": 1, "bound": 0.0001}, "change precision"),
        ({"alpha": 1, "bound": 1e9, "precision": 12}, "change precision"),
    ],
)
def test_options_that_leave_nothing_to_draw_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        Recipe.from_plain(recipe(None, noise=options))


# -- the cycle ---------------------------------------------------------------------------------------------------------


def sent(component: LdpFedCycle, round: int) -> list[int]:
    return [i for part in component.turn(round, LAYOUT) for i in range(part.start, part.stop)]


def test_layers_take_turns(make_client: Callable[..., Client]) -> None:
    first, second, third = list(range(8)), list(range(8, 12)), list(range(12, 17))
    assert [sent(cycle(), round) for round in range(4)] == [first, second, third, first]
    assert [sent(cycle(order="backward"), round) for round in range(2)] == [third, second]
    assert [sent(cycle(order=(2, 0)), round) for round in range(3)] == [third, first, third]
    assert [sent(cycle(layers_per_round=2), round) for round in range(2)] == [first + second, third + first]
    plan = cycle().plan(make_client(LAYOUT, round=1).facts)
    assert plan.positions("noised").tolist() == second
    assert plan.sizes() == {"encrypted": 0, "noised": 4, "retained": 13, "clear": 0}


def test_only_the_layer_whose_turn_it_is_travels_and_moves() -> None:
    rounds = [run_protocol(recipe(rounds=rounds)) for rounds in (1, 2)]
    sizes = []
    for message in rounds[1].sent("server", "client:1"):
        if message.phase == "upload":
            sizes.append({zone: block.size for zone, block in message.decode()["value"]["blocks"].items()})
    assert sizes == [{"noised": 64 * 8 + 8}, {"noised": 8 * 10 + 10}]
    moved = rounds[1].vector != rounds[0].vector
    assert not moved[: 64 * 8 + 8].any()
    assert moved[64 * 8 + 8 :].any()


@pytest.mark.parametrize("options", [{"layers_per_round": 4}, {"order": (0, 3)}])
def test_layers_that_the_model_has_not_are_refused_before_round_1(options: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=r"layers 0 to 1: .*lower layers_per_round, or change order"):
        run_protocol(recipe(negotiate_mask={"use": "baselines.ldp_fed_cycle", **options}))


@pytest.mark.parametrize("options", [{"order": (1, 1)}, {"order": ()}, {"zone": "retained"}, {"layers_per_round": 0}])
def test_a_cycle_that_is_none_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"order|zone retained is never sent|layers_per_round"):
        Recipe.from_plain(recipe(negotiate_mask={"use": "baselines.ldp_fed_cycle", **options}))


# -- the ledger --------------------------------------------------------------------------------------------------------


def test_the_ledger_adds_up_the_values_of_every_round() -> None:
    outcome = run_protocol(recipe(noise={"source": "secure"}))
    each = zero_out_epsilon(0.05, 100)
    assert outcome.protocol.ledger.epsilon() == pytest.approx((520 + 90 + 520) * each, rel=1e-8)
    assert any("the paper's own formula" in warning for warning in outcome.protocol.ledger.report().warnings)
    release = outcome.protocol.ledger.log[0].zones["noised"].releases[0]
    assert release.mechanism == "pure"
    assert release.as_published
    assert "the paper would quote alpha 0.05" in release.note


@pytest.mark.parametrize("layers", [True, False])
def test_a_budget_in_epsilon_is_what_the_ledger_says(layers: bool) -> None:
    outcome = run_protocol(recipe(None, layers=layers, noise={"epsilon": 50, "source": "secure"}))
    assert outcome.protocol.ledger.epsilon() == pytest.approx(50, rel=1e-6)
    assert outcome.protocol.ledger.epsilon() <= 50 * (1 + 1e-9)
    assert not outcome.protocol.ledger.log[0].zones["noised"].releases[0].as_published


@pytest.mark.parametrize("layers", [True, False])
def test_a_budget_in_epsilon_and_delta_is_what_the_ledger_says(layers: bool) -> None:
    """As Gaussian noise of other systems at the same epsilon and delta; no credit for that of other clients."""
    outcome = run_protocol(recipe(None, layers=layers, noise={"epsilon": 50, "delta": 1e-5, "source": "secure"}))
    ledger = outcome.protocol.ledger
    assert ledger.delta == 1e-5
    assert ledger.epsilon() == pytest.approx(50, rel=1e-6)
    assert ledger.report().views["released_model"].epsilon == pytest.approx(50, rel=1e-6)
    release = ledger.log[0].zones["noised"].releases[0]
    assert release.mechanism == "gaussian"
    assert not release.as_published
    assert "those of all rounds cost 50 at delta 1e-05" in release.note
    assert any("the draws of baselines.ldp_fed do not add up" in warning for warning in ledger.report().warnings)
    line = ledger.verdict().toward("server")
    assert line.rests_on == ["on the word of baselines.ldp_fed"]


def test_alpha_at_delta_costs_less_than_its_epsilons_added_up() -> None:
    plain = run_protocol(recipe()).protocol.ledger.epsilon()
    together = run_protocol(recipe(noise={"delta": 1e-5})).protocol.ledger.epsilon()
    mu = gaussian_cost(0.05, 100)
    assert together == pytest.approx(gaussian_epsilon(1 / (mu * math.sqrt(520 + 90 + 520)), 1e-5), rel=1e-9)
    assert together < plain


def test_selecting_k_clients_earns_no_credit() -> None:
    sampling = {"scheme": "fixed", "rate": 0.5}
    outcome = run_protocol(recipe(sampling=sampling, noise={"source": "secure"}))
    charged = [entry.charged for entry in outcome.protocol.ledger.log]
    assert [len(clients) for clients in charged] == [2, 2, 2]
    each, values = zero_out_epsilon(0.05, 100), (520, 90, 520)
    paid = [sum(n for n, clients in zip(values, charged, strict=True) if k in clients) for k in range(4)]
    assert outcome.protocol.ledger.epsilon() == pytest.approx(max(paid) * each, rel=1e-8)


def test_values_are_bounded_one_by_one_and_noised_without_one_scale(make_client: Callable[..., Client]) -> None:
    facts = make_client(LAYOUT).facts
    known = Known(zone="noised", link="baselines.ldp_fed", layers=(8, 4, 5))
    found = behind(facts, "noised", noise(alpha=0.05))
    (clip,), (release,) = found.clips, found.releases
    assert (clip.bound, clip.noised) == (Bound(0.5, order=math.inf, per="scalar"), True)
    assert release.noise_multiplier == pytest.approx(1 / (17 * zero_out_epsilon(0.05, 50)))
    assert (found.scales, found.grid, release.words) == ((None,), 0.01, ["baselines.ldp_fed"])
    for done in (Noise.gaussian(1.0), Seal(scheme="x", opened_by="clients", numbers=FixedPoint(1.0, 0.0))):
        with pytest.raises(Misplaced, match=r"keep one noise component|put baselines.ldp_fed first"):
            noise(alpha=0.05).protect(known.after(done), facts)


def test_whose_turn_it_is_is_public(make_client: Callable[..., Client]) -> None:
    assert cycle().plans == Plans(zones=frozenset({"noised", "retained"}))
    assert make_client(LAYOUT, {"baselines.ldp_fed_cycle": cycle()}).facts.plans_are_public


def test_both_engines_agree() -> None:
    assert np.array_equal(run_protocol(recipe()).vector, run_protocol(recipe(), "processes", workers=1).vector)
