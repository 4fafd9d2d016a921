"""A client's local steps, repeated on candidate inputs, which give its update for these inputs.

The mean gradient behind an update of several steps is an estimate, which gets worse the farther a client moves.
The public facts about the trainer (`Meaning`) are enough to take the steps themselves and to compare their result
(Geiping et al. 2020, sec. 6.2), with every step in the graph. Only the order of the examples is unknown where an epoch
has several batches. At first each step takes all candidates, which is the mean over the orders; once the candidates
show images, the batches that fit them best are searched for. Imports torch: attack modules import it inside their
methods.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from fedplug_std.training import batch_slices
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from fedplug_attacks.api.observation import Meaning

    Loss = Callable[[Mapping[str, torch.Tensor], torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    """Mean loss of a batch at some parameters, and how far its batch norm statistics are from the public ones."""

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
    """Takes the steps of a schedule from the public model, on candidates.

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

        def path(inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if orders is None:
                return self._path([inputs] * len(lengths), [labels] * len(lengths))
            return self._path(torch.split(inputs, lengths), torch.split(labels, lengths))

        if len(inputs) == 1:  # the same numbers without the cost of vmap
            moved, penalty = path(inputs[0], labels[0])
            return moved[None], penalty[None]
        moved, penalties = torch.func.vmap(path)(inputs, labels)
        return moved, penalties

    def _path(
        self, inputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All steps of one trial, on batches in the order in which they are taken."""
        plan, of_batch = self.schedule, torch.func.grad(self._flat_loss, has_aux=True)
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
