"""A malicious server's imprint in a first fully connected layer: each pair of neighbouring rows holds one example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Context, Field, Finds, hookimpl
from fedplug.api.errors import ViewError

from fedplug_attacks.api.needs import FIRST_BIAS, FIRST_WEIGHT, Needs, role
from fedplug_attacks.api.planting import Plants, parameter
from fedplug_attacks.api.report import FINISHED, NOT_APPLICABLE, AttackReport
from fedplug_attacks.api.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SILENT = 1e-4
"""Bias gradients, relative to the largest, below which two neighbouring rows hold no example between them."""
_OUTSIDE = 0.05
"""An image has no values outside [0, 1] by more than that: such are mixtures, and come last."""


class Imprint(fedplug.Attack, Plants):
    """Every example of a batch, or of a whole sum, in a bin of the first layer (Fowl et al. 2022, Robbing the Fed).

    `plant`: all h rows of the first layer become one measurement v of the input, and their biases minus the quantiles
    q_1 < ... < q_h of v'x: unit i is active where v'x > q_i (Sec. 4.1). The columns of the next layer become equal, so
    that all active units have the same gradient. `attack`: G_W[i] - G_W[i + 1] is then the sum of g x over the examples
    with q_i < v'x <= q_{i + 1}, and G_b likewise the sum of g; their quotient is the example where the bin has one
    (eq. 4). It holds for a sum over clients as well, so that secure aggregation does not hinder it (Sec. 4.3). Clips
    and learning rates cancel in the quotient; noise does not.

    It needs what the paper adds to the architecture: a first layer that is fully connected, with ReLU and a bias, and a
    layer behind it. Rows whose bias is hidden are left out, so that bins grow; pixels that are hidden in either of two
    rows are filled with the public mean.
    """

    name: str
    finds = Finds(
        needs=Needs(
            tensors=((FIRST_WEIGHT, "any"), (FIRST_BIAS, "any")), loss=None, classification=False, sums=True
        ),
        what=frozenset({"images"}), headline=("mse", "low"), success=("mse", "<=", 1e-3),
    )  # fmt: skip

    class Options(fedplug.Options):
        """How strong the imprint is."""

        size: float = Field(
            0.1, gt=0, description="of a row of the first layer, relative to the honest model: small, so that logits "
            "stay in their range"
        )
        gain: float = Field(
            3.0, gt=0, description="of the next layer's weights, relative to the honest model: large, so that "
            "gradients stand out of rounding"
        )  # fmt: skip

    def __init__(self, options: Options) -> None:
        self.options = options

    def plant(self, view: View, ctx: Context) -> NDArray[np.float32]:
        """The honest model with the measurement in its first layer.

        Raises:
            ViewError: the model does not begin with a fully connected layer and a bias.
        """
        assert view.vector is not None
        planted, layout = view.vector.copy(), ctx.layout
        rows, bias, following = _layers(view, layout)
        weight = parameter(planted, layout, rows)
        direction = np.random.default_rng(view.seed).standard_normal(weight.shape[1])
        direction *= self.options.size * float(np.linalg.norm(weight[0])) / float(np.linalg.norm(direction))
        weight[:] = direction
        parameter(planted, layout, bias)[:] = -_quantiles(direction, view, ctx, len(weight))
        if following is not None:
            after = parameter(planted, layout, following)
            after[:] = self.options.gain * after[:, :1]
        return planted

    @hookimpl
    def attack(self, view: View, ctx: Context) -> AttackReport:
        """Takes each row from the one before it."""
        try:
            name, bias, _ = _layers(view, ctx.layout)
        except ViewError as error:
            return AttackReport(NOT_APPLICABLE, reason=str(error))
        assert view.update is not None
        assert view.vector is not None
        thresholds = -parameter(view.vector, ctx.layout, bias).astype(np.float64)
        rows = view.update.tensor(name).dense(np.nan).astype(np.float64)
        scale = view.update.tensor(bias).dense(np.nan).astype(np.float64)
        told = np.flatnonzero(~np.isnan(scale) & ~np.isnan(rows).all(1))
        told = told[np.argsort(thresholds[told], kind="stable")]
        if len(told) < 2:
            return AttackReport(NOT_APPLICABLE, reason="fewer than two rows of the first layer are visible")
        rows, scale = rows[told], scale[told]
        inputs_of, gradient_of = -np.diff(rows, axis=0, append=0.0), -np.diff(scale, append=0.0)
        filled = np.abs(gradient_of) > _SILENT * np.abs(scale).max()
        images = _as_images(inputs_of[filled] / gradient_of[filled, None], view)
        metrics = {"bins": float(len(told)), "bins_filled": float(filled.sum())}
        if not len(images):
            reason = "all visible bias gradients of the first layer are equal"
            return AttackReport(NOT_APPLICABLE, metrics, reason=reason)
        outside = np.maximum(-images, images - 1)
        mixed = np.nan_to_num(outside, nan=0.0).max(1) > _OUTSIDE
        metrics["hidden_pixels"] = float(np.isnan(images).sum(1).mean())
        fill = np.full(images.shape[1], 0.5) if ctx.public is None else _public_mean(ctx)
        images = np.where(np.isnan(images), fill, images)[np.argsort(mixed, kind="stable")]
        found = images.clip(0, 1).astype(np.float32).reshape(len(images), *view.shape)
        return AttackReport(FINISHED, metrics, images=found, seed=view.seed)


def _layers(view: View, layout: fedplug.Layout) -> tuple[str, str, str | None]:
    """The first layer's weight and bias, and the weight of the layer behind it.

    Raises:
        ViewError: they are not there.
    """
    rows, bias = role(layout, FIRST_WEIGHT), role(layout, FIRST_BIAS)
    shapes = {each.name: each.shape for each in layout.parameters}
    if rows is None or bias is None or len(view.shape) != 3 or shapes[rows][1] != int(np.prod(view.shape)):
        raise ViewError("the model does not begin with a fully connected layer over an image, with a bias")
    following = (name for name, shape in shapes.items() if len(shape) == 2 and name != rows)
    behind = next((name for name in following if shapes[name][1] == shapes[rows][0]), None)
    return rows, bias, behind


def _quantiles(direction: NDArray[np.float64], view: View, ctx: Context, count: int) -> NDArray[np.float64]:
    """(count,), ascending: of a normal variable with the mean and spread of the measurement on public examples."""
    from scipy.stats import norm

    size = len(direction) // view.shape[0]
    mean, std = (np.repeat(np.asarray(given, np.float64), size) for given in (view.mean, view.std))
    if ctx.public is None:  # grey, with pixels independent of each other
        centre, spread = float(direction @ ((0.5 - mean) / std)), float(np.linalg.norm(direction * 0.3 / std))
    else:
        inputs = ctx.public.examples.inputs
        images = inputs.reshape(len(inputs), -1) / (255.0 if inputs.dtype == np.uint8 else 1.0)
        measured = ((images - mean) / std) @ direction
        centre, spread = float(measured.mean()), float(measured.std())
    quantiles: NDArray[np.float64] = centre + spread * norm.ppf((np.arange(count) + 0.5) / count)
    return quantiles


def _public_mean(ctx: Context) -> NDArray[np.float64]:
    assert ctx.public is not None
    inputs = ctx.public.examples.inputs
    mean: NDArray[np.float64] = inputs.reshape(len(inputs), -1).mean(0) / (255.0 if inputs.dtype == np.uint8 else 1.0)
    return mean


def _as_images(inputs: NDArray[np.float64], view: View) -> NDArray[np.float64]:
    """Standardised inputs (n, d) as images in [0, 1], unclipped."""
    size = inputs.shape[1] // view.shape[0]
    mean, std = (np.repeat(np.asarray(given, np.float64), size) for given in (view.mean, view.std))
    images: NDArray[np.float64] = inputs * std + mean
    return images
