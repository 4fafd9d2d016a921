"""Batch-norm statistics that travel with `buffers: mean`: what must hold of them on arrival, and their mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api.typed import shown

BUFFERS = "batch-norm buffers"
"""What stands for them where zones are named."""
Buffers = Mapping[str, NDArray[Any]]
"""Arrays by the names that they have in the model."""


def buffers_problem(given: Any, expected: Buffers) -> str:
    """What is wrong with buffers that arrived; empty if nothing.

    Args:
        given: what arrived.
        expected: the model's, whose names, shapes and types they must have.
    """
    if not isinstance(given, dict) or not all(isinstance(values, np.ndarray) for values in given.values()):
        return f"batch-norm buffers are {shown(given)}, not arrays by name"
    if given.keys() != expected.keys():
        found = [f"lack {name!r}" for name in sorted(expected.keys() - given.keys())[:1]]
        found += [f"hold {name}" for name in sorted(map(shown, given.keys() - expected.keys()))[:1]]
        return f"batch-norm buffers {' and '.join(found)}; they must have the names of the model's"
    for name, values in given.items():
        model = expected[name]
        if (values.dtype, values.shape) != (model.dtype, model.shape):
            theirs, ours = (f"{array.dtype}{list(array.shape)}" for array in (values, model))
            return f"batch-norm buffer {name!r} is {theirs}; the model's is {ours}"
        if not np.isfinite(values).all():
            return f"batch-norm buffer {name!r} holds NaN or infinity"
    return ""


def mean_of_buffers(buffers: Mapping[int, Buffers], weights: Mapping[int, float]) -> dict[str, NDArray[Any]]:
    """The weighted mean of buffers that are all alike; of whole numbers, such as counters, the largest.

    Args:
        buffers: by client; not empty.
        weights: by client, > 0.
    """
    total = sum(weights[client_id] for client_id in buffers)
    means: dict[str, NDArray[Any]] = {}
    for name, first in next(iter(buffers.values())).items():
        if first.dtype.kind == "f":
            parts = ((weights[c] / total) * theirs[name].astype(np.float64) for c, theirs in buffers.items())
            mean: Any = sum(parts)
        else:
            mean = np.maximum.reduce([theirs[name] for theirs in buffers.values()])
        means[name] = np.asarray(mean, first.dtype)  # numpy turns arrays of no dimension into numbers
    return means
