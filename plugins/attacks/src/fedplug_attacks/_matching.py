"""Gradients of the model at candidate inputs, and their distance from an observed update.

Shared by the attacks that search for inputs whose gradient looks like the observed one. Imports torch: attack modules
import it inside their methods.

The mean gradient behind an update of several steps is an estimate, which gets worse the farther a client moves. The
public facts about the trainer (`Meaning`) are enough to take the steps themselves and to compare their result (Geiping
et al. 2020, sec. 6.2), with every step in the graph. Only the order of the examples is unknown where an epoch has
several batches. At first each step takes all candidates, which is the mean over the orders; once the candidates show
images, the batches that fit them best are searched for.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from fedplug import stream
from fedplug_std.torch_model import to_tensor, use_one_thread
from fedplug_std.training import batch_slices
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from fedplug_attacks import Attacker, Meaning, ObservedUpdate, Seen, View
from fedplug_attacks._public import Clips, least_sigma_of, with_noise

if TYPE_CHECKING:
    from fedplug import PublicData
    from numpy.typing import NDArray

    Loss = Callable[[Mapping[str, torch.Tensor], torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    """Mean loss of a batch at some parameters, and how far its batch norm statistics are from the public ones."""
    Slope = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    """The gradient (P,) of that loss at parameters (P,), and the same distance."""

# Bytes of the graph of a trial's steps, and steps, up to which they are unrolled; of more, a search takes hours.
_GRAPH_BYTES, _MOST_STEPS = 1 << 32, 256
# Copies of the parameters that the graph of a step holds: the point, its gradient, and the derivatives through both.
_COPIES = 6
# Changes of an order, or of labels, that are tried at a time: of more, random ones; and how often epochs take turns.
_CHANGES, _TURNS = 40, 3


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The steps behind one update.

    Attributes:
        epochs: times through the examples.
        lengths: examples of each batch of an epoch.
        lr, momentum, weight_decay: of every step; momentum starts at 0.
        reach: how many times a gradient that stays the same is in the update, by which an estimate divides it.
    """

    epochs: int
    lengths: tuple[int, ...]
    lr: float
    momentum: float
    weight_decay: float
    reach: float

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.epochs * len(self.lengths)

    @property
    def shuffled(self) -> bool:
        """Whether it matters in which order a client took its examples."""
        return len(self.lengths) > 1


def schedule_of(meaning: Meaning, module: torch.nn.Module) -> Schedule | None:
    """The steps behind an update; None where it is a single one, or where the trainer does not say enough.

    Batches are cut as in `std.sgd`: the last one holds the remaining examples. If the model has batch norm, a single
    remaining example joins the batch before.
    """
    count, reach = meaning.examples, meaning.reach
    if not count or not meaning.steps or not meaning.lr or not reach or meaning.steps == 1:
        return None
    size = min(meaning.batch_size or count, count)
    epochs, rest = divmod(meaning.steps, math.ceil(count / size))
    if rest or meaning.epochs not in (None, epochs):
        return None
    norm = any(isinstance(part, _BatchNorm) for part in module.modules())
    slices = batch_slices(count, size, merge_single=norm)
    lengths = tuple(part.stop - part.start for part in slices)
    return Schedule(epochs, lengths, meaning.lr, meaning.momentum, meaning.weight_decay, reach)


def too_long(schedule: Schedule, parameters: int, width: int) -> str:
    """Why the steps are not unrolled, in a clause; empty if they are.

    Args:
        schedule: the steps.
        parameters: P, of the model.
        width: bytes of a number.
    """
    size = schedule.steps * parameters * width * _COPIES
    if size <= _GRAPH_BYTES and schedule.steps <= _MOST_STEPS:
        return ""
    why = f"unrolling takes {size / 2**30:.1f} GiB" if size > _GRAPH_BYTES else f"at most {_MOST_STEPS} are unrolled"
    return f"{schedule.steps} local steps were taken for one mean gradient, which is an estimate: {why}"


class LocalSteps:
    """Takes the steps of a schedule from the public model, on candidates; a gradient is one step of length 1.

    Args:
        schedule: the steps.
        parameters: of the public model, by name.
        loss: of a batch at other parameters.

    Attributes:
        orders: int64 (T, epochs, B), of each trial the order in which an epoch takes its candidates; (1, ...) counts
            for all trials. None: each step takes all of them.
    """

    def __init__(self, schedule: Schedule, parameters: Mapping[str, torch.Tensor], loss: Loss) -> None:
        self.schedule, self._loss = schedule, loss
        self._shapes = {name: tensor.shape for name, tensor in parameters.items()}
        self._sizes = [tensor.numel() for tensor in parameters.values()]
        self._start = torch.cat([tensor.reshape(-1) for tensor in parameters.values()])
        self.count = sum(schedule.lengths)
        self.begin()

    def begin(self) -> None:
        """Forgets the orders of earlier trials."""
        self.orders: torch.Tensor | None = None

    def gradients(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The movement from the public model by the steps, divided by -reach: (T, P), in the units of a gradient.

        Args:
            inputs: (T, B, C, H, W).
            labels: (T, B, K), probabilities.

        Returns:
            This movement, differentiable, and (T,) the mean over the steps of the distance of batch norm statistics.
        """
        lengths = list(self.schedule.lengths) * self.schedule.epochs
        orders = self.orders
        if orders is not None:
            places = orders.flatten(1).to(inputs.device).expand(len(inputs), -1)
            trials = torch.arange(len(inputs), device=inputs.device)[:, None]
            inputs, labels = inputs[trials, places], labels[trials, places]

        def path(of_batch: Slope, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if orders is None:
                return self._path(of_batch, [inputs] * len(lengths), [labels] * len(lengths))
            return self._path(of_batch, torch.split(inputs, lengths), torch.split(labels, lengths))

        if len(inputs) == 1:  # the same numbers without the cost of torch.func
            moved, penalty = path(self._of_batch, inputs[0], labels[0])
            return moved[None], penalty[None]
        of_batch = torch.func.grad(self._flat_loss, has_aux=True)
        moved, penalties = torch.func.vmap(functools.partial(path, of_batch))(inputs, labels)
        return moved, penalties

    def _of_batch(
        self, here: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A `Slope` for a single trial."""
        differentiable = torch.is_grad_enabled() and any(part.requires_grad for part in (here, inputs, labels))
        with torch.enable_grad():
            point = here if here.requires_grad else here.detach().requires_grad_()
            loss, penalty = self._flat_loss(point, inputs, labels)
            (gradient,) = torch.autograd.grad(loss, point, create_graph=differentiable, retain_graph=differentiable)
        return gradient, penalty if differentiable else penalty.detach()

    def _path(
        self, of_batch: Slope, inputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All steps of one trial, on batches in the order in which they are taken."""
        plan = self.schedule
        moved, velocity, penalties = torch.zeros_like(self._start), None, []
        for batch, answers in zip(inputs, labels, strict=True):
            here = self._start + moved
            gradient, penalty = of_batch(here, batch, answers)
            gradient = gradient + plan.weight_decay * here if plan.weight_decay else gradient
            velocity = gradient if velocity is None or not plan.momentum else plan.momentum * velocity + gradient
            moved = moved - plan.lr * velocity
            penalties.append(penalty)
        return moved / -plan.reach, torch.stack(penalties).mean()

    def _flat_loss(
        self, flat: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        parts = zip(self._shapes.items(), torch.split(flat, self._sizes), strict=True)
        return self._loss({name: part.view(shape) for (name, shape), part in parts}, inputs, labels)

    @torch.no_grad()
    def settle_orders(self, trials: int, distance: Callable[[], torch.Tensor], rng: np.random.Generator) -> None:
        """Gives every epoch the batches that bring a trial nearest, by swaps of two candidates, epoch after epoch.

        Args:
            trials: T.
            distance: (T,), of the trials from the observed update, with the given orders.
            rng: chooses among many swaps.
        """
        if not self.schedule.shuffled:
            return
        if self.orders is None:
            self.orders = torch.arange(self.count).repeat(1, self.schedule.epochs, 1)
        orders = self.orders = self.orders.expand(trials, -1, -1).clone()
        least = distance().cpu()
        batch = np.repeat(np.arange(len(self.schedule.lengths)), self.schedule.lengths)
        pairs = [pair for pair in itertools.combinations(range(self.count), 2) if batch[pair[0]] != batch[pair[1]]]
        for _ in range(_TURNS):
            before = least
            for epoch in range(self.schedule.epochs):
                for place in rng.permutation(len(pairs))[:_CHANGES]:
                    here, there = pairs[place]
                    self.orders = orders.clone()
                    self.orders[:, epoch, [here, there]] = orders[:, epoch, [there, here]]
                    found = distance().cpu()
                    better = found < least
                    orders = torch.where(better[:, None, None], self.orders, orders)
                    least = torch.where(better, found, least)
            self.orders = orders
            if bool((least == before).all()):
                break

    @torch.no_grad()
    def settle_labels(
        self, labels: torch.Tensor, distance: Callable[[torch.Tensor], torch.Tensor], rng: np.random.Generator
    ) -> torch.Tensor:
        """Labels (T, B) that bring a trial nearest, by replacing a repeated label with another one.

        The last layer shows which classes occur. It is less clear about which of them occur twice.

        Args:
            labels: (T, B).
            distance: (T,), of the trials from the observed update, with these labels.
            rng: chooses the changes to try if there are many.
        """
        changes, least = list(itertools.permutations(range(self.count), 2)), None
        for place in rng.permutation(len(changes))[:_CHANGES]:
            here, like = changes[place]
            may = (labels[:, here] != labels[:, like]) & ((labels == labels[:, here, None]).sum(1) > 1)
            if not may.any():
                continue
            least = distance(labels) if least is None else least
            other = labels.clone()
            other[:, here] = labels[:, like]
            found = distance(other)
            better = (found < least) & may
            labels, least = torch.where(better[:, None], other, labels), torch.where(better, found, least)
        return labels


# Relative to the size of a gradient entry: how precisely a clear entry can be matched. It bounds the weight that an
# entry without noise has over one with noise of a known standard deviation.
_PRECISION = 1e-2
# Standard deviations by which the energy of noise may be above its mean.
_CHANCE = 3.0

Measure = Literal["squared", "distance", "cosine"]
"""How a search states its loss: `Matcher.squared`, its root, or `Matcher.cosine`."""


def scale_of(
    view: View, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, ...]:
    """Mean and spread of each channel, (C, 1, 1), or column, (d,), and standardised values of black and of white.

    These are infinite for rows of a table, and for inputs that nothing standardises: their range is not known.
    """
    each = (-1, *[1] * (len(view.shape) - 1))
    mean, std = (
        torch.tensor(given or (nothing,), device=device, dtype=dtype).view(each)
        for given, nothing in ((view.mean, 0.0), (view.std, 1.0))
    )
    if len(view.shape) > 1 and view.mean:
        return mean, std, -mean / std, (1 - mean) / std
    return mean, std, torch.full_like(mean, -torch.inf), torch.full_like(mean, torch.inf)


class Matcher:
    """The attacker's copy of the model, the target gradient, and the distance of candidates to that gradient.

    Candidates are trials of whole batches: inputs (T, B, C, H, W), standardised, and label probabilities (T, B, K).
    All trials are computed at once with `torch.func.vmap`, and do not influence each other.

    In the adaptive form a distance is a sum over visible entries; where the noise on them differs, entry i has weight 1
    / (sigma_i^2 + (0.01 r)^2), r being the root mean square of the visible gradient, relative to the largest weight. If
    the size of the noise is not stated, its lower bound is the excess over the length that a clip allows. In the naive
    form all entries count, and hidden ones are treated as 0. In both, the gradient of a candidate is clipped before the
    comparison, since clips are public (`ObservedUpdate.clips`): layer by layer if each has a norm.

    For an update of several steps, all steps are repeated on a candidate in one graph. The updates themselves are then
    compared (`local`), in the units of a mean gradient. If the trainer does not declare enough for that, or there are
    too many steps (`estimated`), the update counts as one mean gradient.

    The copy computes gradients in the mode that the update's meaning states. In training mode batch norm uses the
    statistics of the candidate batch, except for a batch of one, which std.sgd trains with the running statistics.
    Dropout is always off, since the dropped values are unknown.

    Args:
        view: with an update of one client and the model it was made from.
        form: `adaptive` or `naive`.
        batch: B, examples in a candidate batch.
        device: torch device.
        double: compute in float64.

    Raises:
        ViewError: the gradient cannot be estimated from the update: learning rate or number of steps are not known.

    Attributes:
        update: the estimate of the gradient, as it was observed.
        target: (P,) the same, with 0 in hidden places.
        weight: (P,) of each entry in a distance, 0 to 1.
        low, high: (C, 1, 1) standardised values of a black and a white pixel; infinite where inputs are no pixels.
        floor: the squared distance that noise of the known size and float32 rounding leave at the true examples.
        evaluations: gradients computed so far.
        local: the steps, where there are several; None where a gradient is matched.
        estimated: why several steps are not repeated, in a clause; else empty.
        normalised: the number of running statistics of the model.
    """

    def __init__(self, view: View, form: str, batch: int, device: str, double: bool = False) -> None:
        use_one_thread()
        self.view, self.form, self.batch, self.device = view, form, batch, torch.device(device)
        self.dtype = torch.float64 if double else torch.float32
        self.update: ObservedUpdate = view.observed.as_gradient(view.vector)
        schedule = schedule_of(view.observed.meaning, view.model.module)
        self.estimated = too_long(schedule, self.update.layout.size, self.dtype.itemsize) if schedule else ""
        schedule = None if self.estimated else schedule
        # Repeated steps decay as the client's did; an estimate has the decay subtracted.
        seen = self.update if schedule is None else view.observed.as_gradient()
        self.target = torch.from_numpy(seen.dense(0.0)).to(self.device, self.dtype)
        weight = _weights(self.update) if form == "adaptive" else np.ones(self.update.layout.size)
        self.weight = torch.from_numpy(weight).to(self.device, self.dtype)
        self._clips = Clips(self.update.clips, self.update.layout, self.device, self.dtype)
        # Decay that a clip may have scaled together with the gradient, so that it could not be subtracted.
        decay = self.update.meaning.weight_decay
        self._decay = None
        if decay and view.vector is not None and schedule is None:
            self._decay = torch.from_numpy(decay * view.vector).to(self.device, self.dtype)
        self._norm = (self.weight * self.target.square()).sum()
        self.floor = float((weight * _variance(view, self.update)).sum() / self._norm)
        self.mean, self.std, self.low, self.high = scale_of(view, self.device, self.dtype)
        self.evaluations = 0
        weights = self.update.meaning.class_weights
        self._class_weights = None if weights is None else torch.tensor(weights, device=self.device, dtype=self.dtype)
        taken = schedule or Schedule(1, (batch,), 1.0, 0.0, 0.0, 1.0)
        self._prepare(view.model.module, self.update.meaning.training_mode, single=max(taken.lengths) == 1)
        self._steps = LocalSteps(taken, self._parameters, self._loss)
        self.local = self._steps if schedule else None

    @property
    def parts(self) -> Sequence[Matcher]:
        """The matchers of single rounds."""
        return [self]

    @classmethod
    def of(cls, view: View, form: str, attacker: Attacker, double: bool = False) -> Matcher:
        """A matcher of as many examples as are behind the update, or of one."""
        return cls(view, form, view.observed.meaning.examples or 1, attacker.device, double)

    def _prepare(self, module: torch.nn.Module, training: bool, single: bool) -> None:
        self.module = copy.deepcopy(module).to(self.device, self.dtype).train(training)
        self._parameters = {
            name: tensor.detach() for name, tensor in self.module.named_parameters() if tensor.requires_grad
        }
        self._penalties: list[torch.Tensor] = []
        self.normalised = 0
        for part in self.module.modules():
            if isinstance(part, _DropoutNd):
                part.eval()
            if not isinstance(part, _BatchNorm) or part.running_mean is None or part.running_var is None:
                continue
            self.normalised += 2 * len(part.running_mean)
            public = part.running_mean.clone(), part.running_var.clone()
            part.register_forward_pre_hook(self._statistics_hook(*public))
            if training and not single:
                # The same outputs without updating running statistics.
                part.track_running_stats = False
                part.running_mean = part.running_var = part.num_batches_tracked = None
            else:
                part.eval()

    def _statistics_hook(self, mean: torch.Tensor, variance: torch.Tensor) -> Any:
        def compare(part: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            axes = [axis for axis in range(inputs[0].ndim) if axis != 1]
            here = inputs[0].mean(axes), inputs[0].var(axes, unbiased=False)
            self._penalties.append((here[0] - mean).norm() + (here[1] - variance).norm())

        return compare

    def gradients(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of the mean cross entropy with respect to the model, or where local steps lead; differentiable.

        Args:
            inputs: (T, B, C, H, W).
            labels: (T, B, K), probabilities.

        Returns:
            Gradients (T, P), and (T,) the distance of each trial's batch statistics from the public running ones: the
            sum over batch norm layers of |mean - running mean| + |variance - running variance| (Yin et al. 2021,
            eq. 9); 0 where the model has no such layers.
        """
        self.evaluations += len(inputs) * self._steps.schedule.steps
        return self._steps.gradients(inputs, labels)

    def _loss(
        self, parameters: Mapping[str, torch.Tensor], inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self._penalties.clear()
        logits = torch.func.functional_call(self.module, dict(parameters), (inputs,))
        penalty = sum(self._penalties, logits.new_zeros(()))
        self._penalties.clear()
        if self._class_weights is None:
            return -(labels * logits.log_softmax(-1)).sum(-1).mean(), penalty
        weighted = labels * self._class_weights
        return -(weighted * logits.log_softmax(-1)).sum() / weighted.sum(), penalty

    def squared(self, gradients: torch.Tensor) -> torch.Tensor:
        """Sum of squared differences relative to the observed gradient's own sum of squares; (T, P) to (T,)."""
        gradients = self._sent(gradients)
        return (self.weight * (gradients - self.target).square()).sum(1) / self._norm

    def cosine(self, gradients: torch.Tensor) -> torch.Tensor:
        """One minus the cosine between candidate and observed gradient, over the entries that count; (T, P) to (T,)."""
        gradients = self._sent(gradients)
        along = (gradients * (self.weight * self.target)).sum(1)
        return 1 - along / ((self.weight * gradients.square()).sum(1) * self._norm).sqrt()

    def distance(self, measure: Measure, gradients: torch.Tensor) -> torch.Tensor:
        """The distance from the observed gradient by a measure; (T, P) to (T,)."""
        if measure == "cosine":
            return self.cosine(gradients)
        squared = self.squared(gradients)
        return squared if measure == "squared" else squared.clamp_min(1e-24).sqrt()

    def misfit(self, gradients: torch.Tensor) -> torch.Tensor:
        """Negative log likelihood of the observed update, in nats, up to a constant; (T, P) to (T,)."""
        return 0.5 * (self.precision * (self._sent(gradients) - self.target).square()).sum(1)

    @functools.cached_property
    def precision(self) -> torch.Tensor:
        """One over the variance of the error of each entry, (P,); 0 where it does not count.

        Noise of unstated size is estimated from the update (`sigma_of`). Clear entries are off by rounding, and by 1e-3
        of their size, so that a search can end.
        """
        update = with_noise(self.update)
        size = np.square(_rms(update.values[update.states[update.visible] == Seen.CLEAR]) * 1e-3)
        variance = _variance(self.view, update) + max(size, float(np.finfo(np.float32).tiny))
        counts = update.visible
        if self.form == "naive":  # all entries count alike, hidden ones too
            variance = np.full_like(variance, variance[counts].mean() if counts.any() else 1.0)
            counts = np.ones_like(counts)
        return torch.from_numpy(np.where(counts, 1 / variance, 0.0)).to(self.device, self.dtype)

    @functools.cached_property
    def noise(self) -> float:
        """The share of noise, stated or estimated, in the observed update; entries count by their precision."""
        return float((self.precision > 0).sum() / (self.precision * self.target.square()).sum())

    def floor_of(self, measure: Measure) -> float:
        """Upper bound of a loss at the true examples under noise of the known size, except for one time in 1000."""
        terms = max(1, int((self.weight > 0).sum()))
        squared = self.floor * (1 + _CHANCE * math.sqrt(2 / terms))
        # The observation is the truth plus orthogonal noise: its cosine with the truth is sqrt(1 - squared).
        cosine = 1 - math.sqrt(max(0.0, 1 - squared))
        return {"squared": squared, "distance": math.sqrt(squared), "cosine": cosine}[measure]

    def _sent(self, gradients: torch.Tensor) -> torch.Tensor:
        """Gradients of candidates as a client would have sent them, without noise."""
        return self._clips(gradients if self._decay is None else gradients + self._decay)

    def one_hot(self, labels: Sequence[Sequence[int]] | torch.Tensor) -> torch.Tensor:
        """Label probabilities (T, B, K) of labels that count as known."""
        known = torch.as_tensor(labels, device=self.device)
        return torch.nn.functional.one_hot(known, self.view.num_classes).to(self.dtype)

    def start(self, rng: np.random.Generator, init: str, public: PublicData | None) -> torch.Tensor:
        """One batch (B, C, H, W) to start from.

        Args:
            rng: of this start.
            init: `normal` (noise around the mean pixel), `uniform` (random pixels; of what is no image the same as
                `normal`), or `public_mean` (the mean of the public examples and a little noise; without public examples
                the same as `normal`).
            public: the public facts.
        """
        shape = (self.batch, *self.view.shape)
        if init == "uniform" and self.low.isfinite().all():
            drawn = torch.from_numpy(rng.random(shape)).to(self.device, self.dtype)
            return self.low + drawn * (self.high - self.low)
        noise = torch.from_numpy(rng.standard_normal(shape)).to(self.device, self.dtype)
        if init in ("normal", "uniform") or public is None:
            return noise
        # Equal examples would have equal gradients and stay equal, so a little noise tells them apart.
        mean = to_tensor(public.examples.inputs, self.view.mean, self.view.std).mean(0)
        return mean.to(self.device, self.dtype) + 0.1 * noise

    def starts(self, purpose: str, count: int, init: str, public: PublicData | None) -> list[torch.Tensor]:
        """This many batches to start from, each drawn for a purpose and its number; for the rest see `start`."""
        return [self.start(stream(self.view.seed, purpose, number), init, public) for number in range(count)]

    def images(self, inputs: torch.Tensor) -> NDArray[np.float32]:
        """Standardised inputs (B, C, H, W) as images in [0, 1]; of a table, rows in its own units."""
        found = inputs.detach() * self.std + self.mean
        return (found.clamp(0, 1) if self.low.isfinite().all() else found).to("cpu", torch.float32).numpy()


class SeveralRounds(Matcher):
    """A matcher of the gradients of many rounds, laid one after the other: (T, P) becomes (T, R P).

    It measures distances like a `Matcher`, and takes no prior. A squared distance is the mean of those of the rounds,
    each relative to its own gradient's energy and weighted by how many entries it shows; where noise is most of that
    energy, rounds count by the inverse of its variance. A cosine is that of all rounds in one vector.

    Args:
        views: of the rounds, the attacked one last; each with the model that the update was made from.
        form, batch, device, double: as of a `Matcher`.

    Raises:
        ViewError: the gradient cannot be estimated from the update of a round.
    """

    def __init__(self, views: Sequence[View], form: str, batch: int, device: str, double: bool = False) -> None:
        super().__init__(views[-1], form, batch, device, double)
        self._parts = [Matcher(view, form, batch, device, double) for view in views]
        shown = torch.tensor([float((part.weight > 0).sum()) for part in self.parts])
        shares = (shown / shown.sum()).tolist()
        self.target = torch.cat([part.target for part in self.parts])
        scales = [share / float(part._norm) for share, part in zip(shares, self.parts, strict=True)]
        self.weight = torch.cat([part.weight * scale for part, scale in zip(self.parts, scales, strict=True)])
        self._norm = (self.weight * self.target.square()).sum()
        self.floor = sum(share * part.floor for share, part in zip(shares, self.parts, strict=True))
        self.local = None  # each round repeats its own steps

    @property
    def parts(self) -> Sequence[Matcher]:
        """One for each round."""
        return self._parts

    def gradients(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients (T, R P) in every round's model, and (T,) the sum of the distances of batch statistics there."""
        self.evaluations += len(inputs) * len(self.parts)
        found = [part.gradients(inputs, labels) for part in self.parts]
        return torch.cat([part for part, _ in found], dim=1), torch.stack([penalty for _, penalty in found]).sum(0)

    def _sent(self, gradients: torch.Tensor) -> torch.Tensor:
        each = torch.split(gradients, [len(part.target) for part in self.parts], dim=1)
        return torch.cat([part._sent(one) for part, one in zip(self.parts, each, strict=True)], dim=1)


def _weights(update: ObservedUpdate) -> NDArray[np.float64]:
    """Weight of each entry, (P,): 0 where hidden, else inverse to the variance of its noise, the largest 1."""
    weights = np.zeros(update.layout.size)
    sigma = np.where(update.states[update.visible] == Seen.CLEAR, 0.0, least_sigma_of(update))
    if np.isnan(sigma).any():  # of unknown size: as much as the largest known, or as the gradient itself
        largest = np.nanmax(sigma) if np.nanmax(np.nan_to_num(sigma)) > 0 else _rms(update.values)
        sigma = np.where(np.isnan(sigma), largest, sigma)
    clear = sigma == 0
    size = _rms(update.values[clear] if clear.any() else update.values)
    variance = np.maximum(sigma**2 + (_PRECISION * size) ** 2, np.finfo(np.float64).tiny)
    weights[update.visible] = variance.min(initial=np.inf) / variance
    return weights


def _variance(view: View, update: ObservedUpdate) -> NDArray[np.float64]:
    """Variance of the error of each visible entry, as far as it is known; (P,), 0 where hidden."""
    variance = np.zeros(update.layout.size)
    variance[update.visible] = np.square(np.nan_to_num(update.sigma), dtype=np.float64) + update.meaning.grid**2 / 12
    if view.vector is not None and view.update is not None:
        # A local model is stored in float32: half a spacing at most, which the division by lr x steps blows up.
        meaning = view.update.meaning
        rounding = np.spacing(np.abs(view.vector)).astype(np.float64) / (meaning.reach or 1)
        variance += np.where(update.visible, rounding**2 / 12, 0.0)
    return variance


def _rms(values: NDArray[np.float32]) -> float:
    """Root mean square of the finite values; 0 without any."""
    finite = values[np.isfinite(values)]
    return float(np.sqrt(np.square(finite, dtype=np.float64).sum() / max(1, len(finite))))
