"""State files: they read back what was written, only the owner can access them, and errors name the file."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from fedplug.api import codec
from fedplug.api.errors import CheckpointError
from fedplug.api.parties import file_name
from fedplug_runs.checkpoint import holding, is_whole, read_file, read_states, states_in, write_file, write_states


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


def written(folder: Path, states: dict[str, bytes]) -> None:
    write_states(folder, {address: functools.partial(bytes, state) for address, state in states.items()})


def test_clients_of_two_processes_are_read_by_their_next_holder(tmp_path: Path) -> None:
    """A run may continue with different processes from those it began with."""
    states = {f"client:{number}": bytes([number]) * 1000 for number in range(5)}
    for first in range(2):
        written(tmp_path, {a: state for a, state in states.items() if int(a[7:]) % 2 == first})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clients-0.state", "clients-1.state"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    wanted = ["client:4", "client:1"]
    assert {a: state for a, _, state in read_states(tmp_path, wanted)} == {a: states[a] for a in wanted}
    with pytest.raises(CheckpointError, match="the state of client:5 is missing from the checkpoint"):
        list(read_states(tmp_path, [*wanted, "client:5"]))


def test_a_file_of_several_clients_that_was_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    """Also between two clients, where all that is left has its checksum."""
    written(tmp_path, {"client:0": b"one", "client:1": b"", "client:2": b"three"})
    path = tmp_path / "clients-0.state"
    whole = path.read_bytes()
    assert is_whole(path)
    for damaged in [*(whole[:k] for k in range(len(whole))), whole + whole[:1], whole + write_one(tmp_path)]:
        path.write_bytes(damaged)
        assert not is_whole(path)
        with pytest.raises(CheckpointError, match=r"clients-0\.state is damaged"):
            list(states_in(path))
    write_file(path, codec.encode(3))
    with pytest.raises(CheckpointError, match=r"clients-0\.state holds no states of clients"):
        list(states_in(path))


def write_one(folder: Path) -> bytes:
    write_file(folder / "one.state", b"one more")
    return (folder / "one.state").read_bytes()


def test_a_length_that_cannot_be_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "server.state"
    path.write_bytes(b"FPM1" + bytes([255]) * 12)
    with pytest.raises(CheckpointError, match=r"server\.state is damaged"):
        read_file(path)
