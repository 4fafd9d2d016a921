"""Small models and examples for PSI scores."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from fedplug import Examples
from fedplug.api.data import About
from fedplug_std.torch_model import TorchModel
from numpy.typing import NDArray
from torch import nn

PLAIN = About(classes=(), mean=(0.0,), std=(1.0,))


def plain(channels: int) -> Any:
    """Inputs become tensors unchanged."""
    return About(classes=(), mean=(0.0,) * channels, std=(1.0,) * channels)


def images(shape: tuple[int, ...], classes: int, seed: int = 0, pixelwise: bool = False) -> Examples:
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, classes, (shape[0], *shape[2:]), np.uint8) if pixelwise else None
    return Examples(rng.random(shape, np.float32), rng.integers(0, classes, shape[0]), targets)


def linear(shape: tuple[int, ...], classes: int, zero: bool = False) -> TorchModel:
    """Softmax regression."""
    torch.manual_seed(3)
    layer = nn.Linear(math.prod(shape), classes)
    if zero:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return TorchModel(nn.Sequential(nn.Flatten(), layer))


def small_conv(channels: int = 2, classes: int = 3) -> TorchModel:
    """Smooth, so that differences approach derivatives. Two layers train and one is frozen."""
    torch.manual_seed(5)
    frozen = nn.Conv2d(3, 3, 1)
    frozen.requires_grad_(False)
    module = nn.Sequential(
        nn.Conv2d(channels, 3, 3, padding=1), nn.Tanh(), frozen, nn.Flatten(), nn.Linear(3 * 16, classes)
    )
    return TorchModel(module)


def segmenter(channels: int = 1, classes: int = 2) -> TorchModel:
    """One logit per class for each pixel."""
    torch.manual_seed(6)
    return TorchModel(
        nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.Softplus(), nn.Conv2d(4, classes, 3, padding=1))
    )


def whole(examples: Examples) -> NDArray[np.bool_]:
    return np.ones((len(examples), *examples.inputs.shape[2:]), np.bool_)


def doubled(model: TorchModel) -> nn.Module:
    """A copy in double precision."""
    return copy.deepcopy(model.module).double().eval()


def gradients_at(
    model: TorchModel, module: nn.Module, inputs: torch.Tensor, answer: torch.Tensor
) -> list[torch.Tensor]:
    """The gradient of one example's loss by a copy in double precision, one tensor per layer."""
    named = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    loss = nn.functional.cross_entropy(module(inputs), answer)
    found = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
    layers = model.layout.layers
    return [
        torch.cat([found[p.name].reshape(-1) for p in model.layout.parameters if p.layer == layer]) for layer in layers
    ]
