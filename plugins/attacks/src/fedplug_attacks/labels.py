"""Label restoration from the visible part of the last layer's gradient: by public examples, or its own equations.

With a batch of B examples, features e_n before the last layer, probabilities p_n after it and one-hot labels y_n, the
mean gradient of the cross entropy is G_b = mean_n(p_n - y_n) and G_W = mean_n((p_n - y_n) e_n'). So the rows of G_W are
nearly G_b[i] times a mean feature, and both sum to 0 over the classes. Hidden entries can therefore be estimated.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import heapq
import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from fedplug import Field, Finds
from fedplug.api.errors import ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, ObservedUpdate, Seen, View
from fedplug_attacks._forms import Formed
from fedplug_attacks._public import layer_of, with_noise
from fedplug_attacks.api.needs import LAST_BIAS, LAST_WEIGHT, role
from fedplug_attacks.api.planting import parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplug.api.blocks import Layout
    from fedplug.api.data import PublicData
    from numpy.typing import NDArray

    from fedplug_attacks._matching import Matcher

PSEUDO_EXAMPLES = 128
"""Number of random inputs that replace public examples if there are none."""

# As many inputs go through the model at once as hold this many values, where the size of a batch does not matter.
_VALUES = 1 << 21
# A row whose mean is within this many standard deviations of its noise has no sign. Rows that are closer than this many
# could be told apart by chance only.
_SURE = 2.0
# Sum of the predictions for a class over a batch, and share of the class, below which a row without a negative entry
# means that the class is absent.
_CROWDED, _WHOLE = 0.6, 0.9


@dataclasses.dataclass(frozen=True, eq=False)
class LastLayer:
    """The last layer of the model and the visible part of its mean gradient; K classes, d features.

    Attributes:
        weight: float64 (K, d), of the model.
        bias: float64 (K,), of the model; zeros where it has none.
        has_bias: whether it has one.
        grad_weight: float64 (K, d), NaN where hidden, infinite where a visible value is not finite.
        grad_bias: float64 (K,), likewise.
        sigma_weight, sigma_bias: float64, standard deviation of the noise on each, stated or estimated; 0 if clear.
        examples: B.
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    has_bias: bool
    grad_weight: NDArray[np.float64]
    grad_bias: NDArray[np.float64]
    sigma_weight: NDArray[np.float64]
    sigma_bias: NDArray[np.float64]
    examples: int

    @property
    def sigma(self) -> float:
        """The largest standard deviation of noise on an entry."""
        return float(max(self.sigma_weight.max(initial=0.0), self.sigma_bias.max(initial=0.0)))

    @property
    def hidden(self) -> int:
        """Entries of the layer that are not visible."""
        biases = np.count_nonzero(np.isnan(self.grad_bias)) if self.has_bias else 0
        return int(np.count_nonzero(np.isnan(self.grad_weight)) + biases)

    @property
    def finite(self) -> bool:
        """Whether every visible value is finite."""
        return not (np.isinf(self.grad_weight).any() or np.isinf(self.grad_bias).any())


def last_layer(view: View) -> LastLayer:
    """Reads the last layer out of a view.

    Raises:
        ViewError: the model has no last layer that fits the number of classes, nothing of it is visible, or the scale
            of the update is not known.
    """
    layout, classes = view.observed.layout, view.num_classes
    weight, bias = role(layout, LAST_WEIGHT, classes), role(layout, LAST_BIAS, classes)
    if weight is None:
        raise ViewError(_no_last_weight(layout, classes))
    gradient = view.observed.as_gradient(view.start)
    names = [name for name in (weight, bias) if name]
    if not any(gradient.tensor(name).visible.any() for name in names):
        raise ViewError(f"all entries of the last layer are hidden ({', '.join(names)})")
    return LastLayer(
        parameter(view.start, layout, weight).astype(np.float64),
        parameter(view.start, layout, bias).astype(np.float64) if bias else np.zeros(classes),
        bias is not None,
        *layer_of(gradient, weight, bias),
        int(view.observed.meaning.examples or 0),
    )


def _no_last_weight(layout: Layout, classes: int) -> str:
    matrices = [parameter for parameter in layout.parameters if len(parameter.shape) != 1]
    if not matrices:
        return "the model has no layer with weights"
    name, shape = matrices[-1].name, "x".join(map(str, matrices[-1].shape))
    return f"the last layer ({name}, {shape}) is not fully connected with one output for each of {classes} classes"


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """Examples that the adversary put through the model itself; n of them.

    Attributes:
        features: float64 (n, d), what enters the last layer.
        probabilities: float64 (n, K), what leaves the model.
        labels: int64 (n,); None where the examples are random inputs.
    """

    features: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    labels: NDArray[np.int64] | None


def known(view: View, layer: LastLayer, public: PublicData | None) -> Known:
    """Puts public examples through the model; random inputs where there are none.

    The random inputs are standard normal after standardisation, since only the mean and std of the data are known. The
    model runs in the client's mode, in batches of the client's size where it trains (batch norm takes its statistics
    from the batch).

    Raises:
        ViewError: the last layer's parameters belong to no module whose input is one vector an example.
    """
    import torch
    from fedplug import stream
    from fedplug_std.torch_model import seeded, to_tensor, use_one_thread

    from fedplug_attacks._features import Front

    use_one_thread()
    model, meaning = view.model, view.observed.meaning
    if public is not None:
        inputs = to_tensor(public.examples.inputs, view.mean, view.std)
    else:
        noise = stream(view.seed, "labels", "inputs").standard_normal((PSEUDO_EXAMPLES, *view.shape), np.float32)
        inputs = torch.from_numpy(noise)
    name = role(model.layout, LAST_WEIGHT, view.num_classes) or ""
    front = Front(view, name, meaning.training_mode, dropout=True)
    step = max(1, _VALUES // max(1, int(np.prod(view.shape))))
    if meaning.training_mode:
        step = min(step, max(2, meaning.batch_size or layer.examples))
        # A smaller last batch would have other statistics; but one batch there must be.
        inputs = inputs[: len(inputs) // step * step or len(inputs)]
    with torch.no_grad(), seeded(view.seed % 2**63, model.device):
        passed = [
            (front(batch.to(model.device)).double().cpu(), front.outputs.double().cpu())
            for batch in torch.split(inputs, step)
        ]
    features, logits = (torch.cat(part) for part in zip(*passed, strict=True))
    if features.shape != (len(logits), layer.weight.shape[1]):
        raise ViewError(f"{name} takes inputs of shape {list(features.shape)}, not one vector an example")
    labels = public.examples.labels[: len(logits)] if public is not None else None
    return Known(features.numpy(), torch.softmax(logits, 1).numpy(), labels)


def complete(layer: LastLayer, feature: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimates the hidden part of the last layer's gradient from its visible part.

    A hidden G_b[i] is the least-squares factor between the visible part of row i and a mean feature e; a hidden
    G_W[i, j] is G_b[i] e_j. Estimates are moved so that biases and columns sum to 0 over the classes; so the only
    hidden entry of a column, or the only hidden bias, is exact.

    Args:
        layer: the visible part.
        feature: (d,), the mean public feature e.

    Returns:
        G_W (K, d) and G_b (K,), visible entries as they were.
    """
    visible = ~np.isnan(layer.grad_weight)
    grad_bias = _complete_bias(layer, feature, visible)
    guess = np.outer(grad_bias, mean_of(layer, feature, grad_bias))
    return _sum_to_zero(np.where(visible, layer.grad_weight, guess), ~visible), grad_bias


def completed_columns(layer: LastLayer) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """G_W and G_b where the only hidden entry of a column, or the only hidden bias, follows from the others' sum."""
    found = []
    for values in (layer.grad_weight, layer.grad_bias):
        hidden = np.isnan(values)
        single = hidden & (hidden.sum(0) == 1)
        found.append(np.where(single, _sum_to_zero(np.nan_to_num(values), single), values))
    return found[0], found[1]


def zero_filled(layer: LastLayer) -> LastLayer:
    """The layer as the naive attacker sees it: a hidden entry is 0."""
    return dataclasses.replace(
        layer, grad_weight=np.nan_to_num(layer.grad_weight), grad_bias=np.nan_to_num(layer.grad_bias)
    )


def mean_of(layer: LastLayer, feature: NDArray[np.float64], grad_bias: NDArray[np.float64]) -> NDArray[np.float64]:
    """The client's mean feature, (d,): least squares of the visible G_W[i, j] on G_b[i], or else the public one."""
    seen = np.nan_to_num(layer.grad_weight)
    weights = (~np.isnan(layer.grad_weight) * grad_bias[:, None] ** 2).sum(0)
    prior = bias_floor(layer)
    own: NDArray[np.float64] = (seen.T @ grad_bias + prior * feature) / (weights + prior)
    return own


def bias_floor(layer: LastLayer) -> float:
    """The square of G_b[i] below which G_W[i] / G_b[i] is uncertain: a tenth of one example, and the noise."""
    return (0.1 / layer.examples) ** 2 + layer.sigma**2


def _complete_bias(layer: LastLayer, feature: NDArray[np.float64], visible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """G_b with estimates for hidden entries."""
    hidden, seen = np.isnan(layer.grad_bias), np.nan_to_num(layer.grad_bias)
    if np.count_nonzero(hidden) < 2:
        return _sum_to_zero(seen, hidden)
    energy = visible @ feature**2
    telling = energy > 1e-3 * max(float(feature @ feature), 1e-30)
    factor = np.divide(np.nan_to_num(layer.grad_weight) @ feature, energy, out=np.zeros_like(energy), where=telling)
    estimate = np.where(hidden & telling, factor, seen)
    # Rows without a visible entry share the rest of the sum equally.
    unknown = hidden & ~telling
    return _sum_to_zero(estimate, unknown if unknown.any() else hidden)


def _sum_to_zero(values: NDArray[np.float64], free: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Spreads the difference between the sum over classes (axis 0) and 0 over the free entries."""
    count = free.sum(0)
    share = np.divide(-values.sum(0), count, out=np.zeros(values.shape[1:]), where=count > 0)
    return np.where(free, values + share, values)


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
    rows, biases = (_row_means(update, name, num_classes) for name in (weight, bias))
    if (biases < 0).any():  # its sign needs no assumption about the features
        return (int(np.nanargmin(biases)),)
    order = np.where(biases > 0, np.inf, np.nan_to_num(rows))
    signs = np.sign(order)
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


def _row_means(update: ObservedUpdate, name: str | None, num_classes: int) -> NDArray[np.float64]:
    """Mean of the visible entries for each class, NaN without any."""
    if name is None:
        return np.full(num_classes, np.nan)
    tensor = update.tensor(name)
    count = tensor.visible.reshape(num_classes, -1).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: NDArray[np.float64] = tensor.dense(0.0).astype(np.float64).reshape(num_classes, -1).sum(1) / count
    return means


# The mean probabilities of a batch depend on its counts. A second pass uses the first one's; more passes amplify errors
# where a model is trained and its probabilities are nearly the labels themselves.
_PASSES = 2
# Least variance of a count, since entries of a row err together. Nats by which counts may be less probable than the
# best ones and still be tried.
_DOUBT, _IMPROBABLE = 0.1, 6.0
# Variance of the count of a class that signs exclude.
_SURELY = 1e-3
# Powers of ten between which the quotient of two entries is kept, as in the authors' published code.
_EXPONENT = 10
MOST_LABELS = 16
"""This many classes are tried one after the other if the label of a single example is ambiguous."""


class _Counts(Formed):
    """An attack that restores the counts of classes from the last layer."""

    finds = Finds(
        needs=Needs(batch_size=(1, 1_000_000)),
        what=frozenset({"labels"}), headline=("ln_acc", "high"), success=("ln_acc", ">=", 0.95),
    )  # fmt: skip

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Restores the class counts; not applicable where the last layer does not fit or nothing of it is visible."""
        layer = last_layer(view)
        if not layer.finite:
            return AttackReport("diverged", reason="the last layer's gradient holds values that are not finite")
        counts, more = self._counts(layer, view, attacker.facts.public)
        attacker.progress(1, 1, None)
        metrics = {"hidden_entries": float(layer.hidden), **more}
        return AttackReport("finished", metrics, counts=counts, seed=view.seed)

    @abc.abstractmethod
    def _counts(
        self, layer: LastLayer, view: View, public: PublicData | None
    ) -> tuple[NDArray[np.int64], dict[str, float]]:
        """Counts (K,) from a layer that is finite, and further numbers for the report."""


class Labels(_Counts):
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

    def _counts(
        self, layer: LastLayer, view: View, public: PublicData | None
    ) -> tuple[NDArray[np.int64], dict[str, float]]:
        layer = zero_filled(layer) if self.options.form == "naive" else layer
        shares, _ = _shares(layer, known(view, layer, public), self.options.method)
        return largest_remainder(shares, layer.examples), {}


class Ilrg(_Counts):
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

    def describe(self) -> str:
        """A line for the plan."""
        return f"class counts from the last layer (iLRG, {self.options.form})"

    def _counts(
        self, layer: LastLayer, view: View, public: PublicData | None
    ) -> tuple[NDArray[np.int64], dict[str, float]]:
        if self.options.form == "naive":
            if not layer.has_bias:
                raise ViewError("the last layer has no bias, and the naive form takes its gradient")
            layer = zero_filled(layer)
            grad_bias, features = layer.grad_bias, _quotients(layer.grad_weight, layer.grad_bias)
        else:
            feature = known(view, layer, public).features.mean(0)
            grad_weight, grad_bias = complete(layer, feature)
            features = _shrunk(grad_weight, grad_bias, mean_of(layer, feature, grad_bias), bias_floor(layer))
        solved = _solve(features @ layer.weight.T + layer.bias, grad_bias, layer.examples)
        counts = np.round(np.maximum(solved, 0.0)).astype(np.int64)
        # As in the authors' code, not clipped to B: such a count comes from a failed equation.
        counts[counts > layer.examples] = 0
        return counts, {"surplus": float(counts.sum() - layer.examples)}


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


def likely_counts(
    views: Sequence[View], public: PublicData | None, form: str, examples: int, most: int
) -> list[NDArray[np.int64]]:
    """Counts of each class (K,) that explain the last layer's gradient best, the best first.

    They are those of `attacks.labels`, and others within its uncertainty: whole numbers that sum to B, in the order of
    the sum over classes of (n_i - B s_i)^2 / (2 v_i). Of several rounds each counts by its certainty.

    Args:
        views: of rounds with the same examples, each with an update and the model that it was made from. Those whose
            last layer does not fit, or of which nothing is visible or finite, are left out; without any other, classes
            count alike.
        public: the public facts.
        form: `adaptive` or `naive`.
        examples: B.
        most: largest number of results.
    """
    found = []
    for view in views:
        with contextlib.suppress(ViewError):
            found.append(_evidence(view, public, form))
    if not found:
        return [largest_remainder(np.ones(views[0].num_classes), examples)]
    expected, variance, least = (np.array(part) for part in zip(*found, strict=True))
    precision = (1 / variance).sum(0)
    return _nearest_counts((expected / variance).sum(0) / precision, 1 / precision, examples, most, least.max(0))


def _evidence(
    view: View, public: PublicData | None, form: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Expected counts of each class, their variance, and the least number that signs prove; (K,) each.

    After ReLU or sigmoid, without noise, a class with a visible negative entry in its row or its bias occurs, also in a
    sum over steps. One without any does not occur. A class that occurs once has none either if the predictions for the
    other examples add up to more.

    Raises:
        ViewError: the last layer does not fit, or nothing of it is visible or finite.
    """
    layer = last_layer(view)
    if not layer.finite:
        raise ViewError("the last layer's gradient holds values that are not finite")
    layer = zero_filled(layer) if form == "naive" else layer
    size = layer.examples
    try:
        examples = known(view, layer, public)
    except ViewError:  # what enters the layer cannot be read: the biases remain, and equal predictions
        classes = len(layer.bias)
        examples = Known(np.zeros((1, layer.weight.shape[1])), np.full((1, classes), 1 / classes), None)
    shares, doubt = _shares(layer, examples, "rows")
    expected, variance = np.maximum(shares, 0.0) * size, np.maximum(doubt * size**2, _DOUBT)
    there: NDArray[np.bool_] = np.any(np.hstack([layer.grad_weight, layer.grad_bias[:, None]]) < 0, axis=1)
    # With features of any sign every row has negative entries, which gives no information.
    if form == "naive" or layer.sigma or not 0 < there.sum() <= size:
        return expected, variance, np.zeros(len(there), np.int64)
    absent = (layer.grad_bias >= 0) & ~there & (size * examples.probabilities.mean(0) < _CROWDED) & (expected < _WHOLE)
    rest = np.maximum(np.where(absent, 0.0, expected) - there, 0.0)
    rest = rest if rest.any() else there.astype(np.float64)
    expected = there + rest * (size - there.sum()) / rest.sum()
    return expected, np.where(absent, _SURELY, variance), there.astype(np.int64)


def likely_labels(matcher: Matcher, public: PublicData | None, most: int) -> list[list[int]]:
    """Labels to try for the examples of a batch, in ascending order each, the most plausible first.

    For one example: those that the signs of the last layer's rows leave open (`single_label`), up to 16; of several
    rounds the class that most of them are sure of, or else the highest ranks. For more: those of `likely_counts`.

    Args:
        matcher: of the observed gradient, or of those of several rounds.
        public: the public facts.
        most: largest number of batches of labels to try.
    """
    classes, form = matcher.view.num_classes, matcher.form
    if matcher.batch > 1:
        counts = likely_counts([part.view for part in matcher.parts], public, form, matcher.batch, most)
        return [np.repeat(np.arange(classes), each).tolist() for each in counts]
    guesses = [single_label(part.update, classes, form) for part in matcher.parts]
    if sure := [guess[0] for guess in guesses if len(guess) == 1]:
        return [[int(np.bincount(sure).argmax())]]
    ranks = np.full((len(guesses), classes), classes)
    for row, guess in zip(ranks, guesses, strict=True):
        row[list(guess)] = np.arange(len(guess))
    likely = np.argsort(ranks.sum(0), kind="stable")[: min(map(len, guesses))]
    return [[int(label)] for label in likely[:MOST_LABELS]]


def _nearest_counts(
    expected: NDArray[np.float64], variance: NDArray[np.float64], total: int, most: int,
    at_least: NDArray[np.int64] | None = None,
) -> list[NDArray[np.int64]]:  # fmt: skip
    """Whole counts that sum to `total`, in the order of their squared distance in standard deviations; (K,) each.

    None is below `at_least`.
    """
    bound = np.zeros(len(expected), np.int64) if at_least is None else at_least
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
                if source != place and counts[source] > bound[source]:
                    moved = list(counts)
                    moved[source], moved[place] = moved[source] - 1, moved[place] + 1
                    if (key := tuple(moved)) not in met:
                        met.add(key)
                        heapq.heappush(waiting, (cost(key), key))
    return found


def _shares(
    layer: LastLayer, examples: Known, method: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """n / B by a method of `attacks.labels`, (K,), and the variance of each, (K,)."""
    if method == "rows" and examples.labels is not None:
        return _rows(layer, examples.features, examples.probabilities, examples.labels)
    expected = 1 / len(layer.bias) if method == "simple" else examples.probabilities.mean(0)
    # Probabilities differ from example to example.
    doubt = examples.probabilities.var(0) / layer.examples
    return expected - complete(layer, examples.features.mean(0))[1], doubt


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
