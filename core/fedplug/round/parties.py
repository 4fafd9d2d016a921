"""Clients and the key server in a process: the hosts that hold them, run their messages and save their state.

A host holds some parties of one process. The local engine has one host for the clients and one for the key server;
each worker of the process engine has a host of its own. The parties themselves are in `fedplug.round.hosted`, what the
protocol asks of them in `fedplug.round.steps`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api import codec
from fedplug.api.codec import Message
from fedplug.api.errors import ProtectionError
from fedplug.api.handed import without
from fedplug.api.links import Step
from fedplug.api.model import Model
from fedplug.api.openings import Openings
from fedplug.api.operations import Noise
from fedplug.api.roles import Groups, Negotiation
from fedplug.api.types import Layout
from fedplug.api.unchangeable import unchangeable
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import make_context
from fedplug.round.checkpoint import KEPT, Checkpoints
from fedplug.round.hosted import HostedClient, HostedKeyServer
from fedplug.round.residents import Residents
from fedplug.round.state_files import file_name, holding, read_file, read_states, write_file, write_states
from fedplug.round.steps import Steps
from fedplug.round.world import World
from fedplug.wire.calls import Receiver
from fedplug.wire.record import KEY_SERVER, client_address

if TYPE_CHECKING:
    from fedplug.api.context import Context


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
        resident: how many of its clients may be in memory; None: all.

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
        run_dir: Path | None = None,
        world: World | None = None,
        resident: int | None = None,
    ) -> None:
        self._residents = None if resident is None else Residents(resident, run_dir)
        self.recipe, self.composition = recipe, composition
        steps = Steps(recipe, composition)
        self.components = {**composition.components, steps.name: steps}
        self._receiver = Receiver("client", self.components, recipe.digest, run_dir, self._handings())
        world = World(recipe, composition, data_root) if world is None else world
        self.public = world.public
        self.model: Model = world.model(device)
        self.model_user: HostedClient | None = None
        self._last_vector: NDArray[np.float32] | None = None
        initial, buffers = unchangeable(self.model.get_vector()), self.model.get_buffers()
        sections = recipe.sections
        self.counts = counts_operations(recipe)
        self._folded: dict[int, dict[str, tuple[Step, ...]]] = {}
        self.clients: dict[str, HostedClient] = {}
        openings = openings_of(map(client_address, client_ids), run_dir)
        for client_id, held in world.holdings(client_ids).items():
            client = HostedClient(client_id, self)
            client.said = {key: section.of_client(client_id) for key, section in sections.items()}
            client.data, client.data_root = held.data, held.folder
            client.tells_classes = held.tells_classes
            client.vector = initial
            client.openings = openings[client_address(client_id)]
            client.remembered.buffers = buffers
            self._at_round(client, -1)
            self.clients[client_address(client_id)] = client

    @property
    def addresses(self) -> list[str]:
        return list(self.clients)

    def deliver(self, address: str, data: Message) -> Message:
        """Runs a message at one of the clients and gives its reply."""
        client = self.clients[address]
        reply = self._receiver.handle(data, client, lambda round: self._at_round(client, round))
        if self._residents is not None:
            self._residents.used(client)
        return reply

    def shared(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The array with these values that was adopted last in this process, or else this one."""
        last = self._last_vector
        if last is None or (vector is not last and not np.array_equal(vector, last, equal_nan=True)):
            self._last_vector = last = unchangeable(vector)  # shared, so that no client may write to it
        return last

    def save(self, folder: Path) -> None:
        """Writes a file for all clients, and one for each array that they hold."""
        stored: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        seen: dict[int, str] = {}  # those that clients hold together need no digest each

        def share(array: NDArray[Any]) -> str:
            if id(array) not in seen:
                digest = hashlib.blake2b(np.ascontiguousarray(array).data).digest()
                name = f"{file_name(self.addresses[0])[:-6]}-array-{len(stored)}.state"
                seen[id(array)] = stored.setdefault((array.dtype.str, array.shape, digest), name)
                if seen[id(array)] == name:
                    write_file(folder / name, codec.encode(array))
            return seen[id(array)]

        for client in self.clients.values():
            memory = client.remembered
            memory.saved = memory.done  # what the server need not keep for this client any longer
            memory.opened = len(client.openings)
        write_states(folder, {a: functools.partial(client.save, share) for a, client in self.clients.items()})

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote."""
        fetched: dict[str, NDArray[Any]] = {}

        def fetch(name: str) -> NDArray[Any]:
            if name not in fetched:
                fetched[name] = codec.decode(read_file(folder / name))
            return fetched[name]

        for address, path, state in read_states(folder, self.clients):
            client = self.clients[address]
            with holding(path, "client's state"):
                client.load(state, fetch)
            self._at_round(client, -1)
            if self._residents is not None:
                self._residents.loaded(client)
        self.model_user = None

    def _handings(self) -> dict[str, Any]:
        """Around the calls of which components something has to be kept back, or looked at."""
        uses = (self.recipe.groups, self.recipe.negotiate_mask)
        return {use.name: self._handing for use in uses if use is not None}

    @contextlib.contextmanager
    def _handing(self, component: str, method: str, client: HostedClient) -> Iterator[Callable[[Any], Any]]:
        """Keeps back what a negotiation's or a group's method must not read, and looks at what it answers."""
        part = self.composition.components[component]
        if not isinstance(part, Groups | Negotiation) or client.ctx.round < 0:  # before round 1 there are no updates
            yield lambda answer: answer
            return
        asked = [shown for shown in part.reveals(client.ctx) if method in shown.asked]
        paid = any(shown.covered_by == "epsilon" for shown in asked)
        central = any(noise.trust == "central" for noise in _noises(part, client.ctx))
        noised = paid and not central and bool(_noises(part, client.ctx))

        def answered(answer: Any) -> Any:
            if noised and not client.has_released(answer):
                raise ProtectionError(
                    f"component {component}: its ballots have noise, and {method} answers with values that did not "
                    "pass through it; answer with client.release(self, name, values), and with nothing else"
                )
            return answer

        if not isinstance(part, Negotiation) or not part.plans.public:
            yield answered
        elif asked:
            before = client.plan
            yield answered
            if client.plan is not before:
                raise ProtectionError(
                    f"component {component}: its plans are public, and {method}, whose answer shows data, set one; set "
                    "it in a method that answers nothing, or write public=False in Plans"
                )
        else:
            told = (
                f"component {component}: its plans are public, so {method} is handed no examples, scores or update; "
                "name it in Reveals.asked if its answer shows some, or write public=False in Plans"
            )
            with without(client, told):
                yield answered

    def _at_round(self, client: HostedClient, round: int) -> None:
        if client.ctx is None or client.ctx.round != round:
            if round not in self._folded:  # calls of the round before come in every round
                self._folded = {round: {}, **dict([*self._folded.items()][:1])}
            client.ctx = make_context(
                self.recipe, self.composition, self.model.layout, round, client, self.public, self._folded[round]
            )


class KeyServerHost:
    """The key server in a process of its own: keys, no data, no single update.

    Args:
        recipe, composition: this process' own copies.
        layout: of the model. What is known of a sum follows from it, so that noise is scaled here as the ledger has it.
        run_dir: the run folder, in which the key server notes what it opens, or None.
    """

    def __init__(
        self, recipe: Recipe, composition: Composition, layout: Layout, run_dir: Path | None = None
    ) -> None:
        self.recipe, self.composition, self.layout = recipe, composition, layout
        steps = Steps(recipe, composition)
        self._receiver = Receiver("key_server", {**composition.components, steps.name: steps}, recipe.digest, run_dir)
        self.party = HostedKeyServer(counts=counts_operations(recipe))
        self.party.openings = openings_of([KEY_SERVER], run_dir)[KEY_SERVER]

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
        self.party.ctx = make_context(self.recipe, self.composition, self.layout, round, self.party)


def _noises(part: Groups | Negotiation, ctx: Context) -> list[Noise]:
    """Of the ballots of a round."""
    return [operation for operation in part.ballots(ctx.round, ctx) if isinstance(operation, Noise)]


def counts_operations(recipe: Recipe) -> bool:
    """Whether parties report their costly operations."""
    return any(section.counts_operations for section in recipe.sections.values())


def openings_of(addresses: Iterable[str], run_dir: Path | None) -> dict[str, Openings]:
    """What parties have opened so far, as each has noted it in the run folder; without one they begin with nothing.

    Args:
        addresses: of clients, or of the key server.
        run_dir: the run folder, or None.

    Raises:
        CheckpointError: notes are damaged, or fewer than a checkpoint knows of.
    """
    if run_dir is None:
        return {address: Openings() for address in addresses}
    known = dict.fromkeys(addresses, 0)
    checkpoints = Checkpoints(run_dir)
    for round in checkpoints.rounds()[-KEPT:]:
        with contextlib.suppress(Exception):  # damaged; resuming from it says so
            for address, _, state in read_states(checkpoints.path(round), known):
                known[address] = max(known[address], codec.decode(state)["remembered"]["opened"])
    found = {}
    for address, count in known.items():
        found[address] = Openings((run_dir / "openings" / file_name(address)).with_suffix(".jsonl"))
        found[address].require(count)
    return found
