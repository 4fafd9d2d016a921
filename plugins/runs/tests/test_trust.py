"""Code that a run folder or a recipe brings: it runs without a question if this user ran it before, and otherwise only
if somebody allows it.
"""

from __future__ import annotations

import builtins
import hashlib
import sys
from pathlib import Path
from typing import Any

import fedplug
import pytest
from cli_calls import call
from fedplug.api.errors import SetupError
from fedplug_runs import trust
from fedplug_runs.folder import load_run
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
    with pytest.raises(SetupError, match=r"base.yaml:\d+:\d+: .*has not run here before: halve.py"):
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


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a recipe with code that never ran here. It leaves a mark when it runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(builtins, "fedplug_ran", "", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/halve.py").write_text(HALVE + f"\nimport builtins\nbuiltins.fedplug_ran = {str(tmp_path)!r}\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "other.yaml").write_text(RECIPE.replace("name: mine", "name: other").replace("seed: 1", "seed: 2"))
    (tmp_path / "grid.yaml").write_text("parameters: {rounds: [1, 2]}\n")
    (tmp_path / "named.yaml").write_text(RECIPE.replace('"own/halve.py:Halve"', "halve.Halve"))
    return tmp_path


PLUGIN = ("--plugin", "own/halve.py")


@pytest.mark.parametrize(
    "words",
    [
        ["check", "recipe.yaml"],
        ["check", "named.yaml", *PLUGIN],
        ["check", "recipe.yaml", "--set", "model=own/halve.py:Halve"],
        ["show", "own/halve.py:Halve"],
        ["show", "halve.Halve", *PLUGIN],
        ["list", *PLUGIN],
        ["list", *PLUGIN, "--json"],
        ["list", *PLUGIN, "--verify"],
        ["sites", "recipe.yaml", "--out", "sites"],
        ["party", "recipe.yaml", "--client", "0", "--state", "party"],
        ["party", "recipe.yaml", "--client", "0", "--state", "party", "--yes"],
        ["party", "named.yaml", "--client", "0", "--state", "party", "--yes", *PLUGIN],
        ["federation-app", "recipe.yaml", "app"],
        ["sweep", "recipe.yaml", "grid.yaml", "--dry-run"],
        ["compare", "recipe.yaml", "other.yaml", "--dry-run"],
        ["search", "recipe.yaml", "--over", "rounds=[1, 2]", "--dry-run"],
    ],
)
def test_no_command_runs_what_a_recipe_brings_without_a_word(
    words: list[str], strange: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedplug_party.program.run_party", lambda *_: 0)
    call(monkeypatch, *words)
    said = "".join(capsys.readouterr())
    assert not ran()
    assert "--trust" in said
    assert hashlib.sha256((strange / "own/halve.py").read_bytes()).hexdigest()[:12] in said
    assert "Traceback" not in said
    call(monkeypatch, *words, "--trust")
    assert ran()


def test_from_python_nothing_runs_without_a_word_either(strange: Path) -> None:
    with pytest.raises(fedplug.RecipeError, match="trust=True") as caught:
        fedplug.check("recipe.yaml")
    assert caught.value.problems == caught.value.not_run
    assert not ran()
    assert fedplug.check("recipe.yaml", trust=True).own_files
    assert ran()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 0, ["recipe.yaml: nothing wrong so far; what these name", "recipe.yaml:8:25: This brings code"]),
        (["--set", "min_clients=3"], 1, ["min_clients=3 must be <= data.clients=2", "more may be wrong; what"]),
        # What only the code can tell is not called wrong: its options, its place in the chain, who refers to it.
        (["--set", "protect.clear.0.factor=x"], 0, ["nothing wrong so far"]),
        (["--set", "postprocess={clear: [halve.Halve]}"], 0, ["nothing wrong so far"]),
        (["--set", "protect.clear=[{use: std.clip, norm: 1}, own/halve.py:Halve]"], 0, ["nothing wrong so far"]),
        # What is no Python is wrong, whoever wrote it.
        (["--set", "aggregate=own/bad.py:Mean"], 1, ["bad.py, line 2 cannot be run: SyntaxError"]),
    ],
)
def test_a_check_says_what_it_could_not_check(
    words: list[str], code: int, said: list[str], strange: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (strange / "own/bad.py").write_text("import os\nclass Mean(\n")
    assert call(monkeypatch, "check", "recipe.yaml", *words) == code
    out = capsys.readouterr().out
    assert all(each in out for each in said), out
    assert ": ok" not in out
    assert not ran()


@pytest.mark.parametrize("model", [{"use": "own/halve.py:Halve"}, {"use": "std.lora", "around": None}])
def test_what_follows_from_code_that_did_not_run_is_not_called_wrong(model: dict[str, Any], strange: Path) -> None:
    """Every section that can have it has code of the recipe's own, and something that refers to it."""

    def here(name: str) -> dict[str, Any]:
        return {"use": "own/halve.py:Halve", "name": name}

    model = {key: here("inside") if value is None else value for key, value in model.items()}
    plain = {
        "name": "a", "seed": 1, "rounds": 1, "min_clients": 2,
        "data": {**here("d"), "clients": 2, "partition": here("p")}, "model": {**model, "name": "m"},
        "train": here("t"), "score_parameters": [here("s")], "negotiate_mask": here("n"), "extensions": [here("e")],
        "protect": {"noised": [{"use": "std.gaussian", "noise_multiplier": 8}, here("x")], "clear": ["x"]},
        "aggregate": here("g"), "postprocess": {"noised": ["x"]}, "accountant": here("a"), "attack": [here("y")],
    }  # fmt: skip
    with pytest.raises(fedplug.RecipeError) as caught:
        fedplug.check(plain)
    assert {*caught.value.problems} == {*caught.value.not_run}
    assert len(caught.value.not_run) == 11
    assert not ran()


def test_of_a_file_that_may_not_run_the_text_is_shown(
    strange: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "list", *PLUGIN, "halve") == 0
    assert "protect halve.Halve halve.py" in " ".join(capsys.readouterr().out.split())
    assert call(monkeypatch, "show", "own/halve.py:Halve") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("halve.Halve  (protect)\n\nTake half of every value.\n")
    assert "This is what the text of halve.py shows" in shown
    assert "factor" not in shown  # an option
    # A class whose role the text does not tell may be anything: it is not called unknown.
    (strange / "own/far.py").write_text("from elsewhere import Base\n\n\nclass Far(Base):\n    pass\n")
    assert call(monkeypatch, "show", "own/far.py:Far") == 1
    assert call(monkeypatch, "check", "recipe.yaml", "--plugin", "own/far.py", "--set", "aggregate=far.Far") == 0
    assert "brings code that has not run here before: far.py" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "runs"), [("y", True), ("n", False)])
def test_a_check_asks_at_a_terminal(
    answer: str, runs: bool, strange: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)  # type: ignore[func-returns-value]
    assert call(monkeypatch, "check", "recipe.yaml") == 0
    assert ran() is runs
    assert (": ok (" in capsys.readouterr().out) is runs
    assert len(asked) == 1
    assert "recipe.yaml brings code that has not run here before: halve.py" in asked[0]
    call(monkeypatch, "check", "other.yaml", "recipe.yaml")  # nobody is asked twice
    assert len(asked) == 1


def test_who_runs_a_recipe_has_said_yes_and_is_asked_no_more(
    strange: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "recipe.yaml", "--quiet") == 0
    assert ran()
    trust._allowed.clear()  # as in another process
    assert call(monkeypatch, "check", "recipe.yaml") == 0
    assert "recipe.yaml: ok (" in capsys.readouterr().out
