"""What the server of another framework saw: files that it logged, and the public facts that its user states.

A file holds tensors by the names of the model's state, as torch, safetensors and NVFlare save them, or arrays in its
order, as Flower does. What is not in a file, or is named as secret, is hidden. No code in a file runs.
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import fedplug
import numpy as np
import torch
from fedplug import Field
from fedplug.api.errors import SetupError, cause_of
from fedplug_runs import units
from fedplug_runs.machine import memory_now
from fedplug_std import weights
from fedplug_std.torch_model import TorchModel
from numpy.typing import NDArray

from fedplug_attacks.api.observation import Clipped, Meaning, Observation, ObservedUpdate, Seen

ENDINGS = (".npz", ".safetensors", ".pt", ".pth", ".bin")
_HELD = ("model", "state_dict")
"""Names under which a saved dictionary may hold the tensors, such as NVFlare's FL_global_model.pt."""


class Facts(fedplug.Options):
    """Public facts about an update, as the server that logged it knows them."""

    shape: tuple[int, ...] = Field(
        min_length=1, description="of one example: channels, height, width; columns of a table; tokens of a text"
    )
    classes: int | None = Field(None, ge=1, description="outputs of the model; null: rows of its last layer")
    mean: tuple[float, ...] = Field((), description="subtracted from inputs in [0, 1], one a channel or column")
    std: tuple[float, ...] = Field((), description="inputs are then divided by it")
    sent: Literal["model", "difference", "gradient"] | None = Field(
        None,
        description="what the update file holds: the client's model, that minus the global one, or a gradient; "
        "null: a model or a difference, whichever is nearer to the global model",
    )
    examples: int | None = Field(None, ge=1, description="of the client, in one update; null: unknown")
    batch_size: int | None = Field(None, ge=1, description="of a local step; null: all examples")
    epochs: int | None = Field(None, ge=1, description="times through the examples; null: unknown")
    steps: int | None = Field(None, ge=1, description="local steps; null: they follow from epochs and examples")
    lr: float | None = Field(None, gt=0, allow_inf_nan=False, description="learning rate; null: unknown")
    momentum: float = Field(0.0, ge=0, lt=1, description="of the optimiser")
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False, description="of the optimiser")
    noise: float = Field(0.0, ge=0, allow_inf_nan=False, description="standard deviation of noise on each value")
    clip: float | None = Field(None, gt=0, allow_inf_nan=False, description="largest L2 norm of an update")
    loss: str = Field("cross_entropy", description="that the steps descend")
    task: str = Field("", description="as in a recipe, such as std.language_model; empty: one class an example")

    @property
    def scaled(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel. An image has values from 0 to 1, also where none are stated."""
        channels = self.shape[0] if len(self.shape) == 3 else 0
        return self.mean or (0.0,) * channels, self.std or (1.0,) * channels

    @property
    def unsaid(self) -> list[str]:
        """What is not stated and would let more attacks apply."""
        rate = 1.0 if self.sent == "gradient" else self.lr
        stated = {"examples": self.examples, "lr": rate, "steps": self.meaning.steps}
        return [name for name, value in stated.items() if value is None]

    @property
    def meaning(self) -> Meaning:
        """The meaning of the update's numbers. A gradient is an update of one step."""
        if self.sent == "gradient":
            return Meaning(lr=1.0, steps=1, batch_size=self.examples, examples=self.examples, loss=self.loss)
        size, steps = self.batch_size or self.examples, self.steps
        if steps is None and self.epochs and self.examples and size:
            steps = self.epochs * math.ceil(self.examples / size)
        return Meaning(
            lr=self.lr, steps=steps, batch_size=size, examples=self.examples, epochs=self.epochs, loss=self.loss,
            momentum=self.momentum, weight_decay=self.weight_decay, clip_norm=self.clip,
        )  # fmt: skip


class Server:
    """A server that logged updates, and read all of them but what is secret.

    Args:
        model: it holds the global model of one round after the other.
        facts: about each update.
        secret: names of parameters that it could not read; `*` matches any letters.

    Attributes:
        sent: what the last update was taken for.
        still: the parameters that it leaves as they were, which nobody trained: to attacks they are hidden, since a
            gradient of 0 would be one that no example has.

    Raises:
        SetupError: a name of `secret` is no parameter.
    """

    sent = ""
    still: tuple[str, ...] = ()

    def __init__(self, model: TorchModel, facts: Facts, secret: Sequence[str]) -> None:
        self.model, self.facts, self.parameters = model, facts, {each.name: each for each in model.layout.parameters}
        self.secret = {name for pattern in secret for name in fnmatch.filter(self.parameters, pattern)}
        for pattern in secret:
            if not fnmatch.filter(self.parameters, pattern):
                raise SetupError(
                    f"--secret {pattern} is no parameter of the model; it has {', '.join(self.parameters)}"
                )

    def saw(self, start: Path, update: Path, round: int) -> Observation:
        """One update, of the file with it and the file of the global model that it was made from.

        Raises:
            SetupError: a file cannot be read, or does not fit the model.
        """
        held = {name: torch.from_numpy(np.array(array)) for name, array in self._named(start).items()}
        remedy = "give the file of this model, or another model: --model"
        weights.put(self.model.module, held, f"--global {start}", remedy)
        vector, values = self.model.get_vector(), np.zeros(self.model.layout.size, np.float32)
        states = np.full(len(values), Seen.RETAINED, np.uint8)
        given = self._untied(self._named(update))
        if not self.parameters.keys() & given.keys():
            raise SetupError(f"--update {update} has no parameter of the model; it has {', '.join(self.parameters)}")
        for name in [name for name in self.parameters if name in given]:  # errors name the first
            place, array = self.parameters[name], given[name]
            if array.shape != place.shape:
                raise SetupError(f"--update {update}: {name} has the shape {array.shape}, the model's {place.shape}")
            values[place.slice] = _numbers(array, f"--update {update}: {name}").reshape(-1)
            states[place.slice] = Seen.NOISED if self.facts.noise else Seen.CLEAR
        for name in self.secret:
            states[self.parameters[name].slice] = Seen.ENCRYPTED
        seen = np.isin(states, (Seen.CLEAR, Seen.NOISED))
        if not np.isfinite(values[seen]).all():
            raise SetupError(f"--update {update} holds values that are not finite")
        self.sent = self.facts.sent or _nearer(values[seen], vector[seen])
        moved = {"model": values - vector, "difference": values, "gradient": -values}[self.sent]
        if not moved[seen].any():
            raise SetupError(f"--update {update} moves nothing: give the --global model that the client began with")
        here = [each for each in self.parameters.values() if seen[each.slice].all() and not moved[each.slice].any()]
        self.still = tuple(each.name for each in here)
        for each in here:
            states[each.slice], seen[each.slice] = Seen.RETAINED, False
        return Observation(round, self._update(moved, states, seen, round), vector, self.model.get_buffers())

    def _update(
        self, moved: NDArray[np.float32], states: NDArray[np.uint8], seen: NDArray[np.bool_], round: int
    ) -> ObservedUpdate:  # fmt: skip
        facts, found = self.facts, moved[seen]
        clip, where = facts.clip, np.flatnonzero(seen)
        return ObservedUpdate(
            round, (0,), self.model.layout, states, found, np.full(len(found), facts.noise, np.float32), facts.meaning,
            clips=() if clip is None else (Clipped(clip, 2, where, noised=facts.noise > 0),),
        )  # fmt: skip

    def _untied(self, given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The arrays under the names of parameters, also where a file has one by another name of a tied weight."""
        own = self.model.module.state_dict(keep_vars=True)
        first = {own[name].data_ptr(): name for name in self.parameters if name in own}
        tied = {name: first.get(tensor.data_ptr(), name) for name, tensor in own.items()}
        return {tied.get(name, name): array for name, array in given.items()}

    def _named(self, path: Path) -> Mapping[str, NDArray[Any]]:
        """The arrays of a file by the names that the model has; those without names are in the order of its state."""
        found = tensors(path)
        if not all(name.startswith("arr_") for name in found):
            return found
        found = {name: found[name] for name in sorted(found, key=_in_order)}  # a file may have been packed again
        state = list(self.model.module.state_dict())
        names = next((each for each in (state, [*self.parameters]) if len(each) == len(found)), None)
        if names is None:
            raise SetupError(
                f"{path} has {len(found)} arrays without names, and the model has {len(state)} tensors, of which "
                f"{len(self.parameters)} are trained; save all of them in order, or by name"
            )
        return dict(zip(names, found.values(), strict=True))


def _nearer(values: NDArray[np.float32], start: NDArray[np.float32]) -> Literal["model", "difference"]:
    """Whether an update is a model or a difference: a model is near the one that it began with."""
    return "model" if np.linalg.norm(values - start) < np.linalg.norm(values) else "difference"


def files_in(path: Path, option: str) -> list[Path]:
    """The file, or the files of a folder in the order of their names, of which round-2 is before round-10."""
    inside = [each for each in path.iterdir() if each.suffix in ENDINGS] if path.is_dir() else []
    files = sorted(inside, key=lambda each: _in_order(each.name)) if path.is_dir() else [path]
    if not files or not all(each.is_file() for each in files):
        raise SetupError(f"{option} {path}: there is no such file, nor a folder of {', '.join(ENDINGS)}")
    return files


def tensors(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name. No code in it runs.

    Raises:
        SetupError: it cannot be read.
    """
    if path.suffix not in ENDINGS:
        raise SetupError(f"{path} is of no kind that is read here; save it as {', '.join(ENDINGS)}")
    if path.suffix == ".npz":
        return arrays(path)
    _require_room(path, _unpacked(path))
    found = weights.read(path.name, path.read_bytes(), "the file", _HELD)
    # A tensor may show few values many times, or be sparse: it is as large as its shape from here on.
    _require_room(path, sum(_FLOAT * tensor.numel() for tensor in found.values()))
    try:
        return {name: tensor.detach().to_dense().float().numpy() for name, tensor in found.items()}
    except (RuntimeError, NotImplementedError, TypeError) as error:  # such as quantised ones
        raise SetupError(f"{path} holds tensors that are no plain numbers ({error}); save them as float32") from error


def _in_order(name: str) -> list[tuple[int, str]]:
    """What names are sorted by: their numbers as numbers."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _numbers(array: NDArray[Any], what: str) -> NDArray[Any]:
    if array.dtype.kind not in "fiub":
        raise SetupError(f"{what} has values of the type {array.dtype}, which are no numbers; save it as float32")
    return array


def _unpacked(path: Path) -> int:
    """Bytes that a file says it holds: a small archive may hold terabytes."""
    size = path.stat().st_size
    if zipfile.is_zipfile(path):
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as packed:
            size = max(size, sum(each.file_size for each in packed.infolist()))
    return size


def _require_room(path: Path, size: int) -> None:
    """Refuses a file of which so many bytes would take most of the memory, before there are copies of them.

    Raises:
        SetupError: it is too large.
    """
    _, free = memory_now()
    if free and _COPIES * size > free:
        raise SetupError(
            f"{path} holds {units.size(size)}, of which {_COPIES} copies are made, and this machine has "
            f"{units.size(free)} of memory free; save the arrays of the model alone, as float32"
        )


_FLOAT = 4
"""Bytes of a value."""
_COPIES = 3
"""Of a file's content at one time: as read, as arrays, and as values of the model."""


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    _require_room(path, _unpacked(path))
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except Exception as error:  # the file may be of any kind
        raise SetupError(f"{path} cannot be read ({cause_of(error)}); save it with numpy.savez") from error


def outputs(held: Mapping[str, NDArray[Any]]) -> int:
    """Rows of the last matrix of a model, which are its classes.

    Raises:
        SetupError: it has no matrix.
    """
    matrices = [array for array in held.values() if array.ndim > 1]
    if not matrices:
        raise SetupError("--global has no matrix whose rows are classes; say --fact classes=...")
    return len(matrices[-1])
