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
_FEW = 5
_APART: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
"""Modules that were checked and answer each example independently."""


def rows_of_noise(count: int, shape: tuple[int, ...], tokens: int, device: torch.device) -> torch.Tensor:
    """Made-up examples: tokens where `tokens` is their number, else noise."""
    import torch

    size = (count, *shape)
    return torch.randint(tokens, size, device=device) if tokens else torch.randn(size, device=device)


def half_empty(rows: torch.Tensor, module: torch.nn.Module, tokens: int) -> torch.Tensor:
    """The same examples as shorter ones are filled up: with zeros, or the token for which an embedding has no value.

    A module may cut a batch to its longest example, which noise alone does not show.
    """
    known = (getattr(part, "padding_idx", None) for part in module.modules())
    padding = next((each for each in known if tokens and isinstance(each, int)), 0)
    axis = next((k for k in range(1, rows.ndim) if rows.shape[k] > 1), None)
    if axis is None:
        return rows
    made, half = rows.clone(), rows.shape[axis] // 2
    made.narrow(axis, rows.shape[axis] - half, half).fill_(padding)
    return made


def require_apart(model: TorchModel, shape: tuple[int, ...], tokens: int = 0) -> None:
    """Tests a module in training mode on inputs of noise, once for each module.

    Two copies get one batch each that agree only in their first example, with the same coins, and then the same batch.
    The examples of the first batch are half empty, the others of the second are not.
    A copy that keeps something, in a buffer or in an attribute, answers the second batch differently. A module that
    draws no coins also gets its first example with fewer others.

    Args:
        model: is not changed.
        shape: of one example's inputs.
        tokens: their number, where inputs are tokens. Tokens are then drawn in place of noise.

    Raises:
        SetupError: an example changes what the module answers to others, in its batch or later, or what it keeps.
    """
    import torch
    from fedplug_std.torch_model import seeded

    if model.module in _APART:
        return
    with torch.no_grad(), seeded(0, model.device):
        first, second, later = (rows_of_noise(_ROWS, shape, tokens, model.device) for _ in range(3))
        first = half_empty(first, model.module, tokens)
        second[0] = first[0]
        tried = [copy.deepcopy(model.module).train() for _ in range(2)]
        answers = [
            [_drawn(module, rows, model.device) for rows in (batch[:], later)]
            for module, batch in zip(tried, (first, second), strict=True)
        ]
        kept = _changed(*tried)
        few = [_drawn(copy.deepcopy(model.module).train(), first[:_FEW], model.device, coins) for coins in (1, 2)]
    pairs = list(zip(("in its batch", "in later batches"), *answers, strict=True))
    if torch.equal(*few):
        pairs.append(("in its batch", answers[0][0], few[0]))
    for where, one, other in pairs:
        rows = slice(1) if where == "in its batch" else slice(None)
        room = 1e-5 * float(one.abs().nan_to_num(0.0).max())  # divergence of a model is reported elsewhere
        if not torch.allclose(one[rows], other[rows], rtol=1e-4, atol=room, equal_nan=True):
            raise SetupError(
                f"DP-SGD needs a gradient for each example, and the answer of {type(model.module).__name__} to one "
                f"changes with others {where}, so clipping bounds nothing; choose a model that takes each example "
                "independently, such as std.mlp or std.lenet5, and keeps no statistics of inputs"
            )
    if kept:
        raise SetupError(
            f"DP-SGD protects gradients alone, and {type(model.module).__name__} keeps something of its examples in "
            f"{kept}, which has no noise; keep no statistics of inputs, such as running means"
        )
    _APART.add(model.module)


def _changed(one: torch.nn.Module, other: torch.nn.Module) -> str:
    """The first buffer in which two copies differ, with the class of its owner; empty if they agree."""
    import torch

    for (name, mine), theirs in zip(one.named_buffers(), other.buffers(), strict=True):
        room = 1e-5 * float(mine.abs().nan_to_num(0.0).max()) if mine.is_floating_point() and mine.numel() else 0.0
        if not torch.allclose(mine, theirs, rtol=1e-4, atol=room, equal_nan=mine.is_floating_point()):
            owner = one.get_submodule(name.rpartition(".")[0])
            return f"the buffer {name} ({type(owner).__name__})"
    return ""


def _drawn(module: torch.nn.Module, batch: torch.Tensor, device: torch.device, coins: int = 1) -> torch.Tensor:
    """A module's answer with the same coins each time."""
    from fedplug_std.torch_model import seeded

    with seeded(coins, device):
        found: torch.Tensor = module(batch.clone())
    return found
