"""What the server may use: the clients of a sum, models of clients' own. And segmentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import FedplugError
from fedplug.api.types import CLEAR
from fedplug.recipe.recipe import Recipe
from fedplug.runs.metrics import segmentation
from fedplug.runs.run import start
from fedplug.runs.settings import Settings
from toy_components import AskAgain, Peek, initial_vector, recipe_of, run_protocol, toy_catalog


@pytest.fixture(autouse=True)
def _forget() -> None:
    Peek.seen.clear()
    AskAgain.heard.clear()


def test_the_clients_of_a_sum_can_be_asked_while_it_is_opened() -> None:
    run_protocol(recipe_of(postprocess={CLEAR: [{"use": "toy.ask_again"}]}))
    assert AskAgain.heard == [{k: k for k in range(4)}] * 2


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_trainer_may_give_clients_models_of_their_own(engine: str) -> None:
    outcome = run_protocol(recipe_of(train={"use": "toy.offset"}), engine)
    assert np.allclose(outcome.vector, initial_vector(recipe_of()) + 2, atol=1e-5)
    assert set(outcome.protocol.rows[-1]["personal_accuracy"]) == {"0", "1", "2", "3"}


# -- segmentation ------------------------------------------------------------------------------------------------------

PIXELS: dict[str, Any] = {
    "data": {"use": "toy.stripes", "clients": 3, "partition": {"use": "std.dirichlet", "alpha": 1.0}},
    "model": {"use": "toy.pixelwise"},
    "train": {"use": "std.sgd", "epochs": 3, "batch_size": 4, "lr": 0.5},
}


def test_a_segmentation_is_trained_and_counted_in_pixels() -> None:
    row = run_protocol(recipe_of(**PIXELS, rounds=4)).protocol.rows[-1]
    assert row["accuracy"] > 0.99
    assert row["segmentation"]["iou"] > 0.97
    assert row["segmentation"]["f_score"] > 0.98
    assert set(row["segmentation"]) == {"iou", "precision", "recall", "f_score"}


def test_class_weights_raise_the_recall() -> None:
    def recall(**train: Any) -> float:
        rows = run_protocol(recipe_of(**PIXELS | {"train": PIXELS["train"] | train}, rounds=1)).protocol.rows
        return float(rows[-1]["segmentation"]["recall"])

    # A single short epoch, after which bright pixels, the rarer kind, are not yet found.
    short = {"epochs": 1, "lr": 0.1}
    assert recall(**short, class_weights=[1, 50]) > recall(**short) + 0.2


def test_class_weights_must_be_one_a_class() -> None:
    wrong = PIXELS | {"train": PIXELS["train"] | {"class_weights": [1.0, 2.0, 3.0]}}
    with pytest.raises(FedplugError, match="3 weights for 2 classes"):
        run_protocol(recipe_of(**wrong, rounds=1))


def test_segmentation_figures_of_a_worked_example() -> None:
    counts = [
        {"true_positives": 3, "false_positives": 1, "false_negatives": 2},
        {"true_positives": 1, "false_positives": 1, "false_negatives": 0},
    ]
    found = segmentation(counts)
    assert found == pytest.approx({"iou": 4 / 8, "precision": 4 / 6, "recall": 4 / 6, "f_score": 4 / 6})


def test_nothing_found_and_nothing_there_is_zero_not_an_error() -> None:
    empty = {"true_positives": 0, "false_positives": 0, "false_negatives": 0}
    assert segmentation([empty]) == {"iou": 0.0, "precision": 0.0, "recall": 0.0, "f_score": 0.0}


@pytest.mark.usefixtures("reports")
def test_the_run_folder_names_the_kinds_and_holds_the_figures(tmp_path: Path) -> None:
    recipe = Recipe.from_plain(recipe_of(**PIXELS), toy_catalog())
    _, folder = start(recipe, Settings(output=tmp_path, engine="local", workers=1, quiet=True), toy_catalog())
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["class_distribution"]["classes"] == ["even", "odd"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert 0 <= rows[-1]["segmentation"]["iou"] <= 1
    report = (folder / "report.html").read_text()
    assert 'id="figure-segmentation"' in report
    assert f"IoU {rows[-1]['segmentation']['iou']:.3f}" in report
