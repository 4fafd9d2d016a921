"""Clients and the key server in a process: the hosts that hold them, run their messages and save their state.

A host holds some parties of one process. The local engine has one host for the clients and one for the key server;
each worker of the process engine has a host of its own. What the protocol asks of them is in `fedplug.round.steps`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api import codec, pictures
from fedplug.api.codec import Message
from fedplug.api.context import Client, Context, KeyServer, Party
from fedplug.api.model import Evaluation, Model
from fedplug.api.openings import Openings
from fedplug.api.types import Layout, Plan, PublicData
from fedplug.api.views import KEY_SERVER, client_address
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.checkpoint import KEPT, Checkpoints
from fedplug.round.client_data import client_data
from fedplug.round.evaluations import Evaluations
from fedplug.round.state_files import file_name, holding, read_file, write_file
from fedplug.round.steps import Steps
from fedplug.round.world import World
from fedplug.wire.calls import Receiver


class HostedClient(Client):
    """A client with its timings, and with the model that it shares with the other clients of its process."""

    def __init__(self, client_id: int, host: ClientHost) -> None:
        super().__init__(client_id=client_id)
        self._host = host
        self.reports: dict[str, Any] = {}
        self.previous_plan: Plan | None = None

    @property
    def model(self) -> Model:
        """The process' one model, loaded with this client's local state if another client used it last."""
        return self._host.model if self._host.model_user is self else self.loaded(self.local)

    @model.setter
    def model(self, model: Any) -> None:
        """The dataclass assigns its default here; the host owns the model."""

    def loaded(self, vector: NDArray[np.float32]) -> Model:
        """The process' one model, with this vector and this client's batch-norm statistics."""
        model = self._host.model
        self._host.model_user = self
        model.set_vector(vector)
        model.set_buffers(self.remembered.buffers)
        return model

    def forget_model(self) -> None:
        """The global model changed: the process' model must be loaded again before this client uses it."""
        if self._host.model_user is self:
            self._host.model_user = None

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the seconds of a phase to the next reply."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.took(phase, time.perf_counter() - started)

    def took(self, phase: str, seconds: float, spent: float | None = None) -> None:
        """Adds to the next reply what a phase takes one client.

        Args:
            phase: its name.
            seconds: that it takes a client alone.
            spent: seconds that were spent on it here and now; fewer where another client of this process has done it
                for both, more where this one did it for others. None: just as many.
        """
        reported = self.reports.setdefault("seconds", {})
        reported[phase] = reported.get(phase, 0.0) + seconds
        if spent is not None:
            self.reports["seconds_total"] = self.reports.get("seconds_total", 0.0) + seconds - spent

    def evaluated(self, members: list[int]) -> tuple[Evaluation, Evaluation]:
        """The global model on this client's share of the public test set, and on its own test examples."""
        return self._host.evaluations.of(self, members)

    def collect_reports(self) -> dict[str, Any]:
        reports, self.reports = self.reports, {}
        if self.figures:
            reports["figures"], reports["unpictured"] = pictures.take(self.figures)
        if self._host.counts:
            reports["operations"] = self.operations
        self.operations = {}
        return reports

    def take_vector(self, vector: NDArray[np.float32]) -> None:
        """Adopts a global model; clients of one process that hold equal models share one array."""
        self.vector, self.update = self._host.shared(vector), None

    def save(self, share: Callable[[NDArray[Any]], str]) -> bytes:
        """Everything this client needs to go on after a restart; `share` stores an array that others may store too."""
        plan = self.plan and {
            "labels": share(self.plan.labels), "zones": list(self.plan.zones), "shared": sorted(self.plan.shared)
        }  # fmt: skip
        personal = None if self.personal is None else share(self.personal)
        own = {"vector": share(self.vector), "personal": personal, "plan": plan}
        return codec.encode({**self.to_plain(), **own})

    def load(self, data: bytes, fetch: Callable[[str], NDArray[Any]]) -> None:
        saved = codec.decode(data)
        self.restore(saved)
        plan = saved["plan"]
        self.take_vector(fetch(saved["vector"]))
        self.personal = None if saved["personal"] is None else fetch(saved["personal"])
        self.plan = plan and Plan(fetch(plan["labels"]), tuple(plan["zones"]), frozenset(plan["shared"]))
        self.scores, self.cache = {}, {}


class ClientHost:
    """Some clients of a run in one process: their data, their state, one model.

    Args:
        recipe: this process' own copy.
        composition: this process' own components.
        client_ids: the clients it holds.
        data_root: folder of data sets, or None.
        device: `cpu`, `cuda`, ...
        run_dir: the run folder, in which the clients note what they open, or None.
        world: of the recipe, where this process has one already.
    """

    def __init__(
        self,
        recipe: Recipe,
        composition: Composition,
        client_ids: list[int],
        data_root: str | None,
        device: str,
        run_dir: Path | None = None,
        world: World | None = None,
    ) -> None:
        self.recipe, self.composition = recipe, composition
        self.steps = steps = Steps(recipe, composition)
        components = {**composition.components, steps.name: steps}
        self._receiver = Receiver("client", components, recipe.digest, run_dir)
        world = World(recipe, composition, data_root) if world is None else world
        self.public, num_clients = world.public, recipe.data.clients
        self.model: Model = world.model(device)
        self.model_user: HostedClient | None = None
        self._last_vector: NDArray[np.float32] | None = None
        self.evaluations = Evaluations(self.model, world.data, world.assignment, client_ids, recipe.seed)
        initial, buffers = self.model.get_vector(), self.model.get_buffers()
        sections = recipe.sections
        self.counts = counts_operations(recipe)
        self.clients: dict[str, HostedClient] = {}
        for client_id in client_ids:
            client = HostedClient(client_id, self)
            client.said = {key: section.of_client(client_id) for key, section in sections.items()}
            client.data_root = data_root
            client.data = client_data(world.data, world.assignment, client_id, num_clients, recipe.seed)
            client.vector = initial
            client.openings = openings_of(client_address(client_id), run_dir)
            client.remembered.buffers = buffers
            self._at_round(client, -1)
            self.clients[client_address(client_id)] = client

    @property
    def addresses(self) -> list[str]:
        return list(self.clients)

    def deliver(self, address: str, data: Message) -> Message:
        """Runs a message at one of the clients and gives its reply."""
        client = self.clients[address]
        return self._receiver.handle(data, client, lambda round: self._at_round(client, round))

    def shared(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The array with these values that was adopted last in this process, or else this one."""
        last = self._last_vector
        if last is None or (vector is not last and not np.array_equal(vector, last, equal_nan=True)):
            self._last_vector = last = vector
        return last

    def save(self, folder: Path) -> None:
        """Writes a file a client, and one file for each array that several of them hold."""
        stored: list[tuple[NDArray[Any], str]] = []

        def share(array: NDArray[Any]) -> str:
            for known, name in stored:
                if known is array or (known.dtype == array.dtype and np.array_equal(known, array)):
                    return name
            name = f"{file_name(self.addresses[0])[:-6]}-array-{len(stored)}.state"
            write_file(folder / name, codec.encode(array))
            stored.append((array, name))
            return name

        for address, client in self.clients.items():
            memory = client.remembered
            memory.saved = memory.done  # what the server need not keep for this client any longer
            memory.opened = len(client.openings)
            write_file(folder / file_name(address), client.save(share))

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote."""
        fetched: dict[str, NDArray[Any]] = {}

        def fetch(name: str) -> NDArray[Any]:
            if name not in fetched:
                fetched[name] = codec.decode(read_file(folder / name))
            return fetched[name]

        for address, client in self.clients.items():
            path = folder / file_name(address)
            data = read_file(path)
            with holding(path, "client's state"):
                client.load(data, fetch)
            self._at_round(client, -1)
        self.model_user = None

    def _at_round(self, client: HostedClient, round: int) -> None:
        if client.ctx is None or client.ctx.round != round:
            client.ctx = make_context(
                self.recipe, self.composition, self.model.layout, round, client, self.public
            )


class KeyServerHost:
    """The key server in a process of its own: keys, no data, no single update.

    Args:
        recipe, composition: this process' own copies.
        run_dir: the run folder, in which the key server notes what it opens, or None.
    """

    def __init__(self, recipe: Recipe, composition: Composition, run_dir: Path | None = None) -> None:
        self.recipe, self.composition = recipe, composition
        steps = Steps(recipe, composition)
        self._receiver = Receiver("key_server", {**composition.components, steps.name: steps}, recipe.digest, run_dir)
        self.party = HostedKeyServer(counts=counts_operations(recipe))
        self.party.openings = openings_of(KEY_SERVER, run_dir)

    @property
    def addresses(self) -> list[str]:
        return [KEY_SERVER]

    def deliver(self, address: str, data: Message) -> Message:
        return self._receiver.handle(data, self.party, self._at_round)

    def save(self, folder: Path) -> None:
        self.party.remembered.opened = len(self.party.openings)
        write_file(folder / file_name(KEY_SERVER), codec.encode(self.party.to_plain()))

    def load(self, folder: Path) -> None:
        path = folder / file_name(KEY_SERVER)
        data = read_file(path)
        with holding(path, "key server's state"):
            self.party.restore(codec.decode(data))
        self.party.cache.clear()

    def _at_round(self, round: int) -> None:
        self.party.ctx = make_context(self.recipe, self.composition, Layout(()), round, self.party)


class HostedKeyServer(KeyServer):
    """The key server, as a host runs it; `counts` says whether it reports its operations."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self._counts = counts

    def collect_reports(self) -> dict[str, Any]:
        operations, self.operations = self.operations, {}
        return {"operations": operations} if self._counts else {}


def counts_operations(recipe: Recipe) -> bool:
    """Whether parties report their costly operations."""
    return any(section.counts_operations for section in recipe.sections.values())


def openings_of(address: str, run_dir: Path | None) -> Openings:
    """What a party has opened so far, as it has noted it in the run folder; without one it begins with nothing.

    Raises:
        CheckpointError: its notes are damaged, or fewer than one of its checkpoints knows of.
    """
    if run_dir is None:
        return Openings()
    state, known = file_name(address), 0
    checkpoints = Checkpoints(run_dir)
    for round in checkpoints.rounds()[-KEPT:]:
        try:
            saved = codec.decode(read_file(checkpoints.path(round) / state))
            known = max(known, saved["remembered"]["opened"])
        except Exception:
            continue  # damaged; whoever resumes from it is told
    openings = Openings((run_dir / "openings" / state).with_suffix(".jsonl"))
    openings.require(known)
    return openings


def make_context(
    recipe: Recipe,
    composition: Composition,
    layout: Layout,
    round: int,
    party: Party,
    public: PublicData | None = None,
) -> Context:
    """The public facts of a round for one party."""
    return Context(
        round=round,
        rounds=recipe.rounds,
        layout=layout,
        zones=recipe.zones,
        num_clients=recipe.data.clients,
        min_clients=recipe.min_clients,
        seed=recipe.seed,
        digest=recipe.digest,
        party=party,
        components=composition.components,
        public=public,
        links=composition.links,
    )
