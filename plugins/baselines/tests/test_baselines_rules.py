"""What a check says of networks that DP-SGD cannot train, or trains slowly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import RecipeError
from fedplug_runs import functions

NETS = """
from torch import nn

class Recurrent(nn.Module):
    def __init__(self, shape, num_classes, kind: str = "GRU"):
        super().__init__()
        self.cell, self.out = getattr(nn, kind)(shape[2], 6, batch_first=True), nn.Linear(6, num_classes)

    def forward(self, x):
        return self.out(self.cell(x.squeeze(1))[0][:, -1])
"""


def said(model: dict[str, Any], **data: Any) -> list[str]:
    recipe = {
        "name": "t", "seed": 1, "rounds": 1, "delta": 1e-5, "model": model,
        "data": {"use": "std.digits", "clients": 2, "partition": {"use": "std.iid"}} | data,
        "train": {"use": "baselines.dp_sgd", "epsilon": 8, "delta": 1e-5},
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
        "aggregate": {"use": "std.mean"},
    }  # fmt: skip
    try:
        return [*functions.check(recipe, trust=True).notes]
    except RecipeError as error:
        return error.problems


def test_batch_norm_is_refused_by_name_before_any_data_are_loaded() -> None:
    (problem,) = said({"use": "std.cnn"})
    assert "BatchNorm2d (norm1, norm2) mixes the examples of a batch" in problem
    assert "norm: group" in problem
    assert said({"use": "std.cnn", "norm": "group"}) == []


@pytest.mark.parametrize(("kind", "notes"), [("GRU", 1), ("LSTM", 0)])
def test_a_pass_for_each_example_is_said_to_be_slow(tmp_path: Path, kind: str, notes: int) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    found = said({"use": f"{tmp_path}/nets.py:Recurrent", "kind": kind})
    assert len(found) == notes
    assert all("slow: torch vectorises no GRU (cell)" in note for note in found)
