"""Local training: stochastic gradient descent as in FedAvg; other trainers build on it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal, Self

import fedplug
from fedplug import Field, Learns
from fedplug.api.errors import SetupError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from fedplug import Client, Facts
    from fedplug.api.data import Judge

    from fedplug_std._perceptron import Perceptron
    from fedplug_std.torch_model import TorchModel

    Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """Takes a batch, moves the model, and gives the summed loss of the batch."""
    Move = Callable[[list[torch.Tensor], float], None]
    """Moves the parameters, given the gradient of each and the learning rate of the step."""

ClassWeight = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_CACHE_BYTES = 1 << 30
"""Clients keep their standardised inputs between rounds, where that pays, if those of all take at most this memory."""

_EPOCH_BYTES = 1 << 18
"""Inputs of at most this many bytes are ordered at once, and stay in the processor's cache."""


class Common(fedplug.Options):
    """Options of local training with any kind of step."""

    epochs: int = Field(1, ge=1, description="times a client goes through its examples in a round")
    batch_size: int = Field(32, ge=1, description="examples a step")
    lr: float = Field(0.01, gt=0, allow_inf_nan=False, description="learning rate of the first round")
    lr_decay: float = Field(1.0, gt=0, le=1, description="factor on the learning rate after every round")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="schedule of the learning rate; cosine: down to 0 after the last round or step"
    )
    warm_up: int = Field(0, ge=0, description="rounds, or steps, over which the learning rate grows to its full value")
    schedule_over: Literal["rounds", "steps"] = Field(
        "rounds", description="unit of schedule and warm_up: rounds, or steps, counted in each round"
    )
    micro_batch: int | None = Field(
        None, ge=1, description="examples that are computed at once; their gradients add up to that of the batch, "
        "except with batch norm, which takes the statistics of each part"
    )
    class_weights: tuple[ClassWeight, ...] | None = Field(
        None, description="weight of each class in the loss, for rare ones such as tampered pixels; null: equal"
    )


class Sgd(fedplug.Trainer):
    """Train with minibatch stochastic gradient descent on the cross entropy.

    FedAvg's local solver (McMahan et al. 2017, Alg. 1, ClientUpdate): each epoch goes once through the client's
    examples in a new random order. Momentum starts from zero in every round.

    Batch norm needs two examples to have a variance. With it, a last batch of one example is merged into the batch
    before; a client that has only batches of one trains with the running statistics that it received.
    """

    class Options(Common):
        """The usual ones."""

        momentum: float = Field(0.0, ge=0, lt=1, description="kept share of the previous step")
        weight_decay: float = Field(
            0.0, ge=0, allow_inf_nan=False, description="L2 penalty: this times the parameter is added to its gradient"
        )

    def learns(self, facts: Facts) -> Learns | None:
        """Sums of gradients of the mean loss of the task over batches, times the round's learning rate."""
        options = self.options
        return Learns(
            descends=facts.descends, lr=self.stated_rate(facts), batch_size=options.batch_size,
            epochs=options.epochs, momentum=options.momentum, weight_decay=options.weight_decay,
            class_weights=options.class_weights,
        )  # fmt: skip

    def learning_rate(self, facts: Facts) -> float:
        """The round's learning rate by `lr_decay` and a schedule over rounds; one over steps multiplies it further.

        A schedule grows linearly over `warm_up` rounds or steps. Cosine: (1 + cos(pi t)) / 2 for t from 0 after the
        warm-up to 1 after the last round or step (Loshchilov and Hutter 2017, eq. 5, one cycle).
        """
        options = self.options
        lr = float(options.lr * options.lr_decay**facts.round)
        return lr if options.schedule_over == "steps" else lr * self._share(facts.round, lambda: facts.rounds)

    def stated_rate(self, facts: Facts) -> float | None:
        """Learning rate of every step of the round; None if each has its own."""
        return None if self._varies() else self.learning_rate(facts)

    def _varies(self) -> bool:
        options = self.options
        return bool(options.schedule_over == "steps" and (options.warm_up or options.schedule != "constant"))

    def _share(self, now: int, count: Callable[[], int]) -> float:
        """The schedule's factor on the learning rate in a round or step, 0-based, of `count`."""
        options = self.options
        if now < options.warm_up:
            return float((now + 1) / (options.warm_up + 1))
        if options.schedule == "constant":
            return 1.0
        passed = min(1.0, (now - options.warm_up) / max(1, count() - options.warm_up))
        return (1 + math.cos(math.pi * passed)) / 2

    def _rates(self, client: Client, facts: Facts, model: TorchModel) -> Iterator[float]:
        """Learning rates of a round's steps, without end."""
        options, lr = self.options, self.learning_rate(facts)
        if not self._varies():
            yield from itertools.repeat(lr)
        slices = batch_slices(client.num_examples, options.batch_size, merge_single=model.noted(_has_batch_norm))
        count = options.epochs * len(slices)
        yield from (lr * self._share(step, lambda: count) for step in itertools.count())

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self:
        """One epoch over a single batch: one step, without momentum."""
        changed = {"epochs": 1, "batch_size": batch_size, "momentum": 0.0}
        return self.varied(options=self.options.model_copy(update=changed))

    def local_objective(
        self, client: Client, loss: torch.Tensor, parameters: list[torch.Tensor], start: list[torch.Tensor]
    ) -> torch.Tensor:
        """The objective of a step, here the mean cross entropy of its batch; trainers with a penalty override it.

        Args:
            client: the client.
            loss: mean cross entropy of the batch, a scalar with a graph.
            parameters: the model's, as they are.
            start: as they were when the round's training began, without a graph.
        """
        return loss

    def batch_loss(
        self, logits: torch.Tensor, answers: torch.Tensor, weights: torch.Tensor | None
    ) -> torch.Tensor:
        """Mean loss of a batch of classes, with class weights where there are some: here the cross entropy. A trainer
        with another one overrides it, and declares it in `learns`. A task with its own loss is used instead, unless
        this is overridden.
        """
        import torch

        return torch.nn.functional.cross_entropy(logits, answers, weight=weights)

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Trains the client's model in place.

        Args:
            client: `client.model` holds the global model and a `TorchModel`; `client.data.train` is what it learns.
            facts: the round; its number sets the learning rate.

        Returns:
            `loss`: mean training loss of the last epoch, in nats. NaN or infinite if training diverged: that is a
            result, not an error.

        Raises:
            SetupError: the model is not a torch model.
        """
        import torch

        from fedplug_std import progress
        from fedplug_std.torch_model import TorchModel, seeded, use_one_thread

        options, model = self.options, client.model
        if not isinstance(model, TorchModel):
            raise SetupError(f"std.sgd trains torch models, not {type(model).__name__}; choose another trainer")
        use_one_thread()
        rng = client.rng(self)
        count = client.num_examples
        lr = self.learning_rate(facts)
        losses: list[torch.Tensor] = []
        seed = int(rng.integers(2**63))
        if (perceptron := self._perceptron(model, client.data.task)) is not None:
            with torch.no_grad():  # it has neither a mode nor dropout
                few = model.device.type == "cpu" and perceptron.takes_few(count * options.epochs)
                if few and type(self).batches is Sgd.batches:
                    found = self._few_examples(client, model, perceptron, lr, rng)
                else:
                    model.moves()
                    for _ in range(options.epochs):
                        found = perceptron.steps(self.batches(client, model, rng), lr)
            return {"loss": -float(found.sum(dtype=torch.float64)) / count}
        take_step = self._by_autograd(client, model, self._rates(client, facts, model))
        _training_mode(model, single=min(count, options.batch_size) == 1)
        with seeded(seed, model.device):
            steps = math.ceil(count / options.batch_size)
            for epoch in range(options.epochs):
                losses = []  # numbers stay tensors until the end, since reading one waits for the device
                for number, (inputs, labels) in enumerate(self.batches(client, model, rng), epoch * steps + 1):
                    losses.append(take_step(inputs, labels))
                    progress.step(client.client_id, facts.round, number, steps * options.epochs)
        return {"loss": float(torch.stack(losses).sum(dtype=torch.float64)) / count}

    def _few_examples(
        self, client: Client, model: TorchModel, perceptron: Perceptron, lr: float, rng: np.random.Generator
    ) -> torch.Tensor:
        """All epochs in one update; gives the log-probabilities of the labels in the last one."""
        import numpy as np
        import torch

        (inputs, answers), epochs = self._kept(client, model), self.options.epochs
        count = len(answers)
        places = torch.from_numpy(np.concatenate([rng.permutation(count) for _ in range(epochs)]))
        slices = batch_slices(count, self.options.batch_size, merge_single=False)
        lengths = [part.stop - part.start for part in slices] * epochs
        update, found = perceptron.update(inputs[places], answers[places], lengths, lr)
        model.move_by(update.numpy())
        return found[-count:]

    def _perceptron(self, model: TorchModel, task: Judge | None) -> Perceptron | None:
        """The model, if it is a perceptron and steps are plain, with their derivatives written out; else None."""
        from fedplug_std._perceptron import Perceptron

        options = self.options
        if _own_loss(task):
            return None
        own = type(self)
        if any(getattr(own, name) is not getattr(Sgd, name) for name in ("mover", "local_objective", "batch_loss")):
            return None
        if options.momentum or options.weight_decay or options.class_weights is not None or options.micro_batch:
            return None
        if self._varies():
            return None
        return model.noted(Perceptron.of)

    def _by_autograd(self, client: Client, model: TorchModel, rates: Iterator[float]) -> Step:
        """Steps on any module and any objective."""
        import torch

        parameters: list[torch.Tensor] = list(model.parameters)
        move = self.mover(parameters)
        penalised = type(self).local_objective is not Sgd.local_objective
        start = [parameter.detach().clone() for parameter in parameters] if penalised else []
        weights = self._class_weights(model, len(client.data.classes))
        merge = bool(self.options.micro_batch) and model.noted(_has_batch_norm)

        def gradients_of(inputs: torch.Tensor, labels: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
            loss = self.loss_of(client, model.module(inputs), labels, weights)
            objective = self.local_objective(client, loss, parameters, start) if penalised else loss
            if not objective.requires_grad:
                cause = "remove detach() or torch.no_grad() from the model's forward"
                raise SetupError(f"the loss follows from no trainable parameter; {cause}")
            found = torch.autograd.grad(objective, parameters, materialize_grads=True)
            return [each.to_dense() if each.is_sparse else each for each in found], loss.detach() * len(labels)

        def take_step(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            first, *rest = batch_slices(len(labels), self.options.micro_batch or len(labels), merge)
            gradients, loss = gradients_of(inputs[first], labels[first])
            if rest:
                shares = [amount(labels[part]) / amount(labels) for part in (first, *rest)]
                gradients = [gradient * shares[0] for gradient in gradients]
                loss = loss * even(shares[0], labels[first], labels)
                for part, share in zip(rest, shares[1:], strict=True):
                    more, more_loss = gradients_of(inputs[part], labels[part])
                    torch._foreach_add_(gradients, more, alpha=share)
                    loss = loss + more_loss * even(share, labels[part], labels)
            with torch.no_grad():
                move(gradients, next(rates))
            return loss

        def amount(labels: torch.Tensor) -> float:
            """What the mean loss of these divides by."""
            return len(labels) if weights is None else float(weights[labels].sum())

        def even(share: float, part: torch.Tensor, labels: torch.Tensor) -> float:
            """A part's share of the loss over its share of the examples."""
            return 1.0 if weights is None else share * len(labels) / len(part)

        return take_step

    def mover(self, parameters: list[torch.Tensor]) -> Move:
        """The function that applies a gradient in one step of a round, with a fresh state."""
        # The functional form, which torch.optim.SGD itself calls: building the class imports torch's compiler, which
        # costs every worker process about a second.
        import torch
        from torch.optim.sgd import sgd

        options = self.options
        plain = not options.momentum and not options.weight_decay
        velocities: list[torch.Tensor | None] = [None] * len(parameters)

        def move(gradients: list[torch.Tensor], lr: float) -> None:
            if plain:
                torch._foreach_add_(parameters, gradients, alpha=-lr)  # the rest of SGD does nothing then
                return
            sgd(
                parameters, gradients, velocities, foreach=True, lr=lr, momentum=options.momentum,
                weight_decay=options.weight_decay, dampening=0.0, nesterov=False, maximize=False,
            )  # fmt: skip

        return move

    def loss_of(
        self, client: Client, outputs: torch.Tensor, answers: torch.Tensor, weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Mean loss of a batch in the task of the client's data, with class weights if given.

        Raises:
            SetupError: the task has another loss than the cross entropy, and there are class weights.
        """
        task = client.data.task
        if task is None or not _own_loss(task) or type(self).batch_loss is not Sgd.batch_loss:
            return self.batch_loss(outputs, answers, weights)
        if weights is not None:
            raise SetupError(f"class_weights applies to the cross entropy, but {task.name} descends the "
                             f"{task.descends}")
        loss: torch.Tensor = task.losses(outputs, answers).mean()
        return loss

    def _class_weights(self, model: TorchModel, classes: int) -> torch.Tensor | None:
        import torch

        given = self.options.class_weights
        if given is None:
            return None
        if len(given) != classes:
            raise SetupError(f"class_weights holds {len(given)} weights for {classes} classes; write one for each")
        return torch.tensor(given, dtype=torch.float32, device=model.device)

    def batches(
        self, client: Client, model: TorchModel, rng: np.random.Generator
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One epoch: standardised inputs and their labels, or targets, in a new order, on the model's device."""
        import torch

        data, train = client.data, client.data.train
        merge = model.noted(_has_batch_norm)
        if not self._keeps(client, model):
            from fedplug_std.torch_model import as_tensor, to_tensor

            order = rng.permutation(len(train))
            slices = batch_slices(len(order), self.options.batch_size, merge)
            labels = as_tensor(train.answers[order]).to(model.device)
            if 4 * train.inputs.size <= _EPOCH_BYTES:
                whole = to_tensor(train.inputs[order], data.mean, data.std, model.device)
                return ((whole[part], labels[part]) for part in slices)
            return (
                (to_tensor(train.inputs[order[part]], data.mean, data.std, model.device), labels[part])
                for part in slices
            )
        inputs, answers = self._kept(client, model)
        places = torch.from_numpy(rng.permutation(len(answers))).to(model.device)
        lengths = [part.stop - part.start for part in batch_slices(len(answers), self.options.batch_size, merge)]
        batches = torch.split_with_sizes(torch.index_select(answers, 0, places), lengths)
        if inputs.nbytes <= _EPOCH_BYTES:
            return zip(torch.split_with_sizes(torch.index_select(inputs, 0, places), lengths), batches, strict=True)
        ordered = zip(torch.split_with_sizes(places, lengths), batches, strict=True)
        # A batch at a time stays in the processor's cache.
        return ((torch.index_select(inputs, 0, place), labels) for place, labels in ordered)

    def _keeps(self, client: Client, model: TorchModel) -> bool:
        """Whether a client keeps its standardised inputs between rounds.

        Pixels take four times the memory then, and take longer to standardise than a hundredth of a step in perceptrons
        alone, or where they travel to a device.
        """
        from fedplug_std._perceptron import Perceptron

        inputs = client.data.train.inputs
        if inputs.itemsize == 1 and model.device.type == "cpu" and model.noted(Perceptron.of) is None:
            return False
        return inputs.size * 4 * client.facts.num_clients <= _CACHE_BYTES

    def _kept(self, client: Client, model: TorchModel) -> tuple[torch.Tensor, torch.Tensor]:
        """All standardised training inputs of a client and their answers, in the order in which it has them."""
        from fedplug_std.torch_model import as_tensor, to_tensor

        data = client.data
        kept: tuple[torch.Tensor, torch.Tensor] | None = client.cache.get(self.name)
        if kept is None:
            inputs = to_tensor(data.train.inputs, data.mean, data.std, model.device)
            kept = inputs, as_tensor(data.train.answers).to(model.device)
            if self._keeps(client, model):
                client.cache[self.name] = kept
        return kept


def batch_slices(count: int, size: int, merge_single: bool) -> list[slice]:
    """Cuts `count` examples into batches of `size`; the last one holds the rest.

    Args:
        count: the number of examples.
        size: of a batch, >= 1.
        merge_single: join a last batch of one example to the batch before it; without effect where `size` is 1.
    """
    starts = list(range(0, count, size))
    if merge_single and size > 1 and len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], count], strict=True)]


def _own_loss(task: Judge | None) -> bool:
    """Whether a task has another loss than the cross entropy of classes."""
    return task is not None and task.descends != "cross_entropy"


def _has_batch_norm(module: torch.nn.Module) -> bool:
    from torch.nn.modules.batchnorm import _BatchNorm

    from fedplug_std.torch_model import kinds

    return any(issubclass(kind, _BatchNorm) for kind in kinds(module))


def _training_mode(model: TorchModel, single: bool) -> None:
    """Training mode; batch norm keeps its running statistics where every batch is a single example."""
    from torch.nn.modules.batchnorm import _BatchNorm

    from fedplug_std.torch_model import modeless, set_mode

    if model.noted(modeless):
        return
    set_mode(model.module, training=True)
    if single:
        for part in model.module.modules():
            if isinstance(part, _BatchNorm):
                part.eval()
