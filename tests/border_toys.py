"""Deeds of a link, on a block of ten values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fedplug import (
    Block,
    Layout,
)

LAYOUT = Layout.of([("a.w", (6,)), ("b.w", (4,))])
VALUES = np.array([3, 0, 4, 0, 0, 0, 0, 0, 0, 0], np.float32)
BLOCK = Block("noised", 10, VALUES)
Deed = Callable[[Block], Any]


def as_it_is(block: Block) -> Block:
    return block


def with_values(values: Any) -> Deed:
    return lambda block: block.replace(values=values)


def spoilt(block: Block) -> Block:
    return block.replace(values=block.plain() * np.float32(np.nan))
