"""What a client can notice of a model that it is handed: signs that no training leaves, and some planted models do.

Nothing here proves that a model is honest: a server that knows these signs plants a model without them. What holds
against any model is a guarantee that does not ask where the model comes from, such as noise of the clients' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.blocks import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST = 4
"""Rows and columns of a matrix from which on equal rows are no accident."""
MOST = 0.5
"""Share of a matrix's rows from which on a sign is an alarm: half of the shares of all ordinary rounds, which are 0."""
_PARALLEL = 1e-5
"""One minus the cosine of two rows that are multiples of each other, up to rounding."""


def signs(
    handed: NDArray[np.float32],
    before: NDArray[np.float32],
    layout: Layout,
    update: NDArray[np.float32] | None = None,
) -> dict[str, float]:
    """Numbers that any client can work out, without a forward pass.

    Args:
        handed: (P,), the model that arrived.
        before: (P,), the one that the client had before.
        layout: of both.
        update: (P,), what the client's training made of the model that arrived; None: it has not trained.

    Returns:
        `change`: norm of the change relative to that of the model before. `parallel_rows`: the largest share of the
        rows of a matrix that are a multiple of another one, as an imprint's are (Fowl et al. 2022); rows of zeros do
        not count, nor rows that were parallel before. `emptied_rows`: the largest share that are zeros now and were not
        before, as those of a layer that fishes for one class, or is shut (Wen et al. 2022; Pasquini et al. 2022).
        `silent_rows`, with an update: the largest share of the first matrix's rows that training did not move, which
        dead or saturated units are.
    """
    size = float(np.linalg.norm(before)) or float(np.linalg.norm(handed)) or 1.0  # some models begin at zero
    change = float(np.linalg.norm(handed.astype(np.float64) - before)) / size
    found = {"change": change, "parallel_rows": 0.0, "emptied_rows": 0.0}
    matrices = [each for each in layout.parameters if len(each.shape) > 1]
    for each in matrices:
        now, then = (_rows(vector, each.slice, each.shape) for vector in (handed, before))
        if min(now.shape) < LEAST or np.array_equal(now, then):
            continue
        parallel = max(0.0, _parallel(now) - _parallel(then))
        emptied = float((~now.any(1) & then.any(1)).mean())
        found["parallel_rows"] = max(found["parallel_rows"], parallel)
        found["emptied_rows"] = max(found["emptied_rows"], emptied)
    if update is not None and matrices:
        found["silent_rows"] = float((~_rows(update, matrices[0].slice, matrices[0].shape).any(1)).mean())
    return found


def alarms(found: Mapping[str, float]) -> list[str]:
    """Sentences on those signs that no ordinary round leaves; empty where there are none.

    A large change is no alarm: noise, a large learning rate and the first round make one as well. Nor are silent rows:
    words that a client's texts lack, and units that died in training, are silent too.
    """
    said = []
    if found["parallel_rows"] > MOST:
        said.append(f"{found['parallel_rows']:.0%} of the rows of a layer are multiples of each other")
    if found["emptied_rows"] > MOST:
        said.append(f"{found['emptied_rows']:.0%} of the rows of a layer became zeros")
    return said


def _rows(vector: NDArray[np.float32], where: slice, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return vector[where].reshape(shape[0], -1)


def _parallel(rows: NDArray[np.float32]) -> float:
    """The share of rows that are a multiple of another one; of rows that are not zero."""
    sizes = np.linalg.norm(rows, axis=1)
    if (sizes > 0).sum() < LEAST:
        return 0.0
    units = rows[sizes > 0] / sizes[sizes > 0, None]
    # Multiples of each other have the same size of product with any direction, so that they are neighbours in order of
    # it, and not all pairs need be compared.
    along = units @ np.random.default_rng(0).standard_normal(units.shape[1]).astype(np.float32)
    order = np.argsort(np.abs(along), kind="stable")
    together = np.abs((units[order][1:] * units[order][:-1]).sum(1)) > 1 - _PARALLEL
    return float((np.append(together, False) | np.insert(together, 0, False)).sum() / len(rows))
