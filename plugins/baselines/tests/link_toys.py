"""Links of this plugin's components, folded and executed as in the core, without a run."""

from __future__ import annotations

from typing import Any

from fedplug import Block, Client, Facts, Known
from fedplug.api.links import Link, Step, fold
from fedplug.mechanisms.execution import execute
from fedplug_std.clip import Clip


def steps(facts: Facts, zone: str, *chain: Any) -> tuple[Step, ...]:
    """The steps of the components of a zone's chain at a client."""
    return fold([Link(zone, "protect", each.name, each, "client") for each in chain], facts)


def passed(block: Block, client: Client, *chain: Any) -> Block:
    """A client's block after a chain of components."""
    for step in steps(client.facts, block.zone, *chain):
        block = execute(step, block, client, client.facts)
    return block


def behind(facts: Facts, zone: str, *chain: Any) -> Known:
    """The facts known about one client's values after a chain of components."""
    return steps(facts, zone, *chain)[-1].after


def clip(norm: float) -> Clip:
    """`std.clip`."""
    made = Clip(Clip.Options(norm=norm))
    made.name = "std.clip"
    return made
