"""Clients that train as one batched step: each gets what it would alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import pytest
import torch
from fedplug.api.errors import RecipeError
from fedplug_std.together import mixing
from fedplug_std.training import Sgd

RECIPE: dict[str, Any] = {
    "name": "together", "seed": 1, "rounds": 2,
    "data": {"use": "std.digits", "clients": 7, "partition": {"use": "std.dirichlet", "alpha": 0.5}},
    "model": {"use": "std.mlp", "hidden": [8]}, "train": {"use": "std.sgd", "epochs": 2, "batch_size": 16, "lr": 0.1},
    "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []}, "aggregate": "std.mean",
}  # fmt: skip


def trained(folder: Path, together: int, **changed: Any) -> tuple[torch.Tensor, list[float]]:
    """The model in the end, and the mean training loss of each round."""
    train = {**RECIPE["train"], **changed.pop("train", {}), "together": together}
    run = fedplug.run({**RECIPE, **changed, "train": train}, output=folder, quiet=True, muted=("lab.report",))
    return torch.cat([each.detach().flatten() for each in run.model.parameters()]), [
        row.train_loss for row in run.metrics
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"train": {"momentum": 0.9, "weight_decay": 0.01, "schedule": "cosine", "schedule_over": "steps"}},
        {"train": {"use": "std.adamw", "lr": 0.01}},
        {"model": {"use": "std.cnn", "norm": "group"}, "train": {"epochs": 1}, "rounds": 1},
        {"data": {"use": "std.diabetes", "clients": 5, "partition": "std.iid"}, "train": {"lr": 0.01},
         "task": {"use": "std.regression", "centre": 150, "scale": 75}},
    ],
    ids=["sgd", "momentum", "adamw", "cnn", "regression"],
)  # fmt: skip
def test_a_model_is_that_of_clients_that_train_alone(tmp_path: Path, changed: dict[str, Any]) -> None:
    alone, losses = trained(tmp_path, 1, **changed)
    for together in (3, 100):
        found, theirs = trained(tmp_path, together, **changed)
        torch.testing.assert_close(found, alone, rtol=1e-4, atol=2e-6)
        assert theirs == pytest.approx(losses, rel=1e-5)
    assert not torch.equal(alone, torch.zeros_like(alone))


def test_clients_of_a_step_are_trained_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of seven clients with as many steps each, three at a time; who is not asked is not trained."""
    from fedplug_std import together

    groups, train = [], together._trained

    def watched(trainer: Sgd, model: Any, group: Any, facts: Any) -> Any:
        groups.append([each.client_id for each in group])
        return train(trainer, model, group, facts)

    monkeypatch.setattr(together, "_trained", watched)
    trained(tmp_path, 3, data={**RECIPE["data"], "partition": "std.iid"}, train={"batch_size": 300})
    assert groups == 2 * [[0, 1, 2], [3, 4, 5], [6]]
    groups.clear()
    trained(
        tmp_path, 9, rounds=2, data={**RECIPE["data"], "partition": "std.iid"}, train={"batch_size": 300},
        sampling={"scheme": "fixed", "rate": 0.5},
    )  # fmt: skip
    assert [len(group) for group in groups] == [4, 4]


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"class_weights": [1.0] * 10}, "together=4: clients train one by one where class_weights"),
        ({"use": "std.fedprox", "mu": 0.1}, "where a trainer has its own local_objective"),
    ],
)
def test_a_check_says_who_trains_alone(train: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        fedplug.check({**RECIPE, "train": {**RECIPE["train"], **train, "together": 4}})
    with pytest.raises(RecipeError, match="is BatchNorm2d, which does something else"):
        fedplug.check({**RECIPE, "model": "std.cnn", "train": {**RECIPE["train"], "together": 4}})


def test_layers_that_mix_or_draw_are_named() -> None:
    assert mixing(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.0))) == ""
    assert mixing(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))).startswith("1 is Dropout")
