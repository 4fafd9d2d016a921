"""The cohort secret: sealed for one receiver and one purpose, derived separately for each use."""

from __future__ import annotations

import pytest
from fedplug.api import secrets
from fedplug.api.errors import MessageError


def test_only_the_receiver_opens_a_sealed_secret_and_only_for_its_purpose() -> None:
    private, public = secrets.key_pair()
    sealed = secrets.seal(b"s" * 32, public, b"client 3")
    assert secrets.unseal(sealed, private, b"client 3") == b"s" * 32
    assert b"s" * 8 not in sealed
    other, _ = secrets.key_pair()
    for wrong in ((sealed, other, b"client 3"), (sealed, private, b"client 4"), (sealed[:-1], private, b"client 3"),
                  (bytes([sealed[0] ^ 1]) + sealed[1:], private, b"client 3"),
                  (b"", private, b"client 3")):  # fmt: skip
        with pytest.raises(MessageError, match="does not open"):
            secrets.unseal(*wrong)


def test_sealing_twice_gives_different_bytes() -> None:
    _, public = secrets.key_pair()
    assert secrets.seal(b"s", public, b"p") != secrets.seal(b"s", public, b"p")
    assert secrets.lock(bytes(32), b"s", b"p") != secrets.lock(bytes(32), b"s", b"p")


def test_only_the_same_key_and_purpose_unlock() -> None:
    locked = secrets.lock(bytes(32), b"secret", b"keys")
    assert secrets.unlock(bytes(32), locked, b"keys") == b"secret"
    assert b"secret" not in locked
    for wrong in ((b"\x01" * 32, locked, b"keys"), (bytes(32), locked, b"votes"), (bytes(32), locked[:-1], b"keys"),
                  (bytes(32), locked[:5], b"keys"), (bytes(32), b"", b"keys")):  # fmt: skip
        with pytest.raises(MessageError, match="do not open"):
            secrets.unlock(*wrong)


def test_every_purpose_gives_a_separate_key() -> None:
    purposes = [("vote", 1), ("vote", 2), ("vote", "1", ""), ("vote1",), ("v", "ote1"), ("bfv", "keys"), ()]
    keys = [secrets.derive(bytes(32), *purpose) for purpose in purposes]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 32 for key in keys)
    assert secrets.derive(bytes(32), "vote", 1) == keys[0]
    assert secrets.derive(b"\x01" * 32, "vote", 1) != keys[0]
