"""Clients that mask their updates with LWE samples, and the server that adds them up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from fedplug import Block, Client, Facts
from fedplug.api.links import Link, Step
from fedplug.mechanisms.closing import Closing
from fedplug.mechanisms.execution import execute
from fedplug_baselines import lwe_numbers
from fedplug_baselines.lwe import Lwe
from fedplug_std.clip import Clip
from numpy.typing import NDArray
from toy_components import recipe_of

CLIENTS, SIZE, NORM = 4, 600, 0.5


def recipe(engine_noise: str = "reproducible", **options: Any) -> dict[str, Any]:
    mask = {"use": "baselines.lwe", "noise_multiplier": 0.5, "source": engine_noise} | options
    plain: dict[str, Any] = recipe_of(
        "encrypted",
        [{"use": "std.clip", "norm": NORM}, mask],
        train={"use": "toy.push", "scale": 0.01},
        min_clients=2,
        aggregate={"use": "std.mean", "weighting": "uniform"},
        postprocess={"encrypted": ["baselines.lwe"]},
    )
    return plain


def lwe(**options: Any) -> Lwe:
    component = Lwe(Lwe.Options(**{"noise_multiplier": 0.5, "source": "reproducible"} | options))
    component.name = "baselines.lwe"
    return component


class Line:
    """The clients whose updates are in the sum, as the server reaches them; some do not answer."""

    def __init__(self, parties: dict[int, Client], silent: Iterable[int] = (), ids: list[int] | None = None) -> None:
        self.parties, self.silent = parties, set(silent)
        self.client_ids = sorted(parties) if ids is None else ids
        self.dropped: dict[int, str] = {}

    def only(self, ids: list[int]) -> Line:
        return Line(self.parties, self.silent, ids)

    def ask(self, method: Any, *payload: Any) -> dict[int, Any]:
        return {c: method(self.parties[c], *payload) for c in self.client_ids if c not in self.silent}

    def ask_each(self, method: Any, payloads: dict[int, Any]) -> dict[int, Any]:
        return {c: method(self.parties[c], payloads[c]) for c in payloads if c not in self.silent}

    def drop(self, client_id: int, reason: str) -> None:
        self.dropped[client_id] = reason


def update(client_id: int, scale: float = 0.01) -> NDArray[np.float32]:
    """Within the clip: 600 values of 0.01 have norm 0.25."""
    return (scale * np.random.default_rng(client_id).standard_normal(SIZE)).astype(np.float32)


def in_run(component: Lwe, facts: Facts) -> Facts:
    """The facts of a run in which the component is behind a clip."""
    clip = Clip(Clip.Options(norm=NORM))
    clip.name = "std.clip"
    links = tuple(Link("encrypted", "protect", each.name, each, "client") for each in (clip, component))
    return dataclasses.replace(facts, chains={"encrypted": links})


def chain(component: Lwe, facts: Facts) -> tuple[Step, ...]:
    """A clip, and the component behind it, as the core executes them."""
    return in_run(component, facts).steps("encrypted")


def upload(component: Lwe, client: Client, values: NDArray[np.float32], **other: Any) -> Block:
    """What a client sends of its values."""
    block = Block("encrypted", len(values), values, divisor=1.0).replace(**other)
    for step in chain(component, client.facts):
        block = execute(step, block, client, client.facts)
    return block


@dataclasses.dataclass
class AtServer:
    """The server of a run, which adds up and opens."""

    component: Lwe
    parties: dict[int, Client]
    silent: Iterable[int] = ()

    def __post_init__(self) -> None:
        self.closing = Closing.of("encrypted", in_run(self.component, next(iter(self.parties.values())).facts))
        self.line: Any = Line(self.parties, self.silent)

    def add(self, blocks: dict[int, Block]) -> Block:
        server: Any = SimpleNamespace()
        return self.closing.add(blocks, dict.fromkeys(blocks, 1.0), server)

    def open(self, total: Block) -> Block:
        server: Any = SimpleNamespace(cohort=self.line, operation=Client().operation)
        return self.closing.open(total, sorted(self.parties), server)


def opened(component: Lwe, blocks: dict[int, Block], parties: dict[int, Client], silent: Iterable[int] = ()) -> Block:
    """Their sum."""
    server = AtServer(component, parties, silent)
    return server.open(server.add(blocks))


def parts(component: Lwe, client: Client, values: NDArray[np.float32]) -> tuple[NDArray[np.int64], float]:
    """e + g of a client with reproducible noise, and the step."""
    facts = client.facts
    std = NORM * component.options.of_one(facts.round, facts.rounds, facts.num_clients, facts.min_clients)
    step = lwe_numbers.step_of(NORM, std, CLIENTS, component.options.grid)
    return whole(values, step) + whole_noise(len(values), std, step, client.rng(component, "encrypted")), step


def whole(values: NDArray[np.float32], step: float) -> NDArray[np.int64]:
    """g: values in steps, cut off towards zero."""
    return np.trunc(values.astype(np.float64) / step).astype(np.int64)


def whole_noise(size: int, std: float, step: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """e: Gaussian noise in steps."""
    return np.rint(rng.standard_normal(size) * std / step).astype(np.int64)
