"""Clients and the key server in a process: the hosts that hold them, run their messages and save their state.

A host holds some parties of one process. The local engine has one host for the clients and one for the key server;
each worker of the process engine has a separate host. The parties themselves are in `fedplug.round.parties`, what the
protocol asks of them in `fedplug.round.steps`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedplug.api import codec
from fedplug.api.blocks import Layout, unchangeable
from fedplug.api.codec import Message
from fedplug.api.data import Model
from fedplug.api.errors import ProtectionError, SetupError
from fedplug.api.facts import Facts, Snapshots, in_force, published_to, with_published
from fedplug.api.links import ballots_of
from fedplug.api.operations import Noise
from fedplug.api.parties import KEY_SERVER, Openings, client_address
from fedplug.api.roles import Ballots, stated_reveals
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug.round.hosted import HostedClient, HostedKeyServer, Looks
from fedplug.round.steps import Steps
from fedplug.round.world import World
from fedplug.wire.calls import Receiver


class Residents(Protocol):
    """What is told of the clients of a process that are used, to put others away meanwhile."""

    def loaded(self, client: HostedClient) -> None:
        """A client was read from its own file."""

    def used(self, client: HostedClient) -> None:
        """A client was used."""


class Store(Protocol):
    """Where the parties of a process keep their state and note what they open.

    Attributes:
        folder: of the run, for tracebacks; None where there is none.
    """

    @property
    def folder(self) -> Path | None:
        """See above."""

    def absolute(self) -> Store:
        """The same for a process that works in another folder."""

    def openings(self, addresses: Iterable[str]) -> dict[str, Openings]:
        """What parties have opened so far, as each has noted it; without a folder they begin with nothing.

        Raises:
            CheckpointError: notes are damaged, or fewer than a checkpoint knows of.
        """

    def noted(self, answers: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
        """Answers of parties in this process, by address, each once what it has opened is noted."""

    def save_clients(self, folder: Path, clients: Mapping[str, HostedClient]) -> None:
        """Writes the states of clients, by address."""

    def load_clients(self, folder: Path, clients: Mapping[str, HostedClient]) -> Iterator[HostedClient]:
        """Loads them, and gives each. Raises CheckpointError where one is missing, or not as it was written."""

    def save_key_server(self, folder: Path, party: HostedKeyServer) -> None:
        """Writes the state of the key server."""

    def load_key_server(self, folder: Path, party: HostedKeyServer) -> None:
        """Loads it. Raises CheckpointError as `load_clients` does."""

    def residents(self, share: float) -> Residents | None:
        """What puts clients away, in a process with that share of all; None: all of them stay in memory."""

    def comparison(self) -> Looks | None:
        """What looks for the plain values of one client in a run that is recorded; None: nothing."""


class Nowhere:
    """The store of parties that nobody saves: they know what they opened for as long as their process lives."""

    folder: Path | None = None

    def absolute(self) -> Nowhere:
        """This one."""
        return self

    def openings(self, addresses: Iterable[str]) -> dict[str, Openings]:
        """None yet."""
        return {address: Openings() for address in addresses}

    def noted(self, answers: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
        """They are: nobody keeps notes."""
        return answers

    def comparison(self) -> None:
        """Nothing."""

    def residents(self, share: float) -> None:
        """All of them stay."""

    def save_clients(self, *_: Any) -> Any:
        """Raises: there is nowhere to."""
        raise SetupError("these parties have no store, so they cannot be saved; give Job(store=...)")

    load_clients = save_key_server = load_key_server = save_clients


class ClientHost:
    """Some clients of a run in one process: their data, their state, one model.

    Args:
        recipe: this process' own copy.
        composition: this process' own components.
        client_ids: the clients it holds.
        data_root: folder of data sets, or None.
        device: `cpu`, `cuda`, ...
        store: where they note what they open, and are saved; None: nowhere.
        world: of the recipe, where this process has one already.

    Attributes:
        components: what messages may call at the clients, by name.
    """

    def __init__(
        self,
        recipe: Recipe,
        composition: Composition,
        client_ids: list[int],
        data_root: str | None,
        device: str,
        store: Store | None = None,
        world: World | None = None,
    ) -> None:
        self.store: Store = store or Nowhere()
        self._residents = self.store.residents(len(client_ids) / recipe.data.clients)
        self.recipe, self.composition = recipe, composition
        steps = Steps(recipe, composition)
        self.components = {**composition.components, steps.name: steps}
        world = World(recipe, composition, data_root) if world is None else world
        around = [each for each in (s.around(composition, world) for s in recipe.sections.values()) if each]
        self._receiver = Receiver(
            "client", self.components, recipe.digest, self.store.folder, [*around, self._handing], self._watching
        )
        self.public = world.public
        self._new_model = functools.partial(world.model, device)
        self.model: Model = self._new_model()
        # What is not of fedplug itself may keep more than its vector and buffers, and carry it to the next client.
        self._keeps_more = not composition.shipped(recipe.model.name)
        self.model_user: HostedClient | None = None
        self._last_vector: NDArray[np.float32] | None = None
        initial, self.buffers = unchangeable(self.model.get_vector()), self.model.get_buffers()
        sections = recipe.sections
        self.counts = counts_operations(recipe)
        self._facts: dict[tuple[int, bytes], Facts] = {}
        self.clients: dict[str, HostedClient] = {}
        openings = self.store.openings(map(client_address, client_ids))
        for client_id, held in world.holdings(client_ids).items():
            client = HostedClient(client_id, self)
            client.said = {key: section.of_client(client_id) for key, section in sections.items()}
            client.data, client.data_root = held.data, held.folder
            client.tells_classes = held.tells_classes
            client.vector = initial
            client.openings = openings[client_address(client_id)]
            client.remembered.buffers = self.buffers
            self._at_round(client, -1)
            self.clients[client_address(client_id)] = client

    @property
    def addresses(self) -> list[str]:
        return list(self.clients)

    def deliver(self, address: str, data: Message) -> Message:
        """Runs a message at one of the clients and gives its reply."""
        # What a model kept of the step before would depend on how many clients are in this process.
        client, self.model_user = self.clients[address], None
        reply = self._receiver.handle(data, client, lambda round: self._at_round(client, round))
        if self._residents is not None:
            self._residents.used(client)
        return reply

    def model_for(self, client: HostedClient) -> Model:
        """The one model, for a client to fill in."""
        if self._keeps_more and self.model_user is not client:
            self.model = self._new_model()
        self.model_user = client
        return self.model

    def shared(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The array with these values that was adopted last in this process, or else this one."""
        last = self._last_vector
        if last is None or (vector is not last and not np.array_equal(vector, last, equal_nan=True)):
            self._last_vector = last = unchangeable(vector)  # shared, so that no client may write to it
        return last

    def save(self, folder: Path) -> None:
        """Writes the states of the clients."""
        for client in self.clients.values():
            client.remembered.end_round(len(client.openings))
        self.store.save_clients(folder, self.clients)

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote."""
        for client in self.store.load_clients(folder, self.clients):
            self._at_round(client, -1)
            if self._residents is not None:
                self._residents.loaded(client)

    def _watching(self, client: HostedClient) -> Callable[[int, bytes], dict[str, Any]] | None:
        """What looks through a client's replies for its plain values, where the store has something that does."""
        client.comparison = client.comparison or self.store.comparison()
        return None if client.comparison is None else client.comparison.look

    @contextlib.contextmanager
    def _handing(self, component: str, method: str, client: HostedClient) -> Iterator[Callable[[Any], Any]]:
        """Looks at what a ballot's method answers: where epsilon pays for it, nothing but what was released."""
        part = self.components[component]
        shown = stated_reveals(client.facts.component(component), client.facts) if isinstance(part, Ballots) else ()
        paid = any(method in each.asked and each.covered_by == "epsilon" for each in shown)
        noises = [one for one in ballots_of(component, client.facts) if isinstance(one, Noise)] if paid else []
        noised = bool(noises) and all(noise.trust != "central" for noise in noises)

        def answered(answer: Any) -> Any:
            if noised and not client.has_released(answer):
                raise ProtectionError(
                    f"component {component}: its ballots have noise, and {method} answers with values that did not "
                    "pass through it; answer with client.release(self, values), and with nothing else"
                )
            return answer

        yield answered

    def _at_round(self, client: HostedClient, round: int) -> None:
        if client.facts is None or client.facts.round != round:
            client.facts = self.facts(round, client.remembered.published)

    def hear(self, client: HostedClient, name: str, values: Mapping[str, Any]) -> None:
        """A client was told what a component publishes."""
        memory, round = client.remembered, client.facts.round
        memory.published = with_published(memory.published, round, name, values)
        client.facts = self.facts(round, memory.published)

    def facts(self, round: int, published: Snapshots) -> Facts:
        """The facts of a round, which clients of this process share that were told the same."""
        told = in_force(published, round)
        key = round, codec.encode({name: dict(values) for name, values in told.items()}) if told else b""
        if key not in self._facts:
            facts = facts_of(self.composition, self.model.layout, round, self.public, published)
            # Calls of the round before come in every round.
            kept = {each: held for each, held in self._facts.items() if each[0] in (round - 1, round, round + 1)}
            self._facts = {**kept, key: facts}
        return self._facts[key]


class KeyServerHost:
    """The key server in a separate process: keys, no data, no single update.

    Args:
        recipe, composition: this process' own copies.
        layout: of the model. What is known of a sum follows from it, so that noise is scaled here as the ledger has it.
        store: where it notes what it opens, and is saved; None: nowhere.
    """

    def __init__(self, recipe: Recipe, composition: Composition, layout: Layout, store: Store | None = None) -> None:
        self.recipe, self.composition, self.layout = recipe, composition, layout
        steps = Steps(recipe, composition)
        self.store: Store = store or Nowhere()
        parts = {**composition.components, steps.name: steps}
        self._receiver = Receiver("key_server", parts, recipe.digest, self.store.folder)
        self.party = HostedKeyServer(counts=counts_operations(recipe))
        self.party.openings = self.store.openings([KEY_SERVER])[KEY_SERVER]

    @property
    def addresses(self) -> list[str]:
        return [KEY_SERVER]

    def deliver(self, address: str, data: Message) -> Message:
        return self._receiver.handle(data, self.party, self._at_round)

    def save(self, folder: Path) -> None:
        self.party.remembered.end_round(len(self.party.openings))
        self.store.save_key_server(folder, self.party)

    def load(self, folder: Path) -> None:
        self.store.load_key_server(folder, self.party)
        self.party.cache.clear()

    def _at_round(self, round: int) -> None:
        published = published_to(self.party.remembered.published, "all")
        self.party.facts = facts_of(self.composition, self.layout, round, published=published)


def counts_operations(recipe: Recipe) -> bool:
    """Whether parties report their costly operations."""
    return any(section.counts_operations for section in recipe.sections.values())
