"""Messages as they crossed the wire: always counted, and kept in a file where a run is recorded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.blocks import Block
from fedplug.api.errors import MessageError
from fedplug.api.parties import KEY_SERVER, SERVER, client_address
from fedplug_runs.wire_record import Answered, Message, Wire, file_of, framed, read_wire, recordings
from hypothesis import given, settings
from hypothesis import strategies as st

ADDRESSES = st.sampled_from([client_address(0), client_address(1), KEY_SERVER])
SENT = st.lists(
    st.tuples(ADDRESSES, st.booleans(), st.integers(0, 2), st.integers(0, 40), st.integers(0, 40)), max_size=20
)


@settings(max_examples=40)
@given(SENT)
def test_every_byte_is_counted_once_whichever_way_bytes_are_cut(
    sent: list[tuple[str, bool, int, int, int]]
) -> None:
    wire, kept = Wire(), Wire(keep=True)
    for address, asked, round, zone, other in sent:
        ends = (SERVER, address) if asked else (address, SERVER)
        for one in (wire, kept):
            one.record(*ends, round, "upload", bytes(zone + other), {"clear": zone})
    for round in range(3):
        here = [each for each in sent if each[2] == round]
        traffic = wire.of_round(round)
        for cut in (traffic.up, traffic.down, traffic.key_server):
            assert cut.total == sum(cut.zones.values()) == sum(cut.phases.values())
        assert traffic.up.total + traffic.down.total + traffic.key_server.total == sum(z + o for *_, z, o in here)
        assert traffic.key_server.total == sum(z + o for address, _, _, z, o in here if address == KEY_SERVER)
        assert wire.requests[round] == sum(asked and address != KEY_SERVER for address, asked, *_ in here)
    assert wire.messages == []
    assert [len(message.data) for message in kept.take()] == [zone + other for *_, zone, other in sent]
    assert kept.take() == []


def test_listeners_hear_of_every_message() -> None:
    heard: list[tuple[str, str, int, int]] = []
    wire = Wire()
    wire.record(SERVER, "client:3", -1, "setup", bytes(7), {})
    wire.listeners.append(lambda *message: heard.append(message))
    wire.record(SERVER, "client:3", 0, "upload", bytes(10), {})
    wire.record("client:3", SERVER, 0, "upload", bytes(5), {})
    assert heard == [(SERVER, "client:3", 0, 10), ("client:3", SERVER, 0, 5)]


def test_a_sink_is_handed_what_is_kept() -> None:
    heard: list[Message] = []
    wire = Wire(keep=True, sink=heard.append)
    wire.record("client:0", SERVER, 1, "upload", b"abc", {"clear": 2})
    assert wire.messages == []
    assert [(m.sender, m.receiver, m.round, m.phase, m.data, m.size, m.zones) for m in heard] == [
        ("client:0", SERVER, 1, "upload", b"abc", 3, {"clear": 2})
    ]


def test_messages_of_a_file_come_back_in_order_and_damage_is_an_error(tmp_path: Path) -> None:
    body = codec.frame(codec.encode({"calls": [codec.encode([1, 2, "acme.vote", "ballot", [5]])]}))
    sent = [Message(SERVER, "client:0", 2, "negotiate", data, len(data), {"clear": 1}) for data in (body, b"")]
    file = tmp_path / "round.wire"
    file.write_bytes(b"".join(map(framed, sent)))
    first, second = read_wire(file)
    assert (first.sender, first.receiver, first.round, first.phase, first.size, first.data) == (
        SERVER, "client:0", 2, "negotiate", len(body), body
    )  # fmt: skip
    assert second.size == 0
    assert first.decode() == {"calls": [[1, 2, "acme.vote", "ballot", [5]]]}
    assert [call.method for call in first.asked()] == ["ballot"]
    assert first.answered() is None
    file.write_bytes(framed(sent[0])[:-1])
    with pytest.raises(MessageError):
        read_wire(file)


def test_a_run_that_was_not_recorded_has_counts_and_no_content() -> None:
    with pytest.raises(MessageError):
        Message(SERVER, "client:0", 0, "upload", b"", 17, {}).decode()


BLOCK = Block("clear", 2000, np.arange(2000, dtype=np.float32))


def test_a_packed_message_is_counted_and_kept_as_the_bytes_that_it_would_be() -> None:
    sent = codec.frame(codec.encode({"value": BLOCK}))
    found = []
    for data in (sent, codec.pack({"value": BLOCK}).in_frame()):
        wire = Wire(keep=True)
        wire.record("client:0", "server", 0, "upload", data, {"clear": 8000})
        (message,) = wire.take()
        assert (message.data, message.size) == (sent, len(sent))
        found.append((wire.counts, wire.requests))
    assert found[0] == found[1]
    assert sum(found[0][0][0].values()) == len(sent)


# -- what recorded messages hold ---------------------------------------------------------------------------------------


def sent_as(body: Any) -> Message:
    data = codec.frame(codec.encode(body))
    return Message(SERVER, "client:0", 0, "upload", data, len(data), {})


def test_calls_are_read_in_order_with_their_bytes() -> None:
    calls = [codec.encode([7, 0, "fedplug", "train", []]), codec.encode([0, 0, "acme.vote", "ballot", [{"a": 1}]])]
    first, second = sent_as({"calls": calls}).asked()
    assert (first.sequence, first.round, first.component, first.method, first.payload) == (7, 0, "fedplug", "train", [])
    assert (second.component, second.payload) == ("acme.vote", [{"a": 1}])
    assert [first.body, second.body] == calls
    assert sent_as({"value": 3}).asked() == []


def test_an_answer_says_its_blocks_and_how_many_examples_there_are() -> None:
    block = Block("clear", 2, np.array([1, 2], np.float32))
    found = sent_as({"value": {"blocks": {"clear": block}, "num_examples": 31}}).answered()
    assert found is not None
    assert found.blocks is not None
    assert found.blocks["clear"].plain().tolist() == [1, 2]
    assert found.num_examples == 31


@pytest.mark.parametrize("value", [None, 5, [], {"blocks": [1], "num_examples": "3"}])
def test_another_answer_has_neither(value: Any) -> None:
    assert Answered(value).blocks is None
    assert Answered(value).num_examples is None


def test_a_failure_is_no_answer_and_damage_is_an_error() -> None:
    assert sent_as({"error": {"call": "x"}}).answered() is None
    nothing = sent_as({"value": None}).answered()
    assert nothing is not None
    assert nothing.value is None
    damaged = dataclasses.replace(sent_as({"value": 1}), data=sent_as({"value": 1}).data[:-1])
    for read in (damaged.asked, damaged.answered):
        with pytest.raises(MessageError):
            read()


@pytest.mark.parametrize(
    "row",
    [
        None, [], [1] * 6, ["server", "client:0", 0, "upload", b""], ["server", "client:x", 0, "upload", b"", {}],
        ["nobody", "client:0", 0, "upload", b"", {}], ["server", "client:0", 2**40, "upload", b"", {}],
        ["server", "client:0", -5, "upload", b"", {}], ["server", "client:0", 0, "upload", "text", {}],
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_record_of_a_message_is_refused(row: Any, tmp_path: Path) -> None:
    good = Message(SERVER, "client:0", 0, "upload", b"x", 1, {})
    (tmp_path / "w").write_bytes(framed(good) + codec.frame(codec.encode(row)))
    with pytest.raises(MessageError, match=r"message 2 of .* is "):
        read_wire(tmp_path / "w")


def test_files_of_messages_are_those_of_rounds_whatever_else_lies_there(tmp_path: Path) -> None:
    for name in (file_of(7), file_of(12345), "round-²²²².wire", "round-7.wire", "round-0001.tmp.wire", "messages.tmp"):
        (tmp_path / name).touch()
    assert recordings(tmp_path) == {7: tmp_path / "round-0007.wire", 12345: tmp_path / "round-12345.wire"}
