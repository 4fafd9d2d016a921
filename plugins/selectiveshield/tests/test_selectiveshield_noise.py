"""The three amounts of noise: effect, claim, account in the ledger, and where each is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug import Block, Client, Facts, FixedPoint, Layout, Misplaced, Seal, gaussian_epsilon
from fedplug.api import operations
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.errors import RecipeError
from fedplug.api.known import Release
from fedplug.api.links import Link, Step, fold
from fedplug.mechanisms.execution import execute
from fedplug.recipe.recipe import Recipe
from fedplug_kit.static import check_component
from fedplug_ledger.accounting import (
    effective_multiplier,
    gaussian_noise_multiplier,
    gaussian_rdp_epsilon,
    rdp_to_epsilon,
)
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.ledger_record import EncryptionReport
from fedplug_selectiveshield.noise import Noise, lemma_2_multiplier
from fedplug_std.clip import Clip
from fedplug_std.gaussian import Gaussian
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from toy_components import paraaegis, recipe_of
from toy_protocol import run_protocol

DELTA = 1e-5
K, C = 20, 0.5
SIZE = 20_000


def noise(**options: Any) -> Noise:
    component = Noise(Noise.Options(**options))
    component.name = "selectiveshield.noise"
    return component


def facts_of(round: int = 0, rounds: int = 10, clients: int = K) -> Facts:
    return Facts(round, rounds, Layout.of([("w", (SIZE,))]), BASE_ZONES, clients, 2, 7, "", chains={"noised": ()})


def client_at(client_id: int = 0, round: int = 0, rounds: int = 10, clients: int = K) -> Client:
    client = Client(client_id=client_id)
    client.facts = facts_of(round, rounds, clients)
    return client


def steps_of(component: Noise | Gaussian, facts: Facts) -> tuple[Step, ...]:
    """After a clip to C."""
    clip = Clip(Clip.Options(norm=C))
    clip.name = "std.clip"
    return fold([Link("noised", "protect", each.name, each, "client") for each in (clip, component)], facts)


def release_of(component: Noise | Gaussian, facts: Facts, *behind: Seal) -> Release:
    """Its cost, and the encryption after it."""
    (release,) = steps_of(component, facts)[-1].after.after(*behind).releases
    return release


def noised(component: Noise | Gaussian, client: Client, values: Any = None) -> np.ndarray:
    """The result of clip and component on values, or on zeros."""
    values = np.zeros(SIZE, np.float32) if values is None else np.asarray(values, np.float32)
    block = Block("noised", len(values), values)
    for step in steps_of(component, client.facts):
        block = execute(step, block, client, client.facts)
    return block.plain()


def test_conforms() -> None:
    check_component("selectiveshield.noise")


# -- what the noise gives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("choice", "actual"), [("local", 1.000), ("as_published", 0.195), ("distributed", 5.41)])
def test_the_ledger_states_the_true_epsilon_of_an_upload(choice: str, actual: float) -> None:
    """sigma = 11.8 over 10 rounds claims epsilon 1. With 20 clients, eq. 21 as printed gives 0.195."""
    component = noise(noise_multiplier=11.8, choice=choice)
    assert gaussian_epsilon(11.8 / math.sqrt(10), DELTA) == pytest.approx(1.0, rel=1e-3)
    ledger = Ledger("test", K, 10, 2, DELTA)
    for round in range(10):
        release = release_of(component, facts_of(round))
        assert release.as_published == (choice == "as_published")
        assert release.clipping_norm == C
        weights = dict.fromkeys(range(K), 1.0)
        ledger.record(
            round, charged=range(K), zone_sizes={"noised": 10.0}, total=10, releases={"noised": [release]},
            contributors={"noised": K}, weights=weights,
        )  # fmt: skip
    assert ledger.epsilon() == pytest.approx(actual, rel=2e-3)


def test_distributed_noise_gives_the_sum_what_sigma_says() -> None:
    """The sum is encrypted. A single client's upload has a twentieth of the variance."""
    component = noise(noise_multiplier=11.8, choice="distributed")
    seal = Seal(scheme="a test", opened_by="key_server", numbers=FixedPoint(1000.0, 1e-6))
    ledger = Ledger("test", K, 10, 2, DELTA, encryption={"encrypted": EncryptionReport("key_server", True)})
    for round in range(10):
        release = release_of(component, facts_of(round), seal)
        assert (release.range, release.step >= 1e-6) == (1000.0, True)
        assert release.trust == "distributed"
        ledger.record(
            round, charged=range(K), zone_sizes={"encrypted": 10.0}, total=10, releases={"encrypted": [release]},
            contributors={"encrypted": K}, weights=dict.fromkeys(range(K), 1.0),
        )  # fmt: skip
    cost = ledger.costs["encrypted"]
    assert gaussian_epsilon(cost.total[0] ** -0.5, DELTA) == pytest.approx(1.0, rel=1e-3)
    assert gaussian_epsilon(cost.own[0] ** -0.5, DELTA) == pytest.approx(5.41, rel=1e-3)


@pytest.mark.parametrize(
    ("choice", "variance"), [("local", 1 / K), ("distributed", 1 / K**2), ("as_published", 1.0)]
)  # fmt: skip
@pytest.mark.parametrize("source", ["secure", "reproducible"])
def test_the_variance_of_the_mean_noise(choice: str, variance: float, source: str) -> None:
    """Spec 19: C^2 sigma^2 / K, / K^2, and C^2 sigma^2. Six standard deviations of a chi-square variable."""
    component, sigma = noise(noise_multiplier=3.0, choice=choice, source=source), 3.0
    mean = np.mean([noised(component, client_at(k)).astype(np.float64) for k in range(K)], 0)
    assert np.mean(mean**2) / (C * sigma) ** 2 == pytest.approx(variance, rel=6 * math.sqrt(2 / SIZE))


@pytest.mark.parametrize(("choice", "factor"), [("local", 1), ("distributed", 20**-0.5), ("as_published", 20**0.5)])
def test_an_upload_has_the_std_that_the_release_says(choice: str, factor: float) -> None:
    """Spec 18. Streams are also independent across clients and rounds."""
    component = noise(noise_multiplier=2.0, choice=choice, source="reproducible")
    first, other, later = (noised(component, client_at(*place)) for place in ((0, 0), (1, 0), (0, 1)))
    multiplier = release_of(component, facts_of()).noise_multiplier
    assert multiplier == pytest.approx(2.0 * factor)
    assert np.mean(first.astype(np.float64) ** 2) == pytest.approx((C * multiplier) ** 2, rel=6 * math.sqrt(2 / 20_000))
    for values in (other, later):
        assert abs(np.corrcoef(first, values)[0, 1]) < 6 / math.sqrt(20_000)
    assert np.array_equal(first, noised(component, client_at()))


def test_local_noise_is_that_of_std_gaussian_bit_for_bit() -> None:
    plain = Gaussian(Gaussian.Options(epsilon=8, delta=DELTA, source="reproducible", decay=0.9))
    plain.name = "selectiveshield.noise"
    client, values = client_at(3, 4), np.linspace(-0.05, 0.05, 50)
    ours = noise(epsilon=8, delta=DELTA, source="reproducible", decay=0.9)
    assert np.array_equal(noised(ours, client, values), noised(plain, client, values))
    assert steps_of(ours, client.facts)[-1].operations == steps_of(plain, client.facts)[-1].operations


def test_participants_are_the_clients_of_a_round() -> None:
    facts = facts_of()
    as_published = noise(noise_multiplier=2.0, choice="as_published", participants=4)
    assert release_of(as_published, facts).noise_multiplier == 4.0
    distributed = noise(noise_multiplier=2.0, choice="distributed", participants=4)
    assert release_of(distributed, facts).noise_multiplier == 1.0


def test_no_noise_passes_values_unchanged_and_is_released_as_such() -> None:
    for choice in ("local", "distributed", "as_published"):
        component, client = noise(noise_multiplier=0, choice=choice), client_at()
        assert noised(component, client, [0.25, 0, -0.25]).tolist() == [0.25, 0, -0.25]
        assert release_of(component, client.facts).noise_multiplier == 0
        assert steps_of(component, client.facts)[-1].after.norm() == C


# -- calibration -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Optimal order:UserWarning")
@pytest.mark.parametrize(("sigma", "rounds"), [(12.793, 10), (4.045, 1), (1.1, 10), (0.7, 3)])
def test_lemma_2_is_the_accountant_of_opacus(sigma: float, rounds: int) -> None:
    """Spec 20: order by order, and at the best order: (alpha, T alpha / (2 sigma^2)) to epsilon."""
    from opacus.accountants.analysis import rdp

    orders = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    found = np.atleast_1d(rdp.compute_rdp(q=1.0, noise_multiplier=sigma, steps=rounds, orders=orders))
    for order, one in zip(orders, found, strict=True):
        assert one == pytest.approx(rounds * order / (2 * sigma**2))
        alone, _ = rdp.get_privacy_spent(orders=[order], rdp=[one], delta=DELTA)
        assert rdp_to_epsilon(order, rounds * order / (2 * sigma**2), DELTA) == pytest.approx(alone)
    best, _ = rdp.get_privacy_spent(orders=orders, rdp=found, delta=DELTA)
    ours = gaussian_rdp_epsilon(sigma / math.sqrt(rounds), DELTA)
    assert ours <= best
    assert ours == pytest.approx(best, rel=2e-3)


@pytest.mark.parametrize(("rounds", "sigma"), [(10, 12.793), (1, 4.045)])
def test_sigma_from_epsilon_by_lemma_2(rounds: int, sigma: float) -> None:
    """Reference numbers of Opacus' RDP at epsilon 1. The exact calibration needs less noise."""
    by_rdp = Noise.Options(epsilon=1, delta=DELTA, calibration="rdp")
    exact = Noise.Options(epsilon=1, delta=DELTA)
    assert by_rdp.multiplier(0, rounds) == pytest.approx(sigma, rel=1e-3)
    assert exact.multiplier(0, 10) == pytest.approx(11.7973, rel=1e-5)
    assert exact.multiplier(0, rounds) < by_rdp.multiplier(0, rounds)


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1, 8, 100])
def test_the_bound_is_met_and_not_overshot(epsilon: float) -> None:
    total = lemma_2_multiplier(epsilon, DELTA)
    assert gaussian_rdp_epsilon(total, DELTA) <= epsilon
    assert gaussian_rdp_epsilon(total * (1 - 1e-6), DELTA) > epsilon
    schedule = Noise.Options(epsilon=epsilon, delta=DELTA, calibration="rdp", decay=0.8)
    assert effective_multiplier(schedule.multiplier(t, 5) for t in range(5)) == pytest.approx(total)


def test_more_epsilon_needs_less_noise_and_more_rounds_need_more() -> None:
    """Spec 21."""
    for how in ("exact", "rdp"):
        by_epsilon = [Noise.Options(epsilon=e, delta=DELTA, calibration=how).multiplier(0, 10) for e in (0.5, 1, 8)]
        by_rounds = [Noise.Options(epsilon=1, delta=DELTA, calibration=how).multiplier(0, t) for t in (1, 9, 90)]
        assert by_epsilon == sorted(by_epsilon, reverse=True)
        assert by_rounds == sorted(by_rounds)


@pytest.mark.parametrize("how", ["exact", "rdp"])
def test_epsilon_is_for_the_rounds_in_which_the_zone_is_sent(how: str) -> None:
    """Three of four: in the first all is encrypted, and the noise is shared out; later nothing is."""
    options: dict[str, Any] = {"epsilon": 1, "delta": DELTA, "calibration": how, "decay": 0.9}
    sealed = [CLIP, ours(**options, choice="distributed"), {"use": "std.bfv", "key_holder": "clients"}]
    plain = paraaegis(1.0, decay=1e-3, rounds=4, protect={"encrypted": sealed, "noised": [CLIP, ours(**options)]})
    outcome = run_protocol(plain)
    assert [row.zones["encrypted"] for row in outcome.rows] == [1, 0, 0, 0]
    facts = [outcome.protocol.facts(round) for round in range(4)]
    assert [(now.turn("noised"), now.times("noised")) for now in facts] == [(0, 3), (0, 3), (1, 3), (2, 3)]
    used = [now.steps("noised")[1].after.releases[0].noise_multiplier for now in facts[1:]]
    assert used == pytest.approx([Noise.Options(**options).multiplier(turn, 3) for turn in range(3)])


# -- where it is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"noise_multiplier": 1, "calibration": "rdp"}, "calibration: rdp needs epsilon and delta"),
        ({"noise_multiplier": 1, "participants": 3}, "participants=3 has no effect with choice: local; leave it out"),
        ({"epsilon": 0, "delta": 1e-5}, "greater than 0"),
        ({"epsilon": 1}, "epsilon needs a delta"),
        ({}, "neither of epsilon and noise_multiplier given"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Noise.Options(**options)


def problems(chain: list[Any], **changes: Any) -> str:
    try:
        Recipe.from_plain(recipe_of("encrypted" if chain[-1] is SEAL else "noised", chain, **changes))
    except RecipeError as error:
        return str(error)
    return ""


CLIP = {"use": "std.clip", "norm": 0.1}
SEAL = {"use": "std.bfv"}


def ours(**options: Any) -> dict[str, Any]:
    return {"use": "selectiveshield.noise", **options}


@pytest.mark.parametrize(
    ("chain", "changes", "problem"),
    [
        ([CLIP, ours(noise_multiplier=1, choice="distributed")], {},
         "protect.noised.1: the noise of selectiveshield.noise is enough for a sum, not for an upload, and uploads of "
         "zone noised are visible; encrypt the zone after selectiveshield.noise"),
        ([CLIP, ours(noise_multiplier=1, choice="distributed"), "fas.scramble"],
         {"postprocess": {"noised": ["fas.scramble"]}}, "is enough for a sum, not for an upload"),
        ([CLIP, ours(noise_multiplier=1, choice="as_published")], {"sampling": {"rate": 0.5}},
         "choice: as_published needs to know the clients of a round; write participants: 2"),
        ([CLIP, ours(noise_multiplier=1, choice="as_published", participants=5)], {},
         "participants=5 must be <= data.clients=4"),
        ([ours(noise_multiplier=1)], {},
         "needs a bound of the L2 norm earlier in the chain of zone noised; noise is scaled to"),
        ([CLIP, {"use": "std.gaussian", "noise_multiplier": 1}, ours(noise_multiplier=1)], {}, "has noise already"),
        ([CLIP, ours(noise_multiplier=1, grid=2.0**-40)], {}, "must be at least"),
        ([CLIP, ours(epsilon=1, delta=1e-5, decay=1e-300)], {"rounds": 9}, "leaves the range of float64"),
        ([CLIP, ours(epsilon=1, delta=1e-5, decay=1e-300, calibration="rdp")], {"rounds": 9}, "leaves the range"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_hold_is_refused(chain: list[Any], changes: dict[str, Any], problem: str) -> None:
    assert problem in problems(chain, **changes)


def test_recipes_that_hold_are_not() -> None:
    assert problems([CLIP, ours(noise_multiplier=1, choice="distributed"), SEAL]) == ""
    assert problems([CLIP, ours(noise_multiplier=1, choice="as_published")]) == ""
    sampled = {"sampling": {"rate": 0.5, "scheme": "fixed"}}
    assert problems([CLIP, ours(noise_multiplier=1, choice="as_published", participants=2)], **sampled) == ""
    assert problems([CLIP, ours(noise_multiplier=1)], **sampled) == ""


def test_it_says_how_much_noise() -> None:
    assert noise(noise_multiplier=2, choice="as_published").describe() == (
        "Gaussian noise of std C sigma sqrt(K) (as published) at the client, noise multiplier 2, secure source"
    )
    assert noise(epsilon=1, delta=DELTA, calibration="rdp").describe().endswith("secure source, sigma by Lemma 2")
    note = release_of(noise(noise_multiplier=11.8, choice="as_published"), facts_of()).note
    assert note.startswith("eq. 21 as printed; eq. 22 states the cost of sigma=11.8, K times the true one;")


# -- clients that choose for themselves --------------------------------------------------------------------------------


OWN = [{"client": 2, "noise_multiplier": 0.5}, {"client": 3, "norm": C / 10}]


def test_a_client_has_the_norm_and_the_noise_that_it_chose() -> None:
    component = noise(noise_multiplier=2.0, own=OWN, source="reproducible")
    for number, std in ((0, 2.0 * C), (2, 0.5 * C), (3, 2.0 * C / 10)):
        found = noised(component, client_at(number))
        assert float(np.std(found.astype(np.float64))) == pytest.approx(std, rel=6 / math.sqrt(2 * SIZE))
    long = np.full(10, C / math.sqrt(10))
    quiet = noise(noise_multiplier=1e-9, own=[{"client": 3, "norm": C / 10}])
    lengths = [float(np.linalg.norm(noised(quiet, client, long))) for client in map(client_at, (0, 3))]
    assert lengths == pytest.approx([C, C / 10], rel=1e-3)


@pytest.mark.parametrize("choice", ["local", "as_published"])
def test_all_are_charged_as_the_client_with_the_least_noise(choice: str) -> None:
    """A note states the cost of each."""
    options: dict[str, Any] = {"epsilon": 8, "delta": DELTA, "choice": choice}
    component = noise(**options, own=[{"client": 1, "epsilon": 20}, {"client": 2, "epsilon": 4, "norm": C / 2}])
    charged = release_of(component, facts_of())
    least = release_of(noise(**options | {"epsilon": 20}), facts_of())
    assert charged.noise_multiplier == pytest.approx(least.noise_multiplier)
    assert charged.uncredited
    assert charged.as_published == (choice == "as_published")
    factor = component.factor(K)
    for own, who in ((20, "client 1"), (4, "client 2"), (8, "the others")):
        paid = gaussian_epsilon(factor * gaussian_noise_multiplier(own, DELTA), DELTA)
        assert f"epsilon {paid:.4g} at {who}" in charged.note


def test_where_every_client_has_its_own_the_noise_of_all_others_costs_nobody_anything() -> None:
    own = [{"client": c, "epsilon": 4 - c} for c in range(3)]
    charged = release_of(noise(epsilon=20, delta=DELTA, own=own), facts_of(clients=3))
    assert charged.noise_multiplier == pytest.approx(math.sqrt(10) * gaussian_noise_multiplier(4, DELTA))
    charged = release_of(noise(epsilon=20, delta=DELTA, own=own), facts_of(clients=4))
    assert charged.noise_multiplier == pytest.approx(math.sqrt(10) * gaussian_noise_multiplier(20, DELTA))


chosen = st.fixed_dictionaries(
    {"norm": st.floats(0.01, C)}, optional={"epsilon": st.floats(0.1, 50)}
) | st.fixed_dictionaries({"epsilon": st.floats(0.1, 50)})


@given(
    own=st.dictionaries(st.integers(0, 4), chosen, min_size=1), epsilon=st.floats(0.1, 50), decay=st.floats(0.5, 1),
    clients=st.integers(5, 8), rounds=st.integers(1, 5), choice=st.sampled_from(["local", "as_published"]),
    calibration=st.sampled_from(["exact", "rdp"]), data=st.data(),
)  # fmt: skip
@settings(max_examples=examples(24))
def test_no_client_has_less_noise_for_its_bound_than_the_ledger_charges(
    own: dict[int, dict[str, float]], epsilon: float, decay: float, clients: int, rounds: int, choice: str,
    calibration: str, data: st.DataObject,
) -> None:  # fmt: skip
    """As executed: how far apart two results of the same draw lie is the bound that is enforced."""
    component = noise(
        epsilon=epsilon, delta=DELTA, decay=decay, choice=choice, calibration=calibration, source="reproducible",
        own=[{"client": client_id, **given} for client_id, given in own.items()],
    )  # fmt: skip
    round = data.draw(st.integers(0, rounds - 1))
    charged = release_of(component, facts_of(round, rounds, clients)).noise_multiplier
    long = np.zeros(SIZE, np.float32)
    long[data.draw(st.integers(0, SIZE - 1))] = 3.0
    for client_id in range(clients):
        client = client_at(client_id, round, rounds, clients)
        (step,) = steps_of(component, client.facts)[1:]
        (added,) = [one for one in step.of(client_id, client.facts).operations if isinstance(one, operations.Noise)]
        drawn, moved = noised(component, client).astype(np.float64), noised(component, client, long)
        assert added.std == pytest.approx(math.sqrt(np.mean(drawn**2)), rel=6 / math.sqrt(2 * SIZE))
        bound = float(np.linalg.norm(moved - drawn)) - added.grid
        assert added.std >= charged * bound * (1 - 1e-6)


def test_exact_noise_of_single_clients_on_a_grid_of_the_recipe_takes_the_most_of_delta() -> None:
    """The server does not know a client's std over the grid, but no client has fewer than 2^15 steps in it."""
    own = [{"client": 1, "epsilon": 20}]
    fine, coarse = (
        release_of(noise(epsilon=8, delta=DELTA, source="exact", grid=grid, own=own), facts_of())
        for grid in (None, 2.0**-20)
    )
    assert fine.mechanism == coarse.mechanism == "discrete_gaussian"
    assert 0 < fine.slack < coarse.slack
    at_client = release_of(noise(epsilon=20, delta=DELTA, source="exact", grid=2.0**-20), facts_of(clients=1))
    assert coarse.slack >= at_client.slack


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"own": [{"client": 1, "noise_multiplier": 2}]}, "noise_multiplier does not go with the epsilon of all"),
        ({"own": [{"client": 1}]}, "client 1: give it its own norm or epsilon"),
        ({"own": [{"client": 1, "epsilon": 2}, {"client": 1, "norm": 2}]}, "client 1 is there twice"),
        ({"own": [{"client": 1, "epsilon": 2}], "choice": "distributed"}, "alike at all clients; remove own"),
    ],
)
def test_what_clients_cannot_choose_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        noise(epsilon=8, delta=DELTA, **options)


def test_a_norm_above_that_of_the_clip_and_a_client_too_many_are_refused() -> None:
    with pytest.raises(Misplaced, match=r"norm=1 of client 1 must be <= 0\.5"):
        release_of(noise(epsilon=8, delta=DELTA, own=[{"client": 1, "norm": 1.0}]), facts_of())
    chosen = {"use": "selectiveshield.noise", "epsilon": 8, "delta": DELTA, "own": [{"client": 9, "norm": 0.1}]}
    assert "names client 9, and the recipe has clients 0 to" in problems([CLIP, chosen])
