"""The one codec through which everything between parties passes: msgpack, plus arrays, big integers, blocks and plans.

Inside one process a message may stay `Packed`: the output of `encode`, with large arrays and ciphertexts held apart,
where nobody can change them. It counts as many bytes as if it had been sent, and reads as if it had arrived.

No pickle: decoding bytes from another party never runs code, and takes memory only for what was counted before. A
message is a frame of 16 bytes (magic, length, CRC-32) and a body; whatever was cut off or damaged on the way is refused
before it is read. A checksum finds accidents, not forgers: it does not prove who sent a message. Decoded arrays are
read-only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any, overload

import msgpack
import numpy as np

from fedplug.api.blocks import Block, Plan, block_problem, unchangeable
from fedplug.api.errors import MessageError
from fedplug.api.records import is_count, kind_of, shown


def pack_positions(positions: np.ndarray[Any, Any]) -> Any:
    """A bitmap where that is shorter than four bytes a position.

    Raises:
        MessageError: they are not whole numbers below 2^32, strictly ascending.
    """
    if not (isinstance(positions, np.ndarray) and positions.dtype.kind in "iu" and positions.ndim == 1):
        raise MessageError("positions must be an array of integers, one a scalar")
    if not (positions[1:] > positions[:-1]).all():
        raise MessageError("positions must be strictly ascending, as those of a plan are; sort them with their values")
    if len(positions) and not (int(positions[0]) >= 0 and int(positions[-1]) < 2**32):
        raise MessageError(f"positions {int(positions[0])} to {int(positions[-1])} must be 0 to 2^32 - 1")
    extent = int(positions[-1]) + 1 if len(positions) else 0
    if len(positions) * 4 <= extent // 8 + 16:
        return positions.astype(np.uint32)
    bitmap = np.zeros(extent, np.bool_)
    bitmap[positions] = True
    return {"bits": np.packbits(bitmap), "extent": extent}


def unpack_positions(packed: Any, size: Any) -> Any:
    """Inverse of `pack_positions`; None stays None.

    Args:
        packed: what it gave.
        size: how many positions there must be.

    Raises:
        MessageError: they are no bitmap that it gives. A wrong list is reported where the block is made.
    """
    if not isinstance(packed, dict):
        return packed
    bits, extent = packed["bits"], packed["extent"]
    if not isinstance(bits, np.ndarray) or bits.dtype != np.uint8 or bits.ndim != 1 or not is_count(extent):
        raise MessageError(f"a bitmap of {shown(bits)} and {shown(extent)}, which must be uint8[n] and a whole number")
    if extent > 8 * len(bits):  # numpy would make room for any number
        raise MessageError(f"a bitmap of {len(bits)} bytes cannot hold {extent} positions")
    held = int.from_bytes(bits, "big").bit_count()
    if held != size:
        raise MessageError(f"a bitmap of {held} positions in a block of size {shown(size)}")
    positions, known = np.empty(held, np.uint32), 0
    for start in range(0, len(bits), _CHUNK):  # a position takes 8 bytes until it is narrowed
        found = np.flatnonzero(np.unpackbits(bits[start : start + _CHUNK])) + 8 * start
        positions[known : known + len(found)] = found
        known += len(found)
    if held and int(positions[-1]) >= extent:
        raise MessageError(f"a bitmap with position {int(positions[-1])}, which ends at {extent}")
    return positions


_FRAME, _MAGIC = struct.Struct(">4sQI"), b"FPM1"
FRAME_SIZE = _FRAME.size  # bytes before the body
_ARRAY, _INTEGER, _BLOCK, _PLAN, _APART = 1, 2, 3, 4, 5
_DTYPE_KINDS = "biuf"
_LARGE = 4096
"""Bytes from which on something is held outside a packed message."""
MOST_ELEMENTS = 1 << 20
"""Values, keys and containers that a message may hold, what is inside its blocks and arrays too. An array counts for 20
or so, however long: send a million numbers as an array."""
_WEIGHT = 16
"""Values that each array, block or plan counts for in addition, since it takes longer to make."""
_DEEPEST = 32
"""Containers, blocks and plans that may lie in one another."""
_LARGEST_INTEGER = 1 << 16
"""Bytes of a whole number: arithmetic with one takes time that grows faster than its size."""
_DTYPE = re.compile(r"[<>|][biuf][1248]|[<>|]f16")
_CHUNK = 1 << 16
"""Bytes of a bitmap that become positions at once."""


@dataclasses.dataclass(frozen=True, eq=False)
class Packed:
    """A value as a reader in the same process is handed it; it never leaves that process.

    Attributes:
        body: the encoded value, with a number in place of everything that is held separately.
        apart: arrays that nobody can change, ciphertexts, and values that were packed before.
        size: bytes that `encode` gives of the value, and that its frame takes.
        zones: how many of them each zone's blocks take.
        framed: whether it has a frame.
    """

    body: bytes
    apart: tuple[Any, ...]
    size: int
    zones: Counter[str]
    framed: bool = False

    def __len__(self) -> int:
        return self.size

    def to_bytes(self) -> bytes:
        """What `encode` gives of the value, in its frame if it has one; made once."""
        return self._bytes

    def in_frame(self) -> Packed:
        """The same in a frame, of which a value that stays in this process needs no more than the size."""
        return Packed(self.body, self.apart, self.size + FRAME_SIZE, self.zones, framed=True)

    def require_bounded(self) -> None:
        """Looks once at how much the value holds, however many read it.

        Raises:
            MessageError: more than `decode` takes.
        """
        return self._bounded

    @functools.cached_property
    def _bounded(self) -> None:
        _require_bounded(self.body, MOST_ELEMENTS)

    @functools.cached_property
    def _bytes(self) -> bytes:
        body = encode(decode(self))
        return frame(body) if self.framed else body


Message = bytes | Packed
"""What travels: bytes, or packed where its reader lives in the same process."""


def pack(value: Any) -> Packed:
    """Like `encode`, for a reader in the same process. Large arrays that nobody can change are not copied.

    Raises:
        MessageError: the value holds something that may not travel.
    """
    writer = _Writer(Counter(), [])
    body = writer.write(value)
    return Packed(body, tuple(writer.apart or ()), len(body) + writer.larger, writer.zones or Counter())


def encode(value: Any, zones: Counter[str] | None = None) -> bytes:
    """Encodes plain data, arrays, blocks and plans.

    Args:
        value: what to encode; dictionaries may have string or integer keys, tuples become lists.
        zones: if given, the bytes that each zone's blocks take in the result are added to it.

    Raises:
        MessageError: the value holds something that may not travel (an object, a function, a tensor).
    """
    return _Writer(zones, None).write(value)


def decode(data: bytes | Packed, zones: Counter[str] | None = None, most: int = MOST_ELEMENTS) -> Any:
    """Inverse of `encode` and of `pack`.

    How many values there are, how deeply they lie in one another and which keys there are is looked at before any of
    them is made, so that bytes of another party cost memory and time in proportion to their number, and not more.

    Args:
        data: what one of them gave.
        zones: if given, the bytes that each zone's blocks take in `data` are added to it.
        most: how many values there may be.

    Raises:
        MessageError: the bytes are not what `encode` gives, or hold more than that, or more deeply than 32 levels.
    """
    apart: tuple[Any, ...] = ()
    if not isinstance(data, Packed | bytes):
        raise MessageError(f"{shown(data)} in place of an encoded value")
    if isinstance(data, Packed):
        data.require_bounded()
        if zones is not None:
            zones.update(data.zones)
        apart, zones, data = data.apart, None, data.body
    else:
        _require_bounded(data, most)

    def revive(code: int, body: bytes, inside: bool = False) -> Any:
        if code == _APART:
            return apart[int.from_bytes(body, "big")]  # in a message that arrived as bytes there is none
        if inside and code in (_BLOCK, _PLAN):  # without end, they would overflow the reader's stack
            raise MessageError("a block or a plan lies in another, which holds plain data and arrays only")
        item = _revive(code, body, functools.partial(revive, inside=True))
        if zones is not None and isinstance(item, Block):
            zones[item.zone] += len(body)
        return item

    try:
        return msgpack.unpackb(data, ext_hook=revive, strict_map_key=False, use_list=True)
    except MessageError:
        raise
    except Exception as error:  # msgpack raises its own types, ValueError, TypeError, UnicodeDecodeError, ...
        raise MessageError(f"unreadable message of {len(data)} bytes ({error or type(error).__name__})") from error


def decode_saved(data: bytes) -> Any:
    """As `decode`, of a file, which may hold as many values as it has bytes: a long run has long histories."""
    return decode(data, most=max(len(data), MOST_ELEMENTS))


_SCALARS = bytes(
    1 if byte < 0x80 or byte >= 0xE0 or byte in (0xC0, 0xC2, 0xC3)
    else byte - 0x9F if 0xA0 <= byte < 0xC0
    else {0xCC: 2, 0xD0: 2, 0xCD: 3, 0xD1: 3, 0xCE: 5, 0xD2: 5, 0xCA: 5, 0xCF: 9, 0xD3: 9, 0xCB: 9}.get(byte, 0)
    for byte in range(256)
)  # fmt: skip
"""By the first byte of a value in msgpack, how many bytes it takes in all; 0 where more is to be read."""
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_CONTAINERS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
"""By the first byte of bytes and texts, of lists and dictionaries, and of extensions, the bytes of its length."""
_NO_KEYS = frozenset([*range(0x80, 0xA0), 0xC7, 0xC8, 0xC9, 0xCA, 0xCB, *range(0xD4, 0xD9), *range(0xDC, 0xE0)])
"""First bytes of what is no key: containers, extensions, and floats. Of numbers that are written out in full a sender
can find thousands with one hash, which make a dictionary as slow as a list."""


def _require_bounded(data: bytes, most: int) -> None:
    """Walks over a message without making anything of it, into its blocks, plans and arrays as well.

    It leaves what it cannot follow to the decoder, which gets no further either.

    Raises:
        MessageError: it has more than `most` values, more than 32 levels, a key that is none, or too long a number.
    """
    at, total, left, keyed = 0, 1, 1, False
    levels: list[tuple[int, bool]] = []  # of the containers around, how many values are left, and whether with keys
    try:
        while True:
            while not left:
                if not levels:
                    return
                left, keyed = levels.pop()
            byte = data[at]
            if keyed and not left & 1 and byte in _NO_KEYS:
                raise MessageError("a dictionary whose keys are not all text or whole numbers, which nobody sends")
            left -= 1
            if size := _SCALARS[byte]:
                at += size
                continue
            if width := _LENGTHS.get(byte):
                at += 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "big")
                continue
            held, with_keys, weight = 1, False, 0
            if byte < 0xA0:
                held, with_keys = byte & 15, byte < 0x90
                at += 1
            elif width := _CONTAINERS.get(byte):
                held, with_keys = int.from_bytes(data[at + 1 : at + 1 + width], "big"), byte >= 0xDE
                at += 1 + width
            else:  # an extension, or no value at all
                width = _EXTENSIONS.get(byte, 0)
                size = int.from_bytes(data[at + 1 : at + 1 + width], "big") if width else 1 << (byte - 0xD4 & 7)
                code = data[at + 1 + width]
                at += 2 + width
                if code not in (_ARRAY, _BLOCK, _PLAN):
                    if code == _INTEGER and size > _LARGEST_INTEGER:
                        raise MessageError(f"a whole number of {size} bytes; {_LARGEST_INTEGER} are the most")
                    at += size
                    continue
                weight = _WEIGHT
            levels.append((left, keyed))
            left, keyed = held * (1 + with_keys), with_keys
            total += left + weight
            if total > most:
                raise MessageError(f"a message of {len(data)} bytes with more than {most} values; send arrays")
            if len(levels) > _DEEPEST:
                raise MessageError(f"a message whose values lie in one another more than {_DEEPEST} levels deep")
    except IndexError:  # cut off
        return


def frame(body: bytes) -> bytes:
    """Puts length and checksum before a body."""
    return _FRAME.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def framed_size(data: bytes | memoryview) -> int:
    """How many bytes the frame takes that these begin with; all of them where they begin with none."""
    return FRAME_SIZE + _FRAME.unpack_from(data)[1] if len(data) >= FRAME_SIZE else len(data)


@overload
def unframe(data: bytes) -> bytes: ...
@overload
def unframe(data: Message) -> Message: ...
def unframe(data: Message) -> Message:
    """Checks length and checksum and gives the body.

    Raises:
        MessageError: the message was truncated or damaged, or is of another format.
    """
    if isinstance(data, Packed):
        return Packed(data.body, data.apart, data.size - FRAME_SIZE, data.zones)
    if len(data) < FRAME_SIZE or data[:4] != _MAGIC:
        raise MessageError(f"{len(data)} bytes that are not a fedplug message (they must begin with {_MAGIC!r})")
    _, length, checksum = _FRAME.unpack_from(data)
    body = data[FRAME_SIZE :]
    if len(body) != length:
        raise MessageError(f"truncated message: {len(body)} of {length} bytes arrived; have it sent again")
    if zlib.crc32(body) != checksum:
        raise MessageError(f"a message of {length} bytes was altered on the way (CRC-32 differs); have it sent again")
    return body


class _Writer:
    """Encodes one value.

    Args:
        zones: if given, the bytes that each zone's blocks take are added to it.
        apart: if given, what is large is put there, and `larger` says how many bytes it would take beyond its number.
    """

    def __init__(self, zones: Counter[str] | None, apart: list[Any] | None) -> None:
        self.zones, self.apart, self.larger = zones, apart, 0

    def write(self, value: Any) -> bytes:
        """The encoded value."""
        try:
            return msgpack.packb(_with_keys(value), default=self._extend)  # type: ignore[no-any-return]
        except (TypeError, ValueError, OverflowError) as error:
            raise MessageError(f"this value cannot travel: {error}") from error

    def _extend(self, item: Any) -> Any:
        if isinstance(item, np.ndarray):
            if item.dtype.kind not in _DTYPE_KINDS:
                raise MessageError(f"an array of {item.dtype} cannot travel; send bool, integer or float arrays")
            if self.apart is not None and item.nbytes >= _LARGE:
                described = len(msgpack.packb([item.dtype.str, list(item.shape)]))
                return self._put_apart(unchangeable(item), _extension_size(described + _bytes_size(item.nbytes)))
            return msgpack.ExtType(_ARRAY, msgpack.packb([item.dtype.str, item.shape, np.ascontiguousarray(item).data]))
        if isinstance(item, Block):
            fields = _block_fields(item)
            if self.apart is not None and item.ciphertexts:
                fields["ciphertexts"] = [_Bytes(p) if isinstance(p, bytes) else p for p in item.ciphertexts]
            body, size = self._nested(fields)
            if self.zones is not None:
                self.zones[item.zone] += size
            return msgpack.ExtType(_BLOCK, body)
        if isinstance(item, Plan):
            return msgpack.ExtType(_PLAN, self._nested([item.labels, list(item.zones)])[0])
        if isinstance(item, Packed):
            return item.to_bytes() if self.apart is None else self._put_apart(item, _bytes_size(item.size))
        if isinstance(item, _Bytes):
            size = len(item.data)
            return item.data if size < _LARGE else self._put_apart(item.data, _bytes_size(size))
        if isinstance(item, np.generic):
            return item.item()
        if isinstance(item, int):  # beyond 64 bits
            size = (item.bit_length() + 8) // 8
            return msgpack.ExtType(_INTEGER, item.to_bytes(size, "big", signed=True))
        raise MessageError(f"{kind_of(item)} cannot travel; send plain data or numpy arrays")

    def _nested(self, fields: Any) -> tuple[bytes, int]:
        """The body of an extension, and how many bytes it takes when it is sent."""
        before, body = self.larger, bytes(msgpack.packb(fields, default=self._extend))
        size = len(body) + self.larger - before
        self.larger = before + _extension_size(size) - _extension_size(len(body))
        return body, size

    def _put_apart(self, item: Any, size: int) -> Any:
        assert self.apart is not None
        self.apart.append(item)
        number = (len(self.apart) - 1).to_bytes(4, "big")
        self.larger += size - _extension_size(len(number))
        return msgpack.ExtType(_APART, number)


_KEYS = frozenset({str, bytes, bool, type(None)})
_HOLDING = frozenset({dict, list, tuple})


def _with_keys(value: Any) -> Any:
    """The value, all of whose dictionaries, however deep, have keys that arrive as they were: a tuple would as a list.

    Raises:
        TypeError: one has another key.
    """
    left, seen = [value], set()
    while left:  # of every message, several times a round
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        inside = item
        if type(item) is dict:
            for key in item:
                if type(key) in _KEYS or isinstance(key, str | np.integer | np.str_):
                    continue
                if not isinstance(key, int) or not -(2**63) <= key < 2**64:  # a larger one travels as an extension
                    raise TypeError(f"a dict has {kind_of(key)} as a key; use text or whole numbers as keys")
            inside = item.values()
        elif type(item) not in _HOLDING:
            continue
        left += [held for held in inside if type(held) in _HOLDING]
    return value


@dataclasses.dataclass(frozen=True, eq=False)
class _Bytes:
    """Bytes that are held outside a message where they are many."""

    data: bytes


def _bytes_size(length: int) -> int:
    """Bytes that a text of this many bytes takes in msgpack."""
    return length + (2 if length < 1 << 8 else 3 if length < 1 << 16 else 5)


def _extension_size(length: int) -> int:
    """Bytes that an extension with a body of that length takes in msgpack."""
    if length in (1, 2, 4, 8, 16):
        return length + 2
    return length + (3 if length < 1 << 8 else 4 if length < 1 << 16 else 6)


def _block_fields(block: Block) -> dict[str, Any]:
    """Only what the receiver needs; defaults are left out to keep the wire lean."""
    fields: dict[str, Any] = {"zone": block.zone, "size": block.size}
    if block.values is not None:
        fields["values"] = block.values
    if block.positions is not None:
        fields["positions"] = pack_positions(block.positions)
    if block.ciphertexts:
        fields["ciphertexts"] = list(block.ciphertexts)
    if block.sealed_by is not None:
        fields["sealed_by"] = block.sealed_by
    if block.contributors != 1:
        fields["contributors"] = block.contributors
    if isinstance(block.divisor, np.ndarray) or block.divisor != 1.0:
        fields["divisor"] = block.divisor
    if block.weighted:
        fields["weighted"] = True
    if block.meta:
        fields["meta"] = dict(block.meta)
    return fields


def _revive(code: int, body: bytes, inside: Callable[[int, bytes], Any]) -> Any:
    if code == _ARRAY:
        dtype_name, shape, raw = msgpack.unpackb(body)
        if not isinstance(dtype_name, str) or not _DTYPE.fullmatch(dtype_name):
            raise MessageError(f"an array of {shown(dtype_name)} may not travel")
        dtype = np.dtype(dtype_name)
        if not isinstance(shape, list) or len(shape) > _DEEPEST or not all(map(is_count, shape)):
            raise MessageError(f"an array whose shape is {shown(shape)}, which must be up to {_DEEPEST} counts")
        if len(raw) != math.prod(shape) * dtype.itemsize:
            raise MessageError(f"an array of {dtype}{shape} cannot have {len(raw)} bytes")
        return np.frombuffer(raw, dtype).reshape(shape)
    if code == _INTEGER:
        return int.from_bytes(body, "big", signed=True)
    if code == _BLOCK:
        fields = msgpack.unpackb(body, ext_hook=inside, strict_map_key=False, use_list=True)
        if strange := [name for name in fields if name not in Block.__dataclass_fields__]:
            raise MessageError(f"a block that cannot be used: it has {shown(strange[0])}, which no block has")
        fields["positions"] = unpack_positions(fields.get("positions"), fields.get("size"))
        parts = fields.get("ciphertexts", [])
        fields["ciphertexts"] = tuple(parts) if isinstance(parts, list) else parts
        block = Block(**fields)
        if problem := block_problem(block):
            raise MessageError(f"a block that cannot be used: {problem}")
        return block
    if code == _PLAN:
        labels, zones = msgpack.unpackb(body, ext_hook=inside, use_list=True)
        return Plan(labels, tuple(zones))
    raise MessageError(f"unknown extension {code} in a message; is the other party newer?")
