"""The simulated clock: the time that a round would take on the devices that a recipe's `profiles` describe.

A run counts the operations of every party (`Party.operation`), and measures their time on the machine it runs on. This
gives the seconds of one operation (`unit_costs`). Together with counts, bytes and profiles, it gives the seconds of a
round (`round_seconds`). The assumptions are:

* The machine that measures is one CPU, and c CPUs do the same work in 1/c of the time, however it is divided.
* A party computes or transfers, never both at once, and a byte passes the links of both ends one after the other.
* Bandwidth is the same up and down, 1 MB is 10^6 bytes, and a message has no latency.
* All clients work at the same time. The server and the key server work while no client does.
* A round lasts as long as its slowest client, the server and the key server together. The clock does not model which
  party waits for which in the middle of a round, after a negotiation. Set-up and evaluation do not count.

Wall-clock seconds enter only through the costs. All functions are pure, so a benchmark can price the counts of one run
with other costs, for instance those of another cipher. `work_of` reads the counts from a row of the metrics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from fedplug.api.parties import KEY_SERVER, SERVER
from fedplug.api.records import Amount, Count, Record, Text
from fedplug_runs.rows import Row
from numpy.typing import ArrayLike, NDArray

from fedplug_sensecrypt.devices import Profile

Party = int | str
"""A client's id, `server` or `key_server`."""


class Done(Record):
    """Number of operations of one name, and the seconds that they took."""

    count: Amount = 0.0
    seconds: Amount = 0.0


class ClientBytes(Record):
    """From and to one client."""

    up: Count = 0
    down: Count = 0


Table = dict[Text, Done]


class Work(Record):
    """Work of the parties in a round: `row.added["work"]`.

    Attributes:
        operations: total over all parties.
        clients, servers: operations of each party.
        client_bytes: bytes of each client.
        in_vain: by encrypting operation and client, the share that no sum holds.
    """

    operations: Table = dataclasses.field(default_factory=dict)
    clients: dict[int, Table] = dataclasses.field(default_factory=dict)
    servers: dict[Text, Table] = dataclasses.field(default_factory=dict)
    client_bytes: dict[int, ClientBytes] = dataclasses.field(default_factory=dict)
    in_vain: dict[Text, dict[int, Amount]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, row: Row) -> Self:
        """The work in a row; empty in a run without profiles."""
        return cls.from_plain(row.added.get("work", {}))


class SimulatedTime(Record):
    """Seconds that a round would take on the devices that the recipe describes: `row.added["simulated"]`.

    Attributes:
        seconds: total of the slowest client, the server and the key server.
        slowest: the client that the round waits for; None in a round without clients.
        compute, transfer: seconds of that client.
        server, key_server: seconds of each.
        clients: total seconds by client.
        left_out: the part of `seconds` spent on encrypting values that no sum holds; their transfer is not counted.
    """

    seconds: Amount
    slowest: Count | None
    compute: Amount
    transfer: Amount
    server: Amount
    key_server: Amount
    clients: dict[int, Amount]
    left_out: Amount = 0.0

    @classmethod
    def of(cls, row: Row) -> Self | None:
        """The time in a row; None in a run without profiles."""
        return cls.from_plain(row.added["simulated"]) if "simulated" in row.added else None


OTHER = "other"
"""A client's work in a round apart from its named operations. Each round of each client counts as one operation."""
MEASURED = "measured"
"""A server's work apart from its named operations: the operation count equals the seconds, so each costs one second."""


@dataclasses.dataclass(frozen=True)
class PartySeconds:
    """Simulated seconds of one party in a round."""

    compute: float
    transfer: float

    @property
    def total(self) -> float:
        return self.compute + self.transfer


@dataclasses.dataclass(frozen=True)
class RoundSeconds:
    """Simulated seconds of a round, by party."""

    clients: Mapping[int, PartySeconds]
    server: PartySeconds
    key_server: PartySeconds

    @property
    def slowest(self) -> int | None:
        """The client that the round waits for, the first of equals; None in a round without clients."""
        return min(self.clients, key=lambda client_id: (-self.clients[client_id].total, client_id), default=None)

    @property
    def seconds(self) -> float:
        """The duration of the round."""
        slowest = 0.0 if self.slowest is None else self.clients[self.slowest].total
        return slowest + self.server.total + self.key_server.total

    def to_row(self) -> SimulatedTime:
        """The form in which a row of the metrics holds it."""
        slowest = PartySeconds(0.0, 0.0) if self.slowest is None else self.clients[self.slowest]
        return SimulatedTime(
            seconds=self.seconds,
            slowest=self.slowest,
            compute=slowest.compute,
            transfer=slowest.transfer,
            server=self.server.total,
            key_server=self.key_server.total,
            clients={client_id: one.total for client_id, one in sorted(self.clients.items())},
        )


def unit_costs(samples: Mapping[str, ArrayLike]) -> dict[str, float]:
    """Seconds of one operation of each name.

    Each sample is one party's count and seconds in one round, and gives a ratio, seconds over count. The cost is the
    median of the ratios, weighted by count. A mean would carry one-time costs of a party (an import, a table that it
    builds), and the cost of one round on a busy machine, through the whole run. The weights favour rounds with many
    operations: with few operations, the fixed cost of a call dominates.

    Args:
        samples: name -> (n, 2), each row a count and the seconds it took, over all parties and rounds so far. Rows with
            a count of zero are left out.
    """
    costs = {}
    for name, given in samples.items():
        pairs = np.asarray(given, np.float64).reshape(-1, 2)
        pairs = pairs[pairs[:, 0] > 0]
        if len(pairs):
            costs[name] = _weighted_median(pairs[:, 1] / pairs[:, 0], pairs[:, 0])
    return costs


def _weighted_median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The smallest value with at least half of the weight at or below it. If exactly half, midway to the next value."""
    order = np.argsort(values, kind="stable")
    values, below = values[order], np.cumsum(weights[order])
    index = int(np.searchsorted(below, below[-1] / 2))
    upper = index + 1 if below[index] == below[-1] / 2 and index + 1 < len(values) else index
    return float(values[index] + values[upper]) / 2


def round_seconds(
    operations: Mapping[Party, Mapping[str, float]],
    traffic: Mapping[Party, tuple[float, float]],
    profiles: Mapping[Party, Profile],
    costs: Mapping[str, float],
) -> RoundSeconds:
    """Simulated seconds of a round: for each party, sum of count x cost / CPUs, plus bytes up and down / bandwidth.

    Args:
        operations: party -> name -> count in this round.
        traffic: party -> (bytes up, bytes down) in this round.
        profiles: of every party that occurs, and of both servers; see `fedplug_sensecrypt.devices.by_party`.
        costs: name -> seconds of one operation on one CPU. An operation that is measured costs one second by default.

    Raises:
        ValueError: an operation has no cost, or a party no profile.
    """
    priced = {MEASURED: 1.0, **costs}

    def of(party: Party) -> PartySeconds:
        counts, profile = operations.get(party, {}), profiles.get(party)
        if profile is None:
            raise ValueError(f"party {party!r} has no profile; there are profiles of {sorted(map(str, profiles))}")
        if missing := sorted(counts.keys() - priced.keys()):
            raise ValueError(f"operation {missing[0]!r} of party {party!r} has no cost; costs are {sorted(costs)}")
        work = sum(count * priced[name] for name, count in counts.items())
        return PartySeconds(work / profile.cpus, sum(traffic.get(party, ())) / (1e6 * profile.bandwidth))

    clients = sorted(party for party in {*operations, *traffic} if isinstance(party, int))
    return RoundSeconds({client_id: of(client_id) for client_id in clients}, of(SERVER), of(KEY_SERVER))


def without_left_out(
    operations: Mapping[Party, Mapping[str, float]], in_vain: Mapping[str, Mapping[int, float]]
) -> dict[Party, dict[str, float]]:
    """The operations of a round, without the encryptions that no sum holds."""
    found = {party: dict(counts) for party, counts in operations.items()}
    for name, shares in in_vain.items():
        for client_id, share in shares.items():
            if name in found.get(client_id, {}):
                found[client_id][name] *= 1 - share
    return found


def samples_of(rows: Iterable[Row]) -> dict[str, list[tuple[float, float]]]:
    """Counts and seconds of each operation in the rows, as input for `unit_costs`."""
    samples: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        work = Work.of(row)
        for table in (*work.clients.values(), *work.servers.values()):
            for name, done in table.items():
                samples.setdefault(name, []).append((done.count, done.seconds))
    return samples


def work_of(row: Row) -> tuple[dict[Party, dict[str, float]], dict[Party, tuple[float, float]]]:
    """The operations and the traffic of a row, as input for `round_seconds`."""
    work = Work.of(row)
    tables: list[tuple[Party, Table]] = [*work.clients.items(), *work.servers.items()]
    operations = {party: {name: done.count for name, done in table.items()} for party, table in tables}
    traffic: dict[Party, tuple[float, float]] = {c: (sent.up, sent.down) for c, sent in work.client_bytes.items()}
    up, down, between = (sent.total for sent in (row.bytes.up, row.bytes.down, row.bytes.key_server))
    # One end's upload is the other's download. All of it passes the server's link.
    return operations, {**traffic, SERVER: (down, up + between), KEY_SERVER: (between, 0)}
