"""The cost of noise correlated over rounds, for each client by the rounds in which it took part."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug.api.known import Release
from fedplug_ledger.accounting import effective_multiplier, gaussian_epsilon
from fedplug_ledger.entries import RoundEntry
from fedplug_ledger.ledger import Ledger
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_toys import CLIENTS, DELTA, FakeAccountant, exact, ledger_of

ROOT = (0.5, 0.375, 0.3125, 0.2734375)
"""Coefficients of the square root after its diagonal of ones."""
SIGMA = 8.0
Vectors = np.ndarray[Any, Any]


def row(round: int, bands: int = 5) -> Release:
    """The noise of a round of the banded square root, whose fresh noise has SIGMA times the bound."""
    return Release("gaussian", SIGMA, 1.0, trust="central", takes_back=ROOT[: min(round, bands - 1)])


def entered(ledger: Ledger, round: int, charged: list[int], **facts: Any) -> None:
    ledger.record(
        round, charged=charged, zone_sizes={"noised": 10}, total=10, releases={"noised": [row(round)]},
        contributors={"noised": len(charged)}, weights=dict.fromkeys(charged, 1.0), **facts,
    )  # fmt: skip


def square_root(rounds: int) -> Vectors:
    dense = np.eye(rounds)
    for lag, share in enumerate(ROOT, 1):
        dense += share * np.eye(rounds, k=-lag)
    return dense


def moved(rounds: int, took_part: list[int]) -> float:
    """The norm by which a client that took part in these rounds moves C x at most."""
    return float(np.linalg.norm(square_root(rounds)[:, took_part].sum(axis=1)))


@given(st.lists(st.lists(st.booleans(), min_size=CLIENTS, max_size=CLIENTS), min_size=1, max_size=8))
@settings(max_examples=examples(30), deadline=None)
def test_each_client_pays_for_the_rounds_in_which_it_took_part(cohorts: list[list[bool]]) -> None:
    """The cost is that of one Gaussian release of C x + z, for any participation of a client and any end of the run."""
    ledger, took_part = ledger_of(rounds=8), np.array(cohorts)
    for round, cohort in enumerate(took_part):
        entered(ledger, round, [int(c) for c in np.flatnonzero(cohort)])
    rounds = len(cohorts)
    norms = [moved(rounds, [int(r) for r in np.flatnonzero(took_part[:, c])]) for c in range(CLIENTS)]
    assert np.allclose(ledger.costs["noised"].total, [(norm / SIGMA) ** 2 for norm in norms])
    if took_part.any():
        assert exact(ledger, "released_model") == pytest.approx(gaussian_epsilon(SIGMA / max(norms), DELTA))
        assert exact(ledger, "client") == exact(ledger, "released_model")
        twice = gaussian_epsilon(SIGMA / max(norms) / 2, DELTA)
        assert exact(ledger, "released_model", "replace_one") == pytest.approx(twice)


def test_one_participation_costs_less_than_each_round_of_all_does_and_more_than_its_own_round() -> None:
    once = ledger_of()
    for round in range(5):
        entered(once, round, [round])
    own, all_rounds = SIGMA, SIGMA / math.sqrt(5)
    assert gaussian_epsilon(own, DELTA) < exact(once, "released_model") < gaussian_epsilon(all_rounds, DELTA)
    assert once.report().rounds.actual == 5


def test_who_comes_again_too_soon_pays_for_it() -> None:
    planned, sooner = ledger_of(), ledger_of()
    for round in range(6):
        entered(planned, round, [round % 3])
        entered(sooner, round, [0] if round in (0, 1) else [round % 3])
    assert exact(planned, "released_model") < exact(sooner, "released_model")
    assert exact(sooner, "released_model") == pytest.approx(gaussian_epsilon(SIGMA / moved(6, [0, 1, 3]), DELTA))


def test_a_repeated_round_is_one_more_release_and_later_ones_go_on_from_the_last() -> None:
    ledger = ledger_of()
    for round, charged in [(0, [0]), (1, [1]), (2, [2]), (1, [3]), (2, [4])]:  # killed in round 3, back to round 1
        entered(ledger, round, charged)
    squares = ledger.costs["noised"].total * SIGMA**2
    one, two = 0.5**2, 0.375**2
    assert squares[0] == pytest.approx(1 + 2 * one + 2 * two)  # in both times of rounds 2 and 3
    assert squares[1] == pytest.approx(1 + one)  # its round, and the first time of the next
    assert squares[2] == pytest.approx(1)
    assert squares[3] == pytest.approx(1 + one)
    assert squares[4] == pytest.approx(1)


def test_a_sum_that_stayed_closed_has_no_noise_to_take_back() -> None:
    ledger = ledger_of({"noised": "shares"}, published=["noised"])
    entered(ledger, 0, [0, 1, 2, 3], closed=["noised"])
    entered(ledger, 1, [4, 5, 6, 7])
    assert (ledger.costs["noised"].total[:4] == 0).all()


def test_the_account_follows_from_its_log() -> None:
    ledger = ledger_of()
    for round in range(5):
        entered(ledger, round, [round % 3, 7])
    log = [RoundEntry.from_json(entry.to_json()) for entry in ledger.log]
    assert log[0].zones["noised"].takes_back == ()
    assert np.array_equal(ledger.copy(log).costs["noised"].total, ledger.costs["noised"].total)


def test_no_sampling_earns_credit_for_noise_that_is_correlated() -> None:
    ledger = ledger_of(sampling={"rate": 0.5})
    for round in range(3):
        entered(ledger, round, list(range(CLIENTS)), secret_cohort=True)
    assert "no accountant" in str(ledger.report().sampling.why) or "correlated" in ledger.report().sampling.why
    assert not ledger.report().sampling.amplified


def test_each_coin_costs_the_column_of_its_round_and_a_cohort_its_coins() -> None:
    """Three bands, cohorts that take three turns, seven rounds, the fifth and sixth of them twice: rounds 0, 3, 6 have
    one cohort, whose last column has one row so far.
    """
    book = FakeAccountant()
    sampling = {"rate": 0.2, "separation": 3}
    ledger = ledger_of(sampling=sampling, accountant=book, num_clients=300, min_clients=1)
    for round in (0, 1, 2, 3, 4, 5, 4, 5, 6):
        ledger.record(
            round, charged=[7], zone_sizes={"noised": 10}, total=10, releases={"noised": [row(round, 3)]},
            contributors={"noised": 1}, weights={7: 1.0}, secret_cohort=True,
        )  # fmt: skip
    assert ledger.epsilon() == 0.5
    one, two = 0.5**2, 0.375**2
    whole, spent = 1 + one + two, 1 + 2 * one + 2 * two  # round 3's is in both of rounds 4 and 5
    added = [releases for releases, _, adjacency in book.asked if adjacency == "zero_out"]
    asked = [sorted(m for _, m, _, count in releases for _ in range(count)) for releases in added]
    cohorts = {
        0: [SIGMA / math.sqrt(each) for each in (spent, whole, 1.0)],
        # Round 4's first time is in itself and in the first time of round 5, its second in round 6 too.
        1: [SIGMA / math.sqrt(each) for each in (whole, whole, 1 + one)],
    }
    for found, expected in zip(asked, cohorts.values(), strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    assert all(rate == pytest.approx(0.6) for releases, *_ in book.asked for _, _, rate, _ in releases)


def test_without_noise_only_clients_with_an_effect_pay_all() -> None:
    ledger = ledger_of()
    bare = dataclasses.replace(row(0), noise_multiplier=0.0)
    ledger.record(0, charged=[0], zone_sizes={"noised": 10}, total=10, releases={"noised": [bare]})
    total = ledger.costs["noised"].total
    assert math.isinf(total[0])
    assert (total[1:] == 0).all()


def test_noise_of_uploads_beneath_does_not_lower_the_price_of_the_sum() -> None:
    """The lesser of two accounts must not be chosen anew each round: that of the sum alone holds for the whole run."""
    with_local, without = ledger_of(), ledger_of()
    for round in range(3):
        entered(without, round, [0, 1, 2])
        with_local.record(
            round, charged=[0, 1, 2], zone_sizes={"noised": 10}, total=10,
            releases={"noised": [Release("gaussian", 100.0, 1.0), row(round)]},
        )  # fmt: skip
    assert np.array_equal(with_local.costs["noised"].total, without.costs["noised"].total)
    expected = 1 / effective_multiplier([100.0] * 3) ** 2
    assert np.allclose(with_local.costs["noised"].own[:3], expected)


# -- what it really costs, by the covariance of all that is released ---------------------------------------------------


def really(releases: Vectors, noises: Vectors, took_part: Vectors) -> float:
    """The largest mu^T S^-1 mu, for noise of covariance S and values of up to 1, of any sign, in one client's rows.

    Args:
        releases: how much of what a client gave in each row is in each release, (R, N).
        noises: of what was drawn, each of standard deviation 1, (R, M).
        took_part: bool (N,), in which rows the client had anything to give.
    """
    inverse = np.linalg.inv(noises @ noises.T)
    rows = np.flatnonzero(took_part)
    given = [releases[:, rows] @ np.array(signs) for signs in itertools.product((1.0, -1.0), repeat=len(rows))]
    return max((float(mu @ inverse @ mu) for mu in given), default=0.0)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=7), st.lists(st.booleans(), min_size=7, max_size=7),
    st.lists(st.booleans(), min_size=7, max_size=7),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_rounds_that_are_repeated_cost_what_they_release(
    goes_back: list[int], there: list[bool], released: list[bool]
) -> None:
    """A run that is killed again and again, back to some round each time, at the server that adds the noise; and some
    rounds are skipped.
    """
    ledger, round, count = ledger_of(rounds=8), 0, len(goes_back)
    noise: dict[int, Vectors] = {}
    rows = []
    for attempt, back in enumerate(goes_back):
        if released[attempt]:
            drawn = SIGMA * np.eye(count)[attempt]
            shares = row(round).takes_back or ()
            taken = (s * noise[round - k] for k, s in enumerate(shares, 1) if round - k in noise)
            noise[round] = drawn - sum(taken)
            rows.append((attempt, noise[round]))
            entered(ledger, round, [0] if there[attempt] else [1])
        round = max(0, round + 1 - back)
        noise = {r: kept for r, kept in noise.items() if r < round}
    if not rows:
        return
    seen = np.array([np.eye(count)[attempt] for attempt, _ in rows])
    worst = really(seen, np.array([kept for _, kept in rows]), np.array(there[:count]) & np.array(released[:count]))
    stated = ledger.costs["noised"].total[0]
    assert worst <= stated * (1 + 1e-9)
    if all(released[:count]):  # of one that is repeated and then skipped the ledger keeps who was in it before
        assert stated == pytest.approx(worst)


CLOSED = Release("gaussian", SIGMA, 1.0, trust="distributed")


@given(st.data())
@settings(max_examples=examples(120), deadline=None)
def test_the_price_of_shared_noise_covers_every_drop_out(data: st.DataObject) -> None:
    """Toward outsiders, and toward another client that knows its own noise; uploads that are lost, with and without
    noise that their client remembers, and sums that stay closed.
    """
    count, rounds = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 4))
    ledger = ledger_of({"noised": "shares"}, published=["noised"], num_clients=count, rounds=rounds)
    streams: list[dict[int, Vectors]] = [{} for _ in range(count)]
    basis = np.eye(count * rounds)
    seen, noises, asked = [], [], np.zeros(rounds, bool)
    for round in range(rounds):
        arrived = [c for c in range(count) if data.draw(st.sampled_from([True, True, True, False]))]
        shares = row(round).takes_back or ()
        for c in range(count):
            if c in arrived or data.draw(st.booleans()):
                back = (s * streams[c][round - k] for k, s in enumerate(shares, 1) if round - k in streams[c])
                streams[c][round] = SIGMA * basis[c * rounds + round] - sum(back)
        turn = data.draw(st.booleans())
        opened = len(arrived) > 1 and data.draw(st.sampled_from([True, True, False]))
        asked[round] = turn and 0 in arrived
        if opened:
            seen.append(np.eye(rounds)[round])
            noises.append(sum(streams[c][round] for c in arrived))
        ledger.record(
            round, charged=list(range(count)), zone_sizes={"noised": 10}, total=10,
            releases={"noised": [dataclasses.replace(CLOSED, takes_back=shares)]},
            contributors={"noised": len(arrived)} if opened else {}, weights=dict.fromkeys(arrived, 1.0),
            closed=() if opened else ["noised"], resting=[c for c in range(count) if c or not turn],
        )  # fmt: skip
    if not seen:
        return
    drawn = np.array(noises)
    costs = ledger.costs["noised"]
    assert really(np.array(seen), drawn, asked) <= costs.total[0] * (1 + 1e-9)
    for peer in range(1, count):
        unknown = np.delete(drawn, range(peer * rounds, (peer + 1) * rounds), axis=1)
        assert really(np.array(seen), unknown, asked) <= costs.peer[0] * (1 + 1e-9)


def test_one_that_drops_out_once_takes_its_noise_out_of_all_sums() -> None:
    def shared(missing: dict[int, int]) -> Ledger:
        ledger = ledger_of({"noised": "shares"}, published=["noised"])
        for round in range(6):
            here = [c for c in range(CLIENTS) if missing.get(round) != c]
            ledger.record(
                round, charged=list(range(CLIENTS)), zone_sizes={"noised": 10}, total=10,
                releases={"noised": [dataclasses.replace(CLOSED, takes_back=row(round).takes_back)]},
                contributors={"noised": len(here)}, weights=dict.fromkeys(here, 1.0),
            )  # fmt: skip
        return ledger

    all_there, missed = shared({}), shared({1: 4, 3: 5, 5: 4})
    base = (moved(6, list(range(6))) / SIGMA) ** 2
    for ledger, left in ((all_there, CLIENTS), (missed, CLIENTS - 2)):
        costs = ledger.costs["noised"]
        assert np.allclose(costs.total, base / left)
        assert np.allclose(costs.peer, base / (left - 1))
        assert np.allclose(costs.own, base)
    copied = missed.copy([RoundEntry.from_json(entry.to_json()) for entry in missed.log])
    assert np.allclose(copied.costs["noised"].peer, missed.costs["noised"].peer)


def test_a_cut_off_round_whose_sum_nobody_opened_has_released_nothing() -> None:
    ledger = ledger_of({"noised": "shares"}, published=["noised"])
    facts: dict[str, Any] = {
        "charged": [0, 1, 2], "zone_sizes": {"noised": 10}, "total": 10,
        "releases": {"noised": [dataclasses.replace(CLOSED, takes_back=())]},
    }  # fmt: skip
    ledger.record(0, **facts, closed=["noised"], repeated=True)
    assert (ledger.costs["noised"].total == 0).all()
    ledger.record(0, **facts, contributors={"noised": 3}, weights=dict.fromkeys(range(3), 1.0))
    assert np.allclose(ledger.costs["noised"].total[:3], 1 / SIGMA**2 / 3)
    ledger.record(1, **facts, closed=["noised"])  # skipped, and it is unknown which clients have added noise
    assert np.allclose(ledger.costs["noised"].total[:3], 2 / SIGMA**2)
