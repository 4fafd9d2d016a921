"""The folder of a party: its checkpoints, its notes, and the states that it refuses to continue from."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import CheckpointError, SetupError
from fedplug_party.notes import Notes
from fedplug_party.state import Belongs, State
from fedplug_runs.checkpoint import write_file


def write(folder: Path) -> None:
    """Writes a state, as a host does."""
    write_file(folder / "client-0.state", b"its state")


def fail(folder: Path) -> None:
    write(folder)
    raise OSError("no room")


def reopened(state: State) -> State:
    """The folder as its program finds it after a restart."""
    state.close()
    return State(state.folder)


def test_the_last_two_checkpoints_are_kept_and_the_one_that_the_server_needs(tmp_path: Path) -> None:
    state = State(tmp_path)
    for name in ("0-aa", "1-bb", "2-cc", "3-dd"):
        state.save(name, write, needed="1-bb")
    assert state.kept() == ["1-bb", "2-cc", "3-dd"]
    assert (state.path("3-dd") / "client-0.state").is_file()
    state.save("4-ee", write, needed="3-dd")
    assert reopened(state).kept() == ["3-dd", "4-ee"]
    for path in tmp_path.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_checkpoint_that_fails_half_way_leaves_the_one_before(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.save("1-aa", write, "")
    with pytest.raises(OSError, match="no room"):
        state.save("2-bb", fail, "")
    assert state.kept() == ["1-aa"]
    state = reopened(state)
    state.save("2-cc", write, "")
    assert state.kept() == ["1-aa", "2-cc"]


def test_going_back_forgets_what_came_after(tmp_path: Path) -> None:
    """A repeated round has two versions. The run continued from only one of them."""
    state = State(tmp_path)
    for name in ("1-aa", "2-bb"):
        state.save(name, write, "")
    state.go_back("1-aa")
    assert state.kept() == ["1-aa"]
    with pytest.raises(CheckpointError, match="no checkpoint 2-bb; the folder has: 1-aa"):
        state.path("2-bb")
    state.save("2-cc", write, "")
    assert reopened(state).kept() == ["1-aa", "2-cc"]
    state.go_back("")
    assert reopened(state).kept() == []


def test_two_programs_cannot_use_one_folder(tmp_path: Path) -> None:
    state = State(tmp_path)
    with pytest.raises(SetupError, match="another program uses"):
        State(tmp_path)
    reopened(state)


def _older_checkpoints(state: Path, old: Path) -> None:
    shutil.rmtree(state / "checkpoint")
    shutil.copytree(old / "checkpoint", state / "checkpoint")


def _no_checkpoints(state: Path, old: Path) -> None:
    shutil.rmtree(state / "checkpoint")


def _older_notes(state: Path, old: Path) -> None:
    shutil.copy(old / "uploads.jsonl", state / "uploads.jsonl")


def _no_notes(state: Path, old: Path) -> None:
    (state / "uploads.jsonl").unlink()


@pytest.mark.parametrize(
    ("restore", "message"),
    [
        (_older_checkpoints, r"is older than .*uploads.jsonl, which names checkpoint 4-ee; the folder has: 1-bb, 2-cc"),
        (_no_checkpoints, r"names checkpoint 4-ee; the folder has: none; restore the folder as it was"),
        (_older_notes, r"uploads.jsonl has 4 lines, but had 5 when checkpoint 3-dd was made; restore the folder"),
        (_no_notes, r"uploads.jsonl has 0 lines, but had 5 when checkpoint 3-dd was made"),
    ],
)
def test_a_folder_of_which_a_part_is_older_is_refused(
    restore: Callable[[Path, Path], None], message: str, tmp_path: Path
) -> None:
    state, old = State(tmp_path / "state"), tmp_path / "old"
    for name in ("0-aa", "1-bb", "2-cc"):
        state.save(name, write, "")
    state.notes.answered(2, "fedplug.protect", 10)
    shutil.copytree(state.folder, old)
    state.notes.answered(3, "fedplug.protect", 10)
    for name in ("3-dd", "4-ee"):
        state.save(name, write, "")
    state.close()
    restore(state.folder, old)
    with pytest.raises(CheckpointError, match=message):
        State(state.folder)


def test_a_kill_between_a_checkpoint_and_its_note_loses_nothing(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.save("1-aa", write, "")
    state.save("2-bb", write, "")
    state.close()
    lines = (tmp_path / "uploads.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "uploads.jsonl").write_text("".join(lines[:-1]))
    assert State(tmp_path).kept() == ["1-aa", "2-bb"]


def test_a_checkpoint_of_an_earlier_round_is_refused_and_what_was_just_saved_stays(tmp_path: Path) -> None:
    """Otherwise a server could make the party delete its only current checkpoint with the old ones."""
    state = State(tmp_path)
    for name in ("5-aa", "6-aa"):
        state.save(name, write, "")
    with pytest.raises(CheckpointError, match="1-aa would be older than the existing checkpoint 6-aa; go back"):
        state.save("1-aa", write, "")
    state.save("6-bb", write, "")  # a server that failed to save its own part
    assert reopened(state).kept() == ["5-aa", "6-bb"]


@pytest.mark.parametrize(
    ("removing", "left"),
    [
        (lambda state: state.save("3-aa", write, ""), ["2-aa", "3-aa"]),
        (lambda state: state.go_back("1-aa"), ["1-aa"]),
        (lambda state: state.go_back(""), ["2-aa"]),
    ],
)
def test_a_kill_while_a_checkpoint_is_removed_keeps_no_party_from_starting(
    removing: Callable[[State], None], left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(tmp_path)
    for name in ("1-aa", "2-aa"):
        state.save(name, write, "")

    def killed(path: Path, **options: Any) -> None:
        if path.exists():
            (path / "name.state").unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        removing(state)
    monkeypatch.undo()
    state = reopened(state)
    assert state.kept() == left


@pytest.mark.parametrize("step", range(4))
def test_a_kill_while_a_checkpoint_takes_the_place_of_another_leaves_one_of_them(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(tmp_path)
    state.save("1-aa", write, "")
    calls, real, noted = [0], os.replace, state.notes.saved

    def replace(source: Path, target: Path) -> None:
        calls[0] += Path(target).name.startswith("round-")
        if calls[0] > min(step, 2):
            raise KeyboardInterrupt
        real(source, target)

    def saved(checkpoint: str) -> None:
        if step == 2:
            raise KeyboardInterrupt
        noted(checkpoint)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(state.notes, "saved", saved)
    with pytest.raises(KeyboardInterrupt):
        state.save("1-bb", write, "")
    monkeypatch.undo()
    state = reopened(state)
    assert state.kept() == (["1-bb"] if step == 3 else ["1-aa"])
    assert not list(tmp_path.glob("checkpoint/*.old"))
    state.save("1-cc", write, "")
    assert reopened(state).kept() == ["1-cc"]


MINE = Belongs("client:0", "a" * 64, "d" * 64)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Belongs("client:1", "a" * 64, "d" * 64), "holds the state of client:0, not of client:1; name another folder"),
        (Belongs("client:0", "b" * 64, "d" * 64), "belongs to recipe aaaaaaaaaaaa, but this is recipe bbbbbbbbbbbb; "),
        (Belongs("client:0", "a" * 64, "e" * 64), "the data of client:0 have changed since the run in .* began; "),
    ],
)
def test_a_folder_belongs_to_one_party_of_one_recipe_with_its_data(
    other: Belongs, message: str, tmp_path: Path
) -> None:
    state = State(tmp_path)
    state.require(MINE)
    state.claim(MINE)
    state = reopened(state)
    state.require(MINE)
    with pytest.raises(SetupError, match=message):
        state.require(other)
    state.claim(other)  # this must change nothing
    assert state.belongs == MINE


def test_a_folder_holds_the_state_of_one_run(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.claim(MINE)
    state.require_run("any")
    state.bind("first")
    state = reopened(state)
    state.bind("second")  # this must change nothing
    state.require_run("first")
    with pytest.raises(SetupError, match="holds the state of run first, but this is run second; its answers count"):
        state.require_run("second")
    state.require(MINE)


def test_notes_count_the_rounds_that_were_answered_in_more_than_one_attempt(tmp_path: Path) -> None:
    file = tmp_path / "uploads.jsonl"
    notes = Notes(file)
    notes.sent_back("")
    notes.answered(0, "toy.ballot", 5)
    notes.answered(0, "fedplug.protect", 5)  # the same attempt
    notes.saved("1-aa")
    notes.answered(1, "fedplug.protect", 5)
    assert notes.repeats == 0
    notes.sent_back("1-aa")
    assert not notes.would_repeat(2)
    assert notes.would_repeat(1)
    notes.answered(1, "fedplug.protect", 5)
    assert notes.repeats == 1
    again = Notes(file)
    assert (again.repeats, again.current, again.would_repeat(1)) == (1, "1-aa", False)
    again.sent_back("")
    again.answered(0, "toy.ballot", 5)
    assert Notes(file).repeats == 2
    assert [json.loads(line).get("answered") for line in file.read_text().splitlines()].count("fedplug.protect") == 3


def test_notes_that_were_cut_off_go_on_and_those_that_were_changed_do_not(tmp_path: Path) -> None:
    file = tmp_path / "uploads.jsonl"
    notes = Notes(file)
    notes.answered(0, "fedplug.protect", 5)
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"answered": "fedpl')
    assert len(Notes(file).lines) == 1
    assert file.read_bytes() == whole
    for damage in (b"[]\n", b"{}\n", b'{"answered": "x", "round": "1"}\n', b"nothing\n"):
        file.write_bytes(whole + damage)
        with pytest.raises(CheckpointError, match=r"line 2, is damaged: .* restore the file from a copy"):
            Notes(file)
