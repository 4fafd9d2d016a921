"""A server that weighs updates of ten values by scores."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from fedplug import (
    Block,
    Context,
    Examples,
    Layout,
    Server,
)
from fedplug.api.data import PublicData
from fedplug.api.types import BASE_ZONES
from fedplug_fedre.pda_pam import PdaPam
from numpy.typing import NDArray

LAYOUT = Layout.of([("a.weight", (4,)), ("b.weight", (3,)), ("a.bias", (2,)), ("c.weight", (1,))])
LAYER = np.array([0, 0, 0, 0, 1, 1, 1, 0, 0, 2])
LN = math.log

SOME = Examples(np.zeros((4, 1, 2, 2), np.uint8), np.arange(4) % 2)
PUBLIC = PublicData(SOME, classes=("x", "y"), mean=(0.5,), std=(0.5,))


def pda_pam(**options: Any) -> PdaPam:
    component = PdaPam(PdaPam.Options.model_validate(options))
    component.name = "fedre.pda_pam"
    return component


def server_at(public: PublicData | None = PUBLIC, round: int = 0) -> tuple[Server, Context]:
    """A server that knows a model of zeros."""
    server = Server(vector=np.zeros(LAYOUT.size, np.float32), model=SimpleNamespace())  # type: ignore[arg-type]
    server.ctx = Context(round, 3, LAYOUT, BASE_ZONES, 3, 2, 7, "", server, public=public)
    return server, server.ctx


def blocks_of(values: dict[int, Any], where: dict[int, Any] | None = None, zone: str = "noised") -> dict[int, Block]:
    found = {}
    for client_id, one in values.items():
        at = np.asarray((where or {}).get(client_id, np.arange(LAYOUT.size)), np.uint32)
        found[client_id] = Block(zone, len(at), np.asarray(one, np.float32)[at], at)
    return found


def summed(blocks: dict[int, Block], server: Server, ctx: Context, **options: Any) -> Block:
    server.uploads = {client_id: {block.zone: block} for client_id, block in blocks.items()}
    return pda_pam(**options).aggregate(blocks, dict.fromkeys(blocks, 1.0), ctx)


SCORES = {1.0: [0.0, 1.0, 2.0], 2.0: [LN(2), 1.0, 0.0], 3.0: [LN(4), 1.0, 2.0]}


def softmax(values: NDArray[Any]) -> NDArray[np.float64]:
    powers = np.exp(values - values.max(0))
    return powers / powers.sum(0)


def public_with(**changes: Any) -> PublicData:
    examples = Examples(**{"inputs": PUBLIC.examples.inputs, "labels": PUBLIC.examples.labels} | changes)
    return PublicData(examples, classes=("x", "y"), mean=(0.5,), std=(0.5,))
