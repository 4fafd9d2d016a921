"""The global model of a run, read from its last checkpoint.

Where the clients hold the key, they alone can open the last sum. So the parties are built anew in this process, taken
back to the checkpoint, and sent what they had not been sent yet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedplug.api.errors import CheckpointError, PluginError
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.checkpoint import Checkpoints
from fedplug.round.opening import needs_key_server
from fedplug.runs.taken_back import deliver, taken_back
from fedplug.wire.record import Wire


def final_model(recipe: Recipe, run_dir: Path, data_root: str | None, client_id: int | None = None) -> Any:
    """The torch module with the weights of the last checkpoint, on the CPU, in evaluation mode.

    Args:
        recipe: of the run.
        run_dir: the run folder.
        data_root: folder of data sets, or None.
        client_id: whose model; None: that of all, which has to be the same.

    Raises:
        CheckpointError: no checkpoint, a damaged one, a client that there is not, or different models and no client.
        PluginError: the model of the recipe is not a torch module.
    """
    if client_id is not None and not 0 <= client_id < recipe.data.clients:
        raise CheckpointError(f"there is no client {client_id}; the run has 0 to {recipe.data.clients - 1}")
    checkpoint = Checkpoints(run_dir).read()
    if checkpoint is None:
        raise CheckpointError(f"{run_dir} has no checkpoint, and so no model; resume the run: fedplug resume {run_dir}")
    composition = Composition(recipe, Catalog.discover())
    engine = LocalEngine(Job(recipe.to_plain(), data_root, key_server=needs_key_server(composition)))
    try:
        host = engine.clients
        protocol = taken_back(recipe, composition, engine, checkpoint, Wire(keep=False), host.model, host.public)
        answered = deliver(protocol, checkpoint[0])
        clients = {client.client_id: client for client in host.clients.values() if client.client_id in answered}
        wanted = min(clients, default=None) if client_id is None else client_id
        if wanted not in clients:
            raise CheckpointError(f"the clients cannot be taken back to {checkpoint[2]}: {protocol.office.reasons()}")
        chosen = clients[wanted]
        if client_id is None and not all(np.array_equal(chosen.vector, other.vector) for other in clients.values()):
            raise CheckpointError(
                "groups of clients ended with different models; run.client_model(0) gives that of client 0"
            )
        host.model.set_vector(chosen.vector)
        host.model.set_buffers(chosen.remembered.buffers)
        module = host.model.module
    finally:
        engine.close()
    if module is None:
        raise PluginError(f"{recipe.model.use} builds {type(host.model).__name__}, which is not a torch module")
    return module.eval()
