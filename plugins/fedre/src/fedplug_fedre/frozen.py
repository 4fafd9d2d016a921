"""A frozen torch model, so that gradients of single examples can be taken: its statistics, and its size in use.

torch is imported inside the functions, so that components may import this module at their top.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import DataError

if TYPE_CHECKING:
    import torch
    from fedplug_std.torch_model import TorchModel


def statistics_of(model: TorchModel, inputs: torch.Tensor, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Batch-norm buffers as one pass over these inputs in training mode would leave them, without momentum."""
    import torch
    from torch.func import functional_call
    from torch.nn.modules.batchnorm import _BatchNorm

    norms = {name: part for name, part in model.module.named_modules() if isinstance(part, _BatchNorm)}
    if not norms:
        return {}
    buffers = {
        f"{name}.{own}": torch.zeros_like(tensor)
        for name, part in norms.items()
        for own, tensor in part.named_buffers(recurse=False)
    }
    momenta = {name: part.momentum for name, part in norms.items()}
    try:
        for part in norms.values():
            part.momentum = None  # the statistics of this pass alone
            part.train()
        with torch.no_grad():
            functional_call(model.module, state | buffers, (inputs,))
    except ValueError as error:  # torch: more than one value a channel
        raise DataError(f"{len(inputs)} examples give batch norm no statistics ({error}); take more samples") from error
    finally:
        for name, part in norms.items():
            part.momentum = momenta[name]
            part.eval()
    return buffers


def activations(model: TorchModel, inputs: torch.Tensor) -> int:
    """Number of values that the parts of the model output for these inputs."""
    import torch

    count = 0

    def watch(module: torch.nn.Module, arguments: Any, output: Any) -> None:
        nonlocal count
        count += output.numel() if isinstance(output, torch.Tensor) else 0

    parts: list[Callable[[], None]] = []
    try:
        for part in model.module.modules():
            if not list(part.children()):
                parts.append(part.register_forward_hook(watch).remove)
        with torch.no_grad():
            model.module(inputs)
    finally:
        for remove in parts:
            remove()
    return count
