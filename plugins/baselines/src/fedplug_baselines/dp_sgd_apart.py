"""Whether a module answers each example independently. Where it does not, clipped gradients of single examples bound
nothing: an example then changes the gradients of others in its batch, and of later ones.
"""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING

from fedplug.api.errors import SetupError

if TYPE_CHECKING:
    import torch
    from fedplug_std.torch_model import TorchModel

_ROWS = 32
_APART: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
"""Modules that were checked and answer each example independently."""


def require_apart(model: TorchModel, shape: tuple[int, ...], tokens: int = 0) -> None:
    """Tests a module in training mode on inputs of noise, once for each module.

    Two copies get one batch each that agree only in their first example, with the same coins, and then the same batch.
    A copy that keeps something, in a buffer or in an attribute, answers the second batch differently.

    Args:
        model: is not changed.
        shape: of one example's inputs.
        tokens: their number, where inputs are tokens. Tokens are then drawn in place of noise.

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
        room = 1e-5 * float(one.abs().nan_to_num(0.0).max())  # divergence of a model is reported elsewhere
        if not torch.allclose(one[rows], other[rows], rtol=1e-4, atol=room, equal_nan=True):
            raise SetupError(
                f"DP-SGD needs a gradient for each example, and the answer of {type(model.module).__name__} to one "
                f"changes with others {where}, so clipping bounds nothing; choose a model that takes each example "
                "independently, such as std.mlp or std.lenet5, and keeps no statistics of inputs"
            )
    _APART.add(model.module)


def _drawn(module: torch.nn.Module, batch: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A module's answer with the same coins each time."""
    from fedplug_std.torch_model import seeded

    with seeded(1, device):
        found: torch.Tensor = module(batch.clone())
    return found
