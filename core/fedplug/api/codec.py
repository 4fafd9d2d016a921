"""The one codec through which everything between parties passes: msgpack, plus arrays, big integers, blocks and plans.

No pickle: decoding bytes from another party never runs code. A message is a frame of 16 bytes (magic, length, CRC-32)
and a body; whatever was cut off or damaged on the way is refused before it is read. A checksum is no authentication:
it finds accidents, not forgers. Decoded arrays are read-only.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections import Counter
from typing import Any

import msgpack
import numpy as np

from fedplug.api.errors import MessageError
from fedplug.api.typed import block_problem, shown
from fedplug.api.types import Block, Plan

_FRAME = struct.Struct(">4sQI")
_MAGIC = b"FPM1"
_ARRAY, _INTEGER, _BLOCK, _PLAN = 1, 2, 3, 4
_DTYPE_KINDS = "biuf"


def encode(value: Any, zones: Counter[str] | None = None) -> bytes:
    """Encodes plain data, arrays, blocks and plans.

    Args:
        value: what to encode; dictionaries may have string or integer keys, tuples become lists.
        zones: if given, the bytes that each zone's blocks take in the result are added to it.

    Raises:
        MessageError: the value holds something that may not travel (an object, a function, a tensor).
    """

    def extend(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            if item.dtype.kind not in _DTYPE_KINDS:
                raise MessageError(f"an array of {item.dtype} cannot travel; send bool, integer or float arrays")
            contiguous = np.ascontiguousarray(item)
            return msgpack.ExtType(_ARRAY, msgpack.packb([contiguous.dtype.str, list(item.shape), contiguous.data]))
        if isinstance(item, Block):
            body = msgpack.packb(_block_fields(item), default=extend)
            if zones is not None:
                zones[item.zone] += len(body)
            return msgpack.ExtType(_BLOCK, body)
        if isinstance(item, Plan):
            fields = [item.labels, list(item.zones), sorted(item.shared)]
            return msgpack.ExtType(_PLAN, msgpack.packb(fields, default=extend))
        if isinstance(item, np.generic):
            return item.item()
        if isinstance(item, int):  # beyond 64 bits
            size = (item.bit_length() + 8) // 8
            return msgpack.ExtType(_INTEGER, item.to_bytes(size, "big", signed=True))
        raise MessageError(f"a {type(item).__name__} cannot travel; send plain data or numpy arrays")

    try:
        return msgpack.packb(value, default=extend)  # type: ignore[no-any-return]
    except (TypeError, ValueError, OverflowError) as error:
        raise MessageError(f"this value cannot travel: {error}") from error


def decode(data: bytes, zones: Counter[str] | None = None) -> Any:
    """Inverse of `encode`.

    Args:
        data: what `encode` gave.
        zones: if given, the bytes that each zone's blocks take in `data` are added to it.

    Raises:
        MessageError: the bytes are not what `encode` gives.
    """

    def revive(code: int, body: bytes) -> Any:
        item = _revive(code, body)
        if zones is not None and isinstance(item, Block):
            zones[item.zone] += len(body)
        return item

    try:
        return msgpack.unpackb(data, ext_hook=revive, strict_map_key=False, use_list=True)
    except MessageError:
        raise
    except Exception as error:  # msgpack raises its own types, ValueError, TypeError, UnicodeDecodeError, ...
        raise MessageError(f"unreadable message of {len(data)} bytes ({error or type(error).__name__})") from error


def frame(body: bytes) -> bytes:
    """Puts length and checksum before a body."""
    return _FRAME.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def framed_size(data: bytes | memoryview) -> int:
    """How many bytes the frame takes that these begin with; all of them where they begin with none."""
    return _FRAME.size + _FRAME.unpack_from(data)[1] if len(data) >= _FRAME.size else len(data)


def unframe(data: bytes) -> bytes:
    """Checks length and checksum and gives the body.

    Raises:
        MessageError: the message was truncated, damaged, or is none of ours.
    """
    if len(data) < _FRAME.size or data[:4] != _MAGIC:
        raise MessageError(f"{len(data)} bytes that are no fedplug message (they must begin with {_MAGIC!r})")
    _, length, checksum = _FRAME.unpack_from(data)
    body = data[_FRAME.size :]
    if len(body) != length:
        raise MessageError(f"truncated message: {len(body)} of {length} bytes arrived; have it sent again")
    if zlib.crc32(body) != checksum:
        raise MessageError(f"a message of {length} bytes was altered on the way (CRC-32 differs); have it sent again")
    return body


def _block_fields(block: Block) -> dict[str, Any]:
    """Only what the receiver needs; defaults are left out to keep the wire lean."""
    fields: dict[str, Any] = {"zone": block.zone, "size": block.size}
    if block.values is not None:
        fields["values"] = block.values
    if block.positions is not None:
        fields["positions"] = _pack_positions(block.positions)
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


def _pack_positions(positions: np.ndarray[Any, Any]) -> Any:
    """A bitmap where that is shorter than four bytes a position."""
    _check_positions(positions)
    extent = int(positions[-1]) + 1 if len(positions) else 0
    if len(positions) * 4 <= extent // 8 + 16:
        return positions.astype(np.uint32)
    bitmap = np.zeros(extent, np.bool_)
    bitmap[positions] = True
    return {"bits": np.packbits(bitmap), "extent": extent}


def _check_positions(positions: Any) -> None:
    if not (isinstance(positions, np.ndarray) and positions.dtype.kind in "iu" and positions.ndim == 1):
        raise MessageError("positions must be an array of integers, one a scalar")
    if not (positions[1:] > positions[:-1]).all():
        raise MessageError("positions must be strictly ascending, as those of a plan are; sort them with their values")
    if len(positions) and not (int(positions[0]) >= 0 and int(positions[-1]) < 2**32):
        raise MessageError(f"positions {int(positions[0])} to {int(positions[-1])} must be 0 to 2^32 - 1")


def _unpack_positions(packed: Any) -> Any:
    if isinstance(packed, dict):
        if not 0 <= packed["extent"] <= 8 * len(packed["bits"]):  # numpy would make room for any number
            raise MessageError(f"a bitmap of {len(packed['bits'])} bytes cannot hold {packed['extent']} positions")
        return np.flatnonzero(np.unpackbits(packed["bits"], count=packed["extent"])).astype(np.uint32)
    if packed is None:
        return None
    _check_positions(packed)
    return packed.astype(np.uint32, copy=False)


def _revive(code: int, body: bytes) -> Any:
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
        fields = decode(body)
        if strange := [name for name in fields if name not in Block.__dataclass_fields__]:
            raise MessageError(f"a block that cannot be used: it has {shown(strange[0])}, which no block has")
        fields["positions"] = _unpack_positions(fields.get("positions"))
        parts = fields.get("ciphertexts", [])
        fields["ciphertexts"] = tuple(parts) if isinstance(parts, list) else parts
        block = Block(**fields)
        if problem := block_problem(block):
            raise MessageError(f"a block that cannot be used: {problem}")
        return block
    if code == _PLAN:
        labels, zones, shared = decode(body)
        return Plan(labels, tuple(zones), frozenset(shared))
    raise MessageError(f"unknown extension {code} in a message; is the other party newer?")
