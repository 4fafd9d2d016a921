"""Local training beyond plain SGD: AdamW, and FedProx's proximal term."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from fedplug import Field, Learns

from fedplug_std.training import Common, Sgd

if TYPE_CHECKING:
    import torch
    from fedplug import Client, Facts

    from fedplug_std.training import Move


class AdamW(Sgd):
    """Train with AdamW: Adam, with weight decay apart from the gradient (Loshchilov and Hutter 2019, Alg. 2).

    Moments start from zero in every round, at every client. They never travel, and no state of a client is kept.
    """

    class Options(Common):
        """Those of `std.sgd`, with two moments instead of momentum."""

        lr: float = Field(0.001, gt=0, allow_inf_nan=False, description="learning rate of the first round")
        weight_decay: float = Field(
            0.01, ge=0, allow_inf_nan=False, description="share of a parameter, times lr, subtracted in each step"
        )
        beta1: float = Field(0.9, ge=0, lt=1, description="share of the first moment that is kept")
        beta2: float = Field(0.999, ge=0, lt=1, description="share of the second moment that is kept")
        eps: float = Field(1e-8, gt=0, allow_inf_nan=False, description="added to the root of the second moment")

    def learns(self, facts: Facts) -> Learns | None:
        """Steps of Adam on the mean cross entropy. An update is not a sum of gradients, which attacks are told."""
        options = self.options
        return Learns(
            descends=f"{facts.descends} by AdamW", lr=self.stated_rate(facts), batch_size=options.batch_size,
            epochs=options.epochs, weight_decay=options.weight_decay, class_weights=options.class_weights,
        )  # fmt: skip

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self:
        """One epoch over a single batch: one step."""
        return self.varied(options=self.options.model_copy(update={"epochs": 1, "batch_size": batch_size}))

    def mover(self, parameters: list[torch.Tensor]) -> Move:
        """m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p = (1 - lr wd) p - lr m^ / (sqrt(v^) + eps), where m^ and v^
        are m / (1 - b1^t) and v / (1 - b2^t).
        """
        import torch
        from torch.optim.adamw import adamw  # the functional form, as for SGD

        options: Any = self.options
        first = [torch.zeros_like(parameter) for parameter in parameters]
        second = [torch.zeros_like(parameter) for parameter in parameters]
        steps = [torch.tensor(0.0) for _ in parameters]

        def move(gradients: list[torch.Tensor], lr: float) -> None:
            adamw(
                parameters, gradients, first, second, [], steps, foreach=True, amsgrad=False, beta1=options.beta1,
                beta2=options.beta2, lr=lr, weight_decay=options.weight_decay, eps=options.eps, maximize=False,
            )  # fmt: skip

        return move


class FedProx(Sgd):
    """Train with SGD and a pull back to the global model (FedProx, Li et al. 2020, Alg. 2 and eq. 2).

    Each step descends F_k(w) + mu/2 |w - w_t|^2, where w_t is the model that the round began with: clients with unusual
    data therefore move less far away.
    """

    class Options(Sgd.Options):
        """Those of `std.sgd`, and the pull."""

        mu: float = Field(0.01, ge=0, allow_inf_nan=False, description="weight of the proximal term; 0: plain SGD")

    def learns(self, facts: Facts) -> Learns | None:
        """SGD with a penalty whose gradient is not visible."""
        learns = super().learns(facts)
        options: Any = self.options
        if learns is None or options.mu == 0:
            return learns
        return dataclasses.replace(learns, descends=f"{facts.descends} and a proximal term")

    def local_objective(
        self, client: Client, loss: torch.Tensor, parameters: list[torch.Tensor], start: list[torch.Tensor]
    ) -> torch.Tensor:
        """The mean loss of the batch, and mu/2 |w - w_t|^2 (eq. 2)."""
        options: Any = self.options
        for parameter, before in zip(parameters, start, strict=True):
            loss = loss + options.mu / 2 * ((parameter - before) ** 2).sum()
        return loss
