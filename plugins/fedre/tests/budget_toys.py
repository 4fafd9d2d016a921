"""Layers with scores and budgets, and their statements."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from fedplug import Block, Client, ClientData, Clip, Facts, Layout, Noise, Plan
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.known import Release
from fedplug.api.links import Link, Step, fold, settled
from fedplug.mechanisms.execution import execute
from fedplug_fedre.layer_budgets import LayerBudgets

DELTA = 1e-5
LAYOUT = Layout.of([("a.weight", (3000,)), ("b.weight", (2000,)), ("a.bias", (1000,)), ("c.weight", (4000,))])
SCORES = np.array([1.0, 2.0, 4.0], np.float32)
SIZES = np.array([4000, 2000, 4000])  # of a, b and c


def layer_budgets(**options: Any) -> LayerBudgets:
    options = {"epsilon": 10, "delta": DELTA, "norm": 0.5, "source": "reproducible"} | options
    component = LayerBudgets(LayerBudgets.Options.model_validate(options))
    component.name = "fedre.layer_budgets"
    return component


def client_with(scores: Any = SCORES, round: int = 0, client_id: int = 0, rounds: int = 4, **more: Any) -> Client:
    held: Any = range(1)
    client = Client(client_id=client_id, scores={"psi": np.array(scores, np.float32)} | more)
    client.data = ClientData(held, held, held, classes=("x",), mean=(0.5,), std=(0.5,))
    client.facts = Facts(round, rounds, LAYOUT, BASE_ZONES, 4, 2, 7, "")
    return client


def planned(client: Client, zone: str = "noised", where: Any = None) -> Client:
    """The client with a plan that puts these positions, or all, into the zone."""
    if where is None:
        client.plan = Plan.single(zone, LAYOUT.size, BASE_ZONES)
    else:
        client.plan = Plan.of(client.facts, "encrypted", **{zone: where})
    return client


def step_of(component: LayerBudgets, facts: Facts, zone: str = "noised") -> Step:
    (step,) = fold([Link(zone, "protect", component.name, component, "client")], facts)
    return step


def protect(component: LayerBudgets, client: Client, values: Any, where: Any = None, zone: str = "noised") -> Block:
    """The block of these values at some of the positions, or at all, which its plan puts into the zone."""
    planned(client, zone, where)
    where = np.arange(LAYOUT.size) if where is None else np.asarray(where)
    block = Block(zone, len(where), np.asarray(values, np.float32), where.astype(np.uint32))
    return execute(step_of(component, client.facts, zone), block, client, client.facts)


def stated(component: LayerBudgets, facts: Facts, zone: str = "noised") -> tuple[Clip, Noise, Release]:
    """Its steps, and their account in the ledger."""
    step = step_of(component, facts, zone)
    clip, *_, noise = step.operations
    (release,) = step.after.releases
    assert isinstance(clip, Clip)
    assert isinstance(noise, Noise)
    return clip, noise, release


def sized(
    component: LayerBudgets, facts: Facts, scores: Any = SCORES, present: Any = (0, 1, 2)
) -> tuple[Noise, Release]:
    """The noise with the size that these scores give it, and what it costs."""
    step = step_of(component, facts)
    *_, noise = step.operations
    assert isinstance(noise, Noise)
    stds = noise.size(np.asarray(scores, np.float32), np.asarray(present))  # type: ignore[call-arg, misc]
    given = settled(dataclasses.replace(noise, std=tuple(stds), size=None), step.states[-2], facts)
    return given, step.states[-2].after(given).releases[-1]


def by_layer(values: Any) -> list[Any]:
    return [np.concatenate([values[part] for part in parts]) for parts in LAYOUT.layer_slices().values()]
