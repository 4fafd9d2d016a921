"""Shamir's secret sharing of a vector, several elements to a polynomial (packed: Franklin and Yung, STOC 1992).

Shares add up: the sum of the shares that each client got from several dealers is its share of the sum of the secrets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError

from fedplug_baselines.lwe_field import Q, inverse, product, uniform

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class Sharing:
    """How a vector is shared among clients 0 to K-1.

    A polynomial of degree `threshold - 1` takes the secrets at 0 to `packing - 1`; client k gets its value at
    `packing + k`. So any `threshold` shares give the secrets, and any `threshold - packing` of them are independent
    of the secrets and uniform.

    Attributes:
        clients: K.
        threshold: number of shares that open a secret.
        packing: number of secrets that share a polynomial.

    Raises:
        ProtectionError: no such sharing exists.
    """

    clients: int
    threshold: int
    packing: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.packing < self.threshold:
            raise ProtectionError(
                f"packing={self.packing} must be below threshold={self.threshold}: with {self.packing} secrets to a "
                f"polynomial, {self.threshold - self.packing} clients together learn nothing; lower packing"
            )
        if self.threshold > self.clients:
            raise ProtectionError(
                f"threshold={self.threshold} must be at most the number of clients, {self.clients}: there are no more "
                "shares; lower it"
            )

    def length(self, size: int) -> int:
        """Elements in one share of a vector of `size`."""
        return -(-size // self.packing)

    def deal(self, secret: NDArray[Any], stream: CipherContext) -> NDArray[np.uint32]:
        """One share for each client, shape (K, length).

        Args:
            secret: residues, shape (size,).
            stream: secret randomness.
        """
        length, free = self.length(len(secret)), self.threshold - self.packing
        rows = np.zeros((self.threshold, length), np.uint64)
        rows[: self.packing].reshape(-1)[: len(secret)] = secret
        # The shares of the first clients are drawn, which fixes the polynomial. The other shares follow from it.
        rows[self.packing :] = uniform(stream, free * length).reshape(free, length)
        places = np.arange(self.packing + self.clients)
        rest = product(lagrange(places[: self.threshold], places[self.threshold :]), rows)
        return np.concatenate([rows[self.packing :], rest]).astype(np.uint32)

    def open(self, shares: Mapping[int, NDArray[Any]], size: int) -> NDArray[np.uint64]:
        """The secret behind the shares of some clients, shape (size,).

        Args:
            shares: by client; at least `threshold`. Additional shares are checked against the others.
            size: of the secret.

        Raises:
            ProtectionError: there are too few shares, or they have no common polynomial, so one is wrong.
        """
        if len(shares) < self.threshold:
            raise ProtectionError(
                f"{len(shares)} shares open nothing; threshold={self.threshold} of {self.clients} are needed"
            )
        places = np.array([self.packing + client_id for client_id in shares])
        rows = np.stack([share.astype(np.uint64) for share in shares.values()])
        known, given = places[: self.threshold], rows[: self.threshold]
        if not np.array_equal(product(lagrange(known, places[self.threshold :]), given), rows[self.threshold :]):
            raise ProtectionError(
                f"the shares of clients {', '.join(map(str, sorted(shares)))} do not belong together: at least one of "
                "them is wrong, so the sum stays closed"
            )
        secrets = product(lagrange(known, np.arange(self.packing)), given)
        return secrets.reshape(-1)[:size]


def lagrange(nodes: NDArray[Any], points: NDArray[Any]) -> NDArray[np.uint64]:
    """Coefficients that turn a polynomial's values at `nodes` into its values at `points`, shape (points, nodes).

    The polynomial has a degree below the number of nodes; no point is a node.
    """
    between = (nodes[:, None] - nodes[None, :]) % Q + np.eye(len(nodes), dtype=np.int64)
    away = (points[:, None] - nodes[None, :]) % Q
    weights, whole = (_product_of_columns(matrix.astype(np.uint64)) for matrix in (between, away))
    return whole[:, None] * inverse(away.astype(np.uint64) * weights % Q) % Q


def _product_of_columns(matrix: NDArray[np.uint64]) -> NDArray[np.uint64]:
    total = np.ones(len(matrix), np.uint64)
    for column in matrix.T:
        total = total * column % Q
    return total
