"""The layers before a model's first fully connected layer: features of images, and images for features."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch
from fedplug.api.errors import ViewError
from torch import nn

from fedplug_attacks._descent import adam, stepped, total_variation

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedplug_attacks.api.view import View

_STEPS, _RATE = 600, 0.05
# Weight of the total variation, next to the share of the features that is not matched.
_SMOOTH = 1e-5


@dataclasses.dataclass(frozen=True, eq=False)
class Front:
    """The layers before a fully connected one.

    Attributes:
        module: a copy of the adversary's whole model.
        layer: the fully connected layer in it.
        shape: (C, H, W) of an image.
        low, high: (C, 1, 1), black and white, standardised.
    """

    module: nn.Module
    layer: nn.Linear
    shape: tuple[int, ...]
    low: torch.Tensor
    high: torch.Tensor

    @classmethod
    def of(cls, view: View, weight: str) -> Front:
        """The front of the adversary's model, before the layer with this weight.

        Raises:
            ViewError: the weight is not of a layer that can be called.
        """
        module = copy.deepcopy(view.model.module).requires_grad_(False).train()
        for part in module.modules():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.eval()
        layer = dict(module.named_modules()).get(weight.rpartition(".")[0])
        if not isinstance(layer, nn.Linear):
            raise ViewError(f"{weight} is not the weight of a fully connected layer")
        mean, std = (torch.tensor(values, dtype=torch.float32)[:, None, None] for values in (view.mean, view.std))
        return cls(module, layer, tuple(view.shape), -mean / std, (1 - mean) / std)

    def features(self, inputs: torch.Tensor) -> torch.Tensor:
        """The layer's inputs for standardised images (n, C, H, W); (n, d)."""
        caught: list[torch.Tensor] = []
        handle = self.layer.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
        try:
            self.module(inputs)
        finally:
            handle.remove()
        return caught[0]

    def images(
        self, features: NDArray[np.float64], rng: np.random.Generator, progress: Callable[[int, int, float], None]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Images whose features are nearest to the given ones, and smooth: Adam, as `attacks.inverting` descends.

        Args:
            features: (n, d), NaN where not known.
            rng: draws where the search starts.
            progress: told steps done, all steps, and the share that is not matched.

        Returns:
            Images (n, C, H, W) in [0, 1], and of each the share of the features' size that is not matched; (n,).
        """
        known = torch.from_numpy(~np.isnan(features))
        wanted = torch.from_numpy(np.nan_to_num(features)).float()
        sizes = wanted.square().sum(1).clamp_min(1e-12)
        state = torch.from_numpy(rng.standard_normal((len(features), *self.shape))).float()
        state = state.clamp(self.low, self.high)
        moments = [torch.zeros_like(state), torch.zeros_like(state)]
        for step, rate in enumerate(stepped(_RATE, _STEPS), start=1):
            state.requires_grad_()
            shares = ((self.features(state) - wanted) * known).square().sum(1) / sizes
            value = shares.sum() + _SMOOTH * total_variation(state[None]).sum()
            (gradient,) = torch.autograd.grad(value, state)
            state = adam(state.detach(), gradient, moments, step, rate).clamp(self.low, self.high)
            progress(step, _STEPS, float(shares.detach().mean()))
        with torch.no_grad():
            shares = ((self.features(state) - wanted) * known).square().sum(1) / sizes
        pixels = (state - self.low) / (self.high - self.low)
        return pixels.numpy().astype(np.float32), shares.sqrt().double().numpy()
