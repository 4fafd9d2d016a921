"""A message on its way through Flower's grid, and the node that it goes to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed; make test installs it")

import httpx
from fedplug.api.errors import CheckpointError, MessageError, PartyLost, SetupError
from fedplug_flower import letters, transport
from fedplug_flower.nodes import NODES, Nodes
from fedplug_flower.transport import LONGEST, FlowerTransport
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given, settings
from hypothesis import strategies as st


def node(name: str, node_id: int, key: bytes = b"key") -> Any:
    return SimpleNamespace(name=name, node_id=node_id, public_key=key + name.encode())


class FakeGrid:
    """A grid with nodes that give the answers of a test.

    Args:
        nodes: the connected nodes.
        answer: returns the replies to a message; called at each poll until there are some.
    """

    def __init__(self, nodes: list[Any], answer: Callable[[Message], list[Message]]) -> None:
        self.nodes, self.answer = nodes, answer
        self.pushed: dict[str, Message] = {}
        self.looks = 0

    def get_nodes(self) -> list[Any]:
        return self.nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str | None]:
        ids: list[str | None] = []
        for message in messages:
            name = f"message-{len(self.pushed)}"
            message.metadata.__dict__["_message_id"] = name
            self.pushed[name] = message
            ids.append(name)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        self.looks += 1
        return [reply for name in message_ids for reply in self.answer(self.pushed[name])]


def reply_to(message: Message, content: RecordDict) -> Message:
    message.metadata.__dict__["_src_node_id"] = 0
    return Message(content, reply_to=message)


def echo(message: Message) -> list[Message]:
    return [reply_to(message, letters.reply(letters.data_of(message)[::-1]))]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_LOOK", 0.001)
    monkeypatch.setattr(transport, "_GRACE", 0.05)
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)  # Flower creates messages only in a process that runs a task
    monkeypatch.setattr(TaskIdentity, "_node_id", 2)
    monkeypatch.setattr(TaskIdentity, "_task_id", 3)


CLIENTS = [node("client:0", 11), node("client:1", 12), node("key_server", 13)]


def carrier(answer: Callable[[Message], list[Message]] = echo, nodes: list[Any] | None = None) -> Any:
    grid: Any = FakeGrid(CLIENTS if nodes is None else nodes, answer)
    return FlowerTransport(grid, Nodes(grid, None))


@given(data=st.binary(max_size=300))
@settings(max_examples=30)
def test_bytes_arrive_as_they_were_sent(data: bytes) -> None:
    assert dict(carrier().exchange({"client:1": data}, 5.0)) == {"client:1": data[::-1]}


def test_each_message_goes_to_its_node_with_the_seconds_it_has_and_a_time_to_live() -> None:
    line = carrier()
    found = dict(line.exchange({"client:0": b"ab", "key_server": b"cd"}, 5.0))
    assert found == {"client:0": b"ba", "key_server": b"dc"}
    sent = line._grid.pushed.values()
    assert [message.metadata.dst_node_id for message in sent] == [11, 13]
    assert [letters.seconds_of(message) for message in sent] == [5.0, 5.0]
    assert all(5.0 < message.metadata.ttl < 6.0 for message in sent)


def test_without_a_deadline_a_message_lives_long() -> None:
    line = carrier()
    assert dict(line.exchange({"client:0": b"x"}, math.inf)) == {"client:0": b"x"}
    (sent,) = line._grid.pushed.values()
    assert letters.seconds_of(sent) == math.inf
    assert LONGEST <= sent.metadata.ttl < LONGEST + 60


def test_what_flower_adds_is_counted_both_ways() -> None:
    line = carrier()
    list(line.exchange({"client:0": b"x" * 1000}, 5.0))
    small = line.framing
    list(line.exchange({"client:0": b"x" * 100_000}, 5.0))
    assert 300 < small < 3000
    assert abs(line.framing - 2 * small) < 100  # it does not grow with the message


def test_a_reply_that_comes_twice_is_given_once() -> None:
    assert list(carrier(lambda message: echo(message) * 2).exchange({"client:0": b"x"}, 5.0)) == [("client:0", b"x")]


def test_a_silent_party_is_lost_after_its_time_and_its_late_reply_is_not_asked_for() -> None:
    line = carrier(lambda message: [] if message.metadata.dst_node_id == 11 else echo(message))
    found = dict(line.exchange({"client:0": b"x", "client:1": b"y"}, 0.1))
    assert found["client:1"] == b"y"
    assert isinstance(found["client:0"], PartyLost)
    assert "did not answer within 0.1 seconds" in str(found["client:0"])
    line._grid.answer = echo
    asked: list[str] = []
    pull = line._grid.pull_messages
    line._grid.pull_messages = lambda ids: asked.extend(ids) or pull(ids)
    assert dict(line.exchange({"client:0": b"z"}, 1.0)) == {"client:0": b"z"}
    assert set(asked) == {"message-2"}


def test_why_a_party_gives_no_answer_is_said() -> None:
    def answer(message: Message) -> list[Message]:
        if message.metadata.dst_node_id == 11:
            return [reply_to(message, letters.failure("nobody listens"))]
        message.metadata.__dict__["_src_node_id"] = 0
        return [Message(Error(code=3, reason="Node Unavailable"), reply_to=message)]

    found = {a: str(lost) for a, lost in carrier(answer).exchange({"client:0": b"x", "client:1": b"y"}, 5.0)}
    assert found == {"client:0": "client:0: nobody listens", "client:1": "client:1: Flower reports: Node Unavailable"}


def test_a_message_that_the_superlink_does_not_take_is_lost_at_once() -> None:
    line = carrier()
    line._grid.push_messages = lambda messages: [None for _ in messages]
    ((address, lost),) = line.exchange({"client:0": b"x"}, 60.0)
    assert address == "client:0"
    assert "did not take the message" in str(lost)


def test_a_superlink_that_is_gone_ends_the_run_with_a_sentence() -> None:
    line = carrier()

    def gone(_: Any) -> Any:
        raise httpx.ConnectError("connection refused")

    for part in ("push_messages", "pull_messages"):
        setattr(line._grid, part, gone)
        with pytest.raises(SetupError, match=r"the SuperLink failed \(connection refused\)"):
            list(line.exchange({"client:0": b"x"}, 5.0))
        line = carrier()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (RecordDict(), "a message of another app"),
        (RecordDict({"bytes": ConfigRecord({"data": b"x"})}), "a message of another app"),
        (RecordDict({"failure": ConfigRecord({"reason": "no"})}), "^no$"),
        (RecordDict({"failure": ConfigRecord({"reason": "x" * 5000})}), "^x{1000}$"),
    ],
)
def test_what_holds_no_bytes_is_refused(content: RecordDict, why: str) -> None:
    with pytest.raises(MessageError, match=why):
        letters.data_of(Message(content, 1, "query"))


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, "soon", None])
def test_a_request_says_how_long_a_party_has(seconds: Any) -> None:
    terms = {} if seconds is None else {"seconds": seconds}
    with pytest.raises(MessageError, match="not a number above 0"):
        letters.seconds_of(Message(RecordDict({"terms": ConfigRecord(terms)}), 1, "query"))


# -- nodes -------------------------------------------------------------------------------------------------------------


def nodes_of(connected: list[Any], run_dir: Path | None = None) -> Nodes:
    grid: Any = FakeGrid(connected, echo)
    return Nodes(grid, run_dir)


def test_a_party_is_behind_the_node_that_is_registered_as_it() -> None:
    assert nodes_of(CLIENTS).of(["client:1", "key_server"]) == {"client:1": 12, "key_server": 13}


@pytest.mark.parametrize(
    ("connected", "why"),
    [
        ([], "flwr supernode register KEY.pub --name client:0"),
        ([node("", 11), node("client:00", 12)], "no node registered as client:0 is connected"),
        ([node("client:0", 11), node("client:0", 12, b"other")], "2 nodes are registered as client:0"),
    ],
)
def test_a_party_without_one_node_is_lost(connected: list[Any], why: str) -> None:
    found = nodes_of(connected).of(["client:0"])["client:0"]
    assert isinstance(found, PartyLost)
    assert why in str(found)


def test_a_run_keeps_to_the_keys_that_it_began_with(tmp_path: Path) -> None:
    assert nodes_of(CLIENTS, tmp_path).of(["client:0"]) == {"client:0": 11}
    assert json.loads((tmp_path / NODES).read_text()).keys() == {"client:0"}
    # The SuperLink was restarted and numbers its nodes again. The key is the same.
    assert nodes_of([node("client:0", 99)], tmp_path).of(["client:0"]) == {"client:0": 99}
    stranger = nodes_of([node("client:0", 11, b"other"), CLIENTS[1]], tmp_path).of(["client:0", "client:1"])
    assert "has a different key from the one when this run began" in str(stranger["client:0"])
    assert stranger["client:1"] == 12
    (tmp_path / NODES).write_text("[1, 2")
    with pytest.raises(CheckpointError, match="does not contain addresses and keys"):
        nodes_of(CLIENTS, tmp_path)


def test_a_server_waits_for_nodes_and_says_so() -> None:
    told: list[str] = []
    nodes = nodes_of([CLIENTS[0]])
    nodes.wait_for(["client:0", "client:1"], 0.0, told.append)  # one is there; the round loses the other
    assert told == []
    with pytest.raises(SetupError, match="no node has connected after 0 seconds: no node registered as client:1"):
        nodes.wait_for(["client:1"], 0.0, told.append)

    grid: Any = nodes._grid

    def say(line: str) -> None:
        told.append(line)
        grid.nodes = CLIENTS

    nodes.wait_for(["client:0", "client:1"], 10.0, say)
    assert told == ["waiting for the nodes registered as client:1"]
