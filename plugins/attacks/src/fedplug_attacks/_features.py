"""Inputs of a fully connected layer inside a network, and images that have given ones. Imports torch."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from fedplug.api.errors import ViewError
from fedplug_std.torch_model import to_tensor, use_one_thread
from torch.nn.modules.dropout import _DropoutNd

from fedplug_attacks._descent import adam, stepped, total_variation

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedplug_attacks.api.view import Attacker, View

_RATE, _LAST_RATE = 0.1, 1e-3
# Steps and learning rate of `nearest`, and the weight of the total variation, next to the unmatched share of features.
_STEPS, _STEP, _SMOOTH = 600, 0.05, 1e-5


def features_of(inputs: NDArray[np.generic], layer: str, view: View) -> NDArray[np.float64]:
    """Inputs of a layer of `view.model` for stored examples, in training mode; (n, d)."""
    front = Front(view, layer, training=True)
    with torch.no_grad():
        found: NDArray[np.float64] = front(to_tensor(inputs, view.mean, view.std)).double().numpy()
    return found


def inverted(
    features: NDArray[np.float64], layer: str, view: View, attacker: Attacker, iterations: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Images whose features these are, by Adam from the public mean, inside the box of valid pixels.

    All are searched for at once: where batch norm makes features of an example depend on the others, they do so here.

    Args:
        features: (n, d), inputs of the layer; NaN where unknown.
        layer: its name in the model.
        view: view with the model that clients had.
        attacker: with the public examples, and told of progress.
        iterations: steps.

    Returns:
        (n, pixels) in [0, 1], and (n,) the mean squared misfit relative to the features' variance.
    """
    use_one_thread()
    front = Front(view, layer, view.observed.meaning.training_mode)
    known = torch.from_numpy(~np.isnan(features)).float()
    wanted = torch.from_numpy(np.nan_to_num(features)).float()
    variance = float(wanted[known > 0].var()) or 1.0
    noise = torch.from_numpy(np.random.default_rng(view.seed).standard_normal((len(wanted), *view.shape))).float()
    start = 0.1 * noise
    if attacker.facts.public is not None:
        start = start + to_tensor(attacker.facts.public.examples.inputs, view.mean, view.std).mean(0)
    tried = start.requires_grad_()
    optimizer = torch.optim.Adam([tried], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations, _LAST_RATE)
    best, least = start.detach().clone(), torch.full((len(wanted),), float("inf"))
    for step in range(iterations):
        optimizer.zero_grad()
        misfit = ((front(tried) - wanted).square() * known).sum(1) / known.sum(1).clamp(min=1) / variance
        with torch.no_grad():
            better = misfit < least
            best[better], least[better] = tried[better], misfit[better]
        misfit.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            torch.clamp(tried, front.low, front.high, out=tried)
        if step % 50 == 49:
            attacker.progress(step + 1, iterations, float(least.mean()))
    pixels = (best * front.std + front.mean).double().numpy().reshape(len(best), -1)
    return pixels, least.double().numpy()


def nearest(
    features: NDArray[np.float64], front: Front, rng: np.random.Generator, progress: Callable[[int, int, float], None]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Images whose features are nearest to the given ones, and smooth: Adam, as `attacks.inverting` descends.

    Args:
        features: (n, d), NaN where not known.
        front: gives the features of images.
        rng: draws where the search starts.
        progress: told steps done, all steps, and the share that is not matched.

    Returns:
        Images (n, C, H, W) in [0, 1], and of each the share of the features' size that is not matched; (n,).
    """
    known = torch.from_numpy(~np.isnan(features))
    wanted = torch.from_numpy(np.nan_to_num(features)).float()
    sizes = wanted.square().sum(1).clamp_min(1e-12)

    def unmatched(state: torch.Tensor) -> torch.Tensor:
        return ((front(state) - wanted) * known).square().sum(1) / sizes

    state = torch.from_numpy(rng.standard_normal((len(features), *front.shape))).float()
    state = state.clamp(front.low, front.high)
    moments = [torch.zeros_like(state), torch.zeros_like(state)]
    for step, rate in enumerate(stepped(_STEP, _STEPS), start=1):
        state.requires_grad_()
        shares = unmatched(state)
        value = shares.sum() + _SMOOTH * total_variation(state[None]).sum()
        (gradient,) = torch.autograd.grad(value, state)
        state = adam(state.detach(), gradient, moments, step, rate).clamp(front.low, front.high)
        progress(step, _STEPS, float(shares.detach().mean()))
    with torch.no_grad():
        shares = unmatched(state)
    pixels = (state - front.low) / (front.high - front.low)
    return pixels.numpy().astype(np.float32), shares.sqrt().double().numpy()


class Front:
    """The network up to a fully connected layer: called with images (n, C, H, W) it gives the layer's inputs (n, d).

    Args:
        view: with the model.
        layer: its name in the model.
        training: the mode of the network; dropout is always off.

    Raises:
        ViewError: there is no such layer.

    Attributes:
        shape: (C, H, W) of an image.
        mean, std, low, high: (C, 1, 1); low and high are black and white, standardised.
    """

    def __init__(self, view: View, layer: str, training: bool) -> None:
        self._module = copy.deepcopy(view.model.module).train(training).requires_grad_(False)
        for part in self._module.modules():
            if isinstance(part, _DropoutNd):
                part.eval()
        found = dict(self._module.named_modules()).get(layer)
        if not isinstance(found, torch.nn.Linear):
            raise ViewError(f"{layer} is not a fully connected layer of the model")
        found.register_forward_pre_hook(self._keep)
        self._kept = torch.empty(0)
        self.shape = tuple(view.shape)
        self.mean, self.std = (torch.tensor(given).view(-1, 1, 1) for given in (view.mean, view.std))
        self.low, self.high = -self.mean / self.std, (1 - self.mean) / self.std

    def _keep(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        self._kept = inputs[0]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        self._module(inputs)
        return self._kept.flatten(1)


def columns_behind(view: View, layer: str) -> Callable[[NDArray[np.float64]], NDArray[np.float64]] | None:
    """The gradient of the cross entropy by the outputs of a fully connected layer, for inputs of it and every label.

    Args:
        view: with the model, which is copied.
        layer: its name in the model.

    Returns:
        A function of standardised inputs (n, d), which gives (n, K, h) in float64; None where the layer is none of
        torch's, or its input is not one vector an example.
    """
    module = copy.deepcopy(view.model.module).double().train(view.observed.meaning.training_mode).requires_grad_(False)
    found = dict(module.named_modules()).get(layer)
    if not isinstance(found, torch.nn.Linear):
        return None
    for part in module.modules():
        if isinstance(part, _DropoutNd):
            part.eval()
    given: list[torch.Tensor] = []

    def columns(inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        given[:] = [torch.from_numpy(inputs)]
        with torch.enable_grad():
            logits = module(torch.zeros(len(inputs), *view.shape, dtype=torch.float64))
            slopes = [
                torch.autograd.grad(logits[:, label].sum(), given[1], retain_graph=True)[0]
                for label in range(logits.shape[1])
            ]
        each = torch.stack(slopes, 1)
        mean = (logits.detach().softmax(-1)[:, :, None] * each).sum(1, keepdim=True)
        found: NDArray[np.float64] = (mean - each).numpy()
        return found

    def put_out(part: torch.nn.Module, inputs: Any, outputs: torch.Tensor) -> torch.Tensor:
        given.append(outputs.detach().requires_grad_())
        return given[1]

    found.register_forward_pre_hook(lambda part, inputs: (given[0],))
    found.register_forward_hook(put_out)
    return columns
