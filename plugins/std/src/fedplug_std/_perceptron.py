"""A step of gradient descent on a multilayer perceptron, with the derivatives written out.

Autograd takes about as long for a small batch as the arithmetic itself. Where a model is nothing but fully connected
layers with ReLU between them, the chain rule (Rumelhart et al. 1986) is three lines, and each layer's gradient is added
to its weights as it is multiplied out, so that no gradient is ever stored.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_METHODS = frozenset({"forward", "__call__", "_call_impl", "_compiled_call_impl"})
"""Attributes of an instance that change what a module does: its hooks, and methods in place of those of its class."""


class Perceptron:
    """The weights of a module that is a multilayer perceptron; steps change them in place.

    Args:
        weights: (out, in) of each layer.
        biases: (out,) of each layer.
    """

    def __init__(self, weights: list[torch.Tensor], biases: list[torch.Tensor]) -> None:
        self.weights, self.biases = weights, biases
        self._turned = [weight.t() for weight in weights]
        self._minus_one = biases[-1].new_full((1, 1), -1.0)

    @classmethod
    def of(cls, module: nn.Module) -> Self | None:
        """The module's weights, if it is a chain of `Linear` with `ReLU` between them, and does nothing besides."""
        if type(module) is not nn.Sequential:
            return None
        first, *parts = module._modules.values() or (None,)
        if type(first) is not nn.Flatten or (first.start_dim, first.end_dim) != (1, -1):
            return None
        layers, between = parts[::2], parts[1::2]
        if len(layers) != len(between) + 1 or {*map(type, layers)} != {nn.Linear} or {*map(type, between)} - {nn.ReLU}:
            return None
        # Each has its two parameters and nothing else, also no module within: a walk through all takes a step's time.
        held = [parameter for part in (module, first, *parts) for parameter in part._parameters.values()]
        own = [each for each in held if each is not None and each.requires_grad]
        if not len(own) == len(held) == 2 * len(layers):
            return None
        if len({*map(id, own)}) != len(own):  # some are shared: no gradient is that of one layer
            return None
        if any(part._modules for part in (first, *parts)) or _hooked((module, first, *parts), own):
            return None
        return cls([weight.data for weight in own[::2]], [bias.data for bias in own[1::2]])

    def step(self, inputs: torch.Tensor, labels: torch.Tensor, lr: float) -> torch.Tensor:
        """One step against the gradient of the batch's mean cross entropy.

        Args:
            inputs: float32 (n, ...), standardised.
            labels: int64 (n,).
            lr: the step, > 0.

        Returns:
            Log-probability of every label before the step, (n, 1).
        """
        entering = [inputs.flatten(1)]
        for turned, bias in zip(self._turned[:-1], self.biases, strict=False):
            entering.append(torch.addmm(bias, entering[-1], turned).relu_())
        log_probabilities = torch.addmm(self.biases[-1], entering[-1], self._turned[-1]).log_softmax(1)
        places = labels.view(-1, 1)
        found = log_probabilities.gather(1, places)
        # d(mean loss) / d(logits) = (softmax - one-hot) / n; the step is taken here, for all layers behind.
        delta = log_probabilities.exp_().scatter_add_(1, places, self._minus_one.expand_as(found))
        delta.mul_(-lr / len(labels))
        ones = delta.new_ones(len(labels))
        for index in range(len(self.weights) - 1, -1, -1):
            before = None
            if index:  # through the layer's weights as they were, and through the ReLU
                before = torch.mm(delta, self.weights[index]).mul_(entering[index] > 0)
            turned = delta.t()
            self.weights[index].addmm_(turned, entering[index])
            self.biases[index].addmv_(turned, ones)
            if before is not None:
                delta = before
        return found


_OF_ALL = vars(nn.modules.module)
_EVERYWHERE = [name for name in _OF_ALL if name.startswith("_global_") and name.endswith("_hooks")]
"""Where torch keeps the hooks of all modules."""


def _hooked(modules: tuple[nn.Module, ...], parameters: list[Any]) -> bool:
    """Whether somebody watches or changes what passes these modules, or all, or the gradients of the parameters."""
    if any(_OF_ALL[name] for name in _EVERYWHERE):
        return True
    for part in modules:
        held = vars(part)
        if any(held.get(name) for name in _HOOKS) or not _METHODS.isdisjoint(held):
            return True
    return any(each._backward_hooks or each._post_accumulate_grad_hooks for each in parameters)
