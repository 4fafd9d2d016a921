"""Parts that the negotiations share: the statements of those that encrypt a share of the model by scores, scores per
scalar, and a mask as a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Plan, Plans, Reads
from fedplug.api.blocks import ENCRYPTED
from fedplug_std.scores import require_ranked

if TYPE_CHECKING:
    from fedplug import Client, Layout
    from numpy.typing import NDArray


class ScoredShare(fedplug.Negotiation):
    """A negotiation whose options say which share is encrypted (`ratio`), by which scores (`by`), and where the other
    scalars go (`other_zone`).
    """

    @property
    def plans(self) -> Plans:
        """A share is encrypted, the rest is not. The mask is the same at every client, and follows from their data."""
        return Plans(zones=zones_of(self.options.ratio, self.options.other_zone))

    @property
    def reads(self) -> Reads:
        """Scores of scalars or of layers."""
        return Reads(by=self.options.by)


def zones_of(ratio: float, other_zone: str) -> frozenset[str]:
    """The zones of a plan that encrypts a share of the model and leaves the rest to another zone."""
    return frozenset(({ENCRYPTED} if ratio > 0 else set()) | ({other_zone} if ratio < 1 else set()))


def per_scalar(client: Client, by: str | None) -> NDArray[np.float32]:
    """A client's scores of this round, (P,), by the named scorer or the recipe's first."""
    return spread(client.scores_by(by), client.facts.layout)


def spread(scores: NDArray[np.float32], layout: Layout) -> NDArray[np.float32]:
    """Scores of each scalar, (P,), from scores given per scalar, (P,), or per layer, (L,).

    Raises:
        ProtectionError: a score is NaN, which is neither high nor low.
    """
    require_ranked(scores)
    return layout.per_scalar(scores)


def adopt(client: Client, encrypted: NDArray[Any], other_zone: str) -> None:
    """Sets the plan of this round: a mask or indices to encrypt, the rest in one zone; the same at every client."""
    client.plan = Plan.of(client.facts, other_zone, **{ENCRYPTED: encrypted})
