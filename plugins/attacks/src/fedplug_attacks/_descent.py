"""Many trials of a candidate batch at once, each descending its own objective with Adam."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from fedplug import stream

from fedplug_attacks import Attacker
from fedplug_attacks._matching import Matcher, Measure, Record

# Gradient entries of all trials that are computed together: 1 GiB in float32, a few times that with their graph.
_AT_ONCE = 1 << 26

# After these shares of the steps, labels and orders of batches that fit better are looked for.
_SETTLED = (0.25, 0.4, 0.55)
# The learning rate of Geiping et al. (2020) falls to a tenth after these shares of the steps.
_MILESTONES = (3 / 8, 5 / 8, 7 / 8)

Objective = Callable[[torch.Tensor, torch.Tensor, slice, float], tuple[torch.Tensor, torch.Tensor]]
"""Of states (T, ...), probabilities of the labels (T, B, K), a slice of the trials, and the share of the steps done:
what to descend, and how far the gradients are from the observed one; both (T,)."""
Judge = Callable[[torch.Tensor, list[int]], tuple[float, float]]
"""The loss of one trial's last state, and the score that ranks it."""


def total_variation(inputs: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference of vertical and of horizontal neighbours, added; (T, B, C, H, W) to (T,)."""
    down, right = (inputs.diff(dim=axis).abs().flatten(1).mean(1) for axis in (-2, -1))
    return down + right


def stepped(lr: float, steps: int) -> list[float]:
    """Learning rates that fall to a tenth at 3/8, 5/8 and 7/8 of the steps (Geiping et al. 2020)."""
    return [lr * 0.1 ** sum(step >= share * steps for share in _MILESTONES) for step in range(steps)]


def cosine(lr: float, steps: int) -> list[float]:
    """Learning rates that fall to 0 along a cosine."""
    return [lr * (1 + math.cos(math.pi * step / steps)) / 2 for step in range(steps)]


@dataclasses.dataclass(frozen=True)
class Matching:
    """What an attack descends to match gradients, and how.

    Attributes:
        measure: the distance of gradients.
        rates: gives the learning rates of this many steps.
        tv: weights of the total variation, each of which is tried.
        penalties: further terms of the objective, each (T,), from inputs (T, B, C, H, W) and the distance of their
            batch norm statistics (T,).
        signed: Adam is given the sign of the gradient only (Geiping et al. 2020).
        at_once: trials computed together; None: as many as fit.
    """

    measure: Measure
    rates: Callable[[int], list[float]]
    tv: tuple[float, ...]
    penalties: Callable[[torch.Tensor, torch.Tensor], Iterator[torch.Tensor]] = lambda inputs, statistics: iter(())
    signed: bool = False
    at_once: int | None = None


def matched(
    matcher: Matcher, attacker: Attacker, matching: Matching, starts: Sequence[torch.Tensor],
    labels: Sequence[list[int]], iterations: int, screened: bool,
) -> tuple[Record, float]:  # fmt: skip
    """Searches for inputs with the observed gradient, with each of the labels, weights and starts.

    Args:
        matcher: of the observed gradient.
        attacker: told of progress.
        matching: what it descends.
        starts: batches (B, C, H, W).
        labels: those to try, of each example of the batch.
        iterations: steps of each trial.
        screened: the labels are chosen after `screening` steps; else all are tried to the end.

    Returns:
        The record, and the weight of the total variation of the trial that came nearest.
    """

    def search(labels: Sequence[list[int]], steps: int) -> tuple[Record, float, list[int]]:
        trials = [(start, weight, each) for each in labels for weight in matching.tv for start in starts]
        weights = torch.tensor([weight for _, weight, _ in trials], device=matcher.device)

        def objective(
            inputs: torch.Tensor, known: torch.Tensor, part: slice, done: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            gradients, statistics = matcher.gradients(inputs, known)
            distance = matcher.distance(matching.measure, gradients)
            value = distance + weights[part] * total_variation(inputs)
            for term in matching.penalties(inputs, statistics):
                value = value + term
            return value, distance

        record = Record(matcher, attacker, measure=matching.measure)
        descent = Descent(
            matcher, record, objective, matching.rates(steps), signed=matching.signed, at_once=matching.at_once
        )
        nearest = descent.run(torch.stack([start for start, _, _ in trials]), [each for _, _, each in trials])[0]
        return record, *trials[nearest.trial][1:]

    if screened and len(labels) > 1:
        labels = [search(labels, screening(iterations))[2]]
    return search(labels, iterations)[:2]


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """The end of one trial: its number, its score (infinite if it diverged), and its state."""

    trial: int
    score: float
    state: torch.Tensor


@dataclasses.dataclass(eq=False)
class Descent:
    """Trials that do not influence each other, unless the objective makes them: each has its own moments of Adam.

    Computing them together changes rounding only.

    Attributes:
        matcher: of the observed gradient.
        record: takes the results.
        objective: the objective to descend.
        rates: learning rate of each step.
        signed: Adam is given the sign of the gradient only.
        at_once: trials computed together; None: as many as fit.
        inputs: the inputs of states, if states are something else; inputs alone are kept in the box of valid pixels,
            and are given labels and orders of batches that fit them better.
        judge: of the last states; None: their distance from the observed gradient.
        more: steps that follow this descent in the record.
    """

    matcher: Matcher
    record: Record
    objective: Objective
    rates: Sequence[float]
    signed: bool = False
    at_once: int | None = None
    inputs: Callable[[torch.Tensor], torch.Tensor] | None = None
    judge: Judge | None = None
    more: int = 0

    def run(self, states: torch.Tensor, labels: Sequence[Sequence[int]]) -> list[Found]:
        """Moves every trial, and offers the results.

        Args:
            states: (T, ...), where the trials start.
            labels: of each trial, of each example.

        Returns:
            The trials in the order of their scores, those that diverged last.
        """
        matcher, steps = self.matcher, len(self.rates)
        local = matcher.local if self.inputs is None else None
        fit = self.at_once or fitting(matcher)
        self.record.total = math.ceil(len(states) / fit) * steps + self.more
        settling = {math.ceil(share * steps) for share in _SETTLED} if local else set()
        rng = stream(matcher.view.seed, "attacks.local_steps")
        found: list[Found] = []
        for first in range(0, len(states), fit):
            part = slice(first, min(first + fit, len(states)))
            known = torch.tensor(labels[part], device=matcher.device)
            trials = _Trials(states[part].detach().clone(), known, first // fit * steps)
            if local is not None:
                local.begin()
            for number in range(1, steps + 1):
                self._step(trials, part, number)
                if number in settling:
                    self._settle(trials, part, rng)
            found += self._offered(trials, part)
        return sorted(found, key=lambda each: each.score)

    def _step(self, trials: _Trials, part: slice, number: int) -> torch.Tensor:
        """One step of Adam, the `number`th; gives the distances (T,) before it."""
        state = trials.state.detach().requires_grad_()
        known = self.matcher.one_hot(trials.labels)
        value, distance = self.objective(state, known, part, (number - 1) / len(self.rates))
        # The sum keeps trials apart: each value depends on its own inputs alone.
        (gradient,) = torch.autograd.grad(value.sum(), state)
        gradient = gradient.sign() if self.signed else gradient
        state = adam(state.detach(), gradient, trials.moments, number, self.rates[number - 1])
        trials.state = state if self.inputs else state.clamp(self.matcher.low, self.matcher.high)
        distance = distance.detach()
        finite = distance[distance.isfinite()]
        self.record.progress(trials.before + number, float(finite.min()) if len(finite) else math.nan)
        return distance

    @torch.no_grad()
    def _distance(self, states: torch.Tensor, labels: torch.Tensor, part: slice) -> torch.Tensor:
        return self.objective(states, self.matcher.one_hot(labels), part, 1.0)[1]

    def _settle(self, trials: _Trials, part: slice, rng: np.random.Generator) -> None:
        """Gives trials the labels and orders that fit their images better."""
        local = self.matcher.local
        assert local is not None
        if trials.labels.shape[1] > 1:
            trials.labels = local.settle_labels(
                trials.labels, lambda labels: self._distance(trials.state, labels, part), rng
            )
        local.settle_orders(len(trials.state), lambda: self._distance(trials.state, trials.labels, part), rng)

    def _offered(self, trials: _Trials, part: slice) -> Iterator[Found]:
        """The ends of the trials, which the record takes."""
        labels = trials.labels.tolist()
        if self.judge is None:
            judged = [(loss, loss) for loss in self._distance(trials.state, trials.labels, part).tolist()]
        else:
            judged = [self.judge(state, each) for state, each in zip(trials.state, labels, strict=True)]
        for number, (state, (loss, score)) in enumerate(zip(trials.state, judged, strict=True)):
            self.record.offer(loss, self.inputs(state) if self.inputs else state, labels[number], score)
            yield Found(part.start + number, score if math.isfinite(score) else math.inf, state)


class _Trials:
    """Trials that descend together: where they are, what Adam remembers, their labels (T, B), and earlier steps."""

    def __init__(self, state: torch.Tensor, labels: torch.Tensor, before: int) -> None:
        self.state, self.labels, self.before = state, labels, before
        self.moments = [torch.zeros_like(state), torch.zeros_like(state)]


def fitting(matcher: Matcher) -> int:
    """Trials that are computed together; of several local steps the graph holds each."""
    steps = matcher.local.schedule.steps if matcher.local else 1
    return max(1, _AT_ONCE // (len(matcher.target) * steps))


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
