"""NbAFL: the paper's noise on clipped weights, and its account in the ledger."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fedplug import (
    Block,
    Client,
    ClientData,
    Clip,
    Examples,
    Facts,
    FixedPoint,
    Known,
    Layout,
    Misplaced,
    Noise,
    Plan,
    Seal,
    Server,
    gaussian_epsilon,
)  # fmt: skip
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.errors import ProtectionError, RecipeError, TooFewClients
from fedplug.api.known import Release
from fedplug.api.links import Link, Step, fold
from fedplug.mechanisms.execution import execute
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.nbafl import (
    NbAFL,
    NbAFLDownlink,
    downlink_std,
    gaussian_constant,
    scheduled_std,
    uplink_std,
)
from fedplug_std.mean import Mean
from hypothesis import given
from hypothesis import strategies as st
from link_toys import passed, steps
from toy_components import recipe_of
from toy_protocol import run_protocol

LAYOUT = Layout.of([("w", (4000,))])
ZONE = "noised"


def uplink(**options: Any) -> NbAFL:
    given = {"norm": 2.0, "epsilon": 1.0, "min_examples": 10, "exposures": 1, "source": "reproducible"}
    made = NbAFL(NbAFL.Options(**given | options))
    made.name = "baselines.nbafl"
    return made


def client_with(make_client: Callable[..., Client], weights: Any, update: Any, examples: int = 10) -> Client:
    train = Examples(np.zeros((examples, 1, 2, 2), np.float32), np.zeros(examples, np.int64))
    data = ClientData(train, train, train, classes=("a",), mean=(0.5,), std=(0.5,))
    client = make_client(LAYOUT, data=data, plan=Plan.single(ZONE, LAYOUT.size, BASE_ZONES))
    client.vector = np.asarray(weights, np.float32)
    client.update = np.asarray(update, np.float32)
    return client


def recipe(*, downlink: bool = True, **changes: Any) -> dict[str, Any]:
    use = {"use": "baselines.nbafl", "norm": 20.0, "epsilon": 1e6, "min_examples": 10, "exposures": 1}
    plain = recipe_of(ZONE, [use | {"source": "reproducible"} | changes.pop("noise", {})])
    plain["aggregate"] = {"use": "std.mean", "weighting": "uniform"}
    plain["postprocess"] = {ZONE: [{"use": "baselines.nbafl_downlink", **changes.pop("down", {})}]} if downlink else {}
    return plain | changes


# -- the paper's formulas ----------------------------------------------------------------------------------------------


def test_the_worked_example() -> None:
    """20 clients, 10 rounds, C = 1, m = 3000, epsilon 1, delta 1e-5, one exposure: 0.00323 up and 0.00144 down."""
    constants = (1.0, 1.0, 3000, gaussian_constant(1e-5), 1)
    assert gaussian_constant(1e-5) == pytest.approx(math.sqrt(2 * math.log(125_000)))
    assert round(uplink_std(*constants), 5) == 0.00323
    assert round(downlink_std(*constants, rounds=10, clients=20), 5) == 0.00144


@given(st.integers(1, 60), st.integers(1, 400), st.integers(1, 20))
def test_the_server_adds_noise_where_uploads_carry_too_little(rounds: int, clients: int, exposures: int) -> None:
    down = downlink_std(1.0, 1.0, 100, 3.0, exposures, rounds=rounds, clients=clients)
    assert (down > 0) == (rounds**2 > exposures**2 * clients)
    if down:  # then the mean carries T times the noise for one exposure of a client's share
        up = uplink_std(1.0, 1.0, 100, 3.0, exposures)
        assert math.hypot(down, up / math.sqrt(clients)) == pytest.approx(
            uplink_std(1.0, 1.0, 100, 3.0, rounds) / clients
        )


def test_scheduled_clients_by_the_formula() -> None:
    """N = 50, K = 20, T = 25, epsilon 60, delta 0.01, as in the paper's experiments; worked out from b and gamma."""
    constants = (1.0, 60.0, 1000, gaussian_constant(0.01), 1)
    gamma = -math.log(1 - 0.4 + 0.4 * math.exp(-60 / math.sqrt(20)))
    assert 60 / gamma >= 25  # so no noise is added
    assert scheduled_std(*constants, rounds=25, clients=50, drawn=20) == 0
    constants = (1.0, 6.0, 1000, gaussian_constant(0.01), 1)
    b = -25 / 6 * math.log(1 - 2.5 + 2.5 * math.exp(-6 / 25))
    expected = 2 * gaussian_constant(0.01) * math.sqrt((25 / b) ** 2 - 20) / (1000 * 20 * 6)
    assert scheduled_std(*constants, rounds=25, clients=50, drawn=20) == pytest.approx(expected)


@given(st.integers(1, 60), st.integers(1, 100), st.data(), st.integers(1, 5), st.floats(0.01, 200))
def test_scheduling_always_has_a_value(rounds: int, clients: int, data: Any, exposures: int, epsilon: float) -> None:
    constants, drawn = (1.0, epsilon, 100, 3.0, exposures), data.draw(st.integers(1, clients))
    found = scheduled_std(*constants, rounds=rounds, clients=clients, drawn=drawn)
    assert 0 <= found < math.inf
    if drawn == clients:
        assert found == downlink_std(*constants, rounds=rounds, clients=clients)


# -- a round -----------------------------------------------------------------------------------------------------------


def test_weights_are_clipped_noised_and_sent_as_a_difference(make_client: Callable[..., Client]) -> None:
    rng = np.random.default_rng(0)
    weights, update = rng.normal(0, 0.1, 4000), rng.normal(0, 0.1, 4000)
    client = client_with(make_client, weights, update)
    component = uplink()
    out = passed(Block(ZONE, 4000, values=client.update), client, component)
    local = client.vector.astype(np.float64) + client.update
    noise = client.vector + out.plain() - local * 2.0 / np.linalg.norm(local)
    expected = gaussian_constant(1e-5) * 2 * 2.0 / 10
    assert component.std(9) == pytest.approx(expected)
    assert np.std(noise) == pytest.approx(expected, rel=0.06)  # 5 standard errors of 4000 samples
    assert abs(noise.mean()) < 5 * expected / math.sqrt(4000)
    assert client.log["baselines.nbafl.clipped"] == 1


def test_every_exposure_adds_to_the_noise() -> None:
    assert uplink(exposures=3).std(9) == pytest.approx(3 * uplink().std(9))
    assert uplink(exposures=None).std(9) == pytest.approx(9 * uplink().std(9))


def test_without_noise_and_within_the_norm_it_is_fedavg() -> None:
    loose = run_protocol(recipe(noise={"norm": 1e3, "epsilon": 1e12}))
    plain = run_protocol(recipe_of(aggregate={"use": "std.mean", "weighting": "uniform"}))
    assert np.allclose(loose.vector, plain.vector, atol=1e-3)  # the grid of norm 1000 is coarse
    assert np.abs(loose.vector - plain.vector).max() > 0


def facts_of(component: NbAFL, rounds: int = 10, clients: int = 4) -> Facts:
    return Facts(
        round=0, rounds=rounds, layout=LAYOUT, zones=BASE_ZONES, num_clients=clients, min_clients=2, seed=7, digest="",
        components={component.name: component},
    )  # fmt: skip


def downlink(**options: Any) -> NbAFLDownlink:
    made = NbAFLDownlink(NbAFLDownlink.Options(**options))
    made.name = "baselines.nbafl_downlink"
    return made


def summed(component: NbAFL, **changes: Any) -> tuple[tuple[Step, ...], Facts]:
    """The links of a zone with both components, and the round."""
    mean = Mean(Mean.Options(weighting="uniform"))
    mean.name = "std.mean"
    links = (
        Link(ZONE, "protect", component.name, component, "client"),
        Link(ZONE, "aggregate", mean.name, mean, "server"),
        Link(ZONE, "postprocess", "baselines.nbafl_downlink", downlink(), "server"),
    )
    facts = dataclasses.replace(facts_of(component), chains={ZONE: links}, **changes)
    return fold(links, facts), facts


def test_the_broadcast_mean_gets_the_noise_that_is_missing() -> None:
    (*_, step), facts = summed(uplink(norm=1.0))
    block = Block(ZONE, 4000, values=np.full(4000, 6.0, np.float32), divisor=3.0, weighted=True, contributors=3)
    out = execute(step, block, Server(vector=np.zeros(4000, np.float32)), facts)
    expected = downlink_std(1.0, 1.0, 10, gaussian_constant(1e-5), 1, rounds=10, clients=4)
    assert out.mean().mean() == pytest.approx(2.0, abs=5 * expected / math.sqrt(4000))
    assert np.std(out.mean()) == pytest.approx(expected, rel=0.06)


def test_the_broadcast_is_left_alone_where_the_paper_asks_for_nothing() -> None:
    (*_, step), _ = summed(uplink(exposures=None))  # T exposures of 4 clients: T < T * 2
    assert step.operations == ()


def test_both_engines_agree() -> None:
    """Even with BLUR, LUS and layers that take turns, which can be combined with NbAFL."""
    plain = recipe(rounds=2, noise={"epsilon": 1e3}, train={"use": "baselines.blur", "norm": 0.1})
    sparsity = {"use": "baselines.lus", "noise": "kept"}
    plain["protect"] = {ZONE: [sparsity, *plain["protect"][ZONE], "baselines.lus"]}
    plain["negotiate_mask"] = {"use": "baselines.ldp_fed_cycle"}
    assert np.array_equal(run_protocol(plain).vector, run_protocol(plain, "processes", workers=1).vector)


# -- the ledger --------------------------------------------------------------------------------------------------------


def released(component: NbAFL) -> Release:
    """The release of an upload that the ledger records."""
    (found,) = behind(component).releases
    return found


def behind(component: NbAFL) -> Known:
    """The facts known about an upload."""
    return steps(facts_of(component), ZONE, component)[-1].after


def test_what_is_sent_has_the_noise_and_no_norm() -> None:
    """The bound is on the weights. The difference from the global model may have any length."""
    known, component = behind(uplink(norm=3.0)), uplink(norm=3.0)
    assert known.scales == (component.std(10),)
    assert known.releases[0].clipping_norm == 3.0
    assert known.norm() is None
    assert known.grid == 0


def test_it_clips_and_noises_by_itself(make_client: Callable[..., Client]) -> None:
    component, facts = uplink(), facts_of(uplink())
    known = Known(zone=ZONE, link=component.name, layers=(4000,))
    noise, seal = Noise.gaussian(1.0), Seal(scheme="x", opened_by="clients", numbers=FixedPoint(1.0, 0.0))
    for before, says in ((Clip(1.0), "remove the clip of the update"), (noise, "keep one noise"), (seal, "before")):
        with pytest.raises(Misplaced, match=says):
            component.protect(known.after(before), facts)


def test_the_noise_of_the_broadcast_changes_no_account() -> None:
    """The server has seen the uploads before it adds that noise. What is added is on the component's word."""
    (*_, step), facts = summed(uplink(norm=1.0))
    assert step.operations
    (release,) = step.after.releases
    assert release.words == ["baselines.nbafl_downlink"]
    assert (dataclasses.replace(release, words=[]),) == step.before.releases
    assert summed(uplink(norm=1.0), rounds=1)[0][-1].operations == ()  # the paper asks for none
    with pytest.raises(ProtectionError, match=r"is not a baselines.nbafl"):
        downlink(uplink="other").std(dataclasses.replace(facts, components={"other": downlink()}))


def test_the_ledger_states_what_the_clip_supports_not_what_the_paper_claims() -> None:
    release = released(uplink(norm=1.0, min_examples=3000))
    assert release.noise_multiplier == pytest.approx(0.00323, abs=5e-6)
    assert release.as_published
    assert "claims epsilon 1 " in release.note
    assert "holds below epsilon 1, not at 1" in release.note
    assert gaussian_epsilon(release.noise_multiplier, 1e-5) > 40_000  # for one upload
    assert "holds below" not in released(uplink(epsilon=0.5)).note
    outcome = run_protocol(recipe(noise={"epsilon": 1e3, "source": "secure"}))
    expected = outcome.protocol.composition.components["baselines.nbafl"].std(2) / 20.0 / math.sqrt(2)
    assert outcome.protocol.ledger.epsilon() == pytest.approx(gaussian_epsilon(expected, 1e-5), rel=1e-6)


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_client_with_fewer_examples_than_stated_does_not_upload(make_client: Callable[..., Client]) -> None:
    client = client_with(make_client, np.zeros(4000), np.zeros(4000), examples=9)
    with pytest.raises(ProtectionError, match=r"client 0 has 9 examples, and min_examples=10 .* lower it"):
        passed(Block(ZONE, 4000, values=client.update), client, uplink())
    with pytest.raises(TooFewClients, match="min_examples=100000"):
        run_protocol(recipe(noise={"min_examples": 100_000}))


def test_weights_that_diverged_are_refused(make_client: Callable[..., Client]) -> None:
    client = client_with(make_client, np.zeros(4000), np.full(4000, np.nan))
    with pytest.raises(ProtectionError, match=r"client 0: .* 4000 NaN .* baselines.nbafl cannot clip; "):
        passed(Block(ZONE, 4000, values=client.update), client, uplink())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"noise": {"epsilon": 0}}, "epsilon"),
        ({"noise": {"norm": -1}}, "norm"),
        ({"noise": {"min_examples": 0}}, "min_examples"),
        ({"down": {"uplink": "std.gaussian"}}, "protects no zone noised"),
        ({"down": {"scheduled": 2}}, "scheduled=2 must be 4"),
        ({"sampling": {"scheme": "fixed", "rate": 0.5}}, "scheduled=None must be 2"),
        ({"sampling": {"scheme": "poisson", "rate": 0.5}, "down": {"scheduled": 2}}, "scheme: fixed"),
        ({"protect": {ZONE: [{"use": "std.clip", "norm": 1.0}]}}, "needs noise earlier"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        Recipe.from_plain(recipe(**changes))


def test_scheduled_clients_are_drawn_by_the_recipe() -> None:
    plain = recipe(sampling={"scheme": "fixed", "rate": 0.5}, down={"scheduled": 2}, noise={"epsilon": 0.5})
    outcome = run_protocol(plain)
    assert [len(entry.charged) for entry in outcome.protocol.ledger.log] == [2, 2]
