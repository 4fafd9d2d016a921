"""The types of received values: any garbage is refused in a few words, without an exception."""

from __future__ import annotations

import contextlib
from typing import Any

import msgpack
import numpy as np
import pytest
from fedplug import Block
from fedplug.api import codec
from fedplug.api.blocks import Plan, block_problem
from fedplug.api.errors import MessageError
from fedplug.api.records import one_line, shown
from fedplug.wire.calls import read_reply
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


def raw_fields(block: Block) -> dict[str, Any]:
    """The fields that travel, as their sender writes them."""
    (code, body) = msgpack.unpackb(codec.encode(block), ext_hook=lambda code, body: (code, body))
    assert code == 3
    fields: dict[str, Any] = codec.decode(body)
    return fields


def raw_block(fields: Any) -> Any:
    """Bytes that decode as a block with these fields, for any fields."""
    return msgpack.ExtType(3, codec.encode(fields))


SIZE = 650


PLAN = Plan.single("clear", 3, ("clear",))


ARRAYS = hnp.arrays(
    hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.unsigned_integer_dtypes() | hnp.floating_dtypes(sizes=(16, 32)),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3) | st.just((SIZE,)),
)


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.just(10**30) | st.just(-(2**70)) | st.floats() | st.text(max_size=9)
    | st.binary(max_size=40) | ARRAYS | st.just(PLAN)
    | st.just(Block("clear", 0)) | st.sampled_from(["noised", "clear", "std.clip", "std.bfv", 0, 1, 650])
)  # fmt: skip


GARBAGE = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4) | st.integers(-(2**63), 2**64 - 1) | st.booleans(), inner, max_size=3),
    max_leaves=5,
)


BLOCK_FIELDS = (
    "zone", "size", "values", "positions", "ciphertexts", "sealed_by", "contributors", "divisor", "weighted",
    "meta", "unheard_of",
)  # fmt: skip


@given(garbage=GARBAGE, name=st.sampled_from(BLOCK_FIELDS[:-1]))
@settings(max_examples=200, deadline=None)
def test_a_block_with_any_field_is_judged_and_never_fails(garbage: Any, name: str) -> None:
    block = Block("clear", 2, np.ones(2, np.float32))
    assert isinstance(block_problem(block.replace(**{name: garbage})), str)
    data = codec.encode({"block": raw_block(raw_fields(block) | {name: garbage})})
    with contextlib.suppress(MessageError):
        assert block_problem(codec.decode(data)["block"]) == ""


@given(GARBAGE)
def test_whatever_arrives_is_named_in_a_few_words(garbage: Any) -> None:
    assert 0 < len(shown(garbage)) <= 60


@pytest.mark.parametrize("text", ["\x1b[2Jgone\r\nnote: all is well\x00", "x" * 100_000, "a\u202eb\u2028c"])
def test_errors_of_clients_are_one_short_line(text: str) -> None:
    assert one_line(text).isprintable()
    assert len(one_line(text)) <= 500
    body = {"error": {"call": text, "message": text, "kind": text}, "done": 0, "saved": 0, "reports": {}}
    reply, _ = read_reply(codec.frame(codec.encode(body)))
    assert reply.error is not None
    for said in (reply.error.call, reply.error.kind, reply.error.message):
        assert said.isprintable()
        assert len(said) <= 500
