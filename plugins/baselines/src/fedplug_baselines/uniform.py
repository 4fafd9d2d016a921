"""Uniform variates, from which DP-SGD draws its batches and LDP-Fed its values."""

from __future__ import annotations

import os

import numpy as np


def uniform_source(source: str, stream: np.random.Generator) -> np.random.Generator:
    """`secure`: a fresh ChaCha20 stream under a 256-bit key from the operating system; `reproducible`: the stream."""
    if source == "reproducible":
        return stream
    from randomgen import ChaCha

    return np.random.Generator(ChaCha(key=int.from_bytes(os.urandom(32), "little"), rounds=20))
