"""BatchCrypt's numbers: clipped, quantised, in two's complement with two sign bits, packed into Paillier plaintexts.

Zhang et al., "BatchCrypt: Efficient Homomorphic Encryption for Cross-Silo Federated Learning" (USENIX ATC 2020);
code of the authors: marcoszh/BatchCrypt, FATE_plugin/federatedml/secureprotol/batch_encryption.py and aciq.py.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def code_limit(bits: int, max_clients: int) -> int:
    """The largest magnitude of one client's code: what leaves a sum of `max_clients` codes within `bits` bits."""
    return ((1 << (bits - 1)) - 1) // max_clients


def field_bits(bits: int, max_clients: int) -> int:
    """Bits between neighbours in a plaintext: the code, its second sign bit, and padding for the carries of the sum."""
    return bits + 1 + math.ceil(math.log2(max_clients))


def dynamic_clip(
    lowest: NDArray[np.float64], highest: NDArray[np.float64], counts: NDArray[np.int64], bits: int
) -> NDArray[np.float64]:
    """dACIQ: the clip with the least error for a Gaussian tensor, counting both clipping and rounding to `bits` bits.

    The standard deviation is estimated from the range of the values, as Banner et al. do (ACIQ, NeurIPS 2019). So the
    clients need to send only two numbers per tensor. aciq.py, `get_alpha_gaus`.

    Args:
        lowest, highest: of each tensor's values, over all clients.
        counts: number of values behind these extremes, over all clients.
        bits: of a code.

    Returns:
        The clip of each tensor, in units of the values; 0 where all values are equal.
    """
    gaussian = 0.5 * 0.35 * (1 + math.sqrt(math.pi * math.log(4)))
    deviation = (highest - lowest) * gaussian / np.sqrt(2 * np.log(np.maximum(counts, 2)))
    clips: NDArray[np.float64] = optimal_clip(bits) * deviation
    return clips


@functools.cache
def optimal_clip(bits: int) -> float:
    """Where the squared error of a standard normal value is smallest: the error of clipping plus that of rounding.

    E(a) = (1 + a^2)(1 - erf(a / sqrt 2)) - sqrt(2 / pi) a exp(-a^2 / 2) + 2 a^2 (2^b - 2) / (3 * 2^(3 b)), as in
    aciq.py, `mse_gaussian`. Its derivative grows from below 0 to above, and bisection finds its root.
    """

    def slope(clip: float) -> float:
        clipping = clip * math.erfc(clip / math.sqrt(2)) - math.sqrt(2 / math.pi) * math.exp(-(clip**2) / 2)
        return 2 * clipping + 4 * clip * float(2**bits - 2) / float(3 * 2 ** (3 * bits))

    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return low


@dataclasses.dataclass(eq=False)
class TwosComplement:
    """Values in [-clip, clip] as codes that add up in fields, and sums of fields as values.

    A code is a whole number of magnitude `code_limit` at most, so that the sum of `max_clients` of them fits `bits`
    bits. The authors set the range of the quantiser to the clip times the number of clients. A code is stored modulo
    2^(bits + 1), which doubles its sign bit. In a sum within bounds both sign bits agree; where they differ it has
    overflowed. Carries beyond them fall into the padding and are dropped.

    Attributes:
        bits: r, of a code and of a sum, the sign included.
        max_clients: the most codes a sum may hold.
        clip: one for all values, or one per value, >= 0; None: agreed later.
        stochastic: whether values are rounded up or down at random, so that no rounding has a bias.
    """

    bits: int
    max_clients: int
    clip: float | NDArray[np.float64] | None
    stochastic: bool

    @property
    def range(self) -> float:
        """The clip, where it is an option; NaN, unknown, where it is agreed later."""
        return self.clip if isinstance(self.clip, float) else math.nan

    @property
    def step(self) -> float:
        """Distance of neighbouring values; NaN where the clip is agreed later, or rounding moves 0."""
        return math.nan if self.stochastic else self.range / max(self.limit, 1)

    @property
    def limit(self) -> int:
        """The largest magnitude of a code."""
        return code_limit(self.bits, self.max_clients)

    def encode(self, values: NDArray[np.float64], rng: np.random.Generator) -> tuple[NDArray[np.int64], float]:
        """Fields of one update, and the share of values beyond the clip.

        Raises:
            ProtectionError: the clips are not those of so many values.
        """
        clip = self._clips(values.shape)
        scaled = np.clip(values, -clip, clip) * np.divide(self.limit, clip, out=np.zeros(values.shape), where=clip > 0)
        rounded = np.floor(scaled + rng.random(scaled.shape)) if self.stochastic else np.rint(scaled)
        # Clipped again, because value * limit / clip may exceed the limit by a rounding error.
        codes = np.clip(rounded, -self.limit, self.limit).astype(np.int64)
        beyond = float(np.mean(np.abs(values) > clip)) if len(values) else 0.0
        return codes & (2 ** (self.bits + 1) - 1), beyond

    def _clips(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        clip = np.asarray(math.nan if self.clip is None else self.clip, np.float64)
        if np.isnan(clip).any() or clip.shape not in ((), shape):
            raise ProtectionError(
                f"there are no clips for {shape} values; the negotiation agrees on one for each tensor of the whole "
                "model"
            )
        return np.broadcast_to(clip, shape)

    def decode(self, words: NDArray[Any], counts: Any) -> NDArray[np.float64]:
        """The sum of `counts` updates from summed fields, (n,).

        Raises:
            ProtectionError: a sum has overflowed, or is larger than that number of codes can give.
        """
        sums = np.asarray(words, np.int64) & (2 ** (self.bits + 1) - 1)  # without the padding
        signs = sums >> (self.bits - 1)
        overflowed = int(np.count_nonzero((signs == 0b01) | (signs == 0b10)))
        sums = np.where(signs == 0b11, sums - 2 ** (self.bits + 1), sums)
        beyond = int(np.count_nonzero(np.abs(sums) > counts * self.limit))
        if overflowed or beyond:
            raise ProtectionError(
                # Without the sums: this travels to the server, which must not learn what was decrypted.
                f"{overflowed} of {words.size} sums overflowed their {self.bits} bits, and {beyond} are larger than "
                f"{counts} codes of at most {self.limit} can give; a client did not scale its values to "
                "max_clients as agreed, or ciphertexts are damaged"
            )
        values: NDArray[np.float64] = sums * (self._clips(sums.shape) / self.limit)
        return values
