"""What the negotiations share: what those state that encrypt a share of the model by scores, how many scalars a share
is, scores of each, a mask as a plan.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Plan, Plans, Reads
from fedplug.api.blocks import ENCRYPTED
from fedplug_std.scores import require_ranked, unknown_scorer

if TYPE_CHECKING:
    from fedplug import Client, Context, Layout, Recipe
    from numpy.typing import NDArray


class ScoredShare(fedplug.Negotiation):
    """A negotiation whose options say which share is encrypted (`ratio`), by which scores (`by`), and where the rest
    goes (`other_zone`).
    """

    @property
    def plans(self) -> Plans:
        """A share encrypted and the rest; the mask is the same at every client, and follows from their data."""
        return Plans(zones=zones_of(self.options.ratio, self.options.other_zone))

    @property
    def reads(self) -> Reads:
        """Scores of scalars or of layers."""
        return Reads(by=self.options.by)


def count_of(ratio: float, size: int) -> int:
    """How many of `size` scalars a share is: floor(ratio * size)."""
    # The tiny addend keeps products such as 0.29 * 100 from falling below the integer that they mean.
    return math.floor(ratio * size + 1e-9)


def zones_of(ratio: float, other_zone: str) -> frozenset[str]:
    """The zones of a plan that encrypts a share of the model and leaves the rest to another zone."""
    return frozenset(({ENCRYPTED} if ratio > 0 else set()) | ({other_zone} if ratio < 1 else set()))


def scorer_problems(recipe: Recipe, by: str | None, remedy: str) -> list[str]:
    """Why the recipe's scorers do not serve a negotiation; empty if they do.

    Args:
        recipe: the recipe.
        by: the scorer that is asked for by name; None takes the first.
        remedy: what to add where there is none.
    """
    if problem := unknown_scorer(recipe, by):
        return [problem]
    return [] if recipe.score_parameters else [f"the mask follows from scores; add {remedy}"]


def per_scalar(client: Client, by: str | None) -> NDArray[np.float32]:
    """A client's scores of this round, (P,), by the named scorer or the recipe's first."""
    return spread(client.scores_by(by), client.ctx.layout)


def spread(scores: NDArray[np.float32], layout: Layout) -> NDArray[np.float32]:
    """Scores of each scalar, (P,), of scores that are given a scalar, (P,), or a layer, (L,).

    Raises:
        ProtectionError: a score is NaN, which is neither high nor low.
    """
    require_ranked(scores)
    return layout.per_scalar(scores)


def adopt(client: Client, encrypted: NDArray[Any], other_zone: str) -> None:
    """Sets the plan of this round: a mask or indices encrypted, the rest in one zone; the same at every client."""
    ctx: Context = client.ctx
    client.plan = Plan.of(other_zone, ctx.layout.size, ctx.zones, shared=ctx.zones, **{ENCRYPTED: encrypted})
