"""Random splits of a data set within every class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def stratified(
    labels: NDArray[np.int64], test_fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices for training and for testing, each class in its share of both.

    The draws are those of scikit-learn's `train_test_split` with `stratify`, which takes a second to import.

    Args:
        labels: (n,).
        test_fraction: of the examples, in (0, 1).
        seed: of the split.

    Raises:
        ValueError: a class has a single example, or a part cannot hold one of every class.
    """
    rng = np.random.RandomState(seed)
    classes, numbers = np.unique(labels, return_inverse=True)
    counts = np.bincount(numbers)
    num_test = math.ceil(test_fraction * len(labels))
    num_train = len(labels) - num_test
    if counts.min() < 2 or min(num_train, num_test) < len(classes):
        raise ValueError(
            f"{len(labels)} examples of {len(classes)} classes, the smallest of {counts.min()}, cannot be split within "
            f"every class into {num_train} and {num_test}; each class needs 2, and each part one of every class"
        )
    places = np.split(np.argsort(numbers, kind="stable"), np.cumsum(counts)[:-1])
    of_train = _shared_out(counts, num_train, rng)
    of_test = _shared_out(counts - of_train, num_test, rng)
    train, test = [], []
    for where, first, second in zip(places, of_train, of_test, strict=True):
        drawn = where[rng.permutation(len(where))]
        train.append(drawn[:first])
        test.append(drawn[first : first + second])
    return np.concatenate(train), np.concatenate(test)


def _shared_out(counts: NDArray[np.int64], total: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """This number of draws for classes of these sizes, in proportion, by largest remainders."""
    exact = counts / counts.sum() * total
    shares = np.floor(exact)
    missing, remainders = int(total - shares.sum()), exact - shares
    for remainder in np.unique(remainders)[::-1]:
        if not missing:
            break
        (alike,) = np.where(remainders == remainder)
        more = rng.choice(alike, size=min(len(alike), missing), replace=False)
        shares[more] += 1
        missing -= len(more)
    found: NDArray[np.int64] = shares.astype(np.int64)
    return found
