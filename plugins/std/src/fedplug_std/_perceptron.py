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
        return self._step(inputs.flatten(1), labels, lr, back=False)[0]

    def _step(
        self, inputs: torch.Tensor, labels: torch.Tensor, lr: float, *, back: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The step; what `step` gives, and with `back` the step against the gradient of the inputs, (n, in)."""
        entering = [inputs]
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
            before = delta
            if index:  # through the layer's weights as they were, and through the ReLU
                before = torch.mm(delta, self.weights[index]).mul_(entering[index] > 0)
            elif back:
                before = torch.mm(delta, self.weights[0])
            turned = delta.t()
            self.weights[index].addmm_(turned, entering[index])
            self.biases[index].addmv_(turned, ones)
            delta = before
        return found, delta

    def takes_few(self, examples: int) -> bool:
        """Whether `update` is faster than steps: with so few examples in all that its first layer is far wider."""
        return len(self.weights) > 1 and 2 * examples <= min(self.weights[0].shape)

    def update(
        self, inputs: torch.Tensor, labels: torch.Tensor, lengths: list[int], lr: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Where steps on batch after batch would take the weights, which stay as they are.

        What steps add to the first weights W is D^T X, X the examples and D a row for each; so a later batch x gets
        x (W + D^T X)^T = x W^T + (x X^T) D. W is read once and never written, however many steps there are.

        Args:
            inputs: float32 (m, ...), those of all batches, in order.
            labels: int64 (m,).
            lengths: of the batches.
            lr: the step, > 0.

        Returns:
            The update, (P,): weights and bias of each layer in turn. Log-probability of every label before its step.
        """
        inputs = inputs.flatten(1)
        first, bias = self.weights[0], self.biases[0]
        inner = type(self)([each.clone() for each in self.weights[1:]], [each.clone() for each in self.biases[1:]])
        entering = torch.addmm(bias, inputs, self._turned[0])
        alike = torch.mm(inputs, inputs.t()).add_(1)  # one more, by which the bias moves
        steps = torch.empty_like(entering)
        found, start = [], 0
        for answers in torch.split_with_sizes(labels, lengths):
            stop = start + len(answers)
            mine = entering[start:stop]
            if start:
                mine.addmm_(alike[start:stop, :start], steps[:start])
            said, back = inner._step(mine.relu_(), answers, lr, back=True)
            torch.mul(back, mine > 0, out=steps[start:stop])
            found.append(said)
            start = stop
        update = torch.empty(sum(map(torch.numel, (*self.weights, *self.biases))))
        size = first.numel()
        torch.mm(steps.t(), inputs, out=update[:size].view_as(first))
        torch.sum(steps, 0, out=update[size : size + len(bias)])
        start = size + len(bias)
        olds = zip(self.weights[1:], self.biases[1:], strict=True)
        for layer in zip(zip(inner.weights, inner.biases, strict=True), olds, strict=True):
            for new, old in zip(*layer, strict=True):
                torch.sub(new, old, out=update[start : start + old.numel()].view_as(old))
                start += old.numel()
        return update, torch.cat(found)


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
