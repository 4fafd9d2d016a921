"""The one codec through which everything between parties passes: msgpack, plus arrays, big integers, blocks and plans.

Inside one process a message may stay `Packed`: what `encode` gives, except that large arrays and ciphertexts lie beside
it, where nobody can change them. It counts as many bytes as if it had been sent, and reads as if it had arrived.

No pickle: decoding bytes from another party never runs code. A message is a frame of 16 bytes (magic, length, CRC-32)
and a body; whatever was cut off or damaged on the way is refused before it is read. A checksum finds
accidents, not forgers: it does not prove who sent a message. Decoded arrays are read-only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any, overload

import msgpack
import numpy as np

from fedplug.api.blocks import Block, Plan, block_problem, unchangeable
from fedplug.api.errors import MessageError
from fedplug.api.records import kind_of, shown, with_keys


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


def unpack_positions(packed: Any) -> Any:
    """Inverse of `pack_positions`; None stays None.

    Raises:
        MessageError: they are no bitmap that it gives; of a list whoever makes a block says what is wrong.
    """
    if isinstance(packed, dict):
        if not 0 <= packed["extent"] <= 8 * len(packed["bits"]):  # numpy would make room for any number
            raise MessageError(f"a bitmap of {len(packed['bits'])} bytes cannot hold {packed['extent']} positions")
        return np.flatnonzero(np.unpackbits(packed["bits"], count=packed["extent"])).astype(np.uint32)
    return packed


_FRAME, _MAGIC = struct.Struct(">4sQI"), b"FPM1"
FRAME_SIZE = _FRAME.size  # bytes before the body
_ARRAY, _INTEGER, _BLOCK, _PLAN, _BESIDE = 1, 2, 3, 4, 5
_DTYPE_KINDS = "biuf"
_LARGE = 4096
"""Bytes from which on something lies beside a packed message."""


@dataclasses.dataclass(frozen=True, eq=False)
class Packed:
    """A value as a reader in the same process is handed it; it never leaves that process.

    Attributes:
        body: the encoded value, with a number in place of everything that lies beside it.
        beside: arrays that nobody can change, ciphertexts, and values that were packed before.
        size: bytes that `encode` gives of the value, and that its frame takes.
        zones: how many of them each zone's blocks take.
        framed: whether it has a frame.
    """

    body: bytes
    beside: tuple[Any, ...]
    size: int
    zones: Counter[str]
    framed: bool = False

    def __len__(self) -> int:
        return self.size

    def to_bytes(self) -> bytes:
        """What `encode` gives of the value, in its frame if it has one; made once."""
        return self._bytes

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
    return Packed(body, tuple(writer.beside or ()), len(body) + writer.larger, writer.zones or Counter())


def encode(value: Any, zones: Counter[str] | None = None) -> bytes:
    """Encodes plain data, arrays, blocks and plans.

    Args:
        value: what to encode; dictionaries may have string or integer keys, tuples become lists.
        zones: if given, the bytes that each zone's blocks take in the result are added to it.

    Raises:
        MessageError: the value holds something that may not travel (an object, a function, a tensor).
    """
    return _Writer(zones, None).write(value)


def decode(data: bytes | Packed, zones: Counter[str] | None = None) -> Any:
    """Inverse of `encode` and of `pack`.

    Args:
        data: what one of them gave.
        zones: if given, the bytes that each zone's blocks take in `data` are added to it.

    Raises:
        MessageError: the bytes are not what `encode` gives.
    """
    beside: tuple[Any, ...] = ()
    if isinstance(data, Packed):
        if zones is not None:
            zones.update(data.zones)
        beside, zones, data = data.beside, None, data.body

    def revive(code: int, body: bytes, inside: bool = False) -> Any:
        if code == _BESIDE:
            return beside[int.from_bytes(body, "big")]  # in a message that arrived as bytes there is none
        if inside and code in (_BLOCK, _PLAN):  # without end, they would overflow the stack of whoever reads
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


@overload
def frame(body: bytes) -> bytes: ...
@overload
def frame(body: Packed) -> Packed: ...
def frame(body: Message) -> Message:
    """Puts length and checksum before a body; one that stays in this process needs no more than their size."""
    if isinstance(body, Packed):
        return Packed(body.body, body.beside, body.size + FRAME_SIZE, body.zones, framed=True)
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
        return Packed(data.body, data.beside, data.size - FRAME_SIZE, data.zones)
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
        beside: if given, what is large is put there, and `larger` says how many bytes it would take beyond its number.
    """

    def __init__(self, zones: Counter[str] | None, beside: list[Any] | None) -> None:
        self.zones, self.beside, self.larger = zones, beside, 0

    def write(self, value: Any) -> bytes:
        """The encoded value."""
        try:
            return msgpack.packb(with_keys(value), default=self._extend)  # type: ignore[no-any-return]
        except (TypeError, ValueError, OverflowError) as error:
            raise MessageError(f"this value cannot travel: {error}") from error

    def _extend(self, item: Any) -> Any:
        if isinstance(item, np.ndarray):
            if item.dtype.kind not in _DTYPE_KINDS:
                raise MessageError(f"an array of {item.dtype} cannot travel; send bool, integer or float arrays")
            if self.beside is not None and item.nbytes >= _LARGE:
                described = len(msgpack.packb([item.dtype.str, list(item.shape)]))
                return self._put_beside(unchangeable(item), _extension_size(described + _bytes_size(item.nbytes)))
            return msgpack.ExtType(_ARRAY, msgpack.packb([item.dtype.str, item.shape, np.ascontiguousarray(item).data]))
        if isinstance(item, Block):
            fields = _block_fields(item)
            if self.beside is not None and item.ciphertexts:
                fields["ciphertexts"] = [_Bytes(p) if isinstance(p, bytes) else p for p in item.ciphertexts]
            body, size = self._nested(fields)
            if self.zones is not None:
                self.zones[item.zone] += size
            return msgpack.ExtType(_BLOCK, body)
        if isinstance(item, Plan):
            return msgpack.ExtType(_PLAN, self._nested([item.labels, list(item.zones), sorted(item.shared)])[0])
        if isinstance(item, Packed):
            return item.to_bytes() if self.beside is None else self._put_beside(item, _bytes_size(item.size))
        if isinstance(item, _Bytes):
            size = len(item.data)
            return item.data if size < _LARGE else self._put_beside(item.data, _bytes_size(size))
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

    def _put_beside(self, item: Any, size: int) -> Any:
        assert self.beside is not None
        self.beside.append(item)
        number = (len(self.beside) - 1).to_bytes(4, "big")
        self.larger += size - _extension_size(len(number))
        return msgpack.ExtType(_BESIDE, number)


@dataclasses.dataclass(frozen=True, eq=False)
class _Bytes:
    """Bytes that lie beside a message where they are many."""

    data: bytes


def _bytes_size(length: int) -> int:
    """Bytes that so many bytes take in msgpack."""
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
        dtype = np.dtype(dtype_name)
        if dtype.kind not in _DTYPE_KINDS:
            raise MessageError(f"an array of {dtype} may not travel")
        if len(raw) != math.prod(shape) * dtype.itemsize:
            raise MessageError(f"an array of {dtype}{shape} cannot have {len(raw)} bytes")
        return np.frombuffer(raw, dtype).reshape(shape)
    if code == _INTEGER:
        return int.from_bytes(body, "big", signed=True)
    if code == _BLOCK:
        fields = msgpack.unpackb(body, ext_hook=inside, strict_map_key=False, use_list=True)
        if strange := [name for name in fields if name not in Block.__dataclass_fields__]:
            raise MessageError(f"a block that cannot be used: it has {shown(strange[0])}, which no block has")
        fields["positions"] = unpack_positions(fields.get("positions"))
        parts = fields.get("ciphertexts", [])
        fields["ciphertexts"] = tuple(parts) if isinstance(parts, list) else parts
        block = Block(**fields)
        if problem := block_problem(block):
            raise MessageError(f"a block that cannot be used: {problem}")
        return block
    if code == _PLAN:
        labels, zones, shared = msgpack.unpackb(body, ext_hook=inside, use_list=True)
        return Plan(labels, tuple(zones), frozenset(shared))
    raise MessageError(f"unknown extension {code} in a message; is the other party newer?")
