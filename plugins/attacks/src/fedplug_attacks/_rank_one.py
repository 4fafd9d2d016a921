"""The input of one example, from a first layer's gradient with noise: the direction that all rows share."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from fedplug_attacks._first_layer import FirstLayer, first_layer, in_range

if TYPE_CHECKING:
    from fedplug import PublicData
    from numpy.typing import NDArray

    from fedplug_attacks.api.view import View

# Steps of the search for the direction, and of that for its scale.
_STEPS, _SCALES = 200, 100
# Noise of a clear entry, as a share of the gradient's size; it bounds the weights.
_PRECISION = 1e-6
# Inputs up to which the prior has a covariance; larger ones have a variance of each value.
_DENSE = 1024
# A signal must exceed the largest singular value of noise by this many times the scale of its variation, squared.
_CHANCE = 2.0
# Share of the mean variance that is added to the covariance of few public examples.
_SHRUNK = 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class RankOne:
    """The part of one input that noise leaves.

    Attributes:
        image: (d,), in [0, 1]; of a table, a row in its own units.
        alignment: expected cosine between the found direction and the true one. 0 if noise alone would look the same;
            the image is then the most likely one of all.
    """

    image: NDArray[np.float64]
    alignment: float


def rank_one(view: View, public: PublicData | None) -> RankOne:
    """The input behind a gradient of rank 1 with noise: G = a (x, 1)' + noise, of known size in each entry.

    Dividing a row by its bias, or the sum of rows by that of biases, mistakes noise for signal twice. Here the
    direction of (x, 1) is the one that explains most of the gradient, entries weighted by their noise (alternating
    least squares over the visible entries). How far noise turns it follows from how much it explains, compared with the
    largest singular value of noise alone (Benaych-Georges & Nadakuditi 2012, Sec. 3.1). The input is then the most
    likely one under a Gaussian of the public examples, or around the mean pixel without any.

    Args:
        view: with the first layer of one round, or of many stacked.
        public: examples that everybody has.

    Raises:
        ViewError: the model begins with no fully connected layer that takes the image itself.
    """
    layer = first_layer(view, naive=False)
    values = np.hstack([layer.weight, layer.bias[:, None]])
    visible = ~np.isnan(values)
    gradient = np.nan_to_num(values)
    size = math.sqrt(float(np.square(gradient).sum()) / max(1, int(visible.sum())))
    variance = np.square(np.hstack([layer.noise_weight, layer.noise_bias[:, None]]))
    weight = np.where(visible, 1 / (variance + (_PRECISION * max(size, 1e-30)) ** 2), 0.0)
    mean, precision = _prior(layer, public)
    direction, told, explained = _direction(gradient, weight, np.append(mean, 1.0))
    # Where entries are hidden, noise is largest along the fullest row and column.
    rows, columns = int(visible.sum(0).max()), int(visible.sum(1).max())
    aligned = _alignment(explained, rows, columns)
    inputs = mean
    if aligned > 0:
        told = told * (columns * aligned / (1 - aligned) / float((told * direction**2).sum()))
        inputs = _most_likely(direction, told, mean, precision)
    images = layer.images(inputs)
    return RankOne(layer.stored(images), math.sqrt(aligned))


def _prior(layer: FirstLayer, public: PublicData | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean (d,) and inverse covariance (d, d) of inputs, as public examples have them; standardised."""
    size = len(layer.scale)
    if public is None or len(public.examples.inputs) < 2:
        return np.zeros(size), np.eye(size)
    if layer.standardised is None:
        inputs = (in_range(public.examples.inputs).reshape(-1, size) - layer.zero) / layer.scale
    else:
        inputs = (public.examples.inputs.astype(np.float64).reshape(-1, size) - layer.standardised[1]) / np.where(
            layer.standardised[0] > 0, layer.standardised[0], 1.0
        )
    spread = inputs.var(0)
    least = _SHRUNK * float(spread.mean()) + 1e-12
    if size > _DENSE:
        return inputs.mean(0), np.diag(1 / (spread + least))
    inverse: NDArray[np.float64] = np.linalg.inv(np.cov(inputs.T) + least * np.eye(size)).astype(np.float64)
    return inputs.mean(0), inverse


def _direction(
    gradient: NDArray[np.float64], weight: NDArray[np.float64], likely: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """The unit vector (d + 1,) that explains most, the information on each of its entries, and the explained energy."""
    best: tuple[NDArray[np.float64], NDArray[np.float64], float] | None = None
    weighted = weight * gradient
    for start in (likely, weighted.T @ gradient[:, -1], weighted.T @ weighted.sum(1)):
        norm = float(np.linalg.norm(start))
        if not norm:
            continue
        found = start / norm
        for _ in range(_STEPS):
            factors = _quotient(weighted @ found, weight @ found**2)
            moved = _quotient(weighted.T @ factors, weight.T @ factors**2)
            norm = float(np.linalg.norm(moved))
            if not norm:
                break
            moved /= norm
            still = abs(float(moved @ found)) > 1 - 1e-13
            found = moved
            if still:
                break
        energy = weight @ found**2
        factors = _quotient(weighted @ found, energy)
        explained = float((factors**2 * energy).sum())
        if best is None or explained > best[2]:
            best = found, weight.T @ factors**2, explained
    assert best is not None
    return best


def _quotient(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _alignment(explained: float, rows: int, columns: int) -> float:
    """Squared cosine between the first right singular vector of signal and noise and that of the signal, 0 to 1.

    With noise of variance 1 the largest squared singular value y^2 is (t^2 + n)(t^2 + m) / t^2 for a signal t above (n
    m)^(1/4), and the cosine is (t^4 - n m) / (t^4 + m t^2); below, noise alone gives as much. The contribution of
    chance to y^2 is subtracted (Johnstone 2001, Theorem 1.1).
    """
    sides = math.sqrt(rows), math.sqrt(columns)
    chance = sum(sides) * (1 / sides[0] + 1 / sides[1]) ** (1 / 3)
    rest = explained - rows - columns - _CHANCE * chance
    if rest <= 2 * math.sqrt(rows * columns):
        return 0.0
    signal = (rest + math.sqrt(rest**2 - 4 * rows * columns)) / 2
    found: float = (signal**2 - rows * columns) / (signal**2 + columns * signal)
    return min(max(found, 0.0), 1 - 1e-15)


def _most_likely(
    direction: NDArray[np.float64], told: NDArray[np.float64], mean: NDArray[np.float64], precision: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The inputs x (d,) and the scale c with the least squared distance of c (x, 1) to the observation, and of x to a
    mean.

    From two scales: that of the bias, which is exact without noise, and that of the mean.
    """
    seen, bias, here, there = direction[:-1], float(direction[-1]), told[:-1], float(told[-1])

    def scale_of(inputs: NDArray[np.float64]) -> float:
        below = float((here * inputs**2).sum()) + there
        return (float((here * seen * inputs).sum()) + there * bias) / below if below > 0 else 1.0

    best, least = mean, math.inf
    for start in (bias, scale_of(mean)):
        scale = start
        for _ in range(_SCALES):
            inputs: NDArray[np.float64] = np.linalg.solve(
                precision + scale**2 * np.diag(here), precision @ mean + scale * here * seen
            ).astype(np.float64)
            before, scale = scale, scale_of(inputs)
            if abs(scale - before) <= 1e-12 * abs(scale):
                break
        off = inputs - mean
        loss = float((here * (seen - scale * inputs) ** 2).sum() + there * (bias - scale) ** 2 + off @ precision @ off)
        if loss < least:
            best, least = inputs, loss
    return best
