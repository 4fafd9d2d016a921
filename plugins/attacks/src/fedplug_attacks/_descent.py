"""Many trials of a candidate batch at once, each descending an objective of its own with Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from fedplug_attacks._matching import Matcher, Record

# Gradient entries of all trials that are computed together: 1 GiB in float32, a few times that with their graph.
_AT_ONCE = 1 << 26

# Of inputs (T, B, C, H, W), probabilities of the labels (T, B, K) and a slice of the trials: what to descend, and how
# far the gradients are from the observed one; both (T,).
Objective = Callable[[torch.Tensor, torch.Tensor, slice], tuple[torch.Tensor, torch.Tensor]]


def total_variation(inputs: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference of vertical and of horizontal neighbours, added; (T, B, C, H, W) to (T,)."""
    down, right = (inputs.diff(dim=axis).abs().flatten(1).mean(1) for axis in (-2, -1))
    return down + right


def descend(
    matcher: Matcher,
    record: Record,
    inputs: torch.Tensor,
    labels: Sequence[Sequence[int]],
    objective: Objective,
    rates: Sequence[float],
    signed: bool,
    at_once: int | None = None,
) -> list[int]:
    """Moves every trial with Adam inside the box of valid pixels, and offers what it comes to.

    Trials do not influence each other (unless the objective makes them): each has its own moments, and computing them
    together changes rounding only.

    Args:
        matcher: of the observed gradient.
        record: takes the results.
        inputs: (T, B, C, H, W), where the trials start.
        labels: of each trial, of each example.
        objective: what to descend.
        rates: learning rate of each step.
        signed: Adam is given the sign of the gradient only (Geiping et al. 2020).
        at_once: trials computed together; None: as many as fit.

    Returns:
        The trials in the order of their matching loss, those that diverged last.
    """
    fit = at_once or fitting(matcher)
    record.total = math.ceil(len(inputs) / fit) * len(rates)
    losses: list[float] = []
    for first in range(0, len(inputs), fit):
        part = slice(first, min(first + fit, len(inputs)))
        known = matcher.one_hot(labels[part])
        state = inputs[part].detach().clone()
        moments = [torch.zeros_like(state), torch.zeros_like(state)]
        done = first // fit * len(rates)
        for step, rate in enumerate(rates, start=1):
            state.requires_grad_()
            value, distance = objective(state, known, part)
            # The sum keeps trials apart: each value depends on its own inputs alone.
            (gradient,) = torch.autograd.grad(value.sum(), state)
            state = adam(state.detach(), gradient.sign() if signed else gradient, moments, step, rate)
            state = state.clamp(matcher.low, matcher.high)
            finite = distance.detach()[distance.isfinite()]
            record.progress(done + step, float(finite.min()) if len(finite) else math.nan)
        with torch.no_grad():
            final = objective(state, known, part)[1].tolist()
        for trial, loss in enumerate(final):
            record.offer(loss if math.isfinite(loss) else math.nan, state[trial], labels[first + trial])
        losses += final
    return sorted(range(len(losses)), key=lambda trial: losses[trial] if math.isfinite(losses[trial]) else math.inf)


def fitting(matcher: Matcher) -> int:
    """Trials that are computed together."""
    return max(1, _AT_ONCE // len(matcher.target))


def screening(iterations: int) -> int:
    """Steps after which candidates of the labels can be told apart: an eighth of all, 50 at least."""
    return max(iterations // 8, min(iterations, 50))


def adam(
    inputs: torch.Tensor, gradient: torch.Tensor, moments: list[torch.Tensor], step: int, lr: float
) -> torch.Tensor:
    """One step of Adam (Kingma & Ba 2015, Alg. 1 with its constants), entry by entry; `moments` change in place.

    Written out because building a class of torch.optim imports torch's compiler, which takes a second.
    """
    moments[0].mul_(0.9).add_(gradient, alpha=0.1)
    moments[1].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    first, second = moments[0] / (1 - 0.9**step), moments[1] / (1 - 0.999**step)
    return inputs - lr * first / (second.sqrt() + 1e-8)
