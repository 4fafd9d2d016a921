"""Ciphertexts and contexts as bytes: what is refused on arrival, and which bits do not travel."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import MessageError
from fedplug_std.bfv import COEFF_BITS, DEGREE
from fedplug_std.ckks import Ckks
from fedplug_std.he_contexts import RingContext
from fedplug_std.he_packing import pack
from fedplug_std.he_random import SEED_BYTES
from fedplug_std.he_rlwe import Rlwe, dropped_variance
from rlwe_toys import RNG, add, bfv, slots_of, symmetric, values_of

# -- bytes that arrive -------------------------------------------------------------------------------------------------


@symmetric
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "it is not a ciphertext"),
        (lambda data: b"XX" + data[2:], "it is not a ciphertext"),
        (lambda data: data[:2] + b"\x01" + data[3:], "it is of version 1, but this fedplug reads 2"),
        (lambda data: data[:3] + b"\x07" + data[4:], "it is not a ciphertext"),
        (lambda data: data[:4] + b"\x00\x20" + data[6:], "it is of degree 8192 and 60 bits, not 4096 and 60"),
        (lambda data: data[:6] + b"\x28\x00" + data[8:], "it is of degree 4096 and 40 bits"),
        (lambda data: data[:-8], r"it has \d+ bytes, not \d+"),
        (lambda data: data + bytes(8), r"it has \d+ bytes, not \d+"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "its checksum is wrong"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 64]) + data[5001:], "its checksum is wrong"),
        (lambda data: list(data), "it is not a ciphertext"),
    ],
)  # fmt: skip
def test_a_malformed_ciphertext_is_an_error_of_its_sender(change: Any, said: str, symmetric: bool) -> None:
    backend, context, server = bfv(symmetric)
    good = backend.encrypt(context, np.zeros((10, DEGREE), np.int64))
    bad = (*good[:9], change(good[9]))
    uploads = iter([good, bad, good])
    with pytest.raises(MessageError, match=f"ciphertext 9 cannot be used .*{said}"):
        backend.add(server, uploads, DEGREE)
    assert len([*uploads]) == 1  # what was drawn last is to blame
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
        (bare[:2] + b"\x09" + bare[3:], "version 9, but this fedplug reads 2"),
        (with_key[:-1000], "not an encryption context"),
        (with_key[:200] + bytes(1000) + with_key[1200:], "with a wrong checksum"),
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


def dataclass_scale(context: RingContext, scale: float) -> bytes:
    return RingContext(context.scheme, context.degree, context.coeff_bits, scale).dump()


# -- bits that do not travel -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 20, 44])
def test_bits_that_ckks_has_room_for_do_not_travel_and_sums_are_the_same(count: int) -> None:
    component = Ckks(Ckks.Options.model_validate({"key_holder": "clients"}))
    context, terms = component.new_keys(count)
    whole = dataclasses.replace(context, dropped=0)
    assert context.dropped >= 5
    packing = component.packing(terms)
    rows = [slots_of(packing, RNG.uniform(-1, 1, component.position_block)) for _ in range(count)]
    sums, sizes = [], []
    for one in (context, whole):
        uploads = [component.backend.encrypt(one, np.tile(row, (8, 1))) for row in rows]
        total = component.backend.decrypt(one, add(component.backend, one, *uploads), len(rows[0]))
        sums.append([values_of(packing, row, component.position_block, count) for row in total])
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
