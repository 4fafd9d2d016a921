"""A client's local steps, made again from candidate inputs: what its update would have been.

The mean gradient behind an update of several steps is an estimate, and the farther a client moves the worse it gets.
What everybody knows of the trainer (`Meaning`) is enough to take the steps themselves and to compare where they lead
(Geiping et al. 2020, sec. 6.2), with every step in the graph. Only the order of the examples is unknown where an epoch
has several batches: it is searched for. Imports torch: attack modules import it inside their methods.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from fedplug import stream
from fedplug_std.training import batch_slices
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from fedplug_attacks.api.observation import Meaning
    from fedplug_attacks.api.view import View

    Loss = Callable[[Mapping[str, torch.Tensor], torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    """Mean loss of a batch at some parameters, and how far its batch norm statistics are from the public ones."""

# Bytes of the graph of all steps of a trial that are kept; above, each step is computed again on the way back.
_GRAPH_BYTES = 1 << 31
# Bytes of the parameters behind every step of a trial; above, steps are not unrolled.
_PATH_BYTES = 1 << 32
# Steps that are unrolled at most: of more, a search would take hours.
MOST_STEPS = 512
# Changes of orders, and of labels, that are tried at a time: of more, random ones.
_CHANGES = 40


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
        """How many there are."""
        return self.epochs * len(self.lengths)

    @property
    def shuffled(self) -> bool:
        """Whether it matters in which order a client took its examples."""
        return len(self.lengths) > 1


def schedule_of(meaning: Meaning, module: torch.nn.Module) -> Schedule | None:
    """The steps behind an update; None where it is a single one, or where the trainer does not say enough.

    Batches are cut as `std.sgd` does: the last one holds what is left, and one example that is left alone joins the
    batch before where the model has batch norm.
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


class LocalSteps:
    """Takes the steps of a schedule from the public model, on candidates.

    Args:
        schedule: the steps.
        parameters: of the public model, by name.
        loss: of a batch at other parameters.

    Attributes:
        orders: int64 (T, epochs, B), of each trial the order in which an epoch takes its candidates; a single one
            counts for all trials.
    """

    def __init__(self, schedule: Schedule, parameters: Mapping[str, torch.Tensor], loss: Loss) -> None:
        self.schedule, self._loss = schedule, loss
        self._shapes = {name: tensor.shape for name, tensor in parameters.items()}
        self._sizes = [tensor.numel() for tensor in parameters.values()]
        self._start = torch.cat([tensor.reshape(-1) for tensor in parameters.values()])
        self.orders = torch.arange(sum(schedule.lengths)).expand(1, schedule.epochs, -1)

    def doubts(self, trials: int, view: View) -> Doubts | None:
        """What is to be settled during a search of so many trials; None where nothing is open."""
        count = sum(self.schedule.lengths)
        self.orders = torch.arange(count).repeat(trials, self.schedule.epochs, 1)
        return None if count == 1 else Doubts(self, view.num_classes, stream(view.seed, "attacks.local_steps"))

    def gradients(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """How far the steps lead from the public model, divided by -reach: (T, P), in the units of a gradient.

        Args:
            inputs: (T, B, C, H, W).
            labels: (T, B, K), probabilities.

        Returns:
            That, differentiable, and (T,) the mean over the steps of the distance of batch norm statistics.
        """
        trials = torch.arange(len(inputs), device=inputs.device)[:, None]
        order = self.orders.flatten(1).to(inputs.device).expand(len(inputs), -1)
        ordered = inputs[trials, order], labels[trials, order]
        if len(inputs) == 1:  # the same numbers, without the price of vmap
            moved, penalty = self._path(ordered[0][0], ordered[1][0])
            return moved[None], penalty[None]
        moved, penalties = torch.func.vmap(self._path)(*ordered)
        return moved, penalties

    def _path(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All steps of one trial, on (epochs x B) inputs in the order in which they are taken."""
        plan, of_batch = self.schedule, torch.func.grad(self._flat_loss, has_aux=True)
        moved, velocity, penalties = torch.zeros_like(self._start), None, []
        lengths = plan.lengths * plan.epochs
        for batch, answers in zip(inputs.split(lengths), labels.split(lengths), strict=True):
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
        parts = zip(self._shapes.items(), flat.split(self._sizes), strict=True)
        return self._loss({name: part.view(shape) for (name, shape), part in parts}, inputs, labels)


class Doubts:
    """Which candidates share a batch, and which labels they have: settled by what fits, one change after the other.

    The images need not be there yet: a batch whose labels are wrong moves the last layer to another place.

    Args:
        local: the steps; its orders are changed.
        classes: labels there are.
        rng: chooses what is tried, where there is too much.
    """

    def __init__(self, local: LocalSteps, classes: int, rng: np.random.Generator) -> None:
        self._local, self._classes, self._rng = local, classes, rng
        lengths = local.schedule.lengths
        batch = np.repeat(np.arange(len(lengths)), lengths)
        pairs = list(itertools.combinations(range(len(batch)), 2))
        self._swaps = [
            (epoch, *pair) for epoch in range(local.schedule.epochs) for pair in pairs if batch[pair[0]] != batch[pair[1]]
        ]
        self._labels = list(itertools.product(range(len(batch)), range(classes)))

    @torch.no_grad()
    def settled(self, labels: torch.Tensor, distance: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Labels (T, B) of all trials, after every change that brings a trial nearer; orders change in place.

        Args:
            labels: (T, B).
            distance: (T,) of the trials from what was seen, with these labels and the orders as they are.
        """
        local, least = self._local, distance(labels)
        for epoch, first, second in self._some(self._swaps):
            before = local.orders
            local.orders = before.clone()
            local.orders[:, epoch, [first, second]] = before[:, epoch, [second, first]]
            found = distance(labels)
            better = found < least
            local.orders = torch.where(better[:, None, None], local.orders, before)
            least = torch.where(better, found, least)
        for place, label in self._some(self._labels):
            other = labels.clone()
            other[:, place] = label
            found = distance(other)
            better = found < least
            labels, least = torch.where(better[:, None], other, labels), torch.where(better, found, least)
        return labels

    def _some(self, changes: list[Any]) -> Iterator[Any]:
        chosen = self._rng.permutation(len(changes))[:_CHANGES]
        return (changes[place] for place in chosen)
