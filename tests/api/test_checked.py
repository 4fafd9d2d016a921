"""Records refuse words and numbers that their fields cannot hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug import Clip, FixedPoint, Noise, Reveals, Round, Scale, Seal, WeightedSum


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Clip(-1.0), r"^Clip\(norm=-1.0\): it must be a number >= 0$"),
        (lambda: Clip(math.nan), "norm=nan"),
        (lambda: Clip((1.0, -1.0), per="layer"), "number >= 0"),
        (lambda: Clip(1.0, per="zone"), "it must be one of 'update', 'layer', 'scalar'"),  # type: ignore[arg-type]
        (lambda: Scale(math.nan), r"^Scale\(factor=nan\): it must be a number$"),
        (lambda: Noise.gaussian(-1.0), r"^Noise.gaussian\(std=-1.0\): it must be a number >= 0$"),
        (lambda: Noise.gaussian(1.0, source="seed"), "it must be one of 'secure', 'exact', 'reproducible'"),  # type: ignore[arg-type]
        (lambda: Round(0.0), r"^Round\(step=0.0\): it must be a finite number > 0$"),
        (lambda: WeightedSum(rate=0.0), r"^WeightedSum\(rate=0.0\): it must be a finite number > 0$"),
        (lambda: WeightedSum(divided_by="some"), "it must be one of 'sent', 'all'"),  # type: ignore[arg-type]
        (lambda: Reveals("mask", to=("everybody",)), "a tuple of 'server'"),  # type: ignore[arg-type]
        (lambda: Reveals("mask", to=(), covered_by="hope"), "one of 'epsilon'"),  # type: ignore[arg-type]
    ],
)
def test_what_a_field_cannot_hold_is_refused_with_its_rule(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_unknown_is_allowed_where_it_says_so() -> None:
    assert math.isnan(Seal(scheme="any", opened_by="clients", numbers=FixedPoint(math.nan, math.nan)).range)
    assert Reveals("mask", to=("client",)).covered_by is None


def test_numbers_of_numpy_are_numbers() -> None:
    assert Clip(np.float32(2)).norm == 2.0  # type: ignore[arg-type]
    assert Noise.gaussian(tuple(np.ones(2, np.float32))).std == (1.0, 1.0)
    with pytest.raises(TypeError, match="numbers"):  # no range would be a claim too: that every value fits
        Seal(scheme="a test", opened_by="clients")  # type: ignore[call-arg]
