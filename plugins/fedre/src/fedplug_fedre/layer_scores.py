"""Scores of layers for components that set noise or choose layers by them, and which other parties can know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fedplug import Block, Client, Facts, Scorer
from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
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
