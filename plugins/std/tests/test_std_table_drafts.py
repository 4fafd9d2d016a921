"""What `fedplug data` says of a table, and drafts that train as they are printed."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import fedplug
import pytest
import yaml
from fedplug.api.errors import DataError
from fedplug_std.drafts import described, lines_of
from fedplug_std.tables import Table
from fedplug_terminal.main import main
from table_toys import GIVEN, recipe, rows, write_csv

TITLES = (
    "patient", "admitted", "sex", "age", "crp", "bmi", "ward", "smoker", "note", "unit", "plan", "empty", "outcome",
)  # fmt: skip


def clinic(count: int = 120) -> list[list[Any]]:
    """A table as a hospital exports it: ids, dates, texts, gaps, codes, decimal commas, two spellings of one class."""
    draw, made = random.Random(1), []
    for n in range(count):
        age = draw.randint(20, 90)
        outcome = "" if n == 7 else ("Ill" if n % 4 == 0 else "ill") if age > 55 else "well"
        made.append([
            f"P{n:04}", f"{1 + n % 28:02}.03.2024", draw.choice("fmF") if n else "f", "old" if n == 3 else age,
            "" if n % 3 else f"{draw.random() * 200:.1f}".replace(".", ","), draw.choice(["?", "22,5", "31"]),
            1 + n % 3, draw.choice(["ja", "nein", ""]), f"text {n}", "mg", draw.choice(["0012", "0417"]), "", outcome,
        ])  # fmt: skip
    return made


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = write_csv(tmp_path / "clinic.csv", clinic(), TITLES, ";")
    path.write_bytes(path.read_text(encoding="utf-8").replace("smoker", "Größe").encode("cp1252"))
    return path


def section_in(text: str) -> dict[str, Any]:
    """The section `data` at the end of a text."""
    found: dict[str, Any] = yaml.safe_load(text[text.rindex("\ndata:\n") :])["data"]
    return found


def trained(section: dict[str, Any], folder: Path, **changes: Any) -> fedplug.Run:
    made = {**recipe(), "rounds": 1, "data": section, **changes}
    return fedplug.run(made, data=str(folder), output=folder / "runs", quiet=True)


def test_the_draft_of_an_export_trains_as_it_is(export: Path) -> None:
    found = described(export, export.name)
    section = section_in("\n" + "\n".join(lines_of(found.here())))
    assert trained(section, export.parent).complete
    assert section == {"use": "std.table", **found.section, "clients": 3, "partition": {"use": "std.iid"}}
    assert {name: section[name] for name in ("encoding", "delimiter", "decimal", "answer", "drop_gaps")} == {
        "encoding": "cp1252", "delimiter": ";", "decimal": ",", "answer": "outcome", "drop_gaps": ["outcome"],
    }  # fmt: skip
    assert section["leave_out"] == ["patient", "admitted", "note", "unit", "empty"]
    assert section["replace"] == {"outcome": {"Ill": "ill"}, "sex": {"F": "f"}, "age": {"old": ""}}
    assert section["categories"] == {"sex": ["f", "m"], "Größe": ["ja", "nein"], "plan": ["0012", "0417"]}
    assert section["missing_indicators"] == ["age", "crp", "bmi", "Größe"]
    assert "fill" not in section, "no value of a patient is invented"
    kinds = {each.name: each.kind for each in found.columns}
    assert kinds == {
        "patient": "ids", "admitted": "dates", "sex": "categories", "age": "numbers and texts", "crp": "numbers",
        "bmi": "numbers", "ward": "whole numbers", "Größe": "categories", "note": "ids", "unit": "constant",
        "plan": "codes", "empty": "empty", "outcome": "categories",
    }  # fmt: skip


def test_the_command_shows_the_share_of_the_commonest_class(export: Path, capsys: pytest.CaptureFixture[str],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(export.parent)
    monkeypatch.setattr("sys.argv", ["fedplug", "data", "clinic.csv"])
    assert main() == 0
    said = capsys.readouterr().out
    counts = {word: [row[-1] for row in clinic()].count(word) for word in ("Ill", "ill", "well")}
    ill, well = counts["Ill"] + counts["ill"], counts["well"]
    first, most = ("ill", ill) if ill > well else ("well", well)
    assert f"answer outcome: 2 classes; the commonest, {first}, has a share of {most / 119:.3f}" in said
    assert "answer: outcome is a guess; name another with --answer" in said
    assert re.search(r"^crp +numbers +80 +", said, re.MULTILINE)
    assert trained(section_in(said), export.parent).complete
    monkeypatch.setattr("sys.argv", ["fedplug", "data", "clinic.csv", "--json", "--answer", "age"])
    assert main() == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["data"]["answer"], len(told["columns"])) == (120, "age", 13)
    assert told["answer"]["share"] == max(told["answer"]["classes"].values()) / sum(told["answer"]["classes"].values())
    monkeypatch.setattr("sys.argv", ["fedplug", "data", "clinic.csv", "--answer", "Outcome"])
    assert main() == 1
    assert "has no column Outcome, which --answer names" in capsys.readouterr().err


def test_a_draft_for_sites_says_what_they_agree_on(export: Path, tmp_path: Path) -> None:
    found = described(export, export.name)
    section = section_in("\n" + "\n".join(lines_of(found.at_sites())))
    for client_id in range(3):
        (tmp_path / f"client-{client_id}").mkdir()
        (tmp_path / f"client-{client_id}" / export.name).write_bytes(export.read_bytes())
    assert trained(section, tmp_path).complete
    assert section["agreed"] == {"shape": [14], "classes": ["ill", "well"], "mean": [], "std": []}


def test_numbers_in_another_form_are_named_and_drafted(export: Path) -> None:
    given = {"file": "clinic.csv", "encoding": "cp1252", "delimiter": ";", "answer": "outcome"}
    with pytest.raises(DataError, match=r"column crp has numbers in another form, such as '108,8'; for 108\.8") as it:
        Table(Table.Options.model_validate(given)).load(str(export.parent))
    section = section_in(it.value.__notes__[0])
    assert section["decimal"] == ","
    assert trained(section, export.parent).complete


def test_a_regression_is_drafted_as_one(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "data.csv", rows())
    found = described(path, "data.csv", "income")
    assert (found.predict, found.classes()) == ("numbers", {})
    assert trained({"use": "std.table", **found.section, "clients": 3, "partition": {"use": "std.iid"}}, tmp_path,
                   task={"use": "std.regression", "centre": 900, "scale": 100}).complete  # fmt: skip


def test_all_that_is_wrong_is_in_one_message_with_a_section_that_trains(export: Path) -> None:
    given = {"file": "clinic.csv", "encoding": "cp1252", "delimiter": ";", "decimal": ",", "answer": "outcome"}
    with pytest.raises(DataError) as caught:
        Table(Table.Options.model_validate(given)).load(str(export.parent))
    said = str(caught.value)
    assert [line.partition(": ")[0] for line in said.splitlines()] == [str(export)] * 11
    for each in (
        "column patient has 120 different texts (P0000, P0001, P0002 and 117 more)",
        "column admitted has dates or times", "column sex has texts (F, f, m)", "replace: {sex: {F: f}}",
        "column crp has no value in 80 lines",
        "first 'old'", "column Größe has texts",
        "column empty has no value in any row", "column outcome has no value in 1 line (9)",
    ):  # fmt: skip
        assert each in said
    (note,) = caught.value.__notes__
    assert "unit: left out, since a model learns nothing from it" in note
    assert "everybody who reads the recipe sees" in note
    assert trained(section_in(note), export.parent).complete


def test_a_section_keeps_what_the_recipe_decided(tmp_path: Path) -> None:
    lines = rows()
    lines[3][1], lines[4][2] = "", "x"
    write_csv(tmp_path / "data.csv", lines)
    given = {**GIVEN, "test_fraction": 0.3, "fill": {"income": 900}}
    with pytest.raises(DataError) as caught:
        Table(Table.Options.model_validate(given)).load(str(tmp_path))
    section = section_in(caught.value.__notes__[0])
    assert section["scale"] == {name: [*said] for name, said in GIVEN["scale"].items()}
    assert (section["categories"], section["fill"]) == ({"sex": ["f", "m", "x"]}, {"income": 900})
    assert (section["missing_indicators"], section["test_fraction"]) == (["age"], 0.3)
    assert trained(section, tmp_path).complete


def test_a_column_of_numbers_in_disorder_is_no_id(tmp_path: Path) -> None:
    lines = [[n, 1000 + n * 7 % 60, 3 * n, "ab"[n % 2]] for n in range(60)]
    path = write_csv(tmp_path / "data.csv", lines, ("", "value", "case_no", "y"))
    kinds = {each.name: each.kind for each in described(path, "data.csv", "y").columns}
    assert kinds == {"column 1": "ids", "value": "whole numbers", "case_no": "ids", "y": "categories"}
