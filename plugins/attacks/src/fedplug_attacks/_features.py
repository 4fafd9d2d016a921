"""Inputs of a fully connected layer inside a network, and images that have given ones. Imports torch."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from fedplug import stream
from fedplug.api.errors import ViewError
from fedplug_std.torch_model import to_tensor, use_one_thread
from torch.nn.modules.dropout import _DropoutNd

from fedplug_attacks._matching import scale_of
from fedplug_attacks._search import adam, cosine, total_variation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_attacks import Attacker, View

# First learning rate of the search for images, and the weight of the total variation, next to the unmatched share.
_RATE, _SMOOTH = 0.1, 1e-5
# Spread of the noise that tells images apart at the start.
_APART = 0.1


def nearest(
    features: NDArray[np.float64], front: Front, view: View, attacker: Attacker, steps: int
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Images whose features are nearest to the given ones, and smooth: Adam from the public mean, within valid pixels.

    All are searched for at once: where batch norm makes features of an example depend on the others, they do so here.

    Args:
        features: (n, d), NaN where not known.
        front: gives the features of images.
        view: with the seed of the start.
        attacker: with the public examples, and told steps done, all steps, and the mean share that is not matched.
        steps: of the search.

    Returns:
        Images (n, C, H, W) in [0, 1], and of each the share of the features' size that is not matched; (n,).
    """
    use_one_thread()
    known = torch.from_numpy(~np.isnan(features))
    wanted = torch.from_numpy(np.nan_to_num(features)).float()
    sizes = wanted.square().sum(1).clamp_min(1e-12)
    drawn = stream(view.seed, "attacks.features").standard_normal((len(features), *front.shape))
    state = _APART * torch.from_numpy(drawn).float()
    if attacker.facts.public is not None:
        state = state + to_tensor(attacker.facts.public.examples.inputs, view.mean, view.std).mean(0)
    state = state.clamp(front.low, front.high)
    moments, best, least = [torch.zeros_like(state) for _ in range(2)], state.clone(), torch.full_like(sizes, torch.inf)
    for step, rate in enumerate([*cosine(_RATE, steps), 0.0], start=1):
        state.requires_grad_()
        shares = ((front(state).flatten(1) - wanted) * known).square().sum(1) / sizes
        (gradient,) = torch.autograd.grad(shares.sum() + _SMOOTH * total_variation(state[None]).sum(), state)
        state, shares = state.detach(), shares.detach()
        better = shares < least
        best = torch.where(better.view(-1, *[1] * (state.ndim - 1)), state, best)
        least = torch.where(better, shares, least)
        state = adam(state, gradient, moments, step, rate).clamp(front.low, front.high)
        attacker.progress(min(step, steps), steps, float(shares.mean()))
    pixels = best * front.std + front.mean
    return pixels.numpy().astype(np.float32), least.sqrt().double().numpy()


class Front:
    """The network up to a fully connected layer: called with inputs (n, C, H, W) it gives what enters it, (n, d).

    Args:
        view: with the model, which is copied.
        weight: the layer's weight.
        training: the mode of the network.
        dropout: whether it drops values in training mode; else dropout is off.

    Raises:
        ViewError: there is no such layer.

    Attributes:
        shape: (C, H, W) of an image.
        module, layer: the network, and the layer in it.
        outputs: (n, K), what the network gave for the last inputs.
        mean, std, low, high: (C, 1, 1); low and high are black and white, standardised.
    """

    def __init__(self, view: View, weight: str, training: bool, dropout: bool = False) -> None:
        self.module = copy.deepcopy(view.model.module).train(training).requires_grad_(False)
        for part in self.module.modules():
            if isinstance(part, _DropoutNd) and not dropout:
                part.eval()
        layer = dict(self.module.named_modules()).get(weight.rpartition(".")[0])
        if not isinstance(layer, torch.nn.Linear):
            raise ViewError(f"{weight} belongs to no fully connected layer whose input could be read")
        self.layer = layer
        self.layer.register_forward_pre_hook(self._keep)
        self._kept = self.outputs = torch.empty(0)
        self.shape = tuple(view.shape)
        self.mean, self.std, self.low, self.high = scale_of(view)

    def _keep(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        self._kept = inputs[0]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        self.outputs = self.module(inputs)
        return self._kept

    def columns(self, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The gradient of the cross entropy by the layer's outputs, with each class as the label; (n, K, h).

        Args:
            inputs: (n, d), standardised inputs of the layer.
        """
        given: list[torch.Tensor] = []

        def put_out(part: torch.nn.Module, _: Any, outputs: torch.Tensor) -> torch.Tensor:
            given.append(outputs.detach().requires_grad_())
            return given[0]

        network = self.module.double()
        hooks = (
            self.layer.register_forward_pre_hook(lambda part, _: (torch.from_numpy(inputs),)),
            self.layer.register_forward_hook(put_out),
        )
        with torch.enable_grad():
            logits = network(torch.zeros(len(inputs), *self.shape, dtype=torch.float64))
            slopes = [
                torch.autograd.grad(logits[:, label].sum(), given[0], retain_graph=True)[0]
                for label in range(logits.shape[1])
            ]
        for hook in hooks:
            hook.remove()
        each = torch.stack(slopes, 1)
        mean = (logits.detach().softmax(-1)[:, :, None] * each).sum(1, keepdim=True)
        found: NDArray[np.float64] = (mean - each).numpy()
        return found
