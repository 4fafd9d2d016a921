"""FedDPA: masks, penalties and stages by hand, what is sent, and what its published account is worth."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from examples import examples
from fedplug import Block, ClientData, Clip, Examples, Known, Layout, Misplaced, Noise, Plan
from fedplug.api.errors import ProtectionError, RecipeError, SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.api.view import View
from fedplug_baselines.feddpa import FedDpa, scaled
from fedplug_baselines.feddpa_adam import MaskedAdam
from fedplug_baselines.feddpa_noise import FedDpaNoise, claimed_multiplier
from fedplug_ledger.accounting import effective_multiplier, gaussian_epsilon
from fedplug_ledger.ledger import Ledger
from fedplug_std.models import Mlp
from fedplug_std.per_sample import mean_squared_gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from link_toys import behind, clip, passed
from toy_components import recipe_of
from toy_protocol import run_protocol

NAME = "baselines.feddpa"


def trainer(**options: Any) -> FedDpa:
    found = FedDpa(FedDpa.Options(**({"tau": 0.2, "lr": 0.01, "batch_size": 4} | options)))
    found.name = NAME
    return found


def client_of(make_client: Any) -> Any:
    model = Mlp(Mlp.Options(hidden=(6,))).build((1, 8, 8), 4, 5, "cpu")
    examples = Examples(np.random.default_rng(3).random((12, 1, 8, 8), np.float32), np.arange(12) % 4)
    data = ClientData(examples, examples, examples, classes=tuple("abcd"), mean=(0.5,), std=(0.5,))
    return make_client(model.layout, model=model, data=data, vector=model.get_vector())


def one_round(component: FedDpa, client: Any) -> Any:
    """What the core does around a trainer; gives the mask of the round."""
    component.personalise(client, client.facts)
    client.model.set_vector(client.start)
    component.train(client, client.facts)
    client.update = client.model.get_vector() - client.start
    if (zone := component.plan(client.facts)) is None:
        component.keep(client)
    else:
        client.plan = Plan.single(zone, client.facts.layout.size, client.facts.zones)
    return client.cache[f"{NAME}.mask"][1]


def uploads(outcome: Any) -> list[Any]:
    return list(View("server", tuple(outcome.wire.messages)).uploads())


# -- masks -------------------------------------------------------------------------------------------------------------


def test_scores_are_scaled_in_each_tensor() -> None:
    layout = Layout.of([("a.weight", (3,)), ("a.bias", (2,)), ("b.weight", (1,))])
    values = np.array([1, 3, 5, 7, 7, 2], np.float32)
    assert scaled(values, layout).tolist() == [0, 0.5, 1, 0, 0, 0]  # a constant tensor scores 0, not NaN


@settings(max_examples=examples(100))
@given(st.lists(st.floats(0, 1e6, width=32), min_size=4, max_size=4), st.integers(-10, 10))
def test_scores_lie_in_0_to_1_and_ignore_units(values: list[float], power: int) -> None:
    layout = Layout.of([("a.weight", (4,))])
    plain = scaled(np.array(values), layout)
    assert ((plain >= 0) & (plain <= 1)).all()
    assert np.allclose(scaled(np.array(values) * 2.0**power, layout), plain)


def test_the_mask_is_fisher_information_above_tau(make_client: Any) -> None:
    client, component = client_of(make_client), trainer(tau=0.3)
    fisher = mean_squared_gradients(client.model, client.data.train, client.data, vector=client.vector)
    mask = component.personal_mask(client, client.vector)
    assert np.array_equal(mask, scaled(fisher, client.facts.layout) > 0.3)
    assert 0 < mask.sum() < len(mask)
    assert not trainer(tau=1.0).personal_mask(client, client.vector).any()


def test_masks_of_a_model_that_diverged_are_refused(make_client: Any) -> None:
    client = client_of(make_client)
    with pytest.raises(ProtectionError, match=r"Fisher information of scalars: \d+ of \d+ are NaN .* lower lr"):
        trainer().personal_mask(client, np.full_like(client.vector, np.nan))


# -- training ----------------------------------------------------------------------------------------------------------


def test_penalties_are_those_of_the_code() -> None:
    """R1 = lambda_1 / 2 sum |w_t - w_g,t|; R2 = lambda_2 / 2 abs(sum - C), least where the sum is C."""
    component = trainer(lambda_1=0.1, lambda_2=0.05, clipping_norm=0.5)
    assert float(component.penalty(torch.tensor(2.0), first=True)) == pytest.approx(0.1)
    assert float(component.penalty(torch.tensor(2.0), first=False)) == pytest.approx(0.0375)
    assert float(component.penalty(torch.tensor(0.1), first=False)) == pytest.approx(0.01)
    assert float(component.penalty(torch.tensor(0.5), first=False)) == 0


def test_adam_is_torchs_on_the_mask_and_leaves_the_rest(make_client: Any) -> None:
    ours, theirs = client_of(make_client).model, client_of(make_client).model
    mask = torch.from_numpy(np.arange(ours.layout.size) % 3 > 0)
    before = ours.get_vector()
    adam, reference = MaskedAdam(ours, mask, 0.05), torch.optim.Adam(theirs.parameters, lr=0.05)
    inputs = torch.from_numpy(np.random.default_rng(0).random((5, 1, 8, 8), np.float32))
    for _ in range(4):
        adam.step(ours.module(inputs).square().sum())
        reference.zero_grad()
        theirs.module(inputs).square().sum().backward()
        for parameter, place in zip(theirs.parameters, theirs.layout.parameters, strict=True):
            parameter.grad *= mask[place.slice].view(place.shape)
        reference.step()
    assert np.allclose(ours.get_vector(), theirs.get_vector(), atol=1e-6)
    assert np.array_equal(ours.get_vector()[~mask.numpy()], before[~mask.numpy()])
    assert not np.allclose(ours.get_vector(), before, atol=1e-2)


def test_own_scalars_are_trained_first_and_the_shared_ones_after(make_client: Any, monkeypatch: Any) -> None:
    client, component, seen = client_of(make_client), trainer(), []
    stage = FedDpa._stage

    def spy(self: FedDpa, client: Any, model: Any, start: Any, trained: Any, first: bool) -> float:
        before = model.get_vector()
        loss = stage(self, client, model, start, trained, first)
        seen.append((trained.numpy().copy(), model.get_vector() != before))
        return loss

    monkeypatch.setattr(FedDpa, "_stage", spy)
    mask = one_round(component, client)
    (u, moved_first), (v, moved_second) = seen
    assert np.array_equal(u, mask)
    assert np.array_equal(v, ~mask)
    assert not (moved_first & ~u).any()
    assert not (moved_second & ~v).any()
    assert moved_first.any()
    assert moved_second.any()


def test_r2_draws_the_update_to_the_clip(make_client: Any) -> None:
    """With a heavy weight, what is sent ends near sum |.| = C, both from below and from above."""
    for norm in (0.05, 1.0):
        client, component = client_of(make_client), trainer(tau=1.0, lambda_2=100.0, clipping_norm=norm, epochs=40)
        one_round(component, client)
        parts = [client.update[place.slice] for place in client.facts.layout.parameters]
        assert sum(np.linalg.norm(part) for part in parts) == pytest.approx(norm, abs=0.4)


def test_the_next_round_starts_from_own_values_where_they_matter_now(make_client: Any) -> None:
    client, component = client_of(make_client), trainer()
    one_round(component, client)
    local = client.model.get_vector()
    following = component.personal_mask(client, local)
    assert following.any()
    client.vector = client.vector + np.float32(0.5)  # the global model of the next round
    mask = one_round(component, client)
    assert np.array_equal(mask, following)
    assert np.array_equal(client.start[mask], local[mask])
    assert np.array_equal(client.start[~mask], client.vector[~mask])


def test_other_models_are_refused(make_client: Any) -> None:
    client = client_of(make_client)
    client.model = object()
    with pytest.raises(SetupError, match="trains torch models, not object"):
        trainer().train(client, client.facts)


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_what_is_personal_is_retained(make_client: Any) -> None:
    client, component = client_of(make_client), trainer()
    mask = one_round(component, client)
    assert np.array_equal(client.plan.positions("retained"), np.flatnonzero(mask))
    assert np.array_equal(client.plan.positions("noised"), np.flatnonzero(~mask))
    assert "noised" in component.plans.own  # masks differ, so values travel with positions


def test_a_client_that_was_not_in_the_round_keeps_nothing_back(make_client: Any) -> None:
    client, component = client_of(make_client), trainer()
    component.keep(client)
    assert client.plan.sizes()["noised"] == client.facts.layout.size


def test_sending_the_personal_sends_the_whole_way_from_the_global_model(make_client: Any) -> None:
    client, component = client_of(make_client), trainer(send_personal=True)
    assert component.plans.zones == {"noised"}
    assert component.reveals(client.facts) == []
    one_round(component, client)
    client.vector = client.vector + np.float32(0.5)
    one_round(component, client)
    assert not np.array_equal(client.start, client.vector)
    block = Block("noised", client.facts.layout.size, client.update)
    sent = passed(block, client, component).plain()
    assert np.allclose(sent, client.model.get_vector() - client.vector, atol=1e-6)


def feddpa(chain: list[Any] | None = None, **options: Any) -> dict[str, Any]:
    noise = {"use": "std.gaussian", "noise_multiplier": 0.1, "source": "reproducible"}
    return recipe_of(
        train={"use": NAME, "tau": 0.2, "epochs": 1, "batch_size": 32, "lr": 0.01, **options},
        negotiate_mask=NAME,
        protect={"noised": [{"use": "std.clip", "norm": 0.5}, noise] if chain is None else chain},
    )


def test_personal_values_never_travel_and_both_engines_agree() -> None:
    outcome, other = run_protocol(feddpa()), run_protocol(feddpa(), "processes")
    assert np.array_equal(outcome.vector, other.vector)
    row = outcome.rows[-1]
    assert row.personal_accuracy == other.rows[-1].personal_accuracy
    assert 0 < row.zones["retained"] < 1
    sizes = [block.size for _, _, blocks in uploads(outcome) for block in blocks.values()]
    assert len(sizes) == 8
    assert max(sizes) < len(outcome.vector)


def test_sending_the_personal_runs_and_shows_no_mask() -> None:
    outcome = run_protocol(feddpa([NAME, {"use": "std.clip", "norm": 0.5}], send_personal=True))
    assert outcome.rows[-1].zones["noised"] == 1
    for _, _, blocks in uploads(outcome):
        assert blocks["noised"].positions is None
        assert np.linalg.norm(blocks["noised"].plain()) <= 0.5


@pytest.mark.parametrize(("changes", "problem"), [
    ({"negotiate_mask": {"use": "std.single_zone", "zone": "noised"}}, "write negotiate_mask: baselines.feddpa"),
    ({"train": {"use": "std.sgd"}, "negotiate_mask": {"use": NAME}}, "give its options under train"),
    ({"protect": {"noised": [{"use": "std.clip", "norm": 1.0}]}}, r"clipping_norm=0.5 of R2 must be the norm=1 "),
    ({"protect": {"noised": [NAME, {"use": "std.clip", "norm": 0.5}]}}, "without send_personal: true; remove it"),
])  # fmt: skip
def test_recipes_that_make_no_sense(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        Recipe.from_plain(feddpa() | changes, Catalog.discover())


def test_sending_the_personal_needs_it_first_in_the_chain() -> None:
    with pytest.raises(RecipeError, match="the chain of zone noised must begin with baselines"):
        Recipe.from_plain(feddpa(send_personal=True), Catalog.discover())


# -- the published account ---------------------------------------------------------------------------------------------


def noise(**options: Any) -> FedDpaNoise:
    given = {"epsilon": 1.0, "delta": 1e-5, "examples": 60_000, "epochs": 5, "batch_size": 32}
    found = FedDpaNoise(FedDpaNoise.Options(**(given | options)))
    found.name = "baselines.feddpa_noise"
    return found


def test_the_claim_of_epsilon_1_is_167_to_the_server_and_18_in_the_sum() -> None:
    """60,000 examples, 10 rounds of 5 epochs of batches of 32: 93,750 steps that never happen, and sigma = 0.97."""
    sigma = claimed_multiplier(1.0, 1e-5, 60_000, 10, 5, 32)
    assert sigma == pytest.approx(0.97, abs=0.01)
    added = noise().multiplier(rounds=10, num_clients=20)
    assert added == pytest.approx(sigma / math.sqrt(20))
    assert gaussian_epsilon(effective_multiplier([added] * 10), 1e-5) == pytest.approx(167, abs=1.5)
    assert gaussian_epsilon(effective_multiplier([added * math.sqrt(20)] * 10), 1e-5) == pytest.approx(18.5, abs=0.2)


def test_the_ledger_states_what_the_noise_gives(make_client: Any) -> None:
    layout = Layout.of([("a.weight", (100,))])
    ledger = Ledger("feddpa", 20, 10, 2, 1e-5)
    for round in range(10):
        facts = dataclasses.replace(make_client(layout).facts, round=round, rounds=10, num_clients=20)
        (release,) = behind(facts, "noised", clip(0.5), noise()).releases
        assert release.as_published
        assert "claims epsilon=1" in release.note
        ledger.record(
            round, charged=range(20), zone_sizes={"noised": 100.0}, total=100, releases={"noised": [release]},
            contributors={"noised": 20}, weights=dict.fromkeys(range(20), 1.0),
        )  # fmt: skip
    assert ledger.epsilon() == pytest.approx(167, abs=1.5)


def test_the_noise_has_the_codes_size(make_client: Any) -> None:
    layout = Layout.of([("a.weight", (4000,))])
    client = make_client(layout)  # of a run of 9 rounds and 4 clients
    component = noise(source="reproducible")
    sent = passed(Block("noised", 4000, np.zeros(4000, np.float32)), client, clip(0.5), component)
    expected = 0.5 * claimed_multiplier(1.0, 1e-5, 60_000, 9, 5, 32) / 2
    assert np.std(sent.plain()) == pytest.approx(expected, rel=6 / math.sqrt(2 * 4000))
    assert behind(client.facts, "noised", clip(0.5), component).scales == (pytest.approx(expected),)
    with pytest.raises(Misplaced, match="noise is scaled to a clipping norm"):
        behind(client.facts, "noised", component)


@pytest.mark.parametrize(("options", "problem"), [
    ({"epochs": 4}, "epochs=4 of the claim must be that of train, 1"),
    ({"batch_size": 16}, "batch_size=16 of the claim must be that of train, 32"),
    ({"examples": 32}, "batch_size=32 must be below examples=32"),
])  # fmt: skip
def test_a_claim_about_another_training_is_refused(options: dict[str, Any], problem: str) -> None:
    claim = {"use": "baselines.feddpa_noise", "examples": 1437, "epochs": 1, "batch_size": 32, **options}
    with pytest.raises(RecipeError, match=problem):
        Recipe.from_plain(feddpa([{"use": "std.clip", "norm": 0.5}, claim]), Catalog.discover())


def test_plans_hold_every_scalar_once(make_client: Any) -> None:
    client = client_of(make_client)
    one_round(trainer(), client)
    assert isinstance(client.plan, Plan)
    assert sum(client.plan.sizes().values()) == client.facts.layout.size


def test_what_all_clients_keep_is_seen_in_the_model(make_client: Any) -> None:
    shown = trainer().reveals(make_client(Layout(())).facts)
    assert {party for each in shown for party in each.to} == {"server", "released_model"}
    assert all(each.covered_by is None for each in shown)


def test_what_is_sent_is_set_before_anything_is_done_to_it(make_client: Any) -> None:
    facts, component = make_client(Layout(())).facts, trainer(send_personal=True)
    known = Known(zone="noised", link=NAME, layers=(4,))
    assert known.after(*component.protect(known, facts)).norm() is None
    for done in (Clip(1.0), Noise.gaussian(1.0)):
        with pytest.raises(Misplaced, match=f"put {NAME} first"):
            component.protect(known.after(done), facts)


def test_it_tells_attacks_how_it_learns(make_client: Any) -> None:
    client = client_of(make_client)
    told = trainer(epochs=3).learns(client.facts)
    assert (told.descends, told.epochs, told.batch_size) == ("cross_entropy and penalties by Adam", 6, 4)
    probe = trainer(epochs=3).one_batch(client, client.facts, 5)
    assert (probe.options.epochs, probe.options.batch_size) == (1, 5)
