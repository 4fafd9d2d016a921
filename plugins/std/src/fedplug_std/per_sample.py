"""Gradients of the task's loss on single examples of a torch model: vectorised, and in bounded memory.

Everything runs in evaluation mode: batch norm uses its running statistics and dropout does nothing. In training mode
batch norm mixes the examples of a batch, so no example would have its own gradient.

Gradients are those of a model at any point `vector`, by default its current parameters. The model does not change.
torch is imported inside the functions, so that components may import this module at their top.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import SetupError

if TYPE_CHECKING:
    import torch
    from fedplug.api.data import About, ClientData, Examples
    from numpy.typing import NDArray

    from fedplug_std.torch_model import TorchModel

_GRADIENT_BYTES = 32 << 20
"""Memory for the gradients of one chunk; the backward pass needs two to three times as much in all. Larger chunks
are slower on a CPU: their memory is fetched from the system and returned each time."""
_MOST_EXAMPLES = 1024
_CHECKED = 32
"""Number of examples for the check that outer products are a layer's gradients."""


def per_sample_gradients(
    model: Any, examples: Examples, data: ClientData, *, vector: NDArray[np.float32] | None = None,
    chunk: int | None = None,
) -> Iterator[torch.Tensor]:  # fmt: skip
    """The gradient of each example's loss, a chunk of examples at a time, by `torch.func`.

    Args:
        model: a `TorchModel`, such as `client.model`.
        examples: the examples; inputs as stored.
        data: the data set; its `mean` and `std` standardise the inputs, and its task has the loss; without one, cross
            entropy.
        vector: float32 (P,), the parameters at which to differentiate; default: the model's.
        chunk: examples at a time; by default as many as keep their gradients below 32 MiB, at least one.

    Yields:
        float32 tensors (n, P) on the model's device, in the order of `examples` and of the model's layout.

    Raises:
        SetupError: the model is not a torch model, or batch norm mixes its examples even in evaluation mode.
        ValueError: `vector` is not float32 (P,).
    """
    import torch

    checked = checked_model(model)
    parameters = parameters_at(checked, vector)
    for count, gradients in _gradients(checked, examples, data, parameters, list(parameters), chunk):
        yield torch.cat([gradient.reshape(count, -1) for gradient in gradients.values()], 1)


def mean_squared_gradients(
    model: Any, examples: Examples, data: ClientData, *, vector: NDArray[np.float32] | None = None,
    chunk: int | None = None,
) -> NDArray[np.float32]:  # fmt: skip
    """The mean over the examples of each squared component of their gradients: the diagonal empirical Fisher matrix.

    (1/n) sum_i (d log p(y_i | x_i) / d theta_j)^2, SelectiveShield eq. 3. The weight gradient of a fully connected
    layer is an outer product, delta_i a_i^T, so its squares sum to (delta^2)^T (a^2), which takes one ordinary backward
    pass for all examples; other parameters take `per_sample_gradients`. Both are exact.

    Args:
        model, examples, data, vector, chunk: as for `per_sample_gradients`.

    Returns:
        float32 (P,), none negative; NaN or infinite where the model has diverged.

    Raises:
        SetupError, ValueError: as in `per_sample_gradients`; ValueError also if there are no examples.
    """
    import torch

    checked = checked_model(model)
    _require_examples(examples)
    parameters = parameters_at(checked, vector)
    total = torch.zeros(checked.layout.size, dtype=torch.float64, device=checked.device)
    places = {place.name: place.slice for place in checked.layout.parameters}
    outer = _squares_of_linear_layers(checked, examples, data, parameters)
    for name, squares in outer.items():
        total[places[name]] = squares.reshape(-1)
    others = [name for name in parameters if name not in outer]
    for _, gradients in _gradients(checked, examples, data, parameters, others, chunk):
        for name, gradient in gradients.items():
            for each in gradient:  # one by one: `sum(0, dtype=torch.float64)` takes ten times as long
                total[places[name]] += each.square().reshape(-1)
    mean: NDArray[np.float32] = (total / len(examples)).to(torch.float32).cpu().numpy()
    return mean


def mean_gradient(
    model: Any, examples: Examples, data: ClientData, *, vector: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """The gradient of the mean loss over all examples, (P,): one full batch, in evaluation mode.

    Args:
        model, examples, data, vector: as for `per_sample_gradients`.

    Raises:
        SetupError, ValueError: as `mean_squared_gradients`.
    """
    import torch
    from torch.func import functional_call

    checked = checked_model(model)
    _require_examples(examples)
    parameters = parameters_at(checked, vector, requires_grad=True)
    total = torch.zeros(checked.layout.size, dtype=torch.float64, device=checked.device)
    with evaluation_mode(checked):
        for inputs, labels in _batches(checked, examples, data):
            loss = summed_loss(functional_call(checked.module, parameters, (inputs,)), labels, data)
            gradients = dense_gradients(loss, list(parameters.values()))
            total += torch.cat([gradient.reshape(-1) for gradient in gradients])
    mean: NDArray[np.float32] = (total / len(examples)).to(torch.float32).cpu().numpy()
    return mean


# -- every parameter, by torch.func ------------------------------------------------------------------------------------


def _gradients(
    model: TorchModel,
    examples: Examples,
    data: ClientData,
    parameters: dict[str, torch.Tensor],
    names: list[str],
    chunk: int | None,
) -> Iterator[tuple[int, dict[str, torch.Tensor]]]:
    """Per-sample gradients with respect to the named parameters: (n, {name: (n, *shape)}) for each chunk."""
    import torch
    from torch.func import functional_call, grad, vmap

    wanted = {name: parameters[name] for name in names}
    fixed = {name: parameter for name, parameter in parameters.items() if name not in wanted}
    if not wanted:
        return

    def loss(moving: dict[str, torch.Tensor], inputs: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        logits = functional_call(model.module, fixed | moving, (inputs.unsqueeze(0),))
        return summed_loss(logits, label.unsqueeze(0), data)

    at_once = vmap(grad(loss), in_dims=(None, 0, 0))
    vectorised = True

    def each(inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        nonlocal vectorised
        if vectorised:
            with contextlib.suppress(RuntimeError, NotImplementedError), without_fused_attention():
                found: dict[str, torch.Tensor] = at_once(wanted, inputs, labels)
                return found
            vectorised = False  # some layers, such as GRU, have no rule for it
        rows = [_gradient_of(loss, wanted, one, label) for one, label in zip(inputs, labels, strict=True)]
        return {name: torch.stack([row[name] for row in rows]) for name in wanted}

    size = sum(parameter.numel() for parameter in wanted.values())
    chunk = chunk or max(1, min(_MOST_EXAMPLES, _GRADIENT_BYTES // (4 * size)))
    for inputs, labels in _batches(model, examples, data, chunk):
        # Not around the loop: the caller may use the model between chunks.
        with evaluation_mode(model):
            gradients = each(inputs, labels)
        yield len(labels), {name: gradients[name] for name in names}


def _gradient_of(
    loss: Callable[..., torch.Tensor], parameters: dict[str, torch.Tensor], one: torch.Tensor, answer: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The gradient of one example's loss, by an ordinary backward pass."""
    live = {name: parameter.detach().requires_grad_() for name, parameter in parameters.items()}
    return dict(zip(live, dense_gradients(loss(live, one, answer), list(live.values())), strict=True))


def dense_gradients(loss: torch.Tensor, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradient of a number in each parameter: 0 where it does not follow from it, and dense where torch gives a
    sparse one.
    """
    import torch

    if not loss.requires_grad:
        return [torch.zeros_like(parameter) for parameter in parameters]
    found = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return [each.to_dense() if each.is_sparse else each for each in found]


@contextlib.contextmanager
def without_fused_attention() -> Iterator[None]:
    """Attention in plain operations, which `torch.func` vectorises, and no warning where it has a slow rule for others.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield


# -- fully connected layers, by outer products -------------------------------------------------------------------------


def _squares_of_linear_layers(
    model: TorchModel, examples: Examples, data: ClientData, parameters: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Sums of squared per-sample gradients, float64, of the parameters for which outer products give them exactly."""
    import torch
    from torch.func import functional_call

    live = {name: parameter.detach().requires_grad_() for name, parameter in parameters.items()}
    squares: dict[str, torch.Tensor] = {}
    with evaluation_mode(model), _watched(_linear_layers(model)) as seen:

        def loss(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            seen.clear()
            logits = functional_call(model.module, live, (inputs,))
            return summed_loss(logits, labels, data)

        layers = _exact_layers(loss(*next(_batches(model, examples, data, _CHECKED))), seen, live)
        for inputs, labels in _batches(model, examples, data) if layers else ():
            total = loss(inputs, labels)
            deltas = torch.autograd.grad(total, [seen[name][0][1] for name in layers], materialize_grads=True)
            for name, delta in zip(layers, deltas, strict=True):
                ((entered, _),) = seen[name]
                found = {f"{name}.weight": delta.square().T @ entered.square(), f"{name}.bias": delta.square().sum(0)}
                for parameter in found.keys() & live.keys():  # a layer may have no bias
                    squares[parameter] = squares.get(parameter, 0) + found[parameter].double()
    return squares


def _linear_layers(model: TorchModel) -> dict[str, Any]:
    """The fully connected layers by name whose parameters are all trained and belong to no other layer."""
    from torch import nn

    parts = list(model.module.named_modules())
    owners = [id(parameter) for _, part in parts for parameter in part.parameters(recurse=False)]
    return {
        name: part
        for name, part in parts
        # Subclasses may compute something else; a nameless one is the whole model, and its parameters have no prefix.
        if type(part) is nn.Linear and name
        and all(parameter.requires_grad and owners.count(id(parameter)) == 1 for parameter in part.parameters())
    }  # fmt: skip


@contextlib.contextmanager
def _watched(layers: dict[str, Any]) -> Iterator[dict[str, list[tuple[torch.Tensor, torch.Tensor]]]]:
    """Inputs and outputs of layers, by name, one pair a use; collected while the block runs."""
    seen: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def watch(name: str) -> Any:
        def hook(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
            seen.setdefault(name, []).append((inputs[0].detach(), output))
            return output.clone()  # later layers may change it in place

        return hook

    handles = [part.register_forward_hook(watch(name)) for name, part in layers.items()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _exact_layers(
    loss: torch.Tensor, seen: dict[str, list[tuple[torch.Tensor, torch.Tensor]]], live: dict[str, torch.Tensor]
) -> list[str]:
    """The layers that were used only once, on one vector an example.

    A weight that is also used outside its layer shows in autograd's gradient, which then differs from the sum of the
    outer products by more than rounding.
    """
    import torch

    names = [name for name, uses in seen.items() if len(uses) == 1 and uses[0][0].ndim == 2]
    if not names:
        return []
    wanted = [*(seen[name][0][1] for name in names), *(live[f"{name}.weight"] for name in names)]
    found = torch.autograd.grad(loss, wanted, materialize_grads=True)
    exact = []
    for name, delta, gradient in zip(names, found[: len(names)], found[len(names) :], strict=True):
        entered = seen[name][0][0]
        difference = (gradient - delta.T @ entered).norm()
        if not bool(difference > 1e-3 * (delta.abs().T @ entered.abs()).norm()):  # NaN, where the model has diverged
            exact.append(name)
    return exact


# -- parts -------------------------------------------------------------------------------------------------------------


def checked_model(model: Any, purpose: str = "gradients of single examples") -> TorchModel:
    """The model, if each of its examples has its own gradient.

    Raises:
        SetupError: it is not a torch model, or batch norm mixes its examples even in evaluation mode.
    """
    from torch.nn.modules.batchnorm import _BatchNorm

    from fedplug_std.torch_model import TorchModel, use_one_thread

    if not isinstance(model, TorchModel):
        raise SetupError(f"{purpose} need a torch model, not {type(model).__name__}")
    for name, part in model.module.named_modules():
        if isinstance(part, _BatchNorm) and part.running_mean is None:
            raise SetupError(
                f"batch norm {name} keeps no running statistics, so it mixes the examples of a batch and none has its "
                "own gradient; build it with track_running_stats=True, or use group norm"
            )
    use_one_thread()
    return model


def _require_examples(examples: Examples) -> None:
    if not len(examples):
        raise ValueError("a mean over examples needs at least one example")


def parameters_at(
    model: TorchModel, vector: NDArray[np.float32] | None, requires_grad: bool = False
) -> dict[str, torch.Tensor]:
    """The trainable parameters by name, in the order of the layout, at the given point; not the module's own."""
    from fedplug_std.torch_model import as_tensor

    vector = model.get_vector() if vector is None else vector
    if vector.shape != (model.layout.size,) or vector.dtype != np.float32:
        raise ValueError(f"a vector of {vector.dtype}{list(vector.shape)} must be float32[{model.layout.size}]")
    flat = as_tensor(vector).to(model.device)
    views = {place.name: flat[place.slice].view(place.shape) for place in model.layout.parameters}
    return {name: view.requires_grad_() if requires_grad else view for name, view in views.items()}


def _batches(
    model: TorchModel, examples: Examples, data: ClientData, chunk: int | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Standardised inputs and labels on the model's device, in order."""
    from fedplug_std.torch_model import as_tensor, batch_of, to_tensor

    most = batch_of(examples, data)
    step = most if chunk is None else min(chunk, most)
    for start in range(0, len(examples), step):
        part = examples.take(slice(start, start + step))
        yield to_tensor(part.inputs, data.mean, data.std, model.device), as_tensor(part.answers).to(model.device)


def summed_loss(logits: torch.Tensor, answers: torch.Tensor, data: About) -> torch.Tensor:
    """The sum over examples of their loss in the task of `data`; where it has none, of their cross entropy, which is a
    mean over pixels where those have answers.
    """
    import torch

    if data.task is not None:
        total: torch.Tensor = data.task.losses(logits, answers).sum()
        return total
    return torch.nn.functional.cross_entropy(logits, answers, reduction="sum") / answers[0].numel()


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
