"""Files of a run that only grow: JSON lines, and messages as they crossed the wire."""

from __future__ import annotations

import math
import resource
import signal
from pathlib import Path

import pytest
from fedplug.runs.histories import START, Lines, Recording
from fedplug.wire.record import Message, read_wire


def test_lines_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "x.jsonl")
    lines.append({"a": 1}, {"b": math.nan})
    mark = lines.mark
    before = lines.file.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limit[1]))  # as a disk with room for five bytes
    try:
        with pytest.raises(OSError, match=r"could not be written to its end|File too large"):
            lines.append({"long": "x" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert lines.file.read_bytes() == before
    assert lines.mark == mark
    lines.append({"c": 3})
    assert [list(record) for record in lines.read(lines.mark)] == [["a"], ["b"], ["c"]]
    lines.cut(mark)
    assert lines.file.read_bytes() == before
    lines.cut(START)
    assert lines.read(START) == []


def test_a_recorded_message_has_a_frame_of_its_own(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    assert not recording.begun
    recording.begin(0)
    sent = [Message("server", f"client:{n}", 3, "upload", bytes(n), n, {"clear": n}) for n in range(3)]
    for message in sent:
        recording.add(message)
    recording.end_of_round(4)
    found = read_wire(tmp_path / "wire/round-0004.wire")
    assert [(m.receiver, m.data, dict(m.zones)) for m in found] == [(m.receiver, m.data, dict(m.zones)) for m in sent]
    recording.end_of_round(5)
    assert read_wire(tmp_path / "wire/round-0005.wire") == []
    recording.begin(4)
    assert sorted(path.name for path in (tmp_path / "wire").iterdir()) == ["round-0004.wire"]
