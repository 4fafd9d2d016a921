"""The parties of a finished run, taken back to a checkpoint: their actions do not change the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug.api.errors import CheckpointError
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.composition import Composition
from fedplug_runs.checkpoint import Checkpoints, StateFiles
from fedplug_runs.result import deliver, taken_back
from fedplug_runs.wire_record import Wire


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_parties_are_as_the_checkpoint_has_them_until_the_last_sum_is_delivered(done: fedplug.Run) -> None:
    recipe, before = done.recipe, files_of(done.folder)
    composition = Composition(recipe)
    engine = LocalEngine(Job(recipe.to_plain(), None, store=StateFiles()))
    try:
        found = Checkpoints(done.folder).read()
        assert found is not None
        host, wire = engine.clients, Wire(keep=True)
        protocol = taken_back(recipe, composition, engine, found, wire, host.model, host.public)
        assert found[0] == recipe.rounds
        at_rest = [client.vector.copy() for client in host.clients.values()]
        assert all(np.array_equal(at_rest[0], other) for other in at_rest)
        assert wire.messages == []
        assert deliver(protocol, found[0]) == [0, 1, 2, 3]
        moved = [client.vector for client in host.clients.values()]
        assert all(np.array_equal(moved[0], other) for other in moved)
        assert not np.array_equal(moved[0], at_rest[0]), "the last sum was still to be adopted"
        assert {message.phase for message in wire.messages} == {"finish"}
        with pytest.raises(CheckpointError, match="server's state"):
            taken_back(recipe, composition, engine, (found[0], {}, found[2]), wire, host.model, host.public)
    finally:
        engine.close()
    assert files_of(done.folder) == before


def test_the_model_is_the_one_that_the_last_accuracy_was_measured_on(done: fedplug.Run) -> None:
    from fedplug.recipe.composition import Composition
    from fedplug.round.world import load_data
    from fedplug_std.torch_model import to_tensor

    data, _ = load_data(done.recipe, Composition(done.recipe).components, None)
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
