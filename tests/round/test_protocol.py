"""The loop over the hooks, driven on the local engine: messages, drop-outs, groups, plans, sums and noise."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_clients import PUSH, clipped, tampered, with_value
from fedplug.api import codec
from fedplug.api.errors import MessageError, RecipeError, TooFewClients
from fedplug.engines.base import Engine
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug.wire.calls import Call, read_reply, request
from fedplug_attacks.api.view import View
from fedplug_runs import execution
from fedplug_runs.folder import read_rows
from fedplug_runs.rows import Attendance
from fedplug_runs.settings import Settings
from toy_components import paraaegis, pushed, recipe_of, toy_catalog
from toy_protocol import build, calls_of, initial_vector, run_protocol, weights_of

# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_round_of_fedavg_is_one_message_a_client() -> None:
    outcome = run_protocol(recipe_of(rounds=3))
    assert [outcome.wire.requests[round] for round in range(4)] == [4, 4, 4, 4]  # the last delivers the final model
    first, second, last = (outcome.sent("client:2", round=round)[0] for round in (0, 1, 3))
    assert calls_of(first) == ["fedplug.train", "fedplug.protect"]
    assert calls_of(second) == ["fedplug.adopt", "fedplug.evaluate", *calls_of(first)]
    assert calls_of(last) == ["fedplug.adopt", "fedplug.evaluate", "fedplug.fingerprint"]
    assert len(outcome.sent("server", round=1)) == 4


def test_a_round_of_paraaegis_is_two_messages_a_client() -> None:
    outcome = run_protocol(paraaegis(rounds=3, min_clients=3))
    assert [outcome.wire.requests[round] for round in range(4)] == [8, 8, 8, 4]
    ballot, upload = outcome.sent("client:1", round=1)
    assert calls_of(ballot) == ["fedplug.adopt", "fedplug.evaluate", "fedplug.train", "paraaegis.vote.nominate"]
    assert calls_of(upload) == ["paraaegis.vote.adopt", "fedplug.protect"]
    assert [row.messages for row in outcome.rows] == [8, 8, 12]


def test_byte_counts_are_those_of_the_recorded_messages() -> None:
    outcome = run_protocol(paraaegis(rounds=2))
    for round in range(-1, 3):
        traffic = outcome.wire.of_round(round)
        for sent, chosen in (
            (traffic.down, [m for m in outcome.sent(round=round) if m.receiver.startswith("client:")]),
            (traffic.up, [m for m in outcome.sent(round=round) if m.sender.startswith("client:")]),
        ):
            assert sent.total == sum(len(message.data) for message in chosen)
            assert sum(sent.phases.values()) == sent.total == sum(sent.zones.values())
    encrypted = Counter[str]()
    for message in outcome.sent("server", round=1):
        codec.decode(codec.unframe(message.data), encrypted)
    zones = outcome.wire.of_round(1).up.zones
    assert {zone: zones[zone] for zone in ("encrypted", "noised")} == dict(encrypted)


def test_metrics_hold_one_row_a_round_with_every_number() -> None:
    outcome = run_protocol(recipe_of(rounds=3))
    assert [row.round for row in outcome.rows] == [1, 2, 3]
    for row in outcome.rows:
        assert 0 <= row.accuracy <= 1
        assert sorted(row.client_accuracy) == [0, 1, 2, 3]
        assert row.clients == Attendance(4, 4)
        assert row.zones["clear"] == 1
        assert row.seconds["train"] > 0
    assert outcome.rows[-1].accuracy > outcome.rows[0].accuracy > 0.3


# -- what a client refuses ---------------------------------------------------------------------------------------------


def test_clients_refuse_a_server_with_another_recipe() -> None:
    mine = recipe_of("noised", [{"use": "std.clip", "norm": 1}, {"use": "std.gaussian", "noise_multiplier": 1.0}])
    weaker = recipe_of("noised", [{"use": "std.clip", "norm": 1}, {"use": "std.gaussian", "noise_multiplier": 0.1}])
    with pytest.raises(TooFewClients, match="refused a message made under recipe"):
        run_protocol(mine, server_plain=weaker)


def test_a_description_is_no_other_recipe() -> None:
    assert run_protocol(recipe_of(description="a"), server_plain=recipe_of(description="b")).rows


def test_a_server_cannot_call_what_is_not_marked() -> None:
    asks = {"use": "toy.asks", "question": "unmarked"}
    with pytest.raises(MessageError, match="unmarked cannot run at a client"):
        run_protocol(recipe_of(negotiate_mask=asks))
    protocol, engine, _ = build(recipe_of(negotiate_mask=asks))
    body = codec.encode([0, 0, "toy.asks", "unmarked", []])  # as a server that skips its own check would write it
    data, _ = request(protocol.recipe.digest, [Call(body, Counter(), 0)])
    ((_, answer),) = engine.exchange({"client:1": data})
    assert isinstance(answer, bytes)
    reply, _ = read_reply(answer)
    assert "toy.asks.unmarked is not a method that may be called at a client" in reply.error.message


def test_a_replayed_message_moves_no_model_twice() -> None:
    plain = recipe_of(rounds=2)
    protocol, engine, _ = build(plain)
    protocol.setup()
    protocol.run()
    client = engine._hosts["client:0"].clients["client:0"]  # type: ignore[attr-defined]
    before = client.vector.copy()
    update = next(m for m in protocol.wire.messages if m.round == 1 and m.receiver == "client:0").decode()
    adopt = next(call for call in update["calls"] if call[3] == "adopt" and call[2] == "fedplug")
    data, _ = request(protocol.recipe.digest, [Call(codec.encode(adopt), Counter(), adopt[0])])
    ((_, answer),) = engine.exchange({"client:0": data})
    assert isinstance(answer, bytes)
    assert read_reply(answer)[0].error is None
    assert np.array_equal(client.vector, before)
    again, _ = request(protocol.recipe.digest, [Call(codec.encode([10_000, *adopt[1:]]), Counter(), 10_000)])
    list(engine.exchange({"client:0": again}))
    assert not np.array_equal(client.vector, before)  # with a new number, the same call does run


# -- replies that cannot be right --------------------------------------------------------------------------------------


BALLOTS = {
    "none": (None, "its ballot is NoneType"),
    "short": (lambda ballot: ballot[:3], "must be uint8"),
    "all": (lambda ballot: np.full_like(ballot, 255), "marks scalars beyond the 650 there are"),
    "float": (lambda ballot: ballot.astype(float), "is float64"),
    "flat": (lambda ballot: ballot.reshape(1, -1), "must be uint8"),
    "one more": (lambda ballot: np.concatenate([np.full(40, 255, np.uint8), ballot[40:]]), "which must be 195"),
}


@pytest.mark.parametrize("case", BALLOTS)
def test_a_ballot_that_cannot_be_right_is_not_counted(case: str) -> None:
    change, reason = BALLOTS[case]
    edit = with_value(None) if change is None else lambda reply: {**reply, "value": change(reply["value"])}
    outcome = tampered(paraaegis(), edit, phase="negotiate")
    assert outcome.vector.size
    assert [row.clients.answered for row in outcome.rows] == [3, 4]
    assert reason in outcome.rows[0].clients.dropped[1]
    assert not [m for m in outcome.sent("client:1", round=0) if "fedplug.protect" in calls_of(m)]


def test_too_few_ballots_cost_the_round_before_anything_is_uploaded() -> None:
    outcome = tampered(paraaegis(min_clients=4), with_value(None), phase="negotiate")
    assert [row.skipped for row in outcome.rows] == ["clients left: 3, min_clients is 4", ""]
    assert "its ballot is NoneType" in outcome.rows[0].clients.dropped[1]
    assert not [m for m in outcome.sent(round=0) if m.sender == "server" and "fedplug.protect" in calls_of(m)]


# -- drop-outs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["score", "protect"])
def test_a_client_that_raises_misses_one_round_and_ends_with_the_same_model(step: str) -> None:
    fail = {"use": "toy.fail", "clients": [1], "rounds": [1]}
    plain = paraaegis(rounds=4)
    if step == "score":
        plain["score_parameters"].append(fail)
    else:
        plain["protect"]["noised"] = [fail, *plain["protect"]["noised"]]
    outcome = run_protocol(plain)
    assert outcome.vector.size  # all agree
    assert [row.clients.answered for row in outcome.rows] == [4, 3, 4, 4]
    reason = outcome.rows[1].clients.dropped[1]
    call = "fedplug.train" if step == "score" else "fedplug.protect"
    hook = "score_parameters" if step == "score" else "protect, zone noised, Look"
    cause = "RuntimeError: the toy broke (toy_components.py:"
    assert reason.startswith(f"{call}: component toy.fail, hook {hook}: {cause}")
    assert outcome.notes == [f"round 2: client 1 dropped out: {reason}"]
    # What it missed travels with the next round's first message.
    first = calls_of(outcome.sent("client:1", round=2)[0])
    missed = ["paraaegis.vote.adopt"] if step == "score" else []
    assert first[: len(missed) + 2] == [*missed, "fedplug.adopt", "fedplug.evaluate"]
    assert all(row.accuracy is not None for row in outcome.rows)


def test_a_client_that_raises_in_every_round_stops_nobody() -> None:
    plain = recipe_of(rounds=3, score_parameters=[{"use": "toy.fail", "clients": [0], "rounds": [0, 1, 2]}])
    outcome = run_protocol(plain)
    assert [row.clients.answered for row in outcome.rows] == [3, 3, 3]
    assert all(list(row.clients.dropped) == [0] for row in outcome.rows)
    assert outcome.rows[-1].accuracy > 0.3
    assert outcome.vector.size


def test_too_few_clients_names_the_reasons() -> None:
    fail = {"use": "toy.fail", "clients": [0, 1, 3], "rounds": [1, 2, 3]}
    with pytest.raises(TooFewClients) as caught:
        run_protocol(recipe_of(rounds=5, score_parameters=[fail]))
    message = str(caught.value)
    assert "round 4: clients left: 1, min_clients is 2" in message
    assert message.endswith("3 rounds in a row had too few clients, so the run ends.")
    assert "RuntimeError: the toy broke" in message
    assert "(client 0, 1, 3)" in message


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_a_message_damaged_on_the_way_costs_the_client_its_round(direction: str, damage: str) -> None:
    def hurt(data: Any) -> Any:
        return data[:-7] if damage == "truncated" else data[:60] + bytes([data[60] ^ 1]) + data[61:]

    def prepare(protocol: Protocol, engine: Engine) -> None:
        exchange = engine.exchange

        def damaged(messages: dict[str, bytes]) -> Any:
            hit = protocol.office.round == 1 and protocol.office.phase == "upload" and "client:3" in messages
            if hit and direction == "down":
                messages = {**messages, "client:3": hurt(messages["client:3"])}
            for address, answer in exchange(messages):
                yield address, hurt(answer) if hit and direction == "up" and address == "client:3" else answer

        engine.exchange = damaged  # type: ignore[method-assign]

    outcome = run_protocol(paraaegis(rounds=3), prepare=prepare)
    assert outcome.vector.size  # all agree
    assert [row.clients.answered for row in outcome.rows] == [4, 3, 4]
    reason = outcome.rows[1].clients.dropped[3]
    assert ("truncated message" if damage == "truncated" else "altered on the way") in reason


# -- plans and groups --------------------------------------------------------------------------------------------------


def test_groups_have_a_model_each() -> None:
    plain = recipe_of(train=PUSH, negotiate_mask={"use": "toy.groups"}, rounds=2)
    plain["data"]["clients"] = 5
    outcome = run_protocol(plain)
    start, weights = initial_vector(plain), weights_of(outcome)
    for members in ([0, 2, 4], [1, 3]):
        vector = start
        for round in range(2):
            total = sum(weights[c] * pushed(vector, 7, c, round).astype(np.float64) for c in members)
            vector = vector + (total / sum(weights[c] for c in members)).astype(np.float32)
        for client_id in members:
            assert np.array_equal(outcome.vectors[client_id], outcome.vectors[members[0]])
            assert np.allclose(outcome.vectors[client_id], vector, atol=1e-7)
    assert not np.allclose(outcome.vectors[0], outcome.vectors[1], atol=1e-4)
    assert sorted(outcome.rows[-1].groups) == ["even", "odd"]
    assert outcome.notes == []  # different groups may have different models


def test_a_model_is_complete_although_only_one_client_was_asked_first() -> None:
    plain = recipe_of(negotiate_mask={"use": "toy.asks", "question": "first"}, rounds=3)
    outcome = run_protocol(plain)
    reference = run_protocol(recipe_of(rounds=3))
    assert [len(row.client_accuracy) for row in outcome.rows] == [4, 4, 4]
    assert [row.accuracy for row in outcome.rows] == [row.accuracy for row in reference.rows]


# -- noise and encryption through the whole protocol -------------------------------------------------------------------


def test_serial_dp_and_encryption_is_dp_fedavg() -> None:
    """Spec 36: the same noise, then CKKS. Only the encryption's grid makes a difference."""
    dp = run_protocol(recipe_of("noised", clipped(1.0, 0.01), rounds=2))
    noise = {**clipped(1.0, 0.01)[1], "name": "std.gaussian"}
    clip, seal = clipped(1.0, 0.01)[0], {"use": "std.ckks", "key_holder": "clients"}
    plain = recipe_of("noised", [clip, noise, seal], rounds=2)
    serial = run_protocol(plain)
    assert np.abs(serial.vector - dp.vector).max() < 1e-4
    assert np.abs(serial.vector - initial_vector(plain)).max() > 1e-2


def test_noise_after_a_clip_that_bounds_nothing_is_refused() -> None:
    chain = [{"use": "std.clip", "norm": float("inf")}, {"use": "std.gaussian", "noise_multiplier": 1.0}]
    with pytest.raises(RecipeError, match=r"std\.gaussian needs a bound of the L2 norm earlier in the chain"):
        Recipe.from_plain(recipe_of("noised", chain), toy_catalog())


# -- attacks -----------------------------------------------------------------------------------------------------------


def test_an_attack_sees_what_the_server_saw_and_nothing_else(tmp_path: Path) -> None:
    attack = {"attacks": [{"use": "toy.spy"}], "rounds": [1, 2], "targets": [0]}
    plain = paraaegis(rounds=2, attack=attack)
    catalog = toy_catalog()
    code, folder = execution.start(Recipe.from_plain(plain, catalog), Settings(output=tmp_path, quiet=True), catalog)
    assert code == 0
    rows = read_rows(folder)
    asked = sum(row.messages for row in rows) + 10  # and those of the set-up
    for round, uploads in ((1, 4), (2, 8)):  # of the second round everything that was recorded up to it
        file = folder / "attacks" / f"toy.spy-server-round{round}-client0.json"
        own = json.loads(file.read_text())["forms"]["adaptive"]["own"]
        assert own["uploads"] == own["readable"] == own["sealed"] == uploads
        assert own["to_clients"] < asked
    assert own["to_clients"] == asked - 4  # but for the end of the run, which tells each client the last sum
    assert not any(hasattr(View, name) for name in ("clients", "engine", "state", "server"))


def test_a_view_of_uploads_holds_the_blocks_as_sent() -> None:
    plain = recipe_of(train=PUSH, rounds=2)
    outcome = run_protocol(plain)
    view = View("server", tuple(outcome.wire.messages))
    uploads = {(round, client_id): blocks["clear"] for round, client_id, blocks in view.uploads()}
    assert sorted(uploads) == [(round, client_id) for round in range(2) for client_id in range(4)]
    assert np.array_equal(uploads[0, 3].plain(), pushed(initial_vector(plain), 7, 3, 0))
    assert [client_id for _, client_id, _ in view.uploads(round=1)] == [0, 1, 2, 3]
