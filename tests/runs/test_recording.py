"""Messages as they crossed the wire, written to disk as they come."""

from __future__ import annotations

from pathlib import Path

from fedplug.runs.recording import Recording
from fedplug.wire.record import Message, read_wire


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
