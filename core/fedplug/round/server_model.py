"""The aggregation server's own copy of the global model, kept up to date from the sums that it can read.

Only where a component asks for it: an aggregator that tries clients' updates (`Wants.model`), or noise whose size
follows from public scores, which the server then works out as the clients do (`Reads.at_server`, `Scoring.public`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api.blocks import Block
from fedplug.api.data import Model
from fedplug.api.parties import Server
from fedplug.api.roles import Protector, Scorer
from fedplug.recipe.composition import Composition


def wants_model(composition: Composition) -> bool:
    """Whether a component of the recipe needs a model at the server: to weigh updates, or to work out public scores."""
    return composition.aggregator.wants.model or scores_at_server(composition)


def scores_at_server(composition: Composition) -> bool:
    """Whether the server works out public scores, because what the ledger states of a protector follows from them."""
    parts = composition.components.values()
    scored = any(isinstance(part, Scorer) and part.scoring.public for part in parts)
    return scored and any(isinstance(part, Protector) and part.reads and part.reads.at_server for part in parts)


class ServerModel:
    """Keeps `server.vector`: the public initial weights, moved by what the server sees of every opened sum.

    Values that stay sealed, and values whose positions the server is not told, do not move it; there it stays behind
    what the clients have. Every group of clients has a separate vector.

    Args:
        server: remembers the vectors.
        model: with its initial weights; None where nobody at the server needs one.
    """

    def __init__(self, server: Server, model: Model | None) -> None:
        self.server, server.model = server, model
        self._initial: NDArray[np.float32] | None = model.get_vector() if model is not None else None

    def show(self, group: str) -> None:
        """Makes `server.vector` that of a group."""
        if self._initial is not None:
            self.server.vector = self._vectors().get(group, self._initial)

    def hide(self) -> None:
        """Until the next round shows one, there is none: what is there is what that round does not start from."""
        self.server.vector = None

    def move(self, group: str, opened: Mapping[str, Block]) -> None:
        """Moves a group's vector by the means that are plain at the server."""
        if self._initial is None:
            return
        vector = self._vectors().get(group, self._initial).copy()
        for block in opened.values():
            if block.values is None or (block.positions is None and block.size != vector.size):
                continue
            where: Any = slice(None) if block.positions is None else block.positions
            vector[where] += block.mean()
        self._vectors()[group] = vector

    def _vectors(self) -> dict[str, NDArray[np.float32]]:
        return self.server.remembered.vectors
