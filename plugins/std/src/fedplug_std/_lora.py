"""The layers behind `fedplug_std.lora`.

Parameters are named as `peft` names them in its files, `<layer>.lora_A.weight` and `<layer>.lora_B.weight`, and layers
compute what its layers compute. It uses layers, not `torch.nn.utils.parametrize`, because Opacus and outer products
find gradients of single examples layer by layer.
"""

from __future__ import annotations

import fnmatch
import math
from contextvars import ContextVar
from typing import Any

import torch
from fedplug.api.errors import SetupError
from torch import nn

from fedplug_std.options import LoraOptions
from fedplug_std.torch_model import seeded, tried

_USED: ContextVar[set[int] | None] = ContextVar("_USED", default=None)
"""Place where adapters note that they are called; not hooks, because torch's transformer layers look for those."""


class Adapted(nn.Module):
    """A frozen layer, and two thin layers whose product is added to its output, in its dtype."""

    def __init__(self, base_layer: nn.Module, a: nn.Module, b: nn.Module, scale: float, dropout: float) -> None:
        super().__init__()
        self.base_layer, self.lora_A, self.lora_B = base_layer, a, b
        self.scale, self.dropout = scale, nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """W x + scale B A x."""
        if (seen := _USED.get()) is not None:
            seen.add(id(self))
        given: torch.Tensor = self.base_layer(x)
        entering = self.dropout(x.float()) if x.is_floating_point() else x
        added: torch.Tensor = self.scale * self.lora_B(self.lora_A(entering))
        return given + added.to(given.dtype)

    def __getattr__(self, name: str) -> Any:
        """Attributes that others read from a layer, such as a tied `weight`, are those of the frozen one."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base_layer"), name)


def _thin(layer: nn.Module, rank: int) -> tuple[nn.Module, nn.Module] | None:
    """A and B for a layer; None for one of another kind."""
    if type(layer) is nn.Linear:
        return nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=False)
    if type(layer).__name__ == "Conv1D" and isinstance(weight := getattr(layer, "weight", None), torch.Tensor):
        # A fully connected layer with the transposed weight, of which GPT-2 is made in `transformers`.
        return nn.Linear(weight.shape[0], rank, bias=False), nn.Linear(rank, weight.shape[1], bias=False)
    if type(layer) is nn.Embedding:
        return nn.Embedding(layer.num_embeddings, rank), nn.Linear(rank, layer.embedding_dim, bias=False)
    if type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
        sizes: Any = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
        first = nn.Conv2d(layer.in_channels, rank, layer.kernel_size, bias=False, **sizes)  # type: ignore[arg-type]
        return first, nn.Conv2d(rank, layer.out_channels, 1, bias=False)
    return None


def adapt(module: nn.Module, options: LoraOptions, shape: tuple[int, ...], seed: int) -> None:
    """Freezes a module, puts adapters into it, and also trains the parameters in `options.trained`.

    Args:
        module: changed in place.
        options: of the component.
        shape: of one example, used for a trial.
        seed: the recipe's seed; the draws differ from those of the weights within.

    Raises:
        SetupError: a pattern matches nothing, a named layer cannot be adapted, or no adapter would be used.
    """
    names = [name for name, _ in module.named_parameters()]
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    for pattern in options.trained:
        if not (found := [name for name in names if fnmatch.fnmatchcase(name, pattern)]):
            raise SetupError(f"trained: no parameter has a name like {pattern!r}; the model has {', '.join(names)}")
        for name in found:
            module.get_parameter(name).requires_grad_(True)
    scale = 1.0 if options.alpha is None else options.alpha / options.rank
    made: dict[int, Adapted] = {}
    with seeded((seed + 1) % 2**63):
        for layer in _chosen(module, options.targets):
            a, b = _thin(layer, options.rank) or (None, None)
            assert a is not None  # else it is not chosen
            assert b is not None
            _first_values(a, b)
            made[id(layer)] = Adapted(layer, a, b, scale, options.dropout).to(next(layer.parameters()).device)
    for part in [*module.modules()]:
        if not isinstance(part, Adapted):
            for key, child in part.named_children():
                if id(child) in made:  # also if it is used in several places
                    setattr(part, key, made[id(child)])
    _require_used(module, shape)


def _first_values(a: nn.Module, b: nn.Module) -> None:
    """Weights as in peft: B zero; A as in torch's linear layer, or normal for an embedding."""
    for layer in (a, b):
        weight: Any = layer.weight
        if layer is b:
            nn.init.zeros_(weight)
        elif isinstance(layer, nn.Embedding):
            nn.init.normal_(weight)
        else:
            nn.init.kaiming_uniform_(weight, a=math.sqrt(5))


def _chosen(module: nn.Module, targets: tuple[str, ...] | None) -> list[nn.Module]:
    """The layers that get adapters."""
    parts = {name: part for name, part in module.named_modules() if name}
    able = {name: part for name, part in parts.items() if _thin(part, 1) is not None}
    there = f"layers that can be adapted: {', '.join(able) or 'none'}"
    if targets is None:
        usual = [part for part in able.values() if not isinstance(part, nn.Embedding | nn.Conv2d)]
        if not usual:
            raise SetupError(f"the model has no fully connected layer within it; name others as targets; {there}")
        return usual
    found: dict[str, nn.Module] = {}
    for pattern in targets:
        like = [name for name in parts if _is_like(name, pattern)]
        if not (taken := [name for name in like if name in able]):
            why = f"{like[0]} is a {type(parts[like[0]]).__name__}" if like else "no layer has a name like that"
            raise SetupError(f"targets: {pattern!r}: {why}; {there}")
        found |= {name: able[name] for name in taken}
    return [*found.values()]


def _is_like(name: str, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(each, pattern) for each in (name, name.rpartition(".")[2]))


def _require_used(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Refuses adapters that the model bypasses, in training or in evaluation, because it reads the weights of their
    layers itself. A `torch.nn.TransformerEncoderLayer` does so only in evaluation.
    """
    adapters = {name: part for name, part in module.named_modules() if isinstance(part, Adapted)}
    was_training = module.training
    for training in (False, True):
        used: set[int] = set()
        token = _USED.set(used)
        try:
            with torch.set_grad_enabled(training), seeded(0):
                _tried(module.train(training), shape, next(module.parameters()).device)
        finally:
            _USED.reset(token)
            module.train(was_training)
        if unused := [name for name, part in adapters.items() if id(part) not in used]:
            when = "training" if training else "evaluation"
            raise SetupError(
                f"the model does not call {', '.join(unused)} in {when}, so adapters there have no effect; it reads "
                "their weights itself, or does not use them: leave them out of targets"
            )


def _tried(module: nn.Module, shape: tuple[int, ...], device: torch.device) -> None:
    """Passes two examples of zeros, the least for batch norm, through a module; changes to its state are undone."""
    kept = {name: tensor.clone() for name, tensor in module.named_buffers()}
    try:
        tried(module, shape, device, 2)
    finally:
        for name, tensor in module.named_buffers():
            if name in kept:
                tensor.copy_(kept[name])
