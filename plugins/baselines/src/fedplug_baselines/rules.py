"""Rules for recipes (`fedplug.rules`): networks whose examples have no gradients apart, which DP-SGD needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import ProtectionError, SetupError
from fedplug_std.rules import network

if TYPE_CHECKING:
    import torch
    from fedplug_std.torch_model import TorchModel

    from fedplug_baselines.dp_sgd import DpSgd

Complaint = tuple[tuple[str | int, ...], str]
"""A place in the recipe, and what is wrong there."""
_USUAL = 1e-3, 1e3
"""Epsilons for which a check does not look for noise, which takes a second."""


def problems(rules: Any) -> Iterator[Complaint]:
    """A network that DP-SGD cannot train, with the layers that are to blame, and an epsilon that no noise gives."""
    for use, part in _trainers(rules):
        if why := _no_noise(part):
            yield use.path, f"{use.use}: {why}"
        try:
            _way(rules)
        except SetupError as error:
            yield use.path, f"{use.use}: {error}"


def _trainers(rules: Any) -> list[tuple[Any, DpSgd]]:
    """Those of the recipe; where their module was not imported, it names none, and a check stays fast."""
    module = sys.modules.get("fedplug_baselines.dp_sgd")
    return [] if module is None else [(use, part) for use, part in rules.defined if isinstance(part, module.DpSgd)]


def _no_noise(part: DpSgd) -> str:
    """Why there is no noise for an unusual epsilon; each client's own number of examples decides about others."""
    from fedplug_baselines.dp_sgd_accounting import noise_multiplier_for

    options = part.options
    if options.epsilon is None or options.delta is None or _USUAL[0] <= options.epsilon <= _USUAL[1]:
        return ""
    try:
        noise_multiplier_for(options.epsilon, options.delta, 0.1, 10, options.calibration)
    except ProtectionError as error:
        return f"{error}; an epsilon between 0.1 and 20 is usual"
    return ""


def notes(rules: Any) -> list[str]:
    """That gradients are computed one example at a time, which takes longer."""
    if not _trainers(rules) or not (slow := _way(rules)):
        return []
    return [f"baselines.dp_sgd takes a pass for the gradient of each example, which is slow: torch "
            f"vectorises no {slow}"]


def _way(rules: Any) -> str:
    """What makes the gradients of the network's examples take one pass each; empty if nothing does, or nobody knows.

    Raises:
        SetupError: they have none.
    """
    if (found := network(rules)) is None:
        return ""
    from fedplug_baselines.dp_sgd_gradients import alone, chosen_way

    model, holds = found
    shape = holds.shape or ()
    way, _ = chosen_way(model, shape, 0 if _takes_numbers(model, shape) else holds.num_classes or 0)
    return _unusual(model.module) if way is alone else ""


def _unusual(module: torch.nn.Module) -> str:
    """The parts that torch.func has no rule for, as `GRU (cell)`, or the class of the whole."""
    from torch import nn

    named = [
        f"{type(part).__name__} ({name})" for name, part in module.named_modules()
        if name and (isinstance(part, nn.RNNBase) or getattr(part, "sparse", False))
    ]  # fmt: skip
    return ", ".join(named[:4]) or type(module).__name__


def _takes_numbers(model: TorchModel, shape: tuple[int, ...]) -> bool:
    """Whether a model takes numbers; else it takes tokens."""
    import torch

    try:
        with torch.no_grad():
            model.module.eval()(torch.zeros(1, *shape, device=model.device))
    except (RuntimeError, TypeError, IndexError):
        return False
    return True
