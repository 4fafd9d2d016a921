"""Clients and the key server in a process: the hosts that hold them, run their messages and save their state.

A host holds some parties of one process. The local engine has one host for the clients and one for the key server;
each worker of the process engine has a separate host. The parties themselves are in `fedplug.round.parties`, what the
protocol asks of them in `fedplug.round.steps`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import mmap
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api import codec
from fedplug.api.blocks import Block, Layout, Plan, is_unchangeable, unchangeable
from fedplug.api.codec import Message
from fedplug.api.data import Model
from fedplug.api.errors import OpenedBefore, PluginError, ProtectionError, SetupError, describe
from fedplug.api.facts import Facts, Snapshots, in_force, published_to, with_published
from fedplug.api.links import ballots_of
from fedplug.api.operations import Noise
from fedplug.api.parties import Client, KeyServer, Openings, Server
from fedplug.api.roles import Ballots, stated_reveals
from fedplug.api.rows import Compared, Reports, drawn
from fedplug.mechanisms.execution import release
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug.round.checkpoint import (
    KEPT,
    Checkpoints,
    file_name,
    holding,
    read_file,
    read_states,
    write_file,
    write_states,
)
from fedplug.round.compared import Comparison
from fedplug.round.steps import Steps
from fedplug.round.world import World
from fedplug.wire.calls import Receiver
from fedplug.wire.record import KEY_SERVER, client_address


class HostedClient(Client):
    """A client with its timings, and with the model that it shares with the other clients of its process.

    Attributes:
        tells_classes: whether the server may be told how many examples of each class it has.
        comparison: of its messages with its plain values; None where the run is not recorded.
    """

    def __init__(self, client_id: int, host: ClientHost) -> None:
        super().__init__(client_id=client_id)
        self._host = host
        self.reports = Reports()
        self.previous_plan: Plan | None = None
        self.tells_classes = False
        self.comparison: Comparison | None = None
        self._released: NDArray[np.float32] | None = None
        self._balloted: set[tuple[int, str]] = set()  # rounds and components

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

    def without_past(self) -> HostedClient:
        """The same client for training that reads no private data: with no examples nor their number, no personal
        model, and only what such training remembers.
        """
        other = self.without_examples()
        other.personal, other.update, other.cache, other._examples = None, None, {}, None
        other.remembered = dataclasses.replace(
            self.remembered, retained=None, buffers=self._host.buffers, weight=1.0, accounts={}
        )
        other.state = self.state.setdefault("without examples", {})
        return other

    def forget_model(self) -> None:
        """The global model changed: the process' model must be loaded again before this client uses it."""
        if self._host.model_user is self:
            self._host.model_user = None

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the seconds of a phase to the next reply."""
        started = time.perf_counter() + self._saved
        try:
            yield
        finally:
            self.took(phase, time.perf_counter() + self._saved - started)

    def took(self, phase: str, seconds: float, spent: float | None = None) -> None:
        """Adds to the next reply what a phase takes one client.

        Args:
            phase: its name.
            seconds: that it takes a client alone.
            spent: seconds that were spent on it here and now; fewer where another client of this process has done it
                for both. None: just as many.
        """
        reports = self.reports
        reports.seconds[phase] = reports.seconds.get(phase, 0.0) + seconds
        if spent is not None:
            self.saved(seconds - spent)

    def saved(self, seconds: float) -> None:
        """Adds to the next reply what another client of this process has done for this one too."""
        super().saved(seconds)
        self.reports.seconds_total += seconds

    def collect_reports(self) -> Reports:
        reports, self.reports = self.reports, Reports()
        reports.pictures, reports.unpictured = drawn(self.figures)
        if self._host.counts:
            reports.operations = self.operations
        self.operations = {}
        return reports

    def release(self, component: Any, values: Any) -> NDArray[np.float32]:
        """See `Party.release`."""
        facts = self.facts
        if facts.round < 0:
            raise _no_ballot(component.name, "the set-up", "nobody pays")
        if (facts.round, component.name) in self._balloted:
            raise _second_ballot(component.name, facts.round)
        given = release(component, ballots_of(component.name, facts), values, self, facts)
        self._released = unchangeable(given)  # what is answered must be what has the noise
        self._balloted = {(facts.round, component.name), *(last for last in self._balloted if last[0] == facts.round)}
        return self._released

    def has_released(self, answer: Any) -> bool:
        """Whether an answer is what was released last, and nothing else."""
        return answer is self._released

    def report_unopened(self, zone: str, error: Exception) -> None:
        """Adds to the next reply that a zone's sum does not open here, and why."""
        reports, round = self.reports, self.facts.round
        reports.unopened[zone] = f"cannot open zone {zone} in round {round + 1}: {describe(error)}"
        if isinstance(error, PluginError):
            reports.failed[zone] = str(error)
        if isinstance(error, OpenedBefore):
            reports.opened_before.setdefault(zone, []).append(round)

    def hear(self, name: str, values: Mapping[str, Any]) -> None:
        """Takes what a component publishes for a public fact."""
        self._host.hear(self, name, values)

    def take_vector(self, vector: NDArray[np.float32]) -> None:
        """Adopts a global model; clients of one process that hold equal models share one array."""
        self.vector, self.update = self._host.shared(vector), None

    def save(self, share: Callable[[NDArray[Any]], str]) -> bytes:
        """Everything this client needs after a restart; `share` stores an array that others may store too."""
        plan = self.plan and {
            "labels": share(self.plan.labels), "zones": list(self.plan.zones), "whole": self.plan.whole
        }  # fmt: skip
        personal = None if self.personal is None else share(self.personal)
        own = {"vector": share(self.vector), "personal": personal, "plan": plan}
        return codec.encode({**self.to_plain(), **own})

    def load(self, data: bytes, fetch: Callable[[str], NDArray[Any]]) -> None:
        saved = codec.decode_saved(data)
        self.restore(saved)
        plan = saved["plan"]
        self.take_vector(fetch(saved["vector"]))
        self.personal = None if saved["personal"] is None else fetch(saved["personal"])
        self.plan = plan and Plan(fetch(plan["labels"]), tuple(plan["zones"]), plan["whole"])
        self.scores, self.cache, self._balloted = {}, {}, set()


class HostedServer(Server):
    """The aggregation server of a run.

    Attributes:
        released: by round and component, the clients whose ballots are in a sum to which it has added noise.
        balloting: the clients that pay for ballots now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.released: dict[tuple[int, str], set[int]] = {}
        self.balloting: frozenset[int] = frozenset()

    def release(self, component: Any, values: Any) -> NDArray[np.float32]:
        """See `Party.release`."""
        if not isinstance(values, Mapping):
            raise ProtectionError(f"component {component.name}: the server releases values by client, as a dict")
        round, clients = self.facts.round, {*values}
        if strange := clients - self.balloting:
            who = f"client {next(iter(strange))!r:.20} does not pay" if self.balloting else "nobody pays"
            raise _no_ballot(component.name, f"round {round + 1}" if round >= 0 else "the set-up", who)
        self.released = {place: whose for place, whose in self.released.items() if place[0] == round}
        before = self.released.setdefault((round, component.name), set())
        if before & clients:
            raise _second_ballot(component.name, round)
        released = release(component, ballots_of(component.name, self.facts), values, self, self.facts)
        before |= clients
        return released


class HostedKeyServer(KeyServer):
    """The key server, as a host runs it; `counts` says whether it reports its operations."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self._counts = counts

    def collect_reports(self) -> Reports:
        operations, self.operations = self.operations, {}
        return Reports(operations=operations) if self._counts else Reports()


_LEAST = 1024
"""Bytes of an array that is worth putting away."""
_ALIGNED = 64
_FILE = 1 << 28
"""Bytes of a file; it takes space on the disk as far as it is filled."""
Array = NDArray[Any]


class Residents:
    """The clients of a process that were used last; all others are put away.

    Args:
        most: how many may be in memory.
        folder: on whose disk the others lie; None: the system's folder for temporary files.
    """

    def __init__(self, most: int, folder: Path | None) -> None:
        self.most, self.folder = most, folder
        self._last: OrderedDict[int, HostedClient] = OrderedDict()
        self._there: mmap.mmap | None = None
        self._file: IO[bytes] | None = None
        self._filled = 0

    def loaded(self, client: HostedClient) -> None:
        """Notes that a client was read from its own file: what it alone holds of that can be put away from here on."""
        labels = client.plan and client.plan.labels  # which clients may share
        replace_arrays(client, np.array, lambda array: array is not labels and is_unchangeable(array))
        self.used(client)

    def used(self, client: HostedClient) -> None:
        """Notes that a client was used, and puts the one away that was not for longest, if there are too many."""
        self._last[client.client_id] = client
        self._last.move_to_end(client.client_id)
        while len(self._last) > self.most:
            self._put_away(self._last.popitem(last=False)[1])

    def _put_away(self, client: HostedClient) -> None:
        """Writes a client's arrays to a file, of which it sees copies from here on that the system reads when needed.

        Raises:
            SetupError: the file cannot be written, or not be mapped.
        """
        held: list[Array] = []

        def hold(array: Array) -> Array:
            held.append(array)
            return array

        replace_arrays(client, hold)
        if not held:
            return
        starts, size = [], 0
        for array in held:
            starts.append(size)
            size += -(-array.nbytes // _ALIGNED) * _ALIGNED
        try:
            there, begin = self._written(held, starts, size)
        except OSError as error:
            where = self.folder or tempfile.gettempdir()
            raise SetupError(
                f"a client cannot be put away in {where} ({error.strerror or error}), as --max-clients-in-memory "
                f"{self.most} asks; free space there, raise the number, or leave --max-clients-in-memory out"
            ) from error
        mapped: dict[int, Array] = {}
        for array, start in zip(held, starts, strict=True):
            copy = np.frombuffer(there, array.dtype, array.size, begin + start).reshape(array.shape)
            copy.flags.writeable = array.flags.writeable
            mapped[id(array)] = copy
        replace_arrays(client, lambda array: mapped[id(array)])

    def _written(self, held: list[Array], starts: list[int], size: int) -> tuple[mmap.mmap, int]:
        """Writes arrays behind what the file holds, and gives what maps it and where they begin.

        Every client begins on a separate page: a page that it writes to becomes private, and no longer the file's.
        """
        if self._file is None or self._there is None or self._filled + size > len(self._there):
            with contextlib.ExitStack() as opened:
                file = opened.enter_context(tempfile.TemporaryFile(dir=self.folder))
                file.truncate(max(_FILE, size))
                there = mmap.mmap(file.fileno(), max(_FILE, size), access=mmap.ACCESS_COPY)
                opened.pop_all()
            if self._file is not None:
                self._file.close()  # its map lives as long as an array does that lies there
            self._file, self._there, self._filled = file, there, 0
        begin = self._filled
        for array, start in zip(held, starts, strict=True):
            self._file.seek(begin + start)
            self._file.write(np.ascontiguousarray(array).data)
        self._file.flush()
        self._filled = begin + -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        return self._there, begin


def _is_own(array: Array) -> bool:
    """Whether a client alone holds it: one that nobody can change may be held by others too."""
    return not is_unchangeable(array)


def replace_arrays(
    client: HostedClient, change: Callable[[Array], Array], is_own: Callable[[Array], bool] = _is_own
) -> None:
    """Puts another array in the place of each large one that a client alone holds; the others stay."""

    def changes(array: Array) -> bool:
        return array.nbytes >= _LEAST and array.dtype.kind in "biuf" and is_own(array)

    def changed(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return change(value) if changes(value) else value
        if isinstance(value, Plan):
            labels = changed(value.labels)
            return value if labels is value.labels else Plan(labels, value.zones, value.whole)
        if isinstance(value, Block):
            values, positions = changed(value.values), changed(value.positions)
            same = values is value.values and positions is value.positions
            return value if same else value.replace(values=values, positions=positions)
        if type(value) is dict:
            for key in value:
                value[key] = changed(value[key])
        elif type(value) is list:
            value[:] = map(changed, value)
        return value

    client.update, client.personal = changed(client.update), changed(client.personal)
    client.plan, client.previous_plan = changed(client.plan), changed(client.previous_plan)
    client.remembered.retained = changed(client.remembered.retained)
    for kept in (client.scores, client.state):
        changed(kept)


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
        max_clients_in_memory: how many of its clients may be in memory; None: all.

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
        max_clients_in_memory: int | None = None,
    ) -> None:
        self._residents = None if max_clients_in_memory is None else Residents(max_clients_in_memory, run_dir)
        self.recipe, self.composition = recipe, composition
        steps = Steps(recipe, composition)
        self.components = {**composition.components, steps.name: steps}
        self._receiver = Receiver(
            "client", self.components, recipe.digest, run_dir, self._handings(), self._watching
        )
        world = World(recipe, composition, data_root) if world is None else world
        self.public = world.public
        self.model: Model = world.model(device)
        self.model_user: HostedClient | None = None
        self._last_vector: NDArray[np.float32] | None = None
        initial, self.buffers = unchangeable(self.model.get_vector()), self.model.get_buffers()
        sections = recipe.sections
        self.counts = counts_operations(recipe)
        self._facts: dict[tuple[int, bytes], Facts] = {}
        self.clients: dict[str, HostedClient] = {}
        openings = openings_of(map(client_address, client_ids), run_dir)
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
            client.remembered.end_round(len(client.openings))
        write_states(folder, {a: functools.partial(client.save, share) for a, client in self.clients.items()})

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote."""
        fetched: dict[str, NDArray[Any]] = {}

        def fetch(name: str) -> NDArray[Any]:
            if name not in fetched:
                fetched[name] = codec.decode_saved(read_file(folder / name))
            return fetched[name]

        for address, path, state in read_states(folder, self.clients):
            client = self.clients[address]
            with holding(path, "client's state"):
                client.load(state, fetch)
            self._at_round(client, -1)
            if self._residents is not None:
                self._residents.loaded(client)
        self.model_user = None

    def _watching(self, client: HostedClient) -> Callable[[int, bytes], Compared | None]:
        """What looks through a client's replies for its plain values."""
        if client.comparison is None:
            client.comparison = Comparison()
        return client.comparison.look

    def _handings(self) -> dict[str, Any]:
        """Of which components the answers are looked at."""
        return {name: self._handing for name, part in self.composition.components.items() if isinstance(part, Ballots)}

    @contextlib.contextmanager
    def _handing(self, component: str, method: str, client: HostedClient) -> Iterator[Callable[[Any], Any]]:
        """Looks at what a ballot's method answers: where epsilon pays for it, nothing but what was released."""
        shown = stated_reveals(client.facts.component(component), client.facts)
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
        self.party.remembered.end_round(len(self.party.openings))
        write_file(folder / file_name(KEY_SERVER), codec.encode(self.party.to_plain()))

    def load(self, folder: Path) -> None:
        path = folder / file_name(KEY_SERVER)
        data = read_file(path)
        with holding(path, "key server's state"):
            self.party.restore(codec.decode_saved(data))
        self.party.cache.clear()

    def _at_round(self, round: int) -> None:
        published = published_to(self.party.remembered.published, "all")
        self.party.facts = facts_of(self.composition, self.layout, round, published=published)


def _no_ballot(component: str, when: str, who: str) -> ProtectionError:
    return ProtectionError(
        f"component {component}: it releases ballots in {when}, where {who} for them; release those of the clients "
        "of a round, once, in form_groups, negotiate_mask or prepare"
    )


def _second_ballot(component: str, round: int) -> ProtectionError:
    return ProtectionError(
        f"component {component}: a second release of ballots in round {round + 1}, and a round is charged for one; put "
        "all values of a client into one array"
    )


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
                known[address] = max(known[address], codec.decode_saved(state)["remembered"]["opened"])
    found = {}
    for address, count in known.items():
        found[address] = Openings((run_dir / "openings" / file_name(address)).with_suffix(".jsonl"))
        found[address].require(count)
    return found
