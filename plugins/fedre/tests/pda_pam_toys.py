"""A server that weights updates of ten values by scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import fedplug
import numpy as np
from fedplug import (
    Block,
    Client,
    Examples,
    Facts,
    FixedPoint,
    Known,
    Layout,
    Opened,
    Operations,
    Party,
    Reveals,
    Seal,
    Sealed,
    Server,
    Total,
    Words,
)
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.data import PublicData
from fedplug.api.links import Link, fold
from fedplug.mechanisms.adding import add_up
from fedplug_fedre.pda_pam import PdaPam
from numpy.typing import NDArray

LAYOUT = Layout.of([("a.weight", (4,)), ("b.weight", (3,)), ("a.bias", (2,)), ("c.weight", (1,))])
LAYER = np.array([0, 0, 0, 0, 1, 1, 1, 0, 0, 2])
LN = math.log

SOME = Examples(np.zeros((4, 1, 2, 2), np.uint8), np.arange(4) % 2)
PUBLIC = PublicData(SOME, classes=("x", "y"), mean=(0.5,), std=(0.5,))


class Sealing(fedplug.Sealer):
    """A seal of which only the sum is needed."""

    name = "seal"

    class Options(fedplug.Options):
        """No options."""

    def __init__(self) -> None:
        """It has none."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Seal(scheme="a test", opened_by="key_server", numbers=FixedPoint(1.0, 0.1)),)

    def reveals(self, facts: Facts) -> list[Reveals]:
        return []

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        raise NotImplementedError

    def open(self, total: Total, party: Party, facts: Facts) -> Opened:
        raise NotImplementedError

    def add(self, uploads: Sequence[Total], server: Party, facts: Facts) -> tuple[bytes, ...]:
        return (b"".join(part for upload in uploads for part in upload.parts),)


def pda_pam(**options: Any) -> PdaPam:
    component = PdaPam(PdaPam.Options.model_validate(options))
    component.name = "fedre.pda_pam"
    return component


def server_at(public: PublicData | None = PUBLIC, round: int = 0) -> tuple[Server, Facts]:
    """A server with a model of zeros."""
    server = Server(vector=np.zeros(LAYOUT.size, np.float32), model=SimpleNamespace())  # type: ignore[arg-type]
    server.facts = Facts(round, 3, LAYOUT, BASE_ZONES, 3, 2, 7, "", public=public)
    return server, server.facts


def blocks_of(values: dict[int, Any], where: dict[int, Any] | None = None, zone: str = "noised") -> dict[int, Block]:
    found = {}
    for client_id, one in values.items():
        at = np.asarray((where or {}).get(client_id, np.arange(LAYOUT.size)), np.uint32)
        found[client_id] = Block(zone, len(at), np.asarray(one, np.float32)[at], at)
    return found


def summed(blocks: dict[int, Block], server: Server, facts: Facts, **options: Any) -> Block:
    server.uploads = {client_id: {block.zone: block} for client_id, block in blocks.items()}
    return total_of(pda_pam(**options), blocks, server, facts)


def total_of(component: PdaPam, blocks: dict[int, Block], server: Server, facts: Facts) -> Block:
    """The sum of one zone. If the blocks are sealed, a link before it states that."""
    block = next(iter(blocks.values()))
    links = [Link(block.zone, "aggregate", component.name, component, "server")]
    if block.sealed_by is not None:
        links.insert(0, Link(block.zone, "protect", block.sealed_by, facts.component(block.sealed_by), "client"))
    facts = dataclasses.replace(facts, chains={block.zone: tuple(links)})
    return add_up(fold(links, facts)[-1], blocks, dict.fromkeys(blocks, 1.0), server, facts)


SCORES = {1.0: [0.0, 1.0, 2.0], 2.0: [LN(2), 1.0, 0.0], 3.0: [LN(4), 1.0, 2.0]}


def softmax(values: NDArray[Any]) -> NDArray[np.float64]:
    powers = np.exp(values - values.max(0))
    return powers / powers.sum(0)


def public_with(**changes: Any) -> PublicData:
    examples = Examples(**{"inputs": PUBLIC.examples.inputs, "labels": PUBLIC.examples.labels} | changes)
    return PublicData(examples, classes=("x", "y"), mean=(0.5,), std=(0.5,))
