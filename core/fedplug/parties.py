"""Clients and the key server at work: what the protocol itself asks of them, and the host that runs them.

A host holds some parties of one process. The local engine has one host for the clients and one for the key server;
each worker of the process engine has a host of its own. The steps below are the protocol's own methods at a client;
everything that differs between protocols is in the recipe's components.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedplug import codec, secrets
from fedplug.calls import Receiver
from fedplug.client_data import client_data, slice_of_test
from fedplug.component import at_client, at_key_server
from fedplug.composition import Composition
from fedplug.context import Client, Context, KeyServer, Party, stream
from fedplug.errors import CheckpointError, ProtectionError
from fedplug.model import Model
from fedplug.recipe import Recipe
from fedplug.types import RETAINED, Block, Layout, Plan
from fedplug.views import KEY_SERVER, client_address


class Steps:
    """What the protocol itself runs at the clients and at the key server."""

    name = "fedplug"

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        self.recipe, self.composition = recipe, composition

    @at_client
    def join(self, client: HostedClient, wants_secret: bool, wants_size: bool) -> dict[str, Any]:
        """Says hello before round 1: a public key for the cohort secret, the number of examples if weights need it."""
        hello: dict[str, Any] = {}
        if wants_size:
            hello["num_examples"] = client.num_examples
        if wants_secret:
            client.cache["hpke"], hello["public_key"] = secrets.key_pair()
        return hello

    @at_client
    def deal(self, client: HostedClient, public_keys: dict[int, bytes]) -> dict[int, bytes]:
        """Draws the cohort secret and seals a copy for each client; runs at one client."""
        secret = secrets.draw()
        return {
            client_id: secrets.seal(secret, key, _secret_purpose(client.ctx.digest, client_id))
            for client_id, key in public_keys.items()
        }

    @at_client
    def take_secret(self, client: HostedClient, sealed: dict[int, bytes]) -> None:
        """Opens this client's copy of the cohort secret."""
        purpose = _secret_purpose(client.ctx.digest, client.client_id)
        secret = secrets.unseal(sealed[client.client_id], client.cache.pop("hpke"), purpose)
        client.state["fedplug"]["cohort_secret"] = secret

    @at_client
    def take_weight(self, client: HostedClient, max_examples: int) -> None:
        """Learns the largest data set's size, from which the aggregator's weight of this client follows."""
        aggregator = self.composition.components[self.recipe.aggregate.name]
        client.weight = float(aggregator.client_weight(client.num_examples, max_examples))
        client.state["fedplug"]["weight"] = client.weight

    @at_client
    def ready(self, client: HostedClient) -> bool:
        """The end of the set-up: everything told so far has worked."""
        return True

    @at_client
    def train(self, client: HostedClient) -> None:
        """Trains the global model on this client's data and scores the update."""
        client.previous_plan, client.plan = client.plan, None
        client.scores, client.update = {}, None
        model = client.model
        model.set_vector(client.vector)
        with client.timed("train"):
            numbers = self.composition.components[self.recipe.train.name].train(client, client.ctx)
            client.update = model.get_vector() - client.vector
        client.reports["train"] = {key: float(value) for key, value in numbers.items()}
        client.state["fedplug"]["buffers"] = model.get_buffers()
        with client.timed("score"):
            names = [use.name for use in self.recipe.score_parameters]
            client.scores = self.composition.each("score_parameters", names, client=client, ctx=client.ctx)

    @at_client
    def protect(self, client: HostedClient) -> dict[str, Any]:
        """Cuts the update into the plan's zones and protects each; what comes out is what the server sees."""
        if client.plan is None or client.update is None:
            raise ProtectionError(
                f"client {client.client_id} has no plan in round {client.ctx.round + 1}; the negotiation must set "
                "client.plan"
            )
        plan, blocks, sizes = client.plan, {}, client.plan.sizes()
        with client.timed("protect"):
            for zone, size in sizes.items():
                if zone == RETAINED or not size:
                    continue
                where = plan.positions(zone)
                positions = None if zone in plan.shared else where
                block = Block(zone, size, client.update[where], positions, divisor=client.weight)
                chain = [use.name for use in self.recipe.protect[zone]]
                block = self.composition.chain("protect", chain, block, client=client, ctx=client.ctx)
                blocks[zone] = block.replace(l2_bound=None)
        upload: dict[str, Any] = {"blocks": blocks}
        if self.recipe.buffers == "mean":
            upload["buffers"] = client.state["fedplug"]["buffers"]
        client.reports["zones"] = {zone: size / plan.labels.size for zone, size in sizes.items()}
        if client.previous_plan is not None:
            client.reports["churn"] = np.count_nonzero(plan.labels != client.previous_plan.labels) / plan.labels.size
        client.reports["log"] = dict(client.log)
        client.log.clear()
        return upload

    @at_client
    def adopt(self, client: HostedClient, blocks: dict[str, Block], buffers: dict[str, Any] | None) -> None:
        """Opens the aggregate as far as this client must, and moves the global model by its mean."""
        vector = client.vector.copy()
        with client.timed("open"):
            for zone, block in blocks.items():
                for use in self.recipe.postprocess.get(zone, []):
                    if site_of(self.composition.components[use.name]) == "client":
                        block = self.composition.one("postprocess", use.name, block=block, ctx=client.ctx)
                where = block.positions
                if where is None:
                    if client.plan is None:
                        raise ProtectionError(f"client {client.client_id} does not know where the {zone} zone lies")
                    where = client.plan.positions(zone)
                vector[where] += block.mean()
        client.take_vector(vector)
        client.forget_model()
        if buffers is not None:
            client.state["fedplug"]["buffers"] = buffers

    @at_client
    def evaluate(self, client: HostedClient, members: list[int]) -> None:
        """Evaluates the global model on this client's share of the public test set, and on test data like its own."""
        with client.timed("evaluate"):
            model, data = client.model, client.data
            model.set_vector(client.vector)
            model.set_buffers(client.state["fedplug"]["buffers"])
            share = slice_of_test(members.index(client.client_id), len(members), len(data.shared_test))
            public = model.evaluate(data.shared_test.take(share), data)
            own = model.evaluate(data.own_test, data)
        client.reports["evaluation"] = {
            "correct": public.correct, "count": public.count, "loss": public.loss,
            "own_correct": own.correct, "own_count": own.count,
        }  # fmt: skip

    @at_client
    def fingerprint(self, client: HostedClient) -> bytes:
        """A digest of the global model this client ended with: all clients of a group must agree."""
        return hashlib.blake2b(client.vector.tobytes(), digest_size=16).digest()

    @at_key_server
    def open(self, key_server: KeyServer, component: str, block: Block) -> Block:
        """Opens a sum for the server. Refuses sums of fewer than `min_clients` updates."""
        least = key_server.ctx.min_clients
        if block.contributors < least:
            raise ProtectionError(
                f"a sum of {block.contributors} updates would show too much of each; min_clients is {least}"
            )
        opened: Block = self.composition.one("postprocess", component, block=block, ctx=key_server.ctx)
        return opened


def site_of(component: Any) -> str:
    """Where the component's `postprocess` runs: `client` unless it says otherwise."""
    return str(getattr(component, "site", "client"))


def _secret_purpose(digest: str, client_id: int) -> bytes:
    return f"cohort secret of {digest} for client {client_id}".encode()


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
        model = self._host.model
        if self._host.model_user is not self:
            self._host.model_user = self
            local = self.vector if self.update is None else self.vector + self.update
            model.set_vector(local)
            model.set_buffers(self.state["fedplug"]["buffers"])
        return model

    @model.setter
    def model(self, model: Any) -> None:
        """The dataclass assigns its default here; the host owns the model."""

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
            seconds = self.reports.setdefault("seconds", {})
            seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - started

    def collect_reports(self) -> dict[str, Any]:
        reports, self.reports = self.reports, {}
        return reports

    def take_vector(self, vector: NDArray[np.float32]) -> None:
        """Adopts a global model; clients of one process that hold equal models share one array."""
        self.vector, self.update = self._host.shared(vector), None

    def save(self, share: Callable[[NDArray[Any]], str]) -> bytes:
        """Everything this client needs to go on after a restart; `share` stores an array that others may store too."""
        plan = self.plan and {
            "labels": share(self.plan.labels), "zones": list(self.plan.zones), "shared": sorted(self.plan.shared)
        }  # fmt: skip
        return codec.encode({"state": self.state, "vector": share(self.vector), "plan": plan})

    def load(self, data: bytes, fetch: Callable[[str], NDArray[Any]]) -> None:
        saved = codec.decode(data)
        self.state, plan = saved["state"], saved["plan"]
        self.take_vector(fetch(saved["vector"]))
        self.plan = plan and Plan(fetch(plan["labels"]), tuple(plan["zones"]), frozenset(plan["shared"]))
        self.scores, self.cache = {}, {}
        self.weight = self.state["fedplug"].get("weight", 1.0)


class ClientHost:
    """Some clients of a run in one process: their data, their state, one model.

    Args:
        recipe: this process' own copy.
        composition: this process' own components.
        client_ids: the clients it holds.
        data_root: folder of data sets, or None.
        device: `cpu`, `cuda`, ...
    """

    def __init__(
        self, recipe: Recipe, composition: Composition, client_ids: list[int], data_root: str | None, device: str
    ) -> None:
        self.recipe, self.composition = recipe, composition
        steps = Steps(recipe, composition)
        components = {**composition.components, steps.name: steps}
        self._receiver = Receiver("client", components, recipe.digest)
        data = composition.components[recipe.data.name].load(data_root)
        num_clients = recipe.data.clients
        partition = composition.components[recipe.data.partition.name]
        assignment = partition.assign(data.train.labels, num_clients, stream(recipe.seed, "partition"))
        model_component = composition.components[recipe.model.name]
        self.model: Model = model_component.build(data.shape, len(data.classes), recipe.seed, device)
        self.model_user: HostedClient | None = None
        self._last_vector: NDArray[np.float32] | None = None
        initial, buffers = self.model.get_vector(), self.model.get_buffers()
        self.clients: dict[str, HostedClient] = {}
        for client_id in client_ids:
            client = HostedClient(client_id, self)
            client.data = client_data(data, assignment, client_id, num_clients, recipe.seed)
            client.vector = initial
            client.state["fedplug"] = {"done": 0, "buffers": buffers}
            self._at_round(client, -1)
            self.clients[client_address(client_id)] = client

    @property
    def addresses(self) -> list[str]:
        return list(self.clients)

    def deliver(self, address: str, data: bytes) -> bytes:
        """Runs a message at one of the clients and gives its reply."""
        client = self.clients[address]
        return self._receiver.handle(data, client, lambda round: self._at_round(client, round))

    def shared(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The array with these values that was adopted last in this process, or else this one."""
        if self._last_vector is None or not np.array_equal(vector, self._last_vector, equal_nan=True):
            self._last_vector = vector
        return self._last_vector

    def save(self, folder: Path) -> None:
        """Writes a file a client, and one file for each array that several of them hold."""
        stored: list[tuple[NDArray[Any], str]] = []

        def share(array: NDArray[Any]) -> str:
            for known, name in stored:
                if known is array or np.array_equal(known, array):
                    return name
            name = f"{file_name(self.addresses[0])[:-6]}-array-{len(stored)}.state"
            write_file(folder / name, codec.encode(array))
            stored.append((array, name))
            return name

        for address, client in self.clients.items():
            write_file(folder / file_name(address), client.save(share))

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote."""
        fetched: dict[str, NDArray[Any]] = {}

        def fetch(name: str) -> NDArray[Any]:
            if name not in fetched:
                fetched[name] = codec.decode(read_file(folder / name))
            return fetched[name]

        for address, client in self.clients.items():
            client.load(read_file(folder / file_name(address)), fetch)
            self._at_round(client, -1)
        self.model_user = None

    def _at_round(self, client: HostedClient, round: int) -> None:
        if client.ctx is None or client.ctx.round != round:
            client.ctx = make_context(self.recipe, self.composition, self.model.layout, round, client)


class KeyServerHost:
    """The key server in a process of its own: keys, no data, no single update."""

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        self.recipe, self.composition = recipe, composition
        steps = Steps(recipe, composition)
        self._receiver = Receiver("key_server", {**composition.components, steps.name: steps}, recipe.digest)
        self.party = HostedKeyServer()

    @property
    def addresses(self) -> list[str]:
        return [KEY_SERVER]

    def deliver(self, address: str, data: bytes) -> bytes:
        return self._receiver.handle(data, self.party, self._at_round)

    def save(self, folder: Path) -> None:
        write_file(folder / file_name(KEY_SERVER), codec.encode(self.party.state))

    def load(self, folder: Path) -> None:
        self.party.state = codec.decode(read_file(folder / file_name(KEY_SERVER)))
        self.party.cache.clear()

    def _at_round(self, round: int) -> None:
        self.party.ctx = make_context(self.recipe, self.composition, Layout(()), round, self.party)


class HostedKeyServer(KeyServer):
    """The key server, as a host runs it."""

    def collect_reports(self) -> dict[str, Any]:
        return {}


def make_context(recipe: Recipe, composition: Composition, layout: Layout, round: int, party: Party) -> Context:
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
    )


def file_name(address: str) -> str:
    """`client:3` -> `client-3.state`."""
    return address.replace(":", "-") + ".state"


def write_file(path: Path, body: bytes) -> None:
    """Writes a framed file that only its owner may read.

    Not forced to disk: a killed process loses nothing that it has written, and after a power failure the checksum tells
    a half-written file, with the checkpoint before it to go back to.
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(codec.frame(body))


def read_file(path: Path) -> bytes:
    """Reads what `write_file` wrote.

    Raises:
        CheckpointError: the file is missing, truncated or altered.
    """
    try:
        return codec.unframe(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing from the checkpoint") from error
    except Exception as error:
        raise CheckpointError(f"{path} is damaged ({error})") from error
