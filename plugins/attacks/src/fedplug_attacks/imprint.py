"""A malicious server's imprint in a first fully connected layer: each pair of neighbouring rows holds one example."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Literal

import fedplug
import numpy as np
from fedplug import Field, Finds
from fedplug.api.errors import ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, Plants, View
from fedplug_attacks._forms import OnView
from fedplug_attacks.api.needs import FIRST_WEIGHT, role, takes_inputs
from fedplug_attacks.api.planting import parameter, to_target
from fedplug_attacks.linear_leak import first_layer, in_range, largest_scale, standardised_by

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SILENT = 1e-4
"""Bias gradients, relative to the largest, below which two neighbouring rows hold no example between them."""
_MOST = 64
"""Examples whose features are inverted together."""
_OUTSIDE = 0.05
"""Largest excess of an image's values beyond [0, 1]. Images with more are mixtures and come last."""


class Imprint(OnView, Plants):
    """Every example of a batch, or of a whole sum, in a bin of the first layer (Fowl et al. 2022, Robbing the Fed).

    `plant`: all h rows of the first layer become one measurement v of the input, and their biases minus the quantiles
    q_1 < ... < q_h of v'x: unit i is active where v'x > q_i (Sec. 4.1). The columns of the next layer become equal, so
    that all active units have the same gradient. `attack`: G_W[i] - G_W[i + 1] is then the sum of g x over the examples
    with q_i < v'x <= q_{i + 1}, and G_b likewise the sum of g; their quotient is the example if the bin has exactly one
    (eq. 4). This also holds for a sum over clients, so secure aggregation does not prevent it (Sec. 4.3). Clips and
    learning rates cancel in the quotient; noise does not.

    Behind convolutions the rows hold features in place of images, and the batch's features are then inverted together
    (Sec. 4.2): exactly where there are more of them than pixels, and hardly where there are fewer.

    `handed`: in a sum every client uses part of the bins. `split` gives each client separate rows and shuts the others
    (Zhao et al. 2024, LOKI), which identifies the client of an image. `target` gives all others zeros, so that the
    target has all bins whatever their number. Clients that compare their models notice both.

    The model must have the layers that the paper adds: a fully connected layer at the input or behind convolutions,
    with ReLU and a bias, and a layer behind it. Behind convolutions the attack also needs public examples. If a bias is
    hidden, the rows still have the image's direction, and its scale is the largest that stays within the range of
    images; for features such bins are left out. Inputs that are hidden in either of two rows are filled with the public
    mean.
    """

    finds = Finds(
        needs=Needs(
            tensors=(("model", "any"),), loss=None, classification=False, sums=True
        ),
        what=frozenset({"images"}), headline=("mse", "low"), success=("mse", "<=", 1e-3),
    )  # fmt: skip

    class Options(fedplug.Options):
        """Strength of the imprint, its receivers, and the search."""

        size: float = Field(
            0.1, gt=0, description="size of a row of the first layer, relative to the honest model: small, so that "
            "logits stay in their range"
        )
        gain: float = Field(
            3.0, gt=0, description="size of the next layer's weights, relative to the honest model: large, so that "
            "gradients exceed rounding"
        )  # fmt: skip
        handed: Literal["all", "split", "target"] = Field(
            "all", description="clients that receive the planted model; split: each client has separate rows; target: "
            "all others receive zeros, against sums"
        )  # fmt: skip
        iterations: int = Field(300, ge=1, description="iterations of the search for images behind convolutions")

    def __init__(self, options: Options) -> None:
        self.options, self.for_each_target = options, options.handed == "target"

    def plant(self, view: View, attacker: Attacker) -> NDArray[np.float32] | dict[int, NDArray[np.float32]]:
        """The honest model with the measurement in its first layer.

        Raises:
            ViewError: the model has no such layer, or there are no public examples to tell its features by.
        """
        from scipy.stats import norm

        planted, layout = view.start.copy(), attacker.facts.layout
        layer = _Layer.of(view, layout)
        weight, bias = parameter(planted, layout, layer.weight), parameter(planted, layout, layer.bias)
        direction = np.random.default_rng(view.seed).standard_normal(weight.shape[1])
        direction *= self.options.size * float(np.linalg.norm(weight[0])) / float(np.linalg.norm(direction))
        centre, spread = _measured(direction, layer, view, attacker)
        weight[:], bias[:] = direction, -(centre + spread * norm.ppf((np.arange(len(weight)) + 0.5) / len(weight)))
        after = parameter(planted, layout, layer.following)
        after[:] = self.options.gain * after[:, :1]
        if self.options.handed == "all" or (self.for_each_target and view.target is None):
            return planted
        if self.for_each_target:
            return to_target(planted, view.target or 0, attacker)
        return {client_id: _shut(planted, layer, layout, client_id, attacker.facts.num_clients)
                for client_id in range(attacker.facts.num_clients)}  # fmt: skip

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Subtracts each row from the one before it."""
        layer = _Layer.of(view, attacker.facts.layout)
        thresholds = -parameter(view.start, attacker.facts.layout, layer.bias).astype(np.float64)
        its = parameter(view.start, attacker.facts.layout, layer.weight).any(1)  # rows that are not shut
        seen = first_layer(view, False, None if layer.direct else (layer.weight, layer.bias))
        rows, scale = seen.weight, seen.bias
        if np.isinf(rows).any() or np.isinf(scale).any():
            return AttackReport("diverged", reason=f"the gradient of {layer.weight} holds values that are not finite")
        told = np.flatnonzero(its & ~np.isnan(rows).all(1) & (layer.direct | ~np.isnan(scale)))
        told = told[np.argsort(thresholds[told], kind="stable")]
        if len(told) < 2:
            raise ViewError(f"fewer than two rows of {layer.weight} are visible")
        rows, scale = rows[told], scale[told]
        inputs_of, gradient_of = -np.diff(rows, axis=0, append=0.0), -np.diff(scale, append=0.0)
        # Without a bias a bin is filled where its largest visible weight is.
        largest = np.nan_to_num(np.abs(inputs_of)).max(1)
        known = ~np.isnan(gradient_of)
        filled = np.where(
            known, np.abs(gradient_of) > _SILENT * np.nanmax(np.abs(scale), initial=0.0),
            largest > _SILENT * np.nanmax(np.abs(rows)),
        )  # fmt: skip
        if layer.direct:
            for place in np.flatnonzero(filled & ~known):
                gradient_of[place] = 1 / largest_scale(seen, inputs_of[place], ~np.isnan(inputs_of[place]))
        inputs = inputs_of[filled] / gradient_of[filled, None]
        metrics = {"bins": float(len(told)), "bins_filled": float(filled.sum())}
        if not len(inputs):
            raise ViewError(f"all visible gradients of {layer.bias} are equal")
        metrics["hidden_inputs"] = float(np.isnan(inputs).sum(1).mean())
        if layer.direct:
            images = seen.images(inputs)
            mixed = np.nan_to_num(np.maximum(-images, images - 1)).max(1) > _OUTSIDE
            images = images[np.argsort(mixed, kind="stable")]
            found = seen.finished(images, len(images), attacker.facts.public, view.shape)
        else:
            found = self._searched(inputs, layer, view, attacker, metrics)
        return AttackReport("finished", metrics, images=found, seed=view.seed)

    def _searched(
        self, features: NDArray[np.float64], layer: _Layer, view: View, attacker: Attacker, metrics: dict[str, float]
    ) -> NDArray[np.float32]:
        """Images with these features, those that fit best first; (n, C, H, W), in [0, 1]."""
        from fedplug_attacks._features import Front, nearest

        size = min(len(features), view.observed.meaning.examples or len(features), _MOST)
        # Most bins of a sum hold one example. The features of a mixture fit no image, so it comes last.
        mixed = np.nan_to_num(np.maximum(-features, 0.0)).max(1)
        chosen = features[np.argsort(mixed, kind="stable")[:size]]
        front = Front(view, layer.weight, view.observed.meaning.training_mode)
        images, misfit = nearest(chosen, front, view, attacker, self.options.iterations)
        metrics["feature_misfit"] = float(np.median(misfit))
        return images[np.argsort(misfit, kind="stable")]


@dataclasses.dataclass(frozen=True)
class _Layer:
    """The layer for the imprint, by parameters: its weight, its bias, and the weight behind it.

    `direct`: its inputs are the pixels of an image.
    """

    weight: str
    bias: str
    following: str
    direct: bool

    @classmethod
    def of(cls, view: View, layout: fedplug.Layout) -> _Layer:
        """The first fully connected layer that is followed by another one.

        Raises:
            ViewError: there is none.
        """
        named = {each.name: each for each in layout.parameters}
        full = [each for each in layout.parameters if len(each.shape) == 2]
        for weight, following in itertools.pairwise(full):
            bias = f"{weight.name.rpartition('.')[0]}.bias"
            if following.shape[1] == weight.shape[0] and bias in named and len(view.shape) == 3:
                direct = role(layout, FIRST_WEIGHT) == weight.name and takes_inputs(layout, view.shape)
                return cls(weight.name, bias, following.name, direct)
        raise ViewError("the model has no fully connected layer over images or their features, with another behind it")


def _shut(
    planted: NDArray[np.float32], layer: _Layer, layout: fedplug.Layout, client_id: int, clients: int
) -> NDArray[np.float32]:
    """The planted model for one client: every `clients`-th row of the imprint, with the others never active."""
    own = planted.copy()
    weight, bias = parameter(own, layout, layer.weight), parameter(own, layout, layer.bias)
    others = np.arange(len(weight)) % clients != client_id % clients
    weight[others], bias[others] = 0.0, -1.0
    return own


def _measured(direction: NDArray[np.float64], layer: _Layer, view: View, attacker: Attacker) -> tuple[float, float]:
    """Mean and spread of the measurement on public examples.

    Raises:
        ViewError: there are none, and the layer's inputs are features.
    """
    if not layer.direct:
        if attacker.facts.public is None:
            raise ViewError("behind convolutions the attack needs public examples; write data: {public: 200, ...}")
        import torch
        from fedplug_std.torch_model import to_tensor

        from fedplug_attacks._features import Front

        with torch.no_grad():
            entering = Front(view, layer.weight, training=True)(
                to_tensor(attacker.facts.public.examples.inputs, view.mean, view.std)
            )
        measured = entering.flatten(1).double().numpy() @ direction
        return float(measured.mean()), float(measured.std())
    mean, std = standardised_by(view, len(direction))
    if attacker.facts.public is None:  # grey, with pixels independent of each other
        return float(direction @ ((0.5 - mean) / std)), float(np.linalg.norm(direction * 0.3 / std))
    images = in_range(attacker.facts.public.examples.inputs).reshape(-1, len(mean))
    measured = ((images - mean) / std) @ direction
    return float(measured.mean()), float(measured.std())
