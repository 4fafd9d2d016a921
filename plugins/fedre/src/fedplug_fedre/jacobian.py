"""How much each layer's gradient depends on the pixels of a region: FedRE's PSI scores, eq. 3 to 5.

With g_l(x) = dl(x, y; w) / dw_l and its Jacobian J_l(x) = dg_l / dx (eq. 3), a pixel's norm is the Frobenius norm of
its part of J_l, over the parameters of the layer and the channels of the pixel (eq. 4). The score is the mean of the
norms over the region (eq. 5), and then over the examples. J_l has one row per parameter and one column per input value.
It is never held as a whole:

* `exact` takes a few columns at a time, by forward mode through the gradient: one pass per pixel and channel of the
  region, for all layers at once, of any size.
* `projections` takes random rows: for v ~ N(0, I) over the parameters of one layer, the derivative of <g_l, v> by the
  input is one backward pass. Its square, summed over the channels of a pixel, has the square of the pixel's norm as its
  mean. It takes one pass per projection and layer, for a region of any size.

Everything runs in evaluation mode. Gradients are those of single examples. torch is imported inside the functions, so
that components may import this module at their top.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug import stream
from fedplug.api.errors import DataError
from fedplug_std.per_sample import checked_model, evaluation_mode, parameters_at, summed_loss

from fedplug_fedre.frozen import activations, statistics_of
from fedplug_fedre.preferences import plane

if TYPE_CHECKING:
    import torch
    from fedplug import Examples
    from fedplug.api.data import About
    from fedplug_std.torch_model import TorchModel
    from numpy.typing import NDArray

Method = Literal["auto", "exact", "projections"]

PROJECTIONS = 8
"""Projections per layer and example. The relative standard error of one example is 25% where J has rank one, the worst
case, and that of ten is 8%. Measured on LeNet-5 and on a U-Net, ten examples have 0.7 to 4%."""
_BYTES = 16 << 20
"""Memory for the passes that run at once. More is slower on a CPU, because it exceeds the caches."""
_CHEAP = 1 << 24
"""Passes times values (parameters and activations) of one example up to which `auto` is always exact: some 0.2 s on one
core of a CPU, such as a quarter of a 28x28 image with LeNet-5."""
_DEARER = 4
"""An exact pass takes the time of 2 to 4 projections with models below a million parameters, of 17 with AlexNet. The
README has the times."""


@dataclasses.dataclass(frozen=True, eq=False)
class PsiScores:
    """PSI scores of the L layers, in the order of `Layout.layers`.

    Attributes:
        mean: float64 (L,), >= 0: the score, in nats per unit of the parameters and of the standardised input.
        standard_error: float64 (L,), of the projections; 0 where every method was exact. It does not include the
            variation between examples.
        examples: number of examples that have a region, and so are in the mean.
        exact_passes, projection_passes: passes of each kind that were computed.
    """

    mean: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    examples: int
    exact_passes: int = 0
    projection_passes: int = 0

    @property
    def passes(self) -> int:
        """All passes."""
        return self.exact_passes + self.projection_passes


def psi_scores(
    model: Any, examples: Examples, regions: NDArray[np.bool_], data: About, *, method: Method = "auto",
    projections: int = PROJECTIONS, seed: int = 0, vector: NDArray[np.float32] | None = None,
    batch_norm: Literal["model", "examples"] = "model",
) -> PsiScores:  # fmt: skip
    """The PSI score of each layer (FedRE eq. 3 to 5), averaged over the examples whose region is not empty.

    Args:
        model: a `TorchModel`; left unchanged.
        examples: their loss is that of the task of `data`: the cross entropy for classes, its mean over pixels for
            segmentation.
        regions: bool (n, H, W), the privacy-sensitive pixels of each example.
        data: its `mean` and `std` standardise the inputs.
        method: `exact`, `projections`, or `auto`: exact for each example where that is cheap, or cheaper.
        projections: random directions per layer and example, at least 2.
        seed: of the directions. Each example and layer has its own directions.
        vector: float32 (P,), the parameters at which to differentiate; default: those of the model.
        batch_norm: the statistics that batch norm uses: those of the model, or those of these examples, where the
            model's come from private data or have never been set.
    Raises:
        DataError: no example has a region, or the regions do not fit the examples.
        SetupError: the model is not a torch model, or batch norm mixes its examples even in evaluation mode.
        ValueError: fewer than 2 projections, or a vector that is not float32 (P,).
    """
    import torch
    from fedplug_std.torch_model import as_tensor, to_tensor

    checked = checked_model(model, "PSI scores")
    if projections < 2:
        raise ValueError(f"projections={projections} must be >= 2: one alone has no standard error")
    if regions.shape != (expected := (len(examples), *plane(examples.inputs))):
        raise DataError(f"regions of shape {regions.shape} must have shape {expected}: a mask for each example")
    chosen = np.flatnonzero(regions.any((1, 2)))
    if not len(chosen):
        raise DataError(
            f"none of the {len(examples)} examples has a privacy-sensitive pixel, so there is nothing to score; choose "
            "another preference or more samples"
        )
    state = parameters_at(checked, vector)
    found = _Found(len(checked.layout.layers))
    with evaluation_mode(checked):
        first = to_tensor(examples.inputs[:1], data.mean, data.std, checked.device)
        values = checked.layout.size + activations(checked, first)
        if batch_norm == "examples":
            state |= statistics_of(checked, to_tensor(examples.inputs, data.mean, data.std, checked.device), state)
        for index in chosen:
            one = examples.take(np.array([index]))
            task = _Task(
                checked,
                state,
                to_tensor(one.inputs, data.mean, data.std, checked.device),
                as_tensor(one.answers).to(checked.device),
                torch.from_numpy(np.flatnonzero(regions[index])).to(checked.device),
                max(1, _BYTES // (4 * 3 * values)),  # a pass holds gradients and activations several times
                data,
            )
            cheap = task.exact_passes * values <= _CHEAP
            cheaper = task.exact_passes * _DEARER <= task.projected_passes(projections)
            if method == "exact" or (method == "auto" and (cheap or cheaper)):
                found.add(*task.exact(), exact_passes=task.exact_passes)
            else:
                generator = torch.Generator().manual_seed(int(stream(seed, "psi", int(index)).integers(2**63)))
                scores = task.projected(projections, generator)
                found.add(*scores, projection_passes=task.projected_passes(projections))
    return found.scores()


class _Found:
    """Sums over the examples. Their projections are independent, so their variances add up."""

    def __init__(self, layers: int) -> None:
        self.total, self.variance = np.zeros(layers), np.zeros(layers)
        self.examples = self.exact_passes = self.projection_passes = 0

    def add(
        self, score: NDArray[np.float64], error: NDArray[np.float64], exact_passes: int = 0, projection_passes: int = 0
    ) -> None:
        self.total += score
        self.variance += np.square(error)
        self.examples += 1
        self.exact_passes += exact_passes
        self.projection_passes += projection_passes

    def scores(self) -> PsiScores:
        mean, error = self.total / self.examples, np.sqrt(self.variance) / self.examples
        return PsiScores(mean, error, self.examples, self.exact_passes, self.projection_passes)


class _Task:
    """One example: its loss as a function of parameters and input, and the pixels of its region.

    Args:
        model: the model.
        state: its parameters and, where they replace the model's, buffers, by name.
        inputs: (1, C, H, W) or (1, W), standardised.
        answers: (1,) or (1, H, W).
        pixels: (p,), the region's places in the flattened (H, W).
        at_once: number of passes that run together.
        data: its task has the loss; cross entropy where it has none.
    """

    def __init__(
        self, model: TorchModel, state: dict[str, torch.Tensor], inputs: torch.Tensor, answers: torch.Tensor,
        pixels: torch.Tensor, at_once: int, data: About,
    ) -> None:  # fmt: skip
        self.data = data
        self.model, self.inputs, self.answers, self.pixels, self.at_once = model, inputs, answers, pixels, at_once
        names = [place.name for place in model.layout.parameters]
        self.parameters = {name: state[name] for name in names}
        self.buffers = {name: tensor for name, tensor in state.items() if name not in self.parameters}
        self.layers = {layer: [p.name for p in model.layout.parameters if p.layer == layer] for layer in
                       model.layout.layers}  # fmt: skip

    def gradient(self, names: list[str]) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
        """g(x), eq. 3's inner derivative, by the named parameters: a function of the input."""
        from torch.func import functional_call, grad

        def loss(moving: dict[str, torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
            logits = functional_call(self.model.module, self.parameters | self.buffers | moving, (inputs,))
            return summed_loss(logits, self.answers, self.data)

        by_parameters = grad(loss)
        own = {name: self.parameters[name] for name in names}
        return lambda inputs: by_parameters(own, inputs)

    @property
    def exact_passes(self) -> int:
        """One per pixel and channel."""
        return len(self.pixels) * self.channels

    @property
    def channels(self) -> int:
        """Numbers that a pixel has; a column of a table has one."""
        return self.inputs.shape[1] if self.inputs.dim() == 4 else 1

    def projected_passes(self, projections: int) -> int:
        """One per projection and layer."""
        return projections * len(self.layers)

    def exact(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Eq. 5 for each layer, (L,), and its standard error, 0."""
        import torch
        from torch.func import jvp, vmap

        gradient = self.gradient(list(self.parameters))

        def column(tangent: torch.Tensor) -> dict[str, torch.Tensor]:
            """J's product with a tangent: eq. 3's outer derivative in that direction."""
            moved: dict[str, torch.Tensor] = jvp(gradient, (self.inputs,), (tangent,))[1]
            return moved

        channels, size = self.channels, self.inputs.numel() // self.channels
        # Places of the region's pixels in each channel, (p * C,): a tangent that is 1 there gives that column of J.
        places = (self.pixels[:, None] + size * torch.arange(channels, device=self.pixels.device)).reshape(-1)
        squares = torch.zeros(len(places), len(self.layers), dtype=torch.float64, device=places.device)
        for part in torch.split(torch.arange(len(places), device=places.device), self.at_once):
            tangents = torch.zeros(len(part), *self.inputs.shape, device=places.device)
            tangents.view(len(part), -1).scatter_(1, places[part, None], 1.0)
            columns = vmap(column)(tangents)
            for number, names in enumerate(self.layers.values()):
                for name in names:
                    lengths = torch.linalg.vector_norm(columns[name].reshape(len(part), -1), dim=1)
                    squares[part, number] += lengths.double().square()
        norms = squares.view(len(self.pixels), channels, -1).sum(1).sqrt()  # eq. 4: (p, L)
        return norms.mean(0).cpu().numpy(), np.zeros(len(self.layers))

    def projected(
        self, projections: int, generator: torch.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimates of eq. 5 for each layer, (L,), and their standard errors."""
        import torch
        from torch.func import vjp, vmap

        scores = []
        for names in self.layers.values():
            # Not torch.autograd.grad(is_grads_batched=True), which fails on group norm.
            pull = vjp(self.gradient(names), self.inputs)[1]
            squares = torch.zeros(projections, len(self.pixels), dtype=torch.float64, device=self.inputs.device)
            for part in torch.split(torch.arange(projections, device=self.inputs.device), self.at_once):
                directions = {
                    name: torch.randn(len(part), *self.parameters[name].shape, generator=generator).to(part.device)
                    for name in names
                }
                (moved,) = vmap(pull)(directions)  # v^T J_l, (projections, 1, C, H, W)
                squares[part] = moved.double().square().view(len(part), self.channels, -1).sum(1)[:, self.pixels]
            scores.append(jackknife(squares.cpu().numpy()))
        return np.array([score for score, _ in scores]), np.array([error for _, error in scores])


def jackknife(squares: NDArray[np.float64]) -> tuple[float, float]:
    """The mean over pixels of the root of the mean of squares, without its bias of order 1/m, and its standard error.

    The root of a mean of m squares is too low, for one channel by the fraction 1/(4m), where the squares are
    s^2 chi^2_1. The jackknife leaves 1/(32 m^2). All pixels share the projections, so their errors do not cancel.
    Leaving out whole projections keeps that in the standard error.

    Args:
        squares: (m, p), of m projections at p pixels.
    """
    count = len(squares)
    total = squares.sum(0)
    whole = float(np.sqrt(total / count).mean())
    without = np.sqrt(np.maximum(total - squares, 0.0) / (count - 1)).mean(1)
    error = np.sqrt((count - 1) / count * np.square(without - without.mean()).sum())
    return count * whole - (count - 1) * float(without.mean()), float(error)
