"""Runs out of a notebook: with its objects, heard by its objects, stopped by it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fedplug
import pytest
import torch
from fedplug.api.errors import PluginError, SetupError
from fedplug.api.events import Event, RoundClosed
from fedplug_runs.events import RowComplete
from forked import ran
from notebook_cells import arrays, notebook
from python_toys import PLAIN

CLEAR = {
    key: value for key, value in PLAIN.items() if key not in ("score_parameters", "postprocess")
} | {"rounds": 3, "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []}}  # fmt: skip

PLAINLY = "quiet=True, muted=['lab.report']"
"""Settings of a program's runs: a report imports libraries that take seconds."""


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    made = notebook()
    return {
        "model": made["Net"], "data": arrays(), "loss": made["focal"], "output": tmp_path, "device": "cpu",
        "quiet": True,
    }  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread_again() -> Iterator[None]:
    """Tests of this process that follow compute with as many threads as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_run_of_objects_goes_on_and_is_kept(given: dict[str, Any]) -> None:
    torch.set_num_threads(2)
    run = fedplug.run(CLEAR, **given)
    assert run.complete
    assert "class Net(nn.Module)" in (run.folder / "session_model.py").read_text()
    assert "def focal" in (run.folder / "session_loss.py").read_text()
    assert not (run.folder / "session_data.npz").exists()
    (why,) = run.summary.not_repeatable
    assert "keep_data=True" in why
    assert type(run.model).__name__ == "Net"
    assert torch.get_num_threads() == 2
    back = fedplug.resume(run, 2, quiet=True, data=given["data"])
    assert back.metrics[-1].accuracy == run.metrics[-1].accuracy
    with pytest.raises(SetupError, match="not the arrays that the run in"):
        fedplug.resume(run, 2, data=arrays(1))
    assert torch.get_num_threads() == 2


def test_arrays_are_kept_if_asked_and_other_processes_go_on(given: dict[str, Any]) -> None:
    run = fedplug.run(CLEAR, **given, keep_data=True)
    assert run.summary.not_repeatable == []
    program = (
        f"import fedplug\nrun = fedplug.resume({str(run.folder)!r}, 2, trust=True, {PLAINLY})\n"
        "print(run.complete, run.metrics[-1].accuracy)"
    )
    done = ran(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", str(run.metrics[-1].accuracy)]
    with pytest.raises(SetupError, match="keep_data=True keeps arrays"):
        fedplug.run(CLEAR, output=given["output"], keep_data=True)


def test_another_session_gives_the_arrays_again(given: dict[str, Any]) -> None:
    run = fedplug.run(CLEAR, **given)
    program = (
        "import sys, fedplug\nfrom notebook_cells import arrays\n"
        f"folder = {str(run.folder)!r}\n"
        "assert fedplug.open_run(folder, trust=True).recipe.rounds == 3\n"
        f"try:\n    fedplug.resume(folder, 2, {PLAINLY})\nexcept fedplug.FedplugError as error:\n    print(error)\n"
        f"print(fedplug.resume(folder, 2, data=arrays(), {PLAINLY}).complete)"
    )
    done = ran(program)
    assert done.returncode == 0, done.stderr
    assert "give them again: fedplug.resume(FOLDER, data=...)" in done.stdout
    assert done.stdout.splitlines()[-1] == "True"


def test_what_is_in_memory_alone_is_said_and_does_not_travel(given: dict[str, Any]) -> None:
    made = notebook()
    model = made["Net"]((1, 8, 8), 2)
    before = model.first.weight.detach().clone()
    run = fedplug.run(CLEAR, **{**given, "model": model, "loss": lambda outputs, answers: outputs.mean()})
    assert len(run.summary.not_repeatable) == 3
    assert torch.equal(model.first.weight, before)
    assert fedplug.resume(run, 2, quiet=True).complete
    with pytest.raises(SetupError, match=r"engine processes runs parties in other processes.*numpy\.savez") as caught:
        fedplug.run(CLEAR, **given, engine="processes", keep_data=True)
    assert caught.value.run_folder is None
    assert len([*given["output"].iterdir()]) == 1


def test_sources_travel_to_worker_processes(given: dict[str, Any]) -> None:
    words = {key: value for key, value in given.items() if key != "data"}
    here, there = (fedplug.run(CLEAR, **words, engine=engine, rounds=1) for engine in ("local", "processes"))
    assert here.metrics[-1].accuracy == there.metrics[-1].accuracy
    assert here.summary.not_repeatable == []


# ---- listeners


def test_objects_and_functions_hear_a_run(given: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    class Ear:
        hears = (RowComplete,)
        heard: ClassVar[list[Event]] = []

        def observe(self, event: Event) -> list[str]:
            self.heard.append(event)
            return ["I hear"]

    every: list[Event] = []

    def breaks(event: Event) -> None:
        raise ValueError("no more")

    fedplug.run(CLEAR, **{**given, "quiet": False}, listeners=[Ear(), every.append, breaks])
    assert len(Ear.heard) == 3
    assert sum(isinstance(event, RoundClosed) for event in every) == 3
    shown = capsys.readouterr().out
    assert "I hear" in shown
    assert "extension breaks has stopped" in shown


@pytest.mark.parametrize("wrong", [3, dict])
def test_what_cannot_hear(given: dict[str, Any], wrong: Any) -> None:
    with pytest.raises(SetupError, match=r"listeners: .* an object with observe\(event\), or a function"):
        fedplug.run(CLEAR, **given, listeners=[wrong])
    assert not [*given["output"].iterdir()]


# ---- stopping


def test_a_stop_event_ends_a_run_after_its_round(given: dict[str, Any]) -> None:
    stop = threading.Event()

    def hear(event: Event) -> None:
        if isinstance(event, RoundClosed) and event.round == 1:
            stop.set()

    run = fedplug.run(CLEAR, **given, listeners=[hear], stop=stop)
    assert not run.complete
    assert run.exit_code == 0
    assert run.ledger.rounds.actual == 2
    assert (run.folder / "checkpoint" / "round-0002").is_dir()
    assert json.loads((run.folder / "summary.json").read_text())["name"] == "small"
    stop.clear()
    assert fedplug.resume(run, quiet=True, stop=stop).complete
    stop.set()
    assert fedplug.run(CLEAR, **given, rounds=1, stop=stop).complete  # there was no round to leave out


# ---- errors, threads


def test_errors_carry_the_folder(given: dict[str, Any]) -> None:
    def breaks(event: Event) -> None:
        if isinstance(event, RoundClosed) and event.round == 1:
            raise PluginError("enough")

    with pytest.raises(PluginError) as caught:
        fedplug.run(CLEAR, **given, listeners=[breaks])
    folder = caught.value.run_folder
    assert folder is not None
    assert fedplug.resume(folder, quiet=True).complete
    with pytest.raises(SetupError) as refused:
        fedplug.resume(folder, device="cuda:99")
    assert refused.value.run_folder == folder


def test_threads_are_a_setting(given: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    seen: list[int] = []
    fedplug.run(CLEAR, **given, threads=2, listeners=[lambda event: seen.append(torch.get_num_threads())])
    assert 2 in seen
    assert torch.get_num_threads() == 1
    with pytest.raises(SetupError, match="threads=0 must be >= 1"):
        fedplug.run(CLEAR, **given, threads=0)
