"""A run folder has one process that writes: a second one is refused until that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
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
from toy_components import recipe_of, toy_catalog

FEDPLUG = [sys.executable, "-c", "import sys; from fedplug_terminal.main import main; sys.exit(main())"]


def long_run(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    """A run in a separate process, and its folder."""
    file = tmp_path / "long.yaml"
    file.write_text(json.dumps(recipe_of(rounds=4000)))
    process = subprocess.Popen(
        [*FEDPLUG, "run", str(file), "--output", str(tmp_path / "runs"), "--quiet"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("runs/*/checkpoint/round-*[1-9]")):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (folder,) = (tmp_path / "runs").iterdir()
    return process, folder


@pytest.mark.parametrize("end", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_second_process_is_told_who_writes_and_gets_in_when_that_ends(end: signal.Signals, tmp_path: Path) -> None:
    process, folder = long_run(tmp_path)
    process.send_signal(signal.SIGSTOP)  # the run must not be over before the others have looked
    try:
        for command in ("resume", "attack"):
            second = subprocess.run([*FEDPLUG, command, str(folder), *["--attack", "ilrg"] * (command == "attack")],
                                    capture_output=True, text=True, check=False)  # fmt: skip
            assert second.returncode == 1
            assert second.stderr == (
                f"error: {folder} is being written by process {process.pid}; wait until that is done, or end it, and "
                "try again\n"
            )
    finally:
        process.send_signal(end)
        process.send_signal(signal.SIGCONT)
        process.wait()
    assert process.returncode == (130 if end == signal.SIGINT else -signal.SIGKILL)
    third = subprocess.Popen([*FEDPLUG, "resume", str(folder), "--quiet"], stderr=subprocess.PIPE, text=True)
    before = Checkpoints(folder).rounds()[-1]
    deadline = time.monotonic() + 300
    while Checkpoints(folder).rounds()[-1] <= before and third.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert Checkpoints(folder).rounds()[-1] > before
    third.kill()
    third.wait()


def test_of_two_resumes_at_once_one_runs(tmp_path: Path) -> None:
    process, folder = long_run(tmp_path)
    process.kill()
    process.wait()
    both = [subprocess.Popen([*FEDPLUG, "resume", str(folder), "--quiet"], stderr=subprocess.PIPE, text=True)
            for _ in range(2)]  # fmt: skip
    deadline = time.monotonic() + 300
    while all(one.poll() is None for one in both) and time.monotonic() < deadline:
        time.sleep(0.02)
    (refused,) = [one for one in both if one.poll() is not None]
    (other,) = [one for one in both if one is not refused]
    assert refused.returncode == 1
    assert refused.stderr is not None
    assert f"is being written by process {other.pid}; wait" in refused.stderr.read()
    other.kill()
    other.wait()


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
