"""The commands check, schema, help, and the arguments that run and resume pass on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import GOOD, LIGHT, MAIN, call, fake_runs, python
from fedplug_runs.settings import Settings


def test_check_prints_ok_with_the_digest_and_every_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, good: Path
) -> None:
    assert call(monkeypatch, "check", str(good)) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{good}: ok (")
    assert len(out.partition("(")[2].strip()) == 13
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("epsilon: 8", "epsilon: 0").replace("std.mean", "std.maen") + "x: [y]\n")
    assert call(monkeypatch, "check", str(good), str(bad), str(tmp_path / "none.yaml")) == 1
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith(f"{good}: ok")
    assert lines[1:] == [
        f"{bad}:8:77: std.gaussian: epsilon=0 must be > 0; to switch the noise off, write noised: []",
        f"{bad}:9:12: unknown aggregate component 'std.maen'; did you mean std.mean?",
        lines[3],
        f"{tmp_path}/none.yaml: cannot read the recipe: there is no such file",
    ]
    assert lines[3].startswith(f"{bad}:10:1: unknown key 'x'")
    assert "4 problems" in captured.err
    assert call(monkeypatch, "check", str(good), "--set", "rounds=0") == 1
    assert "--set rounds: rounds=0 must be >= 1" in capsys.readouterr().out


def test_check_imports_no_torch(good: Path) -> None:
    result = python(MAIN + LIGHT + "sys.exit(code)", "check", str(good))
    assert result.returncode == 0, result.stderr


def test_schema_is_json(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "schema") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "fedplug recipe"


def test_help_shows_an_example_of_every_command(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for command in ("run", "resume", "list", "show", "check", "schema"):
        assert call(monkeypatch, command, "--help") == 0
        assert f"Example: fedplug {command}" in capsys.readouterr().out


def test_run_and_resume_hand_over_what_was_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    calls = fake_runs(monkeypatch, 7)
    options = (
        "--set rounds=2 --set seed=3 --engine processes --workers 2 --max-clients-in-memory 9 --timeout 60 "
        "--device cpu --output o --data d --record-wire -q"
    )
    assert call(monkeypatch, "run", "r.yaml", *options.split()) == 7
    assert call(monkeypatch, "resume", "runs/x", "--round", "5", "--no-record-wire") == 7
    assert calls == [
        (Path("r.yaml"), ["rounds=2", "seed=3"],
         Settings("processes", 2, "cpu", Path("o"), Path("d"), record_wire=True, quiet=True, max_clients_in_memory=9,
                  timeout=60)),
        (Path("runs/x"), 5, Settings()),
    ]  # fmt: skip


def test_a_recipe_that_never_ends_or_is_far_too_long_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    big = tmp_path / "big.yaml"
    big.write_text(GOOD + "#" * 1_000_000)
    assert call(monkeypatch, "check", "/dev/zero", str(big)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "/dev/zero: cannot read the recipe: it is not a regular file",
        f"{big}: cannot read the recipe: it has more than 1,000,000 bytes, and no recipe is that long",
    ]
