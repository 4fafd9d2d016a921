"""One name of a mechanism has one cost in a run."""

from __future__ import annotations

import dataclasses

import numpy as np
from fedplug import Noise
from fedplug_ledger.curves import Stated, curve_problems, curves_of
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class Flat:
    """The same cost at every order."""

    cost: float

    def rdp(self, orders: NDArray[np.float64], multiplier: float) -> NDArray[np.float64]:
        return np.full(len(orders), self.cost)


def stated(who: str, mechanism: str, curve: Flat | None) -> Stated:
    return who, (Noise(mechanism=mechanism, at_least=1.0, curve=curve),)


def test_equal_curves_under_one_name_are_one() -> None:
    same = [stated("a", "acme.x", Flat(1.0)), stated("b", "acme.x", Flat(1.0)), stated("c", "acme.y", Flat(2.0))]
    assert curves_of(same) == {"acme.x": Flat(1.0), "acme.y": Flat(2.0)}
    assert curve_problems(same, curves_of(same)) == []


def test_another_curve_no_curve_and_a_curve_for_known_noise_are_told_apart() -> None:
    odd = [
        stated("a", "acme.x", Flat(1.0)), stated("b", "acme.x", Flat(2.0)), stated("c", "acme.x", None),
        stated("d", "gaussian", Flat(1.0)),
    ]  # fmt: skip
    found = dict(curve_problems(odd, curves_of(odd)))
    assert found.keys() == {"b", "c", "d"}
    assert "another curve for the mechanism acme.x" in found["b"]
    assert "no curve for the mechanism acme.x" in found["c"]
    assert "whose cost is known here" in found["d"]
