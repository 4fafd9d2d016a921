"""Label restoration from the visible part of the last layer's gradient: by public examples, or its own equations."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from fedplug import Field, Finds
from fedplug.api.errors import ViewError

from fedplug_attacks._forms import Formed
from fedplug_attacks._last_layer import (
    LastLayer,
    batch_labels,
    bias_floor,
    complete,
    completed_columns,
    known,
    last_layer,
    mean_of,
    single_label,
    zero_filled,
)
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.report import DIVERGED, FINISHED, AttackReport
from fedplug_attacks.api.view import Attacker, View

if TYPE_CHECKING:
    from fedplug.api.data import PublicData
    from numpy.typing import NDArray

    from fedplug_attacks._matching import Matcher

# The mean probabilities of a batch depend on its counts. A second pass uses the first one's; more passes amplify errors
# where a model is trained and its probabilities are nearly the labels themselves.
_PASSES = 2
# Least variance of a count, since entries of a row err together. Nats by which counts may be less probable than the
# best ones and still be tried.
_DOUBT, _IMPROBABLE = 0.1, 6.0
# Powers of ten between which the quotient of two entries is kept, as in the authors' published code.
_EXPONENT = 10
MOST_LABELS = 16
"""This many classes are tried one after the other if the label of a single example is ambiguous."""


class Labels(Formed):
    """Class counts from every visible entry of the last layer's gradient, by least squares against public examples.

    Entry (i, j) of the gradient is mean_n(p_n[i] e_n[j]) - (n_i / B) f_i[j], where f_i is the mean feature of class i
    and the bias is one more feature that is 1. With `rows`, both means come from labelled public examples, and n_i is
    the weighted least-squares fit to the visible entries of row i: an entry counts less the more it differs between
    examples and the more noise it carries, so a visible bias decides in a model with little training. The counts are
    adjusted to sum to B, mostly in uncertain rows, and rounded by largest remainder.

    With `bias`, a hidden bias gradient is the fit of its row to one mean feature, and n = B (p_mean - G_b), p_mean
    being the mean probabilities of public examples. With `simple`, n = B (1/K - G_b). Without public examples `rows`
    works like `bias`, and random inputs give the feature and the probabilities.

    Naive: hidden entries are treated as 0.
    """

    finds = Finds(
        needs=Needs(batch_size=(1, 1_000_000)),
        what=frozenset({"labels"}), headline=("ln_acc", "high"), success=("ln_acc", ">=", 0.95),
    )  # fmt: skip

    class Options(Formed.Options):
        """How hidden entries are treated, and how counts follow from the gradient."""

        method: Literal["rows", "bias", "simple"] = Field(
            "rows",
            description="rows: every visible entry of a row, with labelled public examples; bias: the bias gradient "
            "and mean public probabilities; simple: the bias gradient and equal probabilities",
        )

    def describe(self) -> str:
        """A line for the plan."""
        return f"class counts from the last layer ({self.options.method}, {self.options.form})"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Restores the class counts; not applicable where the last layer does not fit or nothing of it is visible."""
        layer = last_layer(view)
        if not layer.finite:
            return AttackReport(DIVERGED, reason="the last layer's gradient holds values that are not finite")
        hidden = float(layer.hidden)
        if self.options.form == "naive":
            layer = zero_filled(layer)
        examples = known(view, layer, attacker.facts.public)
        if self.options.method == "rows" and examples.labels is not None:
            shares, _ = _rows(layer, examples.features, examples.probabilities, examples.labels)
        else:
            equal = np.full(view.num_classes, 1 / view.num_classes)
            expected = equal if self.options.method == "simple" else examples.probabilities.mean(0)
            shares = expected - complete(layer, examples.features.mean(0))[1]
        counts = largest_remainder(shares, layer.examples)
        attacker.progress(1, 1, None)
        return AttackReport(FINISHED, {"hidden_entries": hidden}, counts=counts, seed=view.seed)


class Ilrg(Formed):
    """Instance-wise batch label restoration: class counts from the last layer's gradient (Ma et al. 2023).

    Row i of the gradient over its bias is a feature e_i of class i, so p_i = softmax(W e_i + b) are its probabilities,
    and the counts n solve sum_j n_j = B and sum_j n_j p_j[i] - n_i = B G_b[i] by pseudo-inverse. Negative counts become
    0, the rest is rounded, and counts above B become 0. Needs no other data; exact while features are alike, as in
    models with little training.

    Naive: hidden entries count as 0, and a bias of 0 as 1e-64, as in the authors' code. Adaptive:
    hidden biases are estimated from the visible part of their row and a mean feature, hidden weights from the bias
    and the client's mean feature; a feature e_i falls back to that mean as |G_b[i]| falls below a tenth of one example.
    The mean feature is that of the public examples; without them, of random inputs.
    """

    finds = Finds(
        needs=Needs(batch_size=(1, 1_000_000)),
        what=frozenset({"labels"}), headline=("ln_acc", "high"), success=("ln_acc", ">=", 0.95),
    )  # fmt: skip

    def describe(self) -> str:
        """A line for the plan."""
        return f"class counts from the last layer (iLRG, {self.options.form})"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Restores the class counts; not applicable where the last layer does not fit or nothing of it is visible."""
        layer = last_layer(view)
        if not layer.has_bias and self.options.form == "naive":
            raise ViewError("the last layer has no bias, and the naive form takes its gradient")
        if not layer.finite:
            return AttackReport(DIVERGED, reason="the last layer's gradient holds values that are not finite")
        if self.options.form == "naive":
            grad_weight, grad_bias = np.nan_to_num(layer.grad_weight), np.nan_to_num(layer.grad_bias)
            features = _quotients(grad_weight, grad_bias)
        else:
            feature = known(view, layer, attacker.facts.public).features.mean(0)
            grad_weight, grad_bias = complete(layer, feature)
            features = _shrunk(grad_weight, grad_bias, mean_of(layer, feature, grad_bias), bias_floor(layer))
        solved = _solve(features @ layer.weight.T + layer.bias, grad_bias, layer.examples)
        counts = np.round(np.maximum(solved, 0.0)).astype(np.int64)
        # As in the authors' code, not clipped to B: such a count comes from a failed equation.
        counts[counts > layer.examples] = 0
        attacker.progress(1, 1, None)
        missing = float(counts.sum() - layer.examples)
        return AttackReport(
            FINISHED, {"hidden_entries": float(layer.hidden), "surplus": missing}, counts=counts, seed=view.seed
        )


def largest_remainder(shares: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole counts that sum to `total`, in proportion to the shares that are not negative; equal if there are none."""
    positive = np.maximum(shares, 0.0)
    if positive.sum() <= 0:
        positive = np.ones_like(positive)
    exact = positive / positive.sum() * total
    counts: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    # A stable sort, so that ties go to the lower class.
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    return counts


def likely_counts(view: View, public: PublicData | None, form: str, most: int) -> list[NDArray[np.int64]]:
    """Counts of each class (K,) that explain the last layer's gradient best, the best first.

    They are those of `attacks.labels`, and others within its uncertainty: whole numbers that sum to B, in the order of
    the sum over classes of (n_i - B s_i)^2 / (2 v_i).

    Args:
        view: with an update and the model that it was made from.
        public: the public facts.
        form: `adaptive` or `naive`.
        most: largest number of results.

    Raises:
        ViewError: the last layer does not fit, or nothing of it is visible or finite.
    """
    layer = last_layer(view)
    if not layer.finite:
        raise ViewError("the last layer's gradient holds values that are not finite")
    if form == "naive":
        layer = zero_filled(layer)
    examples = known(view, layer, public)
    if examples.labels is not None:
        shares, doubt = _rows(layer, examples.features, examples.probabilities, examples.labels)
    else:
        shares = examples.probabilities.mean(0) - complete(layer, examples.features.mean(0))[1]
        # Probabilities differ from example to example.
        doubt = examples.probabilities.var(0) / layer.examples
    size = layer.examples
    return _nearest_counts(np.maximum(shares, 0.0) * size, np.maximum(doubt * size**2, _DOUBT), size, most)


def likely_labels(matcher: Matcher, public: PublicData | None, most: int) -> list[list[int]]:
    """Labels to try for the examples of a batch, in ascending order each, the most plausible first.

    For one example: those that the signs of the last layer's rows leave open (`single_label`), up to 16. For more:
    those of `likely_counts`, if it can read the last layer, and that of `batch_labels`.

    Args:
        matcher: of the observed gradient.
        public: the public facts.
        most: largest number of batches of labels to try.
    """
    view, form = matcher.view, matcher.form
    if matcher.batch == 1:
        return [[label] for label in single_label(matcher.update, view.num_classes, form)[:MOST_LABELS]]
    simple = batch_labels(matcher.update, matcher.batch, view.num_classes, form, matcher.probabilities(public))
    try:
        counts = likely_counts(view, public, form, most)
    except ViewError:
        return [simple]
    found = [np.repeat(np.arange(view.num_classes), each).tolist() for each in counts]
    return found if simple in found or most == 1 else [*found[: most - 1], simple]


def _nearest_counts(
    expected: NDArray[np.float64], variance: NDArray[np.float64], total: int, most: int
) -> list[NDArray[np.int64]]:
    """Whole counts that sum to `total`, in the order of their squared distance in standard deviations; (K,) each."""
    if expected.sum() > 0:
        expected = expected * (total / expected.sum())

    def cost(counts: tuple[int, ...]) -> float:
        return float(((np.array(counts) - expected) ** 2 / (2 * variance)).sum())

    first = tuple(int(n) for n in largest_remainder(expected, total))
    found: list[NDArray[np.int64]] = []
    waiting, met, least = [(cost(first), first)], {first}, math.inf
    while waiting and len(found) < most:
        price, counts = heapq.heappop(waiting)
        least = min(least, price)
        if price > least + _IMPROBABLE:
            break
        found.append(np.array(counts, np.int64))
        # One example moves from one class to another, in the order of the cost.
        step = (1 + 2 * (np.array(counts) - expected)) / (2 * variance)
        back = np.where(np.array(counts) > 0, (1 - 2 * (np.array(counts) - expected)) / (2 * variance), np.inf)
        for source in np.argsort(back, kind="stable")[: most + 1]:
            for place in np.argsort(step, kind="stable")[: most + 1]:
                if source != place and counts[source]:
                    moved = list(counts)
                    moved[source], moved[place] = moved[source] - 1, moved[place] + 1
                    if (key := tuple(moved)) not in met:
                        met.add(key)
                        heapq.heappush(waiting, (cost(key), key))
    return found


def _rows(
    layer: LastLayer, features: NDArray[np.float64], probabilities: NDArray[np.float64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """n / B from the visible entries of each row, (K,), and the variance of each, (K,).

    Args:
        layer: of K rows.
        features: (m, d) of the public examples.
        probabilities: (m, K) of the public examples.
        labels: (m,) of the public examples.
    """
    size, classes = layer.examples, probabilities.shape[1]
    features = np.hstack([features, np.ones((len(features), 1))])
    grad_weight, grad_bias = completed_columns(layer)
    gradient = np.hstack([grad_weight, grad_bias[:, None]])
    sigma = np.hstack([layer.sigma_weight, layer.sigma_bias[:, None]])
    means, within = _class_means(features, labels, classes)
    present = np.bincount(labels, minlength=classes)
    # The contribution of one example to an entry varies with its feature if it is of the row's class, and else with p
    # e.
    varies = within / classes
    varies = varies + (probabilities**2).T @ features**2 / len(features)
    varies = varies - (probabilities.T @ features / len(features)) ** 2 + size * sigma**2
    weights = ~np.isnan(gradient) / (varies + 1e-9 * varies.mean() + 1e-30)
    # Variance of n_i / B after the fit; before it, an equal share with an uncertainty of 1.
    doubt = 1 / (size * (weights * means**2).sum(1) + 1.0)
    shares = np.full(classes, 1 / classes)
    for _ in range(_PASSES):
        each = shares[labels] / present[labels]
        expected = (probabilities * (each / each.sum())[:, None]).T @ features
        fit = size * (weights * (expected - np.nan_to_num(gradient)) * means).sum(1)
        shares = (fit + 1 / classes) * doubt
        shares = np.maximum(shares + doubt / doubt.sum() * (1 - shares.sum()), 1e-9)
        shares /= shares.sum()
    return shares, doubt


def _class_means(
    features: NDArray[np.float64], labels: NDArray[np.int64], classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean features of each class (K, d + 1), and the variance of features within a class (d + 1,).

    A mean of few examples is shrunk toward that of all, more strongly the less classes differ (empirical Bayes). A
    class without examples has that of all.
    """
    present, total = np.bincount(labels, minlength=classes), features.mean(0)
    there = np.flatnonzero(present)
    spare = len(labels) - len(there)
    if not spare:
        return np.tile(total, (classes, 1)), features.var(0)
    sums = np.zeros((classes, features.shape[1]))
    np.add.at(sums, labels, features)
    raw = np.where(present[:, None] > 0, sums / np.maximum(present, 1)[:, None], total)
    within = ((features - raw[labels]) ** 2).sum(0) / spare
    error = within * (1 / present[there]).mean()
    between = np.maximum(raw[there].var(0) - error, 0.0)
    trust = between / (between + within / np.maximum(present, 1)[:, None] + 1e-30)
    return total + trust * (raw - total), within


def _quotients(grad_weight: NDArray[np.float64], grad_bias: NDArray[np.float64]) -> NDArray[np.float64]:
    """G_W[i] / G_b[i] in mantissa and exponent, (K, d): the power of ten is kept between -10 and 10."""
    mantissa, exponent = _scientific(grad_weight)
    below, lowered = _scientific(grad_bias)
    below, lowered = np.where(below == 0, 1.0, below), np.where(below == 0, -64, lowered)
    powers = np.clip(exponent - lowered[:, None], -_EXPONENT, _EXPONENT)
    quotients: NDArray[np.float64] = mantissa / below[:, None] * 10.0**powers
    return quotients


def _scientific(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Mantissa in [1, 10) and power of ten; 0 has both 0."""
    size = np.abs(values)
    exponent = np.floor(np.log10(size, out=np.zeros_like(size), where=size > 0)).astype(np.int64)
    return values / 10.0**exponent, exponent


def _shrunk(
    grad_weight: NDArray[np.float64], grad_bias: NDArray[np.float64], mean: NDArray[np.float64], floor: float
) -> NDArray[np.float64]:
    """G_W[i] / G_b[i], drawn to the mean feature as G_b[i]^2 falls below a floor and the quotient loses its meaning."""
    features: NDArray[np.float64] = (grad_weight * grad_bias[:, None] + floor * mean) / (
        grad_bias[:, None] ** 2 + floor
    )
    return features


def _solve(logits: NDArray[np.float64], grad_bias: NDArray[np.float64], examples: int) -> NDArray[np.float64]:
    """The K + 1 equations for the counts, by pseudo-inverse; (K,)."""
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = shifted / shifted.sum(1, keepdims=True)
    left = np.vstack([np.ones(len(grad_bias)), probabilities.T - np.eye(len(grad_bias))])
    right = np.concatenate([[examples], examples * grad_bias])
    solved: NDArray[np.float64] = np.linalg.pinv(left) @ right
    return solved
