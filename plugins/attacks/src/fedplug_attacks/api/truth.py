"""The truth about a target: held by the scorer alone, and used after an attack has given its report."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from fedplug_attacks.api.observation import ObservedUpdate

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("images", "labels", "members", "tokens", "texts", "attribute", "update")
"""What a metric may compare."""


@dataclasses.dataclass(frozen=True, eq=False)
class Truth:
    """The private data behind one update. No attack receives it; metrics compare what an attack found with it.

    Attributes:
        images: float32 (n, C, H, W) in [0, 1], the examples behind the client's update; for a table its rows (n, d).
        labels: int64 (n,).
        num_classes: K.
        regions: uint8 (n, H, W), which privacy-sensitive field a pixel shows (0 none); None where the data has none.
        region_names: names of the fields 1, 2, ...
        members: bool (m,), which of the candidates the client had; None without a challenge.
        update: float32 (P,), the update before any protection; None where it was not made again.
        observed: the adversary's view of it; None if it saw none.
        scale: float32 (d,), the public spread of each column, where the examples are rows of a table; else None.
        tokens: int64, the distinct tokens of the inputs, where these are tokens; else None.
        texts: int64 (n, T), the inputs, where these are tokens, else None.
        attribute: bool (n,), which examples have the attribute that the recipe requests; None if it requests none.
        public_share: share of the public examples that have it; None without public examples.
        common: share of the candidates that were not the client's that another target's challenge has too, on average.
        missed: number of further images that the attack offered nothing for; set by the scorer.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    num_classes: int
    regions: NDArray[np.uint8] | None = None
    region_names: tuple[str, ...] = ()
    members: NDArray[np.bool_] | None = None
    update: NDArray[np.float32] | None = None
    observed: ObservedUpdate | None = None
    missed: int = 0
    scale: NDArray[np.float32] | None = None
    tokens: NDArray[np.int64] | None = None
    texts: NDArray[np.int64] | None = None
    attribute: NDArray[np.bool_] | None = None
    public_share: float | None = None
    common: float = 0.0

    @property
    def in_spreads(self) -> NDArray[np.float64]:
        """The examples with every column of a table in units of its spread; images as they are."""
        return self.measured(self.images)

    def measured(self, examples: NDArray[np.float32]) -> NDArray[np.float64]:
        """The same for other examples of that shape."""
        values = examples.astype(np.float64)
        return values if self.scale is None else values / self.scale

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many examples of each class there are; (K,)."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """95% interval of a share (Wilson 1927); (0, 1) where nothing was tried."""
    if not trials:
        return 0.0, 1.0
    share, n = successes / trials, trials
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)
