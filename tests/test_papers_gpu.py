"""benchmarks/papers_gpu.py and gpu.py: lists, refusals, and runs in the order of their size. No test has a GPU."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fedplug
import pytest
from fedplug.api.errors import FedplugError
from scripts import script

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def gpu() -> Iterator[ModuleType]:
    """The script, which reads the recipes of its list once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        module = script(ROOT / "benchmarks/papers_gpu.py")
        module.rows = functools.cache(module.rows)  # type: ignore[attr-defined]
        yield module


@pytest.fixture
def lent(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """As on a machine with a GPU and CIFAR-10; the seeds that are run, without running anything."""
    (tmp_path / "data/cifar-10-batches-py").mkdir(parents=True)
    made: list[str] = []

    def run(recipe: Any, **settings: Any) -> Any:
        assert settings["device"] == "cuda"
        plain = recipe.to_plain()
        made.append(f"{plain['data']['partition']['alpha']} {plain['negotiate_mask']['rho']}")
        if len(made) == 2:
            raise FedplugError("too few clients are left")
        return SimpleNamespace(metrics=[SimpleNamespace(accuracy=0.5)], folder=tmp_path)

    monkeypatch.setattr(gpu, "no_gpu", lambda: None)
    monkeypatch.setattr(gpu.fedplug, "run", run)
    return made


def test_the_page_has_the_list_smallest_first(gpu: ModuleType) -> None:
    found = gpu.rows(gpu.SPEED)
    assert [row.hours for row in found] == sorted(row.hours for row in found)
    with (ROOT / "docs/numbers/papers-gpu.csv").open(encoding="utf-8", newline="") as file:
        assert [*csv.DictReader(file)] == gpu.listed(found), "stale: python benchmarks/papers_gpu.py --list --csv ..."
    faster = {(row.setting.table, row.setting.name): row.hours for row in gpu.rows(1e9)}
    left = [faster[row.setting.table, row.setting.name] / row.hours for row in found]
    assert all(0 < share < 1 for share in left), "encryption stays on the CPU"


def test_every_row_has_its_runs(gpu: ModuleType) -> None:
    keys = []
    for row in gpu.rows(gpu.SPEED):
        if row.runs <= 12:  # the others are grids; one is below
            keys += [job.key for job in gpu.jobs(row, [1, 2])]
            assert keys[-1].endswith("seed=2")
    assert len({*keys}) == len(keys) > 40


def test_without_gpu_and_data_both_are_said(gpu: ModuleType, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.setattr(gpu, "no_gpu", lambda: "this PyTorch is for CPUs")
    assert gpu.main([]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error: this PyTorch is for CPUs"
    assert said[1].startswith("error: no data folder is named; give --data FOLDER")


def test_missing_data_sets_are_named_at_once(gpu: ModuleType, lent: list[str], tmp_path: Path, capsys: Any) -> None:
    assert gpu.main(["--data", str(tmp_path / "data"), "--only", "*selectiveshield*"]) == 2
    said = capsys.readouterr().err
    assert "cifar-10-batches-py" not in said, "it is there"
    assert said.count("has no") == 3
    assert "has no cifar-100-python, which std.cifar100 reads; put the published files there" in said
    assert gpu.main(["--data", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is no folder" in capsys.readouterr().err
    assert not lent


def test_a_wrong_row_lists_the_right_ones(gpu: ModuleType, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["--only", "nothing"])
    assert "the rows are fas/chest-mobilenet" in capsys.readouterr().err


def test_runs_go_on_after_a_failure_and_after_the_last_command(
    gpu: ModuleType, lent: list[str], tmp_path: Path, capsys: Any
) -> None:
    call = ["--data", str(tmp_path / "data"), "--only", "*shield/cifar10", "--output", str(tmp_path / "out")]
    assert gpu.main(call) == 1, "one run failed"
    assert len(lent) == 48
    assert "failed: too few clients are left" in capsys.readouterr().err
    results = (tmp_path / "out/results.jsonl").read_text(encoding="utf-8").splitlines()
    assert len({json.loads(line)["key"] for line in results}) == 47
    assert gpu.main(call) == 0
    assert lent[48:] == [lent[1]], "only the one that failed"


def test_a_damaged_line_of_results_is_named(gpu: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text('{"key": "a"}\n{"key": "b', encoding="utf-8")
    with pytest.raises(SystemExit, match=r"results\.jsonl:2: this is no result of a run; remove the line"):
        gpu.finished(file)


def test_nothing_starts_that_would_end_too_late(gpu: ModuleType, lent: list[str], tmp_path: Path, capsys: Any) -> None:
    call = ["--data", str(tmp_path / "data"), "--only", "*shield/cifar10", "--hours", "0.01"]
    assert gpu.main([*call, "--output", str(tmp_path / "out")]) == 0
    assert not lent
    assert "h are left; it ends here" in capsys.readouterr().out


def test_every_row_of_the_other_script_is_a_recipe_that_runs_and_time_that_is_over_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = script(ROOT / "benchmarks/gpu.py")
    for name in other.ROWS:
        assert fedplug.check(other.recipe(name), trust=True).name == name, "or it says what is wrong"
    answers = {"cuda": {"seconds": 0.5, "loss": 1.0}, "cpu": {"seconds": 2.0, "loss": 1.01}}
    monkeypatch.setattr(other, "card", lambda _: "a card")
    over = "ended when the minutes were over"
    monkeypatch.setattr(other, "measured", lambda name, device, _: over if name == "dp-sgd" else answers[device])
    monkeypatch.setattr("sys.argv", ["gpu.py", "--only", "lenet5", "dp-sgd", "--csv", str(tmp_path / "rows.csv")])
    assert other.main() == 0
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        assert [row["times as fast"] for row in csv.DictReader(file)] == ["4"]
    assert f"records, LeNet-5: {over}" in capsys.readouterr().out
    answers["cuda"]["loss"] = 2.0
    assert other.main() == 1
