"""Adapters that make components of objects in the user's file, written without fedplug.

    model: {use: my_model.py:Net, hidden: 64}     a torch module's class, or a function that gives a module
    data: {use: my_data.py:load, size: 200}       a function load(root, ...) that gives arrays, or a fedplug.Dataset
    train: {use: my_loss.py:focal, lr: 0.1}       a function of logits and answers that gives the mean loss of a batch

Arguments become options, with their types and defaults; `shape` and `num_classes` of a model come from the data.
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import fedplug
from fedplug import Component, Dataset, Field, Learns
from fedplug.api.errors import DataError, FedplugError, SetupError, cause_of
from pydantic import create_model

from fedplug_std import arrays
from fedplug_std.models import build, untrainable
from fedplug_std.options import Sized
from fedplug_std.training import Sgd

if TYPE_CHECKING:
    import torch
    from fedplug import Facts

    from fedplug_std.torch_model import TorchModel

_OF_THE_DATA = ("shape", "num_classes")


def model(found: Any, name: str) -> type[Component] | None:
    """The component around a torch module's class, or a function that gives a module."""
    if isinstance(found, type):
        import torch

        if not issubclass(found, torch.nn.Module):
            return None
    elif not inspect.isfunction(found):
        import torch

        if isinstance(found, torch.nn.Module):
            raise TypeError(
                f"it is one module, a {type(found).__name__}, and each run needs a new one with weights of its seed; "
                "write a function that gives it, and name that"
            )
        return None

    class Own(fedplug.ModelSource):
        Options = _options(found, fedplug.Options, name, _OF_THE_DATA)

        def refuses(
            self, shape: tuple[int, ...], num_classes: int | None, per: Literal["example", "pixel"]
        ) -> str | None:
            """Why the module fails, or gives something other than a number for each class.

            It is tried without memory or work, on torch's device `meta`. Not all of torch works there: after a failure
            it is built as for a run, which decides.
            """
            import torch

            from fedplug_std.torch_model import seeded, tried

            if num_classes is None:
                return None
            with contextlib.suppress(Exception), torch.device("meta"), seeded(0):
                module = self._made(shape, num_classes).eval()
                return _misfit(name, tried(module, shape), shape, num_classes, per) or untrainable(module) or None
            try:
                made = self.build(shape, num_classes, 0, "cpu")
                with torch.no_grad():
                    return _misfit(name, tried(made.module.eval(), shape), shape, num_classes, per)
            except DataError as error:  # what torch says of the shape
                remedy = "build it for the shape in the argument shape, or use other data"
                return f"it fails at one: {error.__cause__}; {remedy}"
            except SetupError as error:
                return str(error)

        def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int | None:
            """Those of the module, which is made without memory, on torch's device `meta`; None where that fails."""
            import torch

            from fedplug_std.torch_model import seeded

            with contextlib.suppress(Exception), torch.device("meta"), seeded(0):
                parts = [*self._made(shape, num_classes).parameters()]
                # With LoRA around it, others may take less memory than the float32 that is reckoned with.
                return sum(part.numel() for part in parts if part.dtype == torch.float32)
            return None

        def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> TorchModel:
            """The module with weights of this seed; it must give one number for each class."""
            import torch

            from fedplug_std.torch_model import tried

            made = build(lambda: self._made(shape, num_classes), shape, seed, device)
            with torch.no_grad():
                given_out = tried(made.module.eval(), shape, made.device)
            made.module.train()
            if why := _misfit(name, given_out, shape, num_classes):
                raise SetupError(why)
            return made

        def _made(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
            import torch

            given = {"shape": shape, "num_classes": num_classes}
            known = {key: value for key, value in given.items() if key in inspect.signature(found).parameters}
            made = _called(name, found, **known, **_values(self.options))
            if not isinstance(made, torch.nn.Module):
                raise SetupError(f"{name} gives a {type(made).__name__}; it must give a torch.nn.Module")
            return made

    return _named(Own, found, name)


def _misfit(name: str, given_out: Any, shape: tuple[int, ...], num_classes: int, per: str = "") -> str | None:
    """Why a module's output for one example is not an answer; None if it is. `per` is empty if unknown."""
    import torch

    sizes = tuple(given_out.shape) if isinstance(given_out, torch.Tensor) else type(given_out).__name__
    of_pixels = len(sizes) > 2
    if isinstance(sizes, tuple) and sizes[:2] == (1, num_classes) and per in ("", "pixel" if of_pixels else "example"):
        return None
    if len(shape) == 1 and sizes == (1, *shape, num_classes):  # a number for each token at each position
        return None
    return (
        f"{name} gives {sizes} for one example; it must give one number for each of {num_classes} classes: "
        f"(1, {num_classes}), or (1, {num_classes}, H, W) for segmentation, or (1, positions, {num_classes}) for tokens"
    )


class _OfData(Sized):
    classes: tuple[str, ...] = Field((), description="names of the classes, if load gives arrays; else 0, 1, ...")
    outputs: int | None = Field(
        None, ge=1, description="number of a model's outputs, if nothing names them: the size of a vocabulary"
    )
    mean: float = Field(0.5, ge=0, le=1, description="subtracted from inputs in [0, 1], if load gives arrays")
    std: float = Field(0.25, gt=0, le=1, description="inputs are then divided by this, if load gives arrays")


def dataset(found: Any, name: str) -> type[Component] | None:
    """The component around a function that loads data."""
    if not inspect.isfunction(found):
        return None
    root_name = next(iter(inspect.signature(found).parameters), "")

    class Own(fedplug.DataSource):
        Options = _options(found, _OfData, name, (root_name,))

        def describe(self) -> str:
            """Where it is from."""
            return f"what {name} gives"

        def load(self, root: str | None) -> Dataset:
            """The function's result: a data set, or four arrays, by name or in their order."""
            from fedplug_std import _dataset_files as files

            options: Any = self.options
            given = _called(name, found, root, **_values(options, _OfData))
            if isinstance(given, Dataset):
                sized = files.dataset(given.train, given.test, options, given.label_names, given.mean, given.std)
                return fedplug.Dataset(sized.train, sized.test, **given.about)
            if isinstance(given, tuple | list) and len(given) == len(arrays.ORDER):
                given = dict(zip(arrays.ORDER, given, strict=True))
            if not isinstance(given, Mapping):
                raise DataError(
                    f"{name} gives a {type(given).__name__}; it must give {', '.join(arrays.ORDER)}, as a tuple or a "
                    "dictionary, or a fedplug.Dataset"
                )
            stored = {str(key): value for key, value in given.items()}
            if {*stored} == {*arrays.ORDER}:
                stored = arrays.in_order(stored, name, getattr(found, "task", None))
            return arrays.dataset_of(stored, options, name, makes_names=True)

    return _named(Own, found, name)


def trainer(found: Any, name: str) -> type[Component] | None:
    """The component that trains like `std.sgd`, or the subclass in the function's `trainer`, with the user's loss.
    """
    if not inspect.isfunction(found):
        return None
    base: Any = getattr(found, "trainer", Sgd)
    if not (isinstance(base, type) and issubclass(base, Sgd)):
        raise TypeError(f"its trainer is {base!r}, which is not a subclass of std.sgd and accepts no other loss")

    class Own(base):  # type: ignore[misc]
        def batch_loss(self, logits: torch.Tensor, answers: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
            """The function's; class weights are the cross entropy's alone."""
            if weights is not None:
                raise SetupError(f"class_weights applies to the cross entropy, not {name}; apply weights inside {name}")
            loss: torch.Tensor = _called(name, found, logits, answers)
            if getattr(loss, "shape", None) != ():
                raise SetupError(f"{name} must give one number, the mean loss of the batch; add .mean()")
            return loss

        def learns(self, facts: Facts) -> Learns | None:
            """As for `std.sgd`, except for the loss that the steps descend, which attacks must know."""
            from dataclasses import replace

            said: Learns | None = super().learns(facts)
            by = "" if base is Sgd else f" by {base.__name__}"
            return said and replace(said, descends=f"the loss {name}{by}")

    return _named(Own, found, name)


def _named(made: type[Component], found: Any, name: str) -> type[Component]:
    made.__name__ = made.__qualname__ = name.rpartition(".")[2]
    made.__doc__ = inspect.getdoc(found) if found.__doc__ else f"{name}, from the user's file."
    return made


def _called(name: str, found: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Calls the user's code; its error becomes one sentence with the place."""
    try:
        return found(*given, **options)
    except (FedplugError, MemoryError):
        raise
    except Exception as error:
        raise SetupError(f"{name} fails: {cause_of(error)}") from error


def _values(options: Any, beside: type[fedplug.Options] = fedplug.Options) -> dict[str, Any]:
    return {key: value for key, value in options if key not in beside.model_fields}


def _options(found: Any, base: type[fedplug.Options], name: str, given: tuple[str, ...]) -> type[fedplug.Options]:
    """Options from the arguments of a class or a function, except those that are given elsewhere.

    Raises:
        TypeError: an argument cannot be an option.
    """
    parameters = [p for p in inspect.signature(found).parameters.values() if p.name not in given]
    if taken := [p.name for p in parameters if p.name in base.model_fields]:
        raise TypeError(f"its argument {taken[0]} has the name of an existing option; rename it")
    try:
        hints = typing.get_type_hints(vars(found).get("__init__") if isinstance(found, type) else found)
    except Exception:  # a name that exists for type checkers alone; then any value is allowed
        hints = {}
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"its argument {parameter.name} cannot be given by name; remove the / after it")
        default = ... if parameter.default is parameter.empty else parameter.default
        guess = type(default) if isinstance(default, bool | int | float | str) else Any
        kind = hints.get(parameter.name, guess)
        fields[parameter.name] = (kind, Field(default, description=f"argument of {name}"))
    return create_model("Options", __base__=base, **fields)
