"""A small catalog of fake components and a recipe that uses them, so that core tests need no plugin."""

from __future__ import annotations

import copy
import math
from collections.abc import Generator, Sequence
from typing import Any, Literal

import numpy as np
import pytest
from fedplug import (
    Accountant,
    Aggregator,
    Client,
    Component,
    DataSource,
    Extension,
    Facts,
    Field,
    Known,
    ModelSource,
    Negotiation,
    Opened,
    Opener,
    Operations,
    Options,
    Partition,
    Party,
    Plans,
    Protector,
    PublicPlan,
    Scorer,
    Sealed,
    Sealer,
    Total,
    Trainer,
    WeightedSum,
    Words,
    hookimpl,
)  # fmt: skip
from fedplug import Clip as ClipTo
from fedplug import Noise as NoiseOf
from fedplug import Seal as SealBy
from fedplug.recipe.catalog import Catalog
from numpy.typing import NDArray


class Base(Component):
    """Keeps options; every fake needs it."""

    class Options(Options):
        """No options."""


class Data(Base, DataSource):
    """Four examples."""

    def load(self, root: str | None) -> None:
        return None


class Halves(Base, Partition):
    """Split in order."""

    class Options(Options):
        alpha: float = Field(1.0, gt=0, description="skew")

    def assign(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        return np.array_split(np.arange(len(labels)), num_clients)


class Line(Base, ModelSource):
    """A straight line."""

    class Options(Options):
        hidden: list[int] = Field([8], description="widths")

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> None:
        return None


class Step(Base, Trainer):
    """One step of descent."""

    class Options(Options):
        lr: float = Field(0.1, gt=0, description="step size")

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        return {"loss": 0.0}


class Size(Base, Scorer):
    """Score by size."""

    def score_parameters(self, client: Client, facts: Facts) -> NDArray[np.float32]:
        return np.ones(2, np.float32)


class Vote(Base, Negotiation):
    """Half of the scalars are encrypted."""

    plans = Plans(zones=frozenset({"encrypted", "noised"}))

    class Options(Options):
        ratio: float = Field(0.3, ge=0, le=1, description="share that is encrypted")
        ties: Literal["first", "last"] = Field("first", description="who wins a tie")

    def negotiate_mask(self, cohort: Any, facts: Facts) -> None:
        return None

    def reveals(self, facts: Facts) -> tuple[()]:
        return ()


class OneZone(Base, PublicPlan):
    """Everything in one zone."""

    class Options(Options):
        zone: str = Field("clear", description="the zone")

    @property
    def plans(self) -> Plans:
        return Plans(zones=frozenset({self.options.zone}), fixed=True)

    def plan(self, facts: Facts) -> str:
        zone: str = self.options.zone
        return zone


class Clip(Base, Protector):
    """Clip."""

    class Options(Options):
        norm: float = Field(gt=0, description="L2 bound")

    def protect(self, known: Known, facts: Facts) -> Operations:
        known.before("noise", "put the clip first")
        known.before("encryption", "put the clip before the encryption")
        return (ClipTo(self.options.norm),)


class Noise(Base, Protector):
    """Add noise of the size of the bound."""

    class Options(Options):
        epsilon: float = Field(
            gt=0, description="privacy loss",
            json_schema_extra={"remedy": "to switch the noise off, write noised: []"},
        )  # fmt: skip

    def protect(self, known: Known, facts: Facts) -> Operations:
        known.before("encryption", "put the noise before the encryption")
        return (NoiseOf.gaussian(known.need_norm("put {use: std.clip, norm: 1.0} before it")),)


class Negated:
    """Values as they are."""

    range, step = math.inf, 0.0

    def encode(self, values: NDArray[np.float64], rng: Any) -> tuple[NDArray[np.float64], float]:
        return values, 0.0

    def decode(self, words: NDArray[np.float64], counts: Any) -> NDArray[np.float64]:
        return words


NEGATION = SealBy(scheme="negation", opened_by="key_server", numbers=Negated(), position_block=1)


class Seal(Base, Sealer):
    """Negate the values, and back."""

    site = "key_server"

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (NEGATION,)

    def reveals(self, facts: Facts) -> tuple[()]:
        return ()

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        return Sealed(((-words.values).tobytes(),))

    def add(self, uploads: Sequence[Total], server: Party, facts: Facts) -> tuple[bytes, ...]:
        return (sum(np.frombuffer(each.parts[0]) for each in uploads).tobytes(),)

    def open(self, total: Total, party: Party, facts: Facts) -> Opened:
        return Opened(-np.frombuffer(total.parts[0]))


class Outer(Seal):
    """A second seal."""


class SumNoise(Base, Opener):
    """Add noise to the sum."""

    site = "server"

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        known.before("encryption", "open the sum first")
        return (NoiseOf.gaussian(known.need_norm("clip at the clients")),)


class Mean(Base, Aggregator):
    """Average."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        return (WeightedSum(),)


class Book(Base, Accountant):
    """Account for sampled releases."""

    def compose(self, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str) -> dict[str, float]:
        return {"book": 1.0}


class Spy(Base, Extension):
    """Keep what protect calls give."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.seen: list[str] = []

    @hookimpl(wrapper=True)
    def protect(self, known: Known) -> Generator[None, Operations, Operations]:
        result = yield
        self.seen.append(f"{known.zone}: {', '.join(type(operation).__name__ for operation in result)}")
        return result


FAKES: dict[str, dict[str, type]] = {
    "dataset": {"std.digits": Data},
    "partition": {"std.dirichlet": Halves},
    "model": {"std.mlp": Line},
    "trainer": {"std.sgd": Step},
    "score_parameters": {"std.size": Size},
    "negotiate_mask": {"acme.vote": Vote, "std.single_zone": OneZone},
    "protect": {"std.clip": Clip, "std.gaussian": Noise, "std.ckks": Seal, "std.outer": Outer},
    "aggregate": {"std.mean": Mean},
    "postprocess": {"std.ckks": Seal, "std.outer": Outer, "std.central": SumNoise},
    "accountant": {"std.book": Book},
    "extension": {"std.spy": Spy},
}

PLAIN: dict[str, Any] = {
    "name": "two-zones",
    "seed": 7,
    "rounds": 3,
    "data": {"use": "std.digits", "clients": 4, "partition": {"use": "std.dirichlet", "alpha": 0.5}},
    "model": {"use": "std.mlp"},
    "train": {"use": "std.sgd"},
    "negotiate_mask": {"use": "acme.vote"},
    "protect": {
        "encrypted": [{"use": "std.ckks"}],
        "noised": [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "epsilon": 8}],
    },
    "aggregate": {"use": "std.mean"},
    "postprocess": {"encrypted": ["std.ckks"]},
}


@pytest.fixture
def fake_classes() -> dict[str, dict[str, type]]:
    """The fake components by group and name; a copy that a test may change."""
    return {group: dict(classes) for group, classes in FAKES.items()}


@pytest.fixture
def fake_catalog() -> Catalog:
    """A catalog of exactly the fake components."""
    return Catalog.of(FAKES)


@pytest.fixture
def plain_recipe() -> dict[str, Any]:
    """A valid recipe of fake components as plain data; a copy that a test may change."""
    return copy.deepcopy(PLAIN)
