"""Polynomials modulo X^N + 1 and one prime, in numpy: residues as bytes, sums, products with a secret key, embeddings.

A ciphertext of BFV or CKKS is a pair (c0, c1) of such polynomials. Adding ciphertexts is adding residues, and what a
secret key s opens is c0 + c1 s (the phase): neither needs a library for homomorphic encryption. Nothing here draws
randomness; `he_seal` has Microsoft SEAL encrypt.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Residues: TypeAlias = "NDArray[np.uint64]"
"""Coefficients in [0, modulus), shape (..., N)."""


class _Guest(NamedTuple):
    """A residue of a group whose bits lie in the leading zeros of others: in `hosts`, after the shift of each.

    Where a host's room is shared with the guest before, that is the one `before`, with the bits below `cut`.
    """

    place: int
    hosts: slice
    shifts: NDArray[np.uint64]
    before: int
    cut: np.uint64 | None


@dataclasses.dataclass(frozen=True)
class Ring:
    """Integers modulo a prime, with X^N = -1.

    Attributes:
        degree: N, a power of two of at least 64.
        modulus: an odd number of at most 60 bits.
    """

    degree: int
    modulus: int

    @property
    def bits(self) -> int:
        """Of one residue."""
        return self.modulus.bit_length()

    # -- bytes ---------------------------------------------------------------------------------------------------------

    @property
    def num_words(self) -> int:
        """Words of 64 bits that N packed residues take."""
        return self.degree * self.bits // 64

    @functools.cached_property
    def _plan(self) -> tuple[int, int, list[_Guest]]:
        """Residues go in groups, of which the first few host the bits of the others in their leading zeros."""
        groups, spare = 64 // math.gcd(self.bits, 64), 64 - self.bits
        hosts = groups * self.bits // 64
        guests = []
        for guest in range(groups - hosts):
            start, stop = guest * self.bits, (guest + 1) * self.bits
            first, last = -(-start // spare), -(-stop // spare)
            shifts = np.arange(first * spare, last * spare, spare, dtype=np.uint64) - np.uint64(start)
            cut = np.uint64(start - (first - 1) * spare) if first * spare > start else None
            guests.append(_Guest(hosts + guest, slice(first, last), shifts[:, None], first - 1, cut))
        return groups, hosts, guests

    def pack(self, residues: Residues) -> Residues:
        """Residues without their leading zero bits, shape (m, num_words) for (m, N)."""
        groups, hosts, guests = self._plan
        words = residues.reshape(len(residues), groups, -1)
        packed, spot = words[:, :hosts].copy(), np.uint64(self.bits)
        for guest in guests:
            pieces = words[:, guest.place, None] >> guest.shifts
            pieces <<= spot
            packed[:, guest.hosts] |= pieces
            if guest.cut is not None:
                packed[:, guest.before] |= words[:, guest.place] << guest.cut + spot
        return packed.reshape(len(residues), -1)

    def unpack(self, packed: Residues) -> Residues:
        """Inverse of `pack`: numbers of `bits` bits, (m, N) for (m, num_words), which may exceed the modulus."""
        groups, hosts, guests = self._plan
        words, mask = packed.reshape(len(packed), hosts, -1), np.uint64(2**self.bits - 1)
        residues = np.empty((len(packed), groups, words.shape[2]), np.uint64)
        np.bitwise_and(words, mask, out=residues[:, :hosts])
        if guests:
            spare = words >> np.uint64(self.bits)
        for guest in guests:
            np.bitwise_or.reduce(spare[:, guest.hosts] << guest.shifts, axis=1, out=residues[:, guest.place])
            if guest.cut is not None:
                residues[:, guest.place] |= spare[:, guest.before] >> guest.cut
            residues[:, guest.place] &= mask
        return residues.reshape(len(packed), -1)

    # -- sums ----------------------------------------------------------------------------------------------------------

    @property
    def most_terms(self) -> int:
        """How many residues sum to less than 2^64."""
        return 1 << 64 - self.bits

    def reduce(self, sums: Residues) -> None:
        """Sums of at most `most_terms` residues become residues again, in place."""
        np.remainder(sums, np.uint64(self.modulus), out=sums)

    def add_to(self, total: Residues, other: Residues) -> None:
        """Adds residues in place; shapes are alike."""
        total += other
        # Below the modulus the difference wraps to a huge number, so that the smaller of both is the residue.
        np.minimum(total, total - np.uint64(self.modulus), out=total)

    def residues_of(self, values: NDArray[np.int64]) -> Residues:
        """Residues of integers of magnitude below the modulus."""
        return np.where(values < 0, values + self.modulus, values).view(np.uint64)

    # -- what a secret key opens ---------------------------------------------------------------------------------------

    @functools.cached_property
    def _twist(self) -> NDArray[np.complex128]:
        twist: NDArray[np.complex128] = np.exp(1j * np.pi / self.degree * np.arange(self.degree // 2))
        return twist

    def spectrum(self, coefficients: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Values of polynomials at zeta^(1 - 4k), zeta = exp(i pi / N), shape (..., N / 2) for (..., N).

        These are the roots of X^N + 1 but for their conjugates, so that products of spectra are those of products.
        """
        half = self.degree // 2
        folded = np.empty((*coefficients.shape[:-1], half), np.complex128)
        folded.real, folded.imag = coefficients[..., :half], coefficients[..., half:]
        folded *= self._twist
        spectrum: NDArray[np.complex128] = np.fft.fft(folded)
        return spectrum

    def from_spectrum(self, spectrum: NDArray[np.complex128]) -> NDArray[np.float64]:
        """Inverse of `spectrum`: real coefficients, shape (..., N)."""
        folded: NDArray[np.complex128] = np.fft.ifft(spectrum)
        folded *= self._twist.conj()
        return np.concatenate([folded.real, folded.imag], axis=-1)

    def phase(self, c0: Residues, c1: Residues, key: NDArray[np.complex128], lowest: int) -> NDArray[np.int64]:
        """c0 + c1 s modulo the modulus, in [lowest, lowest + modulus), exactly.

        c1 goes in two halves of at most 30 bits through the floating-point transform. Each of the three transforms is
        off by 6.7 u log2(N / 2) of the norm of its result at most, u = 2^-53 (Higham, Accuracy and Stability of
        Numerical Algorithms, Theorem 24.2). With values of s up to 4 sqrt(N) and |half| <= 2^30 sqrt(N) a product is
        off by 3 * 74 u * 2^32 N = 0.44 at N = 4096, so that rounding finds the integer; what is measured is 0.002.

        Args:
            c0: shape (m, N).
            c1: shape (m, N).
            key: the spectrum of s, shape (N / 2,), of magnitude at most 4 sqrt(N).
            lowest: at most 0.
        """
        low_bits = (self.bits + 1) // 2
        halves = np.empty((*c1.shape[:-1], 2, self.degree))
        halves[..., 0, :] = c1 & np.uint64(2**low_bits - 1)
        halves[..., 1, :] = c1 >> np.uint64(low_bits)
        products = self.from_spectrum(self.spectrum(halves) * key)
        low, high = np.rint(products[..., 0, :]), np.rint(products[..., 1, :])
        multiple = np.floor((high * 2.0**low_bits + low + c0 - lowest) / self.modulus)
        # The true result is below 2^62 in magnitude, so arithmetic modulo 2^64 gives it, whatever wraps on the way.
        result = high.astype(np.int64) << np.int64(low_bits)
        result += low.astype(np.int64)
        result += c0.view(np.int64)
        result -= multiple.astype(np.int64) * np.int64(self.modulus)
        # The quotient was rounded: next to a multiple it may be off by one.
        np.add(result, self.modulus, out=result, where=result < lowest)
        np.subtract(result, self.modulus, out=result, where=result >= lowest + self.modulus)
        return result

    # -- the embedding of CKKS -----------------------------------------------------------------------------------------

    def embed(self, slots: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coefficients of polynomials with these values, shape (m, N): real parts of N / 2 values, then imaginary ones.

        The canonical embedding (Cheon, Kim, Kim and Song, ASIACRYPT 2017), with the roots in the order of `spectrum`.
        """
        half = self.degree // 2
        return self.from_spectrum(slots[:, :half] + 1j * slots[:, half:])

    def slots(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Inverse of `embed`."""
        values = self.spectrum(coefficients)
        return np.concatenate([values.real, values.imag], axis=-1)
