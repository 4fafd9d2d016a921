"""Six clients whose sums open with shares, under masks or a joint key. Each moves the model by a known amount."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from toy_components import pushed, recipe_of
from toy_protocol import initial_vector

CLIENTS, NORM = 6, 8.0
EVERYBODY = list(range(CLIENTS))


def shared_recipe(use: Any, clients: int = CLIENTS, **changes: Any) -> dict[str, Any]:
    use = {"use": use} if isinstance(use, str) else use
    plain = recipe_of(
        "encrypted", [{"use": "std.clip", "norm": NORM}, use], train={"use": "toy.push", "scale": 0.01},
        min_clients=3, aggregate={"use": "std.mean", "weighting": "uniform"}, postprocess={"encrypted": [use["use"]]},
    )  # fmt: skip
    plain["data"] |= {"clients": clients}
    return plain | changes


def away(tmp_path: Any, when: str, *who: tuple[int, int]) -> dict[str, Any]:
    """Absent clients, as pairs of a round from 1 and a client."""
    trace = tmp_path / "away.csv"
    trace.write_text("round,client\n" + "".join(f"{round},{client}\n" for round, client in who))
    return {"trace": str(trace), "when": when}


def fixed_point_model(plain: dict[str, Any], present: list[list[int]], step: float) -> NDArray[Any]:
    """The model after rounds in which these clients' updates are in the sum, through the plain sum of whole steps."""
    vector = initial_vector(plain)
    for round, ids in enumerate(present):
        moved = [pushed(vector, plain["seed"], client_id, round) for client_id in ids]
        total = sum(np.rint(update.astype(np.float64) / step).astype(np.int64) for update in moved)
        mean = (total * step).astype(np.float32) / np.float32(len(ids))
        vector = vector + mean.astype(np.float32)
    return vector
