"""A small catalog of fake components and a recipe that uses them, so that core tests need no plugin."""

from __future__ import annotations

import copy
import math
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from cli_calls import GOOD
from fedplug import (
    Accountant,
    Adds,
    Aggregator,
    Block,
    Bound,
    Client,
    Component,
    Context,
    DataSource,
    Effects,
    Extension,
    Field,
    Known,
    ModelSource,
    Negotiation,
    Opener,
    Options,
    Partition,
    Plans,
    Protector,
    Scorer,
    Sealer,
    Trainer,
    hookimpl,
)  # fmt: skip
from fedplug import Noise as NoiseEffect
from fedplug import Seal as SealEffect
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

    def train(self, client: Client, ctx: Context) -> dict[str, float]:
        return {"loss": 0.0}


class Size(Base, Scorer):
    """Score by size."""

    @hookimpl
    def score_parameters(self, client: Client, ctx: Context) -> NDArray[np.float32]:
        return np.ones(2, np.float32)


class Vote(Base, Negotiation):
    """Half of the scalars are encrypted."""

    plans = Plans(zones=frozenset({"encrypted", "noised"}))

    class Options(Options):
        ratio: float = Field(0.3, ge=0, le=1, description="share that is encrypted")
        ties: Literal["first", "last"] = Field("first", description="who wins a tie")

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Context) -> None:
        return None


class OneZone(Base, Negotiation):
    """Everything in one zone."""

    class Options(Options):
        zone: str = Field("clear", description="the zone")

    @property
    def plans(self) -> Plans:
        return Plans(zones=frozenset({self.options.zone}), public=True)

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Context) -> None:
        return None


class Clip(Base, Protector):
    """Halve the values."""

    class Options(Options):
        norm: float = Field(gt=0, description="L2 bound")

    def effects(self, known: Known, ctx: Context) -> Effects:
        known.before("noise", "put the clip first")
        known.before("encryption", "put the clip before the encryption")
        return (Bound(self.options.norm),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=block.plain() / 2)


class Noise(Base, Protector):
    """Add one."""

    class Options(Options):
        epsilon: float = Field(
            gt=0, description="privacy loss",
            json_schema_extra={"remedy": "to switch the noise off, write noised: []"},
        )  # fmt: skip

    def effects(self, known: Known, ctx: Context) -> Effects:
        known.before("encryption", "put the noise before the encryption")
        return (NoiseEffect(mechanism="gaussian", scale=known.need_norm("put {use: std.clip, norm: 1.0} before it")),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=block.plain() + 1)


NEGATION = SealEffect(scheme="negation", opened_by="key_server", range=math.inf, step=0.0, position_block=1)


class Seal(Base, Sealer):
    """Negate the values, and back."""

    site = "key_server"

    def effects(self, known: Known, ctx: Context) -> Effects:
        known.before("encryption", "encrypt once")
        return (NEGATION,)

    def add_blocks(self, blocks: dict[int, Block], ctx: Context) -> Block:
        return next(iter(blocks.values()))

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=None, ciphertexts=((-block.plain()).tobytes(),), sealed_by=self.name)

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        values = -np.frombuffer(block.ciphertexts[0], np.float32)
        return block.replace(values=values, ciphertexts=(), sealed_by=None)


class Outer(Seal):
    """A second seal that may lie over the first."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (NEGATION,)


class SumNoise(Base, Opener):
    """Add two to the sum."""

    site = "server"

    def opens(self, known: Known, ctx: Context) -> Effects:
        known.before("encryption", "open the sum first")
        return (NoiseEffect(mechanism="gaussian", scale=known.need_norm("clip at the clients"), trust="central"),)

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        return block.replace(values=block.plain() + 2)


class Mean(Base, Aggregator):
    """Average."""

    def sums(self, known: Known, ctx: Context) -> Effects:
        return (Adds(),)

    @hookimpl
    def aggregate(self, blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Block:
        return next(iter(blocks.values()))


class Book(Base, Accountant):
    """Account for sampled releases."""

    def compose(self, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str) -> dict[str, float]:
        return {"book": 1.0}


def shown(block: Block) -> str:
    return f"closed by {block.sealed_by}" if block.values is None else str(block.values.tolist())


class Spy(Base, Extension):
    """Count protect calls."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.seen: list[str] = []

    @hookimpl(wrapper=True)
    def protect(self, block: Block) -> Generator[None, Block, Block]:
        result = yield
        self.seen.append(f"{block.zone}: {shown(block)} -> {shown(result)}")
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


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A recipe file that is right."""
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path
