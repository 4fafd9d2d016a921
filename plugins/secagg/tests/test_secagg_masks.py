"""Seeds that two clients agree on, streams that cancel, and residues in as few bytes as they need."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from examples import examples
from fedplug.api import secrets
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_secagg import masks
from hypothesis import given, settings
from hypothesis import strategies as st

WIDTHS = [8, 9, 12, 16, 17, 20, 24, 27, 31, 32, 33, 40, 47, 48, 63, 64]


def test_both_ends_agree_and_each_purpose_has_its_own_seed():
    (a, public_a), (b, public_b) = secrets.key_pair(), secrets.key_pair()
    one, other = masks.KeyAgreement(a), masks.KeyAgreement(b)
    assert one.public == public_a
    assert one.seed(public_b, b"round 1") == other.seed(public_a, b"round 1")
    assert len({one.seed(public_b, purpose) for purpose in (b"round 1", b"round 2", b"")}) == 3


def test_seeds_are_hkdf_sha256():
    (a, public_a), (_, public_b) = secrets.key_pair(), secrets.key_pair()
    shared = X25519PrivateKey.from_private_bytes(a).exchange(X25519PublicKey.from_public_bytes(public_b))
    salt = b"".join(sorted((public_a, public_b)))
    expected = HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=b"purpose").derive(shared)
    assert masks.KeyAgreement(a).seed(public_b, b"purpose") == expected


@pytest.mark.parametrize("public", [b"short", bytes(32)])
def test_a_public_key_that_is_none(public):
    with pytest.raises(MessageError, match="not one of X25519, or is a weak one"):
        masks.KeyAgreement(secrets.key_pair()[0]).seed(public, b"")


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("size", [0, 1, 5, 2**17 // 4, 2**17 + 3])
def test_a_mask_is_the_stream_of_aes_256_in_counter_mode(bits, size):
    seed, total = secrets.draw(), np.zeros(size, masks.word(bits))
    masks.add_masks(total, [(seed, 1)])
    stream = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor().update(bytes(total.nbytes))
    assert total.tobytes() == stream
    masks.add_masks(total, [(seed, -1)])
    assert not total.any()


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(WIDTHS), st.integers(0, 300), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_masks_of_pairs_cancel_in_the_sum(bits, size, clients, seed):
    plain = np.random.default_rng(seed).integers(0, 2**62, (clients, size)).astype(masks.word(bits))
    seeds = {(u, v): secrets.draw() for u in range(clients) for v in range(u)}
    sent = []
    for u in range(clients):
        vector = plain[u].copy()
        masks.add_masks(vector, [(seeds[max(u, v), min(u, v)], 1 if v > u else -1) for v in range(clients) if v != u])
        sent.append(masks.pack(vector, bits))
    total = sum((masks.unpack(data, size, bits) for data in sent), np.zeros(size, masks.word(bits)))
    mask = np.uint64(2**bits - 1)
    expected = plain.sum(axis=0, dtype=np.uint64)
    assert ((total.astype(np.uint64) & mask) == (expected & mask)).all()


@settings(max_examples=examples(100))
@given(st.integers(8, 64), st.integers(0, 2000), st.integers(0, 2**32 - 1))
def test_packed_residues_come_back_in_as_few_bytes_as_they_need(bits, size, seed):
    words = np.random.default_rng(seed).integers(0, 2**64, size, np.uint64).astype(masks.word(bits))
    data = masks.pack(words, bits)
    assert len(data) == masks.packed_size(size, bits) == -(-size * bits // 8)
    back = masks.unpack(data, size, bits)
    assert back.dtype == words.dtype
    assert (back == words & words.dtype.type(2**bits - 1)).all()


def test_long_vectors_are_packed_in_several_blocks():
    words = np.random.default_rng(1).integers(0, 2**20, 64 * 4096 * 3 + 77).astype(np.uint32)
    assert (masks.unpack(masks.pack(words, 20), len(words), 20) == words).all()


def test_uploads_of_another_length_or_with_bits_left_over():
    with pytest.raises(MessageError, match="10 residues of 20 bits came in 24 bytes, expected 25"):
        masks.unpack(bytes(24), 10, 20)
    with pytest.raises(MessageError, match="bits after the last one"):
        masks.unpack(bytes(2) + b"\xf0", 1, 20)


@pytest.mark.parametrize("bits", [0, 7, 65])
def test_no_words_of_that_many_bits(bits):
    with pytest.raises(ProtectionError, match=f"bits={bits} must be from 8 to 64"):
        masks.word(bits)
