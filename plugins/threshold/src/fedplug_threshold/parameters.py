"""Degree and modulus of the ring: the smallest that hold a sum, its noise and the smudging, at 128 bits of security.

    log2 q  >=  log2(sum of n values / step)  +  log2(noise)  +  lambda  +  log2(t clients' smudging)  +  2

A coefficient holds the field of the sum, as many times as it fits, and the noise of a sum of n ciphertexts. 2^lambda
times larger is the noise that hides that noise when t clients open the sum. Two more bits are one for the sign of all
that noise, and one that reveals a wrong share.

The noise of a sum is e U + s W + E. U, W and E are sums of the draws of n clients for it, and s and e are sums of the
draws of n clients for the key (Mouchet et al., PoPETs 2021, Sec. IV-E). The squared norms of s and e are below twice
their expectation but for 2^-900. Given s and e, the coefficients of the noise are sub-Gaussian with the variance
`noise_variance`, and beyond `TAIL` deviations with a probability below 2 exp(-72) = 2^-102.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import gmpy2
from fedplug.api.errors import ProtectionError

LIMITS = {4096: 106, 8192: 214, 16384: 430}
"""Largest log2 q at 128 bits of security against classical attacks, with a ternary secret and errors of deviation 3.19,
by degree: Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption" (IACR CiC 1(4), 2024)."""
ERROR_VARIANCE, TERNARY_VARIANCE = 42 / 4, 2 / 3
"""Of `fedplug_std.he_random`: centred binomial of 42 bits (deviation 3.24), and -1, 0, 1 with equal probability. Both
are strictly sub-Gaussian: their moments are at most those of a normal distribution of this variance."""
TAIL = 12.0
"""Number of standard deviations that bounds the noise."""
SPREAD = 4
"""Number of uniform integers whose sum is a coefficient of smudging noise; see `fedplug_threshold.smudging`."""
MOST_BITS, FEWEST_BITS = 55, 30
"""Of a prime. Below, products in `fedplug_std.prime_field` are exact; above, there are primes that are 1 modulo 2N."""
MARGIN_BITS = 8
"""Sums stay below (1 - 2^-8) of their field, so that they fit below a prime just under a power of two."""
_MOST_FIELDS = 64
_WIDEST, _FINEST = 32, 16
"""Default bits of a field: as many as leave the most fields, at most the first number, and at least as many as 16 bits
of one client's value need."""


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Parameters of the ring, the fields in a coefficient, and the noise.

    Attributes:
        clients: n, the most ciphertexts in a sum, and the most clients that made the key.
        threshold: t, the number of clients that open.
        smudging: lambda.
        degree: N.
        primes: of q. The first holds noise alone; each of the others holds `fields` of a sum.
        fields: number of fields above each prime but the first.
        bits: of a field.
        guard: bits of the second prime below its fields, for noise too.
        smudge_bits: of each of the `SPREAD` uniform integers whose sum is a coefficient of smudging noise.
    """

    clients: int
    threshold: int
    smudging: int
    degree: int
    primes: tuple[int, ...]
    fields: tuple[int, ...]
    bits: int
    guard: int
    smudge_bits: int

    @property
    def per_coefficient(self) -> int:
        """Fields in a coefficient."""
        return sum(self.fields)

    @property
    def log2_modulus(self) -> float:
        """log2 q."""
        return math.log2(math.prod(self.primes))

    @property
    def noise(self) -> float:
        """B: the noise of a sum of n ciphertexts is smaller."""
        return noise_bound(self.degree, self.clients)

    @property
    def smudge_deviation(self) -> float:
        """Standard deviation of one client's smudging noise: at least 2^lambda B."""
        return smudge_deviation(self.smudge_bits)

    @property
    def opened_noise(self) -> float:
        """Bound on the noise of an opened sum: t clients' smudging noise, and the sum's."""
        return TAIL * math.sqrt(self.threshold) * self.smudge_deviation + self.noise

    def addends(self) -> dict[str, float]:
        """The addends of log2 q, in bits."""
        smudged = math.log2(self.smudge_deviation / self.noise) - self.smudging
        found = {
            f"{self.per_coefficient} sums of {self.bits} bits": float(self.per_coefficient * self.bits),
            f"noise of {self.clients} ciphertexts": math.log2(self.noise),
            "smudging": float(self.smudging),
            f"of {self.threshold} clients": math.log2(self.opened_noise / self.smudge_deviation) + smudged,
            "sign and check": 2.0,
        }
        return found | {"rounded up": self.log2_modulus - sum(found.values())}

    def describe(self) -> str:
        """All of it in one line."""
        parts = " + ".join(f"{bits:.1f} ({what})" for what, bits in self.addends().items())
        return (
            f"N={self.degree}, log2 q = {self.log2_modulus:.1f} of {LIMITS[self.degree]} allowed at 128 bits = {parts}"
        )

    def log2_leak(self, values: float) -> float:
        """log2 of the total variation between all openings and ideal ones; see `fedplug_threshold.smudging`.

        Args:
            values: number of values opened in all. A sum that several sets of clients open counts once per set.
        """
        # On average |v| <= B sqrt(2) / TAIL per coefficient, and a coefficient hides `per_coefficient` values.
        shift = self.noise * math.sqrt(2 * values) / TAIL
        return math.log2(shift * math.sqrt(FISHER) / (2 * self.smudge_deviation))


FISHER = 1.03858
"""Fisher information of the sum of four uniform numbers, times its variance (numerically, from the cubic B-spline)."""


def noise_variance(degree: int, clients: int) -> float:
    """Sub-Gaussian variance of a coefficient of the noise of a sum of n ciphertexts under a key of n clients."""
    norms = 2 * degree * clients  # of s and e: twice the expectation, but for their variances
    return clients * (2 * norms * ERROR_VARIANCE * TERNARY_VARIANCE + ERROR_VARIANCE)


def noise_bound(degree: int, clients: int) -> float:
    """B, the bound on a coefficient of that noise, but for 2^-102."""
    return TAIL * math.sqrt(noise_variance(degree, clients))


def smudge_deviation(bits: int) -> float:
    """Standard deviation of the sum of `SPREAD` uniform integers of `bits` bits."""
    return math.sqrt(SPREAD * (4.0**bits - 1) / 12)


@functools.lru_cache(maxsize=64)
def choose(
    clients: int, threshold: int, smudging: int = 40, bits: int | None = None, degree: int | None = None
) -> Parameters:
    """The smallest degree that holds a field, as many fields as the table allows there, and the smallest q for these.

    Args:
        clients: n.
        threshold: t.
        smudging: lambda, in bits.
        bits: of the sum of one value; None takes the most, up to 32, with which the most fields fit into a coefficient.
        degree: N; None takes the smallest. A larger one sends fewer bytes per value, since the noise is paid once per
            coefficient.

    Raises:
        ProtectionError: no ring of the table holds a sum.
    """
    if not 2 <= threshold <= clients:
        raise ProtectionError(
            f"threshold={threshold} must be at least 2, since one share would be the key, and at most the number of "
            f"clients, {clients}, since there are no more shares"
        )
    finest = _FINEST + math.ceil(math.log2(clients))
    widths = [bits] if bits else list(range(max(_WIDEST, finest), finest - 1, -1))
    for size in [degree] if degree else sorted(LIMITS):
        found = [made for width in widths if (made := _most(clients, threshold, smudging, size, width))]
        if found:
            return max(found, key=lambda made: made.per_coefficient)  # the first of several, and so the widest
    size = degree or max(LIMITS)
    needed = widths[-1] + math.log2(_opened(size, clients, threshold, smudging)) + 2
    raise ProtectionError(
        f"a sum of {clients} clients needs a modulus of {needed:.0f} bits at degree {size}, {widths[-1]} of them for "
        f"the sum and {smudging} for smudging; that is above the {LIMITS[size]} bits of 128-bit security, or the "
        f"sum and its margin fit into no prime of {MOST_BITS} bits; lower bits or smudging_bits, or raise degree"
    )


def _smudge_bits(degree: int, clients: int, smudging: int) -> int:
    # The deviation is 2^bits sqrt(SPREAD / 12).
    return math.ceil(smudging + math.log2(noise_bound(degree, clients)) + math.log2(12 / SPREAD) / 2)


def _opened(degree: int, clients: int, threshold: int, smudging: int) -> float:
    deviation = smudge_deviation(_smudge_bits(degree, clients, smudging))
    return TAIL * math.sqrt(threshold) * deviation + noise_bound(degree, clients)


def _most(clients: int, threshold: int, smudging: int, degree: int, width: int) -> Parameters | None:
    """As many fields of a width as the degree allows; None if not one fits."""
    below = math.ceil(math.log2(_opened(degree, clients, threshold, smudging)) + 2 + 2.0 ** (1 - MARGIN_BITS))
    guard = max(2, below - MOST_BITS)
    first = max(FEWEST_BITS, below - guard)
    above = (MOST_BITS - guard) // width
    if above < 1:
        return None
    for count in range(_MOST_FIELDS, 0, -1):
        fields = [min(count, above)]
        while (left := count - sum(fields)) > 0:
            fields.append(min(left, MOST_BITS // width))
        sizes = [first, guard + fields[0] * width, *(many * width for many in fields[1:])]
        sizes = [max(FEWEST_BITS, size) for size in sizes]
        if sum(sizes) <= LIMITS[degree]:
            primes = _primes(tuple(sizes), 2 * degree)
            bits = _smudge_bits(degree, clients, smudging)
            return Parameters(clients, threshold, smudging, degree, primes, tuple(fields), width, guard, bits)
    return None


@functools.lru_cache(maxsize=256)
def _primes(sizes: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Different primes just below powers of two. They are 1 modulo `step`, so that other libraries' transforms fit."""
    found: list[int] = []
    for bits in sizes:
        number = (1 << bits) - step + 1
        while number in found or not gmpy2.is_prime(number):
            number -= step
        if number < (1 << bits) - (1 << bits - MARGIN_BITS):
            raise ProtectionError(f"there are too few primes of {bits} bits that are 1 modulo {step}; lower bits")
        found.append(number)
    return tuple(found)
