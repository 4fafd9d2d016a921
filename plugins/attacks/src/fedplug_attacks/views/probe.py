"""A probe: parties are restored from a checkpoint and asked for their uploads for one batch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.component import at_client
from fedplug.api.errors import ViewError
from fedplug.api.streams import stream
from fedplug.round.steps import Steps
from fedplug.round.sums import Arrivals
from fedplug.wire.post_office import ServerClock
from fedplug_runs.result import deliver

if TYPE_CHECKING:
    from pathlib import Path

    from fedplug.api.parties import Client
    from fedplug.api.roles import Trainer
    from fedplug.round.hosted import HostedClient
    from fedplug.round.parties import ClientHost
    from fedplug.round.protocol import Protocol
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class OneBatch:
    """Lets clients train one step on one batch instead of their data (a probe).

    Attributes:
        batch_size: examples in it; a client with fewer takes all it has.
        number: which batch, from 0; each client draws its own.
        classes: how many classes it is drawn from; None: all.
        drawn: the round (0-based) of its draw, if several rounds use the same batch; None: each round draws its own.
        planted: float32 (P,) by client, the model that a malicious server sends instead of the global one; None: an
            honest server.
        honest: folder in which each client saved its earlier model; None if nothing is planted.
    """

    batch_size: int
    number: int = 0
    classes: int | None = None
    drawn: int | None = None
    planted: Mapping[int, NDArray[np.float32]] | None = dataclasses.field(default=None, compare=False, repr=False)
    honest: Path | None = dataclasses.field(default=None, compare=False, repr=False)

    def indices(self, client: Client) -> NDArray[np.int64]:
        """Which of the client's training examples are in the batch, ascending."""
        labels = client.data.train.labels
        drawn = client.facts.round if self.drawn is None else self.drawn
        rng = stream(client.facts.seed, "probe", client.client_id, drawn, self.number)
        pool = np.arange(len(labels))
        if self.classes is not None:
            there = np.unique(labels)
            pool = pool[np.isin(labels, rng.permutation(there)[: self.classes])]
        return np.sort(rng.permutation(pool)[: self.batch_size])

    @contextlib.contextmanager
    def on_one_batch(self, client: Client, trainer: Trainer) -> Iterator[Trainer]:
        """Inside, the client's data is the batch; gives a trainer that makes one step on it."""
        data = client.data
        solver = trainer.one_batch(client, client.facts, self.batch_size)
        if solver is None:
            raise ViewError(f"{trainer.name} cannot make one step on a batch: it has no one_batch, so it cannot be "
                            "probed")
        name = f"{trainer.name}/batch-{self.number}-of-round-{client.facts.round + 1}"  # its own stream and cache
        solver = solver.varied(name=name)
        client.data = dataclasses.replace(data, train=data.train.take(self.indices(client)))
        try:
            yield solver
        finally:
            client.data = data
            client.cache.pop(solver.name, None)


class ProbedSteps(Steps):
    """The protocol's own steps at clients that train on one batch, once, in the requested round.

    They replace a host's steps from outside a run, on parties restored from a checkpoint. No message can trigger them.

    Args:
        host: the host of the clients.
        batch: the batch for each of them.

    Attributes:
        updates: float32 (P,), the update of each probed client before any protection.
    """

    def __init__(self, host: ClientHost, batch: OneBatch) -> None:
        super().__init__(host.recipe, host.composition)
        self.batch = batch
        self.updates: dict[int, NDArray[np.float32]] = {}

    @at_client
    def train(self, client: HostedClient) -> None:
        """One step on the batch; the ledger's facts about the recipe's own training do not apply to it."""
        client.remembered.trained = client.facts.round
        client.previous_plan, client.plan = client.plan, client.facts.plan
        client.scores, client.update = {}, None
        if self.batch.planted is not None:  # it arrives like any model; the client restores its private parts
            client.vector, client.personal = self.batch.planted[client.client_id].copy(), None
        with self.batch.on_one_batch(client, self.composition.trainer) as solver:
            client.update = client.trained = self.updates[client.client_id] = self._learn(client, solver)
        self._score(client)


@contextlib.contextmanager
def probing(host: ClientHost, batch: OneBatch) -> Iterator[ProbedSteps]:
    """Inside, the clients of a host train on one batch."""
    steps = ProbedSteps(host, batch)
    held, host.components[steps.name] = host.components[steps.name], steps
    try:
        yield steps
    finally:
        host.components[steps.name] = held


def uploads_of(protocol: Protocol, round: int) -> dict[int, Any]:
    """A round up to its uploads, which nobody sums: the uploads that the server would receive, by client."""
    protocol.begin(round, "negotiate")
    facts, cohort = protocol.facts(round), protocol.cohort(protocol.client_ids)
    cohort.tell_now(protocol.steps.train)
    protocol.server.balloting = frozenset(protocol.client_ids)  # as in a round that the ledger charges
    protocol.negotiate(cohort, facts)
    protocol.office.phase = "upload"
    return cohort.ask(protocol.steps.protect)


def tell_sums_of(protocol: Protocol, round: int, uploads: Mapping[int, Any]) -> None:
    """Sums and opens uploads like a round, and sends the results to clients. The parties are not used afterwards.

    Raises:
        FedplugError: a sum cannot be made, or a party refuses to open it.
    """
    cohort = protocol.cohort(protocol.client_ids)
    clock = ServerClock(protocol.office, protocol.key_server)
    asked = {group: cohort.group(group).client_ids for group in cohort.groups}
    arrivals = Arrivals(
        protocol.composition, protocol.office, protocol.rules, protocol.server_model, protocol.server,
        lambda group: protocol.facts(round, group), clock, asked,
    )  # fmt: skip
    for client_id, reply in uploads.items():
        arrivals.take(client_id, reply)
        arrivals.done(client_id)
    sums = {group: arrivals.close(group) for group in asked}
    protocol.delivery.of(cohort, sorted(uploads), arrivals, sums, clock)
    deliver(protocol, round + 1)
