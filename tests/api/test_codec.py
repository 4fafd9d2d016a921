"""The codec: permitted values come back equal, everything else is refused, and every byte is accounted for."""

from __future__ import annotations

import contextlib
import datetime
import pickle
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from examples import examples
from fedplug.api import codec
from fedplug.api.blocks import BASE_ZONES, Block, Plan
from fedplug.api.errors import MessageError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Plain and sealed blocks, with positions as a bitmap (dense) or a list (scattered) or none."""
    positions = None
    if draw(st.booleans()):
        highest = draw(st.sampled_from([40, 100_000]))
        chosen = draw(st.sets(st.integers(0, highest), max_size=30))
        positions = np.array(sorted(chosen), np.uint32)
    size = len(positions) if positions is not None else draw(st.integers(0, 30))
    sealed = draw(st.booleans())
    divisor = draw(st.floats(0.01, 100))
    return Block(
        zone=draw(st.sampled_from(BASE_ZONES)),
        size=size,
        values=None if sealed else draw(hnp.arrays(np.float32, size)),
        positions=positions,
        ciphertexts=tuple(draw(st.lists(st.binary(max_size=20), max_size=3))) if sealed else (),
        sealed_by="std.bfv" if sealed else None,
        contributors=draw(st.integers(1, 300)),
        divisor=divisor if draw(st.booleans()) else np.full(size, divisor),
        weighted=draw(st.booleans()),
        meta=draw(st.dictionaries(st.text(max_size=5), st.integers() | st.binary(max_size=9), max_size=2)),
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    labels = draw(hnp.arrays(np.uint8, st.integers(0, 30), elements=st.integers(0, 3)))
    return Plan(labels, BASE_ZONES)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**300), 2**300), st.floats(), st.text(),
    st.binary(max_size=50), ARRAYS, blocks(), plans(),
)  # fmt: skip
DATA = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4)
    | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=5) | st.integers(-(2**63), 2**64 - 1), inner, max_size=4),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal in type, dtype, shape and every bit; tuples come back as lists."""
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and left.tobytes() == right.tobytes()
        )
    if isinstance(left, Block):
        return (
            isinstance(right, Block)
            and isinstance(right.ciphertexts, tuple)
            and all(same(getattr(left, name), getattr(right, name)) for name in left.__dataclass_fields__)
        )
    if isinstance(left, Plan):
        return (
            isinstance(right, Plan)
            and same(left.labels, right.labels)
            and left.zones == right.zones
        )
    if isinstance(left, list | tuple):
        return isinstance(right, list | tuple) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return isinstance(right, dict) and list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, float) and left != left:
        return isinstance(right, float) and right != right
    return type(left) is type(right) and bool(left == right)


@given(DATA)
@settings(max_examples=examples(150), deadline=None)
@example({-1: (1, [2**64, -(2**63) - 1]), "a": b"", 7: np.zeros(())})
def test_what_may_travel_comes_back_equal(value: Any) -> None:
    assert same(value, codec.decode(codec.encode(value)))


@given(DATA)
@settings(max_examples=examples(80), deadline=None)
def test_zone_counts_of_sender_and_receiver_agree_and_never_exceed_the_message(value: Any) -> None:
    sent: Counter[str] = Counter()
    received: Counter[str] = Counter()
    data = codec.encode(value, sent)
    codec.decode(data, received)
    assert +sent == +received
    assert 0 <= sum(sent.values()) <= len(data)


def test_zone_counts_are_the_bytes_of_the_blocks() -> None:
    big = Block("noised", 5000, np.arange(5000, dtype=np.float32))
    sealed = Block("encrypted", 8, ciphertexts=(b"c" * 7000,), sealed_by="std.bfv")
    zones: Counter[str] = Counter()
    data = codec.encode({"blocks": {"noised": big, "encrypted": sealed}, "rest": "x" * 100}, zones)
    assert 20_000 <= zones["noised"] < 20_100
    assert 7_000 <= zones["encrypted"] < 7_100
    assert 100 < len(data) - sum(zones.values()) < 200  # bytes that belong to no block


@pytest.mark.parametrize("scalar", [np.float32(1.5), np.int64(-3), np.uint64(2**64 - 1), np.bool_(True)])
def test_numpy_scalars_become_plain_numbers(scalar: Any) -> None:
    value = codec.decode(codec.encode([scalar]))[0]
    assert value == scalar
    assert type(value) in (bool, int, float)


def test_arrays_in_any_memory_order_travel() -> None:
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for view in (array.T, array[::-1, :, ::2], np.asfortranarray(array)):
        back = codec.decode(codec.encode(view))
        assert np.array_equal(back, view)
        assert back.dtype == view.dtype


@pytest.mark.parametrize(("highest", "count"), [(1000, 900), (10_000_000, 10)])
def test_positions_take_the_shorter_form(highest: int, count: int) -> None:
    positions = np.sort(np.random.default_rng(1).choice(highest, count, replace=False)).astype(np.uint32)
    block = Block("clear", count, np.zeros(count, np.float32), positions)
    data = codec.encode(block)
    assert np.array_equal(codec.decode(data).positions, positions)
    assert len(data) - 4 * count < min(4 * count, highest / 8) + 150


def test_positions_out_of_order_are_refused_by_the_sender() -> None:
    for wrong in ([3, 1], [2, 2]):
        block = Block("clear", 2, np.zeros(2, np.float32), np.array(wrong, np.uint32))
        with pytest.raises(MessageError, match="ascending"):
            codec.encode(block)
    for beyond in ([-2, -1], [-1, 5], [3, 2**32]):
        block = Block("clear", 2, np.zeros(2, np.float32), np.array(beyond, np.int64))  # type: ignore[arg-type]
        with pytest.raises(MessageError, match="must be 0 to"):
            codec.encode(block)


@pytest.mark.parametrize(
    "positions",
    [np.array([3, 1], np.uint32), np.array([2, 2], np.uint32), np.array([-2, 1]), np.array([1, 2**32]),
     np.array([0.0, 1.0]), np.array([False, True]), np.array([[0, 1]], np.uint32), 5, "ab", [0, 1]],
    ids=str,
)  # fmt: skip
def test_positions_that_cannot_be_are_refused_by_the_receiver(positions: Any) -> None:
    body = codec.encode({"zone": "clear", "size": 2, "positions": positions})
    with pytest.raises(MessageError):
        codec.decode(msgpack.packb(msgpack.ExtType(3, body)))


def test_positions_of_another_integer_type_become_uint32() -> None:
    block = Block("clear", 2, positions=np.array([1, 7], np.int64))  # type: ignore[arg-type]
    assert codec.decode(codec.encode(block)).positions.dtype == np.uint32


@pytest.mark.parametrize(
    "positions", [np.array([1, 7], np.int64), np.array([7, 1], np.uint32), np.array([0.5, 2]), [1, 2], {"bits": 1}],
    ids=str,
)  # fmt: skip
def test_what_arrives_in_place_of_positions_is_refused(positions: Any) -> None:
    body = codec.encode({"zone": "clear", "size": 2, "positions": positions})
    with pytest.raises(MessageError):
        codec.decode(msgpack.packb(msgpack.ExtType(3, body)))


@pytest.mark.parametrize(
    "field",
    [{"zone": 5}, {"size": -1}, {"size": 1.0}, {"size": True}, {"contributors": "1"}, {"contributors": -1},
     {"divisor": "x"}, {"divisor": None}, {"weighted": 1}, {"sealed_by": 3}, {"ciphertexts": ["text"]}, {"meta": []},
     {"l2_bound": 1.0}],
    ids=str,
)  # fmt: skip
def test_a_block_of_wrong_types_is_refused(field: dict[str, Any]) -> None:
    body = codec.encode({"zone": "clear", "size": 0} | field)
    with pytest.raises(MessageError):
        codec.decode(msgpack.packb(msgpack.ExtType(3, body)))


@pytest.mark.parametrize(
    "value",
    [object(), lambda: 0, {1, 2}, 1 + 2j, datetime.date(2026, 1, 1), np.array([object()]), np.array(["text"]),
     np.zeros(2, np.complex64), np.zeros(2, "datetime64[s]"), np.zeros(2, [("a", "f4")]), Path("x"), ValueError("x"),
     "\ud800"],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_may_not_travel_is_refused_by_the_sender(value: Any) -> None:
    with pytest.raises(MessageError):
        codec.encode({"payload": [value]})


def test_a_key_that_cannot_be_one_is_refused_by_both() -> None:
    for keyed in ({(1, 2): 3}, [{"deep": ({(1, 2): 3},)}]):  # tuples become lists
        for write in (codec.encode, codec.pack):
            with pytest.raises(MessageError, match="cannot travel: a dict has a tuple as a key; use text or whole"):
                write(keyed)
    with pytest.raises(MessageError, match="keys are not all text or whole numbers"):
        codec.decode(msgpack.packb({(1, 2): 3}))
    keys: list[Any] = [1.5, np.float32(1), 2**64, -(2**63) - 1]
    for key in keys:  # a sender can find thousands of the last two with one hash
        with pytest.raises(MessageError, match="cannot travel: a dict has"):
            codec.encode({key: 3})
    for key in ("a", 3, -3, 2**64 - 1, np.int8(2), True, None, b"x"):
        assert codec.decode(codec.encode({key: 3})) == {key: 3}


def test_nothing_is_ever_unpickled() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return pytest.fail, ("code ran",)

    payload = pickle.dumps(Bomb())
    for data in (payload, msgpack.packb(msgpack.ExtType(1, payload)), msgpack.packb(msgpack.ExtType(3, payload))):
        with pytest.raises(MessageError):
            codec.decode(data)
    array = msgpack.packb(["|O", [1], b"\x00" * 8])
    with pytest.raises(MessageError, match=r"\|O. may not travel"):
        codec.decode(msgpack.packb(msgpack.ExtType(1, array)))


@pytest.mark.parametrize("depth", [1, 5, 50])  # some hundreds would end the process
@pytest.mark.parametrize("kind", ["block", "plan"])
def test_a_block_or_a_plan_in_another_is_refused_before_it_is_read(kind: str, depth: int) -> None:
    def around(inner: Any) -> Any:
        if kind == "block":
            return msgpack.ExtType(3, msgpack.packb({"zone": "clear", "size": 0, "meta": {"a": [inner]}}))
        return msgpack.ExtType(4, msgpack.packb([inner, ["clear"], []]))

    nested: Any = array_of(0)
    for _ in range(depth + 1):
        nested = around(nested)
    with pytest.raises(MessageError, match=r"lies? in (one )?another"):
        codec.decode(msgpack.packb({"value": [nested]}))


def packed(code: int, body: Any) -> bytes:
    return bytes(msgpack.packb(msgpack.ExtType(code, msgpack.packb(body))))


def array_of(*numbers: int) -> Any:
    array = np.array(numbers, np.uint8)
    return msgpack.ExtType(1, msgpack.packb([array.dtype.str, list(array.shape), array.tobytes()]))


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", packed(1, ["<f4", [3], b"\x00" * 8]), packed(1, ["<f4", [-1, -1], b"\x00" * 4]),
     packed(1, ["nonsense", [1], b"\x00"]), packed(1, 5), packed(4, [5, [], []]), packed(9, 0),
     packed(3, {"zone": "clear"}), packed(3, {"zone": "clear", "size": 3, "values": array_of(1, 2)}),
     packed(3, {"zone": "clear", "size": 1, "surprise": 1}), packed(3, {"zone": "clear", "size": 1, "values": 5}),
     packed(3, {"zone": "clear", "size": 1, "positions": {"bits": array_of(1), "extent": 2**40}}),
     packed(4, [array_of(9), ["clear"], []]), b"\x91" * 100_000],
    ids=str,
)  # fmt: skip
def test_bytes_of_no_message_give_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(MessageError):
        codec.decode(data)


@given(st.binary(max_size=200))
@settings(max_examples=examples(150), deadline=None)
def test_any_bytes_decode_or_give_a_message_error(data: bytes) -> None:
    for read in (codec.decode, codec.unframe):
        with contextlib.suppress(MessageError):
            read(data)


@given(DATA, st.data())
@settings(max_examples=examples(80), deadline=None)
def test_a_truncated_or_altered_body_never_gives_another_error(value: Any, data: st.DataObject) -> None:
    body = bytearray(codec.encode(value))
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    for wrong in (bytes(body), bytes(body[: bit // 8])):
        with contextlib.suppress(MessageError):
            codec.decode(wrong)


@given(st.binary(max_size=100), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_every_truncated_or_altered_frame_is_refused(body: bytes, data: st.DataObject) -> None:
    framed = codec.frame(body)
    assert codec.unframe(framed) == body
    bit = data.draw(st.integers(0, 8 * len(framed) - 1))
    altered = bytearray(framed)
    altered[bit // 8] ^= 1 << bit % 8
    for wrong in (bytes(altered), framed[: bit // 8], framed + b"x"):
        with pytest.raises(MessageError):
            codec.unframe(wrong)


def test_the_message_says_what_happened() -> None:
    framed = codec.frame(codec.encode({"a": 1}))
    with pytest.raises(MessageError, match="truncated message: 2 of 4 bytes arrived"):
        codec.unframe(framed[:-2])
    with pytest.raises(MessageError, match="altered on the way"):
        codec.unframe(framed[:-1] + b"\x00")
    with pytest.raises(MessageError, match="are not a fedplug message"):
        codec.unframe(b"HTTP/1.1 200 OK\r\n")


def test_decoded_arrays_are_read_only() -> None:
    array = codec.decode(codec.encode(np.zeros(3)))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(DATA, max_size=3), st.lists(st.sampled_from([4000, 4096, 70_000]), max_size=3))
def test_a_packed_message_reads_and_counts_as_if_it_had_been_sent(values: list[Any], lengths: list[int]) -> None:
    large = [np.arange(length, dtype=np.uint8) for length in lengths]
    sealed = Block("encrypted", 3, ciphertexts=tuple(bytes(length) for length in lengths), sealed_by="x")
    plain = [Block("clear", len(array), array.astype(np.float32)) for array in large]
    value = {"values": values, "large": large, "sealed": [sealed] * bool(lengths), "plain": plain}
    zones: Counter[str] = Counter()
    sent, inner = codec.encode(value, zones), codec.pack(value)
    for packed, data in ((inner, sent), (codec.pack(["outer", inner]), codec.encode(["outer", sent]))):
        assert (packed.size, len(packed)) == (len(data), len(data))
        assert packed.to_bytes() == data
    assert inner.zones == zones
    assert same(codec.decode(inner), codec.decode(sent))


def test_packed_arrays_are_copied_unless_nobody_can_change_them() -> None:
    writable = np.zeros(2000, np.float32)
    arrived = codec.decode(codec.encode(writable))
    marked = np.zeros(2000, np.float32)
    kept = marked[:]
    marked.flags.writeable = False
    view = writable.view()
    view.flags.writeable = False
    given = {"arrived": arrived, "part": arrived[:1500], "open": writable, "view": view, "marked": marked}
    found = codec.decode(codec.pack(given))
    writable[:], kept[:] = 1, 1
    assert [np.shares_memory(found[name], given[name]) for name in given] == [True, True, False, False, False]
    assert not any(array.any() for array in found.values())
    for array in found.values():
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_what_one_reader_or_the_sender_does_to_a_packed_message_no_other_reader_meets() -> None:
    array, block = np.zeros(2000), Block("clear", 2000, np.zeros(2000, np.float32), meta={"seen": [1]})
    value = {"list": [1], "array": array, "block": block}
    packed = codec.pack(value)
    assert isinstance(block.values, np.ndarray)
    array[:], block.values[:] = 1, 1
    value["list"].append(2)  # type: ignore[attr-defined]
    first = codec.decode(packed)
    first["list"].append(3)
    first["block"].meta["seen"].append(2)
    for read in (first["array"], first["block"].values):
        with pytest.raises(ValueError, match="read-only"):
            read += 1
    second = codec.decode(packed)
    assert (second["list"], second["block"].meta) == ([1], {"seen": [1]})
    assert not second["array"].any()
    assert not second["block"].values.any()
    assert codec.decode(packed.to_bytes())["list"] == [1]


def test_bytes_that_arrive_have_no_other_keys_with_them() -> None:
    with pytest.raises(MessageError):
        codec.decode(msgpack.packb(msgpack.ExtType(5, (0).to_bytes(4, "big"))))


# -- what bytes of a hostile party cost --------------------------------------------------------------------------------

TIME, MEMORY = 2.0, 20
"""Limits for a frame of a megabyte: seconds, and memory as a multiple of its bytes. Valid frames stay far below."""


def keys_of_one_hash(count: int) -> bytes:
    """A dictionary whose keys are whole numbers as extensions, all with the hash of the first."""
    modulus = 2**61 - 1
    keys = (number * modulus + 5 for number in range(1 << 20, (1 << 20) + count))
    pairs = (msgpack.packb(msgpack.ExtType(2, key.to_bytes(11, "big"))) + b"\x01" for key in keys)
    return b"\xdf" + count.to_bytes(4, "big") + b"".join(pairs)


HOSTILE = {
    "keys of one hash": keys_of_one_hash(45_000),
    "float keys": b"\xde\xff\xff" + b"".join(b"\xcb" + np.float64(2.0**n).tobytes() + b"\x01" for n in range(1000)),
    "empty lists": b"\xdd\x00\x7f\xff\xff" + b"\x90" * ((1 << 23) - 1),
    "empty dictionaries in a block": packed(3, {"zone": "clear", "size": 0, "meta": {"a": [{}] * 2_000_000}}),
    "lists in lists": b"\x91" * 1_000_000 + b"\x01",
    "lists that claim the rest": b"".join(b"\xdd\x00\x0f\xff\x00" for _ in range(100_000)),
    "dictionaries that claim the rest": b"".join(b"\xdf\x00\x0f\xff\x00\x01" for _ in range(100_000)),
    "many arrays": msgpack.packb([array_of(1, 2, 3)] * 100_000),
    "an array of many dimensions": packed(1, ["|u1", [1] * 500_000, b"\x00"]),
    "an array of a long type": packed(1, [",".join(["i4"] * 300_000), [0], b""]),
    "a number of a megabyte": msgpack.packb(msgpack.ExtType(2, b"\x7f" * 1_000_000)),
    "a bitmap of a megabyte": packed(3, {"zone": "clear", "size": 8, "positions": {
        "bits": msgpack.ExtType(1, msgpack.packb(["|u1", [1_000_000], b"\xff" * 1_000_000])), "extent": 8_000_000}}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_frame_is_refused_before_it_costs_time_or_memory(name: str) -> None:
    data = HOSTILE[name]
    began = time.process_time()
    with pytest.raises(MessageError):
        codec.decode(data)
    assert time.process_time() - began < TIME
    tracemalloc.start()
    try:
        with pytest.raises(MessageError):
            codec.decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < max(MEMORY * 1_000_000, 2 * len(data))


def test_as_many_values_as_a_message_may_hold_are_read_and_one_more_is_not() -> None:
    most = codec.MOST_ELEMENTS
    assert len(codec.decode(codec.encode([0] * (most - 1)))) == most - 1
    with pytest.raises(MessageError, match=f"more than {most} values; send arrays"):
        codec.decode(codec.encode([0] * most))
    packed = codec.pack([0] * most)
    for _ in range(2):  # for every reader
        with pytest.raises(MessageError, match=f"more than {most} values; send arrays"):
            codec.decode(packed)
    assert len(codec.decode_saved(codec.encode([0] * most))) == most
    value: Any = 1
    for _ in range(32):
        value = [value]
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(MessageError, match="32 levels deep"):
        codec.decode(codec.encode([value]))


@given(DATA)
@settings(max_examples=examples(80), deadline=None)
def test_the_walk_before_decoding_counts_what_is_there(value: Any) -> None:
    """A bound of exactly its size passes it, and one less does not: the walk follows every byte."""
    data = codec.encode(value)
    low, high = 1, 4096
    while low < high:
        middle = (low + high) // 2
        try:
            codec.decode(data, most=middle)
        except MessageError:
            low = middle + 1
        else:
            high = middle
    assert low <= 1 + 16 * len(data)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100])
def test_a_file_of_a_few_numbers_is_read_back(size: int) -> None:
    array = np.arange(size, dtype=np.float32)
    assert np.array_equal(codec.decode_saved(codec.encode(array)), array)
