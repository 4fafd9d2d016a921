"""One execution of a recipe in a run folder, and the error where the folder cannot be used."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import SetupError, TooFewClients
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_runs import execution
from fedplug_runs import folder as run_folder
from fedplug_runs.archive import Lines
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.execution import Execution
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from fedplug_runs.trust import RUNS
from own_file_toys import HALVE, RECIPE
from run_toys import resume, rows_of, start
from toy_components import recipe_of, toy_catalog


@pytest.mark.parametrize(("number", "text"), [(errno.ENOSPC, "No space left"), (errno.EROFS, "Read-only file system")])
def test_a_full_disk_says_what_is_safe_and_how_to_go_on(
    number: int, text: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = Lines.append, []

    def full(self: Lines, *records: Any) -> None:
        calls.append(1)
        if len(calls) >= 5:  # rows and ledger, once after the set-up and once a round
            raise OSError(number, os.strerror(number), str(self.file))
        append(self, *records)

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "append", full)
        patch.setattr(Execution, "_write_results", lambda *_: (_ for _ in ()).throw(OSError(number, "no")))
        with pytest.raises(SetupError) as caught:
            start(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert Checkpoints(folder).rounds()[-1] == 1
    assert f"({text}" in str(caught.value)
    assert f"Round 1 is safe in {folder / 'checkpoint'}" in str(caught.value)
    assert f"the folder {folder} writable, and continue: fedplug resume {folder}" in str(caught.value)
    assert resume(folder) == 0
    recorded = [row for row in rows_of(whole) if row.pop("compared")]
    assert rows_of(folder) == recorded


def test_nothing_saved_promises_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which nothing was saved is removed, so no command may name it."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Execution, "_execute", full)
    with pytest.raises(SetupError, match=f"make the folder {tmp_path} writable, and repeat the command"):
        start(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_whose_checkpoints_were_deleted_says_that_it_begins_again(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(folder / "checkpoint")
    assert resume(folder) == 0
    shown = capsys.readouterr()
    note = f"{folder / 'checkpoint'} holds no checkpoint, though clients have uploaded in this run: it begins again"
    assert note in (shown.out + shown.err).replace("\n", " ")
    assert [row["round"] for row in rows_of(folder)] == [row["round"] for row in rows_of(whole)]


@pytest.mark.parametrize("saved", [False, True])
def test_ctrl_c_outside_the_rounds_says_what_is_left(
    saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Execution, _: Any) -> int:
        if saved:
            (self.run_dir / "checkpoint" / "round-0000").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(Execution, "execute", stop)
    with pytest.raises(KeyboardInterrupt) as caught:
        start(tmp_path)
    if saved:
        assert str(caught.value) == f"Interrupted; to continue: fedplug resume {next(tmp_path.iterdir())}"
    else:
        assert str(caught.value) == "Interrupted; nothing had begun, and nothing is left behind"
        assert not list(tmp_path.iterdir())


def test_another_ctrl_c_says_how_to_go_on_with_what_was_resumed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")

    def stop(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Execution, "execute", stop)
    with pytest.raises(KeyboardInterrupt, match=f"^Interrupted; to continue: fedplug resume {folder}$"):
        resume(folder)


def test_a_folder_that_cannot_be_written_is_named(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def refuse(file: Path, *_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(file))

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "open_private", refuse)
        with pytest.raises(SetupError, match=r"Read-only file system.*what it holds is safe") as caught:
            resume(folder)
    assert f"fedplug resume {folder}" in str(caught.value)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_when_every_client_fails_alike_resuming_is_not_promised_to_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fail = {"use": "toy.fail", "clients": [0, 1, 2, 3], "rounds": [1]}
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(rounds=3, score_parameters=[fail]), catalog)
    with pytest.raises(TooFewClients) as caught:
        execution.start(recipe, Settings(output=tmp_path, quiet=True), catalog)
    (folder,) = tmp_path.iterdir()
    assert "Nothing is lost" not in str(caught.value)
    assert "Every client failed for the same reason, so resuming fails again" in str(caught.value)
    assert f"fedplug resume {folder}" in str(caught.value)
    assert str(caught.value).count("the toy broke") == 1
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note:")]
    assert len(notes) == 1
    assert notes[0].startswith("note: round 2: 4 clients (0, 1, 2, 3) dropped out: ")


@pytest.mark.usefixtures("reports")
def test_a_file_of_the_users_own_that_fails_is_run_anew(tmp_path: Path) -> None:
    """To resume takes the copy that the run has, which nobody has mended."""
    broken = HALVE.replace("return (Scale(self.options.factor),)", "return (fedplug.Map(lambda *_: 1 / 0),)")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/halve.py").write_text(broken, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(RECIPE, encoding="utf-8")
    recipe = load_recipe(tmp_path / "mine.yaml", (), Catalog.discover().under(RUNS))
    with pytest.raises(TooFewClients) as caught:
        execution.start(recipe, Settings(output=tmp_path / "runs", quiet=True))
    said = str(caught.value)
    assert "If the cause is halve.py, fix it and run the recipe anew: fedplug resume takes the run's copy." in said
    assert "If the cause is this machine or its data, fix it and continue: fedplug resume" in said
