"""The gradient of a first fully connected layer as an adversary sees it; shared by attacks that read inputs off it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.errors import ViewError

from fedplug_attacks._public import marked, noise_of, with_noise
from fedplug_attacks.api.needs import FIRST_BIAS, FIRST_WEIGHT, role, takes_inputs
from fedplug_attacks.api.view import View

if TYPE_CHECKING:
    from fedplug.api.blocks import Layout
    from fedplug.api.data import PublicData
    from numpy.typing import NDArray

    from fedplug_attacks.api.observation import ObservedUpdate


@dataclasses.dataclass(frozen=True, eq=False)
class FirstLayer:
    """Gradient of the first layer; h rows, d inputs. NaN where hidden; an input of 0 is `zero` in [0, 1].

    `noise_weight` and `noise_bias` are the standard deviations of the noise on each, stated or as they show.

    The columns of a table have no range: there images are standardised rows, and `standardised` holds the mean and
    spread.
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    scale: NDArray[np.float64]
    zero: NDArray[np.float64]
    noise_weight: NDArray[np.float64]
    noise_bias: NDArray[np.float64]
    standardised: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def images(self, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardised inputs (..., d) as images, unclipped."""
        images: NDArray[np.float64] = inputs * self.scale + self.zero
        return images

    def stored(self, images: NDArray[np.float64]) -> NDArray[np.float64]:
        """Images in [0, 1], or rows of a table in the units of its columns."""
        if self.standardised is None:
            return images.clip(0, 1)
        std, mean = self.standardised
        return std * images + mean

    def finished(
        self, images: NDArray[np.float64], examples: int, public: PublicData | None, shape: tuple[int, ...]
    ) -> NDArray[np.float32]:
        """Exactly this many examples (n, *shape) from images (k, d): gaps and missing ones are the public mean."""
        if self.standardised is not None:
            mean: NDArray[np.float64] | None = np.zeros(images.shape[1])  # of standardised columns
        else:
            mean = None if public is None else in_range(public.examples.inputs).mean(0).reshape(-1)
        complete = self.stored(filled(images, mean, examples))
        return complete.astype(np.float32).reshape(examples, *shape)

    @property
    def noise(self) -> float:
        """The share of noise in the energy of the visible weights."""
        energy = float(np.nansum(self.weight**2))
        return float((self.noise_weight[~np.isnan(self.weight)] ** 2).sum() / energy) if energy else 0.0


def first_layer(view: View, naive: bool) -> FirstLayer:
    """The first layer's gradient as the adversary sees it.

    Args:
        view: with an update.
        naive: hidden entries are 0; else NaN.

    Raises:
        ViewError: the first layer does not take the input itself.
    """
    update = view.observed
    name, bias = role(update.layout, FIRST_WEIGHT), role(update.layout, FIRST_BIAS)
    size = int(np.prod(view.shape))
    if name is None or not takes_inputs(update.layout, view.shape):
        raise ViewError(
            f"the first layer is not fully connected with an input for each of the {size} values of an image"
        )
    rows, biases, noise, noise_bias = _read(update, name, bias, naive)
    if len(view.shape) == 1:
        std, mean = (np.asarray(given, np.float64) for given in (view.std or [1.0] * size, view.mean or [0.0] * size))
        return FirstLayer(rows, biases, np.ones(size), np.zeros(size), noise, noise_bias, (std, mean))
    zero, scale = standardised_by(view, size)
    return FirstLayer(rows, biases, scale, zero, noise, noise_bias)


def standardised_by(view: View, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation (d,) by which each of the d values of an image is standardised."""
    mean, std = (np.repeat(np.asarray(given, np.float64), size // view.shape[0]) for given in (view.mean, view.std))
    return mean, std


def first_matrix(layout: Layout) -> tuple[str, str | None] | None:
    """Weight and bias of the first fully connected layer behind convolutions; None where there is none."""
    parameters = layout.parameters
    if not parameters or len(parameters[0].shape) != 4:
        return None
    weight = next((parameter for parameter in parameters if len(parameter.shape) == 2), None)
    if weight is None:
        return None
    biases = (p.name for p in parameters if p.layer == weight.layer and p.shape == weight.shape[:1])
    return weight.name, next(biases, None)


def feature_layer(view: View, naive: bool, weight: str, bias: str | None) -> FirstLayer:
    """The same of a fully connected layer behind others: its inputs are features, which have no range.

    Raises:
        ViewError: as `first_layer`.
    """
    rows, biases, noise, noise_bias = _read(view.observed, weight, bias, naive)
    size = rows.shape[1]
    ones, zeros = np.ones(size), np.zeros(size)
    return FirstLayer(rows, biases, ones, zeros, noise, noise_bias, (ones, zeros))


def _read(
    update: ObservedUpdate, name: str, bias: str | None, naive: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Gradients of a weight and its bias, and the noise on each."""
    # Signs and learning rates cancel in a quotient, so the update need not become a gradient.
    noised, hidden = with_noise(update), 0.0 if naive else np.nan
    rows, noise = marked(noised.tensor(name), hidden), noise_of(noised.tensor(name))
    if bias is None and naive:
        raise ViewError("the first layer has no bias, and the naive form divides by its gradient")
    if bias is None:
        biases, noise_bias = np.full(len(rows), np.nan), np.zeros(len(rows))
    else:
        biases, noise_bias = marked(noised.tensor(bias), hidden), noise_of(noised.tensor(bias))
    return rows, biases, noise, noise_bias


def largest_scale(layer: FirstLayer, inputs: NDArray[np.float64], shown: NDArray[np.bool_]) -> float:
    """The factor, of either sign, of largest size with which the inputs stay images in [0, 1]."""
    steps, zero = (inputs * layer.scale)[shown], layer.zero[shown]
    steps, zero = steps[steps != 0], zero[steps != 0]
    if not steps.size:
        return 1.0
    up, down = ((1 - zero) / np.abs(steps), zero / np.abs(steps))
    positive = float(np.where(steps > 0, up, down).min())
    negative = float(np.where(steps > 0, down, up).min())
    return positive if positive >= negative else -negative


def in_range(inputs: NDArray[np.generic]) -> NDArray[np.float64]:
    """Stored inputs in [0, 1]."""
    scale = 255.0 if inputs.dtype == np.uint8 else 1.0
    return inputs.astype(np.float64) / scale


def filled_in(images: NDArray[np.float64], public: PublicData | None) -> NDArray[np.float32]:
    """Images (k, d) in [0, 1] without NaN: gaps are the public mean, or the mean of what is known."""
    mean = None if public is None else in_range(public.examples.inputs).mean(0).reshape(-1)
    return filled(images, mean, len(images)).clip(0, 1).astype(np.float32)


def filled(images: NDArray[np.float64], mean: NDArray[np.float64] | None, count: int) -> NDArray[np.float64]:
    """Exactly `count` images without NaN: gaps and missing images are the public mean, or the mean of what is known."""
    shown = images[~np.isnan(images)]
    fill = mean if mean is not None else np.full(images.shape[1], shown.mean() if shown.size else 0.5)
    complete = np.where(np.isnan(images), fill, images)
    missing = np.tile(fill, (count - len(complete), 1))
    return np.concatenate([complete, missing])
