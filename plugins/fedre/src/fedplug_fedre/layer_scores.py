"""Scores of layers for components that set noise or choose layers by them, and which other parties can know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fedplug import Block, Client, Facts, Scorer, Server
from fedplug.api.errors import FedplugError, ProtectionError
from fedplug.api.roles import Groups, Negotiation, Sealer

if TYPE_CHECKING:
    from fedplug.api.blocks import Scores
    from fedplug.api.parties import Party
    from numpy.typing import NDArray


def scores_of_layers(client: Client, by: str | None) -> NDArray[np.floating]:
    """A scorer's scores of each layer, (L,).

    Raises:
        ProtectionError: the scorer scored scalars.
    """
    scores, layout = client.scores_by(by), client.facts.layout
    if scores.shape != (len(layout.layers),):
        scorer = by or next(iter(client.scores))
        raise ProtectionError(
            f"{scorer} gives {len(scores)} scores where one for each of {len(layout.layers)} layers is needed; add "
            "{use: fedre.psi} to score_parameters and write by: fedre.psi"
        )
    return scores


def scorer_of(facts: Facts, by: str | None) -> Scorer | None:
    """The scorer of that name, or without a name the recipe's first. None if there is none."""
    scorers = [part for name, part in facts.components.items() if isinstance(part, Scorer) and by in (None, name)]
    return scorers[0] if scorers else None


def scores_are_public(facts: Facts, by: str | None) -> bool:
    """Whether a scorer states that its scores follow from public facts alone. None asks the recipe's first scorer."""
    scorer = scorer_of(facts, by)
    return scorer is not None and scorer.scoring.public


def whole_and_seen(zone: str, facts: Facts) -> bool:
    """Whether a zone is the whole model, and the server can follow how clients use its sum.

    No component encrypts the zone or changes it at the clients, and there is one model, the same at server and clients.
    """
    parts, links = facts.components.values(), facts.links.get(zone, ())
    plans = [part.plans.zones for part in parts if isinstance(part, Negotiation)]
    closed = any(isinstance(link.component, Sealer) for link in links)
    at_clients = any(link.hook == "postprocess" and link.site == "client" for link in links)
    groups = any(isinstance(part, Groups) for part in parts)
    return plans == [frozenset({zone})] and not (closed or at_clients or groups)


def public_scores(party: Party, facts: Facts, by: str | None) -> Scores | None:
    """The scores of all clients in this round, if a scorer's are public, the same, and can be computed here.

    They are computed once per model, by a party that has a model to try vectors with and knows the one that the round
    started from: the server, or an attacker in its place.
    """
    scorer = scorer_of(facts, by)
    if not isinstance(party, Server) or party.model is None or party.vector is None:
        return None
    if scorer is None or not scorer.scoring.public:
        return None
    key = f"{scorer.name}.public"
    round, vector, scores = party.cache.get(key, (-1, None, None))
    if round != facts.round or vector is not party.vector:
        try:
            found = scorer.public_scores(party.model, party.vector, facts)
        except FedplugError:  # the clients cannot score such a model either
            found = {}
        every = list(found.values()) if len(found) == facts.num_clients else []
        alike = every and all(np.array_equal(one, every[0]) for one in every)
        scores = every[0] if alike and np.isfinite(every[0]).all() and every[0].any() else None
        party.cache[key] = facts.round, party.vector, scores
    return scores  # type: ignore[no-any-return]


def layer_of_scalars(block: Block, client: Client, facts: Facts) -> NDArray[np.int64]:
    """The number of the layer that each scalar of a block belongs to, (size,)."""
    where = block.positions
    if where is None:
        assert client.plan is not None, "a block is cut by a plan"
        where = client.plan.positions(block.zone)
    return layer_numbers(facts)[where]


def layer_numbers(facts: Facts) -> NDArray[np.int64]:
    """The number of the layer of every scalar of the model, (P,)."""
    numbers: NDArray[np.int64] = facts.layout.per_scalar(np.arange(len(facts.layout.layers)))
    return numbers
