"""Encryption in numpy against SEAL, TenSEAL's public vectors and the textbook: equal sums, bytes that are checked."""

from __future__ import annotations

import dataclasses
import gc
import math
import multiprocessing
from typing import Any

import numpy as np
import pytest
import tenseal as ts
import tenseal.sealapi as sealapi
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fedplug import Client, KeyServer, Layout
from fedplug.api.context import Context, Server
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.types import Block
from fedplug_std import he_keys, he_public
from fedplug_std.bfv import COEFF_BITS, DEGREE, SCALE_BITS, Bfv
from fedplug_std.ckks import Ckks
from fedplug_std.he_contexts import RingContext
from fedplug_std.he_packing import pack
from fedplug_std.he_random import SEED_BYTES, Secrets, uniform
from fedplug_std.he_ring import Ring
from fedplug_std.he_rlwe import Rlwe, dropped_variance

RNG = np.random.default_rng(5)

symmetric = pytest.mark.parametrize("symmetric", [False, True], ids=["public key", "seeded"])


def bfv(symmetric: bool) -> tuple[Rlwe, RingContext, RingContext]:
    """The backend, a context with all keys, and the server's."""
    backend = Rlwe("bfv", DEGREE, COEFF_BITS)
    context = backend.new_context(2.0**SCALE_BITS, symmetric=symmetric)
    return backend, context, backend.load_context(backend.dump_context(context))


def add(backend: Any, context: Any, *ciphertexts: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return backend.add(context, [(f"client {i}", one) for i, one in enumerate(ciphertexts)], backend.degree)  # type: ignore[no-any-return]


def seal_ciphertext(context: RingContext, data: bytes) -> Any:
    """One of ours as an object of SEAL, which validates it."""
    backend = Rlwe(context.scheme, context.degree, context.coeff_bits)
    pairs = backend._parse(context, add(backend, context, (data,)), 0, "")
    return context.streams.load(sealapi.Ciphertext(), context.streams.ciphertext(pairs[0].tobytes()))


# -- SEAL and the public vectors as references -------------------------------------------------------------------------


@symmetric
def test_seal_itself_decrypts_what_was_encrypted_and_added_here(symmetric: bool) -> None:
    """Textbook BFV with plain modulus 2^46 - 1: SEAL's own decryptor finds the coefficients, and so do we."""
    backend, context, server = bfv(symmetric)
    rows = RNG.integers(0, 2**43, (3, 2, DEGREE))
    total = add(backend, server, *(backend.encrypt(context, update) for update in rows))
    assert np.array_equal(backend.decrypt(context, total, DEGREE), rows.sum(0))
    for data, exact in zip(total, rows.sum(0), strict=True):
        plain = sealapi.Plaintext()
        decryptor = sealapi.Decryptor(context.seal, context._secret)
        ciphertext = seal_ciphertext(context, data)
        decryptor.decrypt(ciphertext, plain)
        assert [plain.data(index) for index in range(plain.coeff_count())] == exact.tolist()
        assert decryptor.invariant_noise_budget(ciphertext) > 3


@symmetric
def test_what_seal_encrypts_opens_here(symmetric: bool) -> None:
    _, context, _ = bfv(symmetric)
    words = RNG.integers(0, 2**45, DEGREE).tolist()
    terms = [f"{word:X}x^{index}" for index, word in reversed(list(enumerate(words)))]
    plain = sealapi.Plaintext(" + ".join(terms).removesuffix("x^0"))
    ciphertext, public = sealapi.Ciphertext(), sealapi.PublicKey()
    if symmetric:
        sealapi.Encryptor(context.seal, context._secret).encrypt_symmetric(plain, ciphertext)
    else:
        sealapi.KeyGenerator(context.seal, context._secret).create_public_key(public)
        sealapi.Encryptor(context.seal, public).encrypt(plain, ciphertext)
    numbers = ciphertext.dyn_array()
    c0, c1 = np.array([numbers.at(index) for index in range(2 * DEGREE)], np.uint64).reshape(2, 1, DEGREE)
    phase = context.ring.phase(c0.view(np.int64), c1, context.key_spectrum, -(2**13))
    assert (phase[0] + 2**13 >> 14).tolist() == words


def seal_zeros(context: RingContext, count: int, *, symmetric: bool) -> tuple[list[Any], Any]:
    """Encryptions of zero by SEAL under our secret key: its objects, and c0 and c1 of each, shape (count, 2, N)."""
    public = sealapi.PublicKey()
    sealapi.KeyGenerator(context.seal, context._secret).create_public_key(public)
    encryptor = sealapi.Encryptor(context.seal, public, context._secret)
    zeros, pairs = [sealapi.Ciphertext() for _ in range(count)], np.empty((count, 2, context.degree), np.uint64)
    for zero, pair in zip(zeros, pairs, strict=True):
        (encryptor.encrypt_symmetric if symmetric else encryptor.encrypt)(sealapi.Plaintext("0"), zero)
        numbers = zero.dyn_array()
        pair[:] = np.array([numbers.at(index) for index in range(pair.size)], np.uint64).reshape(pair.shape)
    return zeros, pairs


@symmetric
def test_sums_of_seals_ciphertexts_and_ours_open_on_both_sides(symmetric: bool) -> None:
    backend, context, server = bfv(symmetric)
    rows = RNG.integers(0, 2**43, (4, 1, DEGREE))
    total = seal_ciphertext(context, *add(backend, server, *(backend.encrypt(context, row) for row in rows)))
    zeros, _ = seal_zeros(context, 4, symmetric=symmetric)
    for zero in zeros:
        sealapi.Evaluator(context.seal).add_inplace(total, zero)
    plain, numbers = sealapi.Plaintext(), total.dyn_array()
    sealapi.Decryptor(context.seal, context._secret).decrypt(total, plain)
    assert [plain.data(index) for index in range(plain.coeff_count())] == rows.sum((0, 1)).tolist()
    c0, c1 = np.array([numbers.at(index) for index in range(2 * DEGREE)], np.uint64).reshape(2, 1, DEGREE)
    phase = context.ring.phase(c0.view(np.int64), c1, context.key_spectrum, -(2**13))
    assert np.array_equal(phase + 2**13 >> 14, rows.sum(0))


@pytest.mark.parametrize(("scheme", "bits"), [("bfv", COEFF_BITS), ("ckks", (40, 40))])
@symmetric
def test_the_noise_of_fresh_ciphertexts_is_distributed_as_seals(
    scheme: str, bits: tuple[int, int], symmetric: bool
) -> None:
    """Two histograms of 40,960 coefficients each under one key: their chi squared, at six standard deviations."""
    backend, count = Rlwe(scheme, DEGREE, bits), 10
    context = backend.new_context(2.0**14, symmetric=symmetric)
    _, seals = seal_zeros(context, count, symmetric=symmetric)
    ours = backend._parse(context, backend.encrypt(context, np.zeros((count, DEGREE), np.int64)), 0, "")
    histograms = []
    for pairs in (seals, ours):
        c0, c1 = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
        phases = context.ring.phase(c0.view(np.int64), c1, context.key_spectrum, -context.ring.modulus // 2)
        assert np.abs(phases).max() < (21 if symmetric else 8 * 16)
        scaled = phases / phases.std()  # no two ciphertexts, of a chunk or of two, have their errors in common
        assert np.abs(scaled @ scaled.T / DEGREE - np.eye(count)).max() < 8 / math.sqrt(DEGREE)
        histograms.append(np.bincount(phases.ravel() + 128, minlength=256))
    kept = sum(histograms) > 20
    one, other = (histogram[kept] for histogram in histograms)
    chi, freedom = float(((one - other) ** 2 / (one + other)).sum()), int(kept.sum()) - 1
    assert chi < freedom + 6 * math.sqrt(2 * freedom) + 12


@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
def test_sums_equal_those_of_the_public_api(key_holder: str) -> None:
    """What `bfv_vector` and what this backend make of the same codes: the same sums, decoded to the same floats."""
    component = Bfv(Bfv.Options.model_validate({"key_holder": key_holder}))
    context, terms = component.new_keys(5)
    codec = component.codec(terms)
    updates = RNG.uniform(-1, 1, (5, 2 * DEGREE)).astype(np.float32)
    slots = [codec.encode(update)[0] for update in updates]
    ours = add(component.backend, context, *(component.backend.encrypt(context, one[None]) for one in slots))
    public = ts.context(ts.SCHEME_TYPE.BFV, DEGREE, 70368744210433, list(COEFF_BITS), n_threads=1)
    reference = ts.bfv_vector(public, slots[0])
    for one in slots[1:]:
        reference.add_(ts.bfv_vector(public, one))
    summed = np.array(reference.decrypt(), np.int64) % 70368744210433
    opened = component.backend.decrypt(context, ours, DEGREE)[0]
    assert np.array_equal(opened, summed)
    assert np.array_equal(codec.decode(opened, 2 * DEGREE, 5), codec.decode(summed, 2 * DEGREE, 5))


@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
def test_ckks_slots_are_those_of_seals_encoder(key_holder: str) -> None:
    """SEAL's encoder reads the same values from the coefficients, in its order: roots are powers of 3, here of 1 - 4k.

    The public API's sums of the same grid values, rounded to the grid, are the same floats.
    """
    component = Ckks(Ckks.Options.model_validate({"key_holder": key_holder}))
    context, terms = component.new_keys(3)
    codec = component.codec(terms)
    half, degree = component.slots // 2, component.slots
    updates = RNG.uniform(-1, 1, (3, degree))
    rows = [codec.encode(update)[0] for update in updates]
    total = add(component.backend, context, *(component.backend.encrypt(context, row[None]) for row in rows))
    opened = component.backend.decrypt(context, total, degree)[0]
    # The definition, at each root: a polynomial with our coefficients, evaluated one by one.
    coefficients = context.ring.embed(rows[0][None])[0]
    roots = np.exp(1j * np.pi / degree * (1 - 4 * np.arange(half)))
    values = [np.polynomial.polynomial.polyval(root, coefficients) for root in roots[:: half // 8]]
    assert np.abs(values - (rows[0][:half] + 1j * rows[0][half:])[:: half // 8]).max() < 1e-9
    public = ts.context(ts.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=[40, 40], n_threads=1)
    public.global_scale = 2.0**34
    sums = []
    for part in (slice(0, half), slice(half, degree)):
        vector = ts.ckks_vector(public, rows[0][part])
        for row in rows[1:]:
            vector.add_(ts.ckks_vector(public, row[part]))
        sums.append(np.array(vector.decrypt()))
    assert np.array_equal(codec.decode(opened, degree, 3), codec.decode(np.concatenate(sums), degree, 3))


# -- what keeps products exact -----------------------------------------------------------------------------------------


def test_a_secret_key_that_the_bound_does_not_hold_for_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    true, refused = Ring.fixed, [1, 1]

    def fixed(ring: Ring, coefficients: Any, size: int = 1) -> Any:
        if refused:
            refused.pop()
            raise ValueError("a polynomial with values above its bound")
        return true(ring, coefficients, size)

    monkeypatch.setattr(Ring, "fixed", fixed)
    backend = Rlwe("bfv", DEGREE, COEFF_BITS)
    context = backend.new_context(2.0**SCALE_BITS, symmetric=True)
    assert not refused
    rows = np.arange(DEGREE, dtype=np.int64)[None] % 100
    assert np.array_equal(backend.decrypt(context, backend.encrypt(context, rows), DEGREE), rows)
    refused += [1, 1, 1]
    with pytest.raises(ProtectionError, match="SEAL made 3 secret keys, none of use here"):
        backend.new_context(2.0**SCALE_BITS, symmetric=True)


@symmetric
@pytest.mark.parametrize("error", [1e-9, math.nan])
def test_a_transform_that_is_not_exact_enough_is_an_error_and_no_ciphertext(
    error: float, symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, context, _ = bfv(symmetric)
    good = backend.encrypt(context, np.zeros((1, DEGREE), np.int64))
    exact = np.fft.ifft
    monkeypatch.setattr(np.fft, "ifft", lambda values: exact(values) * (1 + error))
    with pytest.raises(ProtectionError, match="not exact enough"):
        backend.encrypt(context, np.zeros((1, DEGREE), np.int64))
    with pytest.raises(ProtectionError, match="not exact enough"):
        backend.decrypt(context, good, DEGREE)


@symmetric
def test_more_uploads_than_64_bits_hold_at_once_add_up(symmetric: bool) -> None:
    backend, context, server = bfv(symmetric)
    rows = RNG.integers(0, 2**39, (1, DEGREE))  # 81 of them stay below 2^46
    upload = backend.encrypt(context, rows)
    total = add(backend, server, *[upload] * 40)
    assert np.array_equal(backend.decrypt(context, total, DEGREE), 40 * rows)
    again = add(backend, server, total, upload, total)  # sums add up with uploads, seeded ones included
    assert np.array_equal(backend.decrypt(context, again, DEGREE), 81 * rows)


# -- randomness --------------------------------------------------------------------------------------------------------


@symmetric
def test_no_ciphertext_repeats_and_noise_is_seals(symmetric: bool) -> None:
    backend, context, _ = bfv(symmetric)
    rows = np.zeros((20, DEGREE), np.int64)
    zeros = [*backend.encrypt(context, rows), *backend.encrypt(context, rows)]
    pairs = backend._parse(context, zeros, 0, "")
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
    pairs, modulus = backend._parse(context, zeros, 0, ""), context.ring.modulus
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


@pytest.mark.parametrize("count", [2, 20, 44])
def test_bits_that_ckks_has_room_for_do_not_travel_and_sums_are_the_same(count: int) -> None:
    component = Ckks(Ckks.Options.model_validate({"key_holder": "clients"}))
    context, terms = component.new_keys(count)
    whole = dataclasses.replace(context, dropped=0)
    assert context.dropped >= 5
    codec = component.codec(terms)
    rows = [codec.encode(RNG.uniform(-1, 1, component.position_block).astype(np.float32))[0] for _ in range(count)]
    sums, sizes = [], []
    for one in (context, whole):
        uploads = [component.backend.encrypt(one, np.tile(row, (8, 1))) for row in rows]
        total = component.backend.decrypt(one, add(component.backend, one, *uploads), len(rows[0]))
        sums.append([codec.decode(row, component.position_block, count) for row in total])
        sizes.append(len(uploads[0][0]))
    assert np.array_equal(*sums)
    assert sizes[1] - sizes[0] == context.dropped * DEGREE // 8
    # As much noise as was reckoned with, in equal measure up and down.
    zeros = component.backend.encrypt(context, np.zeros((16, DEGREE), np.int64))
    phases = component.backend._phases(context, zeros, 0, -context.ring.modulus // 2).astype(np.float64)
    reckoned = math.sqrt(component.backend.noise(whole) ** 2 + dropped_variance(context.dropped))
    assert phases.std() == pytest.approx(reckoned, rel=0.05)
    assert abs(phases.mean()) < 6 * phases.std() / 256
    # Who drops another number of bits has other parameters.
    other = dataclasses.replace(context, dropped=context.dropped - 1)
    strange = component.backend.encrypt(other, np.zeros((1, DEGREE), np.int64))
    with pytest.raises(MessageError, match=f"it is of degree {DEGREE} and .* bits, not {DEGREE}"):
        add(component.backend, context, strange)


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
    seeds = [seed for _ in processes for seed in queue.get(timeout=60)]
    for process in processes:
        process.join()
    assert len(set(seeds)) == 4


# -- bytes that arrive -------------------------------------------------------------------------------------------------


@symmetric
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "it is not a ciphertext"),
        (lambda data: b"XX" + data[2:], "it is not a ciphertext"),
        (lambda data: data[:2] + b"\x01" + data[3:], "it is of version 1, where this fedplug reads 2"),
        (lambda data: data[:3] + b"\x07" + data[4:], "it is not a ciphertext"),
        (lambda data: data[:4] + b"\x00\x20" + data[6:], "it is of degree 8192 and 60 bits, not 4096 and 60"),
        (lambda data: data[:6] + b"\x28\x00" + data[8:], "it is of degree 4096 and 40 bits"),
        (lambda data: data[:-8], r"it has \d+ bytes, not \d+"),
        (lambda data: data + bytes(8), r"it has \d+ bytes, not \d+"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "its words are not those that were sent"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 64]) + data[5001:], "its words are not those that were sent"),
        (lambda data: list(data), "it is not a ciphertext"),
    ],
)  # fmt: skip
def test_a_malformed_ciphertext_is_an_error_of_its_sender(change: Any, said: str, symmetric: bool) -> None:
    backend, context, server = bfv(symmetric)
    good = backend.encrypt(context, np.zeros((10, DEGREE), np.int64))
    bad = (*good[:9], change(good[9]))
    with pytest.raises(MessageError, match=f"ciphertext 9 of client 1 cannot be used .*{said}"):
        add(backend, server, good, bad)
    with pytest.raises(MessageError, match=said):
        backend.decrypt(context, bad, DEGREE)


def test_contexts_are_checked_when_they_arrive() -> None:
    backend, context, _ = bfv(False)
    bare, with_key = backend.dump_context(context), backend.dump_context(context, public_key=True)
    assert len(bare) < 100
    halfway = np.full((1, DEGREE), context.ring.modulus // 2, np.uint64)
    lopsided = context.public_key[:SEED_BYTES] + pack(halfway, 60).tobytes() + pack(halfway * 0, 49).tobytes()
    for data, said in (
        (b"", "0 bytes are not an encryption context"),
        (bare[:-1], "not an encryption context"),
        (bare + b"x", "not an encryption context"),
        (bare[:2] + b"\x09" + bare[3:], "version 9, where this fedplug reads 2"),
        (with_key[:-1000], "not an encryption context"),
        (with_key[:200] + bytes(1000) + with_key[1200:], "whose bytes are not those that were sent"),
        (dataclasses.replace(context, public_key=b"\xff" * len(context.public_key)).dump(public_key=True), "not below"),
        (dataclasses.replace(context, public_key=bytes(900)).dump(public_key=True), "a public key of 900 bytes"),
        (dataclasses.replace(context, public_key=lopsided).dump(public_key=True), "above 4 sqrt"),
        (dataclasses.replace(context, secret_key=bytes(900)).dump(secret_key=True), "whose keys cannot be used"),
        (dataclasses.replace(context, dropped=14).dump(), "drops 14 bits, which must be at most 13"),
        (dataclass_scale(context, 3.0), "scale 3, which must be 2 to 2\\^60, for bfv a power of two"),
        (dataclass_scale(context, float("nan")), "scale nan"),
    ):
        with pytest.raises(MessageError, match=said):
            backend.load_context(data)
    other = Rlwe("ckks", DEGREE, (40, 40))
    with pytest.raises(MessageError, match=r"of ckks 4096 \[40, 40\], not of bfv"):
        backend.load_context(other.dump_context(other.new_context(2.0**33, symmetric=True)))


def test_keys_are_not_shown_with_a_context() -> None:
    _, context, _ = bfv(False)
    assert "key" not in repr(context)


def dataclass_scale(context: RingContext, scale: float) -> bytes:
    return RingContext(context.scheme, context.degree, context.coeff_bits, scale).dump()


def test_rounding_has_no_mean_where_one_bit_is_dropped() -> None:
    """Half a step too many in every coefficient would be N / pi steps in the slot next to 1."""
    backend, context, _ = bfv(True)
    context = dataclasses.replace(context, dropped=1)
    zeros = backend.encrypt(context, np.zeros((64, DEGREE), np.int64))
    phases = backend._phases(context, zeros, 0, -context.ring.modulus // 2).astype(np.float64)
    assert abs(phases.mean()) < 6 * phases.std() / 512  # 0.04, where half a step would be 0.5


@pytest.mark.parametrize(("scheme", "bits"), [("bfv", COEFF_BITS), ("ckks", (40, 40))])
def test_the_largest_residue_is_rounded_within_its_bits(scheme: str, bits: tuple[int, int]) -> None:
    context = dataclasses.replace(Rlwe(scheme, DEGREE, bits).new_context(2.0**14, symmetric=True), dropped=13)
    largest = np.full((1, 64), context.ring.modulus - 1, np.uint64)
    for c1 in (largest * 0, largest * 0 + 1):
        rounded = Rlwe(scheme, DEGREE, bits)._shortened(context, largest, c1)
        assert int(rounded.max()) < 2 ** (bits[0] - 13)
        assert np.abs((rounded << np.uint64(13)).view(np.int64) - largest.view(np.int64)).max() <= 2**12


def test_an_upload_of_ckks_under_the_clients_key_takes_a_little_more_than_float32() -> None:
    component = Ckks(Ckks.Options.model_validate({"key_holder": "clients"}))
    context, _ = component.new_keys(20)
    (upload,) = component.backend.encrypt(context, np.zeros((1, DEGREE)))
    assert len(upload) <= 4.14 * component.position_block


# -- contexts that a process shares ------------------------------------------------------------------------------------


def parties(key_holder: str, count: int = 4) -> tuple[Any, Server, KeyServer, list[Client]]:
    component = Bfv(Bfv.Options.model_validate({"key_holder": key_holder}))
    server, key_server, clients = Server(), KeyServer(), [Client(client_id=index) for index in range(count)]
    for client in clients:
        client.remembered.cohort_secret = bytes(32)
        client.ctx = Context(
            round=0, rounds=1, layout=Layout.of([("w", (9,))]), zones=("encrypted",), num_clients=count, min_clients=2,
            seed=0, digest="", party=client,
        )  # fmt: skip
    if key_holder == "clients":
        made = component.make_shared_key(clients[0], count)
    else:
        made = component.make_keys(key_server, count)
    server.memory(component).update(context=made["adding"], terms=made["terms"])
    for client in clients:
        # Bytes of its own, as out of a message.
        component.adopt_keys(client, bytes(bytearray(made["keys"])), dict(made["terms"]))
    return component, server, key_server, clients


@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
def test_parties_of_a_process_share_a_context_and_its_bytes_if_they_hold_the_same_keys(key_holder: str) -> None:
    component, server, key_server, clients = parties(key_holder)
    contexts = [he_keys.context_of(component, client)[0] for client in clients]
    assert len({id(context) for context in contexts}) == 1
    assert len({id(client.memory(component)["context"]) for client in clients}) == 1
    at_server, _ = he_keys.context_of(component, server)
    assert at_server is not contexts[0]
    assert (at_server.public_key, at_server.secret_key) == (b"", b"")
    assert contexts[0].has_secret_key() == (key_holder == "clients")
    if key_holder == "key_server":
        holder, _ = he_keys.context_of(component, key_server)
        assert holder.has_secret_key()
        assert holder is not contexts[0]


def test_a_context_goes_with_its_last_party() -> None:
    component, _, _, clients = parties("clients")
    for client in clients:
        he_keys.context_of(component, client)
    mine = {place for place, held in he_keys._IN_USE.items() if held.data == clients[0].memory(component)["context"]}
    assert len(mine) == 1
    for client in clients:
        client.cache.clear()
    gc.collect()
    assert not mine & set(he_keys._IN_USE)


def test_a_party_that_gets_other_keys_gets_another_context() -> None:
    component, _, _, clients = parties("clients")
    first, _ = he_keys.context_of(component, clients[0])
    _, _, _, others = parties("clients")
    clients[0].state = others[0].state
    assert he_keys.context_of(component, clients[0])[0] is not first


def test_an_upload_of_a_client_with_the_key_takes_less_than_float32() -> None:
    component, _, _, clients = parties("clients")
    size = 50 * component.position_block
    block = Block("encrypted", size, np.zeros(size, np.float32))
    upload = component.protect(block, clients[0], clients[0].ctx)
    assert sum(map(len, upload.ciphertexts)) < 3.77 * size


def test_a_party_without_keys_cannot_encrypt_or_decrypt() -> None:
    backend, context, server = bfv(False)
    with pytest.raises(ProtectionError, match="it can only add"):
        backend.encrypt(server, np.zeros((1, DEGREE), np.int64))
    with pytest.raises(ProtectionError, match="no secret key"):
        backend.decrypt(server, backend.encrypt(context, np.zeros((1, DEGREE), np.int64)), DEGREE)
