"""Whether a module answers each example by itself: clipped gradients of single examples bound nothing where it does
not, since an example then moves the gradients of those beside it, and of those that come after it.
"""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING

from fedplug.api.errors import SetupError

if TYPE_CHECKING:
    import torch
    from fedplug_std.torch_model import TorchModel

_ROWS = 4
_APART: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
"""Modules that were looked at and answer each example by itself."""


def require_apart(model: TorchModel, shape: tuple[int, ...], tokens: int = 0) -> None:
    """Tries a module in training mode, on inputs of noise; once for each module.

    Two copies get a batch each that agrees in its first example alone, with the same coins, and then the same batch. A
    copy of which something stays, in a buffer or in an attribute, answers that otherwise than the other.

    Args:
        model: left as it is.
        shape: of one example's inputs.
        tokens: how many there are, where inputs are tokens, which are then drawn in place of noise.

    Raises:
        SetupError: an example changes what the module answers to others, in its batch or later.
    """
    import torch
    from fedplug_std.torch_model import seeded

    if model.module in _APART:
        return
    with torch.no_grad(), seeded(0, model.device):
        size, device = (_ROWS, *shape), model.device
        first, second, later = (
            torch.randint(tokens, size, device=device) if tokens else torch.randn(size, device=device) for _ in range(3)
        )
        second[0] = first[0]
        answers = []
        for batch in (first, second):
            tried = copy.deepcopy(model.module).train()
            answers.append([_drawn(tried, rows, model.device) for rows in (batch[:], later)])
    for where, one, other in zip(("in its batch", "in later batches"), *answers, strict=True):
        rows = slice(1) if where == "in its batch" else slice(None)
        room = 1e-5 * float(one.abs().nan_to_num(0.0).max())  # a model that has diverged is for others to report
        if not torch.allclose(one[rows], other[rows], rtol=1e-4, atol=room, equal_nan=True):
            raise SetupError(
                f"DP-SGD needs a gradient for each example, and what {type(model.module).__name__} answers to one "
                f"changes with others {where}: clipping bounds nothing then; choose a model that takes each example by "
                "itself, such as std.mlp or std.lenet5, and keeps no statistics of inputs"
            )
    _APART.add(model.module)


def _drawn(module: torch.nn.Module, batch: torch.Tensor, device: torch.device) -> torch.Tensor:
    """What a module answers with coins that are alike each time."""
    from fedplug_std.torch_model import seeded

    with seeded(1, device):
        found: torch.Tensor = module(batch.clone())
    return found
