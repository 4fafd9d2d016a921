"""benchmarks/set_up.py counts the work that is done once, and runs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fedplug.round.protocol import Protocol
from scripts import script

ROOT = Path(__file__).parent.parent


@pytest.fixture
def module() -> Any:
    """The benchmark."""
    return script(ROOT / "benchmarks/set_up.py")


def test_scores_that_hold_for_a_run_are_counted_and_no_round_is_run(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, "round", lambda *_: pytest.fail("a round was run"))
    setup = Protocol.setup
    clear, scored = (
        module.seconds(ROOT / "recipes" / recipe, {"model.hidden": [64]})
        for recipe in ("fedavg.yaml", "baselines/fedml-he.yaml")
    )
    assert 0 <= clear < scored
    assert Protocol.setup is setup


def test_a_row_has_the_changes_of_its_case_and_the_file_of_numbers_gets_a_column(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, numbers = tmp_path / "table.yaml", tmp_path / "table-costs.csv"
    file.write_text(
        "set: {rounds: 2, train.lr: 1}\n"
        "recipes: [a.yaml, {recipe: b.yaml, name: B, set: {train.lr: 2, seed: 9}}]\n"
        "cases: [{name: iid, set: {train.lr: 3}}, {name: other}]\n",
        encoding="utf-8",
    )
    numbers.write_text("protocol,MB\na,1\nB,2\nanother,3\n", encoding="utf-8")
    asked: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(module, "seconds", lambda path, changes: asked.append((path.name, changes)) or len(asked) / 2)
    given = ["set_up.py", str(file), "--case", "iid", "--seeds", "1", "2", "--csv", str(numbers)]
    monkeypatch.setattr("sys.argv", given)
    assert module.main() == 0
    assert asked == [
        ("a.yaml", {"rounds": 2, "train.lr": 3, "seed": 1}), ("a.yaml", {"rounds": 2, "train.lr": 3, "seed": 2}),
        ("b.yaml", {"rounds": 2, "train.lr": 3, "seed": 1}), ("b.yaml", {"rounds": 2, "train.lr": 3, "seed": 2}),
    ]  # fmt: skip
    assert numbers.read_text(encoding="utf-8") == f"protocol,MB,{module.COLUMN}\na,1,0.8\nB,2,1.8\nanother,3,\n"
    monkeypatch.setattr("sys.argv", given[:2])
    with pytest.raises(SystemExit, match=r"is none of the cases of .*: iid, other"):
        module.main()
