"""The parties of a finished run in this process, taken back to a checkpoint.

Nobody listens: nothing is charged or counted, and nothing that they do goes back into the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.events import Events
from fedplug.round.protocol import Protocol
from fedplug.round.state_files import file_name, holding
from fedplug.wire.record import SERVER, Wire

if TYPE_CHECKING:
    from fedplug.api.data import PublicData
    from fedplug.api.model import Model
    from fedplug.engines.local import LocalEngine
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe


def taken_back(
    recipe: Recipe,
    composition: Composition,
    engine: LocalEngine,
    checkpoint: tuple[int, dict[str, Any], Path],
    wire: Wire,
    model: Model,
    public: PublicData | None,
) -> Protocol:
    """A protocol whose server and parties are as a checkpoint has them.

    Args:
        recipe, composition: of the run.
        engine: whose parties are loaded.
        checkpoint: as `Checkpoints.read` gives it.
        wire: records what crosses it from here on.
        model, public: the server's own.

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
