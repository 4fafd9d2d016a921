"""The input and the duties of every engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from fedplug.api.blocks import Layout
from fedplug.api.component import Options
from fedplug.api.errors import DataError
from fedplug.api.parties import set_threads_of_a_party
from fedplug.recipe.catalog import Catalog, Own
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost, KeyServerHost, Store
from fedplug.round.world import World


def host_of(job: Job, client_ids: list[int] | None) -> ClientHost | KeyServerHost:
    """Builds the host of some clients, or of the key server where there are none, in a process that is for it alone.

    Raises:
        FedplugError: this process cannot build them; the message says why.
    """
    set_threads_of_a_party(job.threads)
    recipe, composition = job.build()
    if client_ids is None:
        return KeyServerHost(recipe, composition, job.layout, job.store)
    world = World(recipe, composition, job.data_root)
    if job.data and world.digest != job.data:
        raise DataError(
            f"{recipe.data.place}: {recipe.data.use} gives other training examples, or splits them otherwise, in each "
            "process, so that two clients would have the same: have what is random in it follow from a fixed seed"
        )
    return ClientHost(recipe, composition, client_ids, job.data_root, job.device, job.store, world)


TIMEOUT = 1800
"""Seconds that a party may take for an answer, unless the settings say otherwise. Training may be long; who has
longer rounds says so."""


@dataclasses.dataclass(frozen=True)
class Job:
    """The facts from which a party builds itself: its copy of the recipe and the settings of this machine.

    Attributes:
        recipe: the resolved recipe as plain data.
        data_root: folder of data sets, or None.
        device: torch device name.
        workers: how many worker processes; None: the engine decides.
        key_server: whether the protocol needs one.
        catalog: components to use instead of the installed plugins (tests); must be picklable for processes.
        store: where each party notes what it opens, and is saved; None: it knows for as long as its process lives.
        world: of the recipe, for clients in this very process; it travels to no other.
        data: a digest of the examples and of who has which, alike in every process; empty: not compared.
        layout: of the model, for the key server, which has none: what is known of a sum follows from it.
        timeout: seconds that a party may take for an answer; then it is lost to the round. 0: as long as it likes.
        own_files: of the user's own that the recipe names; they travel with it.
        options: those of the engine itself, an instance of its class `Options` where it has one.
        threads: that a party computes with, in a process that the engine starts.
    """

    recipe: dict[str, Any]
    data_root: str | None = None
    device: str = "cpu"
    workers: int | None = 1
    key_server: bool = False
    catalog: Catalog | None = None
    store: Store | None = None
    world: World | None = None
    data: bytes = b""
    layout: Layout = dataclasses.field(default_factory=lambda: Layout(()))
    timeout: int = TIMEOUT
    own_files: tuple[Own, ...] = ()
    options: Options = dataclasses.field(default_factory=Options)
    threads: int = 1

    @property
    def run_dir(self) -> Path | None:
        """The run folder, where there is one."""
        return None if self.store is None else self.store.folder

    def build(self) -> tuple[Recipe, Composition]:
        """A fresh copy of recipe and components for one party."""
        catalog = self.catalog or Catalog.discover()
        catalog.files.remember(self.own_files)
        recipe = Recipe.from_plain(self.recipe, catalog)
        return recipe, Composition(recipe)


class Engine(Protocol):
    """Runs the parties. An engine moves bytes and keeps parties alive; it knows nothing of the protocol.

    An engine with its own settings has a nested class `Options`, as components have, and finds them in `job.options`.

    Attributes:
        in_process: whether all parties run in its own process; it moves packed messages then.
    """

    in_process: bool

    def __init__(self, job: Job) -> None: ...

    def exchange(self, messages: dict[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        """Delivers each message to its address and yields (address, reply) as replies arrive; a party whose process
        ended, or that has not answered after `Job.timeout` seconds, yields `PartyLost`."""

    def save(self, folder: Path) -> None:
        """Has every party write its own state into the folder; no state passes through the server."""

    def saved(self, folder: Path) -> None:
        """The checkpoint is complete and lies in this folder now; lost parties are restored from it."""

    def load(self, folder: Path) -> None:
        """Has every party read its own state from the folder."""

    def overhead(self) -> dict[str, int]:
        """Bytes that were sent in addition to the messages, by what added them; empty where nothing was."""

    def close(self) -> None:
        """Ends every process at once."""
