"""Runs a recipe without the command line, and gives access to everything that happened."""

from __future__ import annotations

import dataclasses
import os
import signal
import struct
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api import codec
from fedplug.api.events import Events, Note, RoundClosed
from fedplug.engines.base import TIMEOUT, Engine, Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug.round.steps import needs_key_server
from fedplug.round.world import World
from fedplug_ledger.charging import ledger_of
from fedplug_ledger.entries import RoundEntry
from fedplug_ledger.ledger import Ledger
from fedplug_runs.archive import Bookkeeping
from fedplug_runs.checkpoint import StateFiles, read_file, states_in
from fedplug_runs.rows import Row
from fedplug_runs.wire_record import Message, Wire
from fedplug_std.processes import ProcessEngine
from numpy.typing import NDArray
from toy_components import toy_catalog


class Notes:
    """Collects the notes of a run."""

    def __init__(self, events: Events) -> None:
        self.notes: list[str] = []
        events.subscribe(Note, lambda event: self.notes.append(event.text))


class Watched(Protocol):
    """A protocol with its records."""

    books: Bookkeeping

    @property
    def ledger(self) -> Ledger:
        return self.books.ledger

    @property
    def rows(self) -> list[Row]:
        return self.books.rows

    def state(self) -> dict[str, Any]:
        rows = [row.to_plain() for row in self.rows]
        log = [entry.to_plain() for entry in self.ledger.log]
        return {**super().state(), **self.books.state(), "rows": rows, "log": log}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        log = [RoundEntry.from_plain(entry) for entry in state["log"]]
        self.books.restore(state, [Row.from_plain(row) for row in state["rows"]], log)

    def after_each_round(self, call: Callable[[int], None]) -> None:
        """Calls with how many rounds are done."""
        self.events.subscribe(RoundClosed, lambda event: call(event.round + 1))


@dataclasses.dataclass(eq=False)
class Outcome:
    """A finished run, with everything that a test may need."""

    protocol: Watched
    wire: Wire
    notes: list[str]
    vectors: dict[int, NDArray[np.float32]]
    files: dict[str, bytes]

    @property
    def rows(self) -> list[Row]:
        """The metrics, one row per round."""
        return self.protocol.rows

    @property
    def vector(self) -> NDArray[np.float32]:
        """The final model, on which all clients agree."""
        vectors = list(self.vectors.values())
        assert all(np.array_equal(vectors[0], vector) for vector in vectors), "the clients hold different models"
        return vectors[0]

    def sent(self, receiver: str | None = None, sender: str | None = None, round: int | None = None) -> list[Message]:
        """The recorded messages to or from a party, in a round."""
        return [
            message
            for message in self.wire.messages
            if receiver in (None, message.receiver) and sender in (None, message.sender)
            and round in (None, message.round)
        ]  # fmt: skip


def build(
    plain: Mapping[str, Any], engine: str | Callable[[Job], Engine] = "local", *, workers: int = 2,
    server_plain: Mapping[str, Any] | None = None, timeout: int = TIMEOUT, data_root: str | None = None,
) -> tuple[Watched, Engine, Notes]:  # fmt: skip
    """A protocol, ready for `setup`; the server may be given another recipe than the parties."""
    catalog = toy_catalog()
    recipe = Recipe.from_plain(server_plain or plain, catalog)
    composition = Composition(recipe)
    parties = Recipe.from_plain(plain, catalog) if server_plain else recipe
    key_server = needs_key_server(composition)
    world = World(recipe, composition, data_root)
    model, public = world.model("cpu"), world.public
    job = Job(
        parties.to_plain(), workers=workers, key_server=key_server, catalog=catalog, layout=model.layout,
        timeout=timeout, data_root=data_root, own_files=parties.own_files, store=StateFiles(),
    )  # fmt: skip
    engines: dict[str, Callable[[Job], Engine]] = {"local": LocalEngine, "processes": ProcessEngine}
    running = engines[engine](job) if isinstance(engine, str) else engine(job)
    ledger = ledger_of(recipe, composition, model.layout)
    events = Events()
    watch = Notes(events)
    wire = Wire(keep=True)
    protocol = Watched(recipe, composition, running, model.layout, wire, events, model, public)
    protocol.books = Bookkeeping(protocol, wire, ledger)
    return protocol, running, watch


def run_protocol(
    plain: Mapping[str, Any],
    engine: str | Callable[[Job], Engine] = "local",
    *,
    workers: int = 2,
    server_plain: Mapping[str, Any] | None = None,
    prepare: Callable[[Watched, Engine], None] | None = None,
    data_root: str | None = None,
) -> Outcome:
    """Runs a recipe from set-up to end.

    Args:
        plain: the recipe.
        engine: `local`, `processes`, or the class of another.
        workers: worker processes.
        server_plain: the server's version of the recipe, if it differs.
        prepare: called before the set-up, for a test to hang something in.
        data_root: folder of data sets.
    """
    protocol, running, watch = build(plain, engine, workers=workers, server_plain=server_plain, data_root=data_root)
    try:
        if prepare:
            prepare(protocol, running)
        protocol.setup()
        protocol.run()
        with tempfile.TemporaryDirectory() as folder:
            running.save(Path(folder))
            vectors, files = read_saved(Path(folder))
    finally:
        running.close()
    return Outcome(protocol, protocol.wire, watch.notes, vectors, files)


def read_saved(folder: Path) -> tuple[dict[int, NDArray[np.float32]], dict[str, bytes]]:
    """The clients' models in the files that an engine wrote, and all of those files."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    vectors = {}
    for client_id, saved in read_clients(folder).items():
        vectors[client_id] = codec.decode(read_file(folder / saved["vector"]))
    return vectors, files


def read_clients(folder: Path) -> dict[int, dict[str, Any]]:
    """The clients' states in the files that an engine wrote, unchanged."""
    paths = folder.glob("clients-*.state")
    found = {address: codec.decode(state) for path in paths for address, state in states_in(path)}
    return dict(sorted((int(address.rpartition(":")[2]), state) for address, state in found.items()))


def initial_vector(plain: Mapping[str, Any]) -> NDArray[np.float32]:
    """The model before round 1."""
    catalog = toy_catalog()
    recipe = Recipe.from_plain(plain, catalog)
    components = Composition(recipe).components
    data = components[recipe.data.name].load(None)
    vector: NDArray[np.float32] = (
        components[recipe.model.name].build(data.shape, len(data.classes), recipe.seed, "cpu").get_vector()
    )
    return vector


def weights_of(outcome: Outcome) -> dict[int, float]:
    """The weights of the clients, as the server holds them."""
    return dict(outcome.protocol.server.weights)


def calls_of(message: Message) -> list[str]:
    """`component.method` of each call in a message to a client or to the key server."""
    return [f"{component}.{method}" for _, _, component, method, _ in message.decode()["calls"]]


def half_an_answer(pipe: Connection, *_: Any) -> None:
    """The action of a worker that is stopped while it sends its answer."""
    os.write(pipe.fileno(), struct.pack("!i", 100) + b"x")
    signal.pause()
