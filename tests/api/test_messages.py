"""What recorded messages hold, as whoever reads the bytes can read it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.errors import MessageError
from fedplug.api.messages import Answered, answered_in, asked_in, num_examples_in
from fedplug.api.types import Block


def message(body: Any) -> bytes:
    return codec.frame(codec.encode(body))


def test_calls_are_read_in_order_with_their_bytes() -> None:
    calls = [codec.encode([7, 0, "fedplug", "train", []]), codec.encode([0, 0, "acme.vote", "ballot", [{"a": 1}]])]
    first, second = asked_in(message({"calls": calls}))
    assert (first.sequence, first.round, first.component, first.method, first.payload) == (7, 0, "fedplug", "train", [])
    assert (second.component, second.payload) == ("acme.vote", [{"a": 1}])
    assert [first.body, second.body] == calls
    assert asked_in(message({"value": 3})) == []


def test_an_answer_says_its_blocks_and_how_many_examples_there_are() -> None:
    block = Block("clear", 2, np.array([1, 2], np.float32))
    found = answered_in(message({"value": {"blocks": {"clear": block}, "num_examples": 31}}))
    assert found is not None
    assert found.blocks is not None
    assert found.blocks["clear"].plain().tolist() == [1, 2]
    assert found.num_examples == 31


@pytest.mark.parametrize("value", [None, 5, [], {"blocks": [1], "num_examples": "3"}])
def test_another_answer_has_neither(value: Any) -> None:
    assert Answered(value).blocks is None
    assert Answered(value).num_examples is num_examples_in(value) is None


def test_a_failure_is_no_answer_and_damage_is_an_error() -> None:
    assert answered_in(message({"error": {"call": "x"}})) is None
    nothing = answered_in(message({"value": None}))
    assert nothing is not None
    assert nothing.value is None
    damaged = message({"value": 1})
    for read in (asked_in, answered_in):
        with pytest.raises(MessageError):
            read(damaged[:-1])
