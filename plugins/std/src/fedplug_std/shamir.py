"""Shamir's secret sharing over a prime field (Communications of the ACM, 1979), of many secrets at once.

A polynomial of degree t - 1 takes k secrets at 0 to k - 1 (packed: Franklin and Yung, STOC 1992), and holder h gets its
value at k + h. So any t shares give the secrets, and any t - k of them are uniform and independent of the secrets.
Shares add up: the sum of the shares that a holder got from several dealers is its share of the sums of the secrets.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError

from fedplug_std import prime_field as field
from fedplug_std.he_random import Secrets

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHECKED_BITS = 91
"""With more shares than needed, random sums that must be zero are checked: a wrong share passes with 2^-91 at most."""


@dataclasses.dataclass(frozen=True)
class Sharing:
    """How secrets are shared.

    Attributes:
        prime: of the field, at most 55 bits.
        threshold: t, number of shares that open a secret.
        packing: k, number of secrets that share a polynomial.

    Raises:
        ProtectionError: no such sharing exists.
    """

    prime: int
    threshold: int
    packing: int = 1

    def __post_init__(self) -> None:
        if self.threshold < 2:
            raise ProtectionError(
                f"threshold={self.threshold} must be >= 2: one share alone would be the secret; raise it"
            )
        if not 1 <= self.packing < self.threshold:
            raise ProtectionError(
                f"packing={self.packing} must be below threshold={self.threshold}: with {self.packing} secrets to a "
                f"polynomial, {self.threshold - self.packing} clients together learn nothing; lower packing"
            )

    def among(self, count: int) -> Sharing:
        """This sharing, among so many holders.

        Raises:
            ProtectionError: they are too few.
        """
        if self.threshold > count:
            raise ProtectionError(
                f"threshold={self.threshold} must be at most the number of clients, {count}: there are no more shares; "
                "lower it"
            )
        return self

    def deal(self, secrets: NDArray[np.uint64], holders: Sequence[int]) -> NDArray[np.uint64]:
        """Shares, one row for each holder, shape (holders, m).

        Args:
            secrets: residues, shape (packing, m); those of a column share a polynomial.
            holders: numbers of those that get a share; includes the dealer if it keeps one.

        Raises:
            ProtectionError: a holder is named twice, its number is too large, or there are too few.
        """
        places, first = self.among(len(holders))._places(holders), np.arange(self.packing)
        # f = the polynomial through the secrets + x (x - 1) ... (x - k + 1) r(x), with random coefficients of r.
        random = Secrets().uniform(self.prime, self.threshold - self.packing, secrets.shape[1])
        vanishing = field.row_products(((places[:, None] - first) % self.prime).astype(np.uint64), self.prime)
        curves = field.powers(places.astype(np.uint64), len(random), self.prime)
        matrix = [field.lagrange(first, places, self.prime), field.times(vanishing[:, None], curves, self.prime)]
        return field.product(np.concatenate(matrix, axis=1), np.concatenate([secrets, random]), self.prime)

    def weight(self, holder: int, holders: Sequence[int]) -> NDArray[np.uint64]:
        """Lagrange's coefficients of one holder's share if these holders open, shape (packing,).

        Raises:
            ProtectionError: a holder is named twice, or this one is not among them.
        """
        if holder not in holders:
            raise ProtectionError(f"client {holder} is not among those that open: {', '.join(map(str, holders))}")
        of = np.array([list(holders).index(holder)])
        return field.lagrange(self._places(holders), np.arange(self.packing), self.prime, of)[:, 0]

    def open(self, shares: Mapping[int, NDArray[Any]]) -> NDArray[np.uint64]:
        """The secrets behind shares, shape (packing, m).

        Args:
            shares: by holder, residues of shape (m,); at least `threshold`. Additional ones are checked against the
                others.

        Raises:
            ProtectionError: there are too few shares, or they have no common polynomial, so at least one is wrong.
        """
        if len(shares) < self.threshold:
            raise ProtectionError(f"{len(shares)} shares open nothing; threshold={self.threshold} are needed")
        holders = tuple(sorted(shares))
        rows = np.stack([shares[holder].astype(np.uint64) for holder in holders])
        opening, zeros = _sums(self, holders)
        if field.product(zeros, rows, self.prime).any():
            raise strangers(holders)
        return field.product(opening, rows, self.prime)

    def _places(self, holders: Sequence[int]) -> NDArray[np.int64]:
        """Points at which the polynomials are evaluated."""
        if len(set(holders)) < len(holders):
            raise ProtectionError("a holder is named twice; every client gets one share")
        most = min(self.prime, 1 << 30) - self.packing
        if wrong := [holder for holder in holders if not 0 <= holder < most]:
            raise ProtectionError(
                f"client {wrong[0]} can hold no share; numbers of clients must be from 0 to {most - 1}"
            )
        return np.array(holders, np.int64) + self.packing


def strangers(holders: Iterable[int]) -> ProtectionError:
    """The error for shares without a common polynomial."""
    return ProtectionError(
        f"the shares of clients {', '.join(map(str, holders))} do not belong together: at least one of them is wrong, "
        "or they are of different secrets"
    )


@functools.lru_cache(maxsize=256)
def _sums(sharing: Sharing, holders: tuple[int, ...]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Coefficients for shares of these holders: of the secrets, shape (packing, n), and of sums that are 0, (c, n).

    With w_i = 1 / prod_{j != i} (x_i - x_j), sum_i w_i h(x_i) is 0 for every polynomial h of a degree below n - 1. This
    holds for h = f r, where f has a degree below t and r one below n - t. Only if all shares are on such an f is it 0
    for every r (the dual of a Reed-Solomon code). A few r are drawn.
    """
    prime, places = sharing.prime, sharing._places(holders)
    opening = field.lagrange(places, np.arange(sharing.packing), prime)
    beyond, checks = len(places) - sharing.threshold, -(-_CHECKED_BITS // (prime.bit_length() - 1))
    if not beyond:
        return opening, np.zeros((0, len(places)), np.uint64)
    between = (places[:, None] - places) % prime
    np.fill_diagonal(between, 1)
    weights = field.inverse(field.row_products(between.astype(np.uint64), prime), prime)
    curves = field.powers(places.astype(np.uint64), beyond, prime)
    random = field.product(Secrets().uniform(prime, checks, beyond), curves.T, prime)
    return opening, field.times(random, weights, prime)
