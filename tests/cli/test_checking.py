"""`fedplug check`, with and without the command line's parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_calls import GOOD, call
from fedplug.cli.checking import check_recipes


def test_both_forms_say_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, good: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("rounds: 2", "rounds: 0"))
    assert call(monkeypatch, "check", str(good), str(bad)) == 1
    plain = capsys.readouterr()
    assert call(monkeypatch, "check", "--", str(good), str(bad)) == 1
    parsed = capsys.readouterr()
    assert (plain.out, plain.err) == (parsed.out, parsed.err)
    assert plain.err == "1 problem\n"


def test_notes_stand_below_the_recipe(capsys: Any, tmp_path: Path, good: Path) -> None:
    good.write_text(GOOD.replace("model: std.mlp", "model: {use: std.mlp, hidden: [4]}"))
    child = tmp_path / "child.yaml"
    child.write_text(f"extends: {good.name}\nmodel: std.mlp\n")
    assert check_recipes([child]) == 0
    first, note = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{child}: ok (")
    assert note.startswith(f"note: {child}:2:8: std.mlp is without the options")
    assert "hidden is [256, 128], not" in note


def test_gives_the_exit_code(capsys: Any, tmp_path: Path, good: Path) -> None:
    assert check_recipes([good], ["rounds=5"]) == 0
    assert capsys.readouterr().out.startswith(f"{good}: ok (")
    assert check_recipes([good, tmp_path / "none.yaml"]) == 1
    assert "there is no such file" in capsys.readouterr().out
