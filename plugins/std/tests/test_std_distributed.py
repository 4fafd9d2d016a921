"""Noise that clients share out: its shares, its price in a ledger, and sums to the bit under masks and encryption."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from fedplug import Known, Misplaced
from fedplug.api.errors import ProtectionError
from fedplug.api.known import Release
from fedplug.api.norms import Bound
from fedplug.mechanisms.closing import Closing
from fedplug_ledger.accounting import composed_epsilon, gaussian_epsilon
from fedplug_ledger.integers import concentrated_multiplier, sum_multiplier
from fedplug_std.distributed import DistributedDiscreteGaussian, DistributedGaussian, DistributedSkellam, coarsest
from fedplug_std.rotation import Rotate
from hypothesis import given
from hypothesis import strategies as st
from ledger_toys import closed, enter, ledger_of
from noise_toys import facts_of
from numpy.typing import NDArray
from toy_components import paraaegis, recipe_of
from toy_protocol import run_protocol

DELTA = 1e-5
STEPS: Any = [DistributedSkellam, DistributedDiscreteGaussian]


def made(kind: Any, **options: Any) -> Any:
    component = kind(kind.Options(**options))
    component.name = "std.shared"
    return component


def given_by(component: Any, norm: float = 1.0, clients: int = 10, size: int = 1000) -> tuple[Known, Any]:
    """What the component does to clipped values, and what is known behind it."""
    facts = dataclasses.replace(facts_of(component), num_clients=clients, min_clients=clients, rounds=4)
    before = Known(zone="noised", link="std.shared", layers=(size,), bounds=(Bound(norm),))
    operations = component.protect(known=before, facts=facts)
    return before.after(*operations), operations


def price(release: Release, clients: int, colluders: int = 1, rounds: int = 4, **entry: Any) -> dict[str, float]:
    """Epsilon of each party after rounds with this number of clients, none of whom opens an upload."""
    ledger = ledger_of(key_holders={"encrypted": "shares"}, num_clients=clients, min_clients=3, rounds=rounds,
                       colluders=colluders, published=["encrypted"], **entry)  # fmt: skip
    enter(ledger, {"encrypted": 1000}, {"encrypted": [release]}, rounds)
    return {line.party: line.epsilon for line in ledger.verdict().lines if line.epsilon is not None}


# -- shares ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STEPS)
def test_the_shares_of_the_smallest_sum_cost_what_was_asked_for(kind: Any) -> None:
    known, (rounding, noise) = given_by(made(kind, epsilon=3, delta=DELTA))
    (release,) = known.releases
    assert noise.grid == rounding.step
    assert release.clipping_norm == known.releases[0].clipping_norm <= 1 + 2.0**-7
    found = price(release, 10)
    assert found["client"] == found["client_and_server"] == pytest.approx(3, rel=1e-6)
    assert found["released_model"] < 3
    # It costs little more noise than the Gaussian one, whose curve is exact.
    gauss, _ = given_by(made(DistributedGaussian, epsilon=3, delta=DELTA))
    ratio = release.noise_multiplier * release.clipping_norm / gauss.releases[0].noise_multiplier
    assert 1 < ratio < 1.2


@pytest.mark.parametrize("kind", [*STEPS, DistributedGaussian])
def test_a_multiplier_is_that_of_the_sum_of_those_who_share(kind: Any) -> None:
    component = made(kind, noise_multiplier=2.0, shared_by=4)
    known, operations = given_by(component)
    (release,) = known.releases
    assert release.noise_multiplier == pytest.approx(2 / math.sqrt(4))
    assert release.trust == "distributed"
    assert "4 together have noise multiplier 2" in operations[-1].note


@pytest.mark.parametrize(("colluders", "sharing"), [(0, 9), (1, 9), (3, 7)])
def test_colluders_take_their_shares_away(colluders: int, sharing: int) -> None:
    component = made(DistributedSkellam, epsilon=3, delta=DELTA, colluders=colluders)
    assert component.options.sharing(10) == sharing
    (release,) = given_by(component)[0].releases
    assert release.colluders == colluders
    assert price(release, 10, max(1, colluders))["client"] == pytest.approx(3, rel=1e-6)


def test_who_shares_is_compared_with_the_smallest_sum() -> None:
    recipe: Any = type("R", (), {"min_clients": 5})()
    assert made(DistributedSkellam, epsilon=1, delta=DELTA, colluders=2).check(recipe) == []
    assert "leaves no client whose noise counts" in made(DistributedSkellam, epsilon=1, delta=DELTA,
                                                         colluders=4).check(recipe)[0]  # fmt: skip
    said = made(DistributedDiscreteGaussian, epsilon=1, delta=DELTA, colluders=2, shared_by=4).check(recipe)
    assert said[0].startswith("shared_by=4 exceeds the number of clients in the smallest sum without colluders, 3;")


@given(st.floats(0.01, 100), st.floats(1e-4, 100), st.integers(1, 10**7))
def test_the_default_grid_costs_little(norm: float, std: float, size: int) -> None:
    from fedplug.api.norms import rounded

    grid = coarsest(norm, std, size, math.exp(-0.5))
    assert rounded(norm, grid, size, math.exp(-0.5)) <= norm * (1 + 2.0**-7)
    assert grid <= std / 4
    assert rounded(norm, 2 * grid, size, math.exp(-0.5)) > norm * (1 + 2.0**-7) or 2 * grid > std / 4


def test_decay_and_schedules() -> None:
    options = DistributedSkellam.Options(epsilon=3, delta=DELTA, decay=0.9)
    cost = sum(options.multiplier(round, 4) ** -2 for round in range(4))
    assert cost**-0.5 == pytest.approx(concentrated_multiplier(3, DELTA))
    with pytest.raises(ProtectionError):
        DistributedSkellam.Options(epsilon=3, delta=DELTA, decay=0.1).multiplier(0, 100_000)


@pytest.mark.parametrize("kind", STEPS)
def test_it_needs_a_bound_and_values_without_noise(kind: Any) -> None:
    component = made(kind, epsilon=1, delta=DELTA)
    with pytest.raises(Misplaced, match="noise is scaled to a clipping norm"):
        component.protect(known=Known(zone="noised", link="it"), facts=facts_of(component))
    noised = given_by(component)[0]
    with pytest.raises(Misplaced, match="this zone has noise already"):
        component.protect(known=noised, facts=facts_of(component))
    with pytest.raises(Misplaced, match=r"put std\.shared before the noise, which is on a grid"):
        made(Rotate).protect(known=noised, facts=facts_of(component))


# -- prices ------------------------------------------------------------------------------------------------------------


def in_steps(mechanism: str = "skellam_sum", std: float = 8.0, norm: float = 10.0, **entry: Any) -> Release:
    """Noise of a standard deviation, over a norm, in steps of 1."""
    return Release(mechanism, std / norm, norm, trust="distributed", step=1.0, size=1000.0, **entry)


@pytest.mark.parametrize("mechanism", ["skellam_sum", "discrete_gaussian_sum"])
def test_each_party_pays_the_price_of_the_noise_that_it_does_not_know(mechanism: Any) -> None:
    found = price(in_steps(mechanism), 20)

    def stated(clients: int) -> float:
        return composed_epsilon(4 / sum_multiplier(mechanism, 8.0, 10.0, 1000, clients) ** 2, (), DELTA, None, True)

    assert found["released_model"] == found["server"] == pytest.approx(stated(20))
    assert found["client"] == found["client_and_server"] == pytest.approx(stated(19))
    several = price(in_steps(mechanism), 20, colluders=2)
    assert several["client"] == several["client_and_server"] == pytest.approx(stated(18))


def test_colluders_take_gaussian_shares_away_too() -> None:
    release = Release("gaussian", 1.0, 1.0, trust="distributed")
    one, several = price(release, 20), price(release, 20, colluders=2)
    assert one["client_and_server"] == pytest.approx(gaussian_epsilon(math.sqrt(19) / 2, DELTA))
    assert several["client_and_server"] == pytest.approx(gaussian_epsilon(math.sqrt(18) / 2, DELTA))
    assert one["server"] == several["server"] == pytest.approx(gaussian_epsilon(math.sqrt(20) / 2, DELTA))


def test_drop_outs_are_priced_by_what_arrived() -> None:
    def stated(arrived: int) -> float:
        ledger = ledger_of(key_holders={"encrypted": "shares"}, published=["encrypted"], min_clients=3)
        enter(ledger, {"encrypted": 1000}, {"encrypted": [in_steps()]}, 4,
              weights=dict.fromkeys(range(arrived), 1.0))  # fmt: skip
        (line,) = (line for line in ledger.verdict().lines if line.party == "server")
        assert line.epsilon is not None
        return line.epsilon

    assert stated(20) < stated(15) < stated(10)
    assert stated(10) == pytest.approx(price(in_steps(), 10)["server"])


def test_as_many_colluders_as_open_an_upload_leave_the_noise_of_one() -> None:
    """`closed` states 3 shares: two clients with the server see sums, three see uploads."""
    assert closed({"encrypted": "shares"})["encrypted"].opens_with == 3
    two, three = (price(in_steps(), 20, colluders=colluders) for colluders in (2, 3))
    alone = composed_epsilon(4 / sum_multiplier("skellam_sum", 8.0, 10.0, 1000, 1) ** 2, (), DELTA, None, True)
    assert three["client_and_server"] == pytest.approx(alone)
    assert two["client_and_server"] < three["client"] < three["client_and_server"]


def test_lines_say_how_many_clients_they_cover() -> None:
    ledger = ledger_of(key_holders={"encrypted": "shares"}, published=["encrypted"], min_clients=3, colluders=2)
    enter(ledger, {"encrypted": 1000}, {"encrypted": [in_steps(std=30.0)]}, 4)
    lines = {line.party: line for line in ledger.verdict().lines}
    assert lines["client_and_server"].who == "2 clients together with the server"
    assert lines["client"].who == "2 clients together"
    assert "This covers the server with 2 clients together" in lines["client_and_server"].detail
    assert any("as long as 2 clients together at most join the server" in rest
               for rest in lines["client_and_server"].rests_on)  # fmt: skip


@pytest.mark.parametrize(("change", "weights", "said"), [
    ({"uncredited": "odd takes values off the grid"}, {}, "odd takes values off the grid"),
    ({"range": 40.0}, {}, "the encryption saturates at 40, and saturated noise hides less"),
    ({}, {3: 0.5}, "clients of unequal weights take values off the grid of the noise"),
])  # fmt: skip
def test_sums_that_are_none_of_whole_numbers_earn_no_credit(change: Any, weights: Any, said: str) -> None:
    ledger = ledger_of(key_holders={"encrypted": "key_server"}, min_clients=3)
    enter(ledger, {"encrypted": 1000}, {"encrypted": [in_steps(**change)]}, 4,
          weights={**dict.fromkeys(range(20), 1.0), **weights})  # fmt: skip
    assert any(said in warning for warning in ledger.report().warnings)
    alone = composed_epsilon(4 / sum_multiplier("skellam_sum", 8.0, 10.0, 1000, 1) ** 2, (), DELTA, None, True)
    assert ledger.report().views["released_model"].epsilons.epsilon == pytest.approx(alone)  # type: ignore[union-attr]


def test_with_gaussian_noise_of_other_zones_all_is_composed_by_renyi_dp() -> None:
    ledger = ledger_of(key_holders={"encrypted": "key_server"}, min_clients=3)
    other = Release("gaussian", 8.0, 1.0)
    enter(ledger, {"encrypted": 1000, "noised": 10}, {"encrypted": [in_steps()], "noised": [other]}, 4)
    cost = 4 / sum_multiplier("skellam_sum", 8.0, 10.0, 1000, 20) ** 2 + 4 / (8.0**2 * 20)
    found = ledger.report().views["released_model"].epsilons
    assert found is not None
    assert found.zero_out == {"epsilon_rdp": pytest.approx(composed_epsilon(cost, (), DELTA, None, True))}
    assert found.epsilon > gaussian_epsilon(cost**-0.5, DELTA)


@pytest.mark.parametrize("mechanism", ["skellam_sum", "gaussian"])
def test_sampled_clients_earn_no_credit_where_they_share_the_noise_out(mechanism: str) -> None:
    """The server knows who takes part, and how much noise there is follows from how many do."""
    release = in_steps(mechanism) if mechanism == "skellam_sum" else Release(mechanism, 0.8, 1.0, trust="distributed")
    sampling = {"scheme": "poisson", "rate": 0.5, "source": "secure"}
    plain, sampled = price(release, 20), price(release, 20, sampling=sampling)
    assert sampled == plain
    ledger = ledger_of(key_holders={"encrypted": "shares"}, min_clients=3, sampling=sampling)
    enter(ledger, {"encrypted": 1000}, {"encrypted": [release]}, 4)
    report = ledger.report()
    assert not report.sampling.amplified
    assert report.sampling.why.startswith("noise is shared out among the clients, so how much there is follows")


# -- rounds ------------------------------------------------------------------------------------------------------------


def shared_sum(noise: dict[str, Any], seal: dict[str, Any], rotated: bool = True, **changes: Any) -> dict[str, Any]:
    """Six clients of equal weight, on a linear model of 62 scalars."""
    turn = [{"use": "std.rotate"}] if rotated else []
    plain = recipe_of(
        "encrypted", [{"use": "std.clip", "norm": 1.0}, *turn, noise, seal], train={"use": "toy.push", "scale": 0.01},
        min_clients=4, aggregate={"use": "std.mean", "weighting": "uniform"},
        postprocess={"encrypted": [seal["use"], *(["std.rotate"] if rotated else [])]},
    )  # fmt: skip
    plain["data"] |= {"use": "std.breast_cancer", "clients": 6}
    return plain | changes


SKELLAM = {"use": "std.distributed_skellam", "noise_multiplier": 1.0, "grid": 2.0**-8}
DISCRETE = {**SKELLAM, "use": "std.distributed_discrete_gaussian"}
BFV = {"use": "std.bfv", "key_holder": "key_server", "bits": 14, "range": (2**13 - 1) * 2.0**-8}


@pytest.mark.parametrize("noise", [SKELLAM, DISCRETE, {**DISCRETE, "source": "exact"}])
@pytest.mark.parametrize("seal", [
    {"use": "secagg.bonawitz"}, {"use": "secagg.plus"}, {"use": "secagg.bonawitz", "bits": 16, "wraps": 4}, BFV,
], ids=["bonawitz", "plus", "wraps", "bfv"])  # fmt: skip
def test_an_opened_sum_is_the_sum_of_what_clients_put_in_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, noise: dict[str, Any], seal: dict[str, Any]
) -> None:
    put: list[NDArray[Any]] = []
    opened: list[NDArray[Any]] = []
    closing, opening = Closing.close, Closing.open

    def close_it(self: Closing, block: Any, client: Any) -> Any:
        put.append(block.plain() * 2.0**8)
        return closing(self, block, client)

    def open_it(self: Closing, *given: Any) -> Any:
        found = opening(self, *given)
        opened.append(found.plain() * 2.0**8)
        return found

    monkeypatch.setattr(Closing, "close", close_it)
    monkeypatch.setattr(Closing, "open", open_it)
    outcome = run_protocol(shared_sum(noise, seal, rounds=1))
    assert outcome.notes == []
    assert len(put) == 6
    assert all(np.array_equal(values, np.rint(values)) for values in put), "whole numbers"
    assert np.array_equal(opened[0], np.sum(put, 0))
    (entry,) = outcome.protocol.ledger.log[0].zones.values()
    assert entry.uncredited == ""
    assert entry.sum_factor == pytest.approx(math.sqrt(6), rel=1e-3)
    report = outcome.protocol.ledger.report()
    assert not any("on the word of std" in rest for line in report.verdict.lines for rest in line.rests_on)


def test_under_encryption_of_another_grid_others_noise_earns_no_credit() -> None:
    outcome = run_protocol(shared_sum(SKELLAM, {**BFV, "range": 32.0}, rounds=1))
    (entry,) = outcome.protocol.ledger.log[0].zones.values()
    assert "takes values off the grid of the noise" in entry.uncredited
    assert entry.sum_factor == 1


def test_a_rotated_sum_moves_the_model_as_a_plain_one() -> None:
    """Without noise, on a fine grid: rounding alone is between them."""
    silent = {**SKELLAM, "noise_multiplier": 0.0, "grid": 2.0**-16}
    plain, turned = (
        run_protocol(shared_sum(silent, {"use": "secagg.bonawitz"}, rotated)).vectors[0] for rotated in (False, True)
    )
    assert np.abs(plain - turned).max() < 2 * 2.0**-16
    assert not np.array_equal(plain, turned)


def test_a_sum_that_is_never_turned_back_is_refused() -> None:
    from fedplug.api.errors import RecipeError

    plain = shared_sum(SKELLAM, {"use": "secagg.bonawitz"})
    plain["postprocess"] = {"encrypted": ["secagg.bonawitz"]}
    with pytest.raises(RecipeError, match="the sum of zone encrypted is never rotated back"):
        run_protocol(plain)


def test_a_part_of_the_model_is_turned_alone() -> None:
    """Half of the scalars are encrypted, by a vote; the others keep their noise of one client."""
    plain = paraaegis(0.5, min_clients=3, aggregate={"use": "std.mean", "weighting": "uniform"})
    plain["protect"]["encrypted"] = [
        {"use": "std.clip", "norm": 1.0}, "std.rotate", {**SKELLAM, "grid": 2.0**-6},
        {"use": "secagg.bonawitz", "bits": 20, "wraps": 4},
    ]  # fmt: skip
    plain["postprocess"] = {"encrypted": ["secagg.bonawitz", "std.rotate"]}
    outcome = run_protocol(plain)
    assert outcome.notes == []
    entry = outcome.protocol.ledger.log[-1].zones["encrypted"]
    assert (entry.size, entry.uncredited) == (325, "")
    assert entry.sum_factor == pytest.approx(2, rel=1e-3)
