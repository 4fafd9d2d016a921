"""Small components that misbehave in known ways, and a way to run a recipe without the command line.

The classes live in a module of their own, because worker processes import them by name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import signal
import struct
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, Literal

import fedplug
import numpy as np
from fedplug import (
    Adds,
    Block,
    Bound,
    Client,
    Cohort,
    Context,
    Dataset,
    Effects,
    Examples,
    Field,
    Finds,
    Known,
    Model,
    Noise,
    Plan,
    Plans,
    Reveals,
    Server,
    Wants,
    add_blocks,
    at_client,
    hookimpl,
)
from fedplug.api import codec  # fmt: skip
from fedplug.api.events import Events, RoundClosed
from fedplug.api.rows import Row
from fedplug.api.types import CLEAR, ENCRYPTED, NOISED, RETAINED, Scores
from fedplug.engines.base import TIMEOUT, Engine, Job
from fedplug.engines.local import LocalEngine
from fedplug.engines.processes import ProcessEngine
from fedplug.privacy.ledger import Ledger
from fedplug.privacy.ledger_log import RoundEntry
from fedplug.privacy.ledger_setup import ledger_of
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.opening import needs_key_server
from fedplug.round.protocol import Protocol
from fedplug.round.state_files import read_file
from fedplug.round.world import World
from fedplug.runs.bookkeeping import Bookkeeping
from fedplug.wire.record import Message, Wire
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import View
from fedplug_kit.world import Notes
from fedplug_std._dataset_files import dataset, digits
from fedplug_std.bfv import Bfv
from fedplug_std.datasets import Digits
from numpy.typing import NDArray


class Toy(fedplug.Component):
    """Keeps its options."""

    class Options(fedplug.Options):
        """No options."""


class Push(Toy, fedplug.Trainer):
    """Instead of training, move every parameter by a known amount: see `pushed`."""

    class Options(fedplug.Options):
        """How far."""

        scale: float = Field(0.01, ge=0, description="standard deviation of the move")

    def train(self, client: Client, ctx: Context) -> dict[str, float]:
        """Sets the model to the global one plus the move of this client and round."""
        move = self.options.scale * client.rng(self).standard_normal(ctx.layout.size)
        client.model.set_vector(client.vector + move.astype(np.float32))
        return {"loss": 0.0}


def pushed(vector: NDArray[np.float32], seed: int, client_id: int, round: int, scale: float = 0.01) -> Any:
    """The update that `toy.push` gives: float32 (P,)."""
    rng = fedplug.stream(seed, client_id, round, "toy.push")
    return vector + (scale * rng.standard_normal(len(vector))).astype(np.float32) - vector


class Fail(Toy, fedplug.Scorer, fedplug.Protector):
    """Raise, or kill the worker process, at one client in one round; otherwise do nothing."""

    class Options(fedplug.Options):
        """Where and how."""

        clients: tuple[int, ...] = Field((), description="at which clients")
        rounds: tuple[int, ...] = Field((0,), description="in which rounds, 0-based")
        how: Literal["raise", "kill", "send_object"] = Field("raise", description="what happens")

    def _fail(self, client: Client) -> None:
        if client.client_id in self.options.clients and client.ctx.round in self.options.rounds:
            if self.options.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the toy broke")

    @hookimpl
    def score_parameters(self, client: Client, ctx: Context) -> Scores:
        """Fails after training."""
        self._fail(client)
        return np.zeros(ctx.layout.size, np.float32)

    def effects(self, known: Known, ctx: Context) -> Effects | None:
        """It leaves values as they are; what is stated of a block is compared, so an odd one comes without."""
        return None if self.options.how == "send_object" else ()

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """Fails before the upload, or puts something into it that may not travel."""
        if self.options.how == "send_object" and client.client_id in self.options.clients:
            return block.replace(meta={"oops": object()})
        self._fail(client)
        return block


class Draws(Toy, fedplug.Scorer):
    """Log a draw from each generator that all of a process shares."""

    @hookimpl
    def score_parameters(self, client: Client, ctx: Context) -> Scores:
        """Scores are all 0."""
        import torch

        draws = {"numpy": float(np.random.standard_normal()), "torch": float(torch.randn(()))}
        client.log.update({f"{self.name}.{library}.{client.client_id}": drawn for library, drawn in draws.items()})
        return np.zeros(ctx.layout.size, np.float32)


class Own(Toy, fedplug.Negotiation):
    """Client k keeps every position j with j % K == k to itself and sends the rest in the clear."""

    plans = Plans(zones=frozenset({CLEAR, RETAINED}), own=frozenset({CLEAR, RETAINED}))

    @hookimpl
    def negotiate_mask(self, cohort: Cohort, ctx: Context) -> None:
        """Tells every client to make its own plan."""
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        size, zones = client.ctx.layout.size, client.ctx.zones
        keep = np.arange(size) % client.ctx.num_clients == client.client_id
        client.plan = Plan.of(CLEAR, size, zones, **{RETAINED: keep})


class Keep(Toy, fedplug.Opener):
    """Eq. 27 of SelectiveShield: keep the local values of the retained zone, take the global ones elsewhere."""

    def opens(self, known: Known, ctx: Context) -> Effects:
        """The block leaves as it came."""
        return ()

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        """Makes the client's own model."""
        client = ctx.party
        assert isinstance(client, Client)
        client.personal = client.vector.copy()
        client.personal[block.positions] = block.plain()
        return block


WIDTH = 10
"""Neighbouring positions that the masks of `toy.masks` and the ciphertexts of `toy.narrow_bfv` take together."""


class NarrowBfv(Bfv):
    """BFV with few positions a ciphertext, so that masks are hardly widened."""

    name = "toy.narrow_bfv"
    slots = 1 + WIDTH // 2  # two positions a slot, and one slot counts the clients
    position_block = WIDTH


class Masks(Toy, fedplug.Negotiation):
    """Client k encrypts the tens of positions whose number modulo K is k or k+1; the rest is clear."""

    class Options(fedplug.Options):
        """Where the rest goes."""

        rest: str = Field(CLEAR, description="zone of what a client does not encrypt")

    @property
    def plans(self) -> Plans:
        """The zones that its plans can hold."""
        zones = frozenset({ENCRYPTED, self.options.rest})
        return Plans(zones=zones, own=zones)

    @hookimpl
    def negotiate_mask(self, cohort: Cohort, ctx: Context) -> None:
        """Tells every client to make its own plan."""
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        size, zones, count = client.ctx.layout.size, client.ctx.zones, client.ctx.num_clients
        mine = np.isin((np.arange(size) // WIDTH - client.client_id) % count, (0, 1))
        client.plan = Plan.of(self.options.rest, size, zones, **{ENCRYPTED: mine})


class Halves(Toy, fedplug.Groups):
    """Two groups, of clients with even and with odd numbers, formed once from ballots with noise."""

    class Options(fedplug.Options):
        """Where the noise comes from."""

        source: Literal["secure", "reproducible"] = Field("secure", description="of the noise")

    def form_groups(self, cohort: Cohort, ctx: Context) -> None:
        """Asks everyone in round 1."""
        if ctx.round == 0:
            parity = cohort.ask(self.parity)
            cohort.regroup({n: [c for c, odd in parity.items() if odd == (n == "odd")] for n in ("even", "odd")})

    @at_client
    def parity(self, client: Client) -> bool:
        """Whether this client's number is odd."""
        return client.client_id % 2 == 1

    def ballots(self, round: int, ctx: Context) -> Effects:
        """What the ballots of round 1 cost."""
        noise = Noise(mechanism="gaussian", scale=2.0, source=self.options.source)
        return (Bound(1.0), noise) if round == 0 else ()

    def reveals(self, ctx: Context) -> list[Reveals]:
        """The ballots are paid for."""
        return [Reveals("ballots", ("aggregator",), covered_by="epsilon", asked=("parity",))]


class Silent(Toy, fedplug.Negotiation):
    """Client 0 retains everything, so it sends nothing; the others send all in the clear."""

    plans = Plans(zones=frozenset({CLEAR, RETAINED}), own=frozenset({CLEAR, RETAINED}))

    @hookimpl
    def negotiate_mask(self, cohort: Cohort, ctx: Context) -> None:
        """Tells every client to make its own plan."""
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        size, zones = client.ctx.layout.size, client.ctx.zones
        client.plan = Plan.of(RETAINED if client.client_id == 0 else CLEAR, size, zones)


class Groups(Toy, fedplug.Negotiation):
    """Two groups, of clients with even and with odd numbers; everything in one zone."""

    class Options(fedplug.Options):
        """The zone."""

        zone: str = Field(CLEAR, description="the zone that holds every scalar")

    @property
    def plans(self) -> Plans:
        """The zones that its plans can hold."""
        return Plans(zones=frozenset({self.options.zone}), public=True)

    @hookimpl
    def negotiate_mask(self, cohort: Cohort, ctx: Context) -> None:
        """Regroups once, and tells every client the plan."""
        if ctx.round == 0:
            everyone = range(ctx.num_clients)
            cohort.regroup({"even": [c for c in everyone if c % 2 == 0], "odd": [c for c in everyone if c % 2]})
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        client.plan = Plan.single(self.options.zone, client.ctx.layout.size, client.ctx.zones)


class MasksOfTheCohort(Toy, fedplug.Negotiation):
    """The zone of every scalar follows from who takes part."""

    plans = Plans(zones=frozenset({CLEAR, NOISED}))

    @hookimpl
    def negotiate_mask(self, cohort: Cohort, ctx: Context) -> None:
        """Tells the sum of the numbers of those who do."""
        cohort.tell(self.choose, sum(cohort.client_ids) % 7)

    @at_client
    def choose(self, client: Client, number: int) -> None:
        """Sets the plan, alike at every client."""
        size, zones = client.ctx.layout.size, client.ctx.zones
        client.plan = Plan.of(NOISED, size, zones, shared=zones, **{CLEAR: np.arange(size) % 7 == number})


class Asks(Toy, fedplug.Negotiation):
    """Everything in the clear, after a question that says what a component sees at a client."""

    plans = Plans(zones=frozenset({CLEAR}))

    class Options(fedplug.Options):
        """The question."""

        question: Literal["model", "first", "unmarked", "nothing"] = Field("nothing", description="what is asked")

    @hookimpl
    def negotiate_mask(self, cohort: Cohort, ctx: Context) -> None:
        """Asks, and keeps the answers in the server's memory."""
        if self.options.question == "unmarked":
            cohort.ask(self.unmarked)
        elif self.options.question == "first":
            cohort.only(cohort.client_ids[:1]).ask(self.see)
        elif self.options.question == "model":
            cohort.ask(self.see)
            answers = cohort.ask(self.see)  # a message of its own, after the process has served other clients
            cohort.server.memory(self)[str(ctx.round)] = list(answers.values())
        if self.options.question != "nothing":
            cohort.tell(self.choose)

    @at_client
    def see(self, client: Client) -> str:
        """A digest of the local model, buffers included."""
        digest = hashlib.sha256(client.model.get_vector().tobytes())
        for name, value in sorted(client.model.get_buffers().items()):
            digest.update(name.encode() + value.tobytes())
        return digest.hexdigest()

    def unmarked(self, client: Client) -> int:
        """What a server may not call."""
        return client.num_examples

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        client.plan = Plan.single(CLEAR, client.ctx.layout.size, client.ctx.zones)


class Spy(Toy, fedplug.Attack):
    """Count what the view of an attack holds."""

    finds = Finds(
        needs=Needs(update=False, model=False, loss=None, classification=False), what=frozenset(),
        headline=("", "high"), success=("", ">=", float("inf")),
    )  # fmt: skip

    @hookimpl
    def attack(self, view: View, ctx: Context) -> AttackReport:
        """How many messages and uploads there are, and how much of them can be read."""
        uploads = [block for _, _, blocks in view.uploads() for block in blocks.values()]
        return AttackReport("success", {
            "messages": len(view.messages),
            "bytes": sum(message.size for message in view.messages),
            "to_clients": sum(message.receiver.startswith("client:") for message in view.messages),
            "uploads": len({(round, client_id) for round, client_id, _ in view.uploads()}),
            "readable": sum(block.values is not None for block in uploads),
            "sealed": sum(block.values is None for block in uploads),
        })  # fmt: skip


class Peek(Toy, fedplug.Aggregator):
    """FedAvg's mean by a server that looks: it notes what it was given, and what it knows of the model."""

    wants = Wants(model=True, positions=True)
    seen: ClassVar[list[dict[str, Any]]] = []

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        """All alike."""
        return 1.0

    def sums(self, known: Known, ctx: Context) -> Effects:
        """A weighted sum."""
        return (Adds(),)

    @hookimpl
    def aggregate(self, blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Block:
        """Notes, and adds."""
        server = ctx.party
        assert isinstance(server, Server)
        facts = {"vector": server.vector, "uploads": server.uploads, "blocks": blocks, "public": ctx.public}
        self.seen.append(facts | {"layout": server.model and server.model.layout})
        return add_blocks(blocks, weights, ctx)


class AskAgain(Toy, fedplug.Opener):
    """While a sum is opened at the server, ask the clients in it how they are."""

    site = "server"
    heard: ClassVar[list[dict[int, int]]] = []

    def opens(self, known: Known, ctx: Context) -> Effects:
        """The sum leaves as it came."""
        return ()

    def reveals(self, ctx: Context) -> list[Reveals]:
        """Numbers that everybody knows."""
        return [Reveals("numbers of clients", ("aggregator",), covered_by="nothing to pay", asked=("answer",))]

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        """Asks."""
        server = ctx.party
        assert isinstance(server, Server)
        assert server.cohort is not None
        self.heard.append(server.cohort.ask(self.answer))
        return block

    @at_client
    def answer(self, client: Client) -> int:
        """Its number."""
        return client.client_id


class Offset(Toy, fedplug.Trainer):
    """A model of its own without a retained zone: the global one, plus what this client keeps to itself."""

    def personalise(self, client: Client, ctx: Context) -> None:
        """client k is k ahead of the global model."""
        client.personal = client.vector + np.float32(client.client_id)

    def train(self, client: Client, ctx: Context) -> dict[str, float]:
        """Moves by one."""
        assert np.array_equal(client.start, client.vector + np.float32(client.client_id))
        client.model.set_vector(client.start + np.float32(1))
        return {"loss": 0.0}


class TinyDigits(Digits):
    """Zeros and ones, four pixels wide: 34 parameters, for an encryption that takes milliseconds for each of them."""

    def load(self, root: str | None) -> Dataset:
        """Gives the data set; `root` is not needed."""
        chosen = [half.take(np.flatnonzero(half.labels < 2)) for half in digits()]
        train, test = (Examples(half.inputs[:, :, ::2, ::2].copy(), half.labels) for half in chosen)
        return dataset(train, test, self.options, ("0", "1"), (0.3,), (0.4,))


class Stripes(Toy, fedplug.DataSource):
    """A segmentation in which a pixel is foreground where the image is bright."""

    def load(self, root: str | None) -> Dataset:
        """40 images for training, 12 for testing, 6x6."""
        rng = np.random.default_rng(3)

        def split(count: int) -> Examples:
            bright = rng.random((count, 6, 6)) < 0.3
            inputs = np.where(bright, 200, 60).astype(np.uint8)[:, None]
            return Examples(inputs, np.arange(count) % 2, bright.astype(np.uint8), bright.astype(np.uint8))

        return Dataset(split(40), split(12), ("dark", "bright"), (0.5,), (0.25,), ("even", "odd"), ("bright",))


class Pixelwise(Toy, fedplug.ModelSource):
    """One logit a class for each pixel, from that pixel alone."""

    class Options(fedplug.Options):
        broken: bool = False

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """The share of bright pixels that were seen as such."""
        if self.options.broken:  # type: ignore[attr-defined]
            raise ValueError("no such count")
        return {"bright seen": counts["seen"] / counts["bright"]}

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        """A 1x1 convolution."""
        import torch
        from fedplug_std.torch_model import TorchModel, seeded

        with seeded(seed):
            module = torch.nn.Sequential(torch.nn.Conv2d(shape[0], num_classes, 1))

        def count(predicted: torch.Tensor, answers: torch.Tensor) -> dict[str, float]:
            return {"bright": int(answers.sum()), "seen": int((predicted & answers).sum())}

        return TorchModel(module, device, count)


TOYS: dict[str, dict[str, type]] = {
    "dataset": {"toy.stripes": Stripes, "toy.tiny_digits": TinyDigits},
    "model": {"toy.pixelwise": Pixelwise},
    "trainer": {"toy.push": Push, "toy.offset": Offset},
    "score_parameters": {"toy.fail": Fail, "toy.draws": Draws},
    "protect": {"toy.fail": Fail, "toy.narrow_bfv": NarrowBfv},
    "aggregate": {"toy.peek": Peek},
    "postprocess": {"toy.keep": Keep, "toy.narrow_bfv": NarrowBfv, "toy.ask_again": AskAgain},
    "groups": {"toy.halves": Halves},
    "negotiate_mask": {
        "toy.masks": Masks, "toy.own": Own, "toy.silent": Silent, "toy.groups": Groups, "toy.asks": Asks,
        "toy.masks_of_the_cohort": MasksOfTheCohort,
    },
    "attack": {"toy.spy": Spy},
}  # fmt: skip


@functools.cache
def _installed() -> Catalog:
    return Catalog.discover()


def toy_catalog() -> Catalog:
    """The installed components and the toys."""
    installed = Catalog(_installed().groups)
    for group, classes in TOYS.items():
        for name, found in classes.items():
            value = f"{found.__module__}:{found.__qualname__}"
            installed.groups[group][name] = Entry(name, group, value, "toys", "0", found)
    return installed


# -- recipes -----------------------------------------------------------------------------------------------------------


def recipe_of(zone: str = CLEAR, chain: list[Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The whole model in one zone: FedAvg unless told otherwise. 4 clients, a linear model on digits, 2 rounds."""
    chain = chain or []
    sealed = [use["use"] for use in chain if isinstance(use, dict) and use["use"] in ("std.bfv", "std.ckks")]
    plain: dict[str, Any] = {
        "name": "toy", "seed": 7, "rounds": 2,
        "data": {"use": "std.digits", "clients": 4, "partition": {"use": "std.dirichlet", "alpha": 0.5}},
        "model": {"use": "std.mlp", "hidden": []},
        "train": {"use": "std.sgd", "epochs": 1, "batch_size": 32, "lr": 0.05},
        "negotiate_mask": {"use": "std.single_zone", "zone": zone},
        "protect": {zone: chain},
        "aggregate": {"use": "std.mean"},
        "postprocess": {zone: sealed} if sealed else {},
    }  # fmt: skip
    return plain | changes


UNANIMOUS = {"use": "std.random", "shared": True}
"""A scorer with which all clients nominate alike: no votes tie, so that a vote has one outcome, whatever its key."""


def paraaegis(
    ratio: float = 0.3, *, seal: dict[str, Any] | None = None, noised: list[Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """ParaAegis in the same small setting, with BFV and reproducible noise unless told otherwise."""
    seal = seal or {"use": "std.bfv", "key_holder": "clients"}
    noise = {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5, "source": "reproducible"}
    noised = [{"use": "std.clip", "norm": 1.0}, noise] if noised is None else noised
    decay = changes.pop("decay", 1.0)
    zones: dict[str, Any] = {"encrypted": [seal]} if ratio > 0 else {}
    if ratio < 1 or decay < 1:
        zones["noised"] = noised
    plain = recipe_of(
        negotiate_mask={"use": "paraaegis.vote", "ratio": ratio, "decay": decay},
        score_parameters=[{"use": "paraaegis.magnitude"}],
        protect=zones,
        postprocess={"encrypted": [seal["use"]]} if ratio > 0 else {},
    )
    return plain | changes


# -- running -----------------------------------------------------------------------------------------------------------


class Watched(Protocol):
    """A protocol with the books that are kept of it."""

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
    """A finished run: everything that a test may want to look at."""

    protocol: Watched
    wire: Wire
    notes: list[str]
    vectors: dict[int, NDArray[np.float32]]
    files: dict[str, bytes]

    @property
    def rows(self) -> list[Row]:
        """The metrics, one a round."""
        return self.protocol.rows

    @property
    def vector(self) -> NDArray[np.float32]:
        """The final model, on which all clients agree."""
        vectors = list(self.vectors.values())
        assert all(np.array_equal(vectors[0], vector) for vector in vectors), "the clients hold different models"
        return vectors[0]

    def sent(self, receiver: str | None = None, sender: str | None = None, round: int | None = None) -> list[Message]:
        """The recorded messages to or from somebody, in a round."""
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
    composition = Composition(recipe, catalog)
    parties = Recipe.from_plain(plain, catalog)
    key_server = needs_key_server(composition)
    world = World(recipe, composition, data_root)
    model, public = world.model("cpu"), world.public
    job = Job(
        parties.to_plain(), workers=workers, key_server=key_server, catalog=catalog, layout=model.layout,
        timeout=timeout, data_root=data_root,
    )  # fmt: skip
    engines: dict[str, Callable[[Job], Engine]] = {"local": LocalEngine, "processes": ProcessEngine}
    running = engines[engine](job) if isinstance(engine, str) else engine(job)
    ledger = ledger_of(recipe, composition, model.layout)
    events = Events()
    watch = Notes(events)
    protocol = Watched(recipe, composition, running, model.layout, Wire(keep=True), events, model, public)
    protocol.books = Bookkeeping(protocol, ledger)
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
        server_plain: what the server believes to be the recipe, if that differs.
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
    for name in files:
        if name.startswith("client-") and "array" not in name:
            saved = codec.decode(read_file(folder / name))
            vectors[int(name[7:-6])] = codec.decode(read_file(folder / saved["vector"]))
    return dict(sorted(vectors.items())), files


def initial_vector(plain: Mapping[str, Any]) -> NDArray[np.float32]:
    """The model before round 1."""
    catalog = toy_catalog()
    recipe = Recipe.from_plain(plain, catalog)
    components = Composition(recipe, catalog).components
    data = components[recipe.data.name].load(None)
    vector: NDArray[np.float32] = (
        components[recipe.model.name].build(data.shape, len(data.classes), recipe.seed, "cpu").get_vector()
    )
    return vector


def weights_of(outcome: Outcome) -> dict[int, float]:
    """The aggregator's weight of each client, as the server holds them."""
    return dict(outcome.protocol.server.weights)


def calls_of(message: Message) -> list[str]:
    """`component.method` of each call in a message to a client or to the key server."""
    return [f"{component}.{method}" for _, _, component, method, _ in message.decode()["calls"]]


def half_an_answer(pipe: Connection, *_: Any) -> None:
    """What a worker does that is stopped while it sends its answer."""
    os.write(pipe.fileno(), struct.pack("!i", 100) + b"x")
    signal.pause()
