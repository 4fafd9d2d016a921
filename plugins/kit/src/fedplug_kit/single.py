"""Components that need no round: data sets, partitions, models, accountants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug.api.data import ClientData, Dataset, Examples, model_problem
from fedplug.api.errors import DataError, SetupError
from fedplug_std.tasks import LanguageModel

if TYPE_CHECKING:
    from fedplug.api.roles import Accountant, DataSource, ModelSource, Partition


def data_problems(source: DataSource, root: str | None) -> Iterator[str]:
    """Checks two splits of like examples, with classes as labels, the same twice. Missing files are a `DataError`."""
    try:
        data, again = source.load(root), source.load(root)
    except (DataError, SetupError):  # the message says what is missing
        return
    if type(data) is not Dataset:
        yield f"load gave a {type(data).__name__}, not a fedplug.Dataset"
        return
    for what, split in (("train", data.train), ("test", data.test)):
        if not len(split):
            yield f"{what} has no examples"
        elif data.mean and (split.inputs.ndim < 2 or split.inputs.dtype not in (np.uint8, np.float32)):
            rule = "to be standardised they must be uint8 or float32 (n, C, ...)"
            yield f"inputs of {what} are {split.inputs.dtype}{list(split.inputs.shape)}; {rule}"
        elif split.inputs.shape[1:] != data.shape:
            yield f"examples of {what} do not have the shape {data.shape}"
        elif split.labels.min() < 0 or split.labels.max() >= len(data.label_names):
            yield f"labels of {what} must be 0 to {len(data.label_names) - 1}"
    declares = source.declares
    per = "example" if data.train.targets is None or data.train.targets.ndim < 3 else "pixel"
    for what, said, there in (
        ("shape", declares.shape, data.shape), ("num_classes", declares.num_classes, len(data.classes)),
        ("per", declares.per if declares.shape else per, per),
    ):  # fmt: skip
        if said not in (None, there):
            yield f"declares says {what}={said}, but load gives {there}"
    channels = data.shape[0]
    if (data.mean or data.std) and not (len(data.mean) == len(data.std) == channels and min(data.std) > 0):
        yield f"mean and std must have one number for each of {channels} channels, std > 0, or both none"
    if not np.array_equal(data.train.labels, again.train.labels):
        yield "a second load gives other examples"


def partition_problems(partition: Partition) -> Iterator[str]:
    """Checks that shares are disjoint, not empty, and the same for the same generator."""
    labels, clients = np.arange(600, dtype=np.int64) % 10, 5
    shares = partition.assign(labels, clients, np.random.default_rng(3))
    again = partition.assign(labels, clients, np.random.default_rng(3))
    if len(shares) != clients:
        yield f"assign gave {len(shares)} shares for {clients} clients"
        return
    every = np.concatenate(shares)
    if any(len(share) == 0 for share in shares):
        yield "a share is empty"
    if len(np.unique(every)) != len(every):
        yield "an example is in two shares"
    if every.min(initial=0) < 0 or every.max(initial=0) >= len(labels):
        yield f"a share holds an index that is not 0 to {len(labels) - 1}"
    if any(not np.array_equal(one, other) for one, other in zip(shares, again, strict=True)):
        yield "the same generator gives other shares in a second call"
    kinds = partition.categories(clients)
    if kinds is not None and len(kinds) != clients:
        yield f"categories gave {len(kinds)} categories for {clients} clients"


def model_problems(source: Any, shape: tuple[int, ...], num_classes: int = 5) -> Iterator[str]:
    """Checks weights that follow from the seed alone, their layout, evaluation, and true refusals."""
    made: ModelSource = source
    model, again = made.build(shape, num_classes, 3, "cpu"), made.build(shape, num_classes, 3, "cpu")
    if problem := model_problem(model):
        yield f"build: {problem}"
        return
    vector = model.get_vector()
    if vector.dtype != np.float32 or vector.shape != (model.layout.size,):
        yield f"get_vector gave {vector.dtype}{list(vector.shape)} for a layout of {model.layout.size} scalars"
        return
    if not np.array_equal(vector, again.get_vector()):
        yield "the same seed gives other weights in a second call"
    model.set_vector(vector + np.float32(1))
    if not np.array_equal(model.get_vector(), vector + np.float32(1)):
        yield "get_vector does not return the vector given to set_vector"
    if (later := again.get_vector()) is vector or not np.array_equal(vector, later):
        yield "get_vector shares memory with the model"
    yield from _evaluation_problems(again, shape, num_classes)
    per: Literal["example", "pixel"] = "pixel" if labels_pixels(again, shape, num_classes) else "example"
    if why := made.refuses(shape, num_classes, per):
        yield f"refuses rejects examples that the model accepts: {why}"
    told, held = made.num_parameters(shape, num_classes), model.layout.size
    if (module := getattr(model, "module", None)) is not None:  # frozen parameters are in no layout
        held = sum(each.numel() for each in module.parameters())
    if told is not None and told > held:
        yield f"num_parameters gives {told}, and the model has {held}; fedplug check would refuse models that fit"
    smallest = (shape[0], *(1 for _ in shape[1:]))
    if made.refuses(smallest, num_classes, per) is None:
        try:
            yield from _evaluation_problems(made.build(smallest, num_classes, 3, "cpu"), smallest, num_classes)
        except Exception as error:
            size = "x".join(map(str, smallest))
            yield f"it accepts no examples of shape {size}, but refuses does not say so for fedplug check: {error}"


def _evaluation_problems(model: Any, shape: tuple[int, ...], num_classes: int) -> Iterator[str]:
    rng = np.random.default_rng(5)
    examples = Examples(rng.integers(0, 256, (4, *shape), np.uint8), np.arange(4) % num_classes)
    names, scaled = tuple(map(str, range(num_classes))), (0.5,) * shape[0]
    data = ClientData(examples, examples, examples, classes=names, mean=scaled, std=scaled)
    if takes_tokens(model, shape):
        tokens = rng.integers(0, num_classes, (4, *shape))
        examples = Examples(tokens, examples.labels, tokens)
        task = LanguageModel(LanguageModel.Options())
        data = ClientData(examples, examples, examples, classes=names, mean=(), std=(), task=task)
    elif labels_pixels(model, shape, num_classes):
        targets = rng.integers(0, num_classes, (4, *shape[1:])).astype(np.uint8)
        examples = Examples(examples.inputs, examples.labels, targets)
    try:
        found = model.evaluate(examples, data)
    except Exception as error:
        yield f"evaluate fails: {type(error).__name__}: {error}"
        return
    if not 0 <= found.correct <= found.count or not math.isfinite(found.loss):
        yield f"evaluate gave {found.correct} correct of {found.count}, with a loss of {found.loss}"


def takes_tokens(model: Any, shape: tuple[int, ...]) -> bool:
    """Whether a torch model takes only whole numbers, that is, tokens."""
    import torch

    if len(shape) != 1:
        return False
    with torch.no_grad():
        try:
            model.module.eval()(torch.zeros(1, *shape))
        except (RuntimeError, TypeError):
            return True
    return False


def labels_pixels(model: Any, shape: tuple[int, ...], num_classes: int) -> bool:
    """Whether a torch model predicts a class for every pixel."""
    import torch

    if len(shape) == 1:
        return False
    with torch.no_grad():
        return tuple(model.module.eval()(torch.zeros(1, *shape)).shape) == (1, num_classes, *shape[1:])


def accountant_problems(accountant: Accountant) -> Iterator[str]:
    """Checks that epsilon falls with noise, grows with rounds, and is larger if one client replaces another."""

    def stated(multiplier: float, rounds: int, adjacency: str = "zero_out") -> dict[str, float]:
        return accountant.compose([("gaussian", multiplier, 1.0, rounds)], 1e-5, adjacency) or {}

    if not stated(2.0, 10):
        yield "compose gives no epsilon for Gaussian releases"
    for method, epsilon in stated(2.0, 10).items():
        if not 0 <= epsilon < math.inf:
            yield f"{method} of ten releases with multiplier 2 is {epsilon}"
            continue
        if not stated(4.0, 10)[method] < epsilon:
            yield f"{method} does not fall where the noise grows"
        if not stated(2.0, 20)[method] > epsilon:
            yield f"{method} does not grow with the rounds"
        replaced = stated(2.0, 10, "replace_one").get(method, math.inf)
        if not replaced > epsilon:
            yield f"{method} is {replaced:g} under replace_one, and {epsilon:g} under zero_out"
