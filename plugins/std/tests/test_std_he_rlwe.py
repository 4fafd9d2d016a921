"""Encryption in numpy against SEAL and TenSEAL's public vectors: equal sums, exact or an error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tenseal as ts
import tenseal.sealapi as sealapi
from fedplug.api.errors import ProtectionError
from fedplug_std.bfv import COEFF_BITS, DEGREE, SCALE_BITS, Bfv
from fedplug_std.ckks import Ckks
from fedplug_std.he_contexts import RingContext
from fedplug_std.he_ring import Ring
from fedplug_std.he_rlwe import Rlwe
from rlwe_toys import RNG, add, bfv, slots_of, symmetric, values_of


def seal_ciphertext(context: RingContext, data: bytes) -> Any:
    """One of ours as an object of SEAL, which validates it."""
    backend = Rlwe(context.scheme, context.degree, context.coeff_bits)
    pairs = backend._parse(context, add(backend, context, (data,)), 0)
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
    ours = backend._parse(context, backend.encrypt(context, np.zeros((count, DEGREE), np.int64)), 0)
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
    packing = component.packing(terms)
    updates = RNG.uniform(-1, 1, (5, 2 * DEGREE)).astype(np.float32)
    slots = [slots_of(packing, update) for update in updates]
    ours = add(component.backend, context, *(component.backend.encrypt(context, one[None]) for one in slots))
    public = ts.context(ts.SCHEME_TYPE.BFV, DEGREE, 70368744210433, list(COEFF_BITS), n_threads=1)
    reference = ts.bfv_vector(public, slots[0])
    for one in slots[1:]:
        reference.add_(ts.bfv_vector(public, one))
    summed = np.array(reference.decrypt(), np.int64) % 70368744210433
    opened = component.backend.decrypt(context, ours, DEGREE)[0]
    assert np.array_equal(opened, summed)
    assert np.array_equal(*(values_of(packing, slots, 2 * DEGREE, 5) for slots in (opened, summed)))


@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
def test_ckks_slots_are_those_of_seals_encoder(key_holder: str) -> None:
    """SEAL's encoder reads the same values from the coefficients, in its order: roots are powers of 3, here of 1 - 4k.

    The public API's sums of the same grid values, rounded to the grid, are the same floats.
    """
    component = Ckks(Ckks.Options.model_validate({"key_holder": key_holder}))
    context, terms = component.new_keys(3)
    packing = component.packing(terms)
    half, degree = component.slots // 2, component.slots
    updates = RNG.uniform(-1, 1, (3, degree))
    rows = [slots_of(packing, update) for update in updates]
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
    assert np.array_equal(*(values_of(packing, slots, degree, 3) for slots in (opened, np.concatenate(sums))))


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
