"""iLRG: how many examples of each class a batch held, from the gradient of the last layer (Ma et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fedplug import Finds
from fedplug.api.errors import ViewError

from fedplug_attacks._forms import Formed
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.report import DIVERGED, FINISHED, AttackReport
from fedplug_attacks.api.view import Attacker, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Powers of ten between which the quotient of two entries is kept, as in the authors' published code.
_EXPONENT = 10


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
        from fedplug_attacks._label_layer import bias_floor, complete, known, last_layer, mean_of

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
