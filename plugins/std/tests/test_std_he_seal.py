"""The fast paths against SEAL and TenSEAL's public vectors: equal sums, fresh seeds, and bytes that are checked."""

from __future__ import annotations

import gc
import multiprocessing
import struct
from typing import Any

import numpy as np
import pytest
import tenseal as ts
import tenseal.sealapi as sealapi
from fedplug import Client, KeyServer, Layout
from fedplug.api.context import Context, Server
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.types import Block
from fedplug_std import _seal_streams, he_keys
from fedplug_std.bfv import COEFF_BITS, DEGREE, SCALE_BITS, Bfv
from fedplug_std.ckks import Ckks
from fedplug_std.he_contexts import RingContext
from fedplug_std.he_ring import Ring
from fedplug_std.he_seal import Seal

RNG = np.random.default_rng(5)
BITS = {60: 2**60 - 2**14 + 1, 40: 1099511480321, 50: 2**50 - 27, 31: 2**31 - 1}

symmetric = pytest.mark.parametrize("symmetric", [False, True], ids=["public key", "seeded"])


def bfv(symmetric: bool) -> tuple[Seal, RingContext, RingContext]:
    """The backend, a context with all keys, and the server's."""
    backend = Seal("bfv", DEGREE, COEFF_BITS)
    context = backend.new_context(2.0**SCALE_BITS, symmetric=symmetric)
    return backend, context, backend.load_context(backend.dump_context(context))


def add(backend: Any, context: Any, *ciphertexts: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return backend.add(context, [(f"client {i}", one) for i, one in enumerate(ciphertexts)], backend.degree)  # type: ignore[no-any-return]


def seal_ciphertext(context: RingContext, data: bytes) -> Any:
    """One of ours as an object of SEAL, which validates it."""
    backend = Seal(context.scheme, context.degree, context.coeff_bits)
    pairs, _ = backend._parse(context, add(backend, context, (data,)), 0, "")
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
    ciphertext = sealapi.Ciphertext()
    encrypt = context.encryptor.encrypt_symmetric if symmetric else context.encryptor.encrypt
    encrypt(plain, ciphertext)
    c0, rest = context.streams.halves(context.streams.dump(ciphertext), 2)
    c1 = np.frombuffer(rest, np.uint64)
    phase = context.ring.phase(c0[None], c1[None], context.key_spectrum, -(2**13))
    assert (phase[0] + 2**13 >> 14).tolist() == words


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


# -- the ring ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", BITS)
def test_packed_residues_take_their_bits_and_no_more(bits: int) -> None:
    ring = Ring(256, BITS[bits])
    residues = RNG.integers(0, ring.modulus, (3, 256)).astype(np.uint64)
    residues[0], residues[1] = ring.modulus - 1, 0
    packed = ring.pack(residues)
    assert packed.nbytes == 3 * 256 * bits // 8
    assert np.array_equal(ring.unpack(packed), residues)


@pytest.mark.parametrize("bits", [60, 40])
def test_the_phase_is_exact_whatever_a_ciphertext_holds(bits: int) -> None:
    """Against Python's integers, also where every residue is the largest and the key is as dense as keys get."""
    ring = Ring(DEGREE, BITS[bits])
    key = np.random.default_rng(1).choice([-1, 1], DEGREE)
    c0, c1 = RNG.integers(0, ring.modulus, (2, 2, DEGREE)).astype(np.uint64)
    c0[0], c1[0] = ring.modulus - 1, ring.modulus - 1
    spectrum = ring.spectrum(key.astype(np.float64))
    found = ring.phase(c0, c1, spectrum, -100)
    assert (found.min() >= -100, found.max() < ring.modulus - 100) == (True, True)
    for row in range(2):
        doubled = np.concatenate([-c1[row].astype(object), c1[row].astype(object)])
        for index in (0, 1, 777, DEGREE - 1):  # coefficient i of c1 s is the sum of s_j c1_(i - j), negated below 0
            product = int((key[::1].astype(object) * doubled[DEGREE + index - np.arange(DEGREE)]).sum())
            assert (int(found[row, index]) - product - int(c0[row, index])) % ring.modulus == 0
    products = ring.from_spectrum(ring.spectrum(np.full((1, DEGREE), 2.0**30)) * spectrum)
    assert np.abs(products - np.rint(products)).max() < 0.01  # what `phase` proves to be below 0.5


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
    pairs, seeds = backend._parse(context, zeros, 0, "")
    assert len({pair[0].tobytes() for pair in pairs}) == 40
    assert len({*seeds.values()}) == (40 if symmetric else 0)
    if not symmetric:
        assert len({pair[1].tobytes() for pair in pairs}) == 40
    # A centred binomial of 42 bits; or what rounding both halves leaves, when SEAL drops the second prime.
    expected = np.sqrt(21 / 2) if symmetric else np.sqrt(1 / 12 + DEGREE * 2 / 3 / 12)
    assert backend.noise(context) == pytest.approx(expected, rel=0.1)
    # Residues are spread over the whole modulus: mean and the share of set bits, at six standard deviations.
    share = pairs[:, 0].astype(np.float64) / context.ring.modulus
    assert abs(share.mean() - 0.5) < 6 / np.sqrt(12 * share.size)


def _seeds_of_a_fork(queue: Any, backend: Seal, context: RingContext) -> None:
    queue.put([data[-_seal_streams.SEED_BYTES :] for data in backend.encrypt(context, np.zeros((2, DEGREE), np.int64))])


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


def _word(data: bytes, index: int, value: int) -> bytes:
    """A ciphertext with another packed word, and the sum that goes with it."""
    words = np.frombuffer(data, np.uint64, -1, 16).copy()
    words[index] = value
    return data[:8] + struct.pack("<Q", int(words.sum())) + words.tobytes()


@symmetric
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "it is not a ciphertext"),
        (lambda data: b"XX" + data[2:], "it is not a ciphertext"),
        (lambda data: data[:2] + b"\x02" + data[3:], "it is of version 2, where this fedplug reads 1"),
        (lambda data: data[:3] + b"\x07" + data[4:], "it is not a ciphertext"),
        (lambda data: data[:4] + b"\x00\x20" + data[6:], "it is of degree 8192 and 60 bits, not 4096 and 60"),
        (lambda data: data[:6] + b"\x28\x00" + data[8:], "it is of degree 4096 and 40 bits"),
        (lambda data: data[:-8], r"it has \d+ bytes, not \d+"),
        (lambda data: data + bytes(8), r"it has \d+ bytes, not \d+"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "its words are not those that were sent"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 64]) + data[5001:], "its words are not those that were sent"),
        (lambda data: _word(data, 3, 2**64 - 1), "a residue is not below the modulus"),
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
    for data, said in (
        (b"", "0 bytes are not an encryption context"),
        (bare[:-1], "not an encryption context"),
        (bare + b"x", "not an encryption context"),
        (bare[:2] + b"\x09" + bare[3:], "version 9, where this fedplug reads 1"),
        (with_key[:-1000], "not an encryption context"),
        (with_key[:200] + bytes(1000) + with_key[1200:], "whose keys cannot be used"),
        (dataclass_scale(context, 3.0), "scale 3, which must be 2 to 2\\^60, for bfv a power of two"),
        (dataclass_scale(context, float("nan")), "scale nan"),
    ):
        with pytest.raises(MessageError, match=said):
            backend.load_context(data)
    other = Seal("ckks", DEGREE, (40, 40))
    with pytest.raises(MessageError, match=r"of ckks 4096 \[40, 40\], not of bfv"):
        backend.load_context(other.dump_context(other.new_context(2.0**33, symmetric=True)))


def dataclass_scale(context: RingContext, scale: float) -> bytes:
    return RingContext(context.scheme, context.degree, context.coeff_bits, scale).dump()


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
