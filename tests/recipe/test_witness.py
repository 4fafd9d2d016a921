"""An extension that changes what a component is handed or gives is found out by a digest of both."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from fedplug import Block
from fedplug.recipe.witness import Witness


def block(*values: float) -> Block:
    return Block("noised", len(values), np.array(values, np.float32))


@pytest.mark.parametrize(
    "arguments",
    [{"block": block(1, 3)}, {"block": block(1, 2).replace(divisor=2.0)}, {"block": block(1, 2), "weights": {0: 0.5}}],
)
def test_a_digest_sees_values_divisors_and_weights(arguments: dict[str, Any]) -> None:
    assert Witness.digest({"block": block(1, 2)}) == Witness.digest({"block": block(1, 2), "ctx": object()})
    assert Witness.digest({"block": block(1, 2)}) != Witness.digest(arguments)


def test_it_notes_what_was_handed_before_it_can_be_changed() -> None:
    witness, given = Witness(), block(1, 2)
    steps = witness.protect(given)
    next(steps)
    assert given.values is not None
    given.values[0] = 9  # in place, as a careless extension or component may
    with pytest.raises(StopIteration) as end:
        steps.send(block(5, 6))
    assert witness.handed == Witness.digest({"block": block(1, 2)})
    assert witness.given == Witness.digest(block(5, 6))
    assert end.value.value.plain().tolist() == [5, 6]


@dataclasses.dataclass(frozen=True)
class Report:
    status: str
    images: Any = None


def test_what_an_attack_found_is_witnessed_too() -> None:
    found = Report("finished", np.ones(3, np.float32))
    assert Witness.digest(found) == Witness.digest(found) != b""
    assert Witness.digest(found) != Witness.digest(dataclasses.replace(found, images=np.zeros(3, np.float32)))
    assert "attack" in Witness.HOOKS
