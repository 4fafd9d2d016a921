"""Clip and noise of each layer: how much, in which part of the model, and the release in the ledger."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from budget_toys import (
    DELTA,
    LAYOUT,
    SCORES,
    SIZES,
    by_layer,
    client_with,
    layer_budgets,
    planned,
    protect,
    sized,
    stated,
    step_of,
)
from fedplug import Block, Clip, Facts, Layout, Plan, Widen, gaussian_epsilon
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.errors import ProtectionError
from fedplug.api.links import Link, fold
from fedplug.mechanisms.execution import execute
from fedplug_fedre.budgets import budgets, released_multiplier
from fedplug_fedre.layer_budgets import LayerBudgets
from fedplug_fedre.psi import Psi
from fedplug_kit.static import check_component
from fedplug_lab import pictures
from fedplug_ledger.ledger import Ledger
from hypothesis import given, settings
from hypothesis import strategies as st


def test_conforms() -> None:
    check_component("fedre.layer_budgets")


# -- clip and noise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allocation", ["exact", "sum", "as_published"])
@pytest.mark.parametrize("source", ["secure", "reproducible"])
def test_each_layer_has_the_noise_of_its_budget(allocation: Any, source: str) -> None:
    """Eq. 8: C_l sigma_l. Six standard deviations of a chi-square variable."""
    component = layer_budgets(allocation=allocation, source=source, norm={"a": 0.5, "others": 0.25})
    found = protect(component, client_with(), np.zeros(LAYOUT.size))
    share = budgets(SCORES.astype(float), 10, DELTA, 4, allocation, 3)
    for noise, clip, sigma in zip(by_layer(found.plain()), (0.5, 0.25, 0.25), share.sigmas, strict=True):
        std = math.sqrt(np.mean(noise.astype(np.float64) ** 2))
        assert std == pytest.approx(clip * sigma, rel=6 / math.sqrt(2 * len(noise)))


def test_each_layer_is_clipped_to_its_norm_and_no_further() -> None:
    """Eq. 7. With almost no noise, the result is the clipped update."""
    client, rng = client_with(), np.random.default_rng(3)
    values = rng.standard_normal(LAYOUT.size) * LAYOUT.per_scalar(np.array([1.0, 1e-4, 1.0]))
    component = layer_budgets(epsilon=1e9, norm={"a": 0.5, "b": 0.25, "c": 2.0})
    found = protect(component, client, values).plain()
    for clipped, whole, norm in zip(by_layer(found), by_layer(values), (0.5, 0.25, 2.0), strict=True):
        length = float(np.linalg.norm(whole))
        assert clipped == pytest.approx(whole * min(1.0, norm / length), abs=1e-2 * norm)
    assert np.linalg.norm(by_layer(values)[1]) < 0.25  # the second passed unchanged


def test_noise_is_new_in_each_round_and_at_each_client() -> None:
    component, zeros = layer_budgets(), np.zeros(LAYOUT.size)
    first, other, later = (protect(component, client_with(**at), zeros).plain() for at in
                           ({}, {"client_id": 1}, {"round": 1}))  # fmt: skip
    for values in (other, later):
        assert abs(np.corrcoef(first, values)[0, 1]) < 6 / math.sqrt(LAYOUT.size)
    assert np.array_equal(first, protect(component, client_with(), zeros).plain())
    secure = [protect(layer_budgets(source="secure"), client_with(), zeros).plain() for _ in range(2)]
    assert not np.array_equal(*secure)


def test_values_lie_on_a_public_grid() -> None:
    found = protect(layer_budgets(), client_with(), np.full(LAYOUT.size, 1e-3)).plain()
    share = budgets(SCORES.astype(float), 10, DELTA, 4, "exact", 3)
    for values, sigma in zip(by_layer(found), share.sigmas, strict=True):
        grid = 2.0 ** math.ceil(math.log2(0.5 * (1 + 12 * sigma) / 2**24))
        assert np.array_equal(values / grid, np.rint(values / grid))


def test_the_exact_source_gives_the_same_noise_and_is_released_as_discrete() -> None:
    pytest.importorskip("opendp")
    component, where = layer_budgets(source="exact"), np.arange(2900, 3500)  # of a and of b
    noise = protect(component, client_with(), np.zeros(600), where).plain()
    share = budgets(SCORES[:2].astype(float), 10, DELTA, 4, "exact", 3)
    for values, sigma in zip((noise[:100], noise[100:]), share.sigmas, strict=True):
        std = math.sqrt(np.mean(values.astype(np.float64) ** 2))
        assert std == pytest.approx(0.5 * sigma, rel=6 / math.sqrt(2 * len(values)))
    release = stated(component, client_with().facts)[2]
    assert release.mechanism == "discrete_gaussian"
    assert 0 < release.slack < 1e-9
    assert "delta grows by less than" in release.note


# -- part of the model -------------------------------------------------------------------------------------------------


def test_layers_outside_the_zone_leave_their_share_to_the_others() -> None:
    """A hybrid: layer b is encrypted elsewhere, and half of c."""
    where = np.r_[0:3000, 5000:6000, 6000:8000]
    client = client_with()
    found = protect(layer_budgets(), client, np.zeros(len(where)), where).plain().astype(np.float64)
    share = budgets(np.array([1.0, 4.0]), 10, DELTA, 4, "exact", 3)
    for values, sigma in zip((found[:4000], found[4000:]), share.sigmas, strict=True):
        assert math.sqrt(np.mean(values**2)) == pytest.approx(0.5 * sigma, rel=6 / math.sqrt(2 * len(values)))
    assert share.multiplier == pytest.approx(stated(layer_budgets(), client.facts)[2].noise_multiplier)


def test_positions_follow_from_the_plan_where_the_block_has_none() -> None:
    where, zeros = np.arange(3000, 5000), np.zeros(2000, np.float32)
    client = client_with()
    client.plan = Plan.of(client.facts, "encrypted", noised=where)
    found = execute(step_of(layer_budgets(), client.facts), Block("noised", 2000, zeros), client, client.facts)
    assert np.array_equal(found.plain(), protect(layer_budgets(), client_with(), zeros, where).plain())
    assert found.positions is None


def test_zeros_in_place_of_what_a_client_retains_are_noised_as_their_layers() -> None:
    """A layer that it retains completely has noise too, where zeros cover that."""
    client = client_with()
    client.plan = Plan.of(client.facts, "noised", retained=np.arange(3000, 5000))  # b
    where = client.plan.positions("noised")
    component = layer_budgets()
    hide = SimpleNamespace(name="hide", protect=lambda known, facts: (Widen(),))
    block = Block("noised", len(where), np.zeros(len(where), np.float32), where)
    links = [Link("noised", "protect", each.name, each, "client") for each in (hide, component)]
    for step in fold(links, client.facts):
        block = execute(step, block, client, client.facts)
    share = budgets(SCORES.astype(float), 10, DELTA, 4, "exact", 3)
    for noise, sigma in zip(by_layer(block.plain()), share.sigmas, strict=True):
        std = math.sqrt(np.mean(noise.astype(np.float64) ** 2))
        assert std == pytest.approx(0.5 * sigma, rel=6 / math.sqrt(2 * len(noise)))


def test_a_client_whose_noise_is_less_than_is_charged_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedplug_fedre.layer_budgets.released_multiplier", lambda **_: 1e3)
    with pytest.raises(ProtectionError, match=r"multiplier of .* at this client, and 1000 is what is charged for"):
        protect(layer_budgets(), client_with(), np.zeros(LAYOUT.size))


# -- what is said of it ------------------------------------------------------------------------------------------------


def ledger_of(component: LayerBudgets, rounds: int = 4) -> Ledger:
    ledger = Ledger("test", 4, rounds, 2, DELTA)
    for round in range(rounds):
        ledger.record(
            round, charged=range(4), zone_sizes={"noised": 10.0}, total=10,
            releases={"noised": [stated(component, client_with(round=round).facts)[2]]},
            contributors={"noised": 1}, weights=dict.fromkeys(range(4), 1.0),
        )  # fmt: skip
    return ledger


def test_the_ledger_ends_at_epsilon() -> None:
    assert ledger_of(layer_budgets()).epsilon() == pytest.approx(10)
    assert ledger_of(layer_budgets(allocation="sum")).epsilon() == pytest.approx(10)  # a bound for any scores
    as_published = layer_budgets(allocation="as_published")
    release = stated(as_published, client_with().facts)[2]
    assert release.as_published
    assert "eq. 9 as printed" in release.note
    assert "exceeds 8.15" in release.note  # 7.97 at delta / 3
    assert release.noise_multiplier == pytest.approx(math.sqrt(8 * math.log(3 / DELTA)) / 10)
    # All in one layer; 5.97 with scores 1, 2, 4.
    assert ledger_of(as_published).epsilon() == pytest.approx(9.94, abs=0.01)


@pytest.mark.parametrize(("allocation", "epsilon"), [("exact", 10.0), ("sum", 6.55), ("as_published", 5.97)])
def test_scores_give_each_layer_its_noise_which_costs_what_they_cost_together(allocation: Any, epsilon: float) -> None:
    component = layer_budgets(allocation=allocation, norm={"a": 0.5, "others": 0.25})
    facts = client_with().facts
    clip, _, bound = stated(component, facts)
    noise, release = sized(component, facts)
    share = budgets(SCORES.astype(float), 10, DELTA, 4, allocation, 3)
    assert clip == Clip((0.5, 0.25, 0.25), per="layer")
    assert noise.std == pytest.approx(np.array([0.5, 0.25, 0.25]) * share.sigmas)
    assert noise.scored
    assert noise.as_published == (allocation == "as_published")
    assert release.noise_multiplier == pytest.approx(share.multiplier)
    assert release.clipping_norm == pytest.approx(math.hypot(0.5, 0.25, 0.25))  # of all layers, not of one
    assert release.uncredited
    assert bound.uncredited
    assert gaussian_epsilon(release.noise_multiplier / 2, DELTA) == pytest.approx(epsilon, rel=2e-3)


def test_layers_outside_the_zone_show_nothing_and_cost_nothing() -> None:
    component, facts = layer_budgets(allocation="sum"), client_with().facts
    noise, release = sized(component, facts, present=[0, 1])  # a and b
    share = budgets(SCORES[:2].astype(float), 10, DELTA, 4, "sum", 3)
    assert noise.std == pytest.approx((*(0.5 * share.sigmas), math.inf))
    assert release.noise_multiplier == pytest.approx(share.multiplier)
    assert len(stated(component, facts)[0].norm) == 3  # type: ignore[arg-type]


def test_values_are_what_was_stated() -> None:
    """Values are on the stated grid. The cost that follows from bounds and sizes is that of the budgets."""
    component, client = layer_budgets(norm={"a": 0.5, "others": 0.02}), planned(client_with())
    noise, release = sized(component, client.facts)
    clip, *_ = stated(component, client.facts)
    found = protect(component, client, np.random.default_rng(0).standard_normal(LAYOUT.size)).plain()
    assert noise.grid > 0
    assert np.array_equal(found / noise.grid, np.rint(found / noise.grid))
    assert isinstance(clip.norm, tuple)
    assert isinstance(noise.std, tuple)
    joint = 1 / math.hypot(*(c / s for c, s in zip(clip.norm, noise.std, strict=True)))
    assert joint == pytest.approx(release.noise_multiplier)


@given(
    scores=st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3), floor=st.floats(1e-3, 1),
    norms=st.lists(st.floats(0.01, 10), min_size=3, max_size=3), epsilon=st.floats(0.1, 50), rounds=st.integers(1, 6),
    allocation=st.sampled_from(["exact", "sum", "as_published"]),
    present=st.sets(st.sampled_from([0, 1, 2]), min_size=1),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_no_client_has_less_noise_for_its_bounds_than_the_ledger_charges(
    scores: list[float], floor: float, norms: list[float], epsilon: float, rounds: int, allocation: str,
    present: set[int],
) -> None:  # fmt: skip
    """As executed: how far apart two results of the same draw lie in a layer is the bound that is enforced there."""
    component = layer_budgets(
        epsilon=epsilon, floor=floor, allocation=allocation, norm=dict(zip("abc", norms, strict=True))
    )
    layers = LAYOUT.per_scalar(np.arange(3))
    where = np.flatnonzero(np.isin(layers, sorted(present)))
    long = np.where(np.isin(where, [np.flatnonzero(layers == number)[0] for number in present]), 1e3, 0.0)
    clients = [client_with(scores, rounds=rounds) for _ in range(2)]
    drawn, moved = (
        protect(component, client, values, where).plain().astype(np.float64)
        for client, values in zip(clients, (np.zeros(len(where)), long), strict=True)
    )
    charged = stated(component, clients[0].facts)[2].noise_multiplier
    noise, _ = sized(component, clients[0].facts, scores, sorted(present))
    cost = 0.0
    for number in present:
        std, of_layer = noise.std[number], layers[where] == number  # type: ignore[index]
        rms = math.sqrt(np.mean(drawn[of_layer] ** 2))
        assert std == pytest.approx(rms, rel=6 / math.sqrt(2 * of_layer.sum()))
        grid = (norms[number] + 12 * std) / 2**23
        cost += ((float(np.linalg.norm((moved - drawn)[of_layer])) - grid) / std) ** 2
    assert cost**-0.5 >= charged * (1 - 1e-6)


def test_the_fold_states_the_bound_for_any_scores() -> None:
    for allocation in ("exact", "sum", "as_published"):
        _, noise, release = stated(layer_budgets(allocation=allocation), client_with().facts)
        assert noise.std is None
        assert release.noise_multiplier == released_multiplier(10, DELTA, 4, allocation, 3)  # type: ignore[arg-type]


def test_before_a_model_is_known_the_largest_norm_counts_for_all() -> None:
    facts = Facts(0, 4, Layout(()), BASE_ZONES, 4, 2, 7, "")
    component = layer_budgets(norm={"a": 0.5, "others": 0.2}, allocation="as_published")
    clip, _, release = stated(component, facts)
    assert clip == Clip(0.5, per="layer")
    assert release.noise_multiplier == pytest.approx(math.sqrt(8 * math.log(1 / DELTA)) / 10)


def test_signal_to_noise_of_each_layer() -> None:
    client, values = client_with(), np.zeros(LAYOUT.size)
    values[0], values[3000], values[6000] = 5.0, 0.25, 0.5  # above C, half of it, all of it
    component = layer_budgets(figure_client=0)
    protect(component, client, values)
    sigmas = budgets(SCORES.astype(float), 10, DELTA, 4, "exact", 3).sigmas
    ratios = np.array([1.0, 0.5, 1.0]) / (sigmas * np.sqrt(SIZES))
    assert client.log["fedre.layer_budgets.snr_min"] == pytest.approx(ratios.min())
    assert client.log["fedre.layer_budgets.snr_median"] == pytest.approx(np.median(ratios))
    picture = pictures.checked("x", client.figures["fedre.layer_budgets-noised"])
    shown = {panel["title"]: panel for panel in picture["panels"]}
    assert shown["sigma_l"]["labels"] == ["a", "b", "c"]
    assert [box[0] for box in shown["signal-to-noise"]["boxes"]] == pytest.approx(ratios.tolist())
    assert sum(box[2] for box in shown["eps_l"]["boxes"]) == pytest.approx(10)
    assert "overspent" not in str(client.log)
    other = client_with(client_id=1)
    protect(component, other, values)
    assert not other.figures


def test_layers_that_eq_9_does_not_cover_are_counted() -> None:
    client = client_with([1, 1, 1000])
    protect(layer_budgets(allocation="as_published", epsilon=18), client, np.zeros(LAYOUT.size))
    assert client.log["fedre.layer_budgets.overspent"] == 2  # 9 each, of which 8.15 hold


def test_a_floored_score_is_counted() -> None:
    client = client_with([0, 2, 4])
    assert np.isfinite(protect(layer_budgets(), client, np.zeros(LAYOUT.size)).plain()).all()
    assert client.log["fedre.layer_budgets.floored"] == 1
    protect(layer_budgets(), client, np.zeros(10), np.arange(3000, 3010))  # b alone
    assert client.log["fedre.layer_budgets.floored"] == 0


def test_a_floor_keeps_a_layer_from_taking_all_of_epsilon() -> None:
    def stds(floor: float) -> list[float]:
        found = protect(layer_budgets(floor=floor), client_with([0, 2, 4]), np.zeros(LAYOUT.size)).plain()
        return [float(np.std(noise)) for noise in by_layer(found)]

    first, second, third = stds(1e-12)
    assert third > second > 1e10 * first
    assert stds(0.5) == pytest.approx([std * 0.5 for std in budgets_of([2.0, 2.0, 4.0])], rel=0.1)


def budgets_of(scores: list[float]) -> list[float]:
    return budgets(np.array(scores), 10, DELTA, 4, "exact", 3).sigmas.tolist()


def test_scores_of_private_data_are_a_side_channel() -> None:
    def seen(**options: Any) -> list[str]:
        psi = Psi(Psi.Options(**options))
        psi.name = "fedre.psi"
        facts = client_with().facts
        facts.components["fedre.psi"] = psi
        return [channel.what for channel in layer_budgets().reveals(facts)]

    assert seen() == []
    assert seen(source="private") == seen(at="local") == ["noise scale of each layer"]


def test_it_says_what_it_does() -> None:
    assert layer_budgets().describe() == (
        "layers clipped to 0.5, Gaussian noise by PSI score: epsilon 10, delta 1e-05 together over all rounds, "
        "reproducible source"
    )
    assert "by eq. 9 (as published)" in layer_budgets(allocation="as_published").describe()
