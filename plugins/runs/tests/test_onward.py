"""A folder knows how its run goes on, and the printed command is one that a shell takes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import fedplug
import pytest
from fedplug.api.errors import CheckpointError, SetupError
from fedplug_runs.choice import options_of
from fedplug_runs.onward import FILE, engine_of, keep_settings, resume_command, run_command, runs_here, settings_of
from fedplug_runs.settings import Settings
from run_toys import start, stopped


@pytest.fixture(autouse=True)
def _no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)


def test_what_a_run_had_is_what_its_folder_gives_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths from elsewhere too; what may run code or write elsewhere stays the user's word."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sets").mkdir()
    had = Settings(
        engine="parties", data=Path("sets"), timeout=9, threads=2, device="cpu", muted=("lab.report",),
        listeners=("std.rows",), plugins=("mine.py",), allow_outside=True, trust=True, workers=3,
    )  # fmt: skip
    keep_settings(tmp_path, had, {"parties": Path("there"), "other": None})
    back = settings_of(tmp_path)
    assert (back.engine, back.engine_options) == ("parties", {"parties": tmp_path / "there"})
    assert back.data == tmp_path / "sets"
    assert (back.timeout, back.threads, back.device, back.workers) == (9, 2, "cpu", 3)
    assert back.muted == ("lab.report",)
    assert (back.listeners, back.plugins, back.allow_outside, back.trust) == ((), (), False, False)
    (tmp_path / "sets").rmdir()
    assert settings_of(tmp_path).data is None
    assert run_command(tmp_path).startswith("fedplug run ")
    assert json.loads(shlex.split(run_command(tmp_path))[-1]) == {"use": "parties", "parties": str(tmp_path / "there")}


class Far:
    """An engine of somebody else, on another machine."""

    class Options(fedplug.Options):
        host: str | None = None
        cpus: int = 1


def test_another_machine_is_the_users_word(tmp_path: Path) -> None:
    """A folder that somebody else wrote must not lead to their cluster: it would get all data, and could run code."""
    (tmp_path / FILE).write_text('{"engine": {"use": "far", "host": "203.0.113.9:6379", "cpus": 2}}')
    led = settings_of(tmp_path)
    assert led.engine_options["cpus"] == 2
    with pytest.raises(SetupError, match=r"engine far: host=.* must be text"):
        options_of("engine far", Far, led.engine_options)
    assert "203" not in run_command(tmp_path)
    had = Settings(engine="far", engine_options={"host": "10.0.0.1:6379", "cpus": 2})
    keep_settings(tmp_path, had, had.engine_options)
    assert settings_of(tmp_path).engine_options == {"cpus": 2}
    assert "10.0.0.1" not in (tmp_path / FILE).read_text()
    runs_here(tmp_path, had, Far, had.engine_options)
    *words, option, engine = shlex.split(resume_command(tmp_path))
    assert (words, option) == (["fedplug", "resume", str(tmp_path)], "--engine")
    again = settings_of(tmp_path).replace({"engine": engine})
    assert (again.engine, dict(again.engine_options)) == ("far", dict(had.engine_options))


def test_the_users_config_counts_where_the_run_says_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config/fedplug/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('engine = "processes"\nworkers = 2\nthreads = 3\n')
    keep_settings(tmp_path, Settings(), {})
    back = settings_of(tmp_path)
    assert (back.engine, back.threads) == ("local", 1)  # as it ran
    assert back.workers == 2


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"engine": "local"}', '{"engine": {"use": "local"}, "threads": "many"}', '{"engine": {"use": 3}}',
     '{"engine": {"use": "local"}, "muted": [1]}', '{"engine": {"use": "local"}, "threads": 0}'],
)  # fmt: skip
def test_damaged_settings_say_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CheckpointError, match=r"settings\.json is damaged .* --engine NAME"):
        settings_of(tmp_path)


def test_a_folder_of_an_earlier_version_tells_its_engine_by_its_summary(tmp_path: Path) -> None:
    assert settings_of(tmp_path).engine == "local"
    assert engine_of(tmp_path) == ""
    (tmp_path / "summary.json").write_text('{"engine": "processes"}')
    assert settings_of(tmp_path).engine == "processes"


def test_the_command_names_what_only_the_user_may_say(tmp_path: Path) -> None:
    assert resume_command(Path("runs/a b"), 3) == "fedplug resume 'runs/a b' --round 3"
    listeners = ("std.rows", {"use": "my.tracker", "place": "x y"}, print)
    runs_here(tmp_path, Settings(plugins=("my.py",), listeners=listeners, allow_outside=True), None, {})
    assert shlex.split(resume_command(tmp_path)) == [
        "fedplug", "resume", str(tmp_path), "--plugin", "my.py", "--with", "std.rows", "--with",
        '{"use": "my.tracker", "place": "x y"}', "--allow-outside",
    ]  # fmt: skip


def test_an_engine_whose_runs_start_elsewhere_gives_its_own_command(tmp_path: Path) -> None:
    class Elsewhere:
        @staticmethod
        def continued_by(run_dir: Path, round: int | None) -> str:
            return f"elsewhere {run_dir.name} {round}"

    runs_here(tmp_path, Settings(), Elsewhere, {})
    assert resume_command(tmp_path, 4) == f"elsewhere {tmp_path.name} 4"


def test_a_resumed_run_remembers_the_engine_that_it_had_last(tmp_path: Path) -> None:
    from fedplug_runs import execution
    from toy_components import toy_catalog

    with stopped(lambda _, round: round == 1):
        folder = start(tmp_path)
    assert engine_of(folder) == "local"
    with stopped(lambda _, round: round == 2):
        execution.resume(folder, Settings(engine="processes", workers=1, quiet=True), None, toy_catalog())
    assert (settings_of(folder).engine, settings_of(folder).workers) == ("processes", 1)
