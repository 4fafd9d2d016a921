"""Adopting: an unopened sum moves no model, statistics are averaged or stay, and all end with the same model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_clients import PUSH, SEALED, SEALED_FOR_KEY_SERVER, doubled, tamper
from fedplug.api import codec
from fedplug.api.errors import TooFewClients
from fedplug_runs import evaluation
from hypothesis import given
from hypothesis import strategies as st
from toy_components import pushed, recipe_of
from toy_protocol import build, calls_of, initial_vector, run_protocol, weights_of


@pytest.mark.parametrize("plain", [SEALED, SEALED_FOR_KEY_SERVER], ids=["clients", "key_server"])
def test_a_sum_that_does_not_open_leaves_the_zone_as_it_was(plain: dict[str, Any]) -> None:
    """One client's ciphertexts are spoilt, and so is the sum. The model stays in that round, and the run continues."""
    plain = {**plain, "rounds": 3}
    outcome = run_protocol(plain, prepare=lambda *parts: tamper(*parts, doubled(parts[0]), "upload", (0,)))
    assert outcome.vector.size
    assert [row.clients.dropped for row in outcome.rows] == [{}, {}, {}]
    (note,) = outcome.notes
    if "std.bfv" in plain["postprocess"]["encrypted"]:
        assert note.startswith("client 0, 1, 2, 3 cannot open zone encrypted in round 1: ")
        (told,) = outcome.rows[0].unopened
        assert (told.zone, told.clients) == ("encrypted", [0, 1, 2, 3])
        later = [calls_of(m) for m in outcome.sent("client:2") if m.round > 0]
        assert [calls.count("fedplug.adopt") for calls in later] == [1, 1, 1]  # it is done, and not told again
    else:
        assert note.startswith("round 1: zone encrypted is skipped: the key server refused fedplug.open: ")
    assert [row.loss for row in outcome.rows] == sorted((row.loss for row in outcome.rows), reverse=True)
    assert outcome.rows[0].accuracy < 0.3 < outcome.rows[2].accuracy


def test_a_resumed_run_does_not_wait_for_a_sum_that_does_not_open(tmp_path: Path) -> None:
    """As above, but stopped right after the spoilt round. No party is asked again for that sum."""
    protocol, engine, watch = build({**SEALED, "rounds": 3})
    tamper(protocol, engine, doubled(protocol), "upload", (0,))
    protocol.setup()
    protocol.round(0)
    engine.save(tmp_path)
    second, engine, watch = build({**SEALED, "rounds": 3})
    engine.load(tmp_path)
    second.restore(codec.decode(codec.encode(protocol.state())))
    second.run(1)
    assert len(watch.notes) == 1
    assert [row.clients.answered for row in second.rows] == [4, 4, 4]


def test_a_client_that_sends_nothing_does_not_count_in_the_mean() -> None:
    plain = recipe_of(train=PUSH, negotiate_mask={"use": "toy.silent"}, rounds=1)
    outcome = run_protocol(plain)
    start, weights = initial_vector(plain), weights_of(outcome)
    others = (1, 2, 3)
    mean = sum(weights[c] * pushed(start, 7, c, 0) for c in others) / sum(weights[c] for c in others)
    assert np.allclose(outcome.vector - start, mean, atol=1e-7)
    assert outcome.rows[0].clients.answered == 4


def test_batch_norm_statistics_stay_local_or_are_averaged() -> None:
    plain = recipe_of(model={"use": "std.cnn", "hidden": 8}, rounds=1)
    plain["aggregate"] = {"use": "std.mean", "weighting": "uniform"}
    ended: dict[str, list[dict[str, Any]]] = {}
    for choice in ("local", "mean"):
        protocol, engine, _ = build(plain | {"buffers": choice})
        protocol.setup()
        protocol.run()
        clients = engine._hosts["client:0"].clients.values()  # type: ignore[attr-defined]
        ended[choice] = [client.remembered.buffers for client in clients]
        uploads = [m.decode() for m in protocol.wire.messages if m.phase == "upload" and m.receiver == "server"]
        assert ["buffers" in upload["value"] for upload in uploads] == [choice == "mean"] * 4
    name = next(name for name in ended["local"][0] if "running_mean" in name)
    local = np.stack([buffers[name] for buffers in ended["local"]])
    assert not np.allclose(local[0], local[1])
    for buffers in ended["mean"]:
        assert np.allclose(buffers[name], local.mean(0), atol=1e-6)
    counter = next(name for name in ended["local"][0] if "num_batches" in name)
    most = max(int(buffers[counter]) for buffers in ended["local"])
    assert [int(buffers[counter]) for buffers in ended["mean"]] == [most] * 4
    assert ended["mean"][0][counter].dtype == ended["local"][0][counter].dtype


def test_the_final_fingerprint_is_keyed_where_the_server_must_not_know_the_model() -> None:
    held, answered = {"use": "std.bfv", "key_holder": "clients"}, {"use": "std.bfv", "sums_visible_to": "clients"}
    for seal, keyed in (([held], True), ([answered], True), ([], False)):
        outcome = run_protocol(recipe_of("encrypted" if seal else "clear", seal, rounds=1, train=PUSH))
        digests = {bytes(m.decode()["value"]) for m in outcome.sent("server") if m.phase == "finish"}
        unkeyed = hashlib.blake2b(outcome.vector.tobytes(), digest_size=16).digest()
        assert len(digests) == 1
        assert (digests != {unkeyed}) == keyed


def test_a_client_evaluates_once_a_round_and_in_rounds_of_the_recipe_alone() -> None:
    """Models of the server's choice, evaluated without end, would read the examples that they are tried on."""
    protocol, engine, _ = build(recipe_of(rounds=2))
    try:
        protocol.setup()
        protocol.run()
        for round, again in ((2, "has evaluated in round 3 already"), (3, "once after the last of 2")):
            protocol.begin(round, "finish")
            everyone = protocol.cohort(protocol.client_ids)
            protocol._tell_evaluate(everyone)
            with pytest.raises(TooFewClients, match=again):
                everyone.ask(protocol.steps.fingerprint)
    finally:
        engine.close()


def test_rows_are_the_same_whether_or_not_clients_keep_standardised_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = run_protocol(recipe_of(rounds=3))
    monkeypatch.setattr(evaluation, "_KEPT_BYTES", 0)
    anew = run_protocol(recipe_of(rounds=3))
    assert [(row.accuracy, row.loss) for row in kept.rows] == [(row.accuracy, row.loss) for row in anew.rows]


def test_a_client_evaluates_the_share_of_this_rounds_cohort_whatever_it_kept_of_the_last() -> None:
    protocol, engine, _ = build(recipe_of())
    try:
        client = engine.hosts[0].clients["client:2"]
        cohorts = (*map(evaluation.packed, ([0, 1, 2, 3], [0, 1, 2, 3], [2, 3])),)
        composition = protocol.composition
        first, again, smaller = (evaluation._tests(protocol.recipe, composition, client, each) for each in cohorts)
        with pytest.raises(ValueError, match="client 2 is not among those that evaluate"):
            evaluation._tests(protocol.recipe, composition, client, evaluation.packed([0, 1, 3]))
    finally:
        engine.close()
    total = len(client.data.shared_test)
    assert first is again
    assert (first.place, smaller.place) == ((2, 4), (0, 2))
    assert len(smaller.sets[0]) == total // 2
    assert smaller.kept == {}


@given(st.sets(st.integers(0, 400)))
def test_those_who_evaluate_are_who_was_told(members: set[int]) -> None:
    ids = sorted(members)
    assert evaluation._unpacked(evaluation.packed(ids), 401).tolist() == ids


def test_many_who_evaluate_are_told_in_few_bytes() -> None:
    assert len(evaluation.packed(range(10**5))) < 60
    drawn = np.flatnonzero(np.random.default_rng(0).random(10**4) < 0.1).tolist()
    assert len(evaluation.packed(drawn)) < 800
    # Nobody makes a client unpack more than there are clients.
    assert len(evaluation._unpacked(evaluation.packed(range(10**6)), 401)) == 408
