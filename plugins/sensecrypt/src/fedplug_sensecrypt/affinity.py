"""Clusters of similar vectors: affinity propagation (Frey & Dueck 2007), without clusters that are too small.

Affinity propagation passes messages between points until each has an exemplar. The number of clusters follows from the
preference, here the median similarity. The paper gives it the Euclidean distance as similarity. It maximises
similarity, so that would group the clients that are least alike. The default is therefore the negative squared distance
of the original method.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ITERATIONS = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Clustering:
    """The result of a clustering.

    Attributes:
        labels: int64 (n,), 0 to count - 1, numbered by each cluster's first point.
        count: number of clusters.
        before_merging: number of clusters before small ones joined others.
        converged: False where affinity propagation did not converge; then all points are one cluster.
    """

    labels: NDArray[np.int64]
    count: int
    before_merging: int
    converged: bool


def distances(vectors: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Euclidean distances between the vectors, (n, n)."""
    size = len(vectors)
    apart = np.zeros((size, size))
    for i in range(size):
        for j in range(i):  # pair by pair, because stacking the vectors of a large model would double the memory
            apart[i, j] = apart[j, i] = np.linalg.norm(vectors[i].astype(np.float64) - vectors[j])
    return apart


def cluster(
    apart: NDArray[np.float64], min_cluster: int, *, as_published: bool = False, damping: float = 0.5, seed: int = 0
) -> Clustering:
    """Clusters points by their distances.

    Args:
        apart: Euclidean distances, (n, n).
        min_cluster: smaller clusters join the nearest one.
        as_published: maximise the distance itself, as the paper prints it.
        damping: of the messages, 0.5 to below 1.
        seed: of the tiny noise with which the messages break ties.
    """
    labels, converged = np.zeros(len(apart), np.int64), True
    pairs = apart[~np.eye(len(apart), dtype=np.bool_)]
    if pairs.size and np.ptp(pairs) > 0:  # otherwise the points do not differ
        found, converged = _affinity_propagation(apart if as_published else -(apart**2), damping, seed)
        labels = found if converged else labels
    merged = merge_small(labels, apart, min_cluster)
    return Clustering(merged, len(np.unique(merged)), len(np.unique(labels)), converged)


def _affinity_propagation(similarity: NDArray[np.float64], damping: float, seed: int) -> tuple[NDArray[np.int64], bool]:
    """Labels, and whether the messages converged. The preference is the median similarity."""
    from sklearn.cluster import AffinityPropagation
    from sklearn.exceptions import ConvergenceWarning

    method = AffinityPropagation(
        affinity="precomputed", damping=damping, max_iter=_ITERATIONS, random_state=seed % 2**32
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        labels = np.asarray(method.fit_predict(similarity), np.int64)
    # Without convergence there may still be labels, from whatever the last messages were.
    return labels, not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def merge_small(labels: NDArray[np.int64], apart: NDArray[np.float64], least: int) -> NDArray[np.int64]:
    """Joins each cluster of fewer than `least` points to the nearest one by mean distance, the smallest first.

    Args:
        labels: arbitrary numbers, (n,).
        apart: distances, (n, n).
        least: fewest points of a cluster; if all points together are fewer, they are one cluster.

    Returns:
        int64 (n,), 0 to count - 1, numbered by each cluster's first point.
    """
    clusters = [np.flatnonzero(labels == label) for label in dict.fromkeys(labels.tolist())]
    while len(clusters) > 1:
        smallest = min(clusters, key=len)  # the first of several
        if len(smallest) >= least:
            break
        others = [other for other in clusters if other is not smallest]
        nearest = min(others, key=lambda other: float(apart[np.ix_(smallest, other)].mean()))
        clusters = [np.append(other, smallest) if other is nearest else other for other in others]
    numbered = np.empty(len(labels), np.int64)
    for number, points in enumerate(sorted(clusters, key=lambda points: int(points.min()))):
        numbered[points] = number
    return numbered


def silhouette(apart: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    """Mean silhouette (Eq. 10) in [-1, 1]; None where there is one cluster, or one for each point."""
    from sklearn.metrics import silhouette_score

    if not 2 <= len(np.unique(labels)) < len(labels):
        return None
    return float(silhouette_score(apart, labels, metric="precomputed"))
