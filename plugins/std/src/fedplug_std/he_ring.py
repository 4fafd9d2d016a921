"""Polynomials modulo X^N + 1 and one prime, in numpy: sums, products with small polynomials, embeddings.

A ciphertext of BFV or CKKS is a pair (c0, c1) of such polynomials. Adding ciphertexts is adding residues, encrypting
multiplies by a polynomial of -1, 0 and 1, and so does opening: what a secret key s opens is c0 + c1 s (the phase).
Nothing here draws randomness; `he_random` does.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Residues: TypeAlias = "NDArray[np.uint64]"
"""Coefficients in [0, modulus), shape (..., N)."""


@dataclasses.dataclass(frozen=True)
class Ring:
    """Integers modulo a prime, with X^N = -1.

    Attributes:
        degree: N, a power of two of at least 64.
        modulus: an odd number of at most 60 bits.
    """

    degree: int
    modulus: int

    @functools.cached_property
    def bits(self) -> int:
        """Of one residue."""
        return self.modulus.bit_length()

    # -- sums ----------------------------------------------------------------------------------------------------------

    @property
    def most_terms(self) -> int:
        """How many numbers with as many bits as the modulus sum to less than 2^64."""
        return 1 << 64 - self.bits

    def reduce(self, sums: Residues) -> None:
        """Sums of at most `most_terms` such numbers become residues, in place."""
        np.remainder(sums, np.uint64(self.modulus), out=sums)

    # -- products ------------------------------------------------------------------------------------------------------

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

    @property
    def low_bits(self) -> int:
        """Of a residue that is cut into two halves."""
        return (self.bits + 1) // 2

    def halves(self, residues: Residues) -> NDArray[np.float64]:
        """Low and high bits of residues, shape (..., 2, N)."""
        halves = np.empty((*residues.shape[:-1], 2, self.degree))
        np.bitwise_and(residues, np.uint64(2**self.low_bits - 1), out=halves[..., 0, :], casting="unsafe")
        np.right_shift(residues, np.uint64(self.low_bits), out=halves[..., 1, :], casting="unsafe")
        return halves

    def centred_halves(self, residues: Residues) -> NDArray[np.float64]:
        """Halves of both signs, and so of half the size.

        Uniform ones are then nowhere near the bound of `fixed`; with a mean, their value next to 1 would be above it.
        """
        centred = residues.astype(np.int64)
        centred[centred > self.modulus // 2] -= self.modulus
        base = 1 << self.low_bits
        low = (centred + base // 2 & base - 1) - base // 2
        return np.stack([low, centred - low >> self.low_bits], axis=-2).astype(np.float64)

    def fixed(self, coefficients: NDArray[Any], size: int = 1) -> NDArray[np.complex128]:
        """`spectrum` of a polynomial that many are multiplied by, in extended precision: off by rounding alone.

        Raises:
            ValueError: it is above 4 sqrt(N) `size` somewhere, so that the bound of `products` does not hold.
        """
        half = self.degree // 2
        folded = np.empty((*coefficients.shape[:-1], half), np.clongdouble)
        folded.real, folded.imag = coefficients[..., :half], coefficients[..., half:]
        folded *= np.exp(1j * (4 * np.arctan(np.longdouble(1)) / self.degree * np.arange(half)))
        spectrum: NDArray[np.complex128] = np.fft.fft(folded).astype(np.complex128)
        if not np.abs(spectrum).max() <= 4 * np.sqrt(self.degree) * size:
            raise ValueError("a polynomial with values above 4 sqrt(N) times its size; make another")
        return spectrum

    def products(self, spectra: NDArray[np.complex128], fixed: NDArray[np.complex128]) -> NDArray[np.float64]:
        """Products of polynomials, of which one is `fixed`, as spectra: integers, exactly.

        A transform is off by 6.7 u log2(N / 2) of the norm of its result at most, u = 2^-53 (Higham, Accuracy and
        Stability of Numerical Algorithms, Theorem 24.2), its twist by 6 u more, and the product of both by 4 u. One
        polynomial is transformed there and the product back, so that this is off by 164 u of the norm of the former
        times the largest value of the latter. Halves are below 2^30 and s is up to 4 sqrt(N), or u is of -1, 0 and 1
        and halves of a key are up to 2^30 times that: 0.32 at N = 4096, even for a forged ciphertext. The measured
        error is 0.0003.

        Raises:
            ProtectionError: one is 1 / 4 off an integer, a thousand times the measured error: the transform was
                replaced. This also guards machines whose long double is no longer than a double.
        """
        products = self.from_spectrum(spectra * fixed)
        for row in products.reshape(-1, self.degree):
            whole = np.rint(row)
            row -= whole
            if not -0.25 < row.min() <= row.max() < 0.25:  # nor is NaN
                raise ProtectionError(
                    "numpy's Fourier transform on this machine is not exact enough for encryption, and nothing was "
                    "encrypted or decrypted with it; install numpy from PyPI, without a replacement of numpy.fft"
                )
            row[:] = whole
        return products

    def joined(self, products: NDArray[np.float64], addend: NDArray[np.int64], lowest: int = 0) -> NDArray[np.int64]:
        """The sum of two halves and an integer, modulo the modulus, in [lowest, lowest + modulus).

        Args:
            products: of low and of high bits, shape (..., 2, N), integers of magnitude below 2^43.
            addend: shape (..., N), of magnitude below 2^61.
            lowest: at most 0.
        """
        low, high = products[..., 0, :], products[..., 1, :]
        quotient = high * 2.0**self.low_bits
        quotient += low
        quotient += addend
        quotient -= lowest
        quotient *= 1 / self.modulus
        # The true result is below 2^62 in magnitude, so arithmetic modulo 2^64 gives it despite wrapping.
        multiple = np.floor(quotient, out=quotient).astype(np.int64)
        multiple *= self.modulus
        result = high.astype(np.int64)
        result <<= self.low_bits
        result += low.astype(np.int64)
        result += addend
        result -= multiple
        result -= lowest
        # The quotient was rounded: next to a multiple it may be off by one. What is below 0 is a huge number here, and
        # so is what falls below it, so that the smaller of both is the residue.
        residues = result.view(np.uint64)
        np.minimum(residues, residues + np.uint64(self.modulus), out=residues)
        np.minimum(residues, residues - np.uint64(self.modulus), out=residues)
        result += lowest
        return result

    def phase(
        self, c0: NDArray[np.int64], c1: Residues, key: NDArray[np.complex128], lowest: int = 0
    ) -> NDArray[np.int64]:
        """c0 + c1 s modulo the modulus, in [lowest, lowest + modulus), exactly.

        Args:
            c0: integers of magnitude below 2^61, shape (m, N).
            c1: shape (m, N).
            key: `fixed` of s, shape (N / 2,).
            lowest: at most 0.
        """
        return self.joined(self.products(self.spectrum(self.halves(c1)), key), c0, lowest)

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
