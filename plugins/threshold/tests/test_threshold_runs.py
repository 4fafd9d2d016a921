"""Whole runs under a joint key: sums to the bit, clients that drop out in every phase, and who can open what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug_threshold.fixed_point import FixedPoint
from fedplug_threshold.parameters import choose
from numpy.typing import NDArray
from threshold_toys import CLIENTS, NORM, recipe
from toy_components import pushed
from toy_protocol import initial_vector, run_protocol

EVERYBODY = list(range(CLIENTS))


def away(tmp_path: Any, when: str, *who: tuple[int, int]) -> dict[str, Any]:
    """Who is away, as pairs of a round from 1 and a client."""
    trace = tmp_path / "away.csv"
    trace.write_text("round,client\n" + "".join(f"{round},{client}\n" for round, client in who))
    return {"trace": str(trace), "when": when}


def expected(plain: dict[str, Any], present: list[list[int]], bits: int, clients: int = CLIENTS) -> NDArray[Any]:
    """The model after rounds in which these clients' updates are in the sum, through the plain fixed-point sum."""
    vector = initial_vector(plain)
    step = FixedPoint(NORM, clients, bits).step
    for round, ids in enumerate(present):
        moved = [pushed(vector, plain["seed"], client_id, round) for client_id in ids]
        total = sum(np.rint(update.astype(np.float64) / step).astype(np.int64) for update in moved)
        mean = (total * step).astype(np.float32) / np.float32(len(ids))
        vector = vector + mean.astype(np.float32)
    return vector


@pytest.mark.parametrize("options", [{}, {"bits": 32, "threshold": 0.9}, {"degree": 8192, "threshold": 4}])
@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_sum_is_the_plain_fixed_point_sum_to_the_bit(engine: str, options: dict[str, Any]) -> None:
    plain = recipe({"use": "threshold.bfv", **options})
    outcome = run_protocol(plain, engine)
    assert outcome.notes == []
    bits = choose(CLIENTS, 4, 40, options.get("bits"), options.get("degree")).bits
    assert np.array_equal(outcome.vectors[0], expected(plain, [EVERYBODY] * 2, bits))
