"""Code in a run folder: it runs without a question if this user ran it before, and otherwise only if allowed."""

from __future__ import annotations

import builtins
import hashlib
import sys
from pathlib import Path

import fedplug
import pytest
from cli_calls import call
from fedplug.api.errors import SetupError
from fedplug.recipe import trust
from fedplug.runs.folder import load_run
from own_file_toys import HALVE, RECIPE


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run with an own file, of a user who has run nothing before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own/halve.py").write_text(HALVE)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return fedplug.run(tmp_path / "recipe.yaml", output=tmp_path / "runs", quiet=True).folder


@pytest.fixture
def foreign(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with code that never ran here. It leaves a mark when it runs."""
    own, recipe = run / "halve.py", run / "recipe.yaml"
    before = hashlib.sha256(own.read_bytes()).hexdigest()
    own.write_text(HALVE + f"\nimport builtins\nbuiltins.fedplug_ran = {str(tmp_path)!r}\n")
    recipe.write_text(recipe.read_text().replace(before, hashlib.sha256(own.read_bytes()).hexdigest()))
    monkeypatch.setattr(builtins, "fedplug_ran", "", raising=False)
    return run


def ran() -> bool:
    return bool(vars(builtins)["fedplug_ran"])


def test_what_this_user_ran_needs_no_question_wherever_it_lies(run: Path, tmp_path: Path) -> None:
    assert trust.record().read_text().split() == [hashlib.sha256(HALVE.encode()).hexdigest(), "halve.py"]
    run.parent.rename(tmp_path / "moved")
    assert load_run(tmp_path / "moved" / run.name).own_files
    trust.note(load_run(tmp_path / "moved" / run.name).own_files)
    assert len(trust.record().read_text().splitlines()) == 1


@pytest.mark.parametrize("command", ["attack", "resume"])
def test_strange_code_does_not_run_without_a_word(
    command: str, foreign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, command, str(foreign)) == 1
    said = capsys.readouterr().err
    digest = hashlib.sha256((foreign / "halve.py").read_bytes()).hexdigest()
    assert f"brings code that has not run here before: halve.py (sha256 {digest[:12]})" in said
    assert f"read {foreign / 'halve.py'}" in said
    assert "--trust" in said
    assert "Traceback" not in said
    assert not ran()


def test_reports_and_files_of_a_run_need_none_of_its_code(foreign: Path) -> None:
    opened = fedplug.open_run(foreign)
    assert opened.metrics
    assert opened.ledger
    assert opened.summary
    assert opened.report().is_file()
    with pytest.raises(SetupError, match="trust=True"):
        _ = opened.recipe
    assert not ran()


def test_a_word_is_enough_and_remembered(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "resume", str(foreign), "--trust", "--quiet") == 1
    assert "belongs to recipe" in capsys.readouterr().err  # it was read, and what was saved is of the other file
    assert ran()
    assert load_run(foreign).own_files


@pytest.mark.parametrize(("answer", "runs"), [("y", True), ("", False), ("no", False)])
def test_a_person_at_a_terminal_is_asked(
    answer: str, runs: bool, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)

    def replies(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.setattr("builtins.input", replies)
    if runs:
        load_run(foreign, ask=True)
    else:
        with pytest.raises(SetupError, match="--trust"):
            load_run(foreign, ask=True)
    assert len(asked) == 1
    assert "halve.py" in asked[0]
    assert "Run it? [y/N]" in asked[0]
    assert ran() is runs


def test_code_behind_another_recipe_is_no_way_around(foreign: Path) -> None:
    inner = foreign / "inner"
    inner.mkdir()
    (foreign / "halve.py").rename(inner / "halve.py")
    (foreign / "recipe.yaml").rename(inner / "base.yaml")
    (foreign / "recipe.yaml").write_text("extends: inner/base.yaml\n")
    with pytest.raises(SetupError, match="extends another recipe, which no run writes"):
        load_run(foreign)
    assert not ran()


def test_a_record_that_cannot_be_used_costs_a_question_and_no_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = load_run(run).own_files
    trust.record().write_bytes(b"\xff")
    assert trust.known() == set()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "recipe.yaml"))
    trust.note(own)
    assert trust.known() == set()
