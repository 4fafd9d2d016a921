"""What a check says of a trainer and the recipe's network, before any data are loaded."""

from __future__ import annotations

from typing import Any

from fedplug.api.errors import RecipeError
from fedplug_runs import functions
from fedplug_std.torch_model import TorchModel
from test_std_training import client_with, data_of, sgd, train
from torch import nn

PLAIN: dict[str, Any] = {
    "name": "t", "seed": 1, "rounds": 1, "data": {"use": "std.digits", "clients": 2, "partition": {"use": "std.iid"}},
    "train": {"use": "std.sgd"}, "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
    "protect": {"clear": []}, "aggregate": {"use": "std.mean"},
}  # fmt: skip


def said(norm: str, micro_batch: int | None) -> list[str]:
    model = {"use": "std.cnn", "norm": norm}
    recipe = PLAIN | {"model": model, "train": {"use": "std.sgd", "micro_batch": micro_batch}}
    try:
        return [*functions.check(recipe).notes]
    except RecipeError as error:
        return error.problems


def test_batch_norm_cannot_see_one_example_at_a_time() -> None:
    (problem,) = said("batch", 1)
    assert "micro_batch=1 gives batch norm (norm1, norm2) one example at a time" in problem
    assert "norm: group" in problem


def test_parts_of_a_batch_with_batch_norm_are_said_to_differ() -> None:
    (note,) = said("batch", 31)
    assert "batch norm (norm1, norm2) takes the statistics of each part, so the gradient differs" in note
    assert said("batch", None) == said("group", 1) == said("group", 31) == []


def test_a_last_part_of_one_example_joins_the_part_before() -> None:
    """Batch norm over one row has no variance, and torch refuses it: 31 of 32 left one."""
    seen: list[int] = []
    model = TorchModel(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10)))
    model.module[1].register_forward_pre_hook(lambda part, given: seen.append(len(given[0])))
    train(sgd(batch_size=32, micro_batch=31), client_with(model, data_of(32)))
    train(sgd(batch_size=16, micro_batch=5), client_with(model, data_of(32)))
    assert seen == [32, 5, 5, 6, 5, 5, 6]
