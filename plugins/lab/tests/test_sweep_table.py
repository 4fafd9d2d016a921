"""What a sweep keeps of its runs: a line each, and the table of all."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from fedplug_lab.comparable import GROUPS
from fedplug_lab.records import Line, result_of
from fedplug_lab.sections import Result, Spread, Volume
from fedplug_lab.sweep import columns_of, to_csv
from fedplug_runs.folder import Distribution, Summary
from row_toys import a_ledger, a_row, a_verdict


def a_line(scale: float, seed: int, parameters: dict[str, Any] | None = None, **changes: Any) -> Line:
    found: dict[str, Any] = {
        "rounds": 3, "accuracy": 0.5 + seed / 10, "best_accuracy": 0.9, "loss": 1.0, "log": {}, "wall_seconds": 2.0,
        "zones": {"encrypted": 0.25, "clear": 0.75, "noised": 0.0}, "seconds": {"train": 1.0},
        "personal_accuracy": {"min": 0.1, "mean": 0.2, "max": 0.3}, "epsilon": None, "verdict": "NO",
        "bytes": {"up": 1_500_000, "down": 0, "key_server": 0},
        "assessments": {"toy.clusters": {"adjusted_rand_index": 1.0}},
    }  # fmt: skip
    result = Result.from_plain({**found, **changes})
    return Line(f"{scale}-{seed}", "", parameters or {"train.scale": scale}, seed, "x", result=result)


def test_the_table_has_mean_and_standard_deviation_over_seeds() -> None:
    lines = [a_line(scale, seed) for scale in (0.1, 0.2) for seed in (1, 2, 3)]
    lines.append(Line("0.2-4", "", {"train.scale": 0.2}, 4, error="boom"))
    table = {column.title: column.cells for column in columns_of(lines)}
    assert table == {
        "scale": ["0.1", "0.2"], "runs": ["3", "3 of 4"], "accuracy": ["0.700 ± 0.100"] * 2, "best": ["0.900"] * 2,
        "personal mean": ["0.200"] * 2, "lowest": ["0.100"] * 2, "highest": ["0.300"] * 2,
        "adjusted rand index": ["1"] * 2, "encrypted": ["25.0%"] * 2, "clear": ["75.0%"] * 2, "MB up": ["1.50"] * 2,
        "MB down": ["0.00"] * 2, "seconds": ["2.0"] * 2,
    }  # fmt: skip
    assert list(dict.fromkeys(column.group for column in columns_of(lines))) == ["", *GROUPS]


def test_figures_of_a_task_are_columns() -> None:
    lines = [a_line(0.1, 1, figures={"Dice": 0.25}), a_line(0.2, 1)]
    columns = {column.title: column.cells for column in columns_of(lines)}
    assert columns["Dice"] == ["0.250", "–"]
    assert next(csv.DictReader(io.StringIO(to_csv(lines))))["figures.Dice"] == "0.25"


def test_a_parameter_may_be_called_as_a_result_is() -> None:
    lines = [a_line(0.1, 1, parameters={"protect.noised.1.seconds": e}) for e in (1, 8)]
    columns = [(column.title, column.cells) for column in columns_of(lines) if "seconds" in column.title]
    assert columns == [("seconds", ["1", "8"]), ("seconds", ["2.0", "2.0"])]


def test_each_party_has_the_largest_epsilon_of_the_runs_or_no_guarantee() -> None:
    given = {"server": 8.0, "released_model": None, "client": 1.0}
    lines = [a_line(0.1, 1, guarantees=given), a_line(0.1, 2, guarantees={**given, "server": 9.0, "client": None})]
    columns = {column.title: (column.cells, column.brief) for column in columns_of(lines) if column.group == "privacy"}
    assert columns["toward server"] == (["ε 9.000"], True)
    assert columns["toward client"] == (["no guarantee"], False)
    assert columns["toward model"] == (["no guarantee"], True)
    assert "toward key server" not in columns, "it is not there"


def test_the_csv_holds_every_number_and_any_text() -> None:
    lines = [a_line(0.1, 1, verdict='NO, "none"\n;'), a_line(0.1, 2, parameters={"protect.noised": [{"use": "x"}]})]
    rows = list(csv.DictReader(io.StringIO(to_csv(lines))))
    assert rows[0]["verdict"] == 'NO, "none"\n;'
    assert rows[0]["personal_accuracy.mean"] == "0.2"
    assert rows[0]["assessments.toy.clusters.adjusted_rand_index"] == "1.0"
    assert (rows[0]["train.scale"], rows[1]["train.scale"]) == ("0.1", "")
    assert json.loads(rows[1]["protect.noised"]) == [{"use": "x"}]


def test_a_line_holds_personal_models_simulated_time_and_assessments(tmp_path: Path) -> None:
    rows = [
        a_row(r, accuracy=0.9 - r / 10, personal_accuracy={0: 0.5, 1: 0.7}, log={"x": r}, wall_seconds=1.0,
              simulated_seconds=1.5, seconds={"train": 2.0},
              figures={"Dice": r / 4})
        for r in (1, 2)
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(row.to_json() + "\n" for row in rows))
    (tmp_path / "ledger.json").write_text(a_ledger(verdict=a_verdict()).to_json())
    ran = Summary("x", "0" * 64, {}, [], {}, "local", "cpu", Distribution([], {}), False, "", 1)
    ran.assessments = {"c": {"silhouette": 0.5}}
    (tmp_path / "summary.json").write_text(ran.to_json())
    found = result_of(tmp_path)
    assert found.personal_accuracy == Spread(0.5, pytest.approx(0.6), 0.7)
    assert found.personal_public_accuracy is None
    assert (found.accuracy, found.best_accuracy) == (pytest.approx(0.7), pytest.approx(0.8))
    assert (found.simulated_seconds, found.wall_seconds, found.seconds) == (3.0, 2.0, {"train": 4.0})
    assert found.bytes == Volume(3_000_000, 1600, 0)
    assert (found.log, found.assessments, found.verdict) == ({"x": 2}, {"c": {"silhouette": 0.5}}, str(a_verdict()))
    assert found.figures == {"Dice": 0.5}
    assert Result.from_json(found.to_json()) == found
