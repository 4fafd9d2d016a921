"""Ballots: encrypted indices that can be counted, reveal nothing, and cannot be linked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Layout
from fedplug.api.errors import ProtectionError
from fedplug_paraaegis.secret_ballot import IndexCipher, ballot_problem, tally
from fedplug_paraaegis.vote import Vote
from fedplug_runs.checkpoint import StateFiles
from fedplug_std.scores import highest
from hypothesis import given
from hypothesis import strategies as st
from vote_toys import KEY, FakeClient, facts_of, ranks, vote

# -- ballots -----------------------------------------------------------------------------------------------------------


def test_a_ballot_does_not_show_how_many_scores_are_equal() -> None:
    """Votes for equal scores are anywhere among the ciphertexts, like all others, within six standard deviations."""
    ballot = vote([np.ones(9000, np.float32)] * 3, 0.1)[1].sent[0]
    assert abs(np.flatnonzero(np.unpackbits(ballot)).mean() / 9000 - 0.5) < 6 / math.sqrt(12 * 900)


def test_ballots_of_two_attempts_at_a_round_cannot_be_linked() -> None:
    """Under a key that depended on the round alone they were the same. By chance, 65 votes of 1000 share 4.2."""
    everyone = [np.random.default_rng(client).random(1000, np.float32) for client in range(4)]
    first, second = (vote(everyone, 0.065)[1].sent for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert int(np.unpackbits(one & other).sum()) < 17  # six standard deviations above


def test_a_client_gives_one_ballot_under_a_key_though_the_server_says_which_attempt_it_is(tmp_path: Path) -> None:
    """Also after it went back to a checkpoint: what it has used is on its disk before the ballot leaves."""
    one, other = np.random.default_rng(1).random((2, 1000), np.float32)
    component = Vote(Vote.Options(ratio=0.065)).varied(name="paraaegis.vote")
    attempt = bytes(16)

    def back(scores: np.ndarray) -> Any:
        facts = facts_of(component, Layout.of([("w", (1000,))]))
        return FakeClient({"s": scores}, facts, openings=StateFiles(tmp_path).openings(["client:0"])["client:0"])

    ballot = component.nominate(back(one), attempt)
    assert np.array_equal(component.nominate(back(one), attempt), ballot)  # which shows nothing new
    with pytest.raises(ProtectionError, match=r"ballot key 0+ .* in round 1 was used before, for something else"):
        component.nominate(back(other), attempt)
    assert component.nominate(back(other), bytes(15) + b"1").shape == ballot.shape


def test_ballots_of_two_rounds_cannot_be_linked() -> None:
    everyone = [np.arange(1000, dtype=np.float32)] * 2
    first, second = (vote(everyone, 0.1, round=round)[1].sent[0] for round in (0, 1))
    common = int(np.unpackbits(first & second).sum())
    assert common < 30  # 10 of 100 by chance


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
        (np.array([255, 255], np.uint8), "marks scalars beyond the 10 there are"),
        (np.array([128, 32], np.uint8), "marks scalars beyond"),
        (np.array([128, 0], np.uint8), "holds 1 votes, which must be 2"),
        (np.array([255, 192], np.uint8), "holds 10 votes, which must be 2"),
    ],
)
def test_a_ballot_that_is_none_is_found(ballot: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        raise ValueError(ballot_problem(ballot, 10, 2))
    assert ballot_problem(np.array([128, 64], np.uint8), 10, 2) == ""


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


def test_a_permutation_reveals_no_index() -> None:
    """Ranks of neighbouring indices are as far apart as those of any two, within six standard deviations."""
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
