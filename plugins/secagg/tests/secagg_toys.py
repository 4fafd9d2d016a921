"""`shares_toys` under masks."""

from __future__ import annotations

from typing import Any

from fedplug_secagg.fixed_point import FixedPoint
from numpy.typing import NDArray
from shares_toys import CLIENTS, EVERYBODY, NORM, away, fixed_point_model, shared_recipe

__all__ = ["CLIENTS", "EVERYBODY", "NORM", "away", "expected", "recipe"]


def recipe(use: Any = "secagg.bonawitz", clients: int = CLIENTS, **changes: Any) -> dict[str, Any]:
    return shared_recipe(use, clients, **changes)


def expected(plain: dict[str, Any], present: list[list[int]], bits: int = 32, clients: int = CLIENTS) -> NDArray[Any]:
    return fixed_point_model(plain, present, FixedPoint(NORM, clients, bits).step)
