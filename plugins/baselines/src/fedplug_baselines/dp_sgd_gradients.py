"""Gradients of single examples in training mode, for DP-SGD: by the fastest of three ways that is right for a module.

* `hooked`: Opacus' hooks, one forward and one backward pass for a batch. It knows the usual layers alone.
* `vectorised`: `torch.func` on the whole module. Some layers, such as GRU, have no rule for it.
* `alone`: one pass for each example. It takes any module that answers a single example.

Which way is right is tried out once for each module, on a copy with rows of noise: each example's gradient must be the
one that a pass for it alone gives. Opacus takes some modules wrongly and says nothing, such as those that use a weight
outside its layer, fold positions into the batch, or have two inputs.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import FedplugError, SetupError, cause_of
from fedplug_std.per_sample import dense_gradients, without_fused_attention

from fedplug_baselines.dp_sgd_apart import half_empty, require_apart, rows_of_noise

if TYPE_CHECKING:
    import torch
    from fedplug_std.torch_model import TorchModel

    Losses = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """Outputs and answers of a batch to the loss of each example, (n,)."""
    Gradients = Callable[[torch.Tensor, torch.Tensor], tuple[list[torch.Tensor], torch.Tensor]]
    """Inputs and answers of n examples to a gradient (n, size) for each trainable parameter, and the losses (n,)."""
    Way = Callable[[torch.nn.Module, Losses], contextlib.AbstractContextManager[Gradients]]

_TRIED = 3
"""Examples on which a way is tried."""
_CHOSEN: weakref.WeakKeyDictionary[torch.nn.Module, tuple[Way, str]] = weakref.WeakKeyDictionary()
"""For each module that was tried: the way, and why it is not a faster one."""


class Apart:
    """What gives the gradients of a model's examples, each computed as if the others were not there.

    Buffers move on once in a step, as they would with any batch: how often a module is called must not show how many
    examples a batch holds. Every call within a step begins with the same buffers.

    Args:
        model: in training mode.
        of: inputs and answers of n examples to a gradient (n, size) for each parameter, and the losses (n,).
        row: one made-up example.
    """

    def __init__(self, model: TorchModel, of: Gradients, row: torch.Tensor) -> None:
        self._module, self._of, self._row, self._device = model.module, of, row, model.device
        self._buffers = [buffer for buffer in self._module.buffers() if buffer.numel()]

    @contextlib.contextmanager
    def step(self) -> Iterator[Gradients]:
        """A step of training; gives what takes inputs and answers."""
        import torch
        from fedplug_std.torch_model import seeded

        if not self._buffers:
            yield self._of
            return
        before = [buffer.clone() for buffer in self._buffers]

        def restored(inputs: torch.Tensor, answers: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
            self._set(before)
            return self._of(inputs, answers)

        yield restored
        self._set(before)
        with torch.no_grad(), seeded(0, self._device):
            self._module(self._row.clone())

    def _set(self, values: list[torch.Tensor]) -> None:
        for buffer, value in zip(self._buffers, values, strict=True):
            buffer.detach().copy_(value)


@contextlib.contextmanager
def gradients_apart(model: TorchModel, losses: Losses, shape: tuple[int, ...], tokens: int = 0) -> Iterator[Apart]:
    """Inside, gradients of single examples; the module is in training mode.

    Args:
        model: its parameters may move meanwhile.
        losses: of each example of a batch, from its outputs and answers; may be given one example at a time.
        shape: of one example's inputs.
        tokens: their number, where inputs are tokens.

    Raises:
        SetupError: as `chosen_way`.
    """
    way, _ = chosen_way(model, shape, tokens)
    model.module.train()
    with way(model.module, losses) as of:
        yield Apart(model, of, rows_of_noise(1, shape, tokens, model.device))


def chosen_way(model: TorchModel, shape: tuple[int, ...], tokens: int = 0) -> tuple[Way, str]:
    """The way for a model, and why it is not a faster one (empty for the fastest).

    Raises:
        SetupError: no example has its own gradient; names the layers, and what to use instead.
    """
    module = model.module
    if (known := _CHOSEN.get(module)) is not None:
        return known
    module.train()
    require_usable_layers(module)
    try:
        require_apart(model, shape, tokens)
    except FedplugError:
        raise
    except Exception as error:
        raise SetupError(
            f"DP-SGD trains on examples that a model takes apart, and {type(module).__name__} fails at batches of "
            f"noise in training mode: {cause_of(error)}; correct the model, or choose std.sgd"
        ) from error
    reasons: list[str] = []
    for way in (hooked, vectorised, alone):
        if not (why := _wrong(way, model, shape, tokens)):
            _CHOSEN[module] = way, "; ".join(reasons)
            return _CHOSEN[module]
        reasons.append(why)
    raise SetupError(
        f"DP-SGD needs a gradient for each example, and {type(module).__name__} gives none that follows from one "
        f"example alone: {reasons[-1]}; choose a model that takes batches of one example and keeps nothing between "
        "them, such as std.mlp or std.lenet5"
    )


def require_usable_layers(module: torch.nn.Module) -> None:
    """Refuses layers that mix examples or keep statistics of them, by name and class, with what to use instead.

    Raises:
        SetupError: there are some.
    """
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.instancenorm import _InstanceNorm

    mixing: dict[str, list[str]] = {}
    keeping: dict[str, list[str]] = {}
    for name, part in module.named_modules():
        if isinstance(part, _InstanceNorm):
            if part.track_running_stats:
                keeping.setdefault(type(part).__name__, []).append(name or "the model")
        elif isinstance(part, _BatchNorm) and (part.training or part.running_mean is None):
            mixing.setdefault(type(part).__name__, []).append(name or "the model")
    said = []
    if mixing:
        said.append(
            f"{_listed(mixing)} mixes the examples of a batch; use torch.nn.GroupNorm in its place (std.cnn has norm: "
            "group), or a model without it, such as std.mlp or std.lenet5"
        )
    if keeping:
        said.append(f"{_listed(keeping)} keeps statistics of examples; build it with track_running_stats=False")
    if said:
        raise SetupError(f"DP-SGD needs a gradient for each example: {'. '.join(said)}")


def _listed(layers: dict[str, list[str]]) -> str:
    """Such as `BatchNorm2d (norm1, norm2)`."""
    def some(names: list[str]) -> str:
        return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

    return ", ".join(f"{kind} ({some(names)})" for kind, names in layers.items())


# -- three ways --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def hooked(module: torch.nn.Module, losses: Losses) -> Iterator[Gradients]:
    """By Opacus: a backward pass leaves the gradient of each example in `grad_sample` of every parameter.

    Raises:
        NotImplementedError: Opacus does not take the module.
    """
    import torch
    from opacus import GradSampleModule
    from opacus.validators import ModuleValidator

    if errors := ModuleValidator.validate(module):
        raise NotImplementedError(str(errors[0]).split(". ")[0])
    parameters = _trained(module)
    wrapped = GradSampleModule(module, loss_reduction="sum")

    def of(inputs: torch.Tensor, answers: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        each = losses(module(inputs), answers)
        torch.autograd.grad(each.sum(), list(parameters.values()), materialize_grads=True)
        return [_taken(parameter, len(inputs)) for parameter in parameters.values()], each.detach()

    try:
        with warnings.catch_warnings():
            # The first layer's inputs need no gradient. torch warns about that and Opacus handles it.
            warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
            yield of
    finally:
        wrapped.to_standard_module()


def _taken(parameter: torch.Tensor, count: int) -> torch.Tensor:
    """The gradients of `count` examples, (n, size), removed from the parameter; 0 where it was not used."""
    import torch

    found, parameter.grad_sample = parameter.grad_sample, None  # type: ignore[attr-defined]
    if found is None:
        return torch.zeros(count, parameter.numel(), device=parameter.device)
    flat: torch.Tensor = found.reshape(count, -1)
    return flat


@contextlib.contextmanager
def vectorised(module: torch.nn.Module, losses: Losses) -> Iterator[Gradients]:
    """By `torch.func`: the module is called with one example, for all examples at once."""
    import torch
    from torch.func import functional_call, grad_and_value, vmap

    parameters = _trained(module)
    # Shares its tensors with the module. Some parts, such as weight norm, leave a trace in the module that is called.
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    for part in module.modules():
        traces = (value for value in vars(part).values() if isinstance(value, torch.Tensor) and not value.is_leaf)
        shared |= {id(value): value.detach() for value in traces}  # torch copies no others
    called = copy.deepcopy(module, shared)

    def loss(moving: dict[str, torch.Tensor], held: dict[str, torch.Tensor], one: torch.Tensor,
             answer: torch.Tensor) -> torch.Tensor:  # fmt: skip
        outputs = functional_call(called, moving | held, (one[None],))
        return losses(outputs, answer[None])[0]

    each = vmap(grad_and_value(loss), in_dims=(None, None, 0, 0), randomness="different")

    def of(inputs: torch.Tensor, answers: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        moving = {name: parameter.detach() for name, parameter in parameters.items()}
        held = {name: buffer.clone() for name, buffer in module.named_buffers()}
        with without_fused_attention():
            found, values = each(moving, held, inputs, answers)
        return [found[name].detach().reshape(len(inputs), -1) for name in parameters], values.detach()

    yield of


@contextlib.contextmanager
def alone(module: torch.nn.Module, losses: Losses) -> Iterator[Gradients]:
    """By a forward and a backward pass for each example."""
    import torch

    parameters = list(_trained(module).values())

    def of(inputs: torch.Tensor, answers: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        rows, values = [], []
        held = [(buffer, buffer.clone()) for buffer in module.buffers()]
        for start in range(len(inputs)):
            for buffer, value in held if start else ():
                buffer.detach().copy_(value)
            one = slice(start, start + 1)
            value = losses(module(inputs[one].clone()), answers[one])[0]
            rows.append([each.reshape(-1) for each in dense_gradients(value, parameters)])
            values.append(value.detach())
        return [torch.stack([row[k] for row in rows]) for k in range(len(parameters))], torch.stack(values)

    yield of


def _trained(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


# -- which one is right ------------------------------------------------------------------------------------------------


def _wrong(way: Way, model: TorchModel, shape: tuple[int, ...], tokens: int) -> str:
    """Why a way is not right for a model; empty if each example's gradient is that of a pass for it alone.

    The loss is a sum of outputs with random weights, so that no task is needed. A module that draws in training mode is
    compared in evaluation mode; Opacus, whose hooks need training mode, on the same forward pass.
    """
    import torch
    from fedplug_std.torch_model import seeded

    tried = copy.deepcopy(model.module).train()
    try:
        with seeded(2, model.device):
            inputs = rows_of_noise(_TRIED, shape, tokens, model.device)
            inputs[:1] = half_empty(inputs[:1], tried, tokens)
            with torch.no_grad():
                for parameter in _trained(tried).values():  # away from points where gradients vanish or are NaN
                    parameter.nan_to_num_(0.0, 0.0, 0.0).add_(0.02 * torch.randn_like(parameter))
                answers = [_drawn(tried, inputs, seed, model.device) for seed in (3, 4)]
            weights = torch.randn_like(answers[0])
            draws = not torch.equal(*answers)
            if draws and way is not hooked:
                tried.eval()
            with way(copy.deepcopy(tried), _weighted) as of, seeded(5, model.device):
                found, _ = of(inputs.clone(), weights)
            if draws and way is hooked:  # what it drew is known by the seed alone, and a batch draws at once
                with seeded(5, model.device):
                    each = _weighted(tried(inputs.clone()), weights)
                rows = [torch.autograd.grad(one, [*_trained(tried).values()], retain_graph=True, materialize_grads=True)
                        for one in each]  # fmt: skip
                wanted = [torch.stack([row[k].reshape(-1) for row in rows]) for k in range(len(found))]
            else:
                with alone(tried, _weighted) as of:  # the last first: a module that keeps something then shows it
                    wanted = [each.flip(0) for each in of(inputs.flip(0), weights.flip(0))[0]]
    except Exception as error:
        return _said(error)
    room = 1e-5 * torch.stack([each.norm() for each in wanted]).norm()
    if room == 0:
        return "its answers follow from no trainable parameter"
    for name, one, other in zip(_trained(tried), found, wanted, strict=True):
        if one.shape != other.shape or bool((one - other).norm() > 1e-3 * other.norm() + room):
            return f"it gives wrong gradients for {name}"
    return ""


def _drawn(module: torch.nn.Module, inputs: torch.Tensor, seed: int, device: torch.device) -> torch.Tensor:
    from fedplug_std.torch_model import seeded

    with seeded(seed, device):
        found: torch.Tensor = copy.deepcopy(module)(inputs.clone())
    return found


def _weighted(outputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (outputs * weights).flatten(1).sum(1)


def _said(error: Exception) -> str:
    """The first sentence of an error."""
    return " ".join(str(error).split())[:160].partition(". ")[0] or type(error).__name__
