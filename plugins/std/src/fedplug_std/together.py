"""Clients of one process that train as one batched step: many small ones take a fraction of the time.

Each client has its own weights, (N, ...) in all, and goes through its own examples in the order that it would alone
have; `torch.func.vmap` makes one product of those of all. So a client's update is that of training alone, but for the
order in which products are added up.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from fedplug import stream
from fedplug.api.errors import SetupError
from fedplug.api.roles import Groups
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

if TYPE_CHECKING:
    from fedplug import Client, Facts
    from numpy.typing import NDArray

    from fedplug_std.torch_model import TorchModel


class Trainer(Protocol):
    """What a trainer has for clients that train together: `fedplug_std.training.Sgd` says of each what it is."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> Any: ...
    def kept(self, client: Client, model: TorchModel) -> tuple[torch.Tensor, torch.Tensor]: ...
    def slices(self, client: Client) -> list[slice]: ...
    def losses_of(self, client: Client) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]: ...
    def mover(self, parameters: list[torch.Tensor]) -> Callable[[list[torch.Tensor], float], None]: ...
    def rates(self, client: Client, facts: Facts, model: TorchModel) -> Iterator[float]: ...


class Trained(NamedTuple):
    """What training gave one client, kept until it is asked.

    Attributes:
        round: 0-based.
        start: float32 (P,), the very array that it started from.
        update: float32 (P,).
        loss: mean training loss of the last epoch, in nats.
        seconds: its share of the time that all of them took.
    """

    round: int
    start: NDArray[np.float32]
    update: NDArray[np.float32]
    loss: float
    seconds: float


class Together:
    """What a trainer has trained ahead, by client."""

    def __init__(self) -> None:
        self._ahead: dict[int, Trained] = {}

    def train(self, trainer: Trainer, client: Client, facts: Facts) -> dict[str, float]:
        """Trains a client, and with it those that are asked next in the same step and start from the same model.

        Raises:
            SetupError: batching would change what a layer of the model does.
        """
        model = cast("TorchModel", client.model)
        began, start = time.perf_counter(), client.start
        found = self._ahead.pop(client.client_id, None)
        if found is None or found.round != facts.round or found.start is not start:
            if why := mixing(model.module):
                raise SetupError(f"{trainer.name}: together={trainer.options.together}: {why}; leave together out")
            group = [*itertools.islice(_alike(trainer, client), trainer.options.together)]
            trained = [*_trained(trainer, model, group, facts)]
            share = (time.perf_counter() - began) / len(group)
            self._ahead = {
                each.client_id: Trained(facts.round, start, update, loss, share)
                for each, (update, loss) in zip(group, trained, strict=True)
            }
            found = self._ahead.pop(client.client_id)
        model.set_vector(start)
        model.move_by(found.update)
        client.saved(found.seconds - (time.perf_counter() - began))
        return {"loss": found.loss}


def mixing(module: nn.Module) -> str:
    """Which part of a model would do something else in a batch of clients; empty if none would."""
    for name, part in module.named_modules():
        mixes = isinstance(part, nn.modules.batchnorm._BatchNorm)
        if mixes or (isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0):
            return f"{name} is {type(part).__name__}, which does something else where clients train as one batch"
    return ""


def _alike(trainer: Trainer, client: Client) -> Iterator[Client]:
    """A client, and those asked after it that take as many steps and will hold the same model.

    They are told of it when they are asked, so that this is foresight: what was trained from another is not used.
    Groups have a model each, and nobody says who is in which.
    """
    yield client
    if client.personal is not None or any(isinstance(part, Groups) for part in client.facts.components.values()):
        return
    steps = len(trainer.slices(client))
    asked = iter(getattr(client, "asked", ()))  # none where an engine does not say
    for other in itertools.dropwhile(lambda each: each is not client, asked):
        if other is not client and other.personal is None and len(trainer.slices(other)) == steps:
            yield other


def _trained(
    trainer: Trainer, model: TorchModel, group: Sequence[Client], facts: Facts
) -> Iterator[tuple[NDArray[np.float32], float]]:
    """The update, (P,), and the loss of each client of a group."""
    module, count = model.module.train(), len(group)
    names = [name for name, each in module.named_parameters() if each.requires_grad]
    start = [each.detach().clone() for each in model.parameters]
    weights = [torch.stack([each] * count) for each in start]
    move, rates = trainer.mover(weights), trainer.rates(group[0], facts, model)
    losses_of = trainer.losses_of(group[0])

    def loss_of(own: list[torch.Tensor], inputs: torch.Tensor, answers: torch.Tensor, real: torch.Tensor) -> Any:
        outputs = functional_call(module, dict(zip(names, own, strict=True)), (inputs,))
        total = (losses_of(outputs, answers) * real).sum()
        return total / real.sum(), total.detach()

    step = vmap(grad_and_value(loss_of, has_aux=True))
    kept = [trainer.kept(each, model) for each in group]
    inputs, answers = (torch.cat(parts) for parts in zip(*kept, strict=True))
    lengths = [len(labels) for _, labels in kept]
    places = np.cumsum([0, *lengths[:-1]])
    slices = [trainer.slices(each) for each in group]
    # The client's own stream, which starts with the seed of what draws in the model.
    streams = [stream(facts.seed, each.client_id, facts.round, trainer.name) for each in group]
    for each in streams:
        each.integers(2**63)
    totals = torch.zeros(count)
    for _ in range(trainer.options.epochs):
        orders = [p + own.permutation(n) for p, own, n in zip(places, streams, lengths, strict=True)]
        totals = torch.zeros(count, device=inputs.device)
        for parts in zip(*slices, strict=True):
            chosen, real = _padded([order[part] for order, part in zip(orders, parts, strict=True)], inputs.device)
            gradients, (_, losses) = step(weights, inputs[chosen], answers[chosen], real)
            with torch.no_grad():
                move(list(gradients), next(rates))
            totals += losses
    ends = [(end - begun).reshape(count, -1) for end, begun in zip(weights, start, strict=True)]
    means = totals.cpu() / torch.tensor(lengths)
    return zip(torch.cat(ends, 1).cpu().numpy(), means.tolist(), strict=True)


def _padded(batches: Sequence[NDArray[np.int64]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Places of examples, (N, n), and 1 for those that there are, 0 for what fills shorter batches up."""
    longest = max(map(len, batches))
    places, real = np.zeros((len(batches), longest), np.int64), np.zeros((len(batches), longest), np.float32)
    for row, batch in enumerate(batches):
        places[row, : len(batch)], real[row, : len(batch)] = batch, 1
    return torch.from_numpy(places).to(device), torch.from_numpy(real).to(device)
