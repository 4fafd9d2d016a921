"""`fedplug runs`, and what commands print with `--json`: one object of one style, also where something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import GOOD, call
from fedplug_terminal.as_json import document
from run_toys import start, stopped


def said(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    assert list(found)[:4] == ["schema", "ok", "problems", "notes"]
    return found


def test_runs_are_listed_for_people_and_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = start(tmp_path)
    with stopped(lambda _, round: round == 2):
        cut = start(tmp_path)
    capsys.readouterr()
    assert call(monkeypatch, "runs", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    head, *rows = shown.splitlines()
    assert head.split() == ["run", "began", "recipe", "rounds", "figure", "state", "verdict"]
    assert [row.split()[0] for row in rows[:2]] == [whole.name, cut.name]
    assert "complete" in rows[0]
    assert "stopped, can be resumed" in rows[1]
    assert rows[2] == f"1 can be resumed, the last one by: fedplug resume {cut}"
    assert call(monkeypatch, "runs", str(tmp_path), "--json") == 0
    found = said(capsys.readouterr().out)
    assert (found["schema"], found["ok"], found["problems"]) == ("fedplug/runs/1", True, [])
    assert [run["resumable"] for run in found["runs"]] == [False, True]
    assert found["runs"][0]["rounds"] == found["runs"][0]["planned"]
    (whole / "ledger.json").write_text("{")
    assert call(monkeypatch, "runs", str(tmp_path), "--json") == 1
    found = said(capsys.readouterr().out)
    assert not found["ok"]
    assert "ledger.json is damaged" in found["problems"][0]["message"]


def test_a_run_of_somebody_else_does_not_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = start(tmp_path)
    recipe = (whole / "recipe.yaml").read_text()
    name = next(line for line in recipe.splitlines() if line.startswith("name: "))
    (whole / "recipe.yaml").write_text(recipe.replace(name, 'name: "\\e]0;title\\a\\e[31mred"'))
    capsys.readouterr()
    assert call(monkeypatch, "runs", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert "red" in shown
    assert all(letter.isprintable() or letter == "\n" for letter in shown)


def test_a_folder_without_runs_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "runs", str(tmp_path)) == 0
    assert capsys.readouterr().out == f"there are no runs in {tmp_path}\n"
    assert call(monkeypatch, "runs", str(tmp_path / "no"), "--json") == 1
    captured = capsys.readouterr()
    found = said(captured.out)
    assert found["schema"] == "fedplug/error/1"
    assert found["problems"][0]["message"] in captured.err
    assert "--output" in captured.err


def test_check_names_each_recipe_with_its_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD)
    bad.write_text(GOOD.replace("rounds: 2", "rounds: 0"))
    assert call(monkeypatch, "check", "--json", str(good)) == 0
    (recipe,) = said(capsys.readouterr().out)["recipes"]
    assert recipe["ok"]
    assert len(recipe["digest"]) == 64
    assert call(monkeypatch, "check", "--json", str(good), str(bad), str(tmp_path / "no.yaml")) == 1
    found = said(capsys.readouterr().out)
    assert [each["ok"] for each in found["recipes"]] == [True, False, False]
    (problem,) = found["recipes"][1]["problems"]
    assert problem["place"].startswith(f"{bad}:")
    assert problem["message"].startswith("rounds=0 must be")


def test_show_gives_the_options_with_types_and_bounds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "show", "std.clip", "--json") == 0
    component = next(each for each in said(capsys.readouterr().out)["components"] if each["group"] == "protect")
    assert component["name"] == "std.clip"
    assert component["class"].startswith("fedplug_std.")
    (norm,) = [option for option in component["options"] if option["name"] == "norm"]
    assert (norm["type"], norm["default"]) == ("float", "required")
    assert norm["meaning"]


def test_numbers_that_json_lacks_are_texts_and_places_are_apart() -> None:
    problems, numbers = ["a b.yaml:3:8: wrong: very", "nowhere"], {"epsilon": float("inf"), "loss": float("nan")}
    found = said(document("x", problems, ["n"], **numbers))
    assert found["problems"] == [
        {"place": "a b.yaml:3:8", "message": "wrong: very"}, {"place": "", "message": "nowhere"}
    ]  # fmt: skip
    assert (found["ok"], found["epsilon"], found["loss"]) == (False, "inf", None)
