"""Labels from the visible part of the last layer's gradient, for attacks that need labels before images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedplug_attacks._public import with_noise
from fedplug_attacks.api.needs import role
from fedplug_attacks.api.observation import Seen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_attacks.api.observation import ObservedUpdate

# A row whose mean is within this many standard deviations of its noise has no sign. Rows that are closer than this many
# could be told apart by chance only.
_SURE = 2.0
# Sum of the predictions for a class over a batch, and share of the class, below which a row without a negative entry
# means that the class is absent.
_CROWDED, _WHOLE = 0.6, 0.9


def single_label(update: ObservedUpdate, num_classes: int, form: str) -> tuple[int, ...]:
    """The label of a batch of one (Zhao et al. 2020, eq. 4): the class whose row of the last layer has another sign.

    Row i of the gradient is (p_i - [y = i]) times the features that enter the last layer. Where these are not negative
    (after ReLU or sigmoid) only the row of the label is negative; where their sum is negative, only that row is
    positive. The bias has p_i - [y = i] itself: where it is visible it decides.

    The adaptive form takes the mean of a row over its visible entries and knows the rows without information. If no row
    has the odd sign, the label is among those. Where there is noise, a row and its bias are one sum in which each entry
    counts by the inverse of its variance, and classes that noise may have put in another order are all candidates. The
    naive form treats hidden entries as 0 and takes the lowest row (argmin).

    Args:
        update: a gradient of one example (estimate), sign +1.
        num_classes: K.
        form: `adaptive` or `naive`.

    Returns:
        The classes that the label can have, the most plausible first; one if it is certain.
    """
    bias, weight = (role(update.layout, name, num_classes) for name in ("last_bias", "last_weight"))
    if form == "naive":
        if weight is None:
            return tuple(range(num_classes))
        return (int(np.argmin(update.tensor(weight).dense(0.0).sum(1))),)
    visible = update.states[update.visible]
    if any(update.tensor(name).sigma.any() for name in (weight, bias) if name) and (visible == Seen.NOISED).any():
        return _noised_label(update, [name for name in (weight, bias) if name], num_classes)
    signs = np.zeros(num_classes, np.int64)
    order = np.zeros(num_classes)
    for name in (weight, bias):  # the bias last: it overrules
        if name is not None:
            scores, margins = _rows(update, name, num_classes)
            sure = np.abs(scores) > margins
            if name == bias and (sure & (scores < 0)).any():
                # Its sign needs no assumption about the features.
                return (int(np.argmin(np.where(sure, scores, np.inf))),)
            if name == bias:
                signs[sure & (scores > 0)], order[sure] = 1, np.inf
                continue
            signs, order = np.where(sure, np.sign(scores), 0).astype(np.int64), np.nan_to_num(scores)
    positive, negative = (np.flatnonzero(signs == sign) for sign in (1, -1))
    if len(negative) == 1:
        return (int(negative[0]),)
    if len(positive) == 1 and len(negative) > 1 and not np.isinf(order[positive[0]]):
        return (int(positive[0]),)
    open_classes = np.flatnonzero(signs == 0)
    if not len(negative) and len(open_classes):
        candidates = open_classes
    else:
        candidates = np.flatnonzero(~np.isinf(order))
        candidates = candidates if len(candidates) else np.arange(num_classes)
    return tuple(candidates[np.argsort(order[candidates], kind="stable")].tolist())


def _noised_label(update: ObservedUpdate, names: list[str], num_classes: int) -> tuple[int, ...]:
    """The label of one example from entries with noise of known, or of estimated size."""
    noisy = with_noise(update)
    sums, precision = np.zeros((2, num_classes))
    for name in names:
        tensor = noisy.tensor(name)
        values, inverse = np.zeros((2, *tensor.states.shape))
        values[tensor.visible] = tensor.values
        # Of a clear entry the variance is not quite 0, so that it outweighs all with noise and its sum stays a number.
        least = (1e-6 * np.abs(tensor.values, dtype=np.float64).max(initial=1e-20)) ** 2
        inverse[tensor.visible] = 1 / np.maximum(np.square(tensor.sigma, dtype=np.float64), least)
        row = (values * inverse).reshape(num_classes, -1).sum(1)
        told = inverse.reshape(num_classes, -1).sum(1)
        sure = np.abs(row) > _SURE * np.sqrt(told)
        if name == names[0] and np.count_nonzero(sure & (row > 0)) == 1 < np.count_nonzero(sure & (row < 0)):
            row = -row  # the sum of the features is negative
        sums, precision = sums + row, precision + told
    seen = precision > 0
    lowest = np.where(seen, sums / np.sqrt(np.where(seen, precision, 1.0)), 0.0)
    order = np.argsort(lowest, kind="stable")
    possible = lowest[order] < lowest[order[0]] + _SURE * np.sqrt(2)
    return tuple(order[possible | ~seen[order]].tolist())


def batch_labels(
    update: ObservedUpdate, batch: int, num_classes: int, form: str, probabilities: NDArray[np.float64]
) -> list[int]:
    """Labels of a batch, repeats among them, in ascending order.

    The bias gradient of class i is the mean of p_n[i] over the examples minus n_i / B; with the model's mean
    probabilities for p, n_i = B (p_i - G_b[i]). The rest of B goes in equal parts to classes whose bias is hidden:
    those with a visible negative entry in their row of weights, or else those whose row is entirely hidden (after ReLU
    or sigmoid the row of a class that is not in the batch has no negative entry). For the same reason, without noise a
    class with a visible negative entry occurs at least once, and a class whose visible entries are all non-negative
    does not occur. This holds for a sum over steps too. Counts are rounded by largest remainders.

    Args:
        update: a gradient (estimate), sign +1.
        batch: B.
        num_classes: K.
        form: `adaptive` or `naive`, which treats hidden entries as 0.
        probabilities: (K,), the model's mean prediction for inputs like the batch's.
    """
    bias, weight = (role(update.layout, name, num_classes) for name in ("last_bias", "last_weight"))
    gradient = np.full(num_classes, np.nan)
    if bias is not None:
        gradient = update.tensor(bias).dense(0.0 if form == "naive" else np.nan).astype(np.float64)
    lowest = row_minima(update, num_classes, form) if weight is not None else np.full(num_classes, np.nan)
    shares = np.clip(np.nan_to_num(batch * (probabilities - gradient)), 0, batch)
    hidden = np.isnan(gradient)
    if hidden.any():
        choices = (hidden & (lowest < 0), hidden & np.isnan(lowest), hidden)
        chosen = next(choice for choice in choices if choice.any())
        shares[chosen] = max(0.0, batch - shares.sum()) / chosen.sum()
    least = np.zeros(num_classes)
    if form == "adaptive" and not update.sigma.any():
        there = (gradient < 0) | (lowest < 0)
        # With features of any sign every row has negative entries, which gives no information.
        if 0 < there.sum() <= batch:
            # A class that occurs once has no negative entry either if the predictions for the other examples add up to
            # more.
            absent = (lowest >= 0) & (gradient >= 0) & (batch * probabilities < _CROWDED) & (shares < _WHOLE)
            least, shares = there.astype(np.float64), np.where(absent, 0.0, shares)
            shares = least + _scaled(np.maximum(shares - least, 0.0), batch - least.sum(), there)
    shares = _scaled(shares, batch, np.ones(num_classes, np.bool_))
    counts = np.floor(shares + 1e-9).astype(np.int64)
    # Equal remainders: the lower row first.
    order = np.lexsort((np.nan_to_num(lowest), -(shares - counts).round(9)))
    counts[order[: batch - int(counts.sum())]] += 1
    return [int(k) for k in np.repeat(np.arange(num_classes), counts)]


def _scaled(shares: NDArray[np.float64], total: float, among: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Shares with this sum; equal ones among some classes if there are none."""
    chosen = shares if shares.sum() > 0 else among.astype(np.float64)
    scaled: NDArray[np.float64] = chosen * (total / chosen.sum())
    return scaled


def row_minima(update: ObservedUpdate, num_classes: int, form: str) -> NDArray[np.float64]:
    """The lowest visible entry of each row of the last layer's weight gradient, NaN where none is; (K,)."""
    name = role(update.layout, "last_weight", num_classes)
    assert name is not None
    values = update.tensor(name).dense(0.0 if form == "naive" else np.inf).astype(np.float64).min(1)
    return np.where(np.isinf(values), np.nan, values)


def _rows(update: ObservedUpdate, name: str, num_classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of the visible entries for each class (NaN without any), and how far from 0 it must be to have a sign."""
    tensor = update.tensor(name)
    values, sigma = np.full((2, *tensor.states.shape), 0.0)
    values[tensor.visible], sigma[tensor.visible] = tensor.values, np.nan_to_num(tensor.sigma)
    count = tensor.visible.reshape(num_classes, -1).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = values.reshape(num_classes, -1).sum(1) / count
        margins = _SURE * np.sqrt(np.square(sigma).reshape(num_classes, -1).sum(1)) / count
    return means, margins
