"""A step of gradient descent on a multilayer perceptron, with the derivatives written out.

Autograd takes about as long for a small batch as the arithmetic itself. If a model consists of fully connected layers
with ReLU between them, the chain rule (Rumelhart et al. 1986) is three lines, and each layer's gradient is added to its
weights as it is multiplied out, so that no gradient is ever stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_METHODS = frozenset({"forward", "__call__", "_call_impl", "_compiled_call_impl"})
"""Attributes of an instance that change a module's behaviour: hooks, and methods that replace those of its class."""


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
        """The module's weights, if it is a chain of `Linear` with `ReLU` between them and does nothing else."""
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
        if any(part._modules for part in (first, *parts)) or hooked((module, first, *parts), own):
            return None
        return cls([weight.data for weight in own[::2]], [bias.data for bias in own[1::2]])

    def steps(self, batches: Iterable[tuple[torch.Tensor, torch.Tensor]], lr: float) -> torch.Tensor:
        """Steps against the gradient of the mean cross entropy of each batch.

        Args:
            batches: float32 inputs (n, ...), standardised, and int64 labels (n,), of each.
            lr: the length of a step, > 0.

        Returns:
            Log-probability of every label before the step of its batch, (m, 1).
        """
        return torch.cat([self._step(inputs.flatten(1), labels, lr, back=False)[0] for inputs, labels in batches])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The logits of a batch, (n, classes), as the module gives them."""
        return self._entering(inputs.flatten(1)).pop()

    def _entering(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        """The inputs of each layer, and the logits."""
        passing = [inputs]
        for turned, bias in zip(self._turned[:-1], self.biases, strict=False):
            passing.append(torch.addmm(bias, passing[-1], turned).relu_())
        passing.append(torch.addmm(self.biases[-1], passing[-1], self._turned[-1]))
        return passing

    def _step(
        self, inputs: torch.Tensor, labels: torch.Tensor, lr: float, *, back: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The step; what `step` gives, and with `back` the step against the gradient of the inputs, (n, in)."""
        entering = self._entering(inputs)
        log_probabilities = entering.pop().log_softmax(1)
        places = labels.view(-1, 1)
        found = log_probabilities.gather(1, places)
        # d(mean loss) / d(logits) = (softmax - one-hot) / n; the step is taken here, for all layers behind.
        delta = log_probabilities.exp_().scatter_add_(1, places, self._minus_one.expand_as(found))
        count = labels.shape[0]
        delta.mul_(-lr / count)
        ones = delta.new_ones(count)
        for index in range(len(self.weights) - 1, -1, -1):
            weight, before, turned = self.weights[index], delta, delta.t()
            if index or back:  # through the layer's weights as they were
                before = torch.mm(delta, weight)
            weight.addmm_(turned, entering[index])
            self.biases[index].addmv_(turned, ones)
            if index:
                before.mul_(entering[index].sign_())  # through the ReLU, whose outputs are no longer needed
            delta = before
        return found, delta

    def takes_few(self, examples: int) -> bool:
        """Whether `update` is faster than steps: with so few examples in all that its first layer is far wider."""
        return len(self.weights) > 1 and 2 * examples <= min(self.weights[0].shape)

    @torch.inference_mode()  # tensors of this mode are cheaper to pass on
    def update(
        self, inputs: torch.Tensor, labels: torch.Tensor, lengths: list[int], lr: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The result of steps on batch after batch; the weights themselves do not change.

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
        olds = [each for layer in zip(self.weights, self.biases, strict=True) for each in layer]
        update = torch.empty(sum(map(torch.numel, olds)))
        parts = torch.split_with_sizes(update, [each.numel() for each in olds])
        first, bias, *rest = (part.view_as(each) for part, each in zip(parts, olds, strict=True))
        for new, old in zip(rest, olds[2:], strict=True):
            new.copy_(old)
        inner = type(self)(rest[::2], rest[1::2])
        entering = torch.addmm(self.biases[0], inputs, self._turned[0])
        steps = torch.empty_like(entering)
        # Each of a later batch with each of those before the last; one more, by which the bias moves.
        found, start, head = [], 0, lengths[0]
        alike = torch.mm(inputs[head:], inputs[: -lengths[-1]].t()).add_(1)
        batches = zip(*(torch.split_with_sizes(each, lengths) for each in (labels, entering, steps)), strict=True)
        for answers, mine, step in batches:
            stop = start + mine.shape[0]
            if start:
                mine.addmm_(alike[start - head : stop - head, :start], steps[:start])
            said, back = inner._step(mine.relu_(), answers, lr, back=True)
            torch.mul(back, mine.sign_(), out=step)
            found.append(said)
            start = stop
        torch.mm(steps.t(), inputs, out=first)
        torch.sum(steps, 0, out=bias)
        for new, old in zip(rest, olds[2:], strict=True):
            new.sub_(old)
        return update, torch.cat(found)


_OF_ALL = vars(nn.modules.module)
_EVERYWHERE = [name for name in _OF_ALL if name.startswith("_global_") and name.endswith("_hooks")]
"""Where torch keeps the hooks of all modules."""


def hooked(modules: Iterable[nn.Module], parameters: Iterable[Any]) -> bool:
    """Whether hooks watch or change the data of these modules, or of all, or the gradients of the parameters."""
    if any(_OF_ALL[name] for name in _EVERYWHERE):
        return True
    for part in modules:
        held = vars(part)
        if any(held.get(name) for name in _HOOKS) or not _METHODS.isdisjoint(held):
            return True
    return any(each._backward_hooks or each._post_accumulate_grad_hooks for each in parameters)
