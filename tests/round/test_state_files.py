"""State files: what was written is read, for its owner alone; anything else names the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fedplug.api.errors import CheckpointError
from fedplug.round.state_files import file_name, holding, read_file, write_file


def test_a_file_holds_what_was_written_and_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / file_name("client:3")
    assert path.name == "client-3.state"
    for body in (b"", b"\x00" * 5000, b"short"):
        write_file(path, body)
        assert read_file(path) == body
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_changed_in_any_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.state"
    write_file(path, b"state of the server")
    whole = path.read_bytes()
    for k in range(len(whole)):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :])
        with pytest.raises(CheckpointError, match=r"server\.state is damaged"):
            read_file(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=f"its {len(whole) - 1} bytes are not those that were written"):
        read_file(path)
    with pytest.raises(CheckpointError, match=r"nobody\.state is missing"):
        read_file(tmp_path / "nobody.state")


def test_whatever_is_wrong_with_a_file_names_it(tmp_path: Path) -> None:
    said = r"a\.state holds no client's state \(KeyError: 'plan'\)"
    with pytest.raises(CheckpointError, match=said), holding(tmp_path / "a.state", "client's state"):
        raise KeyError("plan")
    with pytest.raises(CheckpointError, match=r"^as it was$"), holding(tmp_path, "anything"):
        raise CheckpointError("as it was")


def test_a_system_that_writes_a_few_bytes_at_a_time_writes_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it may where a disk is nearly full, or a file is large."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    write_file(tmp_path / "client-0.state", b"state of a client")
    assert read_file(tmp_path / "client-0.state") == b"state of a client"
