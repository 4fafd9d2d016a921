"""Inputs of a layer inside a network, and images that have given ones. Imports torch."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from fedplug_std.torch_model import to_tensor, use_one_thread
from torch.nn.modules.dropout import _DropoutNd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_attacks.api.view import Attacker, View

_RATE, _LAST_RATE = 0.1, 1e-3


def features_of(inputs: NDArray[np.generic], layer: str, view: View) -> NDArray[np.float64]:
    """Inputs of a layer of `view.model` for stored examples, in training mode; (n, d)."""
    front = _Front(view, layer, training=True)
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
    assert view.update is not None
    use_one_thread()
    front = _Front(view, layer, view.update.meaning.training_mode)
    known = torch.from_numpy(~np.isnan(features)).float()
    wanted = torch.from_numpy(np.nan_to_num(features)).float()
    variance = float(wanted[known > 0].var()) or 1.0
    mean, std = (torch.tensor(given).view(-1, 1, 1) for given in (view.mean, view.std))
    low, high = (0 - mean) / std, (1 - mean) / std
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
            torch.clamp(tried, low, high, out=tried)
        if step % 50 == 49:
            attacker.progress(step + 1, iterations, float(least.mean()))
    pixels = (best * std + mean).double().numpy().reshape(len(best), -1)
    return pixels, least.double().numpy()


class _Front:
    """The network up to a layer: called with inputs it returns the layer's inputs, (n, d)."""

    def __init__(self, view: View, layer: str, training: bool) -> None:
        self._module = copy.deepcopy(view.model.module).train(training).requires_grad_(False)
        for part in self._module.modules():
            if isinstance(part, _DropoutNd):
                part.eval()
        self._module.get_submodule(layer).register_forward_pre_hook(self._keep)
        self._kept = torch.empty(0)

    def _keep(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        self._kept = inputs[0]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        self._module(inputs)
        return self._kept.flatten(1)
