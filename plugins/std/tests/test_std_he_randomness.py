"""Randomness of encryption in numpy: drawn as the textbook says, and no two ciphertexts share any."""

from __future__ import annotations

import math
import multiprocessing
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fedplug_std import he_public
from fedplug_std.bfv import COEFF_BITS, DEGREE
from fedplug_std.he_contexts import RingContext
from fedplug_std.he_random import SEED_BYTES, Secrets, uniform
from fedplug_std.he_rlwe import Rlwe
from rlwe_toys import RNG, bfv, symmetric


@symmetric
def test_no_ciphertext_repeats_and_noise_is_seals(symmetric: bool) -> None:
    backend, context, _ = bfv(symmetric)
    rows = np.zeros((20, DEGREE), np.int64)
    zeros = [*backend.encrypt(context, rows), *backend.encrypt(context, rows)]
    pairs = backend._parse(context, zeros, 0)
    assert len({row.tobytes() for row in pairs.reshape(-1, DEGREE)}) == 80
    # A centred binomial of 42 bits; or what rounding both halves leaves, when the second prime is divided out.
    expected = np.sqrt(21 / 2) if symmetric else np.sqrt(1 / 12 + DEGREE * 2 / 3 / 12)
    assert backend.noise(context) == pytest.approx(expected, rel=0.1)
    # Residues are spread over the whole modulus: mean and the share of set bits, at six standard deviations.
    for part in range(2):
        share = pairs[:, part].astype(np.float64) / context.ring.modulus
        assert abs(share.mean() - 0.5) < 6 / np.sqrt(12 * share.size)


@symmetric
def test_no_two_ciphertexts_have_randomness_in_common(symmetric: bool) -> None:
    """Where they have, c0 and c1 of one are next to those of the other, though not equal: errors are in between."""
    backend, context, _ = bfv(symmetric)
    zeros = [data for _ in range(2) for data in backend.encrypt(context, np.zeros((9, DEGREE), np.int64))]
    pairs, modulus = backend._parse(context, zeros, 0), context.ring.modulus
    for shift in range(1, len(zeros)):
        apart = (pairs - np.roll(pairs, shift, 0)).view(np.int64)  # below the modulus, so that none of it wraps
        apart = np.minimum(np.abs(apart), modulus - np.abs(apart))
        assert np.median(apart, axis=2).min() > modulus / 5  # a quarter, where both are uniform


def test_a_seed_stands_for_the_same_numbers_everywhere() -> None:
    """Against AES block by block; a modulus just above half of the words has every second one left out."""
    seed, modulus = bytes(range(16)), 2**59 + 1
    cipher = Cipher(algorithms.AES128(seed), modes.ECB()).encryptor()
    blocks = b"".join(cipher.update(bytes([3]) + index.to_bytes(15, "big")) for index in range(600))
    words = [int.from_bytes(blocks[at : at + 8], "little") & 2**60 - 1 for at in range(0, len(blocks), 8)]
    found = np.empty(256, np.uint64)
    uniform(seed, 3, modulus, found)
    assert found.tolist() == [word for word in words if word < modulus][:256]
    uniform(seed, 3, 2**60 - 1, found)
    assert found.tolist() == words[:256]
    uniform(seed, 4, 2**60 - 1, found)
    assert not set(found.tolist()) & set(words)


def test_secret_polynomials_have_the_distributions_of_seal() -> None:
    """Shares of each value, at six standard deviations: thirds, and ones of 21 bits less ones of 21 others."""
    count = 400_000
    signs = Secrets().ternary(4, count // 4)
    assert signs.shape == (4, count // 4)
    expected = dict.fromkeys((-1, 0, 1), 1 / 3)
    errors = Secrets().errors(4, count // 4)
    binomial = {value: math.comb(42, 21 + value) / 2**42 for value in range(-21, 22)}
    for drawn, shares in ((signs, expected), (errors, binomial)):
        assert set(np.unique(drawn)) <= set(shares)
        for value, share in shares.items():
            assert abs((drawn == value).sum() - count * share) <= 6 * math.sqrt(count * share) + 3
    for row in (signs, errors):  # neighbours, and rows, do not depend on each other
        centred = (row - row.mean()) / row.std()
        assert abs((centred[:, 1:] * centred[:, :-1]).mean()) < 6 / math.sqrt(count)
        assert abs((centred[0] * centred[1]).mean()) < 6 / math.sqrt(count / 4)


def negacyclic(left: Any, right: Any, index: int) -> int:
    """One coefficient of a product of polynomials of Python's integers."""
    signed = np.concatenate([-left, left])
    return int((right * signed[DEGREE + index - np.arange(DEGREE)]).sum())


@pytest.mark.parametrize(("scheme", "bits", "scale"), [("bfv", COEFF_BITS, 2.0**14), ("ckks", (40, 40), 2.0**33)])
def test_public_keys_and_what_they_encrypt_are_the_textbooks(
    scheme: str, bits: tuple[int, int], scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python's integers: B + A s is a small error modulo Q P, c0 and c1 are what dividing by P leaves."""
    backend = Rlwe(scheme, DEGREE, bits)
    context = backend.new_context(scale, symmetric=False)
    drawn: list[Any] = []

    class Kept(Secrets):
        def ternary(self, rows: int, count: int) -> Any:
            drawn.append(super().ternary(rows, count))
            return drawn[-1]

        def errors(self, rows: int, count: int) -> Any:
            drawn.append(super().errors(rows, count) * (context.special.modulus // 4))  # small ones vanish in P
            return drawn[-1]

    monkeypatch.setattr(he_public, "Secrets", Kept)
    ring, special = context.ring, context.special
    halves = [ring.from_spectrum(context.encrypts._high), special.from_spectrum(context.encrypts._low)]
    whole = []
    for kind, found in zip((ring, special), halves, strict=True):
        exact = np.rint(found).astype(np.int64).astype(object)
        whole.append(exact[:, 1] * 2**kind.low_bits + exact[:, 0])
    b, a = (whole[0] * special.modulus + whole[1]) % (ring.modulus * special.modulus)
    secret = context.streams.ternary(context._secret).astype(object)
    modulus = ring.modulus * special.modulus
    errors = [(negacyclic(a, secret, index) + int(b[index])) % modulus for index in range(0, DEGREE, 64)]
    errors = [error - modulus * (error > modulus // 2) for error in errors]
    assert max(map(abs, errors)) <= 21
    assert np.std(errors) == pytest.approx(np.sqrt(21 / 2), rel=0.5)
    message = RNG.integers(0, 2**30, (1, DEGREE))
    pair = context.encrypts.encrypt(message)[0]
    u, *noises = (one[0].astype(np.int64).astype(object) for one in drawn)
    for half, key, noise, added in zip(pair, (b, a), noises, (message[0], message[0] * 0), strict=True):
        for index in (0, 1, 2048, DEGREE - 1):
            exact = negacyclic(key, u, index) + int(noise[index])
            rounded = (exact + special.modulus // 2) // special.modulus
            assert int(half[index]) == (rounded + int(added[index])) % ring.modulus


def _seeds_of_a_fork(queue: Any, backend: Rlwe, context: RingContext) -> None:
    queue.put([data[-SEED_BYTES:] for data in backend.encrypt(context, np.zeros((2, DEGREE), np.int64))])


@pytest.mark.filterwarnings("ignore:This process")
def test_processes_that_were_forked_off_draw_other_seeds() -> None:
    backend, context, _ = bfv(True)
    backend.encrypt(context, np.zeros((1, DEGREE), np.int64))
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    processes = [fork.Process(target=_seeds_of_a_fork, args=(queue, backend, context)) for _ in range(2)]
    for process in processes:
        process.start()
    seeds = [seed for _ in processes for seed in queue.get(timeout=300)]
    for process in processes:
        process.join()
    assert len(set(seeds)) == 4
