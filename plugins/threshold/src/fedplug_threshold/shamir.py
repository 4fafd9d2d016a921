"""Shamir's t-of-n sharing of polynomials modulo q (Shamir 1979; for RLWE keys Mouchet, Bertrand & Hubaux 2023, Sec. 3).

A polynomial of the ring is a vector of coefficients modulo each prime p of q. Each coefficient is shared separately
over the field of p: the dealer draws f of degree t - 1 with f(0) the coefficient, and client i gets f(i + 1). So fewer
than t shares are independent of the secret, by Shamir's theorem, and sums of shares are shares of sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.errors import ProtectionError
from fedplug_std.he_random import new_seed

from fedplug_threshold.ring import Chain, matrix_product, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fedplug_threshold.ring import Residues


def deal(chain: Chain, secret: Residues, holders: Sequence[int], threshold: int) -> Residues:
    """Shares of a polynomial, shape (holders, L, N). Those of any `threshold` holders determine the secret.

    Args:
        chain: the ring.
        secret: shape (L, N).
        holders: numbers of the clients that get a share.
        threshold: t.

    Raises:
        ProtectionError: no such sharing exists.
    """
    if not 2 <= threshold <= len(holders):
        raise ProtectionError(
            f"threshold={threshold} must be at least 2 and at most the number of holders, {len(holders)}: one share "
            "alone would be the secret, and more shares than holders do not exist"
        )
    _check(holders)
    shares = np.empty((len(holders), *secret.shape), np.uint64)
    curves = chain.uniform(new_seed(), threshold - 1)  # the coefficients of f, except f(0)
    for place, prime in enumerate(chain.primes):
        powers = _powers(holders, threshold - 1, prime)
        shares[:, place] = matrix_product(powers, curves[:, place], prime)
        shares[:, place] += secret[place]
        np.remainder(shares[:, place], np.uint64(prime), out=shares[:, place])
    return shares


def weight(holders: Sequence[int], holder: int, primes: Sequence[int]) -> NDArray[np.uint64]:
    """Lagrange's coefficient of a holder's share if these holders open, modulo each prime, shape (L, 1).

    lambda_j = prod_{k != j} x_k / (x_k - x_j), x_k = k + 1.

    Raises:
        ProtectionError: a holder is named twice, or this one is not among them.
    """
    _check(holders)
    if holder not in holders:
        raise ProtectionError(f"client {holder} is not among those that open: {', '.join(map(str, holders))}")
    found = []
    for prime in primes:
        above, below = 1, 1
        for other in holders:
            if other != holder:
                above = above * (other + 1) % prime
                below = below * (other - holder) % prime
        found.append(above * pow(below, -1, prime) % prime)
    return np.array(found, np.uint64)[:, None]


def combine(chain: Chain, shares: dict[int, Residues]) -> Residues:
    """The polynomial that enough holders' shares determine, shape (L, N). With fewer shares it is noise.

    Args:
        chain: the ring.
        shares: by holder, shape (L, N).
    """
    total = np.zeros((len(chain.primes), chain.degree), np.uint64)
    for holder, share in shares.items():
        weights = weight(tuple(shares), holder, chain.primes)
        for place, prime in enumerate(chain.primes):
            total[place] += times(share[place], weights[place], prime)
            np.remainder(total[place], np.uint64(prime), out=total[place])
    return total


def _check(holders: Sequence[int]) -> None:
    if len(set(holders)) < len(holders):
        raise ProtectionError("a holder is named twice; every client has one share")
    if wrong := [holder for holder in holders if not 0 <= holder < 1 << 29]:
        raise ProtectionError(f"client {wrong[0]} can hold no share; numbers of clients must be from 0 to 2^29 - 1")


def _powers(holders: Sequence[int], count: int, prime: int) -> NDArray[np.uint64]:
    """(x, x^2, ..., x^count) of each holder's x, one row each."""
    places = np.array(holders, np.uint64) + np.uint64(1)
    powers = np.empty((len(holders), count), np.uint64)
    power = np.ones(len(holders), np.uint64)
    for column in range(count):
        power = times(power, places, prime)
        powers[:, column] = power
    return powers
