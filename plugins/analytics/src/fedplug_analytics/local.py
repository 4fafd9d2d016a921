"""What trainers share that give a client's sums, or what they make of them, in place of a trained model."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Self

import fedplug

from fedplug_analytics.statistics import statistics_of

if TYPE_CHECKING:
    import numpy as np
    from fedplug import Client, Facts
    from numpy.typing import NDArray


class LocalSums(fedplug.Trainer):
    """Takes the sums of a client's records and sends what `made` makes of them.

    Attributes:
        unsaid: what it may do to answers that no interval includes, as half a sentence; empty for nothing.
    """

    unsaid: str = "makes what it wants of clients' sums, and intervals go by the noise that it states"

    @abstractmethod
    def made(self, sums: NDArray[np.float64], client: Client, facts: Facts) -> NDArray[np.floating]:
        """What the client sends, (size,), of its sums, (size,)."""

    def std(self, facts: Facts) -> float:
        """Standard deviation of the noise that `made` adds to each sum."""
        return 0.0

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Puts it into the model."""
        sums = statistics_of(facts).local_sums(client.data)
        client.model.set_vector(self.made(sums, client, facts).astype("float32"))
        return {}

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self:
        """Itself: it takes the sums of whatever examples the client has."""
        return self.varied()
