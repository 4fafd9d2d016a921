"""Every party's work in a round, for the simulated clock: from replies and the wire into the rows of the metrics."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fedplug.api.events import Events, SetUpDone, Uploaded
from fedplug.api.parties import KEY_SERVER, SERVER
from fedplug_runs.events import RowMade, RowsRestored

from fedplug_sensecrypt.devices import by_party, profiles_of
from fedplug_sensecrypt.left_out import encrypted_in_vain
from fedplug_sensecrypt.simulated_clock import (
    MEASURED,
    OTHER,
    ClientBytes,
    Done,
    Party,
    Table,
    Work,
    round_seconds,
    samples_of,
    unit_costs,
    without_left_out,
    work_of,
)

if TYPE_CHECKING:
    from fedplug import KeyServerLine, Recipe
    from fedplug.api.events import Watcher
    from fedplug.api.parties import Server
    from fedplug.api.reports import Reports

_Counted = Mapping[str, Sequence[float]]  # operation -> count, seconds


class WorkLog:
    """Counts operations and bytes by party, where the recipe has profiles.

    Args:
        recipe: has the profiles.
        wire: counts the bytes.
        server: its own operations are counted.
        key_server: the line over which the key server reports its own.
        events: are observed.
    """

    def __init__(
        self, recipe: Recipe, wire: Watcher, server: Server, key_server: KeyServerLine, events: Events
    ) -> None:
        self.profiles = by_party(profiles_of(recipe))
        self.server, self.key_server = server, key_server
        self.traffic: dict[int, dict[int, ClientBytes]] = {}  # round -> client -> bytes that are not in a row yet
        wire.listeners.append(self._passed)
        self._opened = 0.0  # the key server's seconds that are already in rows
        self._samples: dict[str, array[float]] = {}  # operation -> count, seconds, count, seconds, ...
        self._in_vain: dict[str, dict[int, float]] = {}  # of this round
        events.subscribe(SetUpDone, self._forget)
        events.subscribe(RowsRestored, self._recall)
        events.subscribe(Uploaded, self._note_in_vain)
        events.subscribe(RowMade, self._enter)

    def _passed(self, sender: str, receiver: str, round: int, size: int) -> None:
        """Counts a message from or to a client."""
        if KEY_SERVER not in (sender, receiver):
            whose, direction = (receiver, "down") if sender == SERVER else (sender, "up")
            client_id = int(whose.partition(":")[2])
            sent = self.traffic.setdefault(round, {}).setdefault(client_id, ClientBytes())
            setattr(sent, direction, getattr(sent, direction) + size)

    def _forget(self, event: SetUpDone) -> None:
        """Drops the work of the set-up."""
        self.traffic.clear()
        self.server.operations.clear()
        self.key_server.operations.clear()
        self._opened = self.key_server.seconds

    def _recall(self, event: RowsRestored) -> None:
        """Continues after a restart: the costs of operations follow from the rows of earlier rounds."""
        self._samples = {name: array("d", itertools.chain(*pairs)) for name, pairs in samples_of(event.rows).items()}

    def _note_in_vain(self, event: Uploaded) -> None:
        """Computes, while the uploads exist, which part of them no sum will hold."""
        self._in_vain = encrypted_in_vain(self.server, event.groups)

    def _enter(self, event: RowMade) -> None:
        """Writes into a row the work of a round, and its time on the simulated clock.

        Called once more for the last row, with the work at the end of the run.
        """
        row, work = event.row, Work.of(event.row)
        for party, table in self._by_party(event.reports, event.seconds).items():
            for name, pair in table.items():
                self._samples.setdefault(name, array("d")).extend(pair)
            _add(work.operations, table)
            if isinstance(party, int):
                _add(work.clients.setdefault(party, {}), table)
            else:
                _add(work.servers.setdefault(party, {}), table)
        for client_id, sent in self.traffic.pop(event.round, {}).items():
            before = work.client_bytes.get(client_id, ClientBytes())
            work.client_bytes[client_id] = ClientBytes(before.up + sent.up, before.down + sent.down)
        if not row.skipped:
            work.in_vain |= self._in_vain
        self._in_vain = {}
        row.added["work"] = work.to_plain()
        operations, moved = work_of(row)
        costs = unit_costs(self._samples)
        simulated = round_seconds(operations, moved, self.profiles, costs).to_row()
        useful = without_left_out(operations, work.in_vain)
        least = round_seconds(useful, moved, self.profiles, costs).seconds
        simulated.left_out = max(0.0, simulated.seconds - least)
        row.simulated_seconds, row.added["simulated"] = simulated.seconds, simulated.to_plain()

    def _by_party(self, reports: Iterable[tuple[int, Reports]], server_seconds: float) -> dict[Party, _Counted]:
        """Each party's work since the last call, including the rest of its seconds."""
        named: dict[Party, Table] = {}
        seconds: dict[Party, float] = {}
        for client_id, report in reports:
            mine = named.setdefault(client_id, {})
            _add(mine, report.operations)
            # Evaluation is for the report only; no protocol needs it.
            own = report.seconds_total - report.seconds.get("evaluate", 0.0)
            seconds[client_id] = seconds.get(client_id, 0.0) + own
        opened = self.key_server.seconds - self._opened
        self._opened = self.key_server.seconds
        seconds |= {SERVER: server_seconds, KEY_SERVER: opened}
        for party, operations in ((SERVER, self.server.operations), (KEY_SERVER, self.key_server.operations)):
            _add(named.setdefault(party, {}), operations)
            operations.clear()
        return {party: _with_rest(party, table, seconds[party]) for party, table in named.items()}


def _with_rest(party: Party, named: Table, seconds: float) -> _Counted:
    """A party's operations, and the rest of its seconds, which includes work that has no count or no separate name."""
    own = {name: done for name, done in named.items() if done.count > 0 and name not in (OTHER, MEASURED)}
    table = {name: (done.count, done.seconds) for name, done in own.items()}
    rest = seconds - math.fsum(took for _, took in table.values())
    rest = rest if 0 <= rest < math.inf else 0.0
    if isinstance(party, int):
        table[OTHER] = (1.0, rest)
    elif rest:
        table[MEASURED] = (rest, rest)
    return table


def _add(table: Table, counted: _Counted) -> None:
    for name, (count, seconds) in counted.items():
        done = table.setdefault(name, Done())
        done.count += count
        done.seconds += seconds
