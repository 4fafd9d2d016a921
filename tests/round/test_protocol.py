"""The loop over the hooks, driven on the local engine: messages, drop-outs, groups, plans, sums and noise."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.errors import ClientError, MessageError, ProtectionError, RecipeError, TooFewClients
from fedplug.api.rows import Attendance
from fedplug.engines.base import Engine, Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost
from fedplug.round.protocol import Protocol
from fedplug.round.sampling import sample
from fedplug.runs import run as run_command
from fedplug.runs.files import read_rows
from fedplug.runs.settings import Settings
from fedplug.wire.calls import Call, Reply, read_reply, request
from fedplug_attacks.api.view import View
from fedplug_std import he_keys
from fedplug_std.mean import Mean
from toy_components import (
    TOYS,
    Outcome,
    build,
    calls_of,
    initial_vector,
    paraaegis,
    pushed,
    recipe_of,
    run_protocol,
    toy_catalog,
    weights_of,
)

PUSH = {"use": "toy.push"}


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_round_of_fedavg_is_one_message_a_client() -> None:
    outcome = run_protocol(recipe_of(rounds=3))
    assert [outcome.wire.requests[round] for round in range(4)] == [4, 4, 4, 4]  # the last delivers the final model
    first, second, last = (outcome.sent("client:2", round=round)[0] for round in (0, 1, 3))
    assert calls_of(first) == ["fedplug.train", "std.single_zone.adopt", "fedplug.protect"]
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


def sent_again(protocol: Protocol, engine: Engine, body: Any, client: int = 1) -> Reply:
    """What a client answers to a call as it was in a recorded message, in a message of its own."""
    data, _ = request(protocol.recipe.digest, [Call(codec.encode(body), Counter(), body[0])])
    ((_, answer),) = engine.exchange({f"client:{client}": data})
    assert isinstance(answer, bytes)
    return read_reply(answer)[0]


def test_noise_cannot_be_averaged_away_by_asking_again() -> None:
    noise = {"use": "std.gaussian", "noise_multiplier": 2.0, "source": "secure"}
    protocol, engine, _ = build(recipe_of("noised", [{"use": "std.clip", "norm": 1.0}, noise], rounds=3))
    protocol.setup()
    protocol.round(0)
    recorded = [call for m in protocol.wire.messages if m.receiver == "client:1" and m.round == 0
                for call in m.decode()["calls"]]  # fmt: skip
    train, protect = (next(call for call in recorded if call[3] == name) for name in ("train", "protect"))

    def refused(*calls: list[Any]) -> str:
        for body in calls[:-1]:
            assert sent_again(protocol, engine, body).error is None
        reply = sent_again(protocol, engine, calls[-1])
        assert reply.value is None
        return str(reply.error.message)

    assert "has protected its update of round 1 already" in refused(protect)
    assert "has trained in round 1 already" in refused(train)
    later = [0, 1, *protect[2:]]
    assert "has not trained in round 2" in refused(later)  # the update of another round
    assert "there is no round 10 to train in; the recipe has 3" in refused([0, 9, *train[2:]])


def test_a_message_of_an_earlier_round_trains_and_votes_no_more() -> None:
    protocol, engine, _ = build(paraaegis(rounds=3))
    protocol.setup()
    protocol.run()
    old = next(m for m in protocol.wire.messages if m.receiver == "client:1" and m.round == 0)
    ((_, answer),) = engine.exchange({"client:1": old.data})
    assert isinstance(answer, bytes)
    reply = read_reply(answer)[0]
    assert "fedplug.train belongs to round 1, but this client has been in round 4 already" in reply.error.message
    assert reply.value is None


# -- replies that cannot be right --------------------------------------------------------------------------------------


def tampered(
    plain: dict[str, Any], edit: Any, *, phase: str = "upload", rounds: tuple[int, ...] = (0,)
) -> Outcome:
    """A run in which the replies of client 1 in a phase and some rounds are edited on their way."""
    return run_protocol(plain, prepare=lambda protocol, engine: tamper(protocol, engine, edit, phase, rounds))


def tamper(protocol: Protocol, engine: Engine, edit: Any, phase: str, rounds: tuple[int, ...]) -> None:
    exchange = engine.exchange

    def edited(messages: dict[str, bytes]) -> Any:
        for address, answer in exchange(messages):
            hit = address == "client:1" and protocol.office.phase == phase and protocol.office.round in rounds
            if hit and isinstance(answer, bytes):
                answer = codec.frame(codec.encode(edit(codec.decode(codec.unframe(answer)))))
            yield address, answer

    engine.exchange = edited  # type: ignore[method-assign]


def with_value(value: Any) -> Any:
    return lambda reply: {**reply, "value": value}


def with_block(change: Any) -> Any:
    """Edits the first block of an upload."""

    def edit(reply: dict[str, Any]) -> dict[str, Any]:
        zone, block = next(iter(reply["value"]["blocks"].items()))
        blocks = {**reply["value"]["blocks"], zone: change(block)}
        return {**reply, "value": {**reply["value"], "blocks": blocks}}

    return edit


def with_bytes(change: Any) -> Any:
    return with_block(lambda block: block.replace(ciphertexts=tuple(map(change, block.ciphertexts))))


def doubled(protocol: Protocol) -> Any:
    """Every ciphertext of an upload added to itself: each loads and adds, but the sum counts one update too many."""

    def edit(reply: dict[str, Any]) -> dict[str, Any]:
        component = protocol.composition.components[reply["value"]["blocks"]["encrypted"].sealed_by]
        context, _ = he_keys.context_of(component, protocol.server)

        def twice(part: bytes) -> bytes:
            return component.backend.add(context, [("a", [part]), ("b", [part])], component.slots)[0]

        return with_bytes(twice)(reply)  # type: ignore[no-any-return]

    return edit


PLAIN = recipe_of("noised", [{"use": "std.clip", "norm": 1.0}])
OWN = recipe_of(negotiate_mask={"use": "toy.own"})
SEALED = recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "clients", "range": 0.5}])
SEALED_FOR_KEY_SERVER = recipe_of("encrypted", [{"use": "std.ckks", "key_holder": "key_server", "range": 0.5}])
NORMED = recipe_of(model={"use": "std.cnn", "hidden": 4}, buffers="mean")
UPLOADS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "none": (PLAIN, with_value(None), "it is None, not blocks by zone"),
    "list": (PLAIN, with_value([1, 2]), "it is a list, not blocks by zone"),
    "no blocks": (PLAIN, with_value({"blocks": [3]}), "not blocks by zone"),
    "a number": (PLAIN, with_block(lambda block: 7), "its zone noised holds 7, not a block"),
    "another zone": (PLAIN, with_block(lambda block: block.replace(zone="clear")), "holds a block of clear"),
    "a zone that stays": (PLAIN, with_value({"blocks": {"retained": 1}}), "'retained', which is not to be sent"),
    "a zone of no recipe": (PLAIN, with_value({"blocks": {5: 1}}), "a zone 5, which is not to be sent"),
    "short": (PLAIN, with_block(lambda b: b.replace(size=5, values=b.values[:5])), "has 5 scalars, those of most"),
    "weighted": (PLAIN, with_block(lambda b: b.replace(weighted=True)), "scalars, weighted, those of"),
    "nan": (PLAIN, with_block(lambda b: b.replace(values=b.values * np.nan)), "NaN or infinite values in the noised"),
    "no values": (PLAIN, with_block(lambda b: b.replace(values=None)), "must hold either values, or ciphertexts"),
    "sealed": (PLAIN, with_block(lambda b: b.replace(values=None, sealed_by="std.bfv")), "is sealed by std.bfv, which"),
    "weight": (PLAIN, with_block(lambda b: b.replace(divisor=1e-9)), "claims the weight 1e-09; its client's is"),
    "weights": (SEALED, with_block(lambda b: b.replace(divisor=np.ones(650))), "claims the weight a ndarray"),
    "many": (SEALED, with_block(lambda b: b.replace(contributors=2)), "claims 2 contributors; an upload holds one"),
    "unsealed": (
        SEALED, with_block(lambda b: b.replace(ciphertexts=(), sealed_by=None, values=np.zeros(650, np.float32))),
        "is sealed by None, which must be std.bfv",
    ),
    "cut": (SEALED, with_block(lambda b: b.replace(ciphertexts=())), "sent 0 ciphertexts for 650 values, expected 1"),
    "garbage": (SEALED, with_bytes(lambda part: b"x" * len(part)), "ciphertext 0 of client 1 cannot be used"),
    "elsewhere": (OWN, with_block(lambda b: b.replace(positions=b.positions + np.uint32(2))), "has position 650, but"),
    "buffers": (NORMED, lambda r: {**r, "value": {**r["value"], "buffers": 3}}, "its batch-norm buffers are 3"),
    "other buffers": (NORMED, lambda r: {**r, "value": {**r["value"], "buffers": {}}}, "batch-norm buffers lack '"),
    "reports": (PLAIN, lambda reply: {**reply, "reports": 5}, "reports are malformed: it is 5"),
}  # fmt: skip


@pytest.mark.parametrize("case", UPLOADS)
def test_an_upload_that_cannot_be_right_costs_its_client_the_round(case: str) -> None:
    plain, edit, reason = UPLOADS[case]
    outcome = tampered(plain, edit)
    assert outcome.vector.size  # all agree, that client too
    assert [row.clients.answered for row in outcome.rows] == [3, 4]
    assert list(outcome.rows[0].clients.dropped) == [1]
    assert reason in outcome.rows[0].clients.dropped[1]
    assert [note.startswith("round 1: client 1 dropped out: ") for note in outcome.notes] == [True]
    assert outcome.protocol.ledger.log[0]["charged"] == "all"  # its upload was seen


def test_the_sum_is_that_of_the_others() -> None:
    plain = recipe_of(train=PUSH, rounds=1)
    outcome = tampered(plain, with_block(lambda b: b.replace(values=b.values + np.float32(np.inf))))
    start, weights = initial_vector(plain), weights_of(outcome)
    mean = sum(weights[c] * pushed(start, 7, c, 0) for c in (0, 2, 3)) / sum(weights[c] for c in (0, 2, 3))
    assert np.allclose(outcome.vector - start, mean, atol=1e-7)


def test_where_nobody_can_be_blamed_the_run_ends_with_the_difference() -> None:
    plain = {**PLAIN, "data": {**PLAIN["data"], "clients": 2}}
    with pytest.raises(ProtectionError, match="client 1 sent 5 noised scalars, others 650"):
        tampered(plain, with_block(lambda b: b.replace(size=5, values=b.values[:5])))


def test_too_many_faulty_uploads_end_the_run_with_the_reason() -> None:
    plain = {**PLAIN, "min_clients": 4}
    with pytest.raises(TooFewClients, match=r"3 clients are left, min_clients is 4.*NaN or infinite values"):
        tampered(plain, with_block(lambda b: b.replace(values=b.values * np.nan)))


BALLOTS = {
    "none": (None, "its ballot is NoneType"),
    "short": (lambda ballot: ballot[:3], "must be uint8"),
    "all": (lambda ballot: np.full_like(ballot, 255), "votes beyond the 650 indices"),
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


def test_too_few_ballots_end_the_run_before_anything_is_uploaded() -> None:
    with pytest.raises(TooFewClients, match=r"3 clients are left, min_clients is 4.*its ballot is NoneType"):
        tampered(paraaegis(min_clients=4), with_value(None), phase="negotiate")


@pytest.mark.parametrize(
    ("value", "reason"),
    [(None, "its hello is None"), ({}, "num_examples is None"), ({"num_examples": "9"}, "num_examples is '9'"),
     ({"num_examples": 9, "public_key": b"short"}, "public_key is b'short', not 32 bytes")],
    ids=str,
)  # fmt: skip
def test_a_hello_that_cannot_be_right_ends_the_set_up_with_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(TooFewClients, match=f"missing: client 1: its reply cannot be used: {reason}"):
        tampered(paraaegis(), with_value(value), phase="setup", rounds=(-1,))


class Heavy(Mean):
    """Weighs clients by a rule of a test's own."""

    rule: ClassVar[Any] = None

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        return Heavy.rule(num_examples, max_examples)


HEAVY = recipe_of("noised", [{"use": "std.clip", "norm": 1.0}], train=PUSH, aggregate={"use": "toy.heavy"}, rounds=1)
OF_WEIGHTS = "a weight is a number in (0, 1], such as num_examples / max_examples"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda count, most: float(count), r"it gave \d+\.0 for \d+ examples, where the most are \d+"),
        (lambda count, most: 0.0, r"it gave 0\.0 for"), (lambda count, most: -0.5, r"it gave -0\.5 for"),
        (lambda count, most: math.nan, "it gave nan for"), (lambda count, most: math.inf, "it gave inf for"),
        (lambda count, most: None, "it gave None for"), (lambda count, most: "1", "it gave '1' for"),
    ],
)  # fmt: skip
def test_a_weight_that_is_no_share_is_refused_before_anything_runs(
    rule: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Central noise, and the credit for that of others, are reckoned with weights in (0, 1]."""
    monkeypatch.setitem(TOYS["aggregate"], "toy.heavy", Heavy)
    monkeypatch.setattr(Heavy, "rule", staticmethod(rule))
    said = rf"component toy\.heavy, client_weight: {said}.*; {re.escape(OF_WEIGHTS)}"
    protocol, engine, _ = build(HEAVY)
    try:
        with pytest.raises(ProtectionError, match=said):
            protocol.setup()
        client = engine.clients.clients["client:0"]
        with pytest.raises(ProtectionError, match=said):
            protocol.steps.take_weight(client, 100_000)
        assert client.weight == 1.0
        monkeypatch.setattr(Heavy, "rule", staticmethod(lambda count, most: np.float32(0.5)))
        protocol.steps.take_weight(client, 100_000)
        assert client.weight == 0.5
    finally:
        engine.close()
    sent = [message for message in protocol.wire.messages if message.sender == "server"]
    assert not any("fedplug.take_weight" in calls_of(message) for message in sent)


@pytest.mark.parametrize("plain", [SEALED, SEALED_FOR_KEY_SERVER], ids=["clients", "key_server"])
def test_a_sum_that_does_not_open_leaves_the_zone_as_it_was(plain: dict[str, Any]) -> None:
    """One client's ciphertexts are spoilt, so the sum is: the model stays in that round, and the run goes on."""
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
    """As above, but stopped right after the spoilt round: nobody is asked again for what cannot be."""
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
    hook = "score_parameters" if step == "score" else "protect"
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
    fail = {"use": "toy.fail", "clients": [0, 1, 3], "rounds": [1]}
    with pytest.raises(TooFewClients) as caught:
        run_protocol(recipe_of(rounds=3, score_parameters=[fail]))
    message = str(caught.value)
    assert "round 2: 1 clients are left, min_clients is 2" in message
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


def test_an_upload_that_may_not_travel_costs_the_client_its_round() -> None:
    fail = {"use": "toy.fail", "clients": [2], "how": "send_object"}
    outcome = run_protocol(recipe_of("clear", [fail]))
    assert outcome.rows[0].clients.answered == 3
    assert "a object cannot travel" in outcome.rows[0].clients.dropped[2]


def test_a_client_without_a_plan_is_told_so() -> None:
    with pytest.raises(TooFewClients, match="client 0 has no plan in round 1"):
        run_protocol(recipe_of(negotiate_mask={"use": "toy.asks", "question": "nothing"}))


def test_everyone_is_needed_for_the_set_up() -> None:
    protocol, engine, _ = build(recipe_of())
    deliver = engine.exchange

    def without_client_3(messages: dict[str, bytes]) -> Any:
        for address, answer in deliver(messages):
            yield address, ClientError("cable unplugged") if address == "client:3" else answer

    engine.exchange = without_client_3  # type: ignore[method-assign]
    with pytest.raises(TooFewClients, match="set-up needs every client once; missing: client 3: cable unplugged"):
        protocol.setup()


def test_a_client_that_sends_nothing_does_not_count_in_the_mean() -> None:
    plain = recipe_of(train=PUSH, negotiate_mask={"use": "toy.silent"}, rounds=1)
    outcome = run_protocol(plain)
    start, weights = initial_vector(plain), weights_of(outcome)
    others = (1, 2, 3)
    mean = sum(weights[c] * pushed(start, 7, c, 0) for c in others) / sum(weights[c] for c in others)
    assert np.allclose(outcome.vector - start, mean, atol=1e-7)
    assert outcome.rows[0].clients.answered == 4


# -- which clients take part -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
def test_clients_that_were_not_drawn_catch_up(scheme: str) -> None:
    sampling = {"scheme": scheme, "rate": 0.6, "source": "reproducible"}
    plain = paraaegis(rounds=6, sampling=sampling)
    plain["data"]["clients"] = 6
    outcome = run_protocol(plain)
    asked = [row.clients.asked for row in outcome.rows]
    assert outcome.vector.size  # all agree
    assert min(asked) < 6
    if scheme == "fixed":
        assert asked == [4] * 6
    else:
        assert len(set(asked)) > 1
    heard = {m.receiver for m in outcome.sent(round=0) if m.sender == "server"}
    assert len(heard) == asked[0]


def test_a_round_with_too_few_clients_is_skipped() -> None:
    """Poisson sampling may draw nobody; then nothing is released, and the model stays as it is."""
    sampling = {"scheme": "poisson", "rate": 0.5, "source": "reproducible"}
    for seed in range(100):
        plain = recipe_of(rounds=5, seed=seed, sampling=sampling)
        recipe = Recipe.from_plain(plain, toy_catalog())
        sizes = [len(sample(recipe, range(recipe.data.clients), round)) for round in range(5)]
        if 0 in sizes[1:] and 1 in sizes[1:]:
            break
    outcome = run_protocol(plain)
    answered = [row.clients.answered for row in outcome.rows]
    assert answered == [size if size >= 2 else 0 for size in sizes]
    assert [entry["round"] for entry in outcome.protocol.ledger.log] == [r + 1 for r in range(5) if answered[r]]
    for round, size in enumerate(sizes):
        assert outcome.wire.requests[round] == (size if size >= 2 else 0)
    assert f"round {sizes.index(0) + 1}: 0 clients were drawn, min_clients is 2; it is skipped" in outcome.notes
    assert outcome.vector.size


def central(rate: float, **changes: Any) -> dict[str, Any]:
    plain = recipe_of("noised", [{"use": "std.clip", "norm": 100.0}], train=PUSH, rounds=3, **changes)
    plain["data"]["clients"] = 12
    noise = {"use": "std.central_gaussian", "norm": 100.0, "noise_multiplier": 1e-7, "source": "reproducible"}
    return plain | {
        "sampling": {"scheme": "poisson", "rate": rate, "source": "reproducible"},
        "postprocess": {"noised": [noise]},
    }


def test_sums_of_a_secret_cohort_are_divided_by_a_constant() -> None:
    """McMahan et al. 2018, estimator f_f: sum of w_k u_k over the sample, by q times the weight of all clients."""
    plain = central(0.5)
    outcome = run_protocol(plain)
    weights = weights_of(outcome)
    assert len(set(weights.values())) > 1
    vector = initial_vector(plain)
    protocol, _, _ = build(plain)
    samples = [sample(protocol.recipe, protocol.client_ids, round) for round in range(3)]
    assert {len(drawn) for drawn in samples} != {6}
    for round, drawn in enumerate(samples):
        total = sum(weights[c] * pushed(vector, 7, c, round).astype(np.float64) for c in drawn)
        vector = (vector + total / (0.5 * sum(weights.values()))).astype(np.float32)
    assert np.allclose(outcome.vector, vector, atol=1e-4)
    told = [
        call[4][0]["noised"]
        for message in outcome.sent(sender="server")
        for call in message.decode()["calls"]
        if call[2:4] == ["fedplug", "adopt"]
    ]
    assert {(block.contributors, block.divisor) for block in told} == {(1, 1.0)}
    assert all(entry["secret_cohort"] for entry in outcome.protocol.ledger.log)


def test_what_shows_the_cohort_is_told_to_the_ledger() -> None:
    buffers = central(0.5, model={"use": "std.cnn"}, buffers="mean")
    bare = central(0.5) | {"postprocess": {}}
    local = central(0.5)
    local["protect"]["noised"].append({"use": "std.gaussian", "noise_multiplier": 1.0})
    for plain, secret in ((bare, False), (buffers, False), (central(0.5), True), (local, True)):
        log = run_protocol(plain | {"rounds": 1}).protocol.ledger.log
        assert [entry["secret_cohort"] for entry in log] == [secret]


# -- plans and groups --------------------------------------------------------------------------------------------------


def test_plans_that_differ_divide_each_position_by_those_who_sent_it() -> None:
    plain = recipe_of(train=PUSH, negotiate_mask={"use": "toy.own"}, rounds=2)
    outcome = run_protocol(plain)
    vector, weights = initial_vector(plain), weights_of(outcome)
    for round in range(2):
        total, divisor = np.zeros(len(vector)), np.zeros(len(vector))
        for client_id, weight in weights.items():
            sent = np.arange(len(vector)) % 4 != client_id
            total[sent] += weight * pushed(vector, 7, client_id, round)[sent].astype(np.float64)
            divisor[sent] += weight
        vector = vector + (total / divisor).astype(np.float32)
    assert np.allclose(outcome.vector, vector, atol=1e-7)
    shares = {"encrypted": 0, "noised": 0, "retained": 0.25, "clear": 0.75}
    assert outcome.rows[0].zones == pytest.approx(shares, abs=0.01)
    assert outcome.rows[1].mask_churn == 0


def test_retained_values_are_in_no_message() -> None:
    plain = recipe_of(train=PUSH, negotiate_mask={"use": "toy.own"}, rounds=1)
    outcome = run_protocol(plain)
    wire = b"".join(message.data for message in outcome.wire.messages)
    update = pushed(initial_vector(plain), 7, 2, 0)
    kept = np.arange(len(update)) % 4 == 2
    assert [value.tobytes() in wire for value in update[kept][:40]] == [False] * 40
    assert [value.tobytes() in wire for value in update[~kept][:40]] == [True] * 40


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
    assert outcome.notes == []  # different models of different groups are no mistake


def test_groups_sum_their_ciphertexts_apart() -> None:
    plain = recipe_of("encrypted", [{"use": "std.bfv", "range": 0.1}], train=PUSH, rounds=1)
    plain["negotiate_mask"] = {"use": "toy.groups", "zone": "encrypted"}
    outcome = run_protocol(plain)
    start, weights = initial_vector(plain), weights_of(outcome)
    for members in ([0, 2], [1, 3]):
        total = sum(weights[c] * pushed(start, 7, c, 0).astype(np.float64) for c in members)
        mean = total / sum(weights[c] for c in members)
        assert np.allclose(outcome.vectors[members[0]] - start, mean, atol=1e-5)
    opened = [m.decode() for m in outcome.sent("key_server", round=0)]
    assert [request["calls"][0][4][1].contributors for request in opened] == [2, 2]


def test_a_model_is_complete_although_only_one_client_was_asked_first() -> None:
    plain = recipe_of(negotiate_mask={"use": "toy.asks", "question": "first"}, rounds=3)
    outcome = run_protocol(plain)
    reference = run_protocol(recipe_of(rounds=3))
    assert [len(row.client_accuracy) for row in outcome.rows] == [4, 4, 4]
    assert [row.accuracy for row in outcome.rows] == [row.accuracy for row in reference.rows]


def test_what_components_see_of_the_model_does_not_depend_on_who_shares_the_process() -> None:
    class Apart(LocalEngine):
        """A host of its own for every client, as if each had a process."""

        def __init__(self, job: Job) -> None:
            super().__init__(job)
            for client_id, address in enumerate(list(self._hosts)):
                host = ClientHost(*job.build(), [client_id], None, "cpu")
                self._hosts[address] = host
                self.hosts.append(host)
            del self.hosts[0]

    plain = recipe_of(negotiate_mask={"use": "toy.asks", "question": "model"}, rounds=2)
    plain["model"] = {"use": "std.cnn", "hidden": 8}
    seen = []
    for engine_class in (LocalEngine, Apart):
        protocol, _, _ = build(plain)
        job = Job(Recipe.from_plain(plain, toy_catalog()).to_plain(), catalog=toy_catalog())
        protocol.engine = protocol.office.transport = engine_class(job)
        protocol.setup()
        protocol.run()
        seen.append(protocol.server.state["toy.asks"])
    assert len(set(seen[0]["1"])) == 4  # every client has trained a model of its own
    assert seen[0] == seen[1]


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


# -- noise and encryption through the whole protocol -------------------------------------------------------------------


def clipped(norm: float, multiplier: float) -> list[Any]:
    return [
        {"use": "std.clip", "norm": norm},
        {"use": "std.gaussian", "noise_multiplier": multiplier, "source": "reproducible"},
    ]


@pytest.mark.parametrize("scheme", ["std.bfv", "std.ckks"])
@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
def test_an_encrypted_mean_is_the_plain_mean(scheme: str, key_holder: str) -> None:
    """Spec 16: BFV is exact but for the grid that the clients quantise to, CKKS within its public grid."""
    seal = {"use": scheme, "key_holder": key_holder, "range": 0.125}
    plain = recipe_of("encrypted", [seal], train=PUSH, rounds=2)
    outcome = run_protocol(plain)
    vector, weights = initial_vector(plain), weights_of(outcome)
    if scheme == "std.bfv":
        keys = outcome.protocol.server.state[scheme]["terms"]
        step = 0.125 / (2 ** (keys["bits"] - 1) - 1)
    else:
        step = 2.0**-17
    for round in range(2):
        parts = [np.float64(weights[c]) * pushed(vector, 7, c, round).astype(np.float64) for c in range(4)]
        exact = sum(parts) / sum(weights.values())
        on_grid = sum(np.rint(part / step) * step for part in parts) / sum(weights.values())
        vector = vector + on_grid.astype(np.float32)
        assert np.abs(on_grid - exact).max() <= 4 * step / 2 / sum(weights.values())
    assert np.abs(outcome.vector - vector).max() < 1e-7  # nothing but the grid


def test_serial_dp_and_encryption_is_dp_fedavg() -> None:
    """Spec 36: the same noise, then CKKS; only the encryption's grid lies between."""
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


def test_the_final_fingerprint_is_keyed_where_the_server_must_not_know_the_model() -> None:
    held, answered = {"use": "std.bfv", "key_holder": "clients"}, {"use": "std.bfv", "answer": "clients"}
    for seal, keyed in (([held], True), ([answered], True), ([], False)):
        outcome = run_protocol(recipe_of("encrypted" if seal else "clear", seal, rounds=1, train=PUSH))
        digests = {bytes(m.decode()["value"]) for m in outcome.sent("server") if m.phase == "finish"}
        unkeyed = hashlib.blake2b(outcome.vector.tobytes(), digest_size=16).digest()
        assert len(digests) == 1
        assert (digests != {unkeyed}) == keyed


@pytest.mark.parametrize("clients", [2, 8])
def test_the_noise_of_the_mean_has_the_variance_of_local_noise(clients: int) -> None:
    """Spec 19: each client adds std C * sigma, so the mean of K carries C^2 sigma^2 / K; chi-square bounds."""
    norm, multiplier = 0.5, 3.0
    plain = recipe_of("noised", clipped(norm, multiplier), train={"use": "toy.push", "scale": 0}, rounds=2)
    plain["aggregate"] = {"use": "std.mean", "weighting": "uniform"}
    plain["data"]["clients"] = clients
    outcome = run_protocol(plain)
    start = initial_vector(plain)
    noise = (outcome.vector - start) / np.sqrt(2)  # two rounds, independent of each other
    expected = norm**2 * multiplier**2 / clients
    ratio = float(noise.astype(np.float64).var()) / expected
    assert abs(ratio - 1) < 5 * np.sqrt(2 / len(start))
    assert abs(float(noise.mean())) < 5 * np.sqrt(expected / len(start))


def test_an_empty_zone_is_no_ciphertext() -> None:
    """Spec 39."""
    plain = paraaegis(0.3, rounds=3, decay=0.01)  # 195, 1, and then no scalars
    outcome = run_protocol(plain)
    assert [row.zones["encrypted"] * 650 for row in outcome.rows] == pytest.approx([195, 1, 0])
    sizes = [outcome.wire.of_round(round).up.zones.get("encrypted", 0) for round in range(3)]
    assert sizes[0] > 0
    assert sizes[1] > 0
    assert sizes[2] == 0
    for message in outcome.sent("server", round=2):
        assert "encrypted" not in message.decode()["value"]["blocks"]


# -- attacks -----------------------------------------------------------------------------------------------------------


def test_an_attack_sees_what_the_server_saw_and_nothing_else(tmp_path: Path) -> None:
    attack = {"attacks": [{"use": "toy.spy"}], "rounds": [1, 2], "targets": [0]}
    plain = paraaegis(rounds=2, attack=attack)
    catalog = toy_catalog()
    code, folder = run_command.start(Recipe.from_plain(plain, catalog), Settings(output=tmp_path, quiet=True), catalog)
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


