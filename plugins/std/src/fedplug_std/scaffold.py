"""SCAFFOLD: control variates that remove the drift of a client's data from its steps, without a second upload."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

import fedplug
import numpy as np
from fedplug import Field, Learns
from fedplug.api.blocks import RETAINED

from fedplug_std.server_optimisers import FedOpt
from fedplug_std.training import Sgd

if TYPE_CHECKING:
    import torch
    from fedplug import Client, Facts, Plans, Recipe

    from fedplug_std.torch_model import TorchModel


class Scaffold(Sgd):
    """Train with SGD whose gradients are corrected by control variates (SCAFFOLD, Karimireddy et al. 2020, option II).

    Algorithm 1: client i takes `steps` steps y = y - lr (g - c_i + c) from the global model x, then sets c_i = c_i - c
    + (x - y) / (steps lr). The paper uploads the change of c_i in addition to y - x, and the server adds the mean
    change to c. That change is -c - (y - x) / (steps lr). It follows from the update, and its mean from the mean of the
    updates, since all clients take the same number of steps. So c = (x before - x after) / (steps lr), which every
    client computes from two global models. Nothing else is sent, so the protection of the updates covers everything,
    and noise on them has the same price. That noise is also in c.

    c_i and c begin at zero. c is the mean of the c_i as weighted by the aggregator (the paper's is `uniform`), of all
    clients: `check` refuses sampled clients, zones that clients keep to themselves, and `std.fedopt`, which moves the
    model by something other than the mean. A client that is lost from a round counts as if it had taken part.
    """

    class Options(fedplug.Options):
        """Plain steps, the same number at each client."""

        epochs: ClassVar[int] = 1
        momentum: ClassVar[float] = 0.0
        weight_decay: ClassVar[float] = 0.0
        schedule: ClassVar[str] = "constant"
        warm_up: ClassVar[int] = 0
        schedule_over: ClassVar[str] = "rounds"
        micro_batch: ClassVar[int | None] = None
        class_weights: ClassVar[tuple[float, ...] | None] = None

        steps: int = Field(10, ge=1, description="K, steps of every client in a round, whatever its number of examples")
        batch_size: int = Field(32, ge=1, description="examples a step")
        lr: float = Field(0.01, gt=0, allow_inf_nan=False, description="learning rate of the first round")
        lr_decay: float = Field(1.0, gt=0, le=1, description="factor on the learning rate after every round")

    def learns(self, facts: Facts) -> Learns | None:
        """Sums of gradients with a secret correction."""
        options: Any = self.options
        return Learns(
            descends=f"{facts.descends} with control variates", lr=self.learning_rate(facts),
            batch_size=options.batch_size,
        )  # fmt: skip

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self:
        """One step on a single batch."""
        return self.varied(options=self.options.model_copy(update={"steps": 1, "batch_size": batch_size}))

    def personalise(self, client: Client, facts: Facts) -> None:
        """Computes c from the movement of the global model; without a movement c does not change."""
        memory, options = client.memory(self), self.options
        before = memory.get("model")
        if before is not None and not np.array_equal(before, client.vector):
            memory["all"] = (before - client.vector) / np.float32(options.steps * self.learning_rate(facts))
        memory["model"] = client.vector.copy()

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Trains the client's model in place, and moves its own control variate.

        Returns:
            `loss`: mean training loss of the round's steps, in nats.

        Raises:
            SetupError: the model is not a torch model.
        """
        from fedplug_std.torch_model import TorchModel, as_tensor

        options, memory, model = self.options, client.memory(self), client.model
        zero = np.zeros(facts.layout.size, np.float32)
        own, of_all = memory.get("own", zero), memory.get("all", zero)
        if isinstance(model, TorchModel):  # any other is refused by the steps
            flat = as_tensor(of_all - own).to(model.device)
            places = [(place.slice, place.shape) for place in model.layout.parameters]
            client.cache[f"{self.name}.correction"] = [flat[part].view(shape) for part, shape in places]
        client.cache[f"{self.name}.seen"] = 0
        found = super().train(client, facts)
        rate = np.float32(options.steps * self.learning_rate(facts))
        memory["own"] = own - of_all + (client.start - client.model.get_vector()) / rate
        return {"loss": found["loss"] * client.num_examples / client.cache[f"{self.name}.seen"]}

    def batches(
        self, client: Client, model: TorchModel, rng: np.random.Generator
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One batch for each step, epoch after epoch."""
        epochs = (super(Scaffold, self).batches(client, model, rng) for _ in itertools.count())
        for inputs, labels in itertools.islice(itertools.chain.from_iterable(epochs), self.options.steps):
            client.cache[f"{self.name}.seen"] += len(labels)
            yield inputs, labels

    def local_objective(
        self, client: Client, loss: torch.Tensor, parameters: list[torch.Tensor], start: list[torch.Tensor]
    ) -> torch.Tensor:
        """The mean loss of the batch, and a linear term whose gradient is c - c_i."""
        for parameter, correction in zip(parameters, client.cache[f"{self.name}.correction"], strict=True):
            loss = loss + (parameter * correction).sum()
        return loss

    def check(self, recipe: Recipe) -> Iterable[str]:
        """Checks that all clients take part with all that they learn, and that the model moves by the mean."""
        if recipe.sampling:
            yield "its control variates are means over all clients, but sampling leaves some out; remove sampling"
        use = recipe.negotiate_mask
        plans: Plans = use.made_of(use.options).plans  # type: ignore[misc]
        if RETAINED in plans.zones:
            yield (
                f"{use.name} lets clients keep scalars to themselves, and no mean shows others' gradients of these; "
                "choose a negotiation without the zone retained"
            )
        for uses in recipe.postprocess.values():
            if steps := [use.name for use in uses if isinstance(use.options, FedOpt.Options)]:
                moves = f"{steps[0]} moves it differently"
                yield f"it derives the mean update from the movement of the model, but {moves}; leave one of them out"
