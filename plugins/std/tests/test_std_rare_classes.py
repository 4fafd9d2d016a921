"""Whole runs on tables with a rare class: right figures, what leads, what is said; at sites too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug_runs.row_text import totals
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_auc_score

FEATURES = ["a", "b", "c"]
RECIPE: dict[str, Any] = {
    "name": "rare", "seed": 2, "rounds": 2,
    "data": {"use": "std.table", "answer": ["state"], "clients": 3, "partition": {"use": "std.iid"},
             "features": FEATURES, "test_column": "part"},
    "model": {"use": "std.logistic"}, "train": {"use": "std.sgd", "lr": 0.05},
    "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
    "aggregate": {"use": "std.mean"},
}  # fmt: skip


def written(file: Path, n: int, sick: int, seed: int, ordered: bool = False) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """A table; its test rows, of which `sick` of n are ill."""
    rng = np.random.default_rng(seed)
    answers = np.concatenate([np.repeat([0, 1], [n - sick, sick])] * 2)
    values = rng.normal(size=(2 * n, 3)).round(4)
    values[:, 0] += 2 * answers
    rows = [",".join([*map(str, row), ("well", "ill")[answer], "train" if k < n else "test"])
            for k, (row, answer) in enumerate(zip(values, answers, strict=True))]  # fmt: skip
    order = np.arange(2 * n) if ordered else rng.permutation(2 * n)
    file.write_text("\n".join(["a,b,c,state,part", *(rows[k] for k in order)]) + "\n")
    return values[n:].astype(np.float32), answers[n:]


@pytest.mark.parametrize(("ordered", "class_weights"), [(False, None), (True, [40, 1])])
def test_a_rare_class_cannot_hide_behind_accuracy(
    ordered: bool, class_weights: list[float] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs, answers = written(tmp_path / "table.csv", 600, 12, 1, ordered)
    plain = {**RECIPE, "data": {**RECIPE["data"], "file": str(tmp_path / "table.csv")}}
    # Classes are sorted by name, so that ill is the first.
    plain["train"] = {**RECIPE["train"], **({"class_weights": class_weights} if class_weights else {})}
    run = fedplug.run(plain, output=tmp_path / "runs", device="cpu")
    with torch.no_grad():
        outputs = run.model(torch.from_numpy(inputs)).numpy()
    truth, said = 1 - answers, outputs.argmax(1)
    row = run.metrics[-1]
    assert row.accuracy == pytest.approx((said == truth).mean())
    assert row.leads.name == "balanced accuracy"
    assert row.leading == row.figures["balanced accuracy"] == pytest.approx(balanced_accuracy_score(truth, said))
    assert list(row.recalls.values()) == pytest.approx(list(recall_score(truth, said, average=None)))
    assert row.figures["AUC"] == pytest.approx(roc_auc_score(truth, outputs[:, 1] - outputs[:, 0]), abs=0.03)
    assert row.guess == {"accuracy": 0.98, "balanced accuracy": 0.5, "AUC": 0.5} == run.summary.guess
    assert run.summary.common == "well"
    shown, words = capsys.readouterr().out, totals(run.metrics)
    assert "class ill is 2.0% of the test examples (12 of 600), so balanced accuracy leads" in shown
    assert "class_weights in train" in shown
    if class_weights is None:
        assert row.recalls == {"ill": 0.0, "well": 1.0}
        assert row.no_better == "balanced accuracy"
        assert words["guess"] == "balanced accuracy 0.500, accuracy 0.980; the model is no better in balanced accuracy"
        assert "it finds no example of ill" in shown
        assert "write class_weights: [49, 1] in train" in shown
    else:
        assert row.recalls["ill"] > 0.5
        assert row.no_better == ""
        assert "the model is no better" not in words["guess"]
        assert run.summary.doubts == []


def test_sites_send_means_and_no_counts_by_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for client in range(3):
        (tmp_path / f"client-{client}").mkdir()
        written(tmp_path / f"client-{client}/table.csv", 150, 6 if client else 0, client)
    agreed = {"shape": [3], "classes": ["ill", "well"], "mean": [], "std": []}
    data = {**RECIPE["data"], "file": "table.csv", "at": "sites", "partition": None, "agreed": agreed,
            "classes": ["ill", "well"]}  # fmt: skip
    run = fedplug.run({**RECIPE, "data": data}, data=tmp_path, output=tmp_path / "runs", device="cpu")
    row = run.metrics[-1]
    assert row.leads.name == "balanced accuracy"
    assert row.recalls == {}, "they would tell a site's mix of classes"
    assert row.client_leading.keys() == {1, 2}, "site 0 holds out no one who is ill"
    assert row.client_accuracy.keys() == {0, 1, 2}
    assert row.figures["balanced accuracy"] == pytest.approx(sum(row.client_leading.values()) / 2)
    assert row.guess == {"balanced accuracy": 0.5, "AUC": 0.5}
    assert "a class is rare among the held-out examples of a site" in capsys.readouterr().out


def test_a_model_that_keeps_its_outputs_to_itself_is_led_by_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "table.csv", 600, 12, 1)
    plain = {**RECIPE, "data": {**RECIPE["data"], "file": str(tmp_path / "table.csv")}}
    monkeypatch.setattr("fedplug_std._answers.MOST_OUTPUTS", 0)
    run = fedplug.run(plain, output=tmp_path / "runs", device="cpu")
    assert [row.leads.name for row in run.metrics] == ["accuracy"] * 2
    assert run.metrics[-1].no_better == "accuracy"
    said = capsys.readouterr().out
    assert said.count("std.logistic does not give its outputs") == 1
    assert "no better than a guess: accuracy 0.980, a guess 0.980" in said
