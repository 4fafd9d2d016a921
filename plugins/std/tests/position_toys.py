"""Masks of four clients over a model of two blocks of BFV or five of CKKS."""

from __future__ import annotations

from typing import Any

import numpy as np
from he_toys import OneClient, make
from numpy.typing import NDArray

SIZE = 9000  # two blocks of BFV, five of CKKS
WEIGHTS = (1.0, 0.5, 0.25, 0.7)
UPDATES = np.random.default_rng(0).uniform(-1, 1, (4, SIZE)).astype(np.float32)

KINDS = ("none", "all", "own", "scattered", "first", "last", "other")


def mask_of(kind: str, client_id: int) -> NDArray[np.bool_]:
    """`own` masks are disjoint from everyone's; `scattered` and `other` are random, the same at all and different."""
    where = np.arange(SIZE)
    masks: dict[str, NDArray[np.bool_]] = {
        "none": np.zeros(SIZE, np.bool_),
        "all": np.ones(SIZE, np.bool_),
        "own": where % 4 == client_id,
        "scattered": np.random.default_rng(9).random(SIZE) < 0.1,
        "first": where < 40,
        "last": where >= SIZE - 1,
        "other": np.random.default_rng(client_id).random(SIZE) < 0.01,
    }
    return masks[kind]


def masked(scheme: tuple[Any, str]) -> OneClient:
    """The parties of one of `SCHEMES`, with a sum of one client's values opened too."""
    kind, key_holder = scheme
    return OneClient(make(kind, key_holder=key_holder), SIZE, 4, min_clients=1)
