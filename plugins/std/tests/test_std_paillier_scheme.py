"""Paillier as a scheme of numbers: the equations on keys small enough to enumerate, and on real ones what phe says."""

from __future__ import annotations

import functools
import math
import secrets
from typing import Any

import pytest
from examples import examples
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_std import _fixed_base, paillier_scheme
from fedplug_std._fixed_base import FixedBase
from fedplug_std.paillier_scheme import SECURITY, PublicKey, SecretKey, generate
from hypothesis import given, settings
from hypothesis import strategies as st
from paillier_toys import small_tables

TINY = SecretKey(7, 11, pow(-4 % 77, 77, 77**2))
"""n = 77, x = 2: h = -4, hs = h^77 modulo 77^2."""
SMALL = paillier_scheme._generate(256)
pytestmark = pytest.mark.usefixtures("small_tables")
TEETH = _fixed_base.TEETH
"""Those of a table of full size."""
KEYS = functools.cache(generate)
"""A real key of each length."""


@pytest.fixture(scope="module", params=sorted(SECURITY))
def key(request: pytest.FixtureRequest) -> SecretKey:
    return KEYS(request.param)


# -- keys --------------------------------------------------------------------------------------------------------------


def test_keys_are_what_the_papers_ask_for(key: SecretKey) -> None:
    p, q, n = key.p, key.q, key.public.n
    assert n == p * q
    assert n.bit_length() == key.public.bits in SECURITY
    assert p.bit_length() == q.bit_length() == key.public.bits // 2
    assert p % 4 == q % 4 == 3
    assert math.gcd(p - 1, q - 1) == 2
    assert math.gcd(n, (p - 1) * (q - 1)) == 1
    assert abs(p - q).bit_length() > key.public.bits // 2 - 100
    assert key.decrypt([key.hs]) == [0]  # hs is an n-th residue
    assert pow(key.hs, (p - 1) * (q - 1), n**2) == 1
    # hs = (-x^2)^n: with n odd, minus a square, which for p and q of 3 modulo 4 is not a square modulo either.
    assert {pow(key.hs, (s - 1) // 2, s) for s in (p, q)} <= {p - 1, q - 1}
    if key.public.bits == min(SECURITY):  # to look for longer primes takes a second
        assert generate(key.public.bits).p not in (p, q)


@pytest.mark.parametrize("bits", [0, 1024, 2047, 4096])
def test_other_lengths_are_refused(bits: int) -> None:
    with pytest.raises(ProtectionError, match=rf"bits={bits} must be one of \[2048, 3072\]"):
        generate(bits)


def test_a_secret_key_does_not_print_itself(key: SecretKey) -> None:
    assert not any(str(secret) in text for secret in (key.p, key.q) for text in (repr(key), str(key)))


def test_keys_survive_their_bytes(key: SecretKey) -> None:
    assert SecretKey.load(key.dump()) == key
    assert PublicKey.load(key.public.dump()) == key.public
    adding = PublicKey.load(PublicKey(key.public.n).dump())
    assert adding.hs is None
    assert len(adding.dump()) < key.public.bits // 8 + 20
    with pytest.raises(ProtectionError, match="can only add"):
        adding.encrypt([1])
    held = [secret.to_bytes(key.public.bits // 16, "big") for secret in (key.p, key.q)]
    assert all(secret in key.dump() for secret in held)
    assert not any(secret in key.public.dump() for secret in held)


@pytest.mark.parametrize(
    "fields",
    [{}, {"p": 7, "q": 11}, {"p": 7, "q": 7, "hs": 5}, {"p": 7, "q": 15, "hs": 5}, {"p": 7, "q": 13, "hs": 5},
     {"p": 7, "q": 11, "hs": 0}, {"p": 7, "q": 11, "hs": 77**2}, {"p": "7", "q": 11, "hs": 5}, [7, 11, 5], 7],
    ids=str,
)  # fmt: skip
def test_what_is_no_secret_key_is_not_loaded(fields: Any) -> None:
    with pytest.raises(MessageError, match="bytes are not a secret key"):
        SecretKey.load(paillier_scheme.codec.encode(fields))


@pytest.mark.parametrize(
    "fields",
    [{}, {"n": 77}, {"n": 76, "hs": 5}, {"n": -77, "hs": 5}, {"n": 77, "hs": 77**2}, {"n": None, "hs": 5}],
    ids=str,
)
def test_what_is_no_public_key_is_not_loaded(fields: Any) -> None:
    with pytest.raises(MessageError, match="bytes are not a public key"):
        PublicKey.load(paillier_scheme.codec.encode(fields))
    with pytest.raises(MessageError):
        PublicKey.load(b"\xc1")


# -- encryption --------------------------------------------------------------------------------------------------------


def test_a_tiny_key_does_what_the_equations_say() -> None:
    n, public = 77, TINY.public
    residues = {pow(TINY.hs, r, n**2) for r in range(2**4)}  # |n| = 7 bits, so r has 4
    seen = set()
    for m in range(n):
        (c,) = public.encrypt([m])
        residue = c * pow(1 + n, -m, n**2) % n**2
        assert residue in residues
        seen.add(residue)
        assert TINY.decrypt([c]) == [m]
    assert len(seen) > 5
    # Decryption knows any n-th residue, not only powers of hs: c = (n + 1)^m r^n (Paillier 1999, Scheme 1).
    for m, r in ((0, 2), (5, 3), (76, 13)):
        assert TINY.decrypt([pow(n + 1, m, n**2) * pow(r, n, n**2) % n**2]) == [m]


def test_phe_opens_what_we_encrypt_and_the_other_way_round(key: SecretKey) -> None:
    phe = pytest.importorskip("phe")
    n = key.public.n
    public = phe.PaillierPublicKey(n)
    secret = phe.PaillierPrivateKey(public, key.p, key.q)
    numbers = [0, 1, 2**64, n // 2, n - 1, secrets.randbelow(n)]
    ours, theirs = key.public.encrypt(numbers), [public.raw_encrypt(number) for number in numbers]
    assert [secret.raw_decrypt(ciphertext) for ciphertext in ours] == numbers
    assert key.decrypt(theirs) == numbers
    assert key.decrypt(key.public.add([ours, theirs])) == [2 * number % n for number in numbers]
    # phe's encoding of negative numbers is ours.
    assert secret.decrypt(phe.EncryptedNumber(public, key.public.encrypt(key.public.residues([-5]))[0])) == -5
    assert key.public.signed(key.decrypt([public.encrypt(-7).ciphertext()])) == [-7]


@pytest.mark.parametrize("short", [False, True])
def test_equal_numbers_have_different_ciphertexts(key: SecretKey, short: bool) -> None:
    ciphertexts = key.public.encrypt([3] * 9, short_exponents=short)
    assert len(set(ciphertexts)) == 9
    assert key.decrypt(ciphertexts) == [3] * 9
    assert max(ciphertexts).bit_length() > 2 * key.public.bits - 20


def test_exponents_have_half_the_bits_of_n_or_twice_those_of_security(
    key: SecretKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(paillier_scheme.secrets, "randbits", lambda bits: drawn.append(bits) or (1 << bits) - 1)
    (full,) = key.public.encrypt([0])
    (short,) = key.public.encrypt([0], short_exponents=True)
    assert drawn == [key.public.bits // 2, 2 * SECURITY[key.public.bits]]
    assert [full, short] == [pow(key.hs, (1 << bits) - 1, key.public.n**2) for bits in drawn]


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.lists(st.integers(0, SMALL.public.n - 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_sums_of_ciphertexts_are_sums_of_numbers_modulo_n(uploads: list[list[int]]) -> None:
    total = SMALL.public.add(SMALL.public.encrypt(upload) for upload in uploads)
    assert SMALL.decrypt(total) == [sum(column) % SMALL.public.n for column in zip(*uploads, strict=True)]


def test_no_numbers_no_ciphertexts() -> None:
    assert SMALL.public.encrypt([]) == SMALL.decrypt([]) == SMALL.public.add([[], []]) == []


@pytest.mark.parametrize("bad", [-1, SMALL.public.n, SMALL.public.n + 5, 10**400], ids=["-1", "n", "n + 5", "10^400"])
def test_numbers_out_of_range_are_refused_and_not_wrapped(bad: int) -> None:
    with pytest.raises(ProtectionError, match=r"plaintext 1 of 3 must be 0 to n - 1, for n of 256 bits") as caught:
        SMALL.public.encrypt([1, bad, 2])
    assert str(bad) not in str(caught.value)  # errors travel to the server


# -- powers ------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=12)
@given(st.integers(1, 400), st.data())
def test_the_comb_gives_the_powers(exponent_bits: int, data: st.DataObject) -> None:
    with small_tables(TEETH):
        powers_are_right(exponent_bits, data)


def powers_are_right(exponent_bits: int, data: st.DataObject) -> None:
    modulus = data.draw(st.integers(3, 2**70))
    base = data.draw(st.integers(1, modulus - 1))
    most = 2**exponent_bits - 1
    exponents = [*data.draw(st.lists(st.integers(0, most), max_size=4)), 0, most]
    table = FixedBase(base, modulus, exponent_bits)
    assert table.powers(exponents) == [pow(base, exponent, modulus) for exponent in exponents]
    for bad in (-1, most + 1):
        with pytest.raises(ValueError, match=f"at most {exponent_bits} bits"):
            table.powers([bad])


def test_a_table_has_the_size_it_is_said_to_have_and_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    key = KEYS(3072).public
    with small_tables(TEETH):
        (ciphertext,) = key.encrypt([1])
        table = key.prepare()
        entries = [entry for part in table.tables for entry in part]
        assert len(entries) == _fixed_base.PARTS * 2**_fixed_base.TEETH
        assert sum(entry.bit_length() for entry in entries) / 8 == pytest.approx(25.2e6, rel=0.01)
        assert _fixed_base.PARTS * table.columns + table.columns - 2 == 142  # multiplications and squarings
        monkeypatch.setattr(_fixed_base, "FixedBase", None)
        assert PublicKey.load(key.dump()).prepare() is table
    assert KEYS(3072).decrypt([ciphertext]) == [1]


# -- signed numbers ----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(-(SMALL.public.n // 12), SMALL.public.n // 12), min_size=1, max_size=4))
def test_signed_numbers_add_up(numbers: list[int]) -> None:
    public = SMALL.public
    assert public.signed(public.residues(numbers)) == numbers
    total = public.add(public.encrypt(public.residues([number])) for number in numbers)
    assert public.signed(SMALL.decrypt(total)) == [sum(numbers)]


def test_signed_numbers_out_of_range_are_refused_and_overflow_is_found() -> None:
    public, most = SMALL.public, SMALL.public.largest
    assert public.signed(public.residues([most, -most])) == [most, -most]
    for bad in (most + 1, -most - 1, public.n):
        with pytest.raises(ProtectionError, match=r"number 1 of 2 must be -n/3 to n/3"):
            public.residues([0, bad])
    for sign in (1, -1):
        encrypted = public.encrypt(public.residues([sign * most]))
        with pytest.raises(ProtectionError, match="sum 0 of 1 is beyond a third of n, 256 bits: it overflowed"):
            public.signed(SMALL.decrypt(public.add([encrypted, encrypted])))


# -- what is not a ciphertext ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "words"),
    [(0, "not a number from 1"), (-4, "not a number from 1"), (SMALL.public.n**2, "not a number from 1"),
     ("7", "not a number from 1"), (None, "not a number from 1"), (SMALL.p, "a divisor in common with n"),
     (SMALL.public.n * 5, "a divisor in common with n")],
    ids=["zero", "negative", "n^2", "text", "none", "p", "5n"],
)  # fmt: skip
def test_what_is_no_ciphertext_is_neither_added_nor_opened(bad: Any, words: str) -> None:
    good = SMALL.public.encrypt([1, 2])
    for use in (SMALL.decrypt, SMALL.public.check, lambda upload: SMALL.public.add([good, upload])):
        with pytest.raises(MessageError, match=f"ciphertext 1 .*{words}"):
            use([good[0], bad])


def test_a_bad_upload_is_found_before_the_next_is_drawn() -> None:
    drawn = []

    def uploads() -> Any:
        for index, upload in enumerate(([5], [0], [6])):
            drawn.append(index)
            yield upload

    with pytest.raises(MessageError):
        SMALL.public.add(uploads())
    assert drawn == [0, 1]


def test_uploads_of_different_lengths_are_not_added() -> None:
    with pytest.raises(ProtectionError, match="1 ciphertexts cannot be added to 2"):
        SMALL.public.add([[4, 5], [4]])
    with pytest.raises(ProtectionError, match="at least one upload"):
        SMALL.public.add([])


def test_ciphertexts_survive_their_bytes_and_tell_key_and_packing() -> None:
    public, other = SMALL.public, paillier_scheme._generate(256).public
    ciphertexts = public.encrypt([1, 2, 3])
    data = public.to_bytes(ciphertexts, "a")
    assert len(data) == 4 + 3 * public.ciphertext_bytes == 4 + 3 * 64
    assert public.from_bytes(data, "a") == ciphertexts
    assert public.from_bytes(public.to_bytes([])) == []
    for reader, packing in ((public, "b"), (public, ""), (other, "a")):
        with pytest.raises(MessageError, match="of another key or packing"):
            reader.from_bytes(data, packing)
    for cut in (data[:3], b""):
        with pytest.raises(MessageError, match="another key or packing than this one, or its bytes were damaged"):
            public.from_bytes(cut, "a")
    with pytest.raises(MessageError, match="191 bytes are not a whole number of ciphertexts of 64"):
        public.from_bytes(data[:-1], "a")
