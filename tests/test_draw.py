"""docs/draw.py: the numbers of a comparison with cases."""

from __future__ import annotations

import csv
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with an empty folder of numbers."""
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs/draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "NUMBERS", tmp_path)
    return module


def test_cases_stand_beside_each_other_and_what_a_paper_prints_stays(draw: Any, tmp_path: Path) -> None:
    head = "protocol,accuracy_mean,accuracy_sd,personal_accuracy_mean,personal_accuracy_sd,seconds_cpu_mean,"
    head += "bytes_up_mean,bytes_down_mean"
    rows = {"b": ["one,0.5,0.25,,,2,1e6,1e6", "two,0.75,0,0.125,0,4,2e6,1e6"], "a": ["one,1,0,,,5,1e6,3e6"]}
    for age, (case, lines) in enumerate(rows.items()):
        file = tmp_path / "compare-table" / case / "compare.csv"
        file.parent.mkdir(parents=True)
        file.write_text("\n".join([head, *lines]), encoding="utf-8")
        os.utime(file, (age, age))
    (tmp_path / "table.csv").write_text("protocol,b,paper b\none,9,0.9\ntwo,9,\n", encoding="utf-8")
    assert draw.take(tmp_path / "compare-table") == "table"
    assert list(csv.reader((tmp_path / "table.csv").open())) == [
        ["protocol", "b", "b sd", "a", "a sd", "b, own models", "b, own models sd", "paper b"],
        ["one", "0.500", "0.250", "1.000", "0.000", "", "", "0.9"],
        ["two", "0.750", "0.000", "", "", "0.125", "0.000", ""],
    ]
    assert list(csv.reader((tmp_path / "table-costs.csv").open())) == [
        ["protocol", "CPU s, b", "CPU s, a", "% per CPU s, b", "% per CPU s, a", "MB, b"],
        ["one", "2.0", "5.0", "25.0", "20.0", "2.0"],
        ["two", "4.0", "", "18.8", "", "3.0"],
    ]
