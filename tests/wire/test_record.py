"""The record of the wire: what is counted, and that what is kept are bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fedplug.api import codec
from fedplug.api.types import Block
from fedplug.wire.record import Wire, framed, read_wire

BLOCK = Block("clear", 2000, np.arange(2000, dtype=np.float32))


def test_a_packed_message_is_counted_and_kept_as_the_bytes_that_it_would_be() -> None:
    sent = codec.frame(codec.encode({"value": BLOCK}))
    found = []
    for data in (sent, codec.frame(codec.pack({"value": BLOCK}))):
        wire = Wire(keep=True)
        wire.record("client:0", "server", 0, "upload", data, {"clear": 8000})
        (message,) = wire.take()
        assert (message.data, message.size) == (sent, len(sent))
        found.append((wire.counts, wire.traffic, wire.requests))
    assert found[0] == found[1]
    assert sum(found[0][0][0].values()) == len(sent)


def test_messages_lie_in_a_file_one_after_the_other(tmp_path: Path) -> None:
    wire = Wire(keep=True)
    for number in range(3):
        data = codec.frame(codec.encode({"value": number}))
        wire.record("server", "client:1", number, "open", data, {})
    kept = wire.take()
    (tmp_path / "wire").write_bytes(b"".join(map(framed, kept)))
    read = read_wire(tmp_path / "wire")
    assert [(m.round, m.data, m.receiver) for m in read] == [(m.round, m.data, m.receiver) for m in kept]
