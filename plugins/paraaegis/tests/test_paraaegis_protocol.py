"""ParaAegis as a whole: its limits are FedAvg, DP-FedAvg and encrypted FedAvg. The wire shows no encrypted value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug_paraaegis.vote import Vote
from fedplug_runs.wire_record import Wire
from toy_components import paraaegis, pushed, recipe_of
from toy_protocol import Outcome, build, initial_vector, run_protocol, weights_of

CLIP = {"use": "std.clip", "norm": 1.0}
NOISE = {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5, "source": "reproducible"}
PUSH = {"use": "toy.push"}


def seal(scheme: str) -> dict[str, Any]:
    return {"use": scheme, "key_holder": "clients", "range": 1.0}


def test_ratio_0_is_dp_fedavg_bit_for_bit() -> None:
    """Spec 11."""
    nothing_encrypted = run_protocol(paraaegis(0.0, noised=[CLIP, NOISE], rounds=3))
    dp_fedavg = run_protocol(recipe_of("noised", [CLIP, NOISE], rounds=3))
    assert np.array_equal(nothing_encrypted.vector, dp_fedavg.vector)
    assert not np.array_equal(dp_fedavg.vector, run_protocol(recipe_of(rounds=3)).vector)


@pytest.mark.parametrize("scheme", ["std.bfv", "std.ckks"])
def test_ratio_1_is_encrypted_fedavg_bit_for_bit(scheme: str) -> None:
    """Spec 11. Both schemes round sums to a public grid, so the randomness of encryption leaves no trace."""
    all_encrypted = run_protocol(paraaegis(1.0, seal=seal(scheme), rounds=2))
    fedavg = run_protocol(recipe_of("encrypted", [seal(scheme)], rounds=2))
    assert np.array_equal(all_encrypted.vector, fedavg.vector)


def test_without_noise_and_clip_it_is_fedavg() -> None:
    """Spec 15: no noise, a huge clip, the mean of all. Only CKKS' grid, halved and averaged, makes a difference."""
    uniform = {"use": "std.mean", "weighting": "uniform"}
    plain = paraaegis(0.3, seal=seal("std.ckks"), noised=[{"use": "std.clip", "norm": 1e6}], aggregate=uniform)
    fedavg = run_protocol(recipe_of(aggregate=uniform))
    half = run_protocol(plain)
    assert np.abs(half.vector - fedavg.vector).max() < 1e-4  # training amplifies the first round's 2^-18
    assert np.abs(fedavg.vector - initial_vector(plain)).max() > 1e-2
    first = {**plain, "rounds": 1}
    difference = np.abs(run_protocol(first).vector - run_protocol(recipe_of(aggregate=uniform, rounds=1)).vector)
    assert difference.max() <= 2.0**-18 + 1e-7


def test_the_noise_of_the_rest_is_that_of_dp_fedavg_and_the_encrypted_zone_has_none() -> None:
    """Spec 18, last part: off-zone noise is exactly 0."""
    noised = [CLIP, {"use": "std.gaussian", "noise_multiplier": 5.0, "source": "reproducible"}]
    plain = paraaegis(0.4, noised=noised, train=PUSH, rounds=1, seal={**seal("std.bfv"), "range": 0.125})
    outcome = run_protocol(plain)
    start, weights = initial_vector(plain), weights_of(outcome)
    updates = {c: pushed(start, 7, c, 0) for c in range(4)}
    mean = sum(weights[c] * updates[c].astype(np.float64) for c in range(4)) / sum(weights.values())
    error = np.abs(outcome.vector - start - mean)
    quiet = error < 1e-5
    assert quiet.sum() == Vote(Vote.Options(ratio=0.4)).seats(0, len(start)) == 260
    assert np.median(error[~quiet]) > 0.5


@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_the_encrypted_share_is_floor_of_ratio_times_size(decay: float) -> None:
    """Spec 12."""
    outcome = run_protocol(paraaegis(0.3, decay=decay, rounds=3))
    sizes = [round(row.zones["encrypted"] * 650) for row in outcome.rows]
    assert sizes == [int(0.3 * decay**t * 650 + 1e-9) for t in range(3)]
    assert outcome.rows[1].mask_churn > 0


def encrypted_values(outcome: Outcome, plain: dict[str, Any]) -> np.ndarray:
    """Round 1's updates of scalars that were surely encrypted, and their weighted mean: rows of distinctive floats.

    Scalars that tied for the last seats are left out: which of them won, only the clients know.
    """
    start, weights = initial_vector(plain), weights_of(outcome)
    updates = np.stack([pushed(start, 7, c, 0) for c in range(4)])
    seats = 195
    votes = np.zeros(650, int)
    for update in updates:
        votes[np.argsort(-np.abs(update), kind="stable")[:seats]] += 1
    winners = np.flatnonzero(votes > np.sort(votes)[-seats])
    assert len(winners) > 20
    column = np.array([weights[c] for c in range(4)])[:, None]
    weighted = (updates * column).astype(np.float32)
    total = np.zeros(650)
    for update, weight in zip(updates, column, strict=True):  # in this order and with this rounding, as the server adds
        total += update * weight
    mean = (total.astype(np.float32) / np.float64(sum(weights.values()))).astype(np.float32)
    return np.concatenate([updates, weighted, mean[None]])[:, winners]


def found_on(wire: bytes, values: np.ndarray) -> int:
    return sum(value.tobytes() in wire for value in values.astype("<f4").ravel())


@pytest.mark.parametrize("scheme", ["std.bfv", "std.ckks"])
def test_the_wire_holds_no_float_of_the_encrypted_zone(scheme: str) -> None:
    """Searches every captured byte for every 4-byte pattern of the encrypted scalars: updates, weighted, their mean."""
    plain = paraaegis(0.3, seal={**seal(scheme), "range": 0.125}, noised=[], train=PUSH, rounds=1)
    outcome = run_protocol(plain)
    values = encrypted_values(outcome, plain)
    wire = b"".join(message.data for message in outcome.wire.messages)
    # Any given pattern occurs somewhere in that many random bytes with this probability; the search must be near it.
    by_chance = values.size * len(wire) / 2**32
    assert by_chance < 0.5
    assert found_on(wire, values) < 5
    noised = pushed(initial_vector(plain), 7, 0, 0)
    assert found_on(wire, noised) >= 650 - 195  # and the other zone, here sent bare, is found at once


def test_the_search_finds_what_is_sent_in_the_clear() -> None:
    """The test above can fail: under clear: [] the same scalars are found, every update of every client."""
    plain = paraaegis(0.3, noised=[], train=PUSH, rounds=1)
    plain["negotiate_mask"] = {"use": "std.single_zone", "zone": "clear"}
    plain |= {"protect": {"clear": []}, "postprocess": {}}
    outcome = run_protocol(plain)
    values = encrypted_values(outcome, plain)
    wire = b"".join(message.data for message in outcome.wire.messages)
    assert found_on(wire, values[:4]) == values[:4].size
    assert found_on(wire, values[-1:]) == values[-1:].size  # and their mean


def test_ballots_and_winners_show_no_index() -> None:
    """The server relays bitmaps under the clients' key. They differ from the mask that the clients adopt."""
    plain = paraaegis(0.3, train=PUSH, rounds=1)
    outcome = run_protocol(plain)
    upload = outcome.sent("client:0", round=0)[1].decode()
    attempt, winners = upload["calls"][0][4]
    assert len(attempt) == 16
    assert np.unpackbits(winners).sum() == 195
    start = initial_vector(plain)
    plain_ballot = np.packbits(np.isin(np.arange(650), np.argsort(-np.abs(pushed(start, 7, 0, 0)))[:195]))
    ballots = [m.decode()["value"] for m in outcome.sent("server", round=0) if m.phase == "negotiate"]
    assert all(np.unpackbits(ballot).sum() == 195 for ballot in ballots)
    assert plain_ballot.tobytes() not in b"".join(message.data for message in outcome.wire.messages)


def test_ballots_of_a_repeated_round_cannot_be_compared_with_the_first(tmp_path: Path) -> None:
    """The clients' secret outlives the kill. If the key depended only on it and the round, equal nominations would give
    equal ballots: all 195 votes in common. By chance it is 58.5.
    """
    plain = paraaegis(0.3, train=PUSH, rounds=1)
    first, engine, _ = build(plain)
    first.setup()
    engine.save(tmp_path)
    state = first.state()
    first.run()
    second, engine, _ = build(plain)
    engine.load(tmp_path)
    second.restore(state)
    second.run()

    def ballots(wire: Wire) -> list[np.ndarray]:
        return [m.decode()["value"] for m in wire.messages if m.receiver == "server" and m.phase == "negotiate"]

    assert len(ballots(first.wire)) == 4
    for one, other in zip(ballots(first.wire), ballots(second.wire), strict=True):
        assert abs(int(np.unpackbits(one & other).sum()) - 58.5) < 40  # more than six standard deviations


def test_max_selection_trains_and_min_selection_does_not() -> None:
    """A small ablation of Table 2: with strong noise on the rest, the encrypted part decides."""
    noised = [CLIP, {"use": "std.gaussian", "noise_multiplier": 0.05, "source": "reproducible"}]
    kept = {}
    for strategy in ("max", "min"):
        plain = paraaegis(0.3, noised=noised, rounds=1)
        plain["score_parameters"] = [{"use": "paraaegis.magnitude", "strategy": strategy}]
        start, outcome = initial_vector(plain), run_protocol(plain)
        exact = run_protocol(recipe_of(rounds=1)).vector - start
        quiet = np.abs(outcome.vector - start - exact) < 1e-5
        kept[strategy] = float((exact[quiet] ** 2).sum() / (exact**2).sum())
    assert kept["max"] > 0.6
    assert kept["min"] < 0.15  # of three tenths of the scalars
