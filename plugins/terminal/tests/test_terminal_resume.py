"""What a run prints when it ends early is a command that continues it: each is executed, on every engine."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ended import SIGNALLED
from fedplug_runs.folder import read_rows, read_summary
from forked import FEDPLUG, Program, ran

ROUNDS = 6
RECIPE = f"""
name: on
seed: 3
rounds: {ROUNDS}
min_clients: 2
data: {{use: std.digits, clients: 2, train_size: 300, partition: {{use: iid}}}}
model: {{use: std.mlp, hidden: [8]}}
train: {{use: std.sgd, epochs: 2, lr: 0.05}}
score_parameters: [{{use: absent.py:Absent}}]
negotiate_mask: {{use: std.single_zone}}
protect: {{clear: []}}
aggregate: {{use: std.mean}}
"""
ABSENT = """
import os
import fedplug
import numpy as np


class Absent(fedplug.Scorer):
    \"\"\"Fails at one client while a file is there.\"\"\"

    def score_parameters(self, client, facts):
        if client.client_id == 1 and facts.round > 1 and os.path.exists({file!r}):
            raise RuntimeError("the disk of this site is away")
        return np.zeros(facts.layout.size, np.float32)
"""
ENGINES = [
    pytest.param("local", id="local"), pytest.param("processes", id="processes"),
    pytest.param("parties", id="parties"), pytest.param("ray", id="ray", marks=pytest.mark.slow),
]  # fmt: skip
OTHERS = ("processes", "parties", "ray")
"""Engines on which a run that a signal has ended is continued by the same command."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose name a shell would take apart, with the recipe in it; no data folder and no user config."""
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    place = tmp_path / "o n"
    place.mkdir()
    (place / "on.yaml").write_text(RECIPE)
    (place / "absent.py").write_text(ABSENT.format(file=str(place / "away")))
    monkeypatch.chdir(place)
    return place


@contextlib.contextmanager
def words_of(engine: str, place: Path) -> Iterator[list[str]]:
    """The words that choose an engine; the programs of parties run while the context is open."""
    if engine == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: make test installs it")
        yield ["--engine", "ray", "--cpus", "0.5", "--workers", "1"]
    elif engine == "parties":
        pytest.importorskip("fedplug_party", reason="fedplug-party is not installed: make test installs it")
        party = ["party", "on.yaml", "--yes", "--trust", "--repeats", "9", "--client"]
        programs = [Program(FEDPLUG, *party, str(n), "--state", f"sites/client-{n}") for n in range(2)]
        try:
            until = time.monotonic() + 120
            while not all(" listens in " in each.stdout for each in programs):
                said = [each.stdout + each.stderr for each in programs]
                assert time.monotonic() < until, said
                assert all(each.poll() is None for each in programs), said
                time.sleep(0.05)
            yield ["--engine", "parties", "--parties", "sites"]
        finally:
            for program in programs:
                program.kill()
    else:
        yield ["--engine", engine, *(["--workers", "1"] if engine == "processes" else [])]


def printed(shown: str) -> list[str]:
    """The words of the one command that continues the run."""
    (line,) = {found[0] for found in re.finditer(r"fedplug resume .*$", shown, re.MULTILINE)}
    return shlex.split(line)


def execute(words: list[str], folder: Path, engine: str) -> None:
    """Runs the command as it was printed; the run is then whole, on the engine that it had."""
    assert words[:2] == ["fedplug", "resume"]
    assert Path(words[2]) == folder.relative_to(Path.cwd())
    done = ran(FEDPLUG, *words[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row.round for row in read_rows(folder)] == list(range(1, ROUNDS + 1))
    assert read_summary(folder).engine == engine


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_the_command_after_a_signal_continues_the_run(engine: str, number: signal.Signals, place: Path) -> None:
    with words_of(engine, place) as words:
        run = ["run", "on.yaml", *words, "--without", "lab.report"]
        ended = ran(SIGNALLED, int(number), 2, 0.0, place / "children", *run)
        assert ended.returncode == 130, ended.stdout + ended.stderr
        (folder,) = (place / "runs").iterdir()
        execute(printed(ended.stdout + ended.stderr), folder, engine)


@pytest.mark.parametrize("engine", ["local", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)])
def test_the_command_after_too_few_clients_continues_the_run(engine: str, place: Path) -> None:
    (place / "away").touch()
    with words_of(engine, place) as words:
        ended = ran(FEDPLUG, "run", "on.yaml", *words, "--without", "lab.report")
        said = ended.stdout + ended.stderr
        assert ended.returncode == 1, said
        assert "the disk of this site is away" in said
        (folder,) = (place / "runs").iterdir()
        (place / "away").unlink()
        words = printed(said)
        done = ran(FEDPLUG, *words[1:])
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(read_rows(folder)) == ROUNDS


def test_the_command_names_the_listeners_that_the_user_had(place: Path) -> None:
    (place / "ear.py").write_text(
        "import fedplug\n\n\nclass Ear(fedplug.Extension):\n    \"\"\"Hears.\"\"\"\n\n    def observe(self, event):\n"
        "        if type(event).__name__ == 'RoundClosed':\n            yield 'heard'\n"
    )
    run = ["run", "on.yaml", "--without", "lab.report", "--plugin", "ear.py", "--with", "ear.Ear"]
    ended = ran(SIGNALLED, int(signal.SIGINT), 2, 0.0, place / "children", *run)
    words = printed(ended.stdout + ended.stderr)
    assert words[3:] == ["--plugin", "ear.py", "--with", "ear.Ear"]
    done = ran(FEDPLUG, *words[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: heard" in done.stdout
