"""What the parties of one process note: one write to the disk for many, and no answer before it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import CheckpointError, ProtectionError
from fedplug.api.parties import Openings
from fedplug_runs import openings as module
from fedplug_runs.checkpoint import StateFiles
from fedplug_runs.openings import Answer, Notes

CLIENTS = [f"client:{number}" for number in range(5)]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The files that were written to the disk."""
    done: list[int] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        real(handle)
        done.append(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return done


def parties(folder: Path, addresses: list[str] = CLIENTS) -> tuple[Notes, dict[str, Openings]]:
    notes = Notes()
    return notes, notes.openings(folder, dict.fromkeys(addresses, 0))


def answering(held: dict[str, Openings], round: int, content: bytes = b"a", size: int = 1) -> Iterator[Answer]:
    """Each party uses a key, and answers."""
    for address, openings in held.items():
        openings.use(round, f"the key of {address}", [content])
        yield address, bytes(size)


def lines(folder: Path, name: str = "client-0") -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_no_answer_leaves_before_its_note_is_on_the_disk_and_one_write_is_enough(
    tmp_path: Path, synced: list[int]
) -> None:
    notes, held = parties(tmp_path)
    for round in range(2):
        synced.clear()
        for address, answer in notes.before(answering(held, round)):
            assert answer == b"\0"
            assert synced
            assert (round, f"the key of {address}") in [(note["round"], note["zone"]) for note in lines(tmp_path)]
        assert len(synced) == 1 + (round == 0)  # and once the name of the new file
    assert [len(found) for found in parties(tmp_path)[1].values()] == [2] * 5


def test_parties_that_open_one_sum_share_a_line(tmp_path: Path) -> None:
    notes, held = parties(tmp_path)

    def opening() -> Iterator[Answer]:
        for address, openings in held.items():
            with openings.once(0, "encrypted", "all", range(5), [b"sum"]):
                pass
            yield address, b""

    assert [address for address, _ in notes.before(opening())] == CLIENTS
    assert [note["by"] for note in lines(tmp_path)] == [[0, 1, 2, 3, 4]]
    (found,) = parties(tmp_path, ["client:3"])[1].values()
    with pytest.raises(Exception, match="was opened before"), found.once(0, "encrypted", "all", range(5), [b"other"]):
        pytest.fail("it was opened")


@pytest.mark.parametrize("limit", ["_HELD_BYTES", "_HELD_SECONDS"])
def test_large_answers_and_slow_ones_do_not_wait_for_all_others(
    limit: str, tmp_path: Path, synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, 10 if limit == "_HELD_BYTES" else -1.0)
    notes, held = parties(tmp_path)
    asked: list[str] = []

    def noticed() -> Iterator[Answer]:
        for answer in answering(held, 0, size=11):
            asked.append(answer[0])
            yield answer

    for number, _ in enumerate(notes.before(noticed()), 1):
        assert len(asked) == number
    assert len(synced) == 1 + len(CLIENTS)


def test_without_notes_an_answer_waits_for_nobody(tmp_path: Path) -> None:
    answers = iter([("client:0", b"1"), ("client:1", b"2")])
    assert next(iter(parties(tmp_path)[0].before(answers))) == ("client:0", b"1")
    assert next(answers) == ("client:1", b"2")


def test_where_notes_cannot_be_written_nobody_answers_and_the_next_step_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, held = parties(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        failed = [answer for _, answer in notes.before(answering(held, 0))]
        assert {type(answer) for answer in failed} == {OSError}
        assert not lines(tmp_path)
        # The same once more, which needs no other note: it still waits for the first.
        assert {type(answer) for _, answer in notes.before(answering(held, 0))} == {OSError}
    assert [answer for _, answer in notes.before(answering(held, 0))] == [b"\0"] * 5
    assert len(lines(tmp_path)) == 5
    with pytest.raises(ProtectionError, match="was used before, for something else"):
        list(notes.before(answering(parties(tmp_path)[1], 0, b"b")))


@pytest.mark.parametrize("address", ["client:0", "key_server"])
def test_a_checkpoint_comes_after_the_notes_of_an_exchange_that_broke_off(tmp_path: Path, address: str) -> None:
    """It says how many notes there are, and a run with fewer is not resumed."""

    def broken() -> Iterator[Answer]:
        yield from answering({address: files_of[address]}, 0)
        raise RuntimeError("the engine stopped here")

    class Saved:
        def to_plain(self) -> dict[str, int]:
            return {}

        def save(self, share: object) -> bytes:
            return b""

    state: Any = Saved()
    files = StateFiles(tmp_path)
    files_of = files.openings([address])
    with pytest.raises(RuntimeError, match="stopped here"):
        list(files.noted(broken()))
    assert len(files_of[address]) == 1
    if address == "key_server":
        files.save_key_server(tmp_path, state)
    else:
        files.save_clients(tmp_path, {address: state})
    assert len(lines(tmp_path / "openings", address.replace("client:", "client-"))) == 1


def test_a_party_finds_its_notes_whichever_process_it_was_in(tmp_path: Path) -> None:
    """Another process may be writing meanwhile: what it has not finished is its own to cut away."""
    for addresses in (["client:0", "client:2"], ["client:1"], ["key_server"]):
        notes, held = parties(tmp_path, addresses)
        list(notes.before(answering(held, 0)))
    theirs = tmp_path / "client-1.jsonl"
    theirs.write_bytes(theirs.read_bytes() + b'{"by": [2], "rou')
    written = theirs.read_bytes()
    notes = Notes()
    found = notes.openings(tmp_path, dict.fromkeys(["client:2", "client:1", "client:0"], 1))
    assert [len(each) for each in found.values()] == [1, 1, 1]
    assert theirs.read_bytes() == written
    parties(tmp_path, ["client:1"])
    assert theirs.read_bytes() == written[: written.rindex(b"\n") + 1]
    with pytest.raises(CheckpointError, match="has 1 notes of client-2, but a checkpoint knows of 2 sums that it open"):
        Notes().openings(tmp_path, {"client:2": 2})


@pytest.mark.parametrize("by", ['"0"', "{}", '["0"]', "[true]", "[0.5]"])
def test_a_line_that_names_no_clients_is_damaged(by: str, tmp_path: Path) -> None:
    notes, held = parties(tmp_path, ["client:0"])
    list(notes.before(answering(held, 0)))
    file = tmp_path / "client-0.jsonl"
    file.write_text(file.read_text().replace("{", '{"by": ' + by + ", ", 1))
    with pytest.raises(CheckpointError, match=r"client-0.jsonl, line 1, is damaged: .*by is .* must be a list of"):
        parties(tmp_path, ["client:0"])
