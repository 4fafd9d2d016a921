"""Evaluation of the global model, once for all clients of a process that hold the same.

Every client counts on a share of the public test set, and on test examples like its training data, which lie in the
shares of others. Sums depend, in the last bit, on which examples are computed together. So a share is evaluated as its
client alone would do it, whoever asks first; and of a client's own examples only the number of right answers is taken
from the shares, where no rounding can change it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedplug.api.model import Evaluation, Model
from fedplug.api.types import Dataset
from fedplug.round.client_data import own_test_of, slice_of_test

if TYPE_CHECKING:
    from fedplug.round.parties import HostedClient


@dataclasses.dataclass(frozen=True, eq=False)
class _Known:
    """What is known of one global model.

    Attributes:
        vector: its parameters.
        members: the clients among whom the test set is shared out.
        shares: for the clients of this process, what their share gives, and the seconds that it took.
        sure: int8 (n,), for each test example 1 where it is surely predicted rightly, 0 where wrongly, else -1.
    """

    vector: NDArray[np.float32]
    members: list[int]
    shares: dict[int, tuple[Evaluation, float]]
    sure: NDArray[np.int8]


class Evaluations:
    """Evaluates for the clients of one process.

    Args:
        model: the process' one model.
        dataset, assignment, seed: of the recipe.
        client_ids: the clients of this process.
    """

    def __init__(
        self,
        model: Model,
        dataset: Dataset,
        assignment: Sequence[NDArray[np.int64]],
        client_ids: Iterable[int],
        seed: int,
    ) -> None:
        self._here = frozenset(client_ids)
        # Batch-norm statistics may be each client's own: equal vectors are then not equal models.
        self._shared = not model.get_buffers() and dataset.test.targets is None
        self._last: _Known | None = None
        labels, clients = dataset.train.labels, len(assignment)
        self._own = {
            client_id: own_test_of(dataset, labels[assignment[client_id]], client_id, clients, seed)
            for client_id in (self._here if self._shared else ())
        }

    def of(self, client: HostedClient, members: list[int]) -> tuple[Evaluation, Evaluation]:
        """A client's global model on its share of the test set, and on its own test examples; it reports the seconds.

        Args:
            client: of this process.
            members: the clients among whom the test set is shared out.
        """
        started = time.perf_counter()
        data, known = client.data, self._last
        new = known is None or known.vector is not client.vector or known.members != members
        if known is None or new or not self._shared:
            known = self._last = self._evaluate(client, members)
        public, alone = known.shares[client.client_id]
        own = known.sure[self._own[client.client_id]] if self._shared else None
        if own is not None and (own >= 0).all():
            mine = Evaluation(int(own.sum()), len(own), 0.0)
            alone += alone * len(own) / max(1, public.count)  # each example takes as long as another
        else:
            began = time.perf_counter()
            mine = client.loaded(client.vector).evaluate(data.own_test, data)
            alone += time.perf_counter() - began
        client.took("evaluate", alone, time.perf_counter() - started)
        return public, mine

    def _evaluate(self, client: HostedClient, members: list[int]) -> _Known:
        data, count, model = client.data, len(client.data.shared_test), client.loaded(client.vector)
        known = _Known(client.vector, list(members), {}, np.full(count, -1, np.int8))
        for position, member in enumerate(members):
            if member != client.client_id and not (self._shared and member in self._here):
                continue
            share, started = slice_of_test(position, len(members), count), time.perf_counter()
            found = model.evaluate(data.shared_test.take(share), data)
            known.shares[member] = found, time.perf_counter() - started
            if found.sure is not None:
                known.sure[share] = found.sure
        return known
