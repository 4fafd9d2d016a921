"""The rows of a run: made of what clients report and of what crossed the wire."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from run_toys import resume, rows_of, start
from toy_components import recipe_of, toy_catalog


def test_a_loss_of_nan_is_null_in_the_metrics_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = recipe_of(rounds=2)
    entry = toy_catalog().get("trainer", plain["train"]["use"])
    assert entry is not None
    trainer = entry.load()
    train = trainer.train
    monkeypatch.setattr(trainer, "train", lambda *given: {**train(*given), "loss": math.nan})
    folder = start(tmp_path, plain)
    text = (folder / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert [row["train_loss"] for row in rows_of(folder)] == [None, None]
    assert resume(folder, 1) == 0
    assert (folder / "metrics.jsonl").read_text().count("null") == text.count("null")
