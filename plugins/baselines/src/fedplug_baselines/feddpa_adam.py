"""Adam on part of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from fedplug_std.torch_model import TorchModel

_BETA_1, _BETA_2, _TINY = 0.9, 0.999, 1e-8


class MaskedAdam:
    """Adam (Kingma & Ba 2015, Alg. 1) with torch's defaults on the scalars of a mask. The other scalars do not move.

    Args:
        model: its parameters are trained in place.
        mask: bool (P,), on the model's device.
        lr: learning rate.
    """

    def __init__(self, model: TorchModel, mask: torch.Tensor, lr: float) -> None:
        import torch

        self._model, self._mask, self._lr, self._steps = model, mask, lr, 0
        self._first = torch.zeros(len(mask), dtype=torch.float32, device=mask.device)
        self._second = torch.zeros_like(self._first)

    def step(self, objective: torch.Tensor) -> None:
        """One step down the gradient of a scalar."""
        import torch

        parameters = self._model.parameters
        found = torch.autograd.grad(objective, parameters, materialize_grads=True)
        gradient = torch.cat([part.reshape(-1) for part in found]) * self._mask
        self._steps += 1
        self._first.lerp_(gradient, 1 - _BETA_1)
        self._second.mul_(_BETA_2).addcmul_(gradient, gradient, value=1 - _BETA_2)
        root = (self._second / (1 - _BETA_2**self._steps)).sqrt_().add_(_TINY)
        move = (self._first / root).mul_(-self._lr / (1 - _BETA_1**self._steps))
        with torch.no_grad():
            for tensor, place in zip(parameters, self._model.layout.parameters, strict=True):
                tensor.add_(move[place.slice].view(place.shape))
