"""Six clients under a joint key. Each moves the model by a known amount."""

from __future__ import annotations

from typing import Any

from toy_components import recipe_of

CLIENTS, NORM = 6, 8.0


def recipe(use: Any = "threshold.bfv", clients: int = CLIENTS, **changes: Any) -> dict[str, Any]:
    use = {"use": use} if isinstance(use, str) else use
    plain = recipe_of(
        "encrypted", [{"use": "std.clip", "norm": NORM}, use], train={"use": "toy.push", "scale": 0.01},
        min_clients=3, aggregate={"use": "std.mean", "weighting": "uniform"}, postprocess={"encrypted": [use["use"]]},
    )  # fmt: skip
    plain["data"] |= {"clients": clients}
    return plain | changes
