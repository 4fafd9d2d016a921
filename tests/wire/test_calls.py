"""Messages of calls: what a receiver runs, what it refuses, and its error messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug import at_client, at_key_server
from fedplug.api import codec
from fedplug.api.blocks import Block
from fedplug.api.errors import MessageError, ProtectionError, describe
from fedplug.api.parties import KeyServer, KeyServerMemory
from fedplug.api.reports import Reports
from fedplug.wire.calls import Call, Receiver, Reply, read_reply, request


class Component:
    """Remembers the calls."""

    name = "toy"

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @at_client
    def hear(self, client: Any, *payload: Any) -> Any:
        self.heard.append(payload)
        return payload[0] if payload else None

    @at_client
    def fail(self, client: Any) -> None:
        raise ZeroDivisionError("by the toy")

    @at_client
    def refuse(self, client: Any) -> None:
        raise ProtectionError("value=1 must be 2; write 2")

    @at_client
    def give_object(self, client: Any) -> object:
        return object()

    @at_key_server
    def open(self, key_server: Any) -> str:
        return "opened"

    def unmarked(self, client: Any) -> str:
        return "secret"


class Reporter(KeyServer):
    """A party that reports nothing."""

    def collect_reports(self) -> Reports:
        return Reports()


class Site:
    """One receiver with its party."""

    def __init__(self, site: str = "client", digest: str = "d" * 64) -> None:
        self.component, self.party = Component(), Reporter()
        self.rounds: list[int] = []
        self.receiver = Receiver(site, {"toy": self.component}, digest)

    def deliver(self, *calls: Call, digest: str = "d" * 64, known: int = 0) -> Reply:
        data, _ = request(digest, list(calls), known)
        return self.raw(data)

    def raw(self, data: bytes) -> Reply:
        return read_reply(self.receiver.handle(data, self.party, self.rounds.append))[0]


def call(method: Any, *payload: Any, round: int = 0, sequence: int = 0, site: str = "client") -> Call:
    return Call.of(method, payload, site, round, sequence)


def test_calls_run_in_order_and_the_last_value_is_the_reply() -> None:
    site = Site()
    hear = site.component.hear
    reply = site.deliver(call(hear, 1, round=4), call(hear, [2], {"x": 3}, round=5))
    assert site.component.heard == [(1,), ([2], {"x": 3})]
    assert reply.value == [2]
    assert site.rounds == [4, 5]


def test_a_message_under_another_recipe_is_refused_and_nothing_runs() -> None:
    site = Site()
    reply = site.deliver(call(site.component.hear, 1), digest="e" * 64)
    assert site.component.heard == []
    assert reply.value is None
    assert reply.error.kind == "MessageError"
    assert "recipe eeeeeeeeeeee, mine is dddddddddddd" in reply.error.message


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: data[:10], lambda data: b"", lambda data: data[:-1] + b"\x00",
     lambda data: b"X" + data[1:], lambda data: codec.frame(codec.encode(5)), lambda data: codec.frame(b"\xc1"),
     lambda data: codec.frame(codec.encode({"digest": "d" * 64})),
     lambda data: codec.frame(codec.encode({"digest": "d" * 64, "known": 0, "calls": [b"\xc1"]})),
     lambda data: codec.frame(codec.encode({"digest": "d" * 64, "known": 0, "calls": [codec.encode([0, 0, "toy"])]})),
     lambda data: codec.frame(codec.encode({"digest": "d" * 64, "known": 0, "calls": [
         codec.encode([0, 0, ["toy"], "hear", []])]}))],
)  # fmt: skip
def test_damaged_messages_get_an_error_for_a_reply(damage: Any) -> None:
    site = Site()
    data, _ = request("d" * 64, [call(site.component.hear, 1)])
    reply = site.raw(damage(data))
    assert site.component.heard == []
    assert reply.error.message


def test_only_methods_marked_for_the_site_can_be_called() -> None:
    for marked_for, method in (("client", "unmarked"), ("client", "open"), ("client", "__init__"), ("client", "none"),
                               ("key_server", "hear"), ("client", "name")):  # fmt: skip
        site = Site(marked_for)
        body = codec.encode([0, 0, "toy", method, []])
        reply = site.raw(codec.frame(codec.encode({"digest": "d" * 64, "known": 0, "calls": [body]})))
        assert reply.value is None
        assert f"toy.{method} is not a method that may be called at a {marked_for}" in reply.error.message


def test_the_sender_refuses_them_too() -> None:
    component = Component()
    with pytest.raises(MessageError, match="unmarked cannot run at a client; mark it @at_client"):
        call(component.unmarked)
    with pytest.raises(MessageError, match="open cannot run at a client"):
        call(component.open)
    with pytest.raises(MessageError, match="hear cannot run at a key_server"):
        call(component.hear, site="key_server")
    with pytest.raises(MessageError, match="pass it as self"):
        call(Component.hear)
    with pytest.raises(MessageError, match="cannot travel"):
        call(component.hear, object())


def test_a_save_ends_the_rounds_that_a_party_has_been_in() -> None:
    """But for lasting calls, which come late to whoever missed them. A later round is a later round."""
    site = Site()
    hear = site.component.hear
    assert site.deliver(call(hear, 1, round=4)).error is None
    for _ in range(2):  # saved again, it has been in no other round
        site.party.remembered.end_round(3)
        assert (site.party.remembered.next, site.party.remembered.opened) == (5, 3)
        reply = site.deliver(call(hear, 2, round=4))
        assert reply.error is not None
        assert "toy.hear belongs to round 5, and this client was saved in the middle of it" in reply.error.message
    assert site.deliver(call(hear, 3, round=4, sequence=1), call(hear, 4, round=5)).value == 4
    assert site.component.heard == [(1,), (3,), (4,)]


def test_a_lasting_call_runs_once_however_often_it_arrives() -> None:
    site = Site()
    first, second = (call(site.component.hear, n, sequence=n) for n in (1, 2))
    assert site.deliver(first).done == 1
    assert site.deliver(first, second).done == 2
    assert site.deliver(first, second).done == 2
    assert site.component.heard == [(1,), (2,)]
    site.deliver(call(site.component.hear, 3), known=2)
    site.deliver(call(site.component.hear, 3), known=2)
    assert site.component.heard[2:] == [(3,), (3,)]  # calls of one round only are not numbered


def test_a_call_of_a_round_does_not_run_once_a_later_one_has_begun() -> None:
    site = Site()
    hear = site.component.hear
    for round in (-1, 0, 0, 2):  # set-up; a round may have many messages; not every client is in every round
        site.deliver(call(hear, round, round=round))
    for round in (-1, 0, 1):
        message = site.deliver(call(hear, "old", round=round)).error.message
        named = "the set-up" if round < 0 else f"round {round + 1}"
        rule = "this client has been in round 3 already; an old message does not run again"
        assert message == f"toy.hear belongs to {named}, but {rule}"
    site.deliver(call(hear, "aggregate", round=1, sequence=1))  # lasting calls reach parties that were away
    site.deliver(call(hear, "end", round=3))
    assert site.deliver(call(hear, "old", round=2)).error is not None
    assert site.component.heard == [(-1,), (0,), (0,), (2,), ("aggregate",), ("end",)]


def test_the_round_counts_from_when_a_message_is_run_and_goes_back_with_the_checkpoint() -> None:
    site = Site()
    site.deliver(call(site.component.fail, round=4))
    assert site.deliver(call(site.component.hear, "old", round=3)).error is not None
    site.party.remembered = KeyServerMemory(round=2)  # restored
    assert site.deliver(call(site.component.hear, "again", round=3)).error is None
    reply = site.deliver(call(site.component.hear, round=9), known=5)
    assert reply.behind
    assert site.party.remembered.round == 3  # nothing ran


def test_a_receiver_that_was_restored_says_how_far_it_is_and_runs_nothing() -> None:
    site = Site()
    site.deliver(call(site.component.hear, 1, sequence=1))
    reply = site.deliver(call(site.component.hear, 9, sequence=6), known=5)
    assert (reply.behind, reply.done) == (True, 1)
    assert site.component.heard == [(1,)]


def test_an_error_ends_the_message_and_says_where_it_was() -> None:
    site = Site()
    component = site.component
    reply = site.deliver(
        call(component.hear, 1, sequence=1), call(component.fail, sequence=2), call(component.hear, 3, sequence=3)
    )
    assert component.heard == [(1,)]
    assert reply.done == 1  # the failed call will come again, and so will those after it
    assert reply.error.call == "toy.fail"
    assert reply.error.kind == "ZeroDivisionError"
    assert reply.error.message.startswith("ZeroDivisionError: by the toy (test_calls.py:")
    assert reply.value is None


def test_an_error_of_our_own_is_told_in_its_own_words() -> None:
    site = Site()
    assert site.deliver(call(site.component.refuse)).error.message == "value=1 must be 2; write 2"
    assert describe(KeyError("x")) == "KeyError: 'x'"


def test_a_value_that_may_not_travel_becomes_an_error() -> None:
    site = Site()
    reply = site.deliver(call(site.component.give_object, sequence=1))
    assert "an object cannot travel" in reply.error.message
    assert reply.done == 1


def test_zones_of_a_request_are_those_of_its_calls() -> None:
    component = Component()
    block = Block("noised", 1000, np.zeros(1000, np.float32))
    calls = [call(component.hear, {"a": block}), call(component.hear, [block, block]), call(component.hear)]
    data, zones = request("d" * 64, calls)
    assert 3 * 4000 < zones["noised"] < 3 * 4100
    assert zones["noised"] < len(data) < zones["noised"] + 500


def test_a_reply_without_its_fields_is_refused() -> None:
    bodies: list[Any] = [[], {"value": 1}, {"done": 1}, {"done": 1, "saved": 0, "speed": 2}, 5]
    for body in bodies:
        with pytest.raises(MessageError, match="a reply that cannot be: "):
            read_reply(codec.frame(codec.encode(body)))


@pytest.mark.parametrize(
    "call",
    [
        7, b"", codec.encode(None), codec.encode([0, 0, "toy", "answer"]), codec.encode([-1, 0, "toy", "answer", []]),
        codec.encode([0, 2**60, "toy", "answer", []]), codec.encode([2**63, 0, "toy", "answer", []]),
        codec.encode([0, -2, "toy", "answer", []]), codec.encode([0, 0, 7, "answer", []]),
        codec.encode([0, 0, "toy", ["answer"], []]), codec.encode([0, 0, "toy", "answer", "x"]),
        codec.encode([True, 0, "toy", "answer", []]),
    ],
    ids=str,
)  # fmt: skip
def test_a_call_that_is_none_is_refused_and_changes_nothing(call: Any) -> None:
    site = Site()
    reply = site.raw(codec.frame(codec.encode({"digest": "d" * 64, "known": 0, "calls": [call]})))
    assert reply.error is not None
    assert reply.error.kind == "MessageError"
    assert (reply.done, site.rounds, site.party.remembered.round) == (0, [], Site().party.remembered.round)


@pytest.mark.parametrize("fields", [{"known": "x"}, {"known": -1}, {"calls": {}}, {"calls": None}, {"known": None}])
def test_a_message_whose_fields_are_none_is_refused(fields: dict[str, Any]) -> None:
    message = {"digest": "d" * 64, "known": 0, "calls": [], **fields}
    reply = Site().raw(codec.frame(codec.encode(message)))
    assert reply.error is not None
    assert "without the fields of one" in reply.error.message
