"""Matrices of low rank, some of whose entries are hidden: their completion, their sparse directions, and their spans.

Completion and sparse directions are searches in float64 with many small systems at once, which do not depend on
gradients or images.

Spans are of the inputs of fully connected layers. The gradient of a weight is D X, where X has a row for each (example,
position) that entered the layer. With fewer of these than the layer has rows, the rows of X are combinations of the
rows of the gradient (Petrov et al. 2024, Th. 5.1); with noise E this holds up to noise. A row x is D's inverse times
the gradient, M^T u, and its residual is min over u of |M^T u - x|^2 + n s^2 |u|^2, with s the noise of an entry and n
the columns: a ridge in place of a rank.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.errors import ViewError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Ridges of the alternating fits fall by this factor a sweep. The first is the fastest; the last also works if the
# largest entries are hidden. Each starts from the zero-filled matrix, not from the point where another got stuck. Where
# all of them stall, this many random starts follow, which found 5 of 9 such matrices at a factor of 0.9.
_DECAYS, _RANDOM, _RANDOM_DECAY = (0.82, 0.9, 0.95), 8, 0.9
_RIDGE, _LEAST_RIDGE = 0.1, 1e-12
# Residuals that differ by less than this part are the same.
_SAME = 1e-3
# Sweeps after the ridge is at its least.
_LAST_SWEEPS = 60
# A fit with a residual of at most this has the rank; float32 leaves about 1e-7.
_FITTED, _PERFECT = 1e-5, 2e-7
# Reweighting: the softening of the weights falls from the size of the largest entry by this factor a step.
_STEPS, _SOFTENING_DECAY, _LEAST_SOFTENING = 100, 0.9, 1e-5
# The power of the quasi-norm that is descended.
_POWER = 0.5
# The random part of starts in the complement of the known columns, which are not quite orthogonal.
_NEAR = 0.15
# Unit vectors that are nearer than this are copies, polished on different zeros.
_APART = 0.03
# An entry is certainly 0 within this many times the typical size, which counts as at least this share of `ZERO`.
_USUAL, _SMALLEST = 5.0, 1e-3
ZERO = 1e-3
"""Entries below this share of the largest one count as 0. About 0.1% of the entries of a direction without zeros do."""


@dataclasses.dataclass(frozen=True, eq=False)
class Factors:
    """A matrix as left @ right.

    Attributes:
        left: (h, r), orthonormal columns.
        right: (r, m).
        singular: (r,), of the product, descending.
        residual: the part of the visible entries that the product does not explain, over their size (Frobenius norms).
    """

    left: NDArray[np.float64]
    right: NDArray[np.float64]
    singular: NDArray[np.float64]
    residual: float


def truncated(matrix: NDArray[np.float64], rank: int, seed: int) -> tuple[Factors, float]:
    """The best factors of a rank of a matrix without gaps, and its next singular value.

    Large matrices are multiplied with random vectors first (Halko, Martinsson & Tropp 2011, Alg. 4.4 with one power
    step), which is as good where the matrix is of that rank, up to rounding.
    """
    wide = rank + 8
    if min(matrix.shape) > 4 * wide:
        sketch = np.linalg.qr(matrix @ np.random.default_rng(seed).standard_normal((matrix.shape[1], wide)))[0]
        sketch = np.linalg.qr(matrix @ (matrix.T @ sketch))[0]
        left, singular, right = np.linalg.svd(sketch.T @ matrix, full_matrices=False)
        left = sketch @ left
    else:
        left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    following = float(singular[rank]) if len(singular) > rank else 0.0
    left, right, singular = left[:, :rank], singular[:rank, None] * right[:rank], singular[:rank]
    size = float(np.linalg.norm(matrix)) or 1.0
    return Factors(left, right, singular, float(np.linalg.norm(matrix - left @ right)) / size), following


def completed(matrix: NDArray[np.float64], rank: int, seed: int) -> Factors:
    """Factors of a rank that fit the entries that are not NaN, by alternating least squares, with restarts.

    Rows and columns are scaled to the same size first, and ridges fall from sweep to sweep, so that facts that few
    entries show are learnt last (regularised alternating least squares; Zhou et al. 2008; Hastie et al. 2015).

    Args:
        matrix: (h, m), NaN where hidden; every row and column should show at least `rank` entries.
        rank: of the factors.
        seed: of the singular values of large matrices.
    """
    rng = np.random.default_rng(seed)
    best: Factors | None = None
    tries: list[tuple[float, NDArray[np.float64] | None]] = [(decay, None) for decay in _DECAYS]
    tries += [(_RANDOM_DECAY, rng.standard_normal((len(matrix), rank))) for _ in range(_RANDOM)]
    for decay, start in tries:
        found = _alternating(matrix, rank, seed, decay, start)
        # A random start that ends where another did shows what noise leaves.
        floor = start is not None and best is not None and abs(found.residual / best.residual - 1) < _SAME
        if best is None or found.residual < best.residual:
            best = found
        if best.residual < _FITTED or floor:
            break
    assert best is not None
    return best


def _alternating(
    matrix: NDArray[np.float64], rank: int, seed: int, decay: float, start: NDArray[np.float64] | None
) -> Factors:
    """One fit, from a start (h, r), or else from the zero-filled matrix."""
    visible = (~np.isnan(matrix)).astype(np.float64)
    values = np.nan_to_num(matrix)
    rows = _sizes(values, visible)
    values = values / rows[:, None]
    columns = _sizes(values.T, visible.T)
    values = values / columns
    turned, seen = np.ascontiguousarray(values.T), np.ascontiguousarray(visible.T)
    size = float(np.linalg.norm(values)) or 1.0
    left = truncated(values, rank, seed)[0].left if start is None else np.linalg.qr(start)[0]
    ridge, sweeps = _RIDGE, 0
    while True:
        right = _fitted(turned, seen, left, ridge)
        scaled = _fitted(values, visible, right, ridge)
        residual = float(np.linalg.norm(visible * (scaled @ right.T) - values)) / size
        left = np.linalg.qr(scaled)[0]
        sweeps += ridge == _LEAST_RIDGE
        if residual < _PERFECT or sweeps > _LAST_SWEEPS:
            break
        ridge = max(ridge * decay, _LEAST_RIDGE)
    right = _fitted(turned, seen, left, _LEAST_RIDGE)
    base, rotation = np.linalg.qr(left * rows[:, None])
    turn, singular, back = np.linalg.svd(rotation @ (right * columns[:, None]).T, full_matrices=False)
    return Factors(base @ turn, singular[:, None] * back, singular, residual)


def _sizes(values: NDArray[np.float64], visible: NDArray[np.float64]) -> NDArray[np.float64]:
    """Root mean square of the visible entries of each row; 1 where they are all 0."""
    sizes: NDArray[np.float64] = np.sqrt((values**2).sum(1) / np.maximum(visible.sum(1), 1))
    return np.where(sizes > 0, sizes, 1.0)


def _fitted(
    values: NDArray[np.float64], visible: NDArray[np.float64], factors: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """For each row i of values (n, m) the ridge regression of its visible entries on factors (m, r); (n, r)."""
    rank = factors.shape[1]
    products = (factors[:, :, None] * factors[:, None, :]).reshape(len(factors), rank * rank)
    normal = (visible @ products).reshape(-1, rank, rank)
    trace = np.trace(normal, axis1=1, axis2=2) / rank
    normal = normal + (ridge * trace + 1e-300)[:, None, None] * np.eye(rank)
    solution = np.linalg.solve(normal, (values @ factors)[:, :, None])[:, :, 0]
    return solution.astype(np.float64, copy=False)


def row_starts(basis: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Unit vectors in the directions of rows of a basis (h, r) that are not 0; (count, r), each row at most once if
    there are enough."""
    sizes = np.linalg.norm(basis, axis=1)
    usable = np.flatnonzero(sizes > 1e-6 * sizes.max())
    rows = rng.choice(usable, count, replace=len(usable) < count)
    starts: NDArray[np.float64] = basis[rows] / sizes[rows, None]
    return starts


def rest_starts(known: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Unit vectors (count, r) that are nearly orthogonal to known ones (k, r): where those not yet found are nearer."""
    complement = complement_of(known)
    starts = rng.standard_normal((count, len(complement))) @ complement
    starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    starts = starts + _NEAR * rng.standard_normal(starts.shape)
    near: NDArray[np.float64] = starts / np.linalg.norm(starts, axis=1, keepdims=True)
    return near


def complement_of(known: NDArray[np.float64]) -> NDArray[np.float64]:
    """An orthonormal basis (r - k, r) of what is orthogonal to k independent vectors (k, r)."""
    return np.linalg.svd(known)[2][len(known) :]


def sparse_directions(basis: NDArray[np.float64], starts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unit vectors q for which basis @ q has zeros, polished on these; distinct, most zeros first.

    Iteratively reweighted least squares for a quasi-norm of power 1/2 (Chartrand & Yin 2008). The norm of q is held by
    a plane that turns with q, as in searches on a sphere (Sun, Qu & Wright 2017). With many columns a fixed plane finds
    few directions.

    Args:
        basis: (h, r), orthonormal columns.
        starts: (n, r), of searches that run at once.

    Returns:
        (k, r), those with more zeros than any r - 1 rows give.
    """
    height, rank = basis.shape
    directions = starts
    products = (basis[:, :, None] * basis[:, None, :]).reshape(height, rank * rank)
    softening = 1.0
    for _ in range(_STEPS):
        values = directions @ basis.T
        floor = np.abs(values).max(1, keepdims=True) * softening
        weights = (values**2 + floor**2) ** (_POWER / 2 - 1)
        weights /= weights.mean(1, keepdims=True)
        normal = (weights @ products).reshape(-1, rank, rank)
        trace = np.trace(normal, axis1=1, axis2=2) / rank
        normal += (1e-12 * trace)[:, None, None] * np.eye(rank)
        directions = np.linalg.solve(normal, directions[:, :, None])[:, :, 0]
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        softening = max(softening * _SOFTENING_DECAY, _LEAST_SOFTENING)
    return polished(basis, zeros_of(basis, directions))


def polished(basis: NDArray[np.float64], zeros: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each set of rows (n, h) the unit vector q for which basis @ q is smallest there; distinct, most zeros first.

    Sets of fewer than r rows are left out: any r - 1 rows have such a vector.
    """
    height, rank = basis.shape
    zeros = zeros[zeros.sum(1) >= rank]
    if not len(zeros):
        return np.zeros((0, rank))
    zeros = np.unique(zeros, axis=0)
    products = (basis[:, :, None] * basis[:, None, :]).reshape(height, rank * rank)
    normal = (zeros.astype(np.float64) @ products).reshape(-1, rank, rank)
    found = np.linalg.eigh(normal)[1][:, :, 0]
    counts = zeros_of(basis, found).sum(1)
    found = found[np.argsort(-counts, kind="stable")]
    return found[_first_of_each(found)]


def zeros_of(
    basis: NDArray[np.float64], directions: NDArray[np.float64], sure: bool = False
) -> NDArray[np.bool_]:
    """Which entries of basis @ q count as 0; (k, h).

    Args:
        basis: (h, r).
        directions: (k, r), the vectors q.
        sure: only those that are as small as typical ones, since others may be small by chance.
    """
    values = np.abs(directions @ basis.T)
    most = ZERO * values.max(1, keepdims=True)
    few: NDArray[np.bool_] = values < most
    if sure:
        usual = np.nanmedian(np.where(few, values, np.nan), axis=1, keepdims=True) if few.any(1).all() else most
        few = few & (values <= _USUAL * np.maximum(usual, _SMALLEST * most))
    return few


def independent(directions: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Indices of the unit vectors (k, r) that are not combinations of those before them; at most `most`."""
    chosen: list[int] = []
    rest = directions.copy()
    for number in range(len(directions)):
        size = float(np.linalg.norm(rest[number]))
        if size > _APART:
            chosen.append(number)
            unit = rest[number] / size
            rest -= np.outer(rest @ unit, unit)
        if len(chosen) == most:
            break
    return np.array(chosen, np.int64)


def _first_of_each(directions: NDArray[np.float64]) -> NDArray[np.int64]:
    """Indices of the unit vectors that differ, up to sign, from all before them."""
    alike = np.abs(directions @ directions.T) > 1 - _APART**2
    first = np.argmax(alike, axis=1) if len(directions) else np.zeros(0, np.int64)
    return np.flatnonzero(first == np.arange(len(directions)))


# ---- the spans of the inputs of layers

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
