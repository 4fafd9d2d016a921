"""What is wrong with options, with the value, the rule and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import fedplug
import pytest
from cli_calls import GOOD, call
from fedplug import Field
from fedplug.recipe.catalog import Catalog
from fedplug_runs.option_errors import explain
from pydantic import ValidationError


def test_every_missing_key_is_a_separate_problem(
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
        ("model={use: std.mlp, hidden: 16}", "std.mlp: hidden=16 must be a list, such as [16] (widths"),
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


LONG = ["0x" + "f" * 5000, "9" * 5000, "-" + "9" * 400, "0o" + "7" * 30, str(2**64)]


@pytest.mark.parametrize("number", LONG)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", "NUMBER"), ("model", "{use: std.mlp, hidden: [NUMBER]}"), ("train", "{use: std.sgd, lr: NUMBER}"),
        ("clusters", "{a: [NUMBER]}"), ("nonsense", "[{a: NUMBER}]"), ("name", "NUMBER"), ("data.clients", "NUMBER"),
    ],
)  # fmt: skip
def test_no_whole_number_of_a_recipe_is_too_long_to_be_written(
    number: str, path: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: Any, good: Path
) -> None:
    """Python reads and writes no number of more than 4,300 digits; whoever prints one would end in a traceback."""
    assert call(monkeypatch, "check", str(good), "--set", f"{path}={value.replace('NUMBER', number)}") == 1
    said = capsys.readouterr()
    assert f"{number[:20]}" in said.out
    assert "a whole number has at most 64 bits; write one below 18,446,744,073,709,551,616" in said.out
    assert len(said.out) < 2000
    assert "Traceback" not in said.err


@pytest.mark.parametrize("where", ["seed", "data", "clusters"])
def test_nor_one_that_a_script_gives(where: str, good: Path) -> None:
    number = 10**5000
    value: Any = number if where == "seed" else {"a": [1, (number,)]}
    with pytest.raises(fedplug.RecipeError, match=r"a whole number of 16610 bits: a whole number has at most 64 bits"):
        fedplug.check(good, {where: value})


@pytest.mark.parametrize("file", ["seed.yaml", "grid", "comparison"])
def test_a_file_with_such_a_number_is_refused(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: Any, good: Path, tmp_path: Path
) -> None:
    made = tmp_path / file
    words = ["check", str(made)]
    if file == "seed.yaml":
        made.write_text(GOOD.replace("seed: 1", f"seed: {LONG[0]}"))
    elif file == "grid":
        made.write_text(f"parameters: {{seed: [{LONG[0]}]}}\n")
        words = ["sweep", str(good), str(made)]
    else:
        made.write_text(f"recipes: [{good}, {good}]\nseeds: [{LONG[0]}]\n")
        words = ["compare", str(made)]
    assert call(monkeypatch, *words) == 1
    said = "".join(capsys.readouterr())
    assert "a whole number has at most 64 bits" in said
    assert "Traceback" not in said


def test_the_longest_numbers_are_fine(monkeypatch: pytest.MonkeyPatch, good: Path) -> None:
    assert call(monkeypatch, "check", str(good), "--set", f"seed={2**64 - 1}") == 0
    assert call(monkeypatch, "check", str(good), "--set", f"protect.noised.0.norm={2**64 - 1}") == 0


def test_an_item_of_a_list_beyond_all_lists(monkeypatch: pytest.MonkeyPatch, capsys: Any, good: Path) -> None:
    assert call(monkeypatch, "check", str(good), "--set", f"protect.noised.{'9' * 5000}=x") == 1
    assert "is not an item of the list protect.noised; items are 0 to 1" in capsys.readouterr().out


def test_a_validator_that_fails_is_a_problem_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, good: Path
) -> None:
    """Here an overflow of floating point, of which its author did not think."""
    change = "protect.noised.0={use: baselines.ldp_fed, bound: 1e308}"
    assert call(monkeypatch, "check", str(good), "--set", change) == 1
    said = capsys.readouterr().out
    assert "--set protect.noised.0: baselines.ldp_fed: the check of its options fails: OverflowError" in said
    assert "write other values" in said


def test_options_that_are_true_or_false_stay_so(monkeypatch: pytest.MonkeyPatch, good: Path) -> None:
    """Even where another type is allowed in addition to bool."""
    assert call(monkeypatch, "check", str(good), "--set", "model={use: std.resnet18, small_input: true}") == 0


def test_keys_of_earlier_versions_are_answered_with_the_new_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    """All of them at once, each with its place and with a remedy."""
    file = tmp_path / "old.yaml"
    text = GOOD.replace("{use: std.single_zone, zone: noised}", "{use: std.by_name, zones: {}, rest: noised}")
    file.write_text(text.replace("protect: {", "protect: {encrypted: [{use: std.bfv, answer: clients}], "))
    assert call(monkeypatch, "check", str(file)) == 1
    found = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(f"{file}:") for line in found if "now called" in line] == [
        "7:47: unknown option 'rest' of std.by_name; it is now called other_zone: write other_zone: noised",
        "8:38: unknown option 'answer' of std.bfv; it is now called sums_visible_to: write sums_visible_to: clients",
    ]


@pytest.mark.parametrize(
    ("name", "old", "value", "said"),
    [
        *((name, "answer", "clients", "it is now called sums_visible_to: write sums_visible_to: clients")
          for name in ("std.bfv", "std.ckks", "std.paillier", "sensecrypt.paillier", "threshold.bfv")),
        *((name, "rest", "clear", "it is now called other_zone: write other_zone: clear")
          for name in ("std.by_name", "baselines.random_mask", "baselines.fedml_he", "baselines.maskcrypt", "fas.share",
                       "fedre.sensitive_layers", "paraaegis.vote", "selectiveshield.consensus", "sensecrypt.select")),
        ("fedre.layer_budgets", "allocation", "literal", "is now called as_published: write allocation: as_published"),
        ("fedre.pda_pam", "weighting", "literal", "is now called as_published: write weighting: as_published"),
        ("selectiveshield.noise", "choice", "literal_K", "is now called as_published: write choice: as_published"),
    ],
)  # fmt: skip
def test_every_option_that_was_renamed_says_so(name: str, old: str, value: str, said: str) -> None:
    options = Catalog.discover().named(name)[0].load().Options
    with pytest.raises(ValidationError) as caught:
        options.model_validate({old: value})
    assert any(problem.message.endswith(said) for problem in explain(caught.value, options, {old: value}, name))


class _Renamed(fedplug.Options):
    now: float = Field(1.0, json_schema_extra={"formerly": "before"})
    kind: Literal["new", "other"] = Field("other", json_schema_extra={"renamed": {"old": "new"}})


def test_an_old_name_is_answered_with_the_new_one_and_the_value() -> None:
    given = {"before": 2.5, "kind": "old", "bfore": 1}
    with pytest.raises(ValidationError) as caught:
        _Renamed.model_validate(given)
    assert {problem.path: problem.message for problem in explain(caught.value, _Renamed, given, "a.b")} == {
        ("before",): "unknown option 'before' of a.b; it is now called now: write now: 2.5",
        ("kind",): "a.b: kind='old' is now called new: write kind: new",
        ("bfore",): "unknown option 'bfore' of a.b; there is now, kind",
    }
