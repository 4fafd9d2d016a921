"""SenseCrypt's encryption: Paillier with one scalar per ciphertext, so that every client may have its own mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Field
from fedplug.api.errors import ProtectionError
from fedplug.api.words import FixedPoint
from fedplug_std import he_keys
from fedplug_std.he_blocks import Encryption
from fedplug_std.paillier import OnePerSlot

from fedplug_sensecrypt._phe import Phe

if TYPE_CHECKING:
    from fedplug import Facts
    from fedplug_std.he_keys import Terms
    from numpy.typing import NDArray

SCALE = 2**32
"""Fixed-point units per 1. phe's floats have individual exponents, which travel in the clear."""


class SignedFixedPoint(FixedPoint):
    """Signed whole numbers in units of 2^-32. Values out of range are refused."""

    def encode(self, values: NDArray[np.float64], rng: np.random.Generator) -> tuple[NDArray[np.int64], float]:
        """Codes of one update. No value saturates.

        Raises:
            ProtectionError: a value is out of range.
        """
        # Without the values themselves: the message travels to the server.
        wrong = int(np.count_nonzero(~(np.abs(values) <= self.range)))
        if wrong:
            raise ProtectionError(
                f"{wrong} of {len(values)} values times weight are beyond range={self.range:g}; raise range, clip the "
                "update, or lower lr in train if it diverged"
            )
        return super().encode(values, rng)


class Paillier(Encryption):
    """Encrypt a zone with Paillier through phe, one scalar per ciphertext (SenseCrypt, Sec. 4.1).

    Values are signed fixed-point numbers in units of 2^-32, so sums are exact but for that rounding. The high bits of a
    plaintext count contributors. A ciphertext covers one position, so clients with different masks add up position by
    position. Sums hold only positions that at least `min_clients` clients encrypted; the paper's union of masks is
    `min_clients: 1`. As slow as in the paper, about 10 ms and 512 bytes per scalar: `std.paillier` and `std.bfv` pack.
    """

    class Options(he_keys.Options):
        """Which party holds the key, and how long it is."""

        bits: int = Field(2048, ge=2048, le=8192, multiple_of=2, description="length of the modulus n; the paper: 2048")
        range: float = Field(
            1024.0, gt=0, allow_inf_nan=False,
            description="largest |update value x weight|; a larger value is an error, no value saturates",
        )  # fmt: skip

    name: str = "sensecrypt.paillier"
    slots = 2
    position_block = 1
    backend = Phe()

    def scheme(self) -> str:
        """Its parameters in one line."""
        return (
            f"Paillier {self.options.bits} through phe, one value a ciphertext, steps of 2^-32, range "
            f"±{self.options.range:g}"
        )

    def step(self, num_clients: int) -> float:
        """Grid step of the weighted values, for any number of clients."""
        return 1 / SCALE

    def agree(self, max_clients: int) -> SignedFixedPoint:
        """The codec for that many clients.

        Raises:
            ProtectionError: their sum could exceed the 62 bits available.
        """
        options = self.options
        if max_clients * options.range * SCALE >= 2**62:
            raise ProtectionError(
                f"sums of max_clients={max_clients} values of up to range={options.range:g} in steps of 2^-32 could "
                f"exceed 2^62; lower range to less than {2**30 / max_clients:g}"
            )
        return SignedFixedPoint(options.range, 1 / SCALE)

    def new_keys(self, max_clients: int) -> tuple[Any, Terms]:
        """A new secret key. The terms are its length and the most clients of a sum.

        Raises:
            ProtectionError: sums of that many clients could overflow.
        """
        self.agree(max_clients)
        return self.backend.new_context(self.options.bits), {"bits": self.options.bits, "max_clients": max_clients}

    def packing(self, terms: Terms, facts: Facts | None = None) -> OnePerSlot:
        """How values become numbers."""
        return OnePerSlot(SignedFixedPoint(self.options.range, 1 / SCALE))
