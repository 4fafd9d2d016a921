"""The vote: equal to a plain vote, blind to order, and the same at every client."""

from __future__ import annotations

import math
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Layout
from fedplug_kit.static import check_component
from fedplug_paraaegis.secret_ballot import IndexCipher, nominated, tally
from fedplug_paraaegis.vote import Vote
from fedplug_std.scores import highest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from vote_toys import KEY, FakeClient, FakeCohort, facts_of, plain_vote, ranks, scores, secret_of, vote


def test_conforms() -> None:
    check_component("paraaegis.vote")


def test_it_says_what_its_plans_and_its_ballots_are() -> None:
    """The share of a round may be all or nothing. Only if it always is, no client votes and the plan is public."""
    for options, zones, votes in (
        ({"ratio": 0.3}, {"encrypted", "noised"}, True),
        ({"ratio": 1.0, "decay": 0.9}, {"encrypted", "noised"}, True),
        ({"ratio": 1.0}, {"encrypted"}, False),
        ({"ratio": 0.0, "other_zone": "clear"}, {"clear"}, False),
    ):
        component = Vote(Vote.Options(**options))
        assert component.cohort_secret
        assert component.plans == fedplug.Plans(zones=frozenset(zones))
        asked = [method for shown in component.reveals(None) for method in shown.asked]  # type: ignore[arg-type]
        assert asked == (["nominate"] if votes else [])
        assert not any(shown.covered_by for shown in component.reveals(None))  # type: ignore[arg-type]


def test_vote_matches_the_worked_example() -> None:
    """Three clients, six scalars, ratio 1/2: counted by hand.

    Nominations: client 0 {1, 4, 5}, client 1 {1, 2, 4}, client 2 {4, 1, 3}. Votes: index 1: 3, 2: 1, 3: 1, 4: 3, 5: 1.
    Winners 1 and 4; 2, 3 and 5 tie for the last seat, and the lowest ciphertext of the three gets it.
    """
    everyone = [
        np.array([1, 9, 2, 0, 8, 7], np.float32),
        np.array([0, 5, 6, 1, 7, 2], np.float32),
        np.array([2, 4, 1, 3, 9, 0], np.float32),
    ]
    encrypted, cohort = vote(everyone, 0.5)
    ciphertext = ranks(secret_of("ballot", 0, cohort.told[0].hex()), 6)
    third = min((2, 3, 5), key=lambda index: ciphertext[index])
    assert encrypted == [sorted([1, 4, third])] * 3
    assert plain_vote(everyone, 3, cohort.told[0]) == encrypted[0]


@given(scores(), st.integers(1, 39), st.integers(0, 3))
@settings(max_examples=120, deadline=None)
def test_the_encrypted_vote_is_the_plain_vote(everyone: list[np.ndarray], seats: int, round: int) -> None:
    """Spec 14, with ties. All clients get the same plan."""
    encrypted, cohort = vote(everyone, seats / 40, round=round)
    assert encrypted == [plain_vote(everyone, seats, cohort.told[0], round)] * len(everyone)


@pytest.fixture
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every negotiation draws the same number, so that two can be compared."""
    monkeypatch.setattr("fedplug_paraaegis.vote.secrets.token_bytes", bytes)


@given(scores(), st.integers(1, 39), st.randoms())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("one_attempt")
def test_the_vote_does_not_depend_on_the_order_of_clients(everyone: list[np.ndarray], seats: int, random: Any) -> None:
    """Spec 13, first half, including ties."""
    shuffled = random.sample(everyone, len(everyone))
    assert vote(everyone, seats / 40)[0][0] == vote(shuffled, seats / 40)[0][0]


@given(scores(), st.permutations(range(40)), st.integers(1, 39), st.binary(min_size=32, max_size=32))
@settings(max_examples=120, deadline=None)
def test_the_vote_moves_with_the_indices(
    everyone: list[np.ndarray], permutation: list[int], seats: int, key: bytes
) -> None:
    """Spec 13, second half, with ties: renaming the indices renames the winners. Their ciphertexts do not change."""
    order = np.array(permutation)
    cipher = IndexCipher.of(key, 40)
    renamed = IndexCipher(np.argsort(order)[cipher.index_of])  # the index that was order[i] is now i
    ballots = [np.argsort(mine, kind="stable")[:seats] for mine in everyone]
    winners = tally([cipher.encrypt(mine) for mine in ballots], 40, seats)
    moved = tally([renamed.encrypt(np.argsort(order)[mine]) for mine in ballots], 40, seats)
    assert np.array_equal(winners, moved)
    assert sorted(order[renamed.decrypt(moved)].tolist()) == sorted(cipher.decrypt(winners).tolist())


def thirds(winners: list[int], size: int) -> np.ndarray:
    """The number of winners in each third of the model."""
    return np.bincount(np.array(winners) * 3 // size, minlength=3)


def test_ties_are_spread_evenly_over_the_model() -> None:
    """Five clients agree on nothing. Most seats go to scalars with one vote, and there are too many of these.

    By lowest index, the first third of the model got 13.7% of its scalars encrypted, the second 8.9%, the last 7.4%.
    """
    rng = np.random.default_rng(0)
    everyone = [rng.random(9000, dtype=np.float32) for _ in range(5)]
    won = sum(thirds(vote(everyone, 0.1)[0][0], 9000) for _ in range(20))
    assert won.sum() == 20 * 900
    assert np.abs(won / won.sum() - 1 / 3).max() < 0.03  # 0.12 by lowest index


def test_equal_scores_are_spread_evenly_over_the_model() -> None:
    """Thousands of scores in a layer are equal. By lowest index, all winners were in the first third."""
    won = thirds(vote([np.ones(9000, np.float32)] * 3, 0.1)[0][0], 9000)
    assert np.abs(won / 900 - 1 / 3).max() < 0.1  # six standard deviations


def test_a_tie_is_redrawn_in_every_vote_the_same_at_every_client() -> None:
    everyone = [np.eye(8, dtype=np.float32)[i] for i in (7, 6, 3, 5)]  # four different favourites
    drawn = [vote(everyone, 1 / 8)[0] for _ in range(60)]
    assert all(one == [one[0]] * 4 for one in drawn)
    assert {one[0][0] for one in drawn} == {3, 5, 6, 7}  # one is missed once in ten million runs


@given(hnp.arrays(np.float32, 30, elements=st.sampled_from([0.0, 1.0, 2.0])), st.integers(0, 30))
def test_nominated_are_the_highest_scores_whatever_the_key(mine: np.ndarray, seats: int) -> None:
    for key in (KEY, bytes(32)):
        chosen = nominated(mine, seats, key)
        assert len(set(chosen.tolist())) == seats
        assert sorted(mine[chosen].tolist()) == sorted(mine.tolist())[30 - seats :]


def test_a_client_that_missed_the_ballot_still_reads_the_winners() -> None:
    component = Vote(Vote.Options(ratio=0.2))
    component.name = "paraaegis.vote"
    facts = facts_of(component, Layout.of([("w", (50,))]), round=3)
    mine = np.random.default_rng(1).random(50, np.float32)
    asked, absent = FakeClient({"s": mine}, facts), FakeClient({"s": mine}, facts)
    cohort = FakeCohort({0: asked})
    component.negotiate_mask(cohort, facts)  # type: ignore[arg-type]
    component.adopt(absent, *cohort.told)  # type: ignore[arg-type]
    assert asked.plan is not None
    assert absent.plan is not None
    assert np.array_equal(absent.plan.positions("encrypted"), asked.plan.positions("encrypted"))


def test_a_client_that_was_asked_twice_reads_the_winners_of_the_second_vote() -> None:
    """The permutation that it keeps belongs to an attempt, not to a round."""
    component = Vote(Vote.Options(ratio=0.2))
    component.name = "paraaegis.vote"
    mine = np.random.default_rng(1).random(50, np.float32)
    client = FakeClient({"s": mine}, facts_of(component, Layout.of([("w", (50,))])))
    component.nominate(client, b"first")  # type: ignore[arg-type]
    ballot = component.nominate(client, b"second")  # type: ignore[arg-type]
    component.adopt(client, b"second", ballot)  # type: ignore[arg-type]
    assert client.plan is not None
    assert client.plan.positions("encrypted").tolist() == sorted(highest(mine, 10).tolist())


@given(st.floats(0.001, 0.999), st.floats(0.5, 1), st.integers(0, 20), st.integers(1, 10**7))
def test_the_share_is_floor_of_ratio_times_decay_to_the_round(ratio: float, decay: float, t: int, size: int) -> None:
    """Spec 12."""
    seats = Vote(Vote.Options(ratio=ratio, decay=decay)).seats(t, size)
    exact = ratio * decay**t * size
    assert seats in (math.floor(exact), math.floor(exact + 1e-6))
    assert 0 <= seats <= size


@pytest.mark.parametrize(
    ("ratio", "decay", "round", "size", "seats"),
    [(0.29, 1.0, 0, 100, 29), (0.3, 0.9, 1, 1000, 270), (0.2, 0.9, 2, 1000, 162), (0.5, 0.9, 9, 235_146, 45550),
     (1.0, 1.0, 5, 77, 77), (0.0, 1.0, 0, 77, 0), (0.1, 1.0, 0, 9, 0), (0.7, 1.0, 0, 10, 7)],
)  # fmt: skip
def test_seats_by_hand(ratio: float, decay: float, round: int, size: int, seats: int) -> None:
    assert Vote(Vote.Options(ratio=ratio, decay=decay)).seats(round, size) == seats


def test_a_round_without_seats_or_with_all_asks_nobody() -> None:
    everyone = [np.ones(10, np.float32)] * 3
    for ratio, expected in ((0.05, []), (1.0, list(range(10)))):
        encrypted, cohort = vote(everyone, ratio)
        assert encrypted == [expected] * 3
        assert cohort.sent == []


def test_the_rest_is_noised_and_the_plan_is_shared() -> None:
    everyone = list(np.random.default_rng(1).random((3, 50), np.float32))
    component = Vote(Vote.Options(ratio=0.2))
    component.name = "paraaegis.vote"
    facts = facts_of(component, Layout.of([("w", (50,))]))
    cohort = FakeCohort({i: FakeClient({"s": mine}, facts) for i, mine in enumerate(everyone)})
    component.negotiate_mask(cohort, facts)  # type: ignore[arg-type]
    for client in cohort.clients.values():
        assert client.plan is not None
        assert client.plan.sizes() == {"encrypted": 10, "noised": 40, "retained": 0, "clear": 0}
        assert client.plan is cohort.clients[0].plan


def test_the_scorer_that_decides_can_be_named() -> None:
    component = Vote(Vote.Options(ratio=0.5, by="other"))
    component.name = "paraaegis.vote"
    facts = facts_of(component, Layout.of([("w", (4,))]))
    both = {"first": np.array([9, 9, 0, 0], np.float32), "other": np.array([0, 0, 1, 1], np.float32)}
    cohort = FakeCohort({0: FakeClient(both, facts)})
    component.negotiate_mask(cohort, facts)  # type: ignore[arg-type]
    plan = cohort.clients[0].plan
    assert plan is not None
    assert plan.positions("encrypted").tolist() == [2, 3]


def test_scores_of_layers_are_spread_over_their_scalars() -> None:
    layout = Layout.of([("a.weight", (2, 2)), ("b.weight", (3,)), ("a.bias", (2,))])
    spread = layout.per_scalar(np.array([5, 7], np.float32))
    assert spread.tolist() == [5, 5, 5, 5, 7, 7, 7, 5, 5]
    whole = np.arange(9, dtype=np.float32)
    assert layout.per_scalar(whole) is whole
