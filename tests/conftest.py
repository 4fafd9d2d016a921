"""A small catalog of fake components and a recipe that uses them, so that core tests need no plugin."""

from __future__ import annotations

import copy
from collections.abc import Generator
from typing import Any, Literal

import numpy as np
import pytest
from fedplug import Block, Client, Context, Field, Options, hookimpl
from fedplug.catalog import Catalog
from numpy.typing import NDArray


class Base:
    """Keeps options; every fake needs it."""

    class Options(Options):
        """No options."""

    name: str

    def __init__(self, options: Any) -> None:
        self.options = options


class Data(Base):
    """Four examples."""

    def load(self, root: str | None) -> None:
        return None


class Halves(Base):
    """Split in order."""

    class Options(Options):
        alpha: float = Field(1.0, gt=0, description="skew")

    def assign(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        return np.array_split(np.arange(len(labels)), num_clients)


class Line(Base):
    """A straight line."""

    class Options(Options):
        hidden: list[int] = Field([8], description="widths")

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> None:
        return None


class Step(Base):
    """One step of descent."""

    class Options(Options):
        lr: float = Field(0.1, gt=0, description="step size")

    def train(self, client: Client, ctx: Context) -> dict[str, float]:
        return {"loss": 0.0}


class Size(Base):
    """Score by size."""

    @hookimpl
    def score_parameters(self, client: Client, ctx: Context) -> NDArray[np.float32]:
        return np.ones(2, np.float32)


class Vote(Base):
    """Half of the scalars are encrypted."""

    zones = frozenset({"encrypted", "noised"})

    class Options(Options):
        ratio: float = Field(0.3, ge=0, le=1, description="share that is encrypted")
        ties: Literal["first", "last"] = Field("first", description="who wins a tie")

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Context) -> None:
        return None


class OneZone(Base):
    """Everything in one zone."""

    class Options(Options):
        zone: str = Field("clear", description="the zone")

    @property
    def zones(self) -> frozenset[str]:
        return frozenset({self.options.zone})

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Context) -> None:
        return None


class Clip(Base):
    """Halve the values."""

    provides = frozenset({"l2_bound"})
    forbids_before = {"noise": "put the clip first", "encryption": "put the clip before the encryption"}  # noqa: RUF012

    class Options(Options):
        norm: float = Field(gt=0, description="L2 bound")

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=block.plain() / 2)


class Noise(Base):
    """Add one."""

    provides = frozenset({"noise"})
    requires = {"l2_bound": "put {use: std.clip, norm: 1.0} before it"}  # noqa: RUF012
    forbids_before = {"encryption": "put the noise before the encryption"}  # noqa: RUF012

    class Options(Options):
        epsilon: float = Field(
            gt=0, description="privacy loss",
            json_schema_extra={"remedy": "to switch the noise off, write noised: []"},
        )  # fmt: skip

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=block.plain() + 1)


class Seal(Base):
    """Negate the values, and back."""

    provides = frozenset({"encryption"})
    forbids_before = {"encryption": "encrypt once"}  # noqa: RUF012
    must_undo = True
    site = "key_server"

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=-block.plain(), sealed_by=self.name)

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        return block.replace(values=-block.plain(), sealed_by=None)


class Outer(Seal):
    """A second seal that may lie over the first."""

    provides = frozenset({"second_encryption"})
    forbids_before = {}  # noqa: RUF012


class SumNoise(Base):
    """Add two to the sum."""

    provides = frozenset({"noise"})
    requires = {"l2_bound": "clip at the clients"}  # noqa: RUF012
    forbids_before = {"encryption": "open the sum first"}  # noqa: RUF012

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        return block.replace(values=block.plain() + 2)


class Mean(Base):
    """Average."""

    @hookimpl
    def aggregate(self, blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Block:
        return next(iter(blocks.values()))


class Book(Base):
    """Account for sampled releases."""

    def epsilon(self, releases: list[tuple[float, float]], delta: float, adjacency: str) -> dict[str, float]:
        return {"book": 1.0}


class Spy(Base):
    """Count protect calls."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.seen: list[str] = []

    @hookimpl(wrapper=True)
    def protect(self, block: Block) -> Generator[None, Block, Block]:
        result = yield
        self.seen.append(f"{block.zone}: {block.plain().tolist()} -> {result.plain().tolist()}")
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
