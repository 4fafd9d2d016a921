"""Spans of the inputs of fully connected layers, from their gradients, and the distance of vectors from these spans.

The gradient of a weight is D X, where X has a row for each (example, position) that entered the layer. With fewer of
these than the layer has rows, the rows of X are combinations of the rows of the gradient (Petrov et al. 2024, Th. 5.1);
with noise E this holds up to noise. A row x is D's inverse times the gradient, M^T u, and its residual is min over u of
|M^T u - x|^2 + n s^2 |u|^2, with s the noise of an entry and n the columns: a ridge in place of a rank.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.errors import ViewError

from fedplug_attacks._low_rank import completed

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rounding of a sum of float32 values, as a share of the largest entry.
_ROUNDING = 3e-8
# Singular values of noise alone are at most this times sigma (sqrt(m) + sqrt(n)).
_NOISE_EDGE = 1.05
# Completion of gaps takes a time that grows with the square of the rank.
_MOST_COMPLETED = 64
# A visible submatrix is used where it has this many times as many rows and columns as there are inputs.
_ROOMY = 1.25


@dataclasses.dataclass(frozen=True, eq=False)
class Span:
    """The span of what entered one layer.

    Attributes:
        name: of the layer.
        columns: int64, coordinates of the input in the span; the index after the last one means the bias's 1.
        directions: (k, n), orthonormal rows.
        outside: (k,), the share of a direction that counts as outside: 1 if noise hides it.
        rank: the number of directions above the noise.
    """

    name: str
    columns: NDArray[np.int64]
    directions: NDArray[np.float64]
    outside: NDArray[np.float64]
    rank: int

    @property
    def free(self) -> float:
        """How many dimensions are outside of it."""
        return len(self.columns) - float((1 - self.outside).sum())

    @classmethod
    def of(cls, name: str, matrix: NDArray[np.float64], sigma: float, inputs: int, seed: int) -> Span:
        """The span that a gradient shows.

        Args:
            name: of the layer.
            matrix: (m, n), a row for each output; NaN where hidden; the last column is of the bias if there is one.
            sigma: standard deviation of the noise on an entry, rounding included, as far as it is known.
            inputs: the largest number of vectors that entered the layer; directions beyond this rank are noise.
            seed: of the completion.

        Raises:
            ViewError: too little is visible, or nothing exceeds the noise.
        """
        matrix, columns, error = _whole(name, matrix, inputs, seed)
        m, n = matrix.shape
        if not np.isfinite(matrix).all() or not matrix.any():
            raise ViewError(f"the gradient of {name} is {'0' if not matrix.any() else 'not finite'}")
        _, singular, directions = np.linalg.svd(matrix, full_matrices=False)
        variance = max(sigma, error) ** 2 + (_ROUNDING * float(np.abs(matrix).max())) ** 2
        if inputs < len(singular):
            variance = max(variance, float((singular[inputs:] ** 2).sum()) / ((m - inputs) * (n - inputs)))
        edge = variance * (np.sqrt(m) + np.sqrt(n)) ** 2 * _NOISE_EDGE
        clean = np.maximum(0.0, singular**2 - edge)
        rank = int(np.count_nonzero(clean))
        if not rank:
            raise ViewError(f"nothing in the gradient of {name} exceeds its noise")
        if rank == len(singular) < inputs:
            raise ViewError(f"the gradient of {name} is of full rank, {rank}, with {inputs} inputs behind it")
        return cls(name, columns, directions, variance * n / (clean + variance * n), rank)

    def outside_of(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """The share of each input (k, d) that is outside of the span, 0 to 1; (k,)."""
        values = np.concatenate([inputs, np.ones((len(inputs), 1), np.float32)], axis=1)[:, self.columns]
        values = values.astype(np.float64)
        parts = (values @ self.directions.T) ** 2
        size = np.maximum((values**2).sum(1), 1e-300)
        outside: NDArray[np.float64] = (parts @ self.outside + np.maximum(size - parts.sum(1), 0.0)) / size
        return outside


def _whole(
    name: str, matrix: NDArray[np.float64], inputs: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """The matrix without gaps: a visible part of it, or else completed at a low rank; which columns it has, and the
    error of an entry."""
    columns = np.arange(matrix.shape[1])
    hidden = np.isnan(matrix)
    if not hidden.any():
        return matrix, columns, 0.0
    part = _visible_part(hidden)
    enough = _ROOMY * inputs
    if min(np.count_nonzero(part[0]), np.count_nonzero(part[1])) > enough:
        return matrix[np.ix_(*part)], columns[part[1]], 0.0
    rows, kept = (~hidden).sum(1) > inputs + 2, (~hidden).sum(0) > inputs + 2
    if inputs > _MOST_COMPLETED or min(rows.sum(), kept.sum()) <= enough:
        raise ViewError(
            f"{np.count_nonzero(hidden)} of {hidden.size} entries of the gradient of {name} are hidden, and the rest "
            f"does not give the span of {inputs} inputs"
        )
    # As many rows as make the span sure, those that show most: completion takes time for each.
    most = np.argsort(-(~hidden).sum(1) * rows, kind="stable")[: min(int(rows.sum()), 4 * inputs + 64)]
    part = matrix[np.ix_(np.sort(most), kept)]
    found = completed(part, inputs, seed)
    return found.left @ found.right, columns[kept], found.residual * float(np.sqrt(np.nanmean(part**2)))


def _visible_part(hidden: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Rows and columns of a part without hidden entries; the one with the largest hidden share is removed first."""
    rows, columns = np.ones(hidden.shape[0], bool), np.ones(hidden.shape[1], bool)
    by_row, by_column = hidden.sum(1).astype(np.float64), hidden.sum(0).astype(np.float64)
    while by_row.max(initial=0.0) > 0:
        row, column = int(np.argmax(by_row)), int(np.argmax(by_column))
        if by_row[row] / max(1, columns.sum()) >= by_column[column] / max(1, rows.sum()):
            rows[row], by_row[row] = False, 0.0
            by_column -= hidden[row] & columns
        else:
            columns[column], by_column[column] = False, 0.0
            by_row -= hidden[:, column] & rows
    return rows, columns
