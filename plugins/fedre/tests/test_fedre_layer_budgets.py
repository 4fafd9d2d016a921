"""Clip and noise of each layer: how much, in which part of the model, what the ledger is told, and what is refused."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from attack_toys import Runs, observed
from fedplug import (
    Block,
    Bound,
    Client,
    Context,
    Field,
    Known,
    Layout,
    Misplaced,
    Noise,
    Plan,
    Scoring,
    Server,
    gaussian_epsilon,
    hookimpl,
)
from fedplug.api import pictures
from fedplug.api.errors import ProtectionError, RecipeError, TooFewClients
from fedplug.api.releases import Release
from fedplug.api.types import BASE_ZONES
from fedplug.privacy.ledger import Ledger
from fedplug.recipe.recipe import Recipe
from fedplug_fedre.budgets import budgets, floored, released_multiplier
from fedplug_fedre.layer_budgets import LayerBudgets
from fedplug_fedre.psi import Psi
from fedplug_kit.static import check_component
from fedplug_std.gaussian import CentralGaussian
from toy_components import TOYS, recipe_of
from toy_protocol import run_protocol

DELTA = 1e-5
LAYOUT = Layout.of([("a.weight", (3000,)), ("b.weight", (2000,)), ("a.bias", (1000,)), ("c.weight", (4000,))])
SCORES = np.array([1.0, 2.0, 4.0], np.float32)
SIZES = np.array([4000, 2000, 4000])  # of a, b and c


def layer_budgets(**options: Any) -> LayerBudgets:
    options = {"epsilon": 10, "delta": DELTA, "norm": 0.5, "source": "reproducible"} | options
    component = LayerBudgets(LayerBudgets.Options.model_validate(options))
    component.name = "fedre.layer_budgets"
    return component


def client_with(scores: Any = SCORES, round: int = 0, client_id: int = 0, rounds: int = 4, **more: Any) -> Client:
    client = Client(client_id=client_id, scores={"psi": np.array(scores, np.float32)} | more)
    client.ctx = Context(round, rounds, LAYOUT, BASE_ZONES, 4, 2, 7, "", client)
    return client


def protect(component: LayerBudgets, client: Client, values: Any, where: Any = None, zone: str = "noised") -> Block:
    """The block of these values at some of the positions, or at all."""
    where = np.arange(LAYOUT.size) if where is None else np.asarray(where)
    block = Block(zone, len(where), np.asarray(values, np.float32), where.astype(np.uint32))
    return component.protect(block, client, client.ctx)


def stated(component: LayerBudgets, ctx: Context, zone: str = "noised") -> tuple[Bound, Noise, Release]:
    """What it says of itself, and what the ledger makes of that."""
    known = Known(zone=zone, link=component.name, layers=tuple(SIZES.tolist()))
    bound, noise = component.effects(known, ctx)
    (release,) = known.after((bound, noise)).releases
    assert isinstance(bound, Bound)
    assert isinstance(noise, Noise)
    return bound, noise, release


def by_layer(values: Any) -> list[Any]:
    return [np.concatenate([values[part] for part in parts]) for parts in LAYOUT.layer_slices().values()]


def test_conforms() -> None:
    check_component("fedre.layer_budgets")


# -- clip and noise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allocation", ["exact", "sum", "literal"])
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
    """Eq. 7. With almost no noise, what is left is the clipped update."""
    client, rng = client_with(), np.random.default_rng(3)
    values = rng.standard_normal(LAYOUT.size) * LAYOUT.per_scalar(np.array([1.0, 1e-4, 1.0]))
    component = layer_budgets(epsilon=1e9, norm={"a": 0.5, "b": 0.25, "c": 2.0})
    found = protect(component, client, values).plain()
    for clipped, whole, norm in zip(by_layer(found), by_layer(values), (0.5, 0.25, 2.0), strict=True):
        length = float(np.linalg.norm(whole))
        assert clipped == pytest.approx(whole * min(1.0, norm / length), abs=1e-2 * norm)
    assert np.linalg.norm(by_layer(values)[1]) < 0.25  # the second passed as it is


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
    release = stated(component, client_with().ctx)[2]
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
    assert share.multiplier == pytest.approx(stated(layer_budgets(), client.ctx)[2].noise_multiplier)


def test_positions_follow_from_the_plan_where_the_block_has_none() -> None:
    where, zeros = np.arange(3000, 5000), np.zeros(2000, np.float32)
    client = client_with()
    client.plan = Plan.of("encrypted", LAYOUT.size, BASE_ZONES, shared=BASE_ZONES, noised=where)
    found = layer_budgets().protect(Block("noised", 2000, zeros), client, client.ctx)
    assert np.array_equal(found.plain(), protect(layer_budgets(), client_with(), zeros, where).plain())
    assert found.positions is None


# -- what is said of it ------------------------------------------------------------------------------------------------


def ledger_of(component: LayerBudgets, rounds: int = 4) -> Ledger:
    ledger = Ledger("test", 4, rounds, 2, DELTA)
    for round in range(rounds):
        ledger.record(
            round, charged=range(4), zone_sizes={"noised": 10.0}, total=10,
            releases={"noised": [stated(component, client_with(round=round).ctx)[2]]},
            contributors={"noised": 1}, weights=dict.fromkeys(range(4), 1.0),
        )  # fmt: skip
    return ledger


def test_the_ledger_ends_at_epsilon() -> None:
    assert ledger_of(layer_budgets()).epsilon() == pytest.approx(10)
    assert ledger_of(layer_budgets(allocation="sum")).epsilon() == pytest.approx(10)  # a bound for any scores
    literal = layer_budgets(allocation="literal")
    release = stated(literal, client_with().ctx)[2]
    assert release.literal
    assert "eq. 9 as printed" in release.note
    assert "exceeds 8.15" in release.note  # 7.97 at delta / 3
    assert release.noise_multiplier == pytest.approx(math.sqrt(8 * math.log(3 / DELTA)) / 10)
    assert ledger_of(literal).epsilon() == pytest.approx(9.94, abs=0.01)  # all in one layer; 5.97 with scores 1, 2, 4


def planned(client: Client, zone: str = "noised", where: Any = None) -> Client:
    """The client with a plan that puts these positions, or all, into the zone."""
    if where is None:
        client.plan = Plan.single(zone, LAYOUT.size, BASE_ZONES)
    else:
        client.plan = Plan.of("encrypted", LAYOUT.size, BASE_ZONES, shared=BASE_ZONES, **{zone: where})
    return client


@pytest.mark.parametrize(("allocation", "epsilon"), [("exact", 10.0), ("sum", 6.55), ("literal", 5.97)])
def test_a_client_states_the_noise_of_each_layer_and_what_they_cost_together(allocation: Any, epsilon: float) -> None:
    component = layer_budgets(allocation=allocation, norm={"a": 0.5, "others": 0.25})
    bound, noise, release = stated(component, planned(client_with()).ctx)
    share = budgets(SCORES.astype(float), 10, DELTA, 4, allocation, 3)
    assert bound == Bound((0.5, 0.25, 0.25), per="layer")
    assert noise.scale == pytest.approx(np.array([0.5, 0.25, 0.25]) * share.sigmas)
    assert noise.scored
    assert noise.literal == (allocation == "literal")
    assert release.noise_multiplier == pytest.approx(share.multiplier, rel=2e-3)
    assert release.noise_multiplier <= share.multiplier * (1 + 1e-12)
    assert release.clipping_norm == pytest.approx(math.hypot(0.5, 0.25, 0.25))  # of all layers, not of one
    assert release.uncredited
    assert gaussian_epsilon(release.noise_multiplier / 2, DELTA) == pytest.approx(epsilon, rel=2e-3)


def test_layers_outside_the_zone_show_nothing_and_cost_nothing() -> None:
    client = planned(client_with(), where=np.arange(0, 5000))  # a and b
    bound, noise, release = stated(layer_budgets(allocation="sum"), client.ctx)
    share = budgets(SCORES[:2].astype(float), 10, DELTA, 4, "sum", 3)
    assert noise.scale == pytest.approx((*(0.5 * share.sigmas), math.inf))
    assert release.noise_multiplier == pytest.approx(share.multiplier, rel=2e-3)
    assert len(bound.norm) == 3  # type: ignore[arg-type]


def test_values_are_what_was_stated() -> None:
    """On the stated grid, and the cost that follows from bounds and sizes is that of the budgets."""
    component, client = layer_budgets(norm={"a": 0.5, "others": 0.02}), planned(client_with())
    bound, noise, release = stated(component, client.ctx)
    found = protect(component, client, np.random.default_rng(0).standard_normal(LAYOUT.size)).plain()
    assert noise.grid > 0
    assert np.array_equal(found / noise.grid, np.rint(found / noise.grid))
    assert isinstance(bound.norm, tuple)
    assert isinstance(noise.scale, tuple)
    joint = 1 / math.hypot(*(c / s for c, s in zip(bound.norm, noise.scale, strict=True)))
    assert joint == pytest.approx(release.noise_multiplier)


def test_a_server_that_cannot_know_the_scores_states_the_bound() -> None:
    server = Server()
    ctx = Context(0, 4, LAYOUT, BASE_ZONES, 4, 2, 7, "", server)
    for allocation in ("exact", "sum", "literal"):
        _, noise, release = stated(layer_budgets(allocation=allocation), ctx)
        assert noise.scale is None
        assert release.noise_multiplier == released_multiplier(10, DELTA, 4, allocation, 3)  # type: ignore[arg-type]


def test_before_a_model_is_known_the_largest_norm_stands_for_all() -> None:
    ctx = Context(0, 4, Layout(()), BASE_ZONES, 4, 2, 7, "", Server())
    component = layer_budgets(norm={"a": 0.5, "others": 0.2}, allocation="literal")
    bound, noise = component.effects(Known(zone="noised"), ctx)
    assert bound == Bound(0.5, per="layer")
    assert isinstance(noise, Noise)
    assert noise.multiplier == pytest.approx(math.sqrt(8 * math.log(1 / DELTA)) / 10)


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
    protect(layer_budgets(allocation="literal", epsilon=18), client, np.zeros(LAYOUT.size))
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
        ctx = client_with().ctx
        ctx.components["fedre.psi"] = psi
        return [channel.what for channel in layer_budgets().reveals(ctx)]

    assert seen() == []
    assert seen(source="private") == seen(at="local") == ["noise scale of each layer"]


def test_it_says_what_it_does() -> None:
    assert layer_budgets().describe() == (
        "layers clipped to 0.5, Gaussian noise by PSI score: epsilon 10, delta 1e-05 together over all rounds, "
        "reproducible source"
    )
    assert "by eq. 9 (literal)" in layer_budgets(allocation="literal").describe()


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "problem"),
    [
        (np.ones(LAYOUT.size), "psi gives 10000 scores where one for each of 3 layers is needed; add {use: fedre.psi}"),
        ([1, math.nan, 2], "1 of 3 layer scores are NaN"),
        ([0, 0, 0], "all 3 layer scores are 0"),
    ],
)
def test_scores_that_are_none_of_layers(scores: Any, problem: str) -> None:
    with pytest.raises(ProtectionError, match=problem):
        protect(layer_budgets(), client_with(scores), np.zeros(LAYOUT.size))


def test_an_update_that_is_not_finite_is_not_sent() -> None:
    values = np.zeros(LAYOUT.size)
    values[:2] = math.nan, math.inf
    with pytest.raises(ProtectionError, match=r"holds 2 NaN or infinite values.*lower lr in train"):
        protect(layer_budgets(), client_with(), values)


def test_the_scorer_can_be_named() -> None:
    client = client_with(np.ones(LAYOUT.size), other=SCORES)
    found = protect(layer_budgets(by="other"), client, np.zeros(LAYOUT.size)).plain()
    assert np.array_equal(found, protect(layer_budgets(), client_with(), np.zeros(LAYOUT.size)).plain())


@pytest.mark.parametrize(
    ("norm", "problem"),
    [
        ({"a": 1, "b": 1, "c": 1, "d": 1}, "names no layer: d; the model has the layers a, b, c"),
        ({"a": 1, "c": 1}, "leaves out: b; .* or some and others"),
    ],
)
def test_norms_that_do_not_fit_the_model(norm: Any, problem: str) -> None:
    with pytest.raises(ProtectionError, match=problem):
        layer_budgets(norm=norm).setup(None, None, client_with().ctx)  # type: ignore[arg-type]
    layer_budgets(norm={"b": 2, "others": 1}).setup(None, None, client_with().ctx)  # type: ignore[arg-type]


PSI = {"use": "fedre.psi", "preference": {"box": [2, 2, 6, 6]}, "samples": 2}
OURS = {"use": "fedre.layer_budgets", "epsilon": 10, "delta": DELTA, "norm": 0.1, "source": "reproducible"}


def recipe(chain: list[Any], **changes: Any) -> dict[str, Any]:
    plain = recipe_of("noised", chain, score_parameters=[PSI])
    plain["data"] = {**plain["data"], "public": 16}
    plain["model"] = {"use": "std.mlp", "hidden": [8]}
    return plain | changes


@pytest.mark.parametrize(
    ("chain", "changes", "problem"),
    [
        ([OURS], {"score_parameters": []}, "layer budgets need scores; add score_parameters: [{use: fedre.psi}]"),
        ([OURS | {"by": "nobody"}], {}, "'nobody' is not a scorer of this recipe"),
        ([OURS | {"figure_client": 4}], {}, "figure_client=4 must be < data.clients=4"),
        ([OURS | {"epsilon": 1e13, "source": "exact"}], {}, "must be at most std / 2^15"),
        ([OURS | {"epsilon": 0}], {}, "epsilon=0 must be > 0; to switch the noise off, write noised: []"),
        ([OURS | {"delta": 1}], {}, "delta=1 must be < 1"),
        ([OURS | {"norm": 0}], {}, "norm=0 must be > 0"),
        ([OURS | {"norm": {"fc1": -1}}], {}, "norm.fc1=-1 must be > 0"),
        ([OURS | {"norm": {}}], {}, "at least 1"),
        ([{"use": "std.clip", "norm": 1}, OURS], {}, "clips each layer itself; leave std.clip out and write norm"),
        ([{"use": "fedre.layer_budgets", "name": "once"} | OURS, OURS], {}, "has noise already"),
        ([{"use": "std.bfv"}, OURS], {}, "put it before the encryption"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_hold_is_refused(chain: list[Any], changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError) as error:
        Recipe.from_plain(recipe(chain, **changes))
    assert problem in str(error.value)


def test_norms_of_layers_are_not_the_norm_of_the_update() -> None:
    """Noise on the sum, scaled to the norm of one of nine layers, would be a third of what all of them need."""
    layers, per_layer = (10,) * 9, Bound((0.1,) * 9, per="layer")
    central = CentralGaussian(CentralGaussian.Options(norm=0.1, noise_multiplier=1.0))
    central.name = "std.central_gaussian"
    for bound in (per_layer, Bound(0.1, per="layer")):
        known = Known(zone="noised", link=central.name, layers=layers).after((bound,))
        assert known.norm() == pytest.approx(0.3)
        with pytest.raises(Misplaced, match=r"is clipped to 0\.3, but its noise is scaled to norm=0\.1"):
            central.opens(known, client_with().ctx)


# -- in a run ----------------------------------------------------------------------------------------------------------


def test_central_noise_is_scaled_to_the_norm_of_all_layers_together() -> None:
    """Two layers of norm 0.1 each: stopped before round 1, with the norm to write; with that it runs."""
    noise = {"use": "std.central_gaussian", "noise_multiplier": 1, "source": "reproducible"}
    with pytest.raises(Misplaced) as stopped:
        run_protocol(recipe([OURS], postprocess={"noised": [noise | {"norm": 0.1}]}))
    assert "is clipped to 0.141421, but its noise is scaled to norm=0.1" in str(stopped.value)
    norm = re.search(r"write norm: ([\d.]+) here, or let fedre.layer_budgets", str(stopped.value))
    assert norm
    outcome = run_protocol(recipe([OURS], postprocess={"noised": [noise | {"norm": float(norm[1])}]}))
    assert [release.link for release in outcome.protocol.ledger.log[0].zones["noised"].releases] == [
        "fedre.layer_budgets", "std.central_gaussian"
    ]


def test_a_run_costs_epsilon_whatever_the_scores_are() -> None:
    outcome = run_protocol(recipe([OURS]))
    assert outcome.protocol.ledger.epsilon() == pytest.approx(10)
    assert outcome.rows[0].log["fedre.layer_budgets.snr_min"] > 0


def multipliers(ledger: Ledger) -> list[float]:
    return [release.noise_multiplier for entry in ledger.log for release in entry.zones["noised"].releases]


@pytest.mark.parametrize("allocation", ["sum", "literal"])
def test_the_ledger_states_what_the_layers_of_a_run_cost_together(allocation: str) -> None:
    """The server works out the public scores of each round: the cost is that of the noise that clients added."""
    seen: list[tuple[int, float]] = []
    with watched_scores() as scores:
        outcome = run_protocol(recipe([OURS | {"allocation": allocation}]))
    for round, one in scores:
        seen.append((round, budgets(one, 10, DELTA, 2, allocation, 2).multiplier))  # type: ignore[arg-type]
    found, bound = multipliers(outcome.protocol.ledger), released_multiplier(10, DELTA, 2, allocation, 2)  # type: ignore[arg-type]
    assert len(found) == 2
    assert len(seen) == 2 * 4
    for round, true in seen:
        assert found[round] == pytest.approx(true * (1 - 1e-3), rel=1e-9)
        assert found[round] > 1.01 * bound
    rates = [1 / multiplier**2 for multiplier in found]
    assert outcome.protocol.ledger.epsilon() == pytest.approx(gaussian_epsilon(sum(rates) ** -0.5, DELTA))


@pytest.mark.parametrize("round", [1, 2])
def test_whoever_reads_uploads_knows_the_noise_of_each_layer(tmp_path: Path, round: int) -> None:
    """It follows from public scores of the model that the round started from; so do the norms of the clips."""
    plain = recipe([OURS])
    known, _ = observed(Runs(tmp_path).of(plain), "server", 1, round)
    assert known.update is not None
    assert known.vector is not None
    with watched_scores() as scores:
        run_protocol(plain)
    share = budgets(next(one for at, one in scores if at == round - 1), 10, DELTA, 2, "exact", 2)
    for sigma, layer in zip((0.1 * share.sigmas).tolist(), known.update.layout.layer_slices().values(), strict=True):
        for part in layer:
            assert known.update.sigma[part] == pytest.approx(sigma, rel=1e-5)


class TwoFaced(fedplug.Scorer):
    """Says that all layers count alike; and scores them so unless it is told otherwise."""

    scoring = Scoring(per="layer", public=True)

    class Options(fedplug.Options):
        """What the clients use."""

        first: float = Field(1.0, description="the first layer's score at the clients")

    @hookimpl
    def score_parameters(self, client: Client, ctx: Context) -> Any:
        scores = np.ones(len(ctx.layout.layers), np.float32)
        scores[0] = self.options.first
        return scores

    def public_scores(self, model: Any, vector: Any, ctx: Context) -> dict[int, Any]:
        return dict.fromkeys(range(ctx.num_clients), np.ones(len(ctx.layout.layers), np.float32))


def test_clients_refuse_to_upload_under_other_scores_than_the_ledger_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS.setdefault("score_parameters", {}), "toy.two_faced", TwoFaced)

    def run(first: float, allocation: str) -> float:
        chain = [{"use": "fedre.layer_budgets", "epsilon": 8, "delta": DELTA, "norm": 1.0, "allocation": allocation}]
        scorers = [{"use": "toy.two_faced", "first": first}]
        model = {"use": "std.mlp", "hidden": [8]}
        plain = recipe_of("noised", chain, score_parameters=scorers, rounds=1, model=model)
        epsilon = run_protocol(plain).protocol.ledger.epsilon()
        assert epsilon is not None
        return epsilon

    bound = run(1e-6, "exact")  # which holds whatever the scores are
    assert run(1.0, "sum") < bound
    with pytest.raises(TooFewClients, match=r"component toy\.two_faced, hook score_parameters: it gave client 0 other"):
        run(1e-6, "sum")


def test_private_scores_leave_the_bound() -> None:
    plain = recipe([OURS | {"allocation": "sum"}], score_parameters=[PSI | {"at": "local"}])
    found = multipliers(run_protocol(plain).protocol.ledger)
    assert found == [released_multiplier(10, DELTA, 2, "sum", 2)] * 2


def test_scores_of_a_model_that_the_server_cannot_follow_leave_the_bound() -> None:
    sealed = recipe([OURS | {"allocation": "sum"}, {"use": "std.bfv", "key_holder": "clients"}])
    found = multipliers(run_protocol(sealed | {"postprocess": {"noised": ["std.bfv"]}}).protocol.ledger)
    assert found == [released_multiplier(10, DELTA, 2, "sum", 2)] * 2


@contextlib.contextmanager
def watched_scores() -> Iterator[list[tuple[int, np.ndarray]]]:
    """Round and scores of every client that protects something inside."""
    seen: list[tuple[int, np.ndarray]] = []
    whole = LayerBudgets.protect

    def watched(self: LayerBudgets, block: Block, client: Client, ctx: Context) -> Block:
        seen.append((ctx.round, floored(client.scores_by(None))))
        return whole(self, block=block, client=client, ctx=ctx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LayerBudgets, "protect", watched)
        for name, mark in vars(whole).items():
            patch.setattr(watched, name, mark, raising=False)
        yield seen


def test_what_is_released_is_a_bound_for_what_a_run_really_adds() -> None:
    """The scores that the clients had, and the noise that follows from them."""
    with watched_scores() as seen:
        run_protocol(recipe([OURS | {"allocation": "literal"}]))
    assert len(seen) == 2 * 4
    released = released_multiplier(10, DELTA, 2, "literal", 2)
    for _, scores in seen:
        assert len(scores) == 2
        assert scores[0] != scores[1]
        assert budgets(scores, 10, DELTA, 2, "literal", 2).multiplier > 1.01 * released
