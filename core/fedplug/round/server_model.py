"""The aggregation server's own copy of the global model, kept up to date from the sums that it can read.

Only where a component asks for it: an aggregator that tries clients' updates (`Wants.model`), or noise whose size
follows from public scores, which the server then works out as the clients do (`Reads.at_server`, `Scoring.public`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedplug.api.blocks import RETAINED, Block, Scores
from fedplug.api.data import Model
from fedplug.api.errors import FedplugError, of_component
from fedplug.api.facts import Facts
from fedplug.api.known import Known
from fedplug.api.operations import Noise, OfScores
from fedplug.api.parties import Server
from fedplug.api.roles import Closer, Groups, Protector, Scorer
from fedplug.recipe.composition import Composition


def wants_model(composition: Composition) -> bool:
    """Whether a component of the recipe needs a model at the server: to weigh updates, or to work out public scores."""
    return composition.aggregator.wants.model or scores_at_server(composition)


def scores_at_server(composition: Composition) -> bool:
    """Whether the server works out public scores, because what the ledger states of a protector follows from them."""
    parts = composition.components.values()
    scored = any(isinstance(part, Scorer) and part.scoring.public for part in parts)
    return scored and any(isinstance(part, Protector) and part.reads and part.reads.at_server for part in parts)


def sized_in_public(noise: Noise, known: Known, server: Server, facts: Facts) -> Noise | None:
    """Noise with the size that each client works out, where this follows from public scores that all clients share.

    None where it does not, or where nobody can tell here: the server has no model, or the clients may have another,
    since it cannot follow how they use a sum.

    Args:
        noise: whose size is a function of scores.
        known: what is known before it.
        server: with a model, and the vector that the round started from; or an observer in its place.
        facts: of the round.
    """
    scores = _public_scores(noise.scorer, server, facts) if noise.reads == "scores" else None
    plan = facts.plan
    if noise.size is None or scores is None or plan is None or not _follows(facts) or len(server.groups) > 1:
        return None
    sent = [known.zone, RETAINED] if known.covers_support else [known.zone]
    numbers = facts.layout.per_scalar(np.arange(len(facts.layout.layers)))
    present = np.unique(numbers[np.concatenate([plan.positions(zone) for zone in sent])])
    if not len(present):
        return None
    with of_component(known.link, "the size of its noise"):
        given = np.asarray(cast("OfScores", noise.size)(scores, present), np.float64)
    return dataclasses.replace(noise, std=float(given) if not given.ndim else tuple(given.tolist()), size=None)


def _follows(facts: Facts) -> bool:
    """Whether the server has the model that the clients have: it reads every sum, as they use it."""
    links = [link for chain in facts.links.values() for link in chain]
    grouped = any(isinstance(part, Groups) for part in facts.components.values())
    return not grouped and not any(
        isinstance(link.component, Closer) or (link.hook == "postprocess" and link.site == "client") for link in links
    )


def _public_scores(scorer: str | None, server: Server, facts: Facts) -> Scores | None:
    """The scores of all clients in this round, if they are public, alike, and can be worked out here; once a model."""
    named = (part for name, part in facts.components.items() if isinstance(part, Scorer) and scorer in (None, name))
    part = next(named, None)
    if part is None or not part.scoring.public or server.model is None or server.vector is None:
        return None
    key = f"{part.name} public"
    round, vector, scores = server.cache.get(key, (-1, None, None))
    if round != facts.round or vector is not server.vector:
        try:
            found = part.public_scores(server.model, server.vector, facts)
        except FedplugError:  # the clients cannot score such a model either
            found = {}
        every = [*found.values()] if len(found) == facts.num_clients else []
        alike = bool(every) and all(np.array_equal(one, every[0]) for one in every)
        scores = every[0] if alike and np.isfinite(every[0]).all() and every[0].any() else None
        server.cache[key] = facts.round, server.vector, scores
    return scores  # type: ignore[no-any-return]


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
