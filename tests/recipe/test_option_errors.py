"""What is wrong with options, with the value, the rule and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_calls import GOOD, call


def test_every_missing_key_is_a_problem_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    file = tmp_path / "missing.yaml"
    file.write_text("".join(GOOD.splitlines(keepends=True)[3:]))
    assert call(monkeypatch, "check", str(file)) == 1
    captured = capsys.readouterr()
    needs = [line.partition(" needs ")[2].split()[0] for line in captured.out.splitlines()]
    assert needs == ["'name'", "'seed'", "'rounds'"]
    assert captured.err == "3 problems\n"


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("extends=nonexistent.yaml", "--set extends: extends takes effect in a file only"),
        ("rounds=true", "rounds=true must be a whole number"),
        ("seed=false", "seed=false must be a whole number"),
        ("min_clients=true", "min_clients=true must be a whole number"),
        ("data.clients=true", "clients=true must be a whole number"),
        ("model={use: std.mlp, hidden: [true]}", "hidden=[True] must be a whole number"),
        ("train={use: std.sgd, lr: true}", "std.sgd: lr=true must be a number"),
        ("rounds=1e23", "rounds=1e+23 is too large"),
        ("rounds=2000000", "rounds=2000000 must be <= 1000000"),
    ],
)
def test_values_that_cannot_be_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, good: Path, assignment: str, complaint: str
) -> None:
    assert call(monkeypatch, "check", str(good), "--set", assignment) == 1
    assert complaint in capsys.readouterr().out


@pytest.mark.parametrize("assignment", ["rounds=1e5", "protect.noised.0.norm=1", "model={use: std.mlp, hidden: [1e1]}"])
def test_whole_numbers_and_numbers_may_be_written_as_each_other(
    monkeypatch: pytest.MonkeyPatch, good: Path, assignment: str
) -> None:
    assert call(monkeypatch, "check", str(good), "--set", assignment) == 0


def test_options_that_are_true_or_false_stay_so(monkeypatch: pytest.MonkeyPatch, good: Path) -> None:
    """Also where another type is allowed beside bool."""
    assert call(monkeypatch, "check", str(good), "--set", "model={use: std.resnet18, small_input: true}") == 0
