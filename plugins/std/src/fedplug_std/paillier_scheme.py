"""Paillier's encryption: whole numbers, added by multiplying their ciphertexts.

Paillier (EUROCRYPT 1999), Scheme 1 with g = n + 1, for which g^m = 1 + m n modulo n^2. Its costly part, a random n-th
residue for each ciphertext, is drawn as Damgard, Jurik and Nielsen (2010) do: as a power of one fixed n-th residue hs,
with an exponent of half the length, so that a table serves for all of them. Decryption works modulo p^2 and q^2.

    key = generate(3072)
    first, second = key.public.encrypt([3, 4]), key.public.encrypt([10, 20])
    key.decrypt(key.public.add([first, second]))  # [13, 24]

Plaintexts are 0 to n - 1 and sums are modulo n: the code that packs values must ensure that no sum reaches n. For
single signed numbers, `residues` and `signed` ensure it. Only decryption, with powers in constant time, hides its
duration.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import gmpy2
from fedplug.api import codec
from fedplug.api.errors import MessageError, ProtectionError
from gmpy2 import mpz

from fedplug_std._fixed_base import FixedBase, fixed_base

SECURITY = {2048: 112, 3072: 128}
"""Bits of n, and of security (NIST SP 800-57 part 1, table 2)."""

TAG_BYTES = 4
"""Before serialised ciphertexts: a digest of their key and packing."""


@dataclasses.dataclass(frozen=True)
class PublicKey:
    """A public key, which encrypts and adds; without `hs` it only adds.

    Attributes:
        n: the modulus, a product of two primes.
        hs: h^n modulo n^2 for a random h = -x^2 modulo n; encryption takes its powers as random n-th residues.
    """

    n: int
    hs: int | None = None

    @functools.cached_property
    def bits(self) -> int:
        """Of n."""
        return self.n.bit_length()

    @functools.cached_property
    def ciphertext_bytes(self) -> int:
        """Of one ciphertext, a number modulo n^2."""
        return (2 * self.bits + 7) // 8

    @functools.cached_property
    def _n(self) -> Any:
        return mpz(self.n)

    @functools.cached_property
    def _n_squared(self) -> Any:
        return self._n**2

    def encrypt(self, plaintexts: Sequence[int], *, short_exponents: bool = False) -> list[int]:
        """One ciphertext for each number: (1 + m n) hs^r modulo n^2, r random of half the bits of n.

        Damgard, Jurik, Nielsen: "A generalization of Paillier's public-key system with applications to electronic
        voting", International Journal of Information Security 9 (2010).

        Args:
            plaintexts: each 0 to n - 1.
            short_exponents: draw r with twice as many bits as the key has of security, 224 or 256. This is four or
                five times faster, and secure only under a further assumption: that powers of hs with so short exponents
                cannot be told from powers with long ones (short exponents in a group of unknown order).

        Raises:
            ProtectionError: a number is out of range, or this key can only add.
        """
        table = self.prepare(short_exponents)
        for index, plaintext in enumerate(plaintexts):
            if not 0 <= plaintext < self.n:  # without the number: errors travel to the server
                raise ProtectionError(
                    f"plaintext {index} of {len(plaintexts)} must be 0 to n - 1, for n of {self.bits} bits; beyond it "
                    "would wrap around: use a longer key or pack fewer values, and residues() for negative numbers"
                )
        residues = table.powers([secrets.randbits(table.exponent_bits) for _ in plaintexts])
        return [
            int((1 + self._n * plaintext) * residue % self._n_squared)
            for plaintext, residue in zip(plaintexts, residues, strict=True)
        ]

    def prepare(self, short_exponents: bool = False) -> FixedBase:
        """The table of the powers of hs, which the first encryption in a process would otherwise wait for.

        Raises:
            ProtectionError: this key can only add.
        """
        if self.hs is None:
            raise ProtectionError("this key can only add ciphertexts; encrypt with one that was dumped with its hs")
        if not short_exponents:
            return fixed_base(self.hs, self.n**2, (self.bits + 1) // 2)
        security = next((SECURITY[bits] for bits in sorted(SECURITY) if bits >= self.bits), max(SECURITY.values()))
        return fixed_base(self.hs, self.n**2, 2 * security)

    def add(self, uploads: Iterable[Sequence[int]], *, checked: bool = False) -> list[int]:
        """Ciphertexts of the sums, index by index: products modulo n^2.

        Args:
            uploads: at least one, all of the same length. Each is checked before the next is drawn.
            checked: they went through `check` already.

        Raises:
            MessageError: a ciphertext is damaged.
            ProtectionError: there is no upload, or they differ in length.
        """
        totals: list[Any] | None = None
        for upload in uploads:
            if not checked:
                self.check(upload)
            if totals is None:
                totals = [mpz(ciphertext) for ciphertext in upload]
            elif len(upload) != len(totals):
                raise ProtectionError(f"{len(upload)} ciphertexts cannot be added to {len(totals)}; send as many")
            else:
                totals = [
                    total * ciphertext % self._n_squared for total, ciphertext in zip(totals, upload, strict=True)
                ]
        if totals is None:
            raise ProtectionError("a sum needs at least one upload")
        return [int(total) for total in totals]

    def check(self, ciphertexts: Sequence[int]) -> None:
        """Checks that these can be ciphertexts of this key.

        Args:
            ciphertexts: any number.

        Raises:
            MessageError: one is not 1 to n^2 - 1, or not coprime to n.
        """
        product = mpz(1)
        for index, ciphertext in enumerate(ciphertexts):
            if not (isinstance(ciphertext, int) and 0 < ciphertext < self._n_squared):
                raise MessageError(
                    f"ciphertext {index} is not a number from 1 to n^2 - 1, for n of {self.bits} bits; it was "
                    "damaged, or is of another key"
                )
            product = product * (ciphertext % self._n) % self._n
        if gmpy2.gcd(product, self._n) != 1:
            index = next(i for i, ciphertext in enumerate(ciphertexts) if gmpy2.gcd(ciphertext, self._n) != 1)
            raise MessageError(f"ciphertext {index} has a divisor in common with n; it was damaged or forged")

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def to_bytes(self, ciphertexts: Sequence[int], packing: str = "") -> bytes:
        """Ciphertexts of the same length each, after a tag by which `from_bytes` knows their key and packing.

        Args:
            ciphertexts: any number.
            packing: name of the packing of plaintexts, so that different packings are not added.
        """
        parts = [ciphertext.to_bytes(self.ciphertext_bytes, "little") for ciphertext in ciphertexts]
        return b"".join([self._tag(packing), *parts])

    def from_bytes(self, data: bytes, packing: str = "") -> list[int]:
        """Inverse of `to_bytes`; the ciphertexts are not checked one by one.

        Raises:
            MessageError: the bytes are of another key or packing, or were cut.
        """
        if data[:TAG_BYTES] != self._tag(packing):
            raise MessageError("the ciphertext is of another key or packing than this one, or its bytes were damaged")
        body, length = data[TAG_BYTES:], self.ciphertext_bytes
        if len(body) % length:
            raise MessageError(f"{len(body)} bytes are not a whole number of ciphertexts of {length}; they were cut")
        return [int.from_bytes(body[start : start + length], "little") for start in range(0, len(body), length)]

    def _tag(self, packing: str) -> bytes:
        n = self.n.to_bytes((self.bits + 7) // 8, "little")
        return hashlib.blake2b(n + packing.encode(), digest_size=TAG_BYTES).digest()

    def dump(self) -> bytes:
        """This key as bytes."""
        return codec.encode({"n": self.n, "hs": self.hs})

    @classmethod
    def load(cls, data: bytes) -> PublicKey:
        """Inverse of `dump`.

        Raises:
            MessageError: the bytes are not a public key.
        """
        n, hs = _numbers(data, "public", "n", "hs")
        if not (isinstance(n, int) and n > 0 and n % 2 and (hs is None or (isinstance(hs, int) and 0 < hs < n**2))):
            raise MessageError(f"{len(data)} bytes are not a public key: n must be odd, hs a number modulo n^2")
        return cls(n, hs)

    # -- signed numbers ------------------------------------------------------------------------------------------------

    @property
    def largest(self) -> int:
        """The largest magnitude of a signed number, and of sums of them: a third of n, so that what is beyond shows."""
        return self.n // 3

    def residues(self, numbers: Sequence[int]) -> list[int]:
        """Plaintexts of signed numbers: a negative x as n + x.

        Raises:
            ProtectionError: a number is beyond `largest`.
        """
        for index, number in enumerate(numbers):
            if abs(number) > self.largest:
                raise ProtectionError(
                    f"number {index} of {len(numbers)} must be -n/3 to n/3, for n of {self.bits} bits; use a longer "
                    "key or a coarser fixed point"
                )
        return [number % self.n for number in numbers]

    def signed(self, plaintexts: Sequence[int]) -> list[int]:
        """Inverse of `residues`, of sums too.

        Raises:
            ProtectionError: a plaintext is in the middle third, where a sum gets only by overflowing.
        """
        for index, plaintext in enumerate(plaintexts):
            if self.largest < plaintext < self.n - self.largest:
                raise ProtectionError(
                    f"sum {index} of {len(plaintexts)} is beyond a third of n, {self.bits} bits: it overflowed; use a "
                    "longer key, a coarser fixed point or fewer clients"
                )
        return [plaintext - self.n if plaintext > self.largest else plaintext for plaintext in plaintexts]


@dataclasses.dataclass(frozen=True, repr=False)
class SecretKey:
    """A secret key, which decrypts.

    Attributes:
        p, q: the primes.
        hs: of the public key.
    """

    p: int
    q: int
    hs: int

    @functools.cached_property
    def public(self) -> PublicKey:
        """The public part."""
        return PublicKey(self.p * self.q, self.hs)

    @functools.cached_property
    def _halves(self) -> list[tuple[Any, Any, Any]]:
        """For each prime s with cofactor t: s, s^2, and 1 / L_s(g^(s - 1) mod s^2) mod s, where g^(s - 1) is
        1 + (s - 1) s t, so that L_s gives -t.
        """
        return [(mpz(s), mpz(s) ** 2, gmpy2.invert(-t, s)) for s, t in ((self.p, self.q), (self.q, self.p))]

    @functools.cached_property
    def _q_inverse(self) -> Any:
        return gmpy2.invert(self.q, self.p)

    def decrypt(self, ciphertexts: Sequence[int]) -> list[int]:
        """The numbers, 0 to n - 1, by Paillier's decryption modulo each prime (1999, section 7).

        Raises:
            MessageError: one is not a ciphertext of this key. Numbers that merely look like one decrypt to noise.
        """
        self.public.check(ciphertexts)
        plaintexts = []
        for ciphertext in ciphertexts:
            # m mod s = L_s(c^(s - 1) mod s^2) / L_s(g^(s - 1) mod s^2) mod s, with L_s(u) = (u - 1) / s
            mod_p, mod_q = (
                (gmpy2.powmod_sec(ciphertext % s_squared, s - 1, s_squared) - 1) // s * inverse % s
                for s, s_squared, inverse in self._halves
            )
            plaintexts.append(int(mod_q + self.q * ((mod_p - mod_q) * self._q_inverse % self.p)))
        return plaintexts

    def dump(self) -> bytes:
        """This key as bytes."""
        return codec.encode({"p": self.p, "q": self.q, "hs": self.hs})

    @classmethod
    def load(cls, data: bytes) -> SecretKey:
        """Inverse of `dump`.

        Raises:
            MessageError: the bytes are not a secret key.
        """
        p, q, hs = _numbers(data, "secret", "p", "q", "hs")
        if p == q or not all(isinstance(s, int) and s % 4 == 3 and gmpy2.is_prime(s, 5) for s in (p, q)):
            raise MessageError(f"{len(data)} bytes are not a secret key: p and q must be different primes, 3 modulo 4")
        if not (isinstance(hs, int) and 0 < hs < (p * q) ** 2):
            raise MessageError(f"{len(data)} bytes are not a secret key: hs must be a number modulo n^2")
        return cls(p, q, hs)


def generate(bits: int) -> SecretKey:
    """A new key pair, from the operating system's randomness; takes less than a second.

    Args:
        bits: of n, 2048 or 3072.

    Raises:
        ProtectionError: another number of bits.
    """
    if bits not in SECURITY:
        raise ProtectionError(f"bits={bits} must be one of {sorted(SECURITY)}; 3072 gives 128 bits of security")
    return _generate(bits)


def _generate(bits: int) -> SecretKey:
    """A key pair of any even length, for tests."""
    while True:
        p, q = _prime(bits // 2), _prime(bits // 2)
        # The squares modulo n are cyclic only so (Damgard, Jurik, Nielsen), and close primes are found by Fermat's
        # factoring (FIPS 186-5, A.1.3: the bound is theirs).
        if gmpy2.gcd(p - 1, q - 1) == 2 and abs(p - q).bit_length() > bits // 2 - 100:
            break
    n = p * q
    x = secrets.randbelow(n)
    while gmpy2.gcd(x, n) != 1:
        x = secrets.randbelow(n)
    return SecretKey(p, q, int(gmpy2.powmod(-(x**2) % n, n, n**2)))


def _prime(bits: int) -> int:
    """A random prime that is 3 modulo 4, with the two highest bits set, so that n has exactly twice as many."""
    while True:
        candidate = secrets.randbits(bits) | (3 << (bits - 2)) | 3
        if gmpy2.is_prime(candidate, 40):
            return candidate


def _numbers(data: bytes, kind: str, *names: str) -> list[Any]:
    """The whole numbers (or None) that a dumped key holds under these names."""
    fields = codec.decode(data)
    if not (isinstance(fields, dict) and fields.keys() == set(names)):
        raise MessageError(f"{len(data)} bytes are not a {kind} key; they were damaged, or are something else")
    return [fields[name] for name in names]
