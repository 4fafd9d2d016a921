"""A probe: what clients would have sent for one batch, asked of parties that were taken back to a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedplug.api.errors import ViewError
from fedplug.api.streams import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.context import Client
    from fedplug.api.roles import Trainer


@dataclasses.dataclass(frozen=True)
class OneBatch:
    """Lets clients train one step on one batch instead of their data (a probe).

    Attributes:
        batch_size: examples in it; a client with fewer takes all it has.
        number: which batch, from 0; each client draws its own.
        classes: how many classes it is drawn from; None: all.
    """

    batch_size: int
    number: int = 0
    classes: int | None = None

    def indices(self, client: Client) -> NDArray[np.int64]:
        """Which of the client's training examples are in the batch, ascending."""
        labels = client.data.train.labels
        rng = stream(client.ctx.seed, "probe", client.client_id, client.ctx.round, self.number)
        pool = np.arange(len(labels))
        if self.classes is not None:
            there = np.unique(labels)
            pool = pool[np.isin(labels, rng.permutation(there)[: self.classes])]
        return np.sort(rng.permutation(pool)[: self.batch_size])

    @contextlib.contextmanager
    def on_one_batch(self, client: Client, trainer: Trainer) -> Iterator[Trainer]:
        """Inside, the client has the batch for its data; gives a trainer that makes one step of it."""
        data = client.data
        solver = trainer.one_batch(client, client.ctx, self.batch_size)
        if solver is None:
            raise ViewError(f"{trainer.name} cannot make one step on a batch: it has no one_batch; nobody can probe it")
        solver.name = f"{trainer.name}/batch-{self.number}-of-round-{client.ctx.round + 1}"  # its own stream and cache
        client.data = dataclasses.replace(data, train=data.train.take(self.indices(client)))
        try:
            yield solver
        finally:
            client.data = data
            client.cache.pop(solver.name, None)
