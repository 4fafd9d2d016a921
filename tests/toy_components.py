"""Small components that misbehave in known ways, a catalog that has them, and small recipes.

The classes are in a separate module, because worker processes import them by name.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import fedplug
import numpy as np
from fedplug import (
    Block,
    Client,
    Dataset,
    Examples,
    Facts,
    Field,
    Finds,
    Known,
    Look,
    Model,
    Operations,
    Party,
    Reveals,
    Server,
    Wants,
    WeightedSum,
    at_client,
)
from fedplug.api.blocks import CLEAR, Scores
from fedplug.recipe.catalog import Catalog, Entry
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import Attacker, View
from fedplug_std._dataset_files import dataset, digits
from fedplug_std.bfv import Bfv
from fedplug_std.datasets import Digits
from numpy.typing import NDArray
from toy_base import Toy
from toy_negotiations import WIDTH, Asks, Groups, Halves, Masks, MasksOfTheCohort, Own, Ring, Silent
from toy_sealers import AtClients


class Push(Toy, fedplug.Trainer):
    """Instead of training, move every parameter by a known amount: see `pushed`."""

    class Options(fedplug.Options):
        """How far."""

        scale: float = Field(0.01, ge=0, description="standard deviation of the move")

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Sets the model to the global one plus the move of this client and round."""
        move = self.options.scale * client.rng(self).standard_normal(facts.layout.size)
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
        how: Literal["raise", "kill"] = Field("raise", description="what happens")

    def _fail(self, client: Client) -> None:
        if client.client_id in self.options.clients and client.facts.round in self.options.rounds:
            if self.options.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the toy broke")

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """Fails after training."""
        self._fail(client)
        return np.zeros(facts.layout.size, np.float32)

    def protect(self, known: Known, facts: Facts) -> Operations:
        """It does not change values, or fails before the upload."""
        return (Look(self.look),)

    def look(self, block: Block, client: Party, facts: Facts) -> None:
        """Fails."""
        assert isinstance(client, Client)
        self._fail(client)


class Draws(Toy, fedplug.Scorer):
    """Log a draw from each generator that a whole process shares."""

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """Scores are all 0."""
        import torch

        draws = {"numpy": float(np.random.standard_normal()), "torch": float(torch.randn(()))}
        client.log.update({f"{self.name}.{library}.{client.client_id}": drawn for library, drawn in draws.items()})
        return np.zeros(facts.layout.size, np.float32)


class Keep(Toy, fedplug.Opener):
    """Eq. 27 of SelectiveShield: keep the local values of the retained zone, take the global ones elsewhere."""

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """The block is not changed."""
        return (Look(self.keep),)

    def keep(self, block: Block, client: Party, facts: Facts) -> None:
        """Makes the client's own model."""
        assert isinstance(client, Client)
        client.personal = client.vector.copy()
        client.personal[block.positions] = block.plain()


class NarrowBfv(Bfv):
    """BFV with few positions per ciphertext, so that masks are hardly widened."""

    name = "toy.narrow_bfv"
    slots = 1 + WIDTH // 2  # two positions per slot, and one slot counts the clients
    position_block = WIDTH


class Spy(Toy, fedplug.Attack):
    """Count the contents of an attack's view."""

    finds = Finds(
        needs=Needs(update=False, model=False, loss=None, classification=False), what=frozenset(),
        headline=("", "high"), success=("", ">=", float("inf")),
    )  # fmt: skip

    def attack(self, view: View, attacker: Attacker) -> AttackReport:
        """The number of messages and uploads, and how much of them can be read."""
        uploads = [block for _, _, blocks in view.uploads() for block in blocks.values()]
        return AttackReport("finished", {
            "messages": len(view.messages),
            "bytes": sum(message.size for message in view.messages),
            "to_clients": sum(message.receiver.startswith("client:") for message in view.messages),
            "uploads": len({(round, client_id) for round, client_id, _ in view.uploads()}),
            "readable": sum(block.values is not None for block in uploads),
            "sealed": sum(block.values is None for block in uploads),
        })  # fmt: skip


class Peek(Toy, fedplug.Aggregator):
    """FedAvg's mean by a server that notes its input, and what it knows about the model."""

    wants = Wants(model=True, positions=True)
    seen: ClassVar[list[dict[str, Any]]] = []

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        """All alike."""
        return 1.0

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """A weighted sum, and a look."""
        return (WeightedSum(), Look(self.note))

    def note(self, total: Block, server: Server, facts: Facts) -> None:
        """Notes."""
        blocks = {c: blocks[total.zone] for c, blocks in server.uploads.items() if total.zone in blocks}
        noted = {"vector": server.vector, "uploads": server.uploads, "blocks": blocks, "public": facts.public}
        self.seen.append(noted | {"layout": server.model and server.model.layout})


class AskAgain(Toy, fedplug.Opener):
    """While a sum is opened at the server, ask the clients in it a question."""

    site = "server"
    heard: ClassVar[list[dict[int, int]]] = []

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Numbers that all parties know."""
        return [Reveals("numbers of clients", ("server",), covered_by="nothing to pay", asked=("answer",))]

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """The sum is not changed."""
        return (Look(self.ask),)

    def ask(self, block: Block, server: Party, facts: Facts) -> None:
        """Asks."""
        assert isinstance(server, Server)
        assert server.cohort is not None
        self.heard.append(server.cohort.ask(self.answer))

    @at_client
    def answer(self, client: Client) -> int:
        """Its number."""
        return client.client_id


class Offset(Toy, fedplug.Trainer):
    """A personal model without a retained zone: the global one, plus a value that this client keeps."""

    def personalise(self, client: Client, facts: Facts) -> None:
        """Client k is k ahead of the global model."""
        client.personal = client.vector + np.float32(client.client_id)

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Moves by one."""
        assert np.array_equal(client.start, client.vector + np.float32(client.client_id))
        client.model.set_vector(client.start + np.float32(1))
        return {"loss": 0.0}


class TinyDigits(Digits):
    """Zeros and ones, four pixels wide: 34 parameters, for an encryption that takes milliseconds for each of them."""

    declares = fedplug.Declares(shape=(1, 4, 4), num_classes=2)

    def load(self, root: str | None) -> Dataset:
        """Returns the data set. `root` is not needed."""
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

        about = {"classes": ("dark", "bright"), "kinds": ("even", "odd"), "region_names": ("bright",)}
        return Dataset(split(40), split(12), mean=(0.5,), std=(0.25,), **about)


class Pixelwise(Toy, fedplug.ModelSource):
    """One logit per class for each pixel, from that pixel alone."""

    class Options(fedplug.Options):
        broken: bool = False

    @property
    def judged_by(self) -> tuple[fedplug.Figure, ...]:
        """A share."""
        return (fedplug.Figure("bright seen", better="higher"),)

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
    "protect": {"toy.fail": Fail, "toy.narrow_bfv": NarrowBfv, "toy.at_clients": AtClients},
    "aggregate": {"toy.peek": Peek},
    "postprocess": {
        "toy.keep": Keep, "toy.narrow_bfv": NarrowBfv, "toy.ask_again": AskAgain, "toy.at_clients": AtClients,
    },
    "groups": {"toy.halves": Halves},
    "negotiate_mask": {
        "toy.masks": Masks, "toy.own": Own, "toy.silent": Silent, "toy.groups": Groups, "toy.asks": Asks,
        "toy.masks_of_the_cohort": MasksOfTheCohort, "toy.ring": Ring,
    },
    "attack": {"toy.spy": Spy},
}  # fmt: skip


@functools.cache
def _installed() -> Catalog:
    return Catalog.discover()


_RIGHT: dict[tuple[type, ...], dict[str, list[str]]] = {}


def toy_catalog() -> Catalog:
    """The installed components and the toys. Catalogs of the same toys know which recipes are right."""
    installed = Catalog(_installed().groups)
    installed.right = _RIGHT.setdefault(tuple(each for classes in TOYS.values() for each in classes.values()), {})
    for group, classes in TOYS.items():
        for name, found in classes.items():
            value = f"{found.__module__}:{found.__qualname__}"
            installed.groups[group][name] = Entry(name, group, value, "toys", "0", found)
    return installed


# -- recipes -----------------------------------------------------------------------------------------------------------


def recipe_of(zone: str = CLEAR, chain: list[Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The whole model in one zone: FedAvg by default. 4 clients, a linear model on digits, 2 rounds."""
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
"""A scorer with which all clients nominate alike. No votes tie, so a vote has one outcome for any key."""


def paraaegis(
    ratio: float = 0.3, *, seal: dict[str, Any] | None = None, noised: list[Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """ParaAegis in the same small setting, by default with BFV and reproducible noise."""
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
