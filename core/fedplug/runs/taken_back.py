"""The parties of a finished run in this process, taken back to a checkpoint, and the model that they then have.

Nobody listens: nothing is charged or counted, and nothing that they do goes back into the run. Where the clients hold
the key, they alone can open the last sum, so they are sent what they had not been sent yet.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.errors import CheckpointError, PluginError
from fedplug.api.events import Events
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.checkpoint import Checkpoints
from fedplug.round.opening import needs_key_server
from fedplug.round.protocol import Protocol
from fedplug.round.state_files import file_name, holding
from fedplug.wire.record import SERVER, Wire

if TYPE_CHECKING:
    from fedplug.api.data import PublicData
    from fedplug.api.model import Model
    from fedplug.runs.archive import Checkpoint


def taken_back(
    recipe: Recipe,
    composition: Composition,
    engine: LocalEngine,
    checkpoint: Checkpoint,
    wire: Wire,
    model: Model,
    public: PublicData | None,
) -> Protocol:
    """A protocol whose server and parties are as a checkpoint has them, as `Checkpoints.read` gives it.

    `wire` records what crosses it from here on; `model` and `public` are the server's own.

    Raises:
        CheckpointError: the checkpoint is damaged.
    """
    _, state, folder = checkpoint
    engine.load(folder)
    protocol = Protocol(recipe, composition, engine, model.layout, wire, Events(), model, public)
    with holding(folder / file_name(SERVER), "server's state"):
        protocol.restore(state)
    return protocol


def deliver(protocol: Protocol, round: int) -> list[int]:
    """Sends the clients what they had not been sent when a round (0-based) began; gives those that answered.

    The last sum travels with the message after it, so a checkpoint holds it beside the clients and not yet in them.
    """
    protocol.begin(round, "finish")
    return list(protocol.cohort(protocol.client_ids).ask(protocol.steps.ready))


def final_model(recipe: Recipe, run_dir: Path, data_root: str | None, client_id: int | None = None) -> Any:
    """The torch module with the weights of the last checkpoint, on the CPU, in evaluation mode.

    That of one client, or of all, which then has to be the same.

    Raises:
        CheckpointError: no checkpoint, a damaged one, a client that there is not, or different models and no client.
        PluginError: the model of the recipe is not a torch module.
    """
    if client_id is not None and not 0 <= client_id < recipe.data.clients:
        raise CheckpointError(f"there is no client {client_id}; the run has 0 to {recipe.data.clients - 1}")
    checkpoint = Checkpoints(run_dir).read()
    if checkpoint is None:
        raise CheckpointError(f"{run_dir} has no checkpoint, and so no model; resume the run: fedplug resume {run_dir}")
    composition = Composition(recipe)
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
