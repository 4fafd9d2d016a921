"""The files of a run folder: its lock, and who paid for which upload."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from charge_toys import noised, paid
from fedplug.api.errors import CheckpointError, SetupError
from fedplug.recipe.recipe import Recipe
from fedplug.runs import execution
from fedplug.runs.folder import locked
from fedplug.runs.settings import Settings
from run_toys import resume
from toy_components import toy_catalog


def test_a_charge_that_was_cut_off_was_asked_of_nobody(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    file = folder / "charging.jsonl"
    data = file.read_bytes()
    file.write_bytes(data + b'{"round": 4, "char')
    assert resume(folder) == 0
    assert file.read_bytes() == data


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with secret noise."""
    catalog, settings = toy_catalog(), Settings(output=tmp_path_factory.mktemp("noisy"), quiet=True)
    return execution.start(Recipe.from_plain(noised(), catalog), settings, catalog)[1]


@pytest.mark.parametrize("left", [None, 0, 3])
def test_a_missing_or_shortened_charging_file_is_refused(left: int | None, noisy: Path, tmp_path: Path) -> None:
    """Also when going back to a checkpoint that is as old as the file is short."""
    folder = shutil.copytree(noisy, tmp_path / "run")
    file = folder / "charging.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    before = (folder / "ledger.json").read_bytes()
    file.unlink()
    if left is not None:
        file.write_text("".join(lines[:left]))
    found = "is missing" if left is None else f"has {left} lines"
    for round in (3, None):
        with pytest.raises(CheckpointError) as caught:
            execution.resume(folder, Settings(output=tmp_path, quiet=True), round, toy_catalog())
        assert f"{file} {found}, but the checkpoint after round" in str(caught.value)
        assert f"fedplug run {folder / 'recipe.yaml'}" in str(caught.value)
    assert (folder / "ledger.json").read_bytes() == before


@pytest.mark.parametrize("line", ["{nonsense", '{"round": 1}', '{"round": "1", "charged": [0]}', "[]", "\x00"])
def test_a_damaged_charging_file_is_refused_with_its_line(line: str, noisy: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(noisy, tmp_path / "run")
    file = folder / "charging.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
    with pytest.raises(CheckpointError) as caught:
        execution.resume(folder, Settings(output=tmp_path, quiet=True), 3, toy_catalog())
    assert f"{file}, line 2, is damaged" in str(caught.value)
    assert f"fedplug run {folder / 'recipe.yaml'}" in str(caught.value)


def test_uploads_are_paid_for_even_when_every_checkpoint_is_gone(noisy: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(noisy, tmp_path / "run")
    shutil.rmtree(folder / "checkpoint")
    assert execution.resume(folder, Settings(output=tmp_path, quiet=True), catalog=toy_catalog()) == 0
    assert paid(folder) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_without_locks_of_the_system_a_file_marks_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with locked(tmp_path):
        with pytest.raises(SetupError) as caught, locked(tmp_path):
            raise AssertionError("two at once")
        mark = tmp_path / "run.mark"
        assert f"process {os.getpid()}; wait until that is done" in str(caught.value)
        assert f"if it runs no more, delete {mark}" in str(caught.value)
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path):
        pass


def test_a_file_system_without_locks_is_said_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuses(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with pytest.raises(SetupError, match=r"cannot be locked \(No locks available\).* --output"), locked(tmp_path):
        raise AssertionError("not locked")


def test_a_folder_without_room_for_the_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    said = rf"{tmp_path} cannot be used \(No space left on device\); make room there"
    with pytest.raises(SetupError, match=said), locked(tmp_path):
        raise AssertionError("it went on")
