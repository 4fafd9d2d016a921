"""The ledger: worked epsilons, what each adversary's view may claim, and that nothing is claimed too cheaply."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import pytest
from fedplug.api.effects import Reveals
from fedplug.api.releases import Release
from fedplug.privacy.accounting import effective_multiplier, gaussian_epsilon, gaussian_noise_multiplier
from fedplug.privacy.ledger import Ledger
from hypothesis import given, settings
from hypothesis import strategies as st

DELTA = 1e-5
SIGMA = math.sqrt(10) * gaussian_noise_multiplier(1, DELTA)
LOCAL = Release("gaussian", SIGMA, 1.0)
CENTRAL = Release("gaussian", SIGMA, 1.0, trust="central")


def held(range: float, step: float) -> Release:
    """`LOCAL` under an encryption that holds values up to `range`, rounded to `step`."""
    return dataclasses.replace(LOCAL, range=range, step=step)


CLIENTS = 20


class FakeAccountant:
    """Tells what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[tuple[float, float]], float, str]] = []

    def epsilon(self, releases: list[tuple[float, float]], delta: float, adjacency: str) -> dict[str, float]:
        self.asked.append((releases, delta, adjacency))
        return {"pld": 0.5, "rdp": 0.6}

    def compose(self, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str) -> None:
        """As an accountant that takes releases one by one."""


def ledger_of(**facts: Any) -> Ledger:
    given = {"recipe_name": "test", "num_clients": CLIENTS, "rounds": 10, "min_clients": 2, "delta": DELTA}
    return Ledger(**{**given, **facts})


def enter(
    ledger: Ledger,
    zone_sizes: Mapping[str, float],
    releases: Mapping[str, list[Release]],
    rounds: int = 10,
    charged: list[int] | None = None,
    weights: Mapping[int, float] | None = None,
    secret_cohort: bool = True,
) -> Ledger:
    for round in range(rounds):
        asked = list(range(ledger.num_clients)) if charged is None else charged
        arrived = dict.fromkeys(asked, 1.0) if weights is None else dict(weights)
        ledger.record(
            round,
            charged=asked,
            zone_sizes=zone_sizes,
            total=1000,
            releases=releases,
            contributors=dict.fromkeys(zone_sizes, len(arrived)),
            weights=arrived,
            secret_cohort=secret_cohort,
        )
    return ledger


def exact(ledger: Ledger, view: str, adjacency: str = "zero_out") -> float:
    epsilon = ledger.to_json()["views"][view][adjacency]["epsilon_exact"]
    return math.inf if epsilon == "inf" else float(epsilon)


def reason(ledger: Ledger, view: str) -> str:
    found = ledger.to_json()["views"][view]
    assert found["epsilon"] == "none", f"{view} claims {found}"
    return str(found["reason"])


# -- worked cases ------------------------------------------------------------------------------------------------------


def test_dp_fedavg_states_epsilon_unit_trust_and_adjacency() -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [LOCAL]})
    assert ledger.epsilon() == pytest.approx(1.0)
    assert exact(ledger, "aggregator") == exact(ledger, "client_and_aggregator") == pytest.approx(1.0)
    assert exact(ledger, "aggregator", "replace_one") == pytest.approx(2.1547, abs=1e-3)
    assert ledger.verdict() == (
        "DP: ε=1.00, δ=1e-05 (client, local, zero-out; replace-one ε=2.15) for everything released of the updates in "
        "10 rounds."
    )
    # Twenty equal noises add up in the sum; another client knows one of them.
    assert exact(ledger, "released_model") == pytest.approx(gaussian_epsilon(SIGMA * math.sqrt(20 / 10), DELTA))
    assert exact(ledger, "client") == pytest.approx(gaussian_epsilon(SIGMA * math.sqrt(19 / 10), DELTA))
    assert "nobody holds a key" in reason(ledger, "key_holder")


def test_hybrid_has_no_end_to_end_dp() -> None:
    mask = Reveals("mask", ("aggregator", "client"))
    ledger = ledger_of(key_holders={"encrypted": "clients"}, reveals=[mask])
    enter(ledger, {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]})
    assert ledger.verdict() == (
        "NO end-to-end DP: 10.0% of coordinates released un-noised for 10 rounds; DP zone ε=1.00, δ=1e-05 (client, "
        "local, zero-out); toward the aggregator ε=11.46 given the UNACCOUNTED mask."
    )
    for view in ("key_holder", "client", "client_and_aggregator", "released_model"):
        assert "without noise" in reason(ledger, view)
    assert exact(ledger, "aggregator") > 1, "un-noised values come back in what others upload"


def test_the_aggregator_pays_for_un_noised_values_that_shape_later_uploads() -> None:
    """19 other uploads in each of rounds 2 to 10, each moved by at most twice the clipping norm."""
    ledger = ledger_of(key_holders={"encrypted": "clients"})
    enter(ledger, {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]})
    expected = effective_multiplier([SIGMA] * 10 + [SIGMA / 2] * (19 * 9))
    assert exact(ledger, "aggregator") == pytest.approx(gaussian_epsilon(expected, DELTA))
    one_round = enter(
        ledger_of(key_holders={"encrypted": "clients"}),
        {"encrypted": 100, "noised": 900},
        {"noised": [LOCAL]},
        rounds=1,
    )
    assert exact(one_round, "aggregator") == pytest.approx(gaussian_epsilon(SIGMA, DELTA))


def test_a_key_server_that_answers_the_aggregator_leaves_it_no_guarantee() -> None:
    ledger = ledger_of(key_holders={"encrypted": "key_server"})
    enter(ledger, {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]})
    assert "decrypted sums of the encrypted zone" in reason(ledger, "aggregator")


@pytest.mark.parametrize("holder", ["clients", "key_server"])
def test_encryption_alone_is_no_dp(holder: str) -> None:
    ledger = enter(ledger_of(key_holders={"encrypted": holder}), {"encrypted": 1000}, {})
    assert ledger.epsilon() is None
    assert ledger.verdict().startswith("NO DP: 100.0% of coordinates released un-noised for 10 rounds")
    if holder == "clients":
        assert exact(ledger, "aggregator") == 0


def test_no_protection_is_no_dp() -> None:
    ledger = enter(ledger_of(), {"clear": 1000}, {})
    assert ledger.verdict() == "NO DP: 100.0% of coordinates released un-noised for 10 rounds."
    assert all(view["epsilon"] == "none" for view in ledger.to_json()["views"].values())


def test_noise_below_encryption_protects_from_everybody() -> None:
    ledger = ledger_of(key_holders={"encrypted": "clients"})
    enter(ledger, {"encrypted": 1000}, {"encrypted": [held(108.0, 2.0**-17)]})
    assert ledger.verdict().startswith("DP: ε=1.00")
    assert exact(ledger, "aggregator") == 0
    assert exact(ledger, "client_and_aggregator") == pytest.approx(1.0)
    assert exact(ledger, "key_holder") == exact(ledger, "client") < exact(ledger, "client_and_aggregator")


def test_central_noise_needs_a_trusted_server() -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [CENTRAL]})
    assert ledger.epsilon() == pytest.approx(1.0)
    assert exact(ledger, "released_model") == exact(ledger, "client") == pytest.approx(1.0)
    assert "is trusted" in reason(ledger, "aggregator")
    assert "below it" in reason(ledger, "client_and_aggregator")
    assert "(client, central, zero-out" in ledger.verdict()


def test_reproducible_noise_protects_nobody() -> None:
    release = Release("gaussian", SIGMA, 1.0, source="reproducible")
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [release]})
    assert ledger.verdict().startswith("NO DP: reproducible noise protects nobody: anyone who knows the seed")
    for view in ("aggregator", "client", "client_and_aggregator", "released_model"):
        assert "knows the seed" in reason(ledger, view)


def test_zones_of_one_client_compose() -> None:
    releases = {"noised": [LOCAL], "head": [Release("gaussian", 3.0, 1.0)]}
    ledger = enter(ledger_of(), {"noised": 900, "head": 100}, releases)
    joint = effective_multiplier([SIGMA] * 10 + [3.0] * 10)
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(joint, DELTA))
    zones = ledger.to_json()["zones"]
    assert zones["noised"]["epsilon"]["zero_out"]["epsilon_exact"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("release", "said"),
    [
        (Release("gaussian", SIGMA, 1.0, literal=True), "paper's own formula"),
        (Release("staircase", SIGMA, 1.0), "counts as no noise"),
        (Release("gaussian", SIGMA, 1.0, source="reproducible"), "knows the seed"),
    ],
)
def test_what_deserves_a_warning_gets_one(release: Release, said: str) -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [release]})
    assert any(said in warning for warning in ledger.to_json()["warnings"])


def test_unknown_noise_and_multiplier_zero_are_infinite() -> None:
    for release in (Release("staircase", SIGMA, 1.0), Release("gaussian", 0.0, 1.0)):
        ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [release]})
        assert ledger.epsilon() == math.inf
        assert ledger.verdict().startswith("NO DP: the noise does not protect")
        assert exact(ledger, "aggregator") == math.inf


def test_delta_must_be_below_one_over_clients() -> None:
    assert any("delta=0.1 must be below" in warning for warning in ledger_of(delta=0.1).to_json()["warnings"])
    assert ledger_of().to_json()["warnings"] == []


def test_empty_and_retained_zones_cost_nothing() -> None:
    ledger = enter(ledger_of(), {"encrypted": 0, "noised": 0, "retained": 1000}, {"noised": [LOCAL]})
    assert ledger.epsilon() is None
    assert ledger.verdict() == "NO DP: no coordinate was released."
    assert ledger_of().verdict() == "NO DP STATEMENT: no round was recorded."


def test_a_round_without_noise_spoils_the_run() -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [LOCAL]}, rounds=9)
    for _ in range(2):  # the same round, once more after an interruption
        enter(ledger, {"noised": 1000}, {}, rounds=1)
    assert "without noise" in reason(ledger, "released_model")
    assert ledger.verdict().startswith("NO end-to-end DP: 100.0% of coordinates released un-noised for 1 round;")


def test_a_repeated_round_is_paid_for_twice() -> None:
    ledger = enter(enter(ledger_of(), {"noised": 1000}, {"noised": [LOCAL]}), {"noised": 1000}, {"noised": [LOCAL]}, 1)
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(SIGMA / math.sqrt(11), DELTA))
    assert any("were repeated" in warning for warning in ledger.to_json()["warnings"])


# -- sampling ----------------------------------------------------------------------------------------------------------


def test_local_noise_earns_no_credit_for_sampling() -> None:
    accountant = FakeAccountant()
    ledger = ledger_of(sampling={"scheme": "poisson", "rate": 0.1}, accountant=accountant)
    enter(ledger, {"noised": 1000}, {"noised": [LOCAL]}, charged=[0, 3])
    enter(ledger, {"noised": 1000}, {"noised": [LOCAL]}, rounds=5, charged=[3])
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(SIGMA / math.sqrt(15), DELTA)), (
        "client 3 took part 15 times"
    )
    assert accountant.asked == []
    assert "knows that its client took part" in ledger.to_json()["sampling"]["why"]


def test_poisson_sampling_amplifies_central_noise_for_the_released_model_only() -> None:
    accountant = FakeAccountant()
    ledger = ledger_of(num_clients=500, sampling={"scheme": "poisson", "rate": 0.1}, accountant=accountant)
    two = {"noised": [CENTRAL], "head": [Release("gaussian", 3.0, 1.0, trust="central")]}
    enter(ledger, {"noised": 900, "head": 100}, two, charged=[0])
    assert ledger.epsilon() == 0.5
    # One coin a client and round: the zones of a round are one release, then sampled.
    releases, delta, adjacency = accountant.asked[0]
    assert (delta, adjacency) == (DELTA, "zero_out")
    assert [multiplier for multiplier, _ in releases] == pytest.approx([effective_multiplier([SIGMA, 3.0])] * 10)
    assert {rate for _, rate in releases} == {0.1}
    released = ledger.to_json()["views"]["released_model"]["zero_out"]
    assert (released["epsilon_pld"], released["epsilon_rdp"]) == (0.5, 0.6)
    unsampled = gaussian_epsilon(effective_multiplier([SIGMA, 3.0]) / math.sqrt(10), DELTA)
    assert released["epsilon_without_sampling"] == exact(ledger, "client") == pytest.approx(unsampled)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"sampling": {"scheme": "fixed", "rate": 0.1}, "accountant": FakeAccountant()}, "fixed size"),
        ({"sampling": {"scheme": "poisson", "rate": 0.1}}, "names no accountant"),
        (
            {"sampling": {"scheme": "poisson", "rate": 0.1, "source": "reproducible"}, "accountant": FakeAccountant()},
            "recipe's seed",
        ),
    ],
)
def test_sampling_without_a_proof_earns_no_credit(facts: dict[str, Any], why: str) -> None:
    ledger = enter(ledger_of(**facts), {"noised": 1000}, {"noised": [CENTRAL]}, charged=[0, 1])
    assert ledger.epsilon() == pytest.approx(1.0)
    assert why in ledger.to_json()["sampling"]["why"]
    assert any(why in warning for warning in ledger.to_json()["warnings"])


@pytest.mark.parametrize(
    ("clients", "zones", "secret_cohort", "why"),
    [
        (500, {"noised": 1000}, True, None),
        (500, {"noised": 900, "clear": 100}, True, "sums of the clear zone have no noise, and show who took part"),
        (500, {"noised": 1000}, False, "besides the noised sums shows who took part"),
        # 0.9^20 + 20 * 0.1 * 0.9^19
        (20, {"noised": 1000}, True, "fewer than min_clients=2 clients is skipped.*probability 4e-01"),
    ],
)
def test_sampling_earns_credit_only_for_a_cohort_that_nothing_shows(
    clients: int, zones: dict[str, float], secret_cohort: bool, why: str | None
) -> None:
    sampling = {"scheme": "poisson", "rate": 0.1}
    ledger = ledger_of(num_clients=clients, sampling=sampling, accountant=FakeAccountant())
    enter(ledger, zones, {"noised": [CENTRAL]}, charged=[0, 3], secret_cohort=secret_cohort)
    found = ledger.to_json()
    assert found["sampling"]["amplified"] == (why is None)
    assert ledger.epsilon() == pytest.approx(1.0 if why else 0.5)
    # What is published shows neither who took part nor how many did; the checkpoint remembers.
    assert {str(entry["charged"]) for entry in found["log"]} == {"[0, 3]" if why else "secret"}
    assert why is not None or "sum_factor" not in found["log"][0]["zones"]["noised"]
    assert ledger.state()["log"][0]["charged"] == [0, 3]
    assert why is None or re.search(why, found["sampling"]["why"])


# -- encryption: saturation and small sums -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "said"),
    [
        # The noise has a standard deviation of sqrt(10) * 3.7306 = 11.797: 1 + 9 * 11.797 = 107.2.
        (held(108.0, 2.0**-17), None),
        (held(math.inf, 0.0), None),
        (held(107.0, 2.0**-17), "saturates at 107, .* from range: 108 on"),
        (held(108.0, 6.0), "rounded to 6, too coarse beside noise of 11.8"),
        (dataclasses.replace(held(108.0, 0.0), clipping_norm=math.nan), "names no single clipping norm"),
        (dataclasses.replace(LOCAL, uncredited="odd.link states no effect"), "odd.link states no effect"),
    ],
)
def test_noise_of_others_counts_only_if_the_encryption_holds_it(release: Release, said: str | None) -> None:
    """At a range of 1, noise of deviation 11.8 leaves signs, and 20 signs hide less than 20 noises."""
    ledger = ledger_of(key_holders={"encrypted": "key_server"})
    enter(ledger, {"encrypted": 1000}, {"encrypted": [release]})
    credit = 1 if said else math.sqrt(20)
    assert exact(ledger, "released_model") == pytest.approx(gaussian_epsilon(SIGMA * credit / math.sqrt(10), DELTA))
    warned = ledger.to_json()["warnings"]
    assert len(warned) == (said is not None)
    assert said is None or re.search(said, warned[0])


@pytest.mark.parametrize(("holder", "least"), [("key_server", 2), ("clients", 3)])
def test_sums_that_show_single_updates_are_named(holder: str, least: int) -> None:
    for min_clients in (1, 2, 3):
        ledger = ledger_of(min_clients=min_clients, key_holders={"encrypted": holder})
        enter(ledger, {"encrypted": 1000}, {"encrypted": [LOCAL]})
        found = ledger.to_json()
        assert any(f"set min_clients: {least}" in said for said in found["warnings"]) == (min_clients < least)
        if holder == "key_server":
            claimed = "never single ones" in found["views"]["key_holder"]["reason"]
            assert claimed == (min_clients >= least)


# -- properties --------------------------------------------------------------------------------------------------------

shares = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=8)


@settings(max_examples=30)
@given(shares, st.integers(0, 7))
def test_dropping_a_client_after_its_noise_never_lowers_epsilon(weights: list[float], dropped: int) -> None:
    """Item 41, in every view and for any weights."""
    asked = list(range(len(weights)))
    everyone = dict(enumerate(weights))
    fewer = {client_id: weight for client_id, weight in everyone.items() if client_id != dropped % len(weights)}
    facts = {"num_clients": len(weights), "key_holders": {"encrypted": "clients"}, "delta": 0.01}
    zones, releases = {"encrypted": 500, "noised": 500}, {"encrypted": [LOCAL], "noised": [LOCAL]}
    full = enter(ledger_of(**facts), zones, releases, 3, asked, everyone)
    less = enter(ledger_of(**facts), zones, releases, 3, asked, fewer)
    for view in full.to_json()["views"]:
        assert exact(less, view) >= exact(full, view) * (1 - 1e-9)
    assert less.epsilon() == full.epsilon()


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=6), st.data())
def test_epsilon_follows_from_the_logged_multipliers_and_survives_a_restart(
    multipliers: list[float], data: st.DataObject
) -> None:
    """Item 40."""
    ledger = ledger_of(num_clients=4, key_holders={"encrypted": "clients"})
    paid: dict[int, list[float]] = {client_id: [] for client_id in range(4)}
    for round, multiplier in enumerate(multipliers):
        charged = sorted(data.draw(st.sets(st.integers(0, 3), min_size=1)))
        ledger.record(
            round,
            charged=charged,
            zone_sizes={"encrypted": 10, "noised": 90},
            total=100,
            releases={"noised": [Release("gaussian", multiplier, 1.0)]},
            contributors={"encrypted": len(charged), "noised": len(charged)},
            weights=dict.fromkeys(charged, 1.0),
        )
        if round == len(multipliers) // 2:
            restarted = ledger_of(num_clients=4, key_holders={"encrypted": "clients"})
            restarted.restore(json.loads(json.dumps(ledger.state())))
            assert restarted.to_json() == ledger.to_json()
            ledger = restarted
    for entry in ledger.to_json()["log"]:
        for client_id in range(4) if entry["charged"] == "all" else entry["charged"]:
            paid[client_id].append(entry["zones"]["noised"]["local"])
    recomputed = max(gaussian_epsilon(effective_multiplier(paid[client_id]), DELTA) for client_id in paid)
    assert ledger.epsilon() == pytest.approx(recomputed, rel=1e-9)
    json.dumps(ledger.to_json(), allow_nan=False)


@settings(deadline=None)
@given(st.floats(0.1, 50), st.floats(0.1, 50), st.integers(1, 20))
def test_epsilon_falls_with_noise_and_grows_with_rounds(one: float, other: float, rounds: int) -> None:
    """Item 21, through the ledger."""

    def epsilon(multiplier: float, rounds: int) -> float:
        found = enter(ledger_of(), {"noised": 1}, {"noised": [Release("gaussian", multiplier, 1.0)]}, rounds).epsilon()
        assert found is not None
        return found

    assert epsilon(max(one, other), rounds) <= epsilon(min(one, other), rounds)
    assert epsilon(one, rounds) <= epsilon(one, rounds + 1)


@settings(deadline=None)
@given(shares)
def test_no_view_of_sums_costs_more_than_the_upload_itself(weights: list[float]) -> None:
    ledger = ledger_of(num_clients=len(weights), delta=0.01)
    enter(ledger, {"noised": 1000}, {"noised": [LOCAL]}, 3, weights=dict(enumerate(weights)))
    assert exact(ledger, "released_model") <= exact(ledger, "client") <= exact(ledger, "client_and_aggregator")


def test_above_a_documented_bound_no_verdict_opens_with_dp() -> None:
    weak = enter(ledger_of(), {"noised": 10}, {"noised": [Release("gaussian", 0.05, 1.0)]})
    assert weak.verdict().startswith("NO MEANINGFUL GUARANTEE (above ε=20)")
    fair = enter(ledger_of(), {"noised": 10}, {"noised": [LOCAL]})
    assert fair.verdict().startswith("DP: ε=1.00")


def test_a_small_epsilon_is_not_printed_as_zero() -> None:
    strong = enter(ledger_of(), {"noised": 10}, {"noised": [Release("gaussian", 3e5, 1.0)]}, rounds=1)
    assert "ε=0.00" not in strong.verdict()
    tiny = enter(ledger_of(delta=1e-12), {"noised": 10}, {"noised": [Release("gaussian", 1e10, 1.0)]}, rounds=1)
    epsilon = tiny.epsilon()
    assert epsilon is not None
    assert f"ε={epsilon:.2e}" in tiny.verdict() if epsilon else "ε=0," in tiny.verdict()


def test_a_run_leads_with_the_part_that_its_epsilon_prices() -> None:
    mixed = enter(
        ledger_of(key_holders={"encrypted": "clients"}), {"noised": 7, "encrypted": 3}, {"noised": [LOCAL]}
    )
    assert mixed.priced_part() == "noised"
    assert "toward the aggregator ε=" in mixed.verdict()
    whole = enter(ledger_of(), {"noised": 10}, {"noised": [LOCAL]})
    assert whole.priced_part() == ""


VECTORS = Reveals("vectors", ("aggregator",), voids=True, note="of each client, without noise")


def test_no_verdict_opens_with_dp_where_a_priced_view_is_voided() -> None:
    ledger = enter(ledger_of(reveals=[VECTORS]), {"noised": 1000}, {"noised": [LOCAL]})
    assert "sees vectors" in reason(ledger, "aggregator")
    assert ledger.verdict() == (
        "NO end-to-end DP: the aggregator sees vectors: of each client, without noise; DP zone ε=1.00, δ=1e-05 "
        "(client, local, zero-out) given the UNACCOUNTED vectors."
    )
    assert ledger.priced_part() == "noised"


def test_a_voided_view_is_named_beside_zones_without_noise() -> None:
    ledger = ledger_of(key_holders={"encrypted": "clients"}, reveals=[VECTORS])
    enter(ledger, {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]})
    assert ledger.verdict().startswith(
        "NO end-to-end DP: 10.0% of coordinates released un-noised for 10 rounds; the aggregator sees vectors: "
    )


@pytest.mark.parametrize(
    ("release", "to", "opening"),
    [
        (CENTRAL, "aggregator", "DP: ε=1.00"),  # it is trusted with the values themselves
        (CENTRAL, "client_and_aggregator", "DP: ε=1.00"),
        (CENTRAL, "client", "NO end-to-end DP: every client sees"),
        (CENTRAL, "released_model", "NO end-to-end DP: every client sees"),
        (LOCAL, "client", "NO end-to-end DP: every client sees"),
        (LOCAL, "client_and_aggregator", "NO end-to-end DP: a client together with the aggregator sees"),
        (LOCAL, "key_holder", "DP: ε=1.00"),  # nobody holds a key
    ],
)
def test_who_matters_to_the_verdict_follows_from_who_is_trusted(release: Release, to: Any, opening: str) -> None:
    shown = [dataclasses.replace(VECTORS, to=(to,))]
    ledger = enter(ledger_of(reveals=shown), {"noised": 1000}, {"noised": [release]})
    assert ledger.verdict().startswith(opening)


def test_an_aggregator_that_reads_ciphertexts_only_has_a_view_to_lose() -> None:
    ledger = ledger_of(key_holders={"encrypted": "clients"}, reveals=[VECTORS])
    enter(ledger, {"encrypted": 1000}, {"encrypted": [held(108.0, 2.0**-17)]})
    assert ledger.verdict().startswith("NO end-to-end DP: the aggregator sees vectors")


@pytest.mark.parametrize("release", [LOCAL, CENTRAL])
def test_an_answer_that_nobody_states_voids_every_view_and_is_named(release: Release) -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [release]})
    ledger.message_uncovered("odd.groups", "asks clients for label, and says nowhere what the answers show")
    for view in ledger.to_json()["views"]:
        assert "odd.groups asks clients for label" in reason(ledger, view)
    assert ledger.verdict().startswith("NO end-to-end DP: odd.groups asks clients for label, and says nowhere")
    assert "DP zone ε=1.00" in ledger.verdict()
    assert ledger.priced_part() == "noised"


def test_sampling_earns_no_credit_beside_an_answer_that_nobody_states() -> None:
    sampling = {"scheme": "poisson", "rate": 0.9}
    ledger = ledger_of(num_clients=200, sampling=sampling, accountant=FakeAccountant())
    enter(ledger, {"noised": 1000}, {"noised": [CENTRAL]})
    assert ledger.to_json()["sampling"]["amplified"]
    ledger.message_uncovered("odd.groups", "asks clients for label, and says nowhere what the answers show")
    assert "odd.groups asks clients for label" in ledger.to_json()["sampling"]["why"]


def test_a_clients_view_says_how_many_colluders_it_covers() -> None:
    found = enter(ledger_of(), {"noised": 10}, {"noised": [LOCAL]}).to_json()["views"]
    assert found["client"]["colluders"] == 1
    assert "one client" in found["client"]["reason"]


@pytest.mark.parametrize("to", ["client", "key_holder"])
def test_clients_that_hold_the_key_are_its_holders(to: Any) -> None:
    shown = [Reveals("everybody's counts", (to,), voids=True, note="in the clear")]
    for holder, both in (("clients", True), ("key_server", False)):
        ledger = ledger_of(key_holders={"encrypted": holder}, reveals=shown, min_clients=3)
        enter(ledger, {"encrypted": 10.0}, {"encrypted": [LOCAL]})
        views = ledger.to_json()["views"]
        none = {name for name in ("client", "key_holder") if views[name].get("epsilon") == "none"}
        assert none == ({"client", "key_holder"} if both else {to})


def test_what_was_shown_before_stays_listed_where_a_run_goes_on_with_another_version_of_a_plugin() -> None:
    shown = Reveals("counts", ("released_model",), voids=True, asked=("counts",), note="bare")
    before = enter(ledger_of(reveals=[shown]), {"noised": 10.0}, {"noised": [LOCAL]}, rounds=1)
    after = ledger_of(reveals=[])
    after.restore(before.state())
    assert after.reveals == [shown]
    assert after.verdict() == before.verdict()
    after.restore(after.state())
    assert after.reveals == [shown]
