"""Numbers of fewer than 64 bits as bytes, without their leading zeros.

A number is cut into parts of 32, 16 and 8 bits, from its lowest bits on, as many as it has, and up to seven bits in
parts of 4, 2 and 1. All parts of one width are adjacent, so whole rows are copied at once, and eight bytes of the last
parts are shifted at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def packed_bytes(count: int, bits: int) -> int:
    """Bytes of `count` numbers of `bits` bits, `count` a multiple of 8."""
    return count * bits // 8


def pack(numbers: NDArray[np.uint64], bits: int) -> NDArray[np.uint8]:
    """The lowest `bits` bits of each number, shape (m, n * bits / 8) for (m, n), n a multiple of 64."""
    rows, count = numbers.shape
    packed, stop = np.empty((rows, packed_bytes(count, bits)), np.uint8), 0
    for kind, place, size in _whole(bits):
        start, stop = stop, stop + count * size
        packed[:, start:stop].view(kind)[:] = numbers.view(kind).reshape(rows, count, -1)[:, :, place]
    if not bits % 8:
        return packed
    top = np.ascontiguousarray(numbers.view(np.uint8).reshape(rows, count, 8)[:, :, bits // 8]).view(np.uint64)
    for width in _odd(bits):
        start, stop = stop, stop + count * width // 8
        pieces = (top & _each_byte(width)).reshape(rows, 8 // width, -1)
        target = packed[:, start:stop].view(np.uint64)
        target[:] = pieces[:, 0]
        for place in range(1, 8 // width):
            target |= pieces[:, place] << np.uint64(width * place)
        top = top >> np.uint64(width)
    return packed


def unpack(packed: NDArray[np.uint8], bits: int, numbers: NDArray[np.uint64]) -> None:
    """Inverse of `pack`: fills `numbers`, shape (m, n), whose rows are contiguous."""
    (rows, count), stop = numbers.shape, 0
    numbers[:] = 0
    for kind, place, size in _whole(bits):
        start, stop = stop, stop + count * size
        numbers.view(kind).reshape(rows, count, -1)[:, :, place] = packed[:, start:stop].view(kind)
    if not bits % 8:
        return
    top, shift = np.zeros((rows, count // 8), np.uint64), 0
    for width in _odd(bits):
        start, stop = stop, stop + count * width // 8
        pieces, source = top.reshape(rows, 8 // width, -1), packed[:, start:stop].view(np.uint64)
        for place in range(8 // width):
            pieces[:, place] |= (source >> np.uint64(width * place) & _each_byte(width)) << np.uint64(shift)
        shift += width
    numbers.view(np.uint8).reshape(rows, count, 8)[:, :, bits // 8] = top.view(np.uint8)


def _whole(bits: int) -> Iterator[tuple[str, int, int]]:
    """Parts of whole bytes: their type, the place of each in its number, counted in that type, and its bytes."""
    start = 0
    for size in (4, 2, 1):
        if bits // 8 & size:
            yield f"<u{size}", start // size, size
            start += size


def _odd(bits: int) -> list[int]:
    """Widths of the parts that the last bits are cut into."""
    return [width for width in (4, 2, 1) if bits % 8 & width]


def _each_byte(width: int) -> np.uint64:
    """The lowest bits of each of eight bytes."""
    return np.uint64((2**width - 1) * 0x0101010101010101)
