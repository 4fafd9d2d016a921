"""The traces of a received model that a client can notice."""

from __future__ import annotations

import numpy as np
from fedplug.api.blocks import Layout
from fedplug_std.handed import alarms, signs
from hypothesis import given
from hypothesis import strategies as st

LAYOUT = Layout.of([("fc1.weight", (8, 6)), ("fc1.bias", (8,)), ("fc2.weight", (5, 8))])


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(LAYOUT.size).astype(np.float32)


@given(st.integers(0, 2**31))
def test_training_leaves_no_alarm(seed: int) -> None:
    before = drawn(seed)
    found = signs(before + np.float32(0.1) * drawn(seed + 1), before, LAYOUT)
    assert alarms(found) == []
    assert 0 < found["change"] < 1


def test_rows_that_are_multiples_of_each_other_are_an_alarm() -> None:
    before = drawn(1)
    planted = before.copy()
    planted[:48] = np.outer(np.arange(1, 9), before[:6]).ravel()
    found = signs(planted, before, LAYOUT)
    assert found["parallel_rows"] == 1.0
    assert alarms(found) == ["100% of the rows of a layer are multiples of each other"]


def test_rows_that_became_zeros_are_an_alarm_and_rows_at_rest_are_none() -> None:
    before = drawn(2)
    planted = before.copy()
    planted[56 : 56 + 32] = 0
    update = drawn(3)
    update[:12] = 0
    found = signs(planted, before, LAYOUT, update)
    assert found["emptied_rows"] == 0.8
    assert found["silent_rows"] == 0.25
    assert alarms(found) == ["80% of the rows of a layer became zeros"]
