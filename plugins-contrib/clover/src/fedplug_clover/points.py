"""Shares of a vector with few values that are not zero, short, and silent about where these lie.

A distributed point function (Boyle, Gilboa and Ishai, Function secret sharing: improvements and extensions, CCS 2016,
Fig. 1): two keys for a position and a word. Each key gives one pseudo-random vector over all positions, and the two add
up, modulo 2^64, to the word at the position and to zeros elsewhere. Here k of them at once, with sums over the k.

A key is a walk down a binary tree whose leaves are the positions. Both parties have a seed of 127 bits and a control
bit at each node: equal ones off the path to the position, independent ones on it. A correction word for each level,
the same for both, makes the nodes equal where the path is left.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

SEED, NODE = 20, 16
"""Bytes of what a party is handed, and of a node: a control bit, zeros in place of it in the seed, and the rest."""
_CHILDREN = (b"clover: the left", b"clover:the right")
"""Public keys of AES-128, in Matyas-Meyer-Oseas mode the pseudo-random generator: AES_key(seed) xor seed."""

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


def depth_of(size: int) -> int:
    """Levels of a tree with at least `size` leaves."""
    return (size - 1).bit_length()


def key_size(count: int, size: int) -> int:
    """Bytes of the corrections of `count` points among `size` positions."""
    return count * (depth_of(size) * (NODE + 2) + 8)


def share(positions: Numbers, words: Numbers, size: int) -> tuple[bytes, bytes, bytes]:
    """A fresh seed for either party, and the corrections that both need.

    Args:
        positions: (k,), distinct, of `size`.
        words: int64 (k,).
        size: of the vector.
    """
    seeds, points = (os.urandom(SEED), os.urandom(SEED)), np.arange(len(positions))
    nodes = np.stack([_roots(seed, len(positions)) for seed in seeds])  # (2, k, 16)
    controls = np.stack([np.zeros_like(points, np.uint8), np.ones_like(points, np.uint8)])
    corrections: list[Bytes] = []
    for level in reversed(range(depth_of(size))):
        below, bits = _children(nodes)  # (2, k, 2, 16) and (2, k, 2)
        on = positions >> level & 1  # the child on the path
        seed = below[0, points, 1 - on] ^ below[1, points, 1 - on]
        flips = bits[0] ^ bits[1]
        flips[points, on] ^= 1
        nodes = below[:, points, on] ^ controls[..., None] * seed
        controls = bits[:, points, on] ^ controls * flips[points, on]
        corrections.append(np.concatenate([seed, flips], axis=1))
    last = (words - _words(nodes[0]) + _words(nodes[1])) * np.where(controls[1], -1, 1)
    return *seeds, b"".join(each.tobytes() for each in (*corrections, last))


def expand(party: int, seed: bytes, corrections: bytes, count: int, size: int) -> Numbers:
    """One party's share of the vector, int64 (size,); the two shares add up to it modulo 2^64.

    Args:
        party: 0 or 1.
        seed, corrections: of that party, and of both, as `share` gives them.
        count: k.
        size: of the vector.
    """
    levels, table = depth_of(size), np.frombuffer(corrections, np.uint8)
    each, last = table[: -8 * count].reshape(levels, count, NODE + 2), table[-8 * count :].view(np.int64)
    nodes, controls = _roots(seed, count)[:, None], np.full((count, 1), party, np.uint8)
    for level, correction in enumerate(each):
        below, bits = _children(nodes)  # (k, nodes, 2, 16) and (k, nodes, 2)
        below ^= controls[..., None, None] * correction[:, None, None, :NODE]
        bits ^= controls[..., None] * correction[:, None, NODE:]
        needed = -(-size >> levels - 1 - level)  # the others have no position below them
        nodes, controls = below.reshape(count, -1, NODE)[:, :needed], bits.reshape(count, -1)[:, :needed]
    found: Numbers = (_words(nodes) + controls * last[:, None]).sum(axis=0) * (1 - 2 * party)
    return found


def _roots(seed: bytes, count: int) -> Bytes:
    roots = np.frombuffer(hashlib.shake_256(seed).digest(NODE * count), np.uint8).reshape(count, NODE).copy()
    roots[:, 0] &= 0xFE
    return roots


def _children(nodes: Bytes) -> tuple[Bytes, Bytes]:
    """Both children of nodes, (..., 16): their seeds, (..., 2, 16), and their control bits, (..., 2)."""
    data = nodes.tobytes()
    blocks = np.stack([_encrypted(key, data, nodes.shape) ^ nodes for key in _CHILDREN], axis=-2)
    bits: Bytes = blocks[..., 0] & np.uint8(1)
    blocks[..., 0] &= 0xFE
    return blocks, bits


def _encrypted(key: bytes, data: bytes, shape: tuple[int, ...]) -> Bytes:
    """Not to hide anything: the generator's one-way function takes AES as a public permutation, block by block."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return np.frombuffer(cipher.update(data), np.uint8).reshape(shape)


def _words(nodes: Any) -> Numbers:
    """The last eight bytes of nodes, where no control bit was taken out."""
    found: Numbers = np.ascontiguousarray(nodes[..., 8:]).view(np.int64)[..., 0]
    return found
