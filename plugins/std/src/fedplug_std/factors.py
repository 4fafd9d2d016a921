"""Factors of correlated noise: prefix sums A x are released as B (C x + z), where A = B C and z is independent noise.

A is the lower triangular matrix of ones, (T, T), x has the sum of each round, and C is lower triangular, so that round
t is released as x_t + (C^-1 z)_t as soon as it is over. The price of the noise is that of z over the sensitivity of C,
and prefix sums have the error of the rows of B.

Sources: P. Kairouz et al., Practical and private (deep) learning without sampling or shuffling, ICML 2021 (trees);
S. Denisov et al., Improved differential privacy for SGD via optimal private linear operators on adaptive streams,
NeurIPS 2022 (factors, adaptive streams); H. Fichtenberger, M. Henzinger, J. Upadhyay, Constant matters, ICML 2023 (the
square root); C. Choquette-Choo et al., Multi-epoch matrix factorization mechanisms, ICML 2023 (several participations);
C. Choquette-Choo et al., (Amplified) banded matrix factorization, NeurIPS 2023 (BandMF); N. Kalinin, C. Lampert, Banded
square root matrix factorization, NeurIPS 2024; K. Dvijotham, B. McMahan, K. Pillutla, T. Steinke, A. Thakurta,
Efficient and near-optimal noise generation for streaming differential privacy, FOCS 2024 (BLT); B. McMahan, Z. Xu,
Y. Zhang, A hassle-free algorithm for private learning in practice, EMNLP 2024 (BLT with several participations).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from fedplug import Buffered

if TYPE_CHECKING:
    from numpy.typing import NDArray

Kind = Literal["square_root", "banded", "tree", "identity"]
LARGEST = 1024
"""Largest number of rounds of a factor that is no Toeplitz matrix, whose entries are worked out once: in T^3 steps for
a tree, in some hundred b T^2 for b bands, which were seven seconds for 16 bands and this number of rounds."""


@dataclasses.dataclass(frozen=True, eq=False)
class Factor:
    """C, lower triangular, for a number of rounds.

    Attributes:
        rounds: T.
        coefficients: of a Toeplitz matrix, C[t, t - k] at k, up to the last that is not 0; None for another.
        matrix: float64 (T, T), if it is not a Toeplitz matrix.
        bands: of such a matrix, beyond how many diagonals all others are 0; None: nowhere.
        buffered: the coefficients behind the first of a BLT, whose buffers give them; None for another.
    """

    rounds: int
    coefficients: NDArray[np.float64] | None = None
    matrix: NDArray[np.float64] | None = None
    bands: int | None = None
    buffered: Buffered | None = None

    def takes_back(self, round: int) -> tuple[float, ...] | Buffered:
        """What the noise of a 0-based round takes back of that of the rounds before: C[t, t-k] / C[t, t]."""
        if self.buffered is not None:
            return self.buffered
        row = self.row(round)
        return tuple((row[1:] / row[0]).tolist())

    def row(self, round: int) -> NDArray[np.float64]:
        """C[t, t], C[t, t-1], ..., as far as it is not 0; of a 0-based round."""
        if self.coefficients is not None:
            return self.coefficients[: round + 1]
        assert self.matrix is not None
        return self.matrix[round, round::-1][: self.bands]

    def dense(self) -> NDArray[np.float64]:
        """C as a matrix, (T, T)."""
        dense = np.zeros((self.rounds, self.rounds))
        for round in range(self.rounds):
            row = self.row(round)
            dense[round, round - len(row) + 1 : round + 1] = row[::-1]
        return dense

    def sensitivity(self, participations: int, separation: int) -> float:
        """The change of C x by a client with updates no longer than 1, in the Frobenius norm.

        It takes part at most `participations` times, any two of them at least `separation` rounds apart. Since no entry
        of C^T C is negative, updates in the same direction are the worst. The result is exact if C is a Toeplitz matrix
        with falling coefficients: the rounds 0, b, 2b, ... are then the worst (Kalinin & Lampert 2024, Theorem 2). For
        other factors it is an upper bound, which is exact if a client takes part in every round, or in one
        (Choquette-Choo et al. 2023, Section 3), or if the rounds of a client share no row of C: bands <= separation.
        """
        times = min(participations, math.ceil(self.rounds / separation))
        if self.coefficients is not None:
            moved = np.zeros(self.rounds)
            for start in range(0, times * separation, separation):
                reached = self.coefficients[: self.rounds - start]
                moved[start : start + len(reached)] += reached
            return float(np.linalg.norm(moved))
        assert self.matrix is not None
        gram = np.abs(self.matrix.T @ self.matrix)
        if times == self.rounds:
            return math.sqrt(float(gram.sum()))
        most = most_apart(gram, times, separation)  # of each round, with its best companions
        return math.sqrt(float(most_apart(most[None], times, separation)[0]))

    def errors(self) -> NDArray[np.float64]:
        """Standard deviation of each prefix sum if z has 1, (T,): the norms of the rows of B = A C^-1."""
        if self.coefficients is not None:  # B is a Toeplitz matrix too
            first = np.cumsum(inverse_of(self.coefficients, self.rounds))
            squares = np.cumsum(np.square(first))
        else:
            ones = np.tril(np.ones((self.rounds, self.rounds)))
            squares = np.square(np.linalg.solve(self.dense().T, ones.T)).sum(axis=0)
        errors: NDArray[np.float64] = np.sqrt(squares)
        return errors

    def spread(self, round: int) -> float:
        """Standard deviation of the noise of one round if z has 1: the norm of a row of C^-1."""
        return float(_spreads(self)[round])


@functools.lru_cache(maxsize=8)
def _spreads(factor: Factor) -> NDArray[np.float64]:
    if factor.coefficients is not None:
        squares = np.cumsum(np.square(inverse_of(factor.coefficients, factor.rounds)))
    else:
        squares = np.square(np.linalg.inv(factor.dense())).sum(axis=1)
    spreads: NDArray[np.float64] = np.sqrt(squares)
    return spreads


def most_apart(weights: NDArray[np.float64], times: int, separation: int) -> NDArray[np.float64]:
    """The largest sum of at most `times` entries of each row that are at least `separation` apart; entries are >= 0.

    Args:
        weights: float64 (R, T).

    Returns:
        float64 (R,).
    """
    rows, rounds = weights.shape
    best = np.zeros((rows, rounds + 1))  # over the first t rounds
    for _ in range(times):
        ends = np.maximum(np.arange(rounds) + 1 - separation, 0)  # number of rounds that are far enough before
        taken = weights + best[:, ends]
        best = np.maximum.accumulate(np.concatenate([np.zeros((rows, 1)), taken], axis=1), axis=1)
    return best[:, -1]


def inverse_of(coefficients: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Coefficients of the inverse of a lower triangular Toeplitz matrix of this size, (size,)."""
    inverse = np.zeros(size)
    inverse[0] = 1 / coefficients[0]
    for k in range(1, size):
        reach = min(k, len(coefficients) - 1)
        inverse[k] = -(coefficients[1 : reach + 1] @ inverse[k - reach : k][::-1]) / coefficients[0]
    return inverse


@functools.lru_cache(maxsize=16)
def factor(kind: Kind, rounds: int, bands: int) -> Factor:
    """The factor of a name.

    Args:
        kind: `square_root`, the square root of A, c_k = c_(k-1) (1 - 1/2k), whose largest error is less than a constant
            above the optimum (Fichtenberger et al. 2023); `banded`, the banded matrix with columns of length 1 and the
            least total squared error (BandMF, Choquette-Choo et al. 2023); `tree`, the binary tree with the best
            estimate of each prefix sum (Honaker's), as a lower triangular matrix; `identity`, independent noise.
        rounds: T.
        bands: number of diagonals of the square root that are kept, and of the banded matrix, 1 to T.

    Raises:
        ValueError: a tree, or an optimised banded matrix, of more rounds than `LARGEST`.
    """
    if kind == "square_root":
        k = np.arange(1, min(bands, rounds))
        return Factor(rounds, np.concatenate([[1.0], np.cumprod(1 - 1 / (2 * k))]))
    if kind == "identity":
        return Factor(rounds, np.ones(1))
    if rounds > LARGEST:
        raise ValueError(f"rounds={rounds} is more than the {LARGEST} of factor {kind}; take the square root")
    if kind == "banded":
        return Factor(rounds, matrix=_banded(rounds, min(bands, rounds)), bands=min(bands, rounds))
    return Factor(rounds, matrix=_tree(rounds))


@functools.lru_cache(maxsize=16)
def blt(rounds: int, buffers: int, participations: int, separation: int) -> Factor:
    """The buffered linear Toeplitz matrix with the least mean squared error of prefix sums at a price.

    c_0 = 1 and c_k = sum over j of omega_j theta_j^(k-1), with theta_j in (0, 1) and omega_j > 0 of a sum of at most 1,
    so that coefficients fall, and the sensitivity is known (McMahan et al. 2024, Section 3). The inverse is a BLT too:
    its theta are the eigenvalues of diag(theta) - sqrt(omega) sqrt(omega)^T (Dvijotham et al. 2024, Section 5). L-BFGS
    starts twice: from thetas at equal distances of the logarithms of 1 - theta, and from the result with one buffer
    fewer; its last digits may differ between machines.

    Args:
        rounds: T.
        buffers: number of buffers, each as large as the model.
        participations, separation: as of `Factor.sensitivity`, at which the error is weighed.
    """
    from scipy.optimize import minimize

    def of(place: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Omega and theta at a place without bounds."""
        thetas, shares = 1 / (1 + np.exp(-place[:buffers])), np.exp(place[buffers:])
        return shares / (1 + shares.sum()), thetas

    def loss(place: NDArray[np.float64]) -> float:
        omegas, thetas = of(place)
        made = Factor(rounds, _powers(omegas, thetas, rounds))
        root = np.sqrt(omegas)
        values, vectors = np.linalg.eigh(np.diag(thetas) - np.outer(root, root))
        first = np.cumsum(_powers(-np.square(root @ vectors), values, rounds))  # of B, a Toeplitz matrix
        mean = np.square(first) @ np.arange(rounds, 0, -1) / rounds
        return math.log(mean) + 2 * math.log(made.sensitivity(participations, separation))

    gaps = np.geomspace(0.5, min(1 / rounds, 0.3), buffers + 1)[1:]  # 1 - theta
    starts = [np.concatenate([np.log((1 - gaps) / gaps), np.full(buffers, -math.log(buffers))])]
    if buffers > 1:  # one fewer, and a slow one
        fewer = blt(rounds, buffers - 1, participations, separation).buffered
        omegas, thetas = np.array([*(fewer.buffers if fewer else ()), (0.01, 1 - 1e-3 / rounds)]).T
        starts.append(np.concatenate([np.log(thetas / (1 - thetas)), np.log(omegas)]))
    tries = [
        minimize(loss, start, method="L-BFGS-B", bounds=[(-15, 30)] * (2 * buffers), options={"maxiter": 500})
        for start in starts
    ]
    found = min(tries, key=lambda each: float(each.fun))
    pairs = tuple((float(omega), float(theta)) for omega, theta in zip(*of(found.x), strict=True))
    buffered = Buffered(buffers=pairs, lags=rounds - 1)
    return Factor(rounds, np.array([1.0, *buffered]), buffered=buffered)


def _powers(omegas: NDArray[np.float64], thetas: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """1, and the sums of omega theta^(k-1) for k = 1 to size - 1."""
    return np.concatenate([[1.0], thetas[:, None].T ** np.arange(size - 1)[:, None] @ omegas])


def _banded(rounds: int, bands: int) -> NDArray[np.float64]:
    """The lower triangular C with so many diagonals and columns of length 1 that has the least total squared error.

    The error is that of all prefix sums, the squared Frobenius norm of B = A C^-1, and all clients whose rounds lie
    `bands` apart or more move C x equally (Choquette-Choo et al. 2023, Section 4). L-BFGS starts at the square root;
    its last digits may differ between machines.
    """
    from scipy.linalg import solve_banded
    from scipy.optimize import minimize

    inside = np.arange(bands)[:, None] < rounds - np.arange(rounds)  # (b, T): [k, j] is of C[j + k, j]
    ones = np.tril(np.ones((rounds, rounds)))

    def normed(entries: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        below = np.zeros(inside.shape)
        below[inside] = entries
        norms = np.linalg.norm(below, axis=0)
        return below / norms, norms

    def loss(entries: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """The error and its derivative: dB = -B dC C^-1, so that d|B|^2 = -2 <(C^-1 B^T B)^T, dC>."""
        below, norms = normed(entries)
        above = np.zeros(inside.shape)  # the diagonals of C^T, as LAPACK keeps them
        for lag in range(bands):
            above[bands - 1 - lag, lag:] = below[lag, : rounds - lag]
        transposed = solve_banded((0, bands - 1), above, ones.T)  # B^T
        both = solve_banded((bands - 1, 0), below, transposed)  # C^-1 B^T
        slope = np.zeros(inside.shape)
        for lag in range(bands):
            slope[lag, : rounds - lag] = -2 * np.einsum("ij,ij->i", both[: rounds - lag], transposed[lag:])
        slope = (slope - below * (slope * below).sum(axis=0)) / norms
        return float(np.square(transposed).sum()), slope[inside]

    root = np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1, bands)))])
    begin = np.broadcast_to(root[:, None], inside.shape)[inside]
    size = loss(begin)[0]  # so that the tolerances are relative
    found = minimize(
        lambda entries: tuple(part / size for part in loss(entries)), begin, jac=True, method="L-BFGS-B",
        options={"maxiter": 300, "ftol": 1e-10, "gtol": 1e-9, "maxcor": 20},
    )  # fmt: skip
    below, dense = normed(found.x)[0], np.zeros((rounds, rounds))
    for lag in range(bands):
        dense += np.diag(below[lag, : rounds - lag], -lag)
    return dense


def _tree(rounds: int) -> NDArray[np.float64]:
    """The tree H, one row a node with ones over the rounds beneath it, as the lower triangular L with L^T L = H^T H.

    Both have the same sensitivity, and A L^-1 z has the distribution of the best linear estimate of all prefix sums
    from the noised nodes; it needs no later round (Denisov et al. 2022, Section 4).
    """
    leaf, gram, width = np.arange(rounds), np.zeros((rounds, rounds)), 1
    while True:
        gram += leaf[:, None] // width == leaf // width  # two rounds share a node of this width
        if width >= rounds:
            break
        width *= 2
    return np.array(np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T)
