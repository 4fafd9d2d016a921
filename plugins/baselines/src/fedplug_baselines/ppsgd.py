"""PPSGD: a private model for all, and an offset to it that each client learns locally (Bietti et al., ICML 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

import fedplug
import numpy as np
from fedplug import Field, Learns
from fedplug_std.per_sample import mean_gradient
from fedplug_std.scores import require_finite

if TYPE_CHECKING:
    from fedplug import Client, Facts, Layout, Recipe
    from numpy.typing import NDArray


class Ppsgd(fedplug.Trainer):
    """Train a global model by one private gradient a round, and a local offset to it at each client (PPSGD).

    Bietti, Wei, Dudik, Langford and Wu, Personalization improves privacy-accuracy tradeoffs in federated learning, ICML
    2022 (arXiv:2202.05318), as in the authors' code (albietz/ppsgd, `main_real.py`, `main_nn.py`). Client i predicts
    with w + theta_i. In a round each takes one gradient g there, on a minibatch, and

    * moves theta_i by -local_lr g, without clip and without noise: theta_i never leaves the client;
    * gives -lr g as its update of all of w. The recipe clips that, jointly, to lr C with `std.clip`, and adds noise.

    The ratio lr / local_lr is the paper's alpha: at 0 each client learns alone, at infinity (local_lr: 0) all learn one
    model. `personal: all` is the linear model of `main_real.py`. `output` is that of `main_nn.py`, where theta_i is an
    offset to the last layer alone and the layers before it are the same for all. There the step of theta_i is
    L local_lr, for L clients in a round; include that factor in local_lr.

    With Poisson-sampled clients and `std.central_gaussian` this is the accounting of the authors' code. That code takes
    a fixed number of shuffled clients, however, for which its bound does not hold. Gradients are in evaluation mode.
    """

    class Options(fedplug.Options):
        lr: float = Field(0.1, gt=0, allow_inf_nan=False, description="step of the global model w")
        local_lr: float = Field(
            0.1, ge=0, allow_inf_nan=False, description="step of each client's own offset theta_i; 0: one model for all"
        )
        batch_size: int | None = Field(10, ge=1, description="examples in a client's gradient; null: all it has")
        personal: Literal["all", "output"] = Field(
            "all", description="part to which each client has its own offset: the whole model, or its last layer"
        )

    def learns(self, facts: Facts) -> Learns:
        """One gradient of one batch, in evaluation mode, at the client's own model."""
        options = self.options
        return Learns(lr=options.lr, batch_size=options.batch_size, one_step=True, training_mode=False)

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self:
        """One gradient of a batch of all examples."""
        return self.varied(options=self.options.model_copy(update={"batch_size": batch_size}))

    def personalise(self, client: Client, facts: Facts) -> None:
        """The client's own model: w + theta_i."""
        where = self._personal(facts.layout)
        personal = client.vector.copy()
        personal[where] += self._offset(client, len(where))
        client.personal = personal

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """One step from w + theta_i: the model moves by -lr g, the offset by -local_lr g.

        Returns:
            `loss`: mean loss of the minibatch before the step, in nats.

        Raises:
            ProtectionError: the gradient is not finite.
            SetupError: the model is not a torch model.
        """
        options, train, start = self.options, client.data.train, client.start
        chosen = min(options.batch_size or len(train), len(train))
        batch = train.take(np.sort(client.rng(self).choice(len(train), chosen, replace=False)))
        loss = client.model.evaluate(batch, client.data)
        gradient = mean_gradient(client.model, batch, client.data, vector=start)
        require_finite(gradient, client, "its gradient", "lower lr and local_lr in train, or use less noise")
        where = self._personal(facts.layout)
        offset = self._offset(client, len(where))
        client.memory(self)["theta"] = offset - np.float32(options.local_lr) * gradient[where]
        client.model.set_vector(start - np.float32(options.lr) * gradient)
        return {"loss": loss.loss / loss.count}

    def _offset(self, client: Client, size: int) -> NDArray[np.float32]:
        """theta_i, which starts at 0."""
        found: NDArray[np.float32] = client.memory(self).get("theta", np.zeros(size, np.float32))
        return found

    def _personal(self, layout: Layout) -> NDArray[np.int64]:
        """Positions where a client has its own offset."""
        if self.options.personal == "all":
            return np.arange(layout.size)
        return np.concatenate([np.arange(s.start, s.stop) for s in layout.layer_slices()[layout.layers[-1]]])

    def check(self, recipe: Recipe) -> list[str]:
        """Each client has its own model already. A zone that stays with the client would make another."""
        if recipe.postprocess.get("retained"):
            return [f"{self.name} keeps an offset to the global model at each client; remove postprocess.retained"]
        return []

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        batch = "all examples" if options.batch_size is None else f"{options.batch_size} examples"
        part = {"all": "the whole model", "output": "its last layer"}[options.personal]
        return (
            f"PPSGD: one gradient of {batch} a round, lr {options.lr:g}; each client's own offset to {part}, lr "
            f"{options.local_lr:g}, stays with it"
        )
