"""Many trials of a candidate batch at once, each descending its own objective with Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from fedplug import stream

from fedplug_attacks._matching import Matcher, Record

# Gradient entries of all trials that are computed together: 1 GiB in float32, a few times that with their graph.
_AT_ONCE = 1 << 26

# After these shares of the steps, labels and orders of batches that fit better are looked for.
_SETTLED = (0.2, 0.35, 0.5)
# A tournament over ways to deal labels to batches: how many it begins with, how many are left after how many further
# turns, and the share of the steps of a turn.
_ENTRANTS, _TURNS, _TURN = 6, ((3, 1), (2, 1), (1, 14)), 0.01

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
    """Moves every trial with Adam inside the box of valid pixels, and offers the results.

    Trials do not influence each other (unless the objective makes them): each has its own moments, and computing them
    together changes rounding only.

    Args:
        matcher: of the observed gradient.
        record: takes the results.
        inputs: (T, B, C, H, W), where the trials start.
        labels: of each trial, of each example.
        objective: the objective to descend.
        rates: learning rate of each step.
        signed: Adam is given the sign of the gradient only (Geiping et al. 2020).
        at_once: trials computed together; None: as many as fit.

    Returns:
        The trials in the order of their matching loss, those that diverged last.
    """
    local = matcher.local
    fit = at_once or fitting(matcher)
    record.total = math.ceil(len(inputs) / fit) * len(rates)
    settling = {math.ceil(share * len(rates)) for share in _SETTLED} if local else set()
    rng = stream(matcher.view.seed, "attacks.local_steps")
    losses: list[float] = []
    for first in range(0, len(inputs), fit):
        part = slice(first, min(first + fit, len(inputs)))
        run = _Trials(inputs[part].detach().clone(), torch.tensor(labels[part], device=matcher.device))
        done = first // fit * len(rates)

        def step_of(trials: _Trials, part: slice, number: int, done: int = done) -> torch.Tensor:
            distance = trials.step(matcher, objective, part, number, rates[number - 1], signed)
            finite = distance[distance.isfinite()]
            record.progress(done + number, float(finite.min()) if len(finite) else math.nan)
            return distance

        begun = 0
        if local is not None:
            local.begin()
            if local.schedule.shuffled:
                begun = _dealt(matcher, run, objective, part, len(rates), step_of, rng)
        for number in range(begun + 1, len(rates) + 1):
            step_of(run, part, number)
            if local is not None and number in settling:
                run.settle(matcher, objective, part, rng)
        with torch.no_grad():
            final = objective(run.state, matcher.one_hot(run.labels), part)[1].tolist()
        for trial, loss in enumerate(final):
            record.offer(loss if math.isfinite(loss) else math.nan, run.state[trial], run.labels[trial].tolist())
        losses += final
    return sorted(range(len(losses)), key=lambda trial: losses[trial] if math.isfinite(losses[trial]) else math.inf)


def fitting(matcher: Matcher) -> int:
    """Trials that are computed together; of several local steps the graph holds each."""
    steps = matcher.local.schedule.steps if matcher.local else 1
    return max(1, _AT_ONCE // (len(matcher.target) * steps))


class _Trials:
    """Trials that descend together: where they are, what Adam remembers, and their labels (T, B)."""

    def __init__(self, state: torch.Tensor, labels: torch.Tensor) -> None:
        self.state, self.labels = state, labels
        self.moments = [torch.zeros_like(state), torch.zeros_like(state)]

    def step(
        self, matcher: Matcher, objective: Objective, part: slice, number: int, rate: float, signed: bool
    ) -> torch.Tensor:
        """One step of Adam, the `number`th; gives the distances (T,) before it."""
        state = self.state.detach().requires_grad_()
        value, distance = objective(state, matcher.one_hot(self.labels), part)
        # The sum keeps trials apart: each value depends on its own inputs alone.
        (gradient,) = torch.autograd.grad(value.sum(), state)
        state = adam(state.detach(), gradient.sign() if signed else gradient, self.moments, number, rate)
        self.state = state.clamp(matcher.low, matcher.high)
        return distance.detach()

    def keep(self, places: list[int]) -> None:
        """Drops all trials but these."""
        self.state, self.labels = self.state[places], self.labels[places]
        self.moments = [moment[places] for moment in self.moments]

    def settle(self, matcher: Matcher, objective: Objective, part: slice, rng: np.random.Generator) -> None:
        """Gives trials the labels and orders that fit their images better."""
        local = matcher.local
        assert local is not None

        def with_labels(labels: torch.Tensor) -> torch.Tensor:
            return objective(self.state, matcher.one_hot(labels), part)[1]

        if self.labels.shape[1] > 1:
            self.labels = local.settle_labels(self.labels, with_labels, rng)
        local.settle_orders(len(self.state), lambda: with_labels(self.labels), rng)


def _dealt(
    matcher: Matcher, trials: _Trials, objective: Objective, part: slice, steps: int,
    step_of: Callable[[_Trials, slice, int], torch.Tensor], rng: np.random.Generator,
) -> int:  # fmt: skip
    """Finds which labels are in which batch of the first epoch, in a tournament over the first steps of each trial.

    All ways to deal the labels begin together, and the nearest go on. Few steps are enough to discard most wrong ones.
    They are not enough for two ways that put the same label once into one batch and once into two.

    Returns:
        How many steps were taken, by all trials alike.
    """
    local = matcher.local
    assert local is not None
    turn, won, begun = math.ceil(_TURN * steps), [], 0
    for trial in range(len(trials.state)):
        own, begun = slice(part.start + trial, part.start + trial + 1), 0
        ways = torch.tensor(local.arrangements(trials.labels[trial].tolist(), rng), device=matcher.device)
        entrants = _Trials(trials.state[trial].expand(len(ways), *trials.state.shape[1:]), ways)
        few = min(_ENTRANTS, fitting(matcher))
        with torch.no_grad():
            parts = zip(torch.split(entrants.state, few), torch.split(ways, few), strict=True)
            distance = torch.cat([objective(state, matcher.one_hot(way), own)[1] for state, way in parts])
        for left, turns in ((few, 0), *_TURNS):  # all trials take the same number of steps, whatever the number of ways
            for _ in range(min(turns * turn, steps - begun)):
                begun += 1
                distance = step_of(entrants, own, begun)
            nearest = _nearest(distance, left)
            distance = distance[nearest]
            entrants.keep(nearest)
        won.append(entrants)
    trials.state, trials.labels = torch.cat([each.state for each in won]), torch.cat([each.labels for each in won])
    trials.moments = [torch.cat([each.moments[k] for each in won]) for k in range(2)]
    return begun


def _nearest(distance: torch.Tensor, count: int) -> list[int]:
    """The trials of the smallest distances, nearest first."""
    found: list[int] = distance.nan_to_num(math.inf).argsort(stable=True)[:count].tolist()
    return found


def screening(iterations: int) -> int:
    """Steps after which candidate labels can be told apart: an eighth of all, at least 50."""
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
