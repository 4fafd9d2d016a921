"""Links of this plugin's components, folded and executed as in the core, without a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from fedplug import Block, Client, Facts, Layout, Plan
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.links import Link, Step, fold
from fedplug.mechanisms.execution import execute


def facts_of(layout: Layout, **fields: Any) -> Facts:
    """The first of nine rounds of four clients."""
    given = {"round": 0, "rounds": 9, "num_clients": 4, "min_clients": 2, "seed": 7, "digest": "", **fields}
    return Facts(layout=layout, zones=BASE_ZONES, **given)  # type: ignore[arg-type]


def named(component: Any) -> Any:
    """A component under the name that recipes give it."""
    module = type(component).__module__.rpartition(".")[2]
    component.name = f"deployed.{module}"
    return component


def steps(facts: Facts, zone: str, *chain: Any) -> tuple[Step, ...]:
    """The steps of the components of a zone's chain at a client."""
    return fold([Link(zone, "protect", named(each).name, each, "client") for each in chain], facts)


def passed(
    layout: Layout, zone: str, values: Any, *chain: Any, model: Any = None
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """One client's values behind a chain of components; its global model is zero unless given."""
    client = Client(client_id=0, plan=Plan.single(zone, layout.size, BASE_ZONES))
    client.facts, client.vector = facts_of(layout), np.zeros(layout.size, np.float32) if model is None else model
    block = Block(zone, layout.size, values=np.asarray(values, np.float32))
    for step in steps(client.facts, zone, *chain):
        block = execute(step, block, client, client.facts)
    return block.plain()
