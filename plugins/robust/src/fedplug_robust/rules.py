"""Rules that make one update of several, of which at most f lie: functions of float64 (n, d).

Each gives the update, (d,), and what each of the n counts in it, (n,): its share in a coordinate, a mean over these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import pdist, squareform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Updates = NDArray[np.float64]
    Result = tuple[Updates, Updates]


def median(updates: Updates) -> Result:
    """The median of each coordinate, which is what no outer value is. Yin et al. (ICML 2018), Definition 1."""
    return trimmed_mean(updates, (len(updates) - 1) // 2)


def trimmed_mean(updates: Updates, f: int) -> Result:
    """The mean of each coordinate without its f largest and its f smallest values. Yin et al., Definition 2."""
    order = np.argsort(updates, axis=0, kind="stable")[f : len(updates) - f]
    return np.take_along_axis(updates, order, axis=0).mean(axis=0), _counted(order, len(updates))


def _counted(chosen: NDArray[np.intp], n: int) -> Updates:
    """The share of each of n updates where these are chosen for each coordinate, (chosen, d)."""
    return np.bincount(chosen.ravel(), minlength=n) / chosen.size


def krum_scores(updates: Updates, f: int) -> Updates:
    """Sums of squared distances to the n - f - 2 nearest others, (n,). Blanchard et al. (NeurIPS 2017), Section 4."""
    distances = np.sort(squareform(pdist(updates, "sqeuclidean")), axis=1)  # each is nearest to itself
    return np.asarray(distances[:, 1 : len(updates) - f - 1].sum(axis=1))


def multi_krum(updates: Updates, f: int, m: int) -> Result:
    """The mean of the m updates with the lowest scores; m = 1 is Krum."""
    chosen = np.argsort(krum_scores(updates, f), kind="stable")[:m]
    return updates[chosen].mean(axis=0), _counted(chosen, len(updates))


def bulyan(updates: Updates, f: int) -> Result:
    """Of n - 2f updates that Krum chooses one after the other, for each coordinate the mean of the n - 4f values next
    to their median. El Mhamdi et al. (ICML 2018), Algorithm 2.
    """
    left = np.arange(len(updates))
    for _ in range(len(updates) - 2 * f):
        # Of those that are left, as many neighbours as Krum has among so many; the last few have one.
        nearest = np.sort(squareform(pdist(updates[left], "sqeuclidean")), axis=1)[:, 1 : max(2, len(left) - f - 1)]
        left = np.delete(left, int(np.argmin(nearest.sum(axis=1))))
    chosen = np.setdiff1d(np.arange(len(updates)), left)
    among = updates[chosen]
    order = np.argsort(np.abs(among - np.median(among, axis=0)), axis=0, kind="stable")[: len(updates) - 4 * f]
    return np.take_along_axis(among, order, axis=0).mean(axis=0), _counted(chosen[order], len(updates))


def geometric_median(updates: Updates, nu: float, iterations: int) -> Result:
    """The point with the least sum of distances, by the smoothed Weiszfeld algorithm. Pillutla et al. (RFA, IEEE Trans.
    Signal Processing 2022), Algorithm 2, but from the coordinate median: one liar takes the mean away to 1e37, from
    which eight steps do not come back.
    """
    point, _ = median(updates)
    for _ in range(iterations):
        weights = 1 / np.maximum(nu, np.linalg.norm(updates - point, axis=1))
        weights /= weights.sum()
        point = weights @ updates
    return point, weights


def centred_clipping(updates: Updates, tau: float, iterations: int) -> Result:
    """v + mean((x - v) min(1, tau / |x - v|)), again from there; v is 0 at first, no change of the model. Karimireddy,
    He and Jaggi (ICML 2021), Algorithm 2.
    """
    centre, shares = np.zeros(updates.shape[1]), np.zeros(len(updates))
    for _ in range(iterations):
        kept = tau / np.maximum(tau, _lengths(updates - centre))
        centre = centre + ((updates - centre) * kept[:, None]).mean(axis=0)
        shares = kept / len(updates) + (1 - kept.mean()) * shares
    return centre, shares


def norm_bound(updates: Updates, norm: float | None) -> Result:
    """The mean of updates scaled down to a norm, None: the median of their norms. Sun et al. (2019), Section 3."""
    lengths = _lengths(updates)
    bound = float(np.median(lengths)) if norm is None else norm
    kept = bound / np.maximum(bound, lengths)
    return (updates * kept[:, None]).mean(axis=0), kept / len(updates)


def trust(updates: Updates, root: Updates) -> Updates:
    """What each update counts before they are divided by the sum of the trust scores, and these, (2, n): ReLU(cos), and
    times |root| / |update|. Cao et al. (FLTrust, NDSS 2021), eqs. 2 and 3.
    """
    lengths, length = _lengths(updates), float(np.linalg.norm(root))
    scores = np.maximum(0.0, updates @ root / (lengths * max(length, np.finfo(np.float64).tiny)))
    return np.array([scores * length / lengths, scores])


def _lengths(updates: Updates) -> Updates:
    """L2 norms, (n,), none of them 0."""
    return np.asarray(np.maximum(np.linalg.norm(updates, axis=1), np.finfo(np.float64).tiny))


def buckets(updates: Updates, size: int, order: NDArray[np.intp]) -> Updates:
    """Means of so many updates each, (ceil(n / size), d), in this order; the last may have fewer. Karimireddy, He and
    Jaggi (ICLR 2022), Algorithm 1.
    """
    starts = np.arange(0, len(updates), size)
    sums = np.add.reduceat(updates[order], starts, axis=0)
    return np.asarray(sums / np.diff([*starts, len(updates)])[:, None])
