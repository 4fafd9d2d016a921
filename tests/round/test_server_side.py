"""The server's permitted inputs: the clients of a sum, personal models, and figures of a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api.blocks import CLEAR, RETAINED
from fedplug.api.errors import FedplugError
from fedplug.recipe.recipe import Recipe
from fedplug_runs.execution import start
from fedplug_runs.folder import read_rows
from fedplug_runs.settings import Settings
from toy_components import AskAgain, Peek, recipe_of, toy_catalog
from toy_protocol import initial_vector, run_protocol


@pytest.fixture(autouse=True)
def _forget() -> None:
    Peek.seen.clear()
    AskAgain.heard.clear()


def test_the_clients_of_a_sum_can_be_asked_while_it_is_opened() -> None:
    run_protocol(recipe_of(postprocess={CLEAR: [{"use": "toy.ask_again"}]}))
    assert AskAgain.heard == [{k: k for k in range(4)}] * 2


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_trainer_may_give_clients_personal_models(engine: str) -> None:
    outcome = run_protocol(recipe_of(train={"use": "toy.offset"}), engine)
    assert np.allclose(outcome.vector, initial_vector(recipe_of()) + 2, atol=1e-5)
    assert set(outcome.protocol.rows[-1].personal_accuracy) == {0, 1, 2, 3}


# -- tasks that are judged by more than accuracy ----------------------------------------------------------------------

PIXELS: dict[str, Any] = {
    "data": {"use": "toy.stripes", "clients": 3, "partition": {"use": "std.dirichlet", "alpha": 1.0}},
    "model": {"use": "toy.pixelwise"},
    "train": {"use": "std.sgd", "epochs": 3, "batch_size": 4, "lr": 0.5},
}


def test_a_task_is_judged_by_counts_of_all_clients() -> None:
    outcome = run_protocol(recipe_of(**PIXELS, rounds=4))
    row = outcome.protocol.rows[-1]
    assert row.accuracy is not None
    assert row.accuracy > 0.99
    told = [message.decode()["reports"] for message in outcome.sent("server", round=4)]
    counts = [reports["evaluation"]["task"] for reports in told if "evaluation" in reports]
    assert len(counts) == 3
    bright, seen = (sum(count[name] for count in counts) for name in ("bright", "seen"))
    assert row.figures == {"bright seen": seen / bright}
    assert row.figures["bright seen"] > 0.98


def test_models_of_the_clients_own_are_judged_by_counts_too() -> None:
    """Each client trains alone, and the global model does not change."""
    alone = {"negotiate_mask": {"use": "std.single_zone", "zone": RETAINED}, "postprocess": {RETAINED: ["toy.keep"]}}
    outcome = run_protocol(recipe_of(**PIXELS, **alone, protect={}, rounds=4))
    told = [message.decode()["reports"] for message in outcome.sent("server", round=4)]
    counts = [reports["evaluation"]["personal_task"] for reports in told if "evaluation" in reports]
    assert len(counts) == 3
    bright, seen = (sum(count[name] for count in counts) for name in ("bright", "seen"))
    figures = outcome.protocol.rows[-1].figures
    assert list(figures) == ["bright seen", "bright seen, own models"]
    assert figures["bright seen, own models"] == seen / bright > figures["bright seen"] + 0.2


def test_counts_that_a_model_cannot_use_cost_no_round() -> None:
    """They come from clients, which may send anything."""
    outcome = run_protocol(recipe_of(**PIXELS | {"model": {"use": "toy.pixelwise", "broken": True}}, rounds=2))
    assert [row.figures for row in outcome.rows] == [{}, {}]
    assert any("figures of toy.pixelwise are left out: " in note for note in outcome.notes)


def test_class_weights_raise_the_recall() -> None:
    def recall(**train: Any) -> float:
        rows = run_protocol(recipe_of(**PIXELS | {"train": PIXELS["train"] | train}, rounds=1)).protocol.rows
        return rows[-1].figures["bright seen"]

    # A single short epoch, after which bright pixels, the rarer kind, are not yet found.
    short = {"epochs": 1, "lr": 0.1}
    assert recall(**short, class_weights=[1, 50]) > recall(**short) + 0.2


def test_class_weights_must_be_one_a_class() -> None:
    wrong = PIXELS | {"train": PIXELS["train"] | {"class_weights": [1.0, 2.0, 3.0]}}
    with pytest.raises(FedplugError, match="3 weights for 2 classes"):
        run_protocol(recipe_of(**wrong, rounds=1))


@pytest.mark.usefixtures("reports")
def test_the_run_folder_names_the_kinds_and_holds_the_figures(tmp_path: Path) -> None:
    recipe = Recipe.from_plain(recipe_of(**PIXELS), toy_catalog())
    _, folder = start(recipe, Settings(output=tmp_path, engine="local", workers=1, quiet=True), toy_catalog())
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["class_distribution"]["classes"] == ["even", "odd"]
    rows = read_rows(folder)
    report = (folder / "report.html").read_text()
    assert 'id="figure-task"' in report
    assert f"bright seen {rows[-1].figures['bright seen']:.3f}" in report
