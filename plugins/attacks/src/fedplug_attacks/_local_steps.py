"""A client's local steps, repeated on candidate inputs, which give its update for these inputs.

The mean gradient behind an update of several steps is an estimate, which gets worse the farther a client moves.
The public facts about the trainer (`Meaning`) are enough to take the steps themselves and to compare their result
(Geiping et al. 2020, sec. 6.2), with every step in the graph. Only the order of the examples is unknown where an epoch
has several batches: it is searched for. Imports torch: attack modules import it inside their methods.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
            for all trials. The first epoch takes the candidates in their order, since their identity is free.
    """

    def __init__(self, schedule: Schedule, parameters: Mapping[str, torch.Tensor], loss: Loss) -> None:
        self.schedule, self._loss = schedule, loss
        self._shapes = {name: tensor.shape for name, tensor in parameters.items()}
        self._sizes = [tensor.numel() for tensor in parameters.values()]
        self._start = torch.cat([tensor.reshape(-1) for tensor in parameters.values()])
        self.count = sum(schedule.lengths)
        self.begin()

    def begin(self) -> None:
        """Forgets the orders of earlier trials: every epoch takes the candidates in their order."""
        self.orders = torch.arange(self.count).repeat(1, self.schedule.epochs, 1)

    def gradients(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The movement from the public model by the steps, divided by -reach: (T, P), in the units of a gradient.

        Args:
            inputs: (T, B, C, H, W).
            labels: (T, B, K), probabilities.

        Returns:
            This movement, differentiable, and (T,) the mean over the steps of the distance of batch norm statistics.
        """
        lengths = list(self.schedule.lengths) * self.schedule.epochs
        if self.schedule.shuffled:
            places = self.orders.flatten(1).to(inputs.device).expand(len(inputs), -1)
            trials = torch.arange(len(inputs), device=inputs.device)[:, None]
            inputs, labels = inputs[trials, places], labels[trials, places]

        def path(inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if not self.schedule.shuffled:
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

    def arrangements(self, labels: Sequence[int], rng: np.random.Generator) -> list[list[int]]:
        """Ways to deal labels to the batches of the first epoch, at most 40: all, or random ones."""
        cuts = self._cuts() or [list(rng.permutation(self.count)) for _ in range(_CHANGES)]
        parts = list(itertools.pairwise(np.cumsum((0, *self.schedule.lengths))))
        dealt = {
            tuple(label for first, last in parts for label in sorted(labels[k] for k in cut[first:last]))
            for cut in cuts
        }
        return sorted(map(list, dealt))

    @torch.no_grad()
    def settle_orders(self, trials: int, distance: Callable[[], torch.Tensor], rng: np.random.Generator) -> None:
        """Gives every later epoch the order that brings a trial nearest, one epoch after the other.

        All ways to cut the candidates into batches are tried where there are few; else swaps of two of them.

        Args:
            trials: T.
            distance: (T,), of the trials from the observed update, with the given orders.
            rng: chooses among many swaps.
        """
        if not self.schedule.shuffled or self.schedule.epochs == 1:
            return
        self.orders = self.orders.expand(trials, -1, -1).clone()
        cuts, least = self._cuts(), distance().cpu()
        for epoch in range(1, self.schedule.epochs):
            for change in cuts or self._swaps(rng):
                before = self.orders
                self.orders = before.clone()
                self.orders[:, epoch] = torch.tensor(change) if cuts else before[:, epoch, change]
                found = distance().cpu()
                better = found < least
                self.orders = torch.where(better[:, None, None], self.orders, before)
                least = torch.where(better, found, least)

    def _cuts(self) -> list[list[int]]:
        """All ways to cut the candidates into batches; none where there are too many."""
        ways, left = 1, self.count
        for length in self.schedule.lengths:
            ways *= math.comb(left, length)
            left -= length
        if ways > _CHANGES:
            return []
        found: list[list[int]] = [[]]
        for length in self.schedule.lengths:
            found = [
                [*cut, *batch]
                for cut in found
                for batch in itertools.combinations([k for k in range(self.count) if k not in cut], length)
            ]
        return found

    def _pairs(self) -> list[tuple[int, int]]:
        """Places of different batches."""
        batch = np.repeat(np.arange(len(self.schedule.lengths)), self.schedule.lengths)
        return [pair for pair in itertools.combinations(range(self.count), 2) if batch[pair[0]] != batch[pair[1]]]

    def _swaps(self, rng: np.random.Generator) -> Iterator[list[int]]:
        """Orders that differ from the one before by two candidates of different batches."""
        pairs = self._pairs()
        for place in rng.permutation(len(pairs))[:_CHANGES]:
            order, (first, second) = list(range(self.count)), pairs[place]
            order[first], order[second] = second, first
            yield order

    @torch.no_grad()
    def settle_labels(
        self, labels: torch.Tensor, distance: Callable[[torch.Tensor], torch.Tensor], rng: np.random.Generator
    ) -> torch.Tensor:
        """Labels (T, B) that bring a trial nearest, by exchanging two places or replacing a repeated label.

        The last layer shows which classes occur. It is less clear about which of them occur twice.

        Args:
            labels: (T, B).
            distance: (T,), of the trials from the observed update, with these labels.
            rng: chooses the changes to try if there are many.
        """
        changes = [(*pair, True) for pair in self._pairs()]
        changes += [(*pair, False) for pair in itertools.permutations(range(self.count), 2)]
        least = None
        for place in rng.permutation(len(changes))[:_CHANGES]:
            here, like, exchange = changes[place]
            may = labels[:, here] != labels[:, like]
            if not exchange:
                may = may & ((labels == labels[:, here, None]).sum(1) > 1)
            if not may.any():
                continue
            least = distance(labels) if least is None else least
            other = labels.clone()
            other[:, here] = labels[:, like]
            if exchange:
                other[:, like] = labels[:, here]
            found = distance(other)
            better = (found < least) & may
            labels, least = torch.where(better[:, None], other, labels), torch.where(better, found, least)
        return labels
