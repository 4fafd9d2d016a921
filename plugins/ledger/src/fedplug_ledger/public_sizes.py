"""Sizes of noise that follow from public scores: the ledger then has the exact price, not the bound of any client."""

from __future__ import annotations

import dataclasses
from typing import cast

import numpy as np
from fedplug.api.blocks import RETAINED, Scores
from fedplug.api.errors import FedplugError, of_component
from fedplug.api.facts import Facts
from fedplug.api.known import Known
from fedplug.api.operations import Noise, OfScores
from fedplug.api.parties import Server
from fedplug.api.roles import Closer, Groups, Scorer


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
