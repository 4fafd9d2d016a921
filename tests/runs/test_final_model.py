"""The global model of a run, read from its last checkpoint."""

from __future__ import annotations

from typing import Any

import fedplug
import pytest
import torch
from fedplug.api.errors import CheckpointError


def test_the_model_is_the_one_that_the_last_accuracy_was_measured_on(done: fedplug.Run) -> None:
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.composition import Composition
    from fedplug.round.client_data import load_data
    from fedplug_std.torch_model import to_tensor

    data, _ = load_data(done.recipe, Composition(done.recipe, Catalog.discover()).components, None)
    model = done.model
    assert isinstance(model, torch.nn.Module)
    assert done.model is model  # built once
    with torch.no_grad():
        found = model(to_tensor(data.test.inputs, data.mean, data.std)).argmax(1).numpy()
    assert (found == data.test.labels).mean() == pytest.approx(done.metrics[-1].accuracy)
    one = done.client_model(3).state_dict()
    assert all(torch.equal(value, one[name]) for name, value in model.state_dict().items())
    with pytest.raises(CheckpointError, match="there is no client 4; the run has 0 to 3"):
        done.client_model(4)


def test_groups_have_a_model_each(done: fedplug.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedplug.round.hosted import HostedClient

    load = HostedClient.load

    def load_other(self: HostedClient, *arguments: Any) -> None:
        load(self, *arguments)
        self.vector = self.vector + self.client_id

    monkeypatch.setattr(HostedClient, "load", load_other)
    again = fedplug.open_run(done.folder)
    with pytest.raises(CheckpointError, match=r"run\.client_model\(0\)"):
        _ = again.model
    assert isinstance(again.client_model(2), torch.nn.Module)
