"""Reproducible streams: the same for the same purpose, in any order of parties."""

from __future__ import annotations

import hashlib

import numpy as np
from fedplug.api.streams import stream


def test_a_stream_follows_from_seed_and_purpose_alone() -> None:
    first = stream(7, "noise", 1).random(4)
    stream(7, "other").random(100)
    assert (stream(7, "noise", 1).random(4) == first).all()
    others = [stream(8, "noise", 1), stream(7, "noise", 2), stream(7, "noise1"), stream(7, "noise", "1x")]
    assert all((other.random(4) != first).all() for other in others)


def test_a_stream_is_numpys_philox_under_a_hash_of_its_purpose() -> None:
    key = np.frombuffer(hashlib.blake2b(b"7\x1fnoise\x1f1", digest_size=16).digest(), np.uint64)
    reference = np.random.Generator(np.random.Philox(key=key))
    np.testing.assert_array_equal(stream(7, "noise", 1).random(9), reference.random(9))
