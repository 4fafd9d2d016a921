"""What a run will take, before it is made: one or two real rounds here, in memory, and the ledger of all rounds.

Nothing is written, and nobody else is asked. Time, bytes and memory are estimates. Epsilon is what the ledger of the
whole run will state, as far as operations follow from the recipe and from the first round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator

from fedplug.api.errors import SetupError
from fedplug.api.events import Asking, Events, Released, ReplyArrived, RoundClosed, RoundStarted
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol, sample
from fedplug.round.steps import needs_key_server
from fedplug.round.world import World
from fedplug_ledger.charging import Charging, ledger_of
from fedplug_ledger.verdict import Verdict
from fedplug_ledger.verdict_words import number

from fedplug_runs import units
from fedplug_runs.archive import Bookkeeping
from fedplug_runs.loaded import Once
from fedplug_runs.machine import PeakMemory, handled, parties_compute_with, require_memory, resolve_device
from fedplug_runs.pace import TRAINING, Pace
from fedplug_runs.settings import Settings
from fedplug_runs.wire_record import Wire

LIMIT = 20.0
"""Seconds that the measurement may take."""
_AGAIN = 0.2
"""Seconds until the end of that time is told once more."""


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """What a run will take on this machine, with all parties in one process.

    Attributes:
        rounds: of the recipe.
        seconds: of the whole run; None where not even a part of a round could be measured.
        round_seconds: of a round; likewise.
        up, down: bytes to the server and from it in the whole run; None where no round was finished.
        memory: bytes that this process held at most; None where the system does not tell.
        measured: what was measured, for people.
        verdict: of the whole run; None where the set-up was not over.
    """

    rounds: int
    seconds: float | None
    round_seconds: float | None
    up: float | None
    down: float | None
    memory: int | None
    measured: str
    verdict: Verdict | None

    def text(self, engine: str = "local") -> list[str]:
        """Lines for people."""
        unknown = "not measured: no round was over by then"
        took, sent = unknown, unknown
        if self.seconds is not None:
            took = f"about {units.duration(self.seconds)}, {units.duration(self.round_seconds)} a round"
        if self.up is not None:
            sent = f"about {units.size(self.up)} up, {units.size(self.down)} down"
        elsewhere = "" if engine == "local" else f"; the engine {engine} shares the clients' work among its processes"
        lines = [
            f"estimate for {self.rounds} rounds, from {self.measured}, with the engine local{elsewhere}:",
            f"  time: {took}", f"  bytes: {sent}",
            f"  memory: {f'about {units.size(self.memory)}' if self.memory else 'this system does not tell'}",
        ]  # fmt: skip
        if self.verdict is None:
            return [*lines, "  epsilon: not known before the set-up is over"]
        return [*lines, f"by the ledger, after {self.rounds} rounds:", *(f"  {line}" for line in self.verdict.text())]


class _Late(BaseException):
    """The time is over. Not an `Exception`, so that no component is blamed for it."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Inside, `_Late` comes after that time; in other threads than the main one it cannot.

    Python drops an exception that comes inside a callback of a weak reference, and prints it. So `_Late` comes again
    and again, and is not printed.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: object) -> None:
        raise _Late

    def dropped(error: sys.UnraisableHookArgs) -> None:
        if error.exc_type is not _Late:
            printed(error)

    printed = sys.unraisablehook
    with handled(late, signal.SIGALRM):
        sys.unraisablehook = dropped
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = printed


def estimate(recipe: Recipe, settings: Settings, catalog: Catalog | None = None, limit: float = LIMIT) -> Estimate:
    """Measures a round or two of a recipe, for at most `limit` seconds behind loading its data.

    Raises:
        FedplugError: the run would fail, and says why: data are missing, it does not fit into memory, a client fails.
        SetupError: the data are at sites, and not here.
    """
    catalog = catalog or Catalog.discover()
    device = resolve_device(settings.device)
    if recipe.data.agreed is not None and settings.data_root is None:
        raise SetupError(
            "the data of this recipe are at its sites, so nothing can be measured here; with --data DIR, where DIR has "
            "client-0, client-1, ... (fedplug sites makes them), a dry run takes those"
        )
    gc.collect()  # what an earlier measurement has left is no memory of this one
    with parties_compute_with(settings.threads):
        return _Measuring(recipe, settings, catalog, device).run(limit)


class _Measuring:
    """One measurement."""

    def __init__(self, recipe: Recipe, settings: Settings, catalog: Catalog, device: str) -> None:
        self.recipe, self.memory = recipe, PeakMemory()
        self.composition = Composition(recipe)
        world = World(recipe, Once(recipe, self.composition).composition, settings.data_root)
        model = world.model("cpu")
        self.layout = model.layout
        require_memory(recipe, self.layout)
        self.job = Job(
            recipe.to_plain(), settings.data_root, device, key_server=needs_key_server(self.composition),
            catalog=catalog, world=world, layout=self.layout, own_files=recipe.own_files,
        )  # fmt: skip
        self.world, self.model = world, model
        self.events, self.wire, self.pace = Events(), Wire(keep=False), Pace()
        self.ledger = ledger_of(recipe, self.composition, self.layout)
        self.released: Released | None = None
        self.began = self.set_up = 0.0
        self.took: list[float] = []
        self.is_set_up = False

    def run(self, limit: float) -> Estimate:
        recipe, events = self.recipe, self.events
        self.pace.start(recipe.rounds)
        engine = LocalEngine(self.job)
        try:
            protocol = Protocol(
                recipe, self.composition, engine, self.layout, self.wire, events, self.model, self.world.public
            )
            Bookkeeping(protocol, self.wire, self.ledger)
            self._listen()
            with contextlib.suppress(_Late), _at_most(limit):
                began = time.perf_counter()
                protocol.setup()
                self.is_set_up, self.set_up = True, time.perf_counter() - began
                for round in range(min(2, recipe.rounds)):
                    self.began = time.perf_counter()
                    protocol.round(round)
                    self.took.append(time.perf_counter() - self.began)
                    if time.perf_counter() - began > limit / 2:
                        break
            per_round = self.took[-1] if self.took else self._part()
            whole = None if per_round is None else self.set_up + sum(self.took) + per_round * self._left
            up, down = self._bytes("up"), self._bytes("down")
            verdict = self._verdict(protocol) if self.is_set_up else None
        finally:
            engine.close()
        return Estimate(
            recipe.rounds, whole, per_round, up, down, self.memory.bytes(), self._measured(limit), verdict
        )  # fmt: skip

    @property
    def _left(self) -> int:
        return self.recipe.rounds - len(self.took)

    def _listen(self) -> None:
        rate = self.recipe.sampling.rate if self.recipe.sampling else 1.0
        asked = max(1, round(rate * self.recipe.data.clients))
        phase = self.pace.phase
        self.events.subscribe(RoundStarted, lambda event: phase(event.round + 1, TRAINING, 0, asked))
        self.events.subscribe(
            ReplyArrived, lambda event: phase(event.round + 1, event.phase, event.answered, event.asked)
        )
        self.events.subscribe(Released, functools.partial(setattr, self, "released"))

    def _part(self) -> float | None:
        """Seconds of the first round, by the part of it that is over."""
        share = self.pace.share() if self.began else None
        return (time.perf_counter() - self.began) / share if share else None

    def _measured(self, limit: float) -> str:
        if self.took:
            return f"{'a round' if len(self.took) == 1 else 'two rounds'} measured here"
        share = self.pace.share() if self.began else None
        if share:
            return f"{units.percent(share)} of a round measured here in {units.duration(limit)}"
        until = "no client had trained to its end" if self.is_set_up else "the set-up was not over"
        return f"{units.duration(limit)} here, after which {until}"

    def _bytes(self, way: str) -> float | None:
        """Bytes one way: a round delivers the sum of the one before, and the end of the run that of the last."""
        if not self.took:
            return None
        before, *rounds = (getattr(self.wire.of_round(n), way).total for n in range(-1, len(self.took)))
        if len(rounds) > 1:
            delivery = max(0, rounds[1] - rounds[0])
        else:
            delivery = 4 * self.layout.size * self.recipe.data.clients if way == "down" else 0
        whole = before + rounds[0] + (self.recipe.rounds - 1) * max(rounds[-1], rounds[0] + delivery) + delivery
        return float(whole + (self._late * delivery if way == "down" and len(rounds) > 1 else 0))

    @property
    def _late(self) -> float:
        """Deliveries beside those of one a round to the clients that are asked: in the end, all have had every sum."""
        asked = len(self.released.charged) if self.released else 0
        return self.recipe.rounds * max(0.0, self.recipe.data.clients / asked - 1) if asked else 0.0

    def _verdict(self, protocol: Protocol) -> Verdict:
        """The verdict after all rounds, as if each went as the last that was measured."""
        size, clients = float(self.layout.size), range(self.recipe.data.clients)
        zones = dict.fromkeys(self.recipe.protect, size)
        last = self.released or Released(
            0, tuple(clients), dict.fromkeys(clients, 1.0), zones, dict.fromkeys(zones, len(clients)), False
        )
        events, charging = Events(), Charging(
            self.recipe, self.composition, protocol.server, self.ledger, self.layout.size
        )
        charging.subscribe(events)
        for round in range(len(self.took), self.recipe.rounds):
            asked = sample(self.recipe, list(clients), round)
            if len(asked) < self.recipe.min_clients:
                continue
            weights = {c: protocol.server.remembered.weights.get(c, 1.0) for c in asked}
            behind = {zone: min(count, len(asked)) for zone, count in last.contributors.items()}
            events.tell(RoundStarted(round))
            events.tell(Asking(round, tuple(asked), "ballots"))
            events.tell(Asking(round, tuple(asked), "upload"))
            events.tell(Released(round, tuple(asked), weights, last.zone_sizes, behind, last.exposed))
            events.tell(RoundClosed(round, tuple(asked), tuple(asked), {}, 0.0, {"all": asked}))
        return self.ledger.verdict()


def in_short(found: Estimate) -> str:
    """`about 33 s, 104.2 MB, 323.4 MB of memory, epsilon up to 90.18`: a run in one line."""
    stated = [line.value for line in found.verdict.lines if line.value is not None] if found.verdict else []
    sent = "bytes unknown" if found.up is None else f"{units.size(found.up + (found.down or 0.0))} sent"
    took = "time unknown" if found.seconds is None else f"about {units.duration(found.seconds)}"
    epsilon = f"epsilon up to {number(max(stated))}" if stated else "no epsilon" if found.verdict else "epsilon unknown"
    return ", ".join([took, sent, f"{units.size(found.memory)} of memory", epsilon])
