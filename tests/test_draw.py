"""docs/draw.py: the numbers of a comparison with cases, and those of a sweep."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from scripts import script

ROOT = Path(__file__).parent.parent


@pytest.fixture
def draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with an empty folder of numbers."""
    module = script(ROOT / "docs/draw.py")
    monkeypatch.setattr(module, "NUMBERS", tmp_path)
    return module


def test_cases_are_in_one_row_and_a_papers_numbers_stay(draw: Any, tmp_path: Path) -> None:
    head = "protocol,accuracy_mean,accuracy_sd,personal_accuracy_mean,personal_accuracy_sd,seconds_cpu_mean,"
    head += "bytes_up_mean,bytes_down_mean"
    rows = {"b": ["one,0.5,0.25,,,2,1e6,1e6", "two,0.75,0,0.125,0,4,2e6,1e6"], "a": ["one,1,0,,,5,1e6,3e6"]}
    for age, (case, lines) in enumerate(rows.items()):
        file = tmp_path / "compare-table" / case / "compare.csv"
        file.parent.mkdir(parents=True)
        file.write_text("\n".join([head, *lines]), encoding="utf-8")
        os.utime(file, (age, age))
    (tmp_path / "table.csv").write_text("protocol,b,paper b\none,9,0.9\ntwo,9,\n", encoding="utf-8")
    (tmp_path / "table-costs.csv").write_text(f"protocol,CPU s,{draw.BEFORE}\none,7,2.5\ntwo,7,\n", encoding="utf-8")
    assert draw.take(tmp_path / "compare-table") == "table"
    assert list(csv.reader((tmp_path / "table.csv").open())) == [
        ["protocol", "b", "b sd", "a", "a sd", "b, own models", "b, own models sd", "paper b"],
        ["one", "0.500", "0.250", "1.000", "0.000", "", "", "0.9"],
        ["two", "0.750", "0.000", "", "", "0.125", "0.000", ""],
    ]
    assert list(csv.reader((tmp_path / "table-costs.csv").open())) == [
        ["protocol", "CPU s, b", "CPU s, a", "% per CPU s, b", "% per CPU s, a", "MB, b", draw.BEFORE],
        ["one", "2.0", "5.0", "25.0", "20.0", "2.0", "2.5"],
        ["two", "4.0", "", "18.8", "", "3.0", ""],
    ]


def test_runs_of_a_sweep_are_means_over_seeds_with_cpu_seconds_by_phase(draw: Any, tmp_path: Path) -> None:
    def line(case: str, seed: int, accuracy: float, own: float | None = None, failed: bool = False) -> str:
        result = {
            "accuracy": accuracy, "zones": {"encrypted": 0.25, "clear": 0.0}, "cpu_seconds": 8.0 * seed,
            "seconds": {"train": 30.0, "protect": 10.0}, "personal_accuracy": own and {"min": 0, "mean": own, "max": 1},
        }  # fmt: skip
        return json.dumps({"case": case, "parameters": {"data.use": "std.mnist"}, "seed": seed,
                           "result": None if failed else result}) + "\n"  # fmt: skip

    lines = [line("a", 1, 0.5), line("a", 2, 0.75), line("b", 1, 0.1, 0.5), line("b", 2, 0.1, failed=True)]
    (tmp_path / "sweep.jsonl").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "mine.csv").write_text("case,data.use,accuracy,paper\nb,std.mnist,9,.98\n", encoding="utf-8")
    draw.take_sweep(tmp_path, "mine")
    assert list(csv.reader((tmp_path / "mine.csv").open())) == [
        ["case", "data.use", "encrypted %", "encrypted % sd", "accuracy", "accuracy sd", "own models", "own models sd",
         "paper"],
        ["a", "std.mnist", "25.0", "0.0", "0.625", "0.177", "", "", ""],
        ["b", "std.mnist", "25.0", "0.0", "0.100", "0.000", "0.500", "0.000", ".98"],
    ]  # fmt: skip
    assert list(csv.reader((tmp_path / "mine-costs.csv").open())) == [
        ["case", "data.use", "train", "protect", "all"],
        ["a", "std.mnist", "9.00", "3.00", "12.00"],
        ["b", "std.mnist", "6.00", "2.00", "8.00"],
    ]


def test_a_file_has_one_line_for_each_adversary_s_view(draw: Any, tmp_path: Path) -> None:
    head = "protocol,seeds_list,accuracy_mean,accuracy_sd,bytes_up_mean,bytes_down_mean,seconds_mean"
    looks = ("server", "server+key_server", "server+client:1+client:2")
    head += "".join(f",leakage_{who}_sees,leakage_{who}_people,leakage_{who}_recovered" for who in looks)
    rows = ["one,1,0.5,,1e6,1e6,2,hidden,0,0,opened,3,3,hidden,0,0", "two,1,0.5,,1e6,1e6,2,hidden,0,0,,,,opened,3,1"]
    file = tmp_path / "compare-keys" / "compare.csv"
    file.parent.mkdir()
    file.write_text("\n".join([head, *rows]), encoding="utf-8")
    assert draw.take(file.parent) == "keys"
    assert list(csv.reader((tmp_path / "keys-adversaries.csv").open())) == [
        ["who looks", "one", "two"],
        ["the server", "hidden", "hidden"],
        ["the server and the key server", "opened: 3 of 3 images", "–"],
        ["the server and 2 clients", "hidden", "opened: 1 of 3 images"],
    ]


def test_a_folder_without_a_sweep_says_how_to_make_one(draw: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is not there; make it with: fedplug sweep"):
        draw.take_sweep(tmp_path, "mine")
