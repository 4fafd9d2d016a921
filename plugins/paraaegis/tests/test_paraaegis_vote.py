"""The vote: counted on ciphertexts, equal to a plain vote, blind to order, and the same at every client."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Layout, Plan
from fedplug.api.errors import ProtectionError
from fedplug.api.types import BASE_ZONES
from fedplug_kit.static import check_component
from fedplug_paraaegis.secret_ballot import IndexCipher, ballot_problem, nominated, tally
from fedplug_paraaegis.vote import Vote
from fedplug_std.scores import highest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

KEY = bytes(range(32))


def ranks(key: bytes, size: int) -> np.ndarray:
    """The ciphertext of each index."""
    found = np.empty(size, np.int64)
    found[IndexCipher.of(key, size).index_of] = np.arange(size)
    return found


def secret_of(*purpose: object) -> bytes:
    """What every client derives from the secret of the cohort."""
    return hashlib.sha256(repr(purpose).encode()).digest()


def plain_vote(scores: list[np.ndarray], seats: int, attempt: bytes, round: int = 0) -> list[int]:
    """The paper's rule without any encryption: most votes win, of equals the lowest ciphertext; slow and obvious."""
    size = len(scores[0])
    ciphertext = ranks(secret_of("ballot", round, attempt.hex()), size)
    equal_scores = ranks(secret_of("equal scores", round, attempt.hex()), size)
    votes = [0] * size
    for mine in scores:
        for index in sorted(range(size), key=lambda i: (-mine[i], equal_scores[i]))[:seats]:
            votes[index] += 1
    return sorted(sorted(range(size), key=lambda i: (-votes[i], ciphertext[i]))[:seats])


@dataclasses.dataclass
class FakeClient:
    """What the vote needs of a client."""

    scores_by = fedplug.Client.scores_by

    scores: dict[str, np.ndarray]
    ctx: Any
    plan: Plan | None = None
    cache: dict[str, Any] = dataclasses.field(default_factory=dict)

    def saved(self, seconds: float) -> None:
        """Nobody asks how long it takes."""

    def secret(self, component: Any, *purpose: object) -> bytes:
        assert purpose[1] == self.ctx.round  # a key of its own in every round
        return secret_of(*purpose)


@dataclasses.dataclass
class FakeContext:
    """A round with a layout of one layer a scalar pair."""

    layout: Layout
    round: int = 0
    zones: tuple[str, ...] = BASE_ZONES


class FakeCohort:
    """Runs asks and tells at once and keeps what crossed the wire."""

    def __init__(self, clients: dict[int, FakeClient]) -> None:
        self.clients = clients
        self.sent: list[Any] = []
        self.told: list[Any] = []

    def ask(self, method: Any, *payload: Any) -> dict[int, Any]:
        replies = {client_id: method(client, *payload) for client_id, client in self.clients.items()}
        self.sent += list(replies.values())
        return replies

    def tell(self, method: Any, *payload: Any) -> None:
        self.told += list(payload)
        for client in self.clients.values():
            method(client, *payload)


def vote(
    scores: list[np.ndarray], ratio: float, *, round: int = 0, decay: float = 1.0
) -> tuple[list[list[int]], FakeCohort]:
    """Runs a whole negotiation; gives each client's encrypted positions."""
    component = Vote(Vote.Options(ratio=ratio, decay=decay))
    component.name = "paraaegis.vote"
    ctx = FakeContext(Layout.of([("w", (len(scores[0]),))]), round)
    cohort = FakeCohort({i: FakeClient({"s": mine}, ctx) for i, mine in enumerate(scores)})
    component.negotiate_mask(cohort, ctx)  # type: ignore[arg-type]
    plans = [client.plan for client in cohort.clients.values()]
    assert all(plan is not None for plan in plans)
    return [plan.positions("encrypted").tolist() for plan in plans if plan], cohort


def scores(size: int = 40, clients: int = 5) -> st.SearchStrategy[list[np.ndarray]]:
    """Scores with many ties."""
    values = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])
    return st.lists(hnp.arrays(np.float32, size, elements=values), min_size=1, max_size=clients)


def test_conforms() -> None:
    check_component("paraaegis.vote")


def test_it_says_what_its_plans_and_its_ballots_are() -> None:
    """The share of a round may be all or nothing; only where it always is, nobody votes and the plan is public."""
    for options, zones, votes in (
        ({"ratio": 0.3}, {"encrypted", "noised"}, True),
        ({"ratio": 1.0, "decay": 0.9}, {"encrypted", "noised"}, True),
        ({"ratio": 1.0}, {"encrypted"}, False),
        ({"ratio": 0.0, "rest": "clear"}, {"clear"}, False),
    ):
        component = Vote(Vote.Options(**options))
        assert component.cohort_secret
        assert component.plans == fedplug.Plans(zones=frozenset(zones), own=frozenset(), public=not votes)
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
    """Spec 14, with ties; all clients get the same plan."""
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
    """Spec 13, first half; ties too."""
    shuffled = random.sample(everyone, len(everyone))
    assert vote(everyone, seats / 40)[0][0] == vote(shuffled, seats / 40)[0][0]


@given(scores(), st.permutations(range(40)), st.integers(1, 39), st.binary(min_size=32, max_size=32))
@settings(max_examples=120, deadline=None)
def test_the_vote_moves_with_the_indices(
    everyone: list[np.ndarray], permutation: list[int], seats: int, key: bytes
) -> None:
    """Spec 13, second half, with ties: renaming the indices renames the winners, and their ciphertexts stay."""
    order = np.array(permutation)
    cipher = IndexCipher.of(key, 40)
    renamed = IndexCipher(np.argsort(order)[cipher.index_of])  # the index that was order[i] is now i
    ballots = [np.argsort(mine, kind="stable")[:seats] for mine in everyone]
    winners = tally([cipher.encrypt(mine) for mine in ballots], 40, seats)
    moved = tally([renamed.encrypt(np.argsort(order)[mine]) for mine in ballots], 40, seats)
    assert np.array_equal(winners, moved)
    assert sorted(order[renamed.decrypt(moved)].tolist()) == sorted(cipher.decrypt(winners).tolist())


def thirds(winners: list[int], size: int) -> np.ndarray:
    """How many winners lie in each third of the model."""
    return np.bincount(np.array(winners) * 3 // size, minlength=3)


def test_ties_are_spread_evenly_over_the_model() -> None:
    """Five clients that agree on nothing: most seats go to scalars with one vote, of which there are too many.

    By lowest index, the first third of the model got 13.7% of its scalars encrypted, the second 8.9%, the last 7.4%.
    """
    rng = np.random.default_rng(0)
    everyone = [rng.random(9000, dtype=np.float32) for _ in range(5)]
    won = sum(thirds(vote(everyone, 0.1)[0][0], 9000) for _ in range(20))
    assert won.sum() == 20 * 900
    assert np.abs(won / won.sum() - 1 / 3).max() < 0.03  # 0.12 by lowest index


def test_equal_scores_are_spread_evenly_over_the_model() -> None:
    """Scores of whole layers are equal in thousands; by lowest index, all winners were in the first third."""
    won = thirds(vote([np.ones(9000, np.float32)] * 3, 0.1)[0][0], 9000)
    assert np.abs(won / 900 - 1 / 3).max() < 0.1  # six standard deviations


def test_a_tie_is_drawn_anew_in_every_vote_and_alike_at_every_client() -> None:
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


def test_a_ballot_does_not_show_how_many_scores_are_equal() -> None:
    """Votes for equal scores lie anywhere among the ciphertexts, as all others do; six standard deviations."""
    ballot = vote([np.ones(9000, np.float32)] * 3, 0.1)[1].sent[0]
    assert abs(np.flatnonzero(np.unpackbits(ballot)).mean() / 9000 - 0.5) < 6 / math.sqrt(12 * 900)


# -- a round that is repeated ------------------------------------------------------------------------------------------


def test_ballots_of_two_attempts_at_a_round_cannot_be_linked() -> None:
    """Under a key of the round alone they were the same; by chance, 65 votes of 1000 share 4.2."""
    everyone = [np.random.default_rng(client).random(1000, np.float32) for client in range(4)]
    first, second = (vote(everyone, 0.065)[1].sent for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert int(np.unpackbits(one & other).sum()) < 17  # six standard deviations above


def test_who_missed_the_ballot_reads_the_winners_all_the_same() -> None:
    component = Vote(Vote.Options(ratio=0.2))
    component.name = "paraaegis.vote"
    ctx = FakeContext(Layout.of([("w", (50,))]), round=3)
    mine = np.random.default_rng(1).random(50, np.float32)
    asked, absent = FakeClient({"s": mine}, ctx), FakeClient({"s": mine}, ctx)
    cohort = FakeCohort({0: asked})
    component.negotiate_mask(cohort, ctx)  # type: ignore[arg-type]
    component.adopt(absent, *cohort.told)  # type: ignore[arg-type]
    assert asked.plan is not None
    assert absent.plan is not None
    assert np.array_equal(absent.plan.positions("encrypted"), asked.plan.positions("encrypted"))


def test_a_client_that_was_asked_twice_reads_the_winners_of_the_second_vote() -> None:
    """The permutation that it keeps is that of an attempt, not of a round."""
    component = Vote(Vote.Options(ratio=0.2))
    component.name = "paraaegis.vote"
    mine = np.random.default_rng(1).random(50, np.float32)
    client = FakeClient({"s": mine}, FakeContext(Layout.of([("w", (50,))])))
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
    ctx = FakeContext(Layout.of([("w", (50,))]))
    cohort = FakeCohort({i: FakeClient({"s": mine}, ctx) for i, mine in enumerate(everyone)})
    component.negotiate_mask(cohort, ctx)  # type: ignore[arg-type]
    for client in cohort.clients.values():
        assert client.plan is not None
        assert client.plan.sizes() == {"encrypted": 10, "noised": 40, "retained": 0, "clear": 0}
        assert {"encrypted", "noised"} <= client.plan.shared


def test_the_scorer_that_decides_can_be_named() -> None:
    component = Vote(Vote.Options(ratio=0.5, by="other"))
    component.name = "paraaegis.vote"
    ctx = FakeContext(Layout.of([("w", (4,))]))
    both = {"first": np.array([9, 9, 0, 0], np.float32), "other": np.array([0, 0, 1, 1], np.float32)}
    cohort = FakeCohort({0: FakeClient(both, ctx)})
    component.negotiate_mask(cohort, ctx)  # type: ignore[arg-type]
    plan = cohort.clients[0].plan
    assert plan is not None
    assert plan.positions("encrypted").tolist() == [2, 3]


def test_scores_of_layers_are_spread_over_their_scalars() -> None:
    ctx = FakeContext(Layout.of([("a.weight", (2, 2)), ("b.weight", (3,)), ("a.bias", (2,))]))
    spread = ctx.layout.per_scalar(np.array([5, 7], np.float32))
    assert spread.tolist() == [5, 5, 5, 5, 7, 7, 7, 5, 5]
    whole = np.arange(9, dtype=np.float32)
    assert ctx.layout.per_scalar(whole) is whole


@given(hnp.arrays(np.float32, 20, elements=st.sampled_from([0.0, -1.0, 2.5, 3.0])), st.integers(1, 19))
def test_the_highest_are_those_that_a_sort_gives(values: np.ndarray, count: int) -> None:
    assert sorted(highest(values, count).tolist()) == sorted(np.argsort(-values, kind="stable")[:count].tolist())


@pytest.mark.parametrize("count", [1, 500, 20_000, 199_999])
@pytest.mark.parametrize("kind", ["apart", "alike", "ascending", "few above many", "the sample is too low"])
def test_the_highest_of_many_are_those_that_a_sort_gives(kind: str, count: int) -> None:
    values = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    if kind == "alike":
        values = values.round(1)
    elif kind == "ascending":
        values.sort()
    elif kind == "few above many":
        values[5000:] = 0
    elif kind == "the sample is too low":  # every 48th score is looked at first
        values[::48] = -9
    assert sorted(highest(values, count).tolist()) == sorted(np.argsort(-values, kind="stable")[:count].tolist())


# -- the encryption of the indices -------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 200)), st.binary(min_size=32, max_size=32))
def test_a_ballot_decrypts_to_its_indices(indices: set[int], key: bytes) -> None:
    cipher = IndexCipher.of(key, 201)
    ballot = cipher.encrypt(np.array(sorted(indices), np.int64))
    assert len(ballot) == 26  # 201 bits
    assert set(cipher.decrypt(ballot).tolist()) == indices


def test_it_is_a_permutation_that_the_key_alone_decides() -> None:
    for size in (1, 2, 3, 1000, 4097):
        cipher = IndexCipher.of(KEY, size)
        assert sorted(cipher.index_of.tolist()) == list(range(size))
        assert np.array_equal(cipher.index_of, IndexCipher.of(KEY, size).index_of)
    other = IndexCipher.of(bytes(32), 1000).index_of
    fixed = int((other == IndexCipher.of(KEY, 1000).index_of).sum())
    assert fixed < 10  # of two unrelated permutations, one index agrees on average


def test_a_permutation_shows_nothing_of_where_an_index_lies() -> None:
    """Ranks of neighbouring indices are as far apart as those of any two; six standard deviations."""
    size = 20_000
    rank = np.empty(size)
    rank[IndexCipher.of(KEY, size).index_of] = np.arange(size)
    assert abs(np.abs(np.diff(rank)).mean() / (size / 3) - 1) < 6 / math.sqrt(2 * size)
    assert abs(np.corrcoef(rank, np.arange(size))[0, 1]) < 6 / math.sqrt(size)


@pytest.mark.parametrize("size", [5, 8, 1000])
def test_the_tally_counts_without_the_key(size: int) -> None:
    cipher = IndexCipher.of(KEY, size)
    ballots = [cipher.encrypt(np.array(mine)) for mine in ([0, 1, 4], [1, 4, 2], [4, 1, 3])]
    ciphertext = ranks(KEY, size)
    third = min((0, 2, 3), key=lambda index: ciphertext[index])
    assert sorted(cipher.decrypt(tally(ballots, size, 3)).tolist()) == sorted([1, 4, third])
    assert sorted(cipher.decrypt(tally(ballots, size, 2)).tolist()) == [1, 4]


def test_the_server_sees_bitmaps_of_p_bits_and_no_index() -> None:
    everyone = list(np.random.default_rng(3).random((4, 1000), np.float32))
    _, cohort = vote(everyone, 0.1)
    assert [len(ballot) for ballot in cohort.sent] == [125] * 4
    assert [np.unpackbits(ballot).sum() for ballot in cohort.sent] == [100] * 4
    plain = [np.packbits(np.isin(np.arange(1000), highest(mine, 100))) for mine in everyone]
    assert not any(np.array_equal(ballot, one) for ballot, one in zip(cohort.sent, plain, strict=True))
    attempt, winners = cohort.told
    assert len(attempt) == 16
    assert np.unpackbits(winners).sum() == 100


def test_ballots_of_two_rounds_cannot_be_linked() -> None:
    everyone = [np.arange(1000, dtype=np.float32)] * 2
    first, second = (vote(everyone, 0.1, round=round)[1].sent[0] for round in (0, 1))
    common = int(np.unpackbits(first & second).sum())
    assert common < 30  # 10 of 100 by chance


@given(st.sets(st.integers(0, 40), min_size=1), st.binary(min_size=32, max_size=32))
def test_every_honest_ballot_passes(indices: set[int], key: bytes) -> None:
    assert ballot_problem(IndexCipher.of(key, 41).encrypt(sorted(indices)), 41, len(indices)) == ""


@pytest.mark.parametrize(
    ("ballot", "problem"),
    [
        (None, "is NoneType"),
        (b"\xc0\x00", "is bytes"),
        (np.array([192, 0], np.int64), r"is int64\[2\], which must be uint8\[2\]"),
        (np.array([192, 0], np.float32), "is float32"),
        (np.array([192], np.uint8), r"is uint8\[1\]"),
        (np.array([[192, 0]], np.uint8), r"is uint8\[1, 2\]"),
        (np.array([255, 255], np.uint8), "votes beyond the 10 indices"),
        (np.array([128, 32], np.uint8), "votes beyond"),
        (np.array([128, 0], np.uint8), "holds 1 votes, which must be 2"),
        (np.array([255, 192], np.uint8), "holds 10 votes, which must be 2"),
    ],
)
def test_a_ballot_that_is_none_is_found(ballot: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        raise ValueError(ballot_problem(ballot, 10, 2))
    assert ballot_problem(np.array([128, 64], np.uint8), 10, 2) == ""


@pytest.mark.parametrize("undefined", [1, 8, 10])
def test_scores_that_are_nan_have_no_highest(undefined: int) -> None:
    values = np.arange(10, dtype=np.float32)
    values[:undefined] = np.nan
    for count in (1, 5):
        with pytest.raises(ProtectionError, match=f"{undefined} of 10 scores are NaN.* lower lr in train"):
            highest(values, count)
    assert len(highest(np.array([np.inf, -np.inf, 0, np.inf], np.float32), 3)) == 3
