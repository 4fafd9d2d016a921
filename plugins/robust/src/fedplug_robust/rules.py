"""Rules that make one update of several, of which at most f lie: functions of float64 (n, d)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import pdist, squareform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Updates = NDArray[np.float64]


def median(updates: Updates) -> Updates:
    """The median of each coordinate, (d,). Yin et al. (ICML 2018), Definition 1."""
    return np.asarray(np.median(updates, axis=0))


def trimmed_mean(updates: Updates, f: int) -> Updates:
    """The mean of each coordinate without its f largest and its f smallest values, (d,). Yin et al., Definition 2."""
    return np.asarray(np.sort(updates, axis=0)[f : len(updates) - f].mean(axis=0))


def krum_scores(updates: Updates, f: int) -> Updates:
    """Sums of squared distances to the n - f - 2 nearest others, (n,). Blanchard et al. (NeurIPS 2017), Section 4."""
    distances = np.sort(squareform(pdist(updates, "sqeuclidean")), axis=1)  # each is nearest to itself
    return np.asarray(distances[:, 1 : len(updates) - f - 1].sum(axis=1))


def multi_krum(updates: Updates, f: int, m: int) -> Updates:
    """The mean of the m updates with the lowest scores, (d,); m = 1 is Krum."""
    return np.asarray(updates[np.argsort(krum_scores(updates, f), kind="stable")[:m]].mean(axis=0))


def bulyan(updates: Updates, f: int) -> Updates:
    """Of n - 2f updates that Krum chooses one after the other, for each coordinate the mean of the n - 4f values next
    to their median, (d,). El Mhamdi et al. (ICML 2018), Algorithm 2.
    """
    left, chosen = updates, []
    for _ in range(len(updates) - 2 * f):
        # Of those that are left, as many neighbours as Krum has among so many; the last few have one.
        nearest = np.sort(squareform(pdist(left, "sqeuclidean")), axis=1)[:, 1 : max(2, len(left) - f - 1)]
        best = int(np.argmin(nearest.sum(axis=1)))
        chosen.append(left[best])
        left = np.delete(left, best, axis=0)
    among = np.array(chosen)
    order = np.argsort(np.abs(among - np.median(among, axis=0)), axis=0, kind="stable")[: len(updates) - 4 * f]
    return np.asarray(np.take_along_axis(among, order, axis=0).mean(axis=0))


def geometric_median(updates: Updates, nu: float, iterations: int) -> Updates:
    """The point with the least sum of distances, (d,), by the smoothed Weiszfeld algorithm. Pillutla et al. (RFA, IEEE
    Trans. Signal Processing 2022), Algorithm 2, but from the coordinate median: one liar takes the mean away to 1e37,
    from which eight steps do not come back.
    """
    point = median(updates)
    for _ in range(iterations):
        weights = 1 / np.maximum(nu, np.linalg.norm(updates - point, axis=1))
        point = weights @ updates / weights.sum()
    return np.asarray(point)


def centred_clipping(updates: Updates, tau: float, iterations: int) -> Updates:
    """v + mean((x - v) min(1, tau / |x - v|)), again from there, (d,); v is 0 at first, no change of the model.
    Karimireddy, He and Jaggi (ICML 2021), Algorithm 2.
    """
    centre = np.zeros(updates.shape[1])
    for _ in range(iterations):
        apart = updates - centre
        lengths = np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        centre = centre + (apart * np.minimum(1, tau / lengths)).mean(axis=0)
    return np.asarray(centre)


def buckets(updates: Updates, size: int, order: NDArray[np.intp]) -> Updates:
    """Means of so many updates each, (ceil(n / size), d), in this order; the last may have fewer. Karimireddy, He and
    Jaggi (ICLR 2022), Algorithm 1.
    """
    starts = np.arange(0, len(updates), size)
    sums = np.add.reduceat(updates[order], starts, axis=0)
    return np.asarray(sums / np.diff([*starts, len(updates)])[:, None])
