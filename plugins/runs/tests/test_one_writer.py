"""A run folder has one process that writes: a second one is refused until that ends."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from fedplug.api.errors import SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.workshop import command as attack_command
from fedplug_ledger.charging import Charging
from fedplug_runs import execution
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.execution import INTERRUPTED
from fedplug_runs.folder import locked
from fedplug_runs.settings import Settings
from forked import FEDPLUG, Program, ran
from toy_components import recipe_of, toy_catalog


def long_run(tmp_path: Path) -> tuple[Program, Path]:
    """A run in a separate process, and its folder."""
    file = tmp_path / "long.yaml"
    file.write_text(json.dumps(recipe_of(rounds=4000)))
    process = Program(FEDPLUG, "run", file, "--output", tmp_path / "runs", "--quiet")
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("runs/*/checkpoint/round-*[1-9]")):
        assert process.poll() is None, process.stderr
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (folder,) = (tmp_path / "runs").iterdir()
    return process, folder


@pytest.mark.parametrize("end", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_second_process_is_told_who_writes_and_gets_in_when_that_ends(end: signal.Signals, tmp_path: Path) -> None:
    process, folder = long_run(tmp_path)
    os.kill(process.pid, signal.SIGSTOP)  # the run must not be over before the others have looked
    try:
        for command in ("resume", "attack"):
            second = ran(FEDPLUG, command, folder, *["--attack", "ilrg"] * (command == "attack"))
            assert second.returncode == 1
            assert second.stderr == (
                f"error: {folder} is being written by process {process.pid}; wait until that is done, or end it, and "
                "try again\n"
            )
    finally:
        os.kill(process.pid, end)
        os.kill(process.pid, signal.SIGCONT)
        code = process.wait()
    assert code == (130 if end == signal.SIGINT else -signal.SIGKILL)
    third = Program(FEDPLUG, "resume", folder, "--quiet")
    before = Checkpoints(folder).rounds()[-1]
    deadline = time.monotonic() + 300
    while Checkpoints(folder).rounds()[-1] <= before and third.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert Checkpoints(folder).rounds()[-1] > before
    third.kill()


def test_of_two_resumes_at_once_one_runs(tmp_path: Path) -> None:
    process, folder = long_run(tmp_path)
    process.kill()
    both = [Program(FEDPLUG, "resume", folder, "--quiet") for _ in range(2)]
    deadline = time.monotonic() + 300
    while all(one.poll() is None for one in both) and time.monotonic() < deadline:
        time.sleep(0.02)
    (refused,) = [one for one in both if one.poll() is not None]
    (other,) = [one for one in both if one is not refused]
    assert refused.poll() == 1
    assert f"is being written by process {other.pid}; wait" in refused.stderr
    other.kill()


def test_ctrl_c_frees_the_folder_for_the_same_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(output=tmp_path, quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(Charging, "_released", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        recipe = Recipe.from_plain(recipe_of(), toy_catalog())
        code, folder = execution.start(recipe, settings, toy_catalog())
    assert code == INTERRUPTED
    with locked(folder):
        for command in (
            lambda: execution.resume(folder, settings, None, toy_catalog()),
            lambda: attack_command.attack(folder, settings, ["ilrg"], catalog=toy_catalog()),
        ):
            with pytest.raises(SetupError, match=f"is being written by process {os.getpid()}; wait until"):
                command()
    assert execution.resume(folder, settings, None, toy_catalog()) == 0
