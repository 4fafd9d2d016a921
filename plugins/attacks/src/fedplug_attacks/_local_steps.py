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
from fedplug_std.training import batch_slices
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from fedplug_attacks.api.observation import Meaning

    Loss = Callable[[Mapping[str, torch.Tensor], torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    """Mean loss of a batch at some parameters, and how far its batch norm statistics are from the public ones."""

# Bytes of the graph of all steps of a trial that are kept; above, each step is computed again on the way back.
_GRAPH_BYTES = 1 << 31
# Bytes of the parameters behind every step of a trial; above, steps are not unrolled.
_PATH_BYTES = 1 << 32
# Steps that are unrolled at most: of more, a search would take hours.
MOST_STEPS = 512
# Orders of an epoch that are compared in one search; of more, so many random ones that differ by a swap.
_ORDERS = 40


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
