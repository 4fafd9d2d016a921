"""SelectiveShield as a whole: its limits FedAvg and DP-FedAvg, and the sent, kept, opened and merged values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Client, Facts, Layout, Misplaced
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.links import Link, fold
from fedplug.mechanisms.execution import execute
from fedplug_kit.static import check_component
from fedplug_selectiveshield.merge import Merge
from numpy.typing import NDArray
from shield_toys import CLIP, NOISE, UNIFORM, Saved, saved, shield, uploads
from toy_components import recipe_of
from toy_protocol import Outcome, calls_of, initial_vector, run_protocol


@pytest.mark.parametrize("name", ["hide_support", "two_server", "merge"])
def test_conforms(name: str) -> None:
    check_component(f"selectiveshield.{name}")


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fedavg() -> Outcome:
    """Two rounds in the clear."""
    return run_protocol(recipe_of(aggregate=UNIFORM))


def test_tau_1_is_dp_fedavg_bit_for_bit(fedavg: Outcome) -> None:
    """Spec 7. The same seed and names give the same noise, with the noise of either plugin."""
    for ours, theirs in ((NOISE, NOISE), ({**NOISE, "name": "dp"}, {**NOISE, "use": "std.gaussian", "name": "dp"})):
        nothing_marked = run_protocol(shield([CLIP, ours], tau=1.0))
        dp_fedavg = run_protocol(recipe_of("noised", [CLIP, theirs], aggregate=UNIFORM))
        assert np.array_equal(nothing_marked.vector, dp_fedavg.vector)
    assert not np.array_equal(dp_fedavg.vector, fedavg.vector)


def test_tau_1_makes_no_ciphertext_and_asks_the_key_server_for_nothing() -> None:
    """Spec 39."""
    outcome = run_protocol(shield(tau=1.0))
    assert [set(blocks) for blocks in uploads(outcome, 0).values()] == [{"noised"}] * 4
    assert {m.round for m in outcome.sent("key_server")} == {-1}  # to make its keys
    assert outcome.rows[0].zones["encrypted"] == 0
    assert all(row.zones["noised"] == 1 for row in outcome.rows)


@pytest.mark.parametrize("tau", [1.0, 0.4])
def test_without_noise_and_clip_it_is_fedavg(tau: float, fedavg: Outcome) -> None:
    """Spec 15: sigma 0, a clip that never acts. With rho 1/K nothing is retained, at tau 1 nothing is encrypted."""
    chain = [{"use": "std.clip", "norm": 1e6}, {"use": "selectiveshield.noise", "noise_multiplier": 0}]
    for divide_by in ("contributors", "clients"):
        aggregate = {"use": "selectiveshield.two_server", "divide_by": divide_by}
        outcome = run_protocol(shield(chain, tau=tau, rho=0.25, aggregate=aggregate))
        assert np.abs(outcome.vector - fedavg.vector).max() < 1e-4
        assert np.abs(fedavg.vector - initial_vector(recipe_of())).max() > 1e-2
        shares = outcome.rows[0].zones
        assert (shares["encrypted"] > 0.2) == (tau < 1)
        assert shares["retained"] == 0


def test_ckks_opens_the_same_sums_to_its_grid() -> None:
    """Spec 16: the encrypted zone under CKKS and under BFV."""
    bfv = run_protocol(shield([], rounds=1))
    ckks = shield([], rounds=1, protect={"encrypted": [{"use": "std.ckks", "range": 2.0}], "noised": []})
    ckks["postprocess"] = {"encrypted": ["std.ckks"], "retained": [{"use": "selectiveshield.merge"}]}
    assert np.abs(run_protocol(ckks).vector - bfv.vector).max() < 2e-5


# -- a round -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Two rounds with all zones."""
    return run_protocol(shield())


def test_distributed_noise_under_encryption_is_that_of_one_client_in_the_sum() -> None:
    """Spec 19 end to end: the mean of 4 clients carries C sigma / 4."""
    seal = {"use": "std.bfv", "range": 16.0}
    chain = [CLIP, {"use": "selectiveshield.noise", "noise_multiplier": 5, "choice": "distributed"}, seal]
    first = {"rounds": 1, "aggregate": UNIFORM}
    exact = run_protocol(recipe_of("encrypted", [CLIP, seal], **first)).vector
    noise = run_protocol(recipe_of("encrypted", chain, **first)).vector - exact
    assert np.std(noise) == pytest.approx(0.05 * 5 / 4, rel=6 / np.sqrt(2 * 650))


def test_noise_under_encryption_earns_no_credit_at_positions_that_one_client_sent() -> None:
    """They are left out of the sum, but the key holder sees them, with only that client's noise."""
    plain = shield([CLIP, NOISE, "std.bfv"], tau=[1.0, 0.0, 0.0, 0.0], rho=1.0, rounds=1)
    plain["postprocess"] = {zone: ["std.bfv"] for zone in ("encrypted", "noised")}
    (entry,) = run_protocol(plain).protocol.ledger.log
    assert entry.zones["noised"].sum_factor == 1


def test_both_engines_agree(outcome: Outcome, tmp_path: Path) -> None:
    other = run_protocol(shield(), "processes")
    assert np.array_equal(other.vector, outcome.vector)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, theirs = saved(outcome, tmp_path / "a"), saved(other, tmp_path / "b")
    for client_id in range(4):
        assert ours[client_id].personal is not None
        for field in dataclasses.fields(Saved):
            a, b = getattr(ours[client_id], field.name), getattr(theirs[client_id], field.name)
            assert np.array_equal(a, b), field.name
    for mine, row in zip(outcome.rows, other.rows, strict=True):
        for key in ("accuracy", "personal_accuracy", "personal_public_accuracy", "zones"):
            assert getattr(mine, key) == getattr(row, key), key


def test_every_client_uploads_the_zones_of_its_plan(outcome: Outcome, tmp_path: Path) -> None:
    """The encrypted zone has no positions and is the same at all. No client sends a scalar that it retains."""
    states, sent = saved(outcome, tmp_path), uploads(outcome, 1)
    shares = outcome.rows[1].zones
    assert min(shares["encrypted"], shares["noised"], shares["retained"]) > 0.02
    encrypted = {int((state.labels == BASE_ZONES.index("encrypted")).sum()) for state in states.values()}
    for client_id, state in states.items():
        blocks = sent[f"client:{client_id}"]
        sealed, noised = blocks["encrypted"], blocks["noised"]
        assert sealed.values is None
        assert sealed.positions is None
        assert {sealed.size} == encrypted
        assert noised.positions is not None
        assert np.array_equal(noised.positions, np.flatnonzero(state.labels == BASE_ZONES.index("noised")))
        assert np.array_equal(state.positions, np.flatnonzero(state.labels == BASE_ZONES.index("retained")))
        assert not set(noised.positions) & set(state.positions)


def test_the_personal_model_is_equation_27(outcome: Outcome, tmp_path: Path) -> None:
    for state in saved(outcome, tmp_path).values():
        assert state.personal is not None
        kept = np.zeros(650, np.bool_)
        kept[state.positions] = True
        assert kept.sum() > 5
        assert np.array_equal(state.personal[~kept], state.vector[~kept])
        assert np.array_equal(state.personal[kept], state.values)
        assert (state.personal[kept] != state.vector[kept]).any()


def test_training_starts_from_the_personal_model() -> None:
    """Alg. 1, line 6: without the merge, the first round is the same and the second differs."""
    for rounds, equal in ((1, True), (2, False)):
        merged, plain = shield([], rounds=rounds), shield([], rounds=rounds)
        plain["postprocess"] = {"encrypted": ["std.bfv"]}
        assert np.array_equal(run_protocol(merged).vector, run_protocol(plain).vector) == equal


def test_the_key_server_opens_only_sums_of_all_clients(outcome: Outcome) -> None:
    """Spec 37."""
    asked = [m.decode() for m in outcome.sent("key_server") if m.round >= 0]
    blocks = [part for message in asked for call in message["calls"] for part in call[4] if isinstance(part, Block)]
    assert [block.contributors for block in blocks] == [4, 4]
    assert [block.zone for block in blocks] == ["encrypted"] * 2


def words_on(wire: bytes) -> NDArray[Any]:
    """The words of the bytes at any offset, in order."""
    return np.sort(np.concatenate([np.frombuffer(wire, "<u4", (len(wire) - at) // 4, at) for at in range(4)]))


def found_in(words: NDArray[Any], values: NDArray[Any]) -> int:
    """The number of values that occur among words, as float32."""
    sought = values.astype("<f4").ravel().view("<u4")
    return int((np.searchsorted(words, sought, "right") > np.searchsorted(words, sought)).sum())


def test_no_retained_value_leaves_the_client(tmp_path: Path) -> None:
    """Searches every captured byte for the 4-byte patterns of retained values and their updates. Others are found."""
    plain = shield([], rounds=1)
    outcome, start = run_protocol(plain), initial_vector(plain)
    words = words_on(b"".join(message.data for message in outcome.wire.messages))
    for client_id, state in saved(outcome, tmp_path).items():
        values = np.concatenate([state.values, state.values - start[state.positions]])
        assert len(values) > 10
        assert values.size * len(words) / 2**32 < 0.05  # by chance
        assert found_in(words, values) < 2
        sent = uploads(outcome, 0)[f"client:{client_id}"]["noised"].plain()
        assert found_in(words, sent) == len(sent)


def test_clients_that_were_away_adopt_every_sum_and_keep_what_they_retained(tmp_path: Path) -> None:
    sampled = shield(rho=1.0, rounds=4, sampling={"scheme": "fixed", "rate": 0.5, "source": "reproducible"})
    outcome = run_protocol(sampled)  # `vector` asserts that all four agree
    assert len(outcome.vector) == 650
    states = saved(outcome, tmp_path)
    last = {client_id: max(r for r in range(4) if f"client:{client_id}" in uploads(outcome, r)) for client_id in states}
    assert set(last.values()) > {3}
    for client_id, state in states.items():
        noised = uploads(outcome, last[client_id])[f"client:{client_id}"]["noised"]
        assert noised.positions is not None
        assert len(state.positions) > 5
        assert not set(state.positions) & set(noised.positions)
        assert state.personal is not None
        assert np.array_equal(state.personal[state.positions], state.values)
        assert np.array_equal(np.delete(state.personal, state.positions), np.delete(state.vector, state.positions))


def test_a_client_without_anything_to_mark_takes_part(tmp_path: Path) -> None:
    """tau per client: one client marks nothing, and one marks everything but the least scores."""
    outcome = run_protocol(shield(tau=[1.0, 0.0, 0.05, 0.05], rho=1.0))
    states = saved(outcome, tmp_path)
    assert [len(state.positions) > 0 for state in states.values()] == [False, True, True, True]
    assert states[0].personal is not None
    assert np.array_equal(states[0].personal, outcome.vector)
    assert len(states[1].positions) > 400  # all but pixels that are 0 in all its examples
    assert outcome.rows[0].zones["encrypted"] == 0  # client 0 marks nothing, so the intersection is empty


# -- the merge ---------------------------------------------------------------------------------------------------------


def test_the_merge_puts_retained_values_over_the_global_model() -> None:
    component = Merge(Merge.Options())
    component.name = "selectiveshield.merge"
    client = Client(client_id=0, vector=np.arange(5, dtype=np.float32))
    client.facts = Facts(0, 1, Layout.of([("w", (5,))]), BASE_ZONES, 2, 2, 7, "")
    (step,) = fold([Link("retained", "postprocess", component.name, component, "client")], client.facts)
    block = Block("retained", 2, np.array([7, 8], np.float32), np.array([1, 4], np.uint32))
    assert execute(step, block, client, client.facts).plain().tolist() == [7, 8]
    assert client.personal is not None
    assert client.personal.tolist() == [0, 7, 2, 3, 8]
    assert client.vector.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(Misplaced, match="restores a client's retained values, not zone noised"):
        fold([Link("noised", "postprocess", component.name, component, "client")], client.facts)


def test_calls_to_clients_are_those_of_the_algorithm(outcome: Outcome) -> None:
    """Alg. 1 as messages: train and masks, then the zone and the upload. The sum comes with the next round."""
    first, second = (calls_of(message) for message in outcome.sent("client:0", round=0))
    assert first[-2:] == ["fedplug.train", "selectiveshield.consensus.mark"]
    assert second == ["selectiveshield.consensus.adopt", "fedplug.protect"]
    assert "fedplug.adopt" in calls_of(outcome.sent("client:0", round=1)[0])
