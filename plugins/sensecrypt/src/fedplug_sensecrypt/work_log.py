"""What every party did in a round, for the simulated clock: from replies and the wire into the rows of the metrics."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedplug.api.events import Events, RowMade, RowsRestored, SetUpDone
from fedplug.wire.record import KEY_SERVER, SERVER

from fedplug_sensecrypt.profiles import by_party, profiles_of
from fedplug_sensecrypt.simulated_clock import MEASURED, OTHER, Party, round_seconds, samples_of, unit_costs, work_of

if TYPE_CHECKING:
    from fedplug.api.context import Server
    from fedplug.recipe.recipe import Recipe
    from fedplug.wire.key_server_line import KeyServerLine
    from fedplug.wire.record import Wire

_Table = dict[str, dict[str, float]]  # operation -> {"count", "seconds"}, as rows hold it
_Done = Mapping[str, Sequence[float]]  # operation -> count, seconds


class WorkLog:
    """Counts operations and bytes by party, where the recipe has profiles.

    Args:
        recipe: for its profiles.
        wire: counts the bytes.
        server: whose own operations are counted.
        key_server: the line over which the key server reports its own.
        events: heard.
    """

    def __init__(self, recipe: Recipe, wire: Wire, server: Server, key_server: KeyServerLine, events: Events) -> None:
        self.profiles = by_party(profiles_of(recipe))
        self.wire, self.server, self.key_server = wire, server, key_server
        self._opened = 0.0  # the key server's seconds that are in rows already
        self._samples: dict[str, array[float]] = {}  # operation -> count, seconds, count, seconds, ...
        events.subscribe(SetUpDone, self._forget)
        events.subscribe(RowsRestored, self._recall)
        events.subscribe(RowMade, self._enter)

    def _forget(self, event: SetUpDone) -> None:
        """Drops what was done during the set-up."""
        self.wire.take_traffic(-1)
        self.server.operations.clear()
        self.key_server.operations.clear()
        self._opened = self.key_server.seconds

    def _recall(self, event: RowsRestored) -> None:
        """Goes on after a restart: what operations cost follows from the rows of the rounds before."""
        self._samples = {name: array("d", itertools.chain(*pairs)) for name, pairs in samples_of(event.rows).items()}

    def _enter(self, event: RowMade) -> None:
        """Writes into a row what was done in a round, and how long the row's work takes on the simulated clock.

        Told once more for the last row, with what the end of the run took.
        """
        row, traffic = event.row, self.wire.take_traffic(event.round)
        done = self._by_party(event.reports, event.seconds)
        clients, servers = row.setdefault("client_operations", {}), row.setdefault("server_operations", {})
        for party, table in done.items():
            for name, pair in table.items():
                self._samples.setdefault(name, array("d")).extend(pair)
            own = clients if isinstance(party, int) else servers
            _add(row.setdefault("operations", {}), table)
            _add(own.setdefault(str(party), {}), table)
        sent = row.setdefault("client_bytes", {})
        for (address, direction), size in traffic.items():
            if address != KEY_SERVER:
                entry = sent.setdefault(address.partition(":")[2], {"up": 0, "down": 0})
                entry[direction] += size
        costs = unit_costs(self._samples)
        row["simulated"] = round_seconds(*work_of(row), self.profiles, costs).to_row()

    def _by_party(self, reports: Iterable[tuple[int, Mapping[str, Any]]], server_seconds: float) -> dict[Party, _Done]:
        """What each party did since the last call, the rest of its seconds included."""
        named: dict[Party, _Table] = {}
        seconds: dict[Party, float] = {}
        for client_id, report in reports:
            mine = named.setdefault(client_id, {})
            _add(mine, report.get("operations", {}))
            # Evaluation is for the report only; no protocol needs it.
            own = report.get("seconds_total", 0.0) - report.get("seconds", {}).get("evaluate", 0.0)
            seconds[client_id] = seconds.get(client_id, 0.0) + own
        opened = self.key_server.seconds - self._opened
        self._opened = self.key_server.seconds
        seconds |= {SERVER: server_seconds, KEY_SERVER: opened}
        for party, operations in ((SERVER, self.server.operations), (KEY_SERVER, self.key_server.operations)):
            _add(named.setdefault(party, {}), operations)
            operations.clear()
        return {party: _with_rest(party, table, seconds[party]) for party, table in named.items()}


def _with_rest(party: Party, named: _Table, seconds: float) -> _Done:
    """A party's operations, and what is left of its seconds; what has no count, or the rest's name, belongs to that."""
    own = {name: entry for name, entry in named.items() if entry["count"] > 0 and name not in (OTHER, MEASURED)}
    table = {name: (entry["count"], entry["seconds"]) for name, entry in own.items()}
    rest = seconds - math.fsum(took for _, took in table.values())
    rest = rest if 0 <= rest < math.inf else 0.0
    if isinstance(party, int):
        table[OTHER] = (1.0, rest)
    elif rest:
        table[MEASURED] = (rest, rest)
    return table


def _add(table: _Table, done: _Done) -> None:
    for name, (count, seconds) in done.items():
        entry = table.setdefault(name, {"count": 0.0, "seconds": 0.0})
        entry["count"] += count
        entry["seconds"] += seconds
