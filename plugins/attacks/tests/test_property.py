"""Properties: the share of an attribute from an update, and columns that the model is not given."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug.api.errors import FedplugError, MetricError
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.property import AttributeShare, predicted
from fedplug_kit.static import check_component


def recipe(folder: Path, truth: dict[str, Any] | None, **attack: Any) -> dict[str, Any]:
    """A table whose hidden column shifts two of the columns that the model is given."""
    rng = np.random.default_rng(3)
    sex = rng.integers(0, 2, 900)
    columns = np.round(rng.normal(0, 1, (900, 6)) + 1.5 * sex[:, None] * (np.arange(6) < 2), 4)
    ill = (columns[:, 2] + rng.normal(0, 1, 900) > 0).astype(int)
    lines = ["a,b,c,d,e,f,sex,ill"]
    lines += [
        ",".join([*map(str, row), "female" if s else "male", "yes" if y else "no"])
        for row, s, y in zip(columns.tolist(), sex, ill, strict=True)
    ]
    (folder / "table.csv").write_text("\n".join(lines), encoding="utf-8")
    section: dict[str, Any] = {
        "adversaries": ["server"], "targets": [0, 1], "rounds": [1],
        "attacks": [{"use": "attacks.property", "shadow_updates": 60}],
    }  # fmt: skip
    if truth is not None:
        section["truth"] = truth
    return {
        "name": "property", "seed": 1, "rounds": 1,
        "data": {
            "use": "std.table", "file": str(folder / "table.csv"), "answer": "ill", "leave_out": ["sex"], "clients": 2,
            "public": 300, "partition": {"use": "std.iid"},
        },
        "model": {"use": "std.mlp", "hidden": [16]}, "train": {"use": "std.sgd", "batch_size": 64, "lr": 0.1},
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
        "aggregate": {"use": "std.mean"}, "attack": section | attack,
    }  # fmt: skip


def attacked(folder: Path, truth: dict[str, Any] | None, **attack: Any) -> list[dict[str, Any]]:
    run = fedplug.run(Recipe.from_plain(recipe(folder, truth, **attack)), output=folder / "runs", quiet=True)
    found = [json.loads(path.read_text()) for path in sorted((run.folder / "attacks").glob("*.json"))]
    return [result for result in found if "forms" in result]


@pytest.mark.parametrize("name", ["attacks.property", "attacks.attribute_share"])
def test_conform(name: str) -> None:
    check_component(name)


def test_ridge_regression_finds_a_share_that_is_there_and_says_so_where_none_is() -> None:
    rng = np.random.default_rng(0)
    shares, noise = rng.random(100), rng.normal(0, 0.05, (101, 30))
    updates = np.outer(np.append(shares, 0.8), rng.normal(size=30)) + noise
    halves = np.arange(100) % 2 == 0
    share, error, trivial = predicted(updates[:100], shares, halves, updates[100])
    assert share == pytest.approx(0.8, abs=0.05)
    assert error < 0.05 < trivial
    # A share at random has a mean distance of a quarter from its mean.
    assert trivial == pytest.approx(0.25, abs=0.04)
    _, error, trivial = predicted(noise[:100], shares, halves, noise[100])
    assert error > 0.9 * trivial


def test_rows_that_are_known_by_heart_tell_nothing_of_others() -> None:
    rng = np.random.default_rng(0)
    gradients, having = rng.normal(size=(80, 200)), np.arange(80) % 4 < 2
    halves = np.arange(200) % 2 == 0
    rows = [rng.choice(np.arange(half, 80, 2), 16) for half in halves.astype(int)]
    updates, shares = (np.array([of[which].mean(0) for which in rows]) for of in (gradients, having.astype(float)))
    _, error, trivial = predicted(updates, shares, halves, updates[0])
    assert error > 0.9 * trivial


def test_a_column_that_the_model_is_not_given_can_be_asked_and_shadows_show_it(tmp_path: Path) -> None:
    results = attacked(tmp_path, {"column": "sex", "equals": "female"})
    assert len(results) == 2
    for result in results:
        (outcome,) = result["forms"].values()
        assert outcome["metrics"]["share_error"] < 0.2
        assert outcome["own"]["shadow_error"] < 0.9 * outcome["own"]["shadow_error_of_mean"]
        assert 0 < result["baselines"]["public share"]["share_error"] < 0.2


def test_what_the_recipe_asks(tmp_path: Path) -> None:
    for truth in ({"column": "a"}, {"column": "label", "equals": "yes"}, {"column": "c", "above": 0.0}):
        (outcome,) = attacked(tmp_path, truth, targets=[0])[0]["forms"].values()
        assert math.isfinite(outcome["metrics"]["share_error"])
    (outcome,) = attacked(tmp_path, None, targets=[0])[0]["forms"].values()
    assert outcome["status"] == "not_applicable"
    assert "no attribute is requested" in outcome["reason"]
    with pytest.raises(FedplugError, match="column sex never says other; it says female, male"):
        attacked(tmp_path, {"column": "sex", "equals": "other"})


def test_the_metric() -> None:
    metric = AttributeShare(AttributeShare.Options())
    truth = Truth(np.zeros((4, 2), np.float32), np.zeros(4, int), 2, attribute=np.array([True, False, False, False]))
    assert metric.score(AttackReport("finished", share=0.75), truth) == {"share_error": 0.5, "true_share": 0.25}
    with pytest.raises(MetricError, match="there are none here"):
        metric.score(AttackReport("finished"), truth)
