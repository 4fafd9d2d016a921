"""FedDPA: parameters that matter most to a client stay personal. Two penalties keep updates short (Yang et al. 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import fedplug
import numpy as np
from fedplug import (
    Block,
    Client,
    Cohort,
    Facts,
    Field,
    Known,
    Layout,
    Learns,
    Map,
    Operations,
    Plan,
    Plans,
    Reveals,
    at_client,
)  # fmt: skip
from fedplug.api.blocks import RETAINED
from fedplug.api.errors import SetupError
from fedplug_std.clip import Clip
from fedplug_std.per_sample import mean_squared_gradients
from fedplug_std.replies import unpacked
from fedplug_std.scores import require_finite
from fedplug_std.training import Sgd

from fedplug_baselines.feddpa_adam import MaskedAdam

if TYPE_CHECKING:
    import torch
    from fedplug import Recipe
    from fedplug_std.torch_model import TorchModel
    from numpy.typing import NDArray


class FedDpa(Sgd, fedplug.PublicPlan, fedplug.Protector):
    """Keep parameters of high Fisher information at each client, train those first and the shared ones after (FedDPA).

    Yang, Huang and Ye, Dynamic personalized federated learning with adaptive differential privacy, NeurIPS 2023, as in
    the authors' code (xiyuanyang45/DynamicPFL, `ours.py`, `utils.py`). A round of client k, with its model w_k of the
    round before and the global model w_g:

    1. F: mean squared gradients of single examples at w_k, min-max scaled in each tensor. M = [F > tau].
    2. Start from u = w_k where M, and v = w_g elsewhere.
    3. `epochs` of Adam on u, with the penalty R1 = lambda_1 / 2 sum_t |w_t - w_g,t| over tensors t.
    4. `epochs` of Adam on v, with R2 = lambda_2 / 2 abs(sum_t |w_t - w_g,t| - C), which draws updates to the clip.

    Use it under `train` and under `negotiate_mask`. M stays with the client (zone `retained`). The other scalars go
    into `zone`, where they are clipped and get noise. In the authors' code M is sent too, as part of the whole w - w_g:
    `send_personal` (as published), with `baselines.feddpa` first in the chain of the zone. It costs utility, but then
    no mask is visible.
    """

    class Options(fedplug.Options):
        tau: float = Field(0.4, ge=0, le=1, description="Fisher information above it, scaled to [0, 1], is personal")
        lambda_1: float = Field(0.1, ge=0, allow_inf_nan=False, description="weight of R1, while u is trained")
        lambda_2: float = Field(0.05, ge=0, allow_inf_nan=False, description="weight of R2, while v is trained")
        clipping_norm: float = Field(
            0.5, gt=0, allow_inf_nan=False, description="C of R2; the clip of the zone must have the same"
        )
        epochs: int = Field(2, ge=1, description="times through the examples, once for u and again for v")
        batch_size: int = Field(16, ge=1, description="examples a step")
        lr: float = Field(0.001, gt=0, allow_inf_nan=False, description="learning rate of Adam")
        zone: str = Field("noised", description="zone of the parameters that are not personal")
        send_personal: bool = Field(
            False, description="as published: personal parameters are sent as well, as in the authors' code"
        )

    @property
    def plans(self) -> Plans:
        """One zone for all; or personal parameters, which differ from client to client, stay."""
        if self.options.send_personal:
            return Plans(zones=frozenset({self.options.zone}), fixed=True)
        zones = frozenset({self.options.zone, RETAINED})
        return Plans(zones=zones, own=zones)

    # -- training ------------------------------------------------------------------------------------------------------

    def learns(self, facts: Facts) -> Learns:
        """Adam on a loss with penalties: once through the examples for the personal part, once for the other part."""
        options = self.options
        return Learns(
            descends=f"{facts.descends} and penalties by Adam", lr=options.lr, batch_size=options.batch_size,
            epochs=2 * options.epochs,
        )  # fmt: skip

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self:
        """One step on a batch of all examples: first on the personal part, then on the other part."""
        return self.varied(options=self.options.model_copy(update={"epochs": 1, "batch_size": batch_size}))

    def personalise(self, client: Client, facts: Facts) -> None:
        """Step 2: the client's own values where M, the global ones elsewhere. Before round 1 they are the same."""
        memory, personal = client.memory(self), client.vector.copy()
        if "mask" in memory:
            personal[unpacked(memory["mask"], facts.layout.size)] = memory["values"]
        client.personal = personal

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Steps 3 and 4, and step 1 of the next round, which needs only the model after training.

        Returns:
            `loss`: mean cross entropy of the last epoch, without penalties, in nats; `personal`: share of M.

        Raises:
            SetupError: the model is not a torch model.
            ProtectionError: training diverged.
        """
        from fedplug_std.torch_model import TorchModel, as_tensor, seeded, use_one_thread

        model, memory = client.model, client.memory(self)
        if not isinstance(model, TorchModel):
            raise SetupError(f"{self.name} trains torch models, not {type(model).__name__}; choose another trainer")
        use_one_thread()
        if "mask" not in memory:  # round 1: w_k is the model that all start from
            memory["mask"] = np.packbits(self.personal_mask(client, client.start))
        mask = unpacked(memory["mask"], facts.layout.size)
        client.cache[f"{self.name}.mask"] = facts.round, mask
        u = as_tensor(mask).to(model.device)
        global_model = as_tensor(client.vector).to(model.device)
        model.module.train(min(client.num_examples, self.options.batch_size) > 1)  # one example has no variance
        with seeded(int(client.rng(self, "dropout").integers(2**63)), model.device):
            self._stage(client, model, global_model, u, first=True)
            loss = self._stage(client, model, global_model, ~u, first=False)
        local = model.get_vector()
        following = self.personal_mask(client, local)
        memory.update(mask=np.packbits(following), values=local[following])
        return {"loss": loss, "personal": float(mask.mean())}

    def _stage(
        self, client: Client, model: TorchModel, global_model: torch.Tensor, trained: torch.Tensor, first: bool
    ) -> float:
        """Step 3 or 4: trains the scalars of one mask, (P,). Gives the mean cross entropy of its last epoch."""
        import torch

        adam, rng = MaskedAdam(model, trained, self.options.lr), client.rng(self, "u" if first else "v")
        # R2 leaves out values that are not sent, because they are not clipped.
        counted = torch.ones_like(global_model) if first or self.options.send_personal else trained.to(torch.float32)
        places = [(p.slice, p.shape) for p in model.layout.parameters]
        starts = [global_model[part].view(shape) for part, shape in places]
        weights = [counted[part].view(shape) for part, shape in places]
        total = torch.zeros((), dtype=torch.float64, device=model.device)
        for _ in range(self.options.epochs):
            total.zero_()
            for inputs, labels in self.batches(client, model, rng):
                loss = self.loss_of(client, model.module(inputs), labels)
                moved = zip(model.parameters, starts, weights, strict=True)
                length = torch.stack([((now - then) * weight).norm() for now, then, weight in moved]).sum()
                adam.step(loss + self.penalty(length, first))
                total += loss.detach() * len(labels)
        return float(total) / client.num_examples

    def penalty(self, length: torch.Tensor, first: bool) -> torch.Tensor:
        """R1 or R2 of the summed norms of the tensors' moves from the global model."""
        options = self.options
        found: torch.Tensor = (
            options.lambda_1 / 2 * length if first else options.lambda_2 / 2 * (length - options.clipping_norm).abs()
        )
        return found

    def personal_mask(self, client: Client, vector: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Step 1: M = [F > tau] at this model, (P,).

        Raises:
            ProtectionError: the Fisher information is not finite.
        """
        train = client.data.train
        with client.operation("fisher information", len(train)):
            fisher = mean_squared_gradients(client.model, train, client.data, vector=vector)
        require_finite(fisher, client, "the Fisher information of scalars", "lower lr in train, or use less noise")
        found: NDArray[np.bool_] = scaled(fisher, client.facts.layout) > self.options.tau
        return found

    # -- what is sent --------------------------------------------------------------------------------------------------

    def plan(self, facts: Facts) -> str | None:
        """One zone, where personal parameters are sent as well."""
        return self.options.zone if self.options.send_personal else None

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Asks nothing: each client decides alone what it keeps."""
        if facts.plan is None:
            cohort.tell(self.keep)

    @at_client
    def keep(self, client: Client) -> None:
        """M of this round is retained and the rest is sent. A client that was not in the round sends nothing."""
        size = client.facts.layout.size
        round, mask = client.cache.get(f"{self.name}.mask", (-1, None))
        kept = mask if round == client.facts.round else np.zeros(size, np.bool_)
        client.plan = Plan.of(client.facts, self.options.zone, **{RETAINED: kept})

    def protect(self, known: Known, facts: Facts) -> Operations:
        """With `send_personal`: the update sent is w - w_g, even where training did not start from w_g.

        Raises:
            Misplaced: another component has already changed the values.
        """
        remedy = f"it sets what is sent; put {self.name} first"
        known.before("noise", remedy)
        known.before("encryption", remedy)
        known.before("clip", remedy)
        return (Map(self.whole_way),)

    def whole_way(self, block: Block, client: Client, facts: Facts) -> NDArray[np.float32]:
        """The way of the zone's values from the global model to the local one, (n,)."""
        assert client.plan is not None  # nobody is asked for an upload without one
        found: NDArray[np.float32] = block.plain() + (client.start - client.vector)[client.plan.positions(block.zone)]
        return found

    def check(self, recipe: Recipe) -> list[str]:
        """It must be in both sections, with a clip equal to R2's. If personal values go, it must be in the chain."""
        options, complaints = self.options, []
        if not recipe.train.name == recipe.negotiate_mask.name == self.name:
            complaints.append(
                "FedDPA trains and negotiates by one component: give its options under train, and write "
                "negotiate_mask: baselines.feddpa"
            )
        chain = recipe.protect.get(options.zone, ())
        clips = [use.options for use in chain if isinstance(use.options, Clip.Options)]
        if clips and clips[-1].norm != options.clipping_norm:
            complaints.append(
                f"clipping_norm={options.clipping_norm:g} of R2 must be the norm={clips[-1].norm:g} to which zone "
                f"{options.zone} is clipped"
            )
        names = [use.name for use in chain]
        if options.send_personal and names[:1] != [self.name]:
            complaints.append(f"send_personal: the chain of zone {options.zone} must begin with {self.name}")
        if not options.send_personal and any(self.name in [use.name for use in c] for c in recipe.protect.values()):
            complaints.append(f"{self.name} has nothing to add to an update without send_personal: true; remove it")
        return complaints

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Positions that a client does not send."""
        if self.options.send_personal:
            return []
        note = (
            f"the positions of each client's {self.options.zone} upload leave out what it keeps, which tells classes "
            "of its data"
        )
        still = "a scalar that all clients keep does not move in the model"
        return [
            Reveals("support of the retained zone", ("server",), voids=True, note=note),
            Reveals("what all clients keep", ("released_model",), note=still),
        ]

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        sent = ", and are sent as well (as published)" if options.send_personal else " and are not sent"
        return f"FedDPA: scalars with scaled Fisher information above {options.tau:g} are personal{sent}"


def scaled(values: NDArray[np.float32], layout: Layout) -> NDArray[np.float64]:
    """(value - min) / (max - min) in each tensor, (P,); 0 where all values of a tensor are equal."""
    found = np.zeros(len(values), np.float64)
    for place in layout.parameters:
        part = values[place.slice].astype(np.float64)
        low, high = float(part.min(initial=np.inf)), float(part.max(initial=-np.inf))
        if high > low:
            found[place.slice] = (part - low) / (high - low)
    return found
