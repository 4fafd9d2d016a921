"""BLUR: a penalty on local updates that grow beyond the clipping norm, so that the clip cuts off less.

Cheng et al., "Differentially Private Federated Learning with Local Regularization and Sparsification" (CVPR 2022,
arXiv:2203.03106), bounded local update regularization, eq. 5. We did not have the full text. The form of the penalty is
that of FL-boop-blip/DPFed, utils_general.py, which quotes the equation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedplug import Field
from fedplug_std.training import Sgd

if TYPE_CHECKING:
    import torch
    from fedplug import Client


class Blur(Sgd):
    """Train with SGD and a penalty on updates whose norm exceeds a bound (BLUR).

    loss + penalty / 2 * max(0, ||w - w_start||^2 - norm^2). The penalty is 0 within the bound. Beyond it, every step is
    pulled back towards the model that training started from. Set `norm` to the norm of the clip that follows. With norm
    0 the penalty is the proximal term of FedProx.
    """

    class Options(Sgd.Options):
        """The options of `std.sgd`, and the penalty."""

        penalty: float = Field(0.1, ge=0, allow_inf_nan=False, description="lambda, the weight of the penalty")
        norm: float = Field(1.0, ge=0, allow_inf_nan=False, description="S, norm of the update up to which it is free")

    def local_objective(
        self, client: Client, loss: torch.Tensor, parameters: list[torch.Tensor], start: list[torch.Tensor]
    ) -> torch.Tensor:
        """The batch's loss with the penalty (eq. 5)."""
        return loss + excess_penalty(parameters, start, self.options.penalty, self.options.norm)


def excess_penalty(
    parameters: list[torch.Tensor], start: list[torch.Tensor], penalty: float, norm: float
) -> torch.Tensor:
    """penalty / 2 * max(0, sum of (parameter - start)^2 - norm^2), a scalar with a graph.

    Args:
        parameters: the current parameters of the model.
        start: the parameters at the start of training, in the same shapes.
        penalty: lambda >= 0.
        norm: S >= 0.
    """
    import torch

    pairs = zip(parameters, start, strict=True)
    squares = torch.stack([(parameter - before).square().sum() for parameter, before in pairs])
    return penalty / 2 * torch.relu(squares.sum() - norm**2)
