"""Every party in this process, one after the other: the simplest engine, and the reference for all others.

`protocol` runs a recipe on it in memory: no files, no ledger, just what happens.
"""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedplug.api.codec import Message
from fedplug.api.errors import of_component
from fedplug.api.events import Event, Events, Watcher
from fedplug.api.parties import KEY_SERVER
from fedplug.api.roles import Extension
from fedplug.engines.base import Job
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost, KeyServerHost
from fedplug.round.protocol import Protocol
from fedplug.round.steps import needs_key_server
from fedplug.round.world import World


class LocalEngine:
    """All parties in one process; messages are read as if they were bytes, and become bytes where they are recorded."""

    in_process = True

    def __init__(self, job: Job) -> None:
        self._hosts: dict[str, ClientHost | KeyServerHost] = {}
        recipe, composition = job.build()
        everyone = list(range(recipe.data.clients))
        self.clients = clients = ClientHost(
            recipe, composition, everyone, job.data_root, job.device, job.store, job.world
        )
        self.hosts: list[ClientHost | KeyServerHost] = [clients]
        for address in clients.addresses:
            self._hosts[address] = clients
        if job.key_server:
            # Its own copy of the components, so that nothing the key server caches is in reach of the others.
            key_server = KeyServerHost(*job.build(), clients.model.layout, job.store)
            self._hosts[KEY_SERVER] = key_server
            self.hosts.append(key_server)

    def exchange(self, messages: dict[str, Message]) -> Iterator[tuple[str, Message | Exception]]:
        """Delivers each message in turn; what they open is noted for several at once, before any of them answers."""
        replies = ((address, self._hosts[address].deliver(address, data)) for address, data in messages.items())
        yield from self.clients.store.noted(replies)

    def save(self, folder: Path) -> None:
        """Every party writes its own state into the folder."""
        for host in self.hosts:
            host.save(folder)

    def saved(self, folder: Path) -> None:
        """Nothing to remember: the parties live and die with this process."""

    def load(self, folder: Path) -> None:
        """Every party reads its own state from the folder."""
        for host in self.hosts:
            host.load(folder)

    def overhead(self) -> dict[str, int]:
        """None."""
        return {}

    def close(self) -> None:
        """Nothing to stop."""
        self._hosts.clear()


def protocol(
    recipe: Recipe | Mapping[str, Any], *, data_root: str | None = None, device: str = "cpu",
    catalog: Catalog | None = None,
) -> Iterator[Event]:  # fmt: skip
    """Runs a recipe in this process and gives what happens, in order: `for event in fedplug.protocol(recipe): ...`.

    Nothing is written, and nobody counts what clients spend: `fedplug.run` does both. The events of the set-up, of a
    round and of the end come when it is over.

    Args:
        recipe: or plain data as in a recipe file.
        data_root: folder of data sets, for recipes that need one.
        device: torch device name.
        catalog: the components on offer; by default what is installed.

    Raises:
        RecipeError: the recipe is wrong; `problems` has every mistake.
        FedplugError: the run failed; the message says why.
    """
    catalog = catalog or Catalog.discover()
    recipe = recipe if isinstance(recipe, Recipe) else Recipe.from_plain(recipe, catalog)
    composition, events, told = Composition(recipe), Events(), deque[Event]()
    events.subscribe(Event, told.append)
    for part in (part for part in composition.components.values() if isinstance(part, Extension)):
        for kind in part.hears or (Event,):
            events.subscribe(kind, functools.partial(_observe, part, events))
    world = World(recipe, composition, data_root)
    model = world.model("cpu")
    job = Job(
        recipe.to_plain(), data_root, device, key_server=needs_key_server(composition), catalog=catalog, world=world,
        layout=model.layout, own_files=recipe.own_files,
    )  # fmt: skip
    engine = LocalEngine(job)
    try:
        running = Protocol(recipe, composition, engine, model.layout, Watcher(), events, model, world.public)
        for number in range(-1, recipe.rounds + 1):
            try:
                if number < 0:
                    running.setup()
                elif number < recipe.rounds:
                    running.round(number)
                else:
                    running.finish()
            finally:
                while told:
                    yield told.popleft()
    finally:
        engine.close()


def _observe(extension: Extension, events: Events, event: Event) -> None:
    with of_component(extension.name, "observe"):
        for text in extension.observe(copy.deepcopy(event)) or ():
            events.note(text)
