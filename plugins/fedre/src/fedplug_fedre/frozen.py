"""A torch model held still, so that gradients of single examples can be taken: parameters, statistics, modes.

torch is imported inside the functions, so that components may import this module at their top.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.errors import DataError, SetupError
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from fedplug.torch_model import TorchModel


def checked_model(model: Any) -> TorchModel:
    """The model, if each of its examples has a gradient of its own.

    Raises:
        SetupError: it is not a torch model, or batch norm mixes its examples even in evaluation mode.
    """
    from fedplug.torch_model import TorchModel, use_one_thread
    from torch.nn.modules.batchnorm import _BatchNorm

    if not isinstance(model, TorchModel):
        raise SetupError(f"PSI scores need a torch model, not {type(model).__name__}")
    for name, part in model.module.named_modules():
        if isinstance(part, _BatchNorm) and part.running_mean is None:
            raise SetupError(
                f"batch norm {name} keeps no running statistics, so it mixes the examples of a batch and none has a "
                "gradient of its own; build it with track_running_stats=True, or use group norm"
            )
    use_one_thread()
    return model


def parameters_at(model: TorchModel, vector: NDArray[np.float32] | None) -> dict[str, torch.Tensor]:
    """The trainable parameters by name at the given point; not the module's own."""
    from fedplug.torch_model import as_tensor

    vector = model.get_vector() if vector is None else vector
    if vector.shape != (model.layout.size,) or vector.dtype != np.float32:
        raise ValueError(f"a vector of {vector.dtype}{list(vector.shape)} must be float32[{model.layout.size}]")
    flat = as_tensor(vector).to(model.device)
    return {place.name: flat[place.slice].view(place.shape) for place in model.layout.parameters}


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
    """How many values the parts of the model put out for these inputs."""
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


@contextlib.contextmanager
def evaluation_mode(model: TorchModel) -> Iterator[None]:
    """Evaluation mode; afterwards every part is in the mode it was in."""
    modes = [(part, part.training) for part in model.module.modules()]
    model.module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
