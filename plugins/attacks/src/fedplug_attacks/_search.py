"""One search for the inputs behind a gradient. What papers differ in is a class: objective, space, and optimiser.

    Matching        a distance of gradients, total variation and further penalties on inputs; Adam
    MostProbable    the posterior density of latents under a prior; Adam, then the mean over the posterior
    QuasiNewton     the squared distance, labels along with inputs; L-BFGS

Imports torch: attack modules import it inside their methods.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from fedplug import stream

from fedplug_attacks import Attacker, AttackReport
from fedplug_attacks._matching import LocalSteps, Matcher, Measure

if TYPE_CHECKING:
    from fedplug_attacks._priors import GaussianPrior, Penalty

# Gradient entries of all trials that are computed together: 1 GiB in float32, a few times that with their graph.
_AT_ONCE = 1 << 26
# After these shares of the steps, labels and orders of batches that fit better are looked for.
_SETTLED = (0.25, 0.4, 0.55)
# The learning rate of Geiping et al. (2020) falls to a tenth after these shares of the steps.
_MILESTONES = (3 / 8, 5 / 8, 7 / 8)
# Losses that a report keeps.
_REPORTED = 200
# A search fits the observed update if its loss exceeds the noise's share by at most this part of the rest. Total
# variation and rounding keep a good search above 0.
_FITTED = 0.1


def total_variation(inputs: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference of vertical and of horizontal neighbours, added; (T, B, C, H, W) to (T,).

    Columns of a table, (T, B, d), have no neighbours.
    """
    if inputs.ndim < 5:
        return inputs.new_zeros(len(inputs))
    down, right = (inputs.diff(dim=axis).abs().flatten(1).mean(1) for axis in (-2, -1))
    return down + right


def stepped(lr: float, steps: int) -> list[float]:
    """Learning rates that fall to a tenth at 3/8, 5/8 and 7/8 of the steps (Geiping et al. 2020)."""
    return [lr * 0.1 ** sum(step >= share * steps for share in _MILESTONES) for step in range(steps)]


def cosine(lr: float, steps: int) -> list[float]:
    """Learning rates that fall to 0 along a cosine."""
    return [lr * (1 + math.cos(math.pi * step / steps)) / 2 for step in range(steps)]


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


def thinned(losses: Sequence[float]) -> list[float]:
    """At most 200 of the losses, evenly spaced, the first and the last among them."""
    if len(losses) <= _REPORTED:
        return list(losses)
    return [losses[place] for place in np.linspace(0, len(losses) - 1, _REPORTED).round().astype(int)]


@dataclasses.dataclass(eq=False)
class Search:
    """Trials of candidate batches, the best of their results, and the numbers of the report.

    Attributes:
        matcher: of the observed gradient.
        attacker: told of progress.
        measure: names the losses.
        total: steps of all trials.
        best: loss of the best trial.
        score: what the best trial was selected by.
        state: where the best trial ended; None if every trial diverged.
        trial: its number.
        labels: its labels.
        losses: over time.
        searches, diverged: trials that ended, and those of them whose loss became NaN or infinite.
    """

    matcher: Matcher
    attacker: Attacker
    measure: Measure = "squared"
    total: int = dataclasses.field(default=1, init=False)
    best: float = dataclasses.field(default=math.inf, init=False)
    score: float = dataclasses.field(default=math.inf, init=False)
    state: torch.Tensor | None = dataclasses.field(default=None, init=False)
    trial: int = dataclasses.field(default=0, init=False)
    labels: list[int] = dataclasses.field(default_factory=list, init=False)
    losses: list[float] = dataclasses.field(default_factory=list, init=False)
    searches: int = dataclasses.field(default=0, init=False)
    diverged: int = dataclasses.field(default=0, init=False)

    def inputs(self, states: torch.Tensor) -> torch.Tensor:
        """The inputs (..., C, H, W) of states."""
        return states

    def progress(self, done: int, loss: float) -> None:
        """Notes a loss and reports progress; `done` of `total` steps of all trials."""
        self.losses.append(loss)
        self.attacker.progress(min(done, self.total), self.total, loss)

    def offer(
        self, loss: float, state: torch.Tensor, labels: Sequence[int], score: float | None = None, trial: int = 0
    ) -> None:
        """Takes the end of one trial; it is kept if its score (None: its loss) is the lowest so far."""
        score = loss if score is None else score
        self.searches += 1
        if not math.isfinite(loss) or math.isnan(score):
            self.diverged += 1
        elif score < self.score:
            self.best, self.score, self.state = loss, score, state.detach().clone()
            self.labels, self.trial = list(labels), trial

    def report(self, **metrics: float) -> AttackReport:
        """The attack's report. It is selected by the attack's own loss, since the truth is not known here."""
        losses = tuple(thinned(self.losses))
        self.attacker.progress(self.total, self.total, losses[-1] if losses else None)
        common: dict[str, Any] = {
            "seed": self.matcher.view.seed, "gradient_evaluations": self.matcher.evaluations, "losses": losses,
            "metrics": {
                "searches": self.searches, "diverged": self.diverged, "loss": self.best,
                **({"steps_unrolled": self.matcher.local.schedule.steps} if self.matcher.local else {}), **metrics,
            },
        }  # fmt: skip
        if self.state is None:
            reason = f"the loss of every search ({self.searches}) became NaN or infinite"
            return AttackReport("diverged", reason=reason, **common)
        labels = np.array(self.labels, np.int64)
        counts = np.bincount(labels, minlength=self.matcher.view.num_classes)
        images = self.matcher.images(self.inputs(self.state))
        unfit = "; ".join(filter(None, (self.unfit(), self.matcher.estimated)))
        return AttackReport("finished", images=images, labels=labels, counts=counts, unfit=unfit, **common)

    def unfit(self) -> str:
        """Distance between the best search and the observed update, in a clause; empty if noise explains it.

        A search fits its observation if its loss exceeds that of the truth by at most a tenth of the rest. For example,
        noise of ten times the gradient explains 0.9 of a cosine and leaves 0.1 of it.
        """
        floor = self.matcher.floor_of(self.measure)
        if self.best <= floor + _FITTED * max(0.0, 1 - floor):
            return ""
        noise = f", of which noise explains {floor:.2g}" if floor > 0.01 else ""
        return f"the best search ended with a mismatch of {self.best:.2g}{noise}; more steps may find more"


@dataclasses.dataclass(eq=False, kw_only=True)
class Descent(Search, abc.ABC):
    """Trials that descend side by side, each with its own moments of Adam. Computing them together changes rounding
    only.

    Attributes:
        rates: gives the learning rates of this many steps.
        tv: weights of the total variation, each of which is tried.
        signed: Adam is given the sign of the gradient only (Geiping et al. 2020).
        at_once: trials computed together; None: as many as fit.
        more: steps that follow the descent.
        weights: (T,), of the total variation in the trials that are being computed.
    """

    rates: Callable[[int], Sequence[float]]
    tv: Sequence[float] = (0.0,)
    signed: bool = False
    at_once: int | None = None
    more: int = 0
    weights: torch.Tensor = dataclasses.field(default_factory=lambda: torch.zeros(1), init=False)

    in_box: ClassVar[bool] = True
    """Whether states are inputs: they stay in the box of valid pixels, and get better labels and orders of batches."""

    @abc.abstractmethod
    def objective(
        self, states: torch.Tensor, known: torch.Tensor, done: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What to descend, and how far the gradients are from the observed one; both (T,).

        Args:
            states: (T, ...).
            known: (T, B, K), probabilities of the labels.
            done: the share of the steps that are done.
        """

    @torch.no_grad()
    def distance(self, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """How far the gradients at states (T, ...) with labels (T, B) are from the observed one; (T,)."""
        return self.objective(states, self.matcher.one_hot(labels), 1.0)[1]

    def judged(self, states: torch.Tensor, labels: torch.Tensor) -> list[tuple[float, float]]:
        """The loss of each trial's last state, and the score that ranks it."""
        return [(loss, loss) for loss in self.distance(states, labels).tolist()]

    def run(
        self, starts: Sequence[torch.Tensor], labels: Sequence[Sequence[int]], iterations: int, screened: int = 0
    ) -> Self:
        """Moves a trial for each of the labels, weights and starts, and keeps the best.

        Args:
            starts: states (...) to start from.
            labels: those to try, of each example of the batch.
            iterations: steps of each trial.
            screened: starts with which an eighth of the steps (at least 50) choose among the labels first; 0: all
                labels are tried to the end.
        """
        if screened and len(labels) > 1:
            few = max(iterations // 8, min(iterations, 50))
            tried = dataclasses.replace(self, more=0).run(starts[:screened], labels, few)
            labels = [labels[tried.trial // (len(self.tv) * screened)]]
        trials = [(start, weight, each) for each in labels for weight in self.tv for start in starts]
        local = self.matcher.local
        fit = self.at_once or max(1, _AT_ONCE // (len(self.matcher.target) * (local.schedule.steps if local else 1)))
        self.total = math.ceil(len(trials) / fit) * iterations + self.more
        rng = stream(self.matcher.view.seed, "attacks.local_steps")
        for first in range(0, len(trials), fit):
            begun, weights, given = zip(*trials[first : first + fit], strict=True)
            self.weights = torch.tensor(weights, device=self.matcher.device)
            known = torch.tensor(given, device=self.matcher.device)
            states, known = self._descended(torch.stack(begun).detach(), known, iterations, first // fit, rng)
            ends = zip(states, known.tolist(), self.judged(states, known), strict=True)
            for number, (state, each, (loss, score)) in enumerate(ends, start=first):
                self.offer(loss, state, each, score, number)
        return self

    def _descended(
        self, states: torch.Tensor, labels: torch.Tensor, iterations: int, before: int, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States (T, ...) after their steps, and their labels (T, B); `before` such groups went before."""
        matcher, local = self.matcher, self.matcher.local if self.in_box else None
        settling = {math.ceil(share * iterations) for share in _SETTLED} if local else set()
        moments = [torch.zeros_like(states), torch.zeros_like(states)]
        if local is not None:
            local.begin()
        for number, rate in enumerate(self.rates(iterations), start=1):
            states.requires_grad_()
            value, distance = self.objective(states, matcher.one_hot(labels), (number - 1) / iterations)
            # The sum keeps trials apart: each value depends on its own inputs alone.
            (gradient,) = torch.autograd.grad(value.sum(), states)
            gradient = gradient.sign() if self.signed else gradient
            states = adam(states.detach(), gradient, moments, number, rate)
            states = states.clamp(matcher.low, matcher.high) if self.in_box else states
            finite = distance.detach()[distance.isfinite()]
            self.progress(before * iterations + number, float(finite.min()) if len(finite) else math.nan)
            if local is not None and number in settling:
                labels = self._settled(local, states, labels, rng)
        return states, labels

    def _settled(
        self, local: LocalSteps, states: torch.Tensor, labels: torch.Tensor, rng: np.random.Generator
    ) -> torch.Tensor:
        """Labels that fit the states better, after which orders are found that do."""
        if labels.shape[1] > 1:
            labels = local.settle_labels(labels, lambda other: self.distance(states, other), rng)
        local.settle_orders(len(states), lambda: self.distance(states, labels), rng)
        return labels


@dataclasses.dataclass(eq=False, kw_only=True)
class Matching(Descent):
    """Descends a distance of gradients, plus total variation and penalties.

    Attributes:
        penalties: further terms of the objective, each (T,), from inputs (T, B, C, H, W) and the distance of their
            batch norm statistics (T,).
    """

    penalties: Callable[[torch.Tensor, torch.Tensor], Iterator[torch.Tensor]] = lambda inputs, statistics: iter(())

    def objective(
        self, states: torch.Tensor, known: torch.Tensor, done: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The penalised distance, and the distance; (T,) each."""
        gradients, statistics = self.matcher.gradients(states, known)
        distance = self.matcher.distance(self.measure, gradients)
        value = distance + self.weights * total_variation(states)
        for term in self.penalties(states, statistics):
            value = value + term
        return value, distance


# Learning rates of a search for latents; the first is in standard deviations of the prior.
_FALLING = functools.partial(cosine, 0.1)
# Steps from the mode to the mean, pairs of draws in each, the share of the curvature that each keeps, and the number
# and width of the first draws.
_SOFTENED, _PAIRS, _KEPT, _PROBES, _PROBE = 200, 1, 0.98, 16, 0.05
# Nats per number of an image from which on the mode is as good as the mean; nats below which an image counts as
# unknown.
_CERTAIN, _LEAST = 2.0, 2.0


@dataclasses.dataclass(eq=False, kw_only=True)
class MostProbable(Descent):
    """Descends the negative log density of latents u given the observation, u = 0 being the mean image.

    The noise counts as larger at first, and shrinks to its true size over the first half of the steps. So the prior
    leads early, and the likelihood has no narrow valleys.

    Attributes:
        prior: of one example.
        penalty: further log density of candidates.
        heat: (T,), the factor by which the variance of the noise is enlarged at first.
    """

    prior: GaussianPrior
    rates: Callable[[int], Sequence[float]] = _FALLING
    penalty: Penalty = torch.zeros_like
    heat: torch.Tensor = dataclasses.field(default_factory=lambda: torch.ones(1), init=False)

    in_box = False

    def found(self, labels: Sequence[Sequence[int]], iterations: int, restarts: int = 1) -> AttackReport:
        """The most probable inputs for each candidate of the labels; for the best ones the posterior mean.

        Its `information` is that about the images in the observation, in nats.

        Args:
            labels: those to try, of each example of the batch.
            iterations: steps of each trial.
            restarts: starts for each of the labels; the first at the mean image.
        """
        self.more = min(iterations, _SOFTENED)
        starts = [self._start(number) for number in range(restarts)]
        self.run(starts, labels, iterations, screened=int(self.matcher.batch > 1))
        return self.report(information=0.0 if self.state is None else self._soften(self.state))

    def inputs(self, states: torch.Tensor) -> torch.Tensor:
        """Of latents."""
        return self.prior.inputs(states)

    def objective(
        self, states: torch.Tensor, known: torch.Tensor, done: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The negative log density up to a constant, and the squared distance; (T,) each."""
        if not done:  # so large that the whole observation counts like one number for each latent
            with torch.no_grad():
                misfit = self._energies(states, known)[1]
            self.heat = (2 * misfit / states[0].numel()).nan_to_num(1.0, 1.0, 1.0).clamp_min(1.0)
        gradients, misfit, penalty = self._energies(states, known)
        value = misfit / self.heat ** max(0.0, 1 - 2 * done) + 0.5 * states.square().flatten(1).sum(1) + penalty
        return value, self.matcher.squared(gradients.detach())

    def _energies(
        self, states: torch.Tensor, known: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The gradients at latents (T, B, *shape), their misfit (T,), and the penalty (T,)."""
        gradients, statistics = self.matcher.gradients(self.prior.inputs(states), known)
        return gradients, self.matcher.misfit(gradients), self.penalty(statistics)

    def _start(self, number: int) -> torch.Tensor:
        """Latents near the mean image. A little noise tells equal examples apart, which would have equal gradients."""
        matcher = self.matcher
        width = 0.0 if matcher.batch == 1 and not number else 0.5 if number else 0.1
        drawn = stream(matcher.view.seed, "attacks.priors", number).standard_normal((matcher.batch, *self.prior.shape))
        return width * torch.from_numpy(drawn).to(matcher.device, matcher.dtype)

    @torch.no_grad()
    def judged(self, states: torch.Tensor, labels: torch.Tensor) -> list[tuple[float, float]]:
        """The squared distance of each trial, and its negative log density up to a constant."""
        ends = []
        for state, known in zip(states, self.matcher.one_hot(labels), strict=True):
            gradients, misfit, penalty = self._energies(state[None], known[None])
            ends.append((float(self.matcher.squared(gradients)), float(misfit + 0.5 * state.square().sum() + penalty)))
        return ends

    def _soften(self, state: torch.Tensor) -> float:
        """Moves from the most probable inputs to their mean, which has the least squared error if much is open.

        Latents are taken for independent and normal around m with variances 1 / (1 + h), and m and h for those that
        come nearest to the posterior (variational Bayes): h is the mean second derivative of the misfit over them, from
        pairs of draws on both sides of m, and m descends the mean over them. An image of which less than two nats are
        known is set to the mean image, which is exact.

        Returns:
            The information about the images in the observation, in nats: half the sum of log(1 + h).
        """
        rng = torch.Generator().manual_seed(self.matcher.view.seed % 2**63)
        given = torch.tensor([self.labels], device=self.matcher.device)
        known = self.matcher.one_hot(given).expand(2 * _PAIRS, -1, -1)
        curvature = self._curvature(state, known, rng)
        told = _told(curvature)
        if bool((told > _CERTAIN * state[0].numel()).all()):
            return float(told.sum())
        found, moments = state.clone(), [torch.zeros_like(state), torch.zeros_like(state)]
        for step, rate in enumerate(self.rates(self.more), start=1):
            slope, fresh, loss = self._sides(found, curvature, known, rng)
            curvature = (_KEPT * curvature + (1 - _KEPT) * fresh).clamp_min(0.0)
            found = adam(found, slope + found, moments, step, rate)
            self.progress(self.total - self.more + step, loss)
        told = _told(curvature)
        found = torch.where(
            (told < _LEAST).reshape(-1, *[1] * len(self.prior.shape)), torch.zeros_like(found), found
        )
        # Its lower density concerns single points and does not make it a worse answer, so it replaces the mode.
        self.offer(self.judged(found[None], given)[0][0], found, self.labels, -math.inf, self.trial)
        return float(told.sum())

    def _curvature(self, state: torch.Tensor, known: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        """The second derivative of the misfit by each latent at the mode, at steps no longer than what is open."""
        curvature = torch.zeros_like(state)
        for number in range(1, _PROBES + 1):
            fresh = self._sides(state, torch.full_like(state, _PROBE**-2 - 1), known, rng)[1]
            curvature += (fresh - curvature) / number
        return curvature.clamp_min(0.0)

    def _sides(
        self, state: torch.Tensor, curvature: torch.Tensor, known: torch.Tensor, rng: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Mean slope and second derivative of the misfit over latents around a state; the least squared distance."""
        width = (1 + curvature).rsqrt()
        drawn = torch.randn((_PAIRS, *state.shape), generator=rng).to(state.device, state.dtype)
        drawn = torch.cat([drawn, -drawn])
        points = (state + width * drawn).requires_grad_()
        gradients, misfit, penalty = self._energies(points, known)
        (slopes,) = torch.autograd.grad((misfit + penalty).sum(), points)
        loss = float(self.matcher.squared(gradients.detach()).min())
        return slopes.mean(0), (slopes * drawn).mean(0) / width, loss


def _told(curvature: torch.Tensor) -> torch.Tensor:
    """The information about each image beyond the prior, in nats; (B, *shape) to (B,)."""
    return 0.5 * torch.log1p(curvature).flatten(1).sum(1)


# Quasi-Newton iterations in one outer step, as in the published code (torch's own number).
_INNER = 20
# A search ends if it has not improved by this share in this many outer steps: at that pace the rest would not halve its
# loss.
_STALLED, _PATIENCE = 1e-2, 5
# With a smaller loss (0.01% of the gradient's length) the examples are found. The search then improves slowly without
# end, so it stops once steps gain little, and no other start is tried.
_FOUND, _CREEPS = 1e-8, 0.3
# Outer steps after which the order of batches is searched again.
_SETTLING = 5


@dataclasses.dataclass(eq=False, kw_only=True)
class QuasiNewton(Search):
    """Descends the squared distance with L-BFGS, one trial after the other, and ends once one has found the examples.

    Attributes:
        init: as of `Matcher.start`.
        lr: step size.
        line_search: whether steps are searched along their line; else they have a fixed size.
        tolerance: a loss that ends the search.
    """

    init: str
    lr: float
    line_search: bool
    tolerance: float

    def run(self, restarts: int, classes: Sequence[int], iterations: int) -> Self:
        """Searches from random starts.

        Args:
            restarts: their number, at most.
            classes: labels that each trial gives all examples, in turn; none: labels are optimised, too.
            iterations: outer steps of a trial, each of up to 20 L-BFGS iterations.
        """
        matcher, trials = self.matcher, max(restarts, len(classes))
        self.total = trials * iterations
        for number in range(trials):
            known = matcher.one_hot([[classes[number % len(classes)]] * matcher.batch]) if classes else None
            self._trial(number, known, iterations)
            # Below the loss that noise and rounding leave at the truth, another start cannot do better.
            if self.best <= max(self.tolerance, matcher.floor, _FOUND):
                break
        return self

    def _trial(self, number: int, known: torch.Tensor | None, iterations: int) -> None:
        """One search from a random start; its best state is its end."""
        matcher, local = self.matcher, self.matcher.local
        rng = stream(matcher.view.seed, "attacks.dlg", number)
        if local is not None:
            local.begin()
        inputs = matcher.start(rng, self.init, self.attacker.facts.public)[None].requires_grad_()
        logits = torch.from_numpy(rng.standard_normal((1, matcher.batch, matcher.view.num_classes)))
        logits = logits.to(inputs.device, inputs.dtype).requires_grad_(known is None)
        variables = [inputs] if known is not None else [inputs, logits]
        optimiser = torch.optim.LBFGS(
            variables,
            lr=self.lr,
            max_iter=_INNER,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe" if self.line_search else None,
        )

        def labels() -> torch.Tensor:
            return logits.softmax(-1) if known is None else known

        def distance() -> torch.Tensor:
            return matcher.squared(matcher.gradients(inputs, labels())[0])

        def closure() -> torch.Tensor:
            loss = distance()[0]
            for variable, gradient in zip(variables, torch.autograd.grad(loss, variables), strict=True):
                variable.grad = gradient
            return loss.detach()

        best, kept, told, since, reference = math.inf, inputs.detach().clone(), labels().detach(), 0, math.inf
        for step in range(iterations):
            before: Any = inputs.detach().clone(), labels().detach()
            loss = float(optimiser.step(closure))  # type: ignore[no-untyped-call]  # the loss before
            self.progress(number * iterations + step + 1, loss)
            if not math.isfinite(loss):
                self.offer(math.nan, inputs, [])
                return
            if loss < best:
                best, (kept, told) = loss, before
            found = reference <= _FOUND
            since = 0 if loss < (1 - (_CREEPS if found else _STALLED)) * reference else since + 1
            reference = min(reference, loss) if since == 0 else reference
            if best <= self.tolerance or since >= (1 if found else _PATIENCE):
                break
            if local is not None and step % _SETTLING == _SETTLING - 1:
                local.settle_orders(1, distance, rng)
        self.offer(best, kept[0], told[0].argmax(-1).tolist())
