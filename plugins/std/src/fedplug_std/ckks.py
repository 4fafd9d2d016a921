"""Sums under CKKS encryption, with the noise of the scheme removed before anyone but the key holder sees a value."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug import Field
from fedplug.api.errors import ProtectionError

from fedplug_std import ckks_noise, he_keys, tenseal_backend
from fedplug_std.he_blocks import Encryption
from fedplug_std.he_contexts import RingContext, most_dropped
from fedplug_std.he_rlwe import Rlwe, dropped_variance
from fedplug_std.quantise import round_to_grid
from fedplug_std.tenseal_backend import TenSeal

if TYPE_CHECKING:
    from fedplug import Facts
    from numpy.typing import NDArray

    from fedplug_std.he_keys import Terms

PROFILES: dict[str, tuple[int, tuple[int, ...], int]] = {
    "compact": (4096, (40, 40), 34),
    "tutorial": (8192, (60, 40, 40, 60), 40),
}
"""Degree, modulus bits, bits of the scale. `tutorial` is what TenSEAL's tutorials and most federated code use."""

LEAST_SCALE_BITS = 33
"""Least scale of the compact profile for large sums; below it, noise would be near the grid."""

MOST_STEPS = 2.0**44
"""Largest number of grid steps in a sum. Slots are encoded in float64, whose rounding shows from about 2^48 on."""


class GridNumbers:
    """Real numbers on a public grid, so that rounding a decrypted sum removes its noise.

    Attributes:
        range: largest magnitude of a value.
        step: the grid.
    """

    def __init__(self, range: float, step: float) -> None:
        self.range, self.step = range, step

    def encode(
        self, values: NDArray[np.float64], rng: np.random.Generator | None = None
    ) -> tuple[NDArray[np.float64], float]:
        return round_to_grid(values, self.range, self.step)

    def decode(self, words: NDArray[Any], counts: Any) -> NDArray[np.float64]:
        # Each contribution may have been rounded up to the next multiple of the grid.
        largest = counts * (self.range + self.step / 2)
        if words.size and not (np.abs(words) <= largest).all():
            raise ProtectionError(
                # Without the sum itself: this travels to the server, which must not learn decrypted values.
                f"a sum is larger than {np.max(largest):g}, which {np.max(counts)} updates of range {self.range:g} "
                "cannot exceed; the ciphertexts are damaged, or a client did not clip as agreed"
            )
        return words


class GridSlots:
    """One value a slot; what is decrypted is rounded to the grid, which takes the noise off."""

    def __init__(self, numbers: GridNumbers, max_clients: int) -> None:
        self.numbers = numbers
        # A power of two such that max_clients of them sum to at most 1: it fits any range.
        self.count_unit = 2.0 ** -(max_clients - 1).bit_length()

    def pack(self, words: NDArray[np.float64]) -> NDArray[np.float64]:
        return words

    def num_slots(self, size: int) -> int:
        return size

    def unpack(self, slots: NDArray[Any], size: int) -> NDArray[np.float64]:
        words: NDArray[np.float64] = np.rint(slots[..., :size] / self.numbers.step) * self.numbers.step
        return words

    def counts(self, slots: NDArray[Any]) -> NDArray[np.int64]:
        counts = slots / self.count_unit
        whole = np.rint(counts)
        # `not` so that NaN is refused; values that no sum can hold are refused before they overflow an integer.
        good = (np.abs(counts - whole) < 0.25) & (whole >= 0) & (whole <= 2 / self.count_unit)
        return np.where(good, whole, -1).astype(np.int64)


class OnGrid(Encryption):
    """CKKS with values and sums on a public grid, refused where rounding would not remove the noise.

    Attributes:
        degree, coeff_bits, scale_bits: of the ring, of each prime of its modulus, and of the scale.
        symmetric: whether clients encrypt with the secret key.
        besides: what helps against noise, apart from fewer clients and a wider grid.
    """

    degree: int
    coeff_bits: tuple[int, ...]
    scale_bits: int
    symmetric: bool
    besides: str = "use std.bfv"

    def step(self, num_clients: int) -> float:
        """The grid, for any number of clients."""
        return float(2.0**-self.options.grid_bits)

    def agree(self, max_clients: int) -> None:
        """Checks that sums of that many clients fit.

        Raises:
            ProtectionError: float64 cannot hold them, or the grid is too fine for the noise under one key in ten.
        """
        most, largest = max_clients * self.options.range, MOST_STEPS * 2.0**-self.options.grid_bits
        if not most < largest:
            raise ProtectionError(
                f"max_clients={max_clients} updates of range={self.options.range:g} sum to {most:g}, which must be "
                f"< {largest:.3g}, 2^44 steps of the grid: float64 encodes no finer; lower range or grid_bits"
            )
        key = None if self.symmetric else ckks_noise.poor_key(self.degree)
        deviations = ckks_noise.deviations(self.degree, max_clients, self.scale(max_clients), key)
        if problem := self.problem(deviations, max_clients):
            raise ProtectionError(problem)

    def problem(self, deviations: NDArray[np.float64], max_clients: int) -> str:
        """Why rounding to the grid does not remove noise of this size in the slots of a sum; empty if it does."""
        unit = self.packing(self.coarsest(max_clients)).count_unit
        return ckks_noise.problem(deviations, max_clients, self.options.grid_bits, unit, self.besides)

    def scale(self, max_clients: int) -> float:
        """The scale of sums of that many updates."""
        return float(2.0**self.scale_bits)

    def measured(self, max_clients: int) -> tuple[Any, Callable[[float], NDArray[np.float64]]]:
        """A context with new keys, and the noise of a sum of that many updates, slot by slot, with more in c0."""
        context = tenseal_backend.ckks_context(
            self.degree, self.coeff_bits, self.scale_bits, symmetric=self.symmetric
        )
        noise = tenseal_backend.noise(context, self.slots, max_clients, max_clients * self.options.range)
        return context, self.deviations(max_clients, tenseal_backend.key_sizes(context), noise)

    def deviations(
        self, max_clients: int, key: NDArray[np.float64], noise: Any
    ) -> Callable[[float], NDArray[np.float64]]:
        """The noise of a sum under a key, slot by slot, with more in c0."""
        mine = None if self.symmetric else key
        return functools.partial(
            ckks_noise.deviations, self.degree, max_clients, self.scale(max_clients), mine, noise
        )

    def new_keys(self, max_clients: int) -> tuple[Any, Terms]:
        """A context with new keys whose noise is removed by rounding to the grid, even in the noisiest slots.

        Raises:
            ProtectionError: the grid is too fine for the noise of a worst-case sum.
        """
        for _ in range(ckks_noise.KEYS_TRIED):
            context, deviations = self.measured(max_clients)
            if not (problem := self.problem(deviations(0.0), max_clients)):
                return self.finished(context, deviations, max_clients), self.coarsest(max_clients)
        raise ProtectionError(problem)

    def finished(self, context: Any, deviations: Callable[[float], NDArray[np.float64]], max_clients: int) -> Any:
        """The context, with what follows from its noise."""
        return context

    def coarsest(self, max_clients: int) -> Terms:
        """The terms, which do not depend on keys."""
        return {"max_clients": max_clients, "grid_bits": self.options.grid_bits}

    def packing(self, terms: Terms, facts: Facts | None = None) -> GridSlots:
        """How values become slots, as agreed when the keys were made."""
        return GridSlots(GridNumbers(self.options.range, 2.0 ** -terms["grid_bits"]), terms["max_clients"])


class Ckks(OnGrid):
    """Encrypt a zone with CKKS, as most papers do; values and decrypted sums are rounded to a public grid.

    CKKS decryptions carry noise that gives the secret key away when they are published (Li & Micciancio, EUROCRYPT
    2021). Here every client rounds its values to the grid before it encrypts, and the key holder rounds the sum, so the
    released sum is a function of the values alone, the same in every run. Noise is largest in the slots where the
    secret key is large. Counted over all slots of the key in use, it exceeds half a step of the grid for fewer than one
    value in 10^13 of the largest sum (`ckks_noise`); else the options are refused. `std.bfv` is faster and smaller.
    """

    class Options(he_keys.Options):
        """The key holder, the parameters, and the capacity of a sum."""

        profile: Literal["compact", "tutorial"] = Field(
            "compact",
            description="compact: degree 4096 [40, 40], scale up to 2^34, sums below 45; tutorial: 8192 "
            "[60, 40, 40, 60], scale 2^40, as TenSEAL's tutorials, eight times the bytes",
        )
        grid_bits: int = Field(
            17, ge=1, le=24,
            description="values and decrypted sums are multiples of 2^-grid_bits; refused if noise would reach half of "
            "that: compact with key_holder: key_server holds 22 clients at 17, 35 at 16",
        )  # fmt: skip

    name: str = "std.ckks"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.degree, self.coeff_bits, self.scale_bits = PROFILES[options.profile]
        if options.profile == "compact":
            # Real and imaginary parts both carry a value.
            self.backend: Rlwe | TenSeal = Rlwe("ckks", self.degree, (self.coeff_bits[0], self.coeff_bits[1]))
            self.slots = self.degree
        else:
            self.backend, self.slots = TenSeal(), self.degree // 2
        self.position_block = self.slots - 1
        # Clients encrypt with the secret key where they have it: less noise, and half the ciphertext.
        self.symmetric = self.site == "client"
        if options.profile == "compact":
            self.besides = "use profile: tutorial, or std.bfv"
        if not self.symmetric:
            self.besides = self.besides.replace("use", "use key_holder: clients,")

    def scheme(self) -> str:
        """Its parameters in a line."""
        scale = f"up to 2^{self.scale_bits}" if self.options.profile == "compact" else f"2^{self.scale_bits}"
        return (
            f"CKKS {self.degree} {list(self.coeff_bits)}, scale {scale}, range ±{self.options.range:g}, "
            f"sums rounded to 2^-{self.options.grid_bits}"
        )

    def agree(self, max_clients: int) -> None:
        """Checks that sums of that many clients fit.

        Raises:
            ProtectionError: the modulus or float64 cannot hold them, the grid has no value but 0, or it is too fine for
                the noise under one key in ten.
        """
        # One part in a hundred is left for the noise and for primes just below 2^bits.
        capacity, most = 0.99 * self._capacity() / self._least_scale(), max_clients * self.options.range
        if most > capacity:
            raise ProtectionError(
                f"max_clients={max_clients} updates of range={self.options.range:g} can sum to {most:g}, which must "
                f"be < {capacity:.3g} in profile {self.options.profile}; lower range to "
                f"{capacity / max_clients:.3g}, use profile: tutorial, or std.bfv"
            )
        if self.options.range < self.step(max_clients):
            raise ProtectionError(
                f"range={self.options.range:g} must be at least the grid 2^-{self.options.grid_bits}; raise grid_bits"
            )
        super().agree(max_clients)

    def _capacity(self) -> float:
        """The largest value times scale that a sum can hold.

        Slots up to z have coefficients up to |z| times the scale, and those must stay below half the modulus, whose
        last prime is for keys only. Where both parts carry a value, |z| is sqrt(2) times these at most.
        """
        parts = math.sqrt(2) if self.slots == self.degree else 1.0
        return float(2.0 ** (sum(self.coeff_bits[:-1]) - 1) / parts)

    def _least_scale(self) -> float:
        return float(2.0 ** (LEAST_SCALE_BITS if self.options.profile == "compact" else self.scale_bits))

    def scale(self, max_clients: int) -> float:
        """As large as the sum leaves room for."""
        if self.options.profile == "tutorial":
            return super().scale(max_clients)
        return float(min(2.0**self.scale_bits, 0.99 * self._capacity() / (max_clients * self.options.range)))

    def measured(self, max_clients: int) -> tuple[Any, Callable[[float], NDArray[np.float64]]]:
        """A context with new keys, and the noise of a sum of that many updates, slot by slot, with more in c0."""
        if not isinstance(self.backend, Rlwe):
            return super().measured(max_clients)
        context = self.backend.new_context(self.scale(max_clients), symmetric=self.symmetric)
        key = np.abs(context.key_spectrum) ** 2
        return context, self.deviations(max_clients, key, self.backend.noise(context))

    def finished(self, context: Any, deviations: Callable[[float], NDArray[np.float64]], max_clients: int) -> Any:
        """The context, which drops as many bits of c0 as the noise leaves room for."""
        if not isinstance(context, RingContext) or not self.symmetric:
            return context
        fitting = itertools.takewhile(
            lambda bits: not self.problem(deviations(dropped_variance(bits)), max_clients),
            range(most_dropped(self.degree) + 1),
        )
        return dataclasses.replace(context, dropped=max(fitting))
