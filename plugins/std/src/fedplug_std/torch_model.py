"""A `torch.nn.Module` in the form that the core uses, and helpers for trainers and attacks.

It imports torch, so components import it inside their methods: nothing on the path of `fedplug list`, `show` and
`check` does.

Engines must agree bit for bit, so everything runs with one torch thread (parallelism comes from processes) unless the
setting `threads` says otherwise. Random numbers inside torch come from a generator that is seeded on entry and restored
on exit.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import torch
from fedplug.api.blocks import Layout, is_unchangeable, unchangeable
from fedplug.api.data import ClientData, Evaluation, Examples, Model
from fedplug.api.parties import threads_of_a_party
from torch.utils.hooks import RemovableHandle

from fedplug_std._answers import BATCH, MOST_OUTPUTS, Answers, Judged
from fedplug_std._perceptron import Perceptron, hooked
from fedplug_std.attributes import Attributes, equal

if TYPE_CHECKING:
    from fedplug.api.data import Judge
    from numpy.typing import NDArray

# Evaluation takes as many examples at once as hold this many input values: large enough for speed, small enough that
# the activations of a deep network on 128x128 images stay below 1 GiB. A fixed rule, so that sums are reproducible.
_EVALUATION_VALUES = 1 << 21
_EVALUATION_BATCH = 1024
# The same of the numbers that a model gives: 64 MiB, of which a loss makes two or three copies.
_OUTPUT_VALUES = 1 << 24
_MODELS = 4
"""Of how many models answers are kept: groups of clients have a model each."""
_MODELESS = {
    getattr(torch.nn, name)
    for name in (
        "Sequential", "Flatten", "Linear", "Conv1d", "Conv2d", "Conv3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
        "MaxPool1d", "MaxPool2d", "MaxPool3d", "AdaptiveAvgPool2d", "GroupNorm", "LayerNorm", "Identity", "ReLU",
        "Sigmoid", "Tanh", "GELU", "SiLU", "ELU", "LeakyReLU",
    )
}  # fmt: skip
"""Modules that compute the same in training and in evaluation, of each example alone, and draw nothing."""

_ANY_DTYPE: ContextVar[bool] = ContextVar("_ANY_DTYPE", default=False)

T = TypeVar("T")
Count = Callable[[torch.Tensor, torch.Tensor], Mapping[str, float]]


def use_one_thread() -> None:
    """Makes torch compute with one thread, or with the setting `threads`, so that results do not depend on the machine.
    """
    if torch.get_num_threads() != (count := threads_of_a_party()):
        torch.set_num_threads(count)


def keep_freed_memory() -> None:
    """Makes the C library keep up to 62 MiB of freed memory for the next step.

    glibc raises its limits to the size of the largest block that was ever freed, below 32 MiB, and gives back twice as
    much (mallopt(3), M_MMAP_THRESHOLD). Without this the rounds of a small transformer take a tenth longer or more, in
    page faults. Nothing is written to the block, so it takes no memory. Other C libraries may ignore it.
    """
    np.empty(31 << 20, np.uint8)


@contextlib.contextmanager
def seeded(seed: int, device: str | torch.device = "cpu") -> Iterator[None]:
    """Seeds torch's global generators inside the block, and restores them after it.

    Args:
        seed: 0 to 2**63 - 1.
        device: where random numbers are drawn inside the block; the generator of a CUDA device is seeded as well.
    """
    device = torch.device(device)
    on_cuda = device.type == "cuda"
    # Not torch.random.fork_rng: without a CUDA device it does the same, and takes a small client five times as long.
    before = torch.default_generator.get_state()
    try:
        with torch.random.fork_rng(devices=[device]) if on_cuda else contextlib.nullcontext():
            # Not torch.manual_seed: it would also reseed every CUDA device, which nobody restores here.
            torch.default_generator.manual_seed(seed)
            if on_cuda:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            yield
    finally:
        torch.default_generator.set_state(before)


def tried(
    module: torch.nn.Module, shape: tuple[int, ...], device: str | torch.device | None = None, count: int = 1
) -> torch.Tensor:
    """A module's output for examples of zeros: numbers, or tokens if it takes whole numbers alone.

    Args:
        module: is called, in the mode that it is in.
        shape: of one example; tokens are (positions,).
        device: where the examples are made; None: torch's default.
        count: how many.
    """
    try:
        given: torch.Tensor = module(torch.zeros(count, *shape, device=device))
    except (RuntimeError, TypeError, IndexError) as error:
        if len(shape) != 1:
            raise
        try:
            given = module(torch.zeros(count, *shape, dtype=torch.int64, device=device))
        except Exception as other:
            # An embedding that receives numbers complains about its indices; else it takes numbers of another shape.
            raise (other if "indices" in str(error) else error) from None
    return given


@contextlib.contextmanager
def of_any_dtype() -> Iterator[None]:
    """Inside, a `TorchModel` may have parameters of any dtype, because the caller will freeze them."""
    token = _ANY_DTYPE.set(True)
    try:
        yield
    finally:
        _ANY_DTYPE.reset(token)


def to_tensor(
    inputs: NDArray[Any], mean: Sequence[float], std: Sequence[float], device: str | torch.device = "cpu"
) -> torch.Tensor:
    """Stored inputs as a standardised float32 tensor.

    Args:
        inputs: (n, C, ...), uint8 in 0 to 255 or float in [0, 1]; left untouched.
        mean, std: one value a channel, in units of inputs scaled to [0, 1]; empty: the tensor is the inputs as they
            are, with unchanged type and shape, but float64 becomes float32.
        device: where the tensor is made. uint8 inputs travel there as they are, a quarter of the bytes.

    Returns:
        float32 tensor of the same shape: (inputs - mean) / std per channel.
    """
    stored = as_tensor(inputs)
    if not mean:
        return stored.to(device, torch.float32 if stored.is_floating_point() else stored.dtype, copy=True)
    if stored.dtype == torch.uint8:
        values = stored.to(device).to(torch.float32).div_(255.0)
    else:
        values = stored.to(device, torch.float32, copy=True)
    per_channel = (-1, *[1] * (values.ndim - 2))
    means, widths = _channels(tuple(mean), tuple(std), str(device))
    return values.sub_(means.view(per_channel)).div_(widths.view(per_channel))


@functools.lru_cache(maxsize=16)
def _channels(mean: tuple[float, ...], std: tuple[float, ...], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each channel, (C,); the same tensors for all, so nobody writes to them."""
    return torch.tensor(mean, dtype=torch.float32, device=device), torch.tensor(std, dtype=torch.float32, device=device)


def as_tensor(array: NDArray[Any]) -> torch.Tensor:
    """The array as a tensor, without a copy where torch allows that. Do not write to the tensor."""
    # torch can neither share read-only memory (arrays that come out of a message are read-only) nor negative strides.
    flags = array.flags
    return torch.from_numpy(array if flags.c_contiguous and flags.writeable else np.array(array, order="C"))


class _Tried:
    """What was found out about the code of a module. Its copies have the same code, so they share it.

    Attributes:
        apart: whether an example's output is independent of others, as each client has found. Clients do not ask each
            other: who is first depends on how many are in a process, and engines must agree.
    """

    def __init__(self) -> None:
        self.apart = weakref.WeakKeyDictionary[ClientData, bool]()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class TorchModel(Model):
    """One around any module.

    The flat vector holds the parameters that need a gradient, in the order of `module.named_parameters()`; frozen
    parameters stay as they are. Buffers are the module's persistent ones: running means and variances of batch norm,
    and `num_batches_tracked`. Other buffers and plain attributes of the module are reset to their first values whenever
    buffers are set: the clients of a process share the module, so values of one client would reach the next.

    On a CUDA device cuDNN uses deterministic algorithms, for the whole process.

    Args:
        module: takes inputs, such as float32 (n, C, ...), and gives what the task asks for, such as logits (n, classes,
            ...); moved to `device`.
        device: as `fedplug_runs.machine.resolve_device` gives it.
        count: from predicted classes and answers of a batch, int64 of equal shape, the counts for the task's figures
            other than accuracy, by name; summed into `Evaluation.task`.

    Raises:
        ValueError: the module has no trainable parameter, or one that is not float32.

    Facts about the module, and its last vector, are cached until the module is handed out.

    Attributes:
        device: where it lives.
        count: as given.
        layout: where its trainable parameters live in the flat vector.
    """

    def __init__(self, module: torch.nn.Module, device: str = "cpu", count: Count | None = None) -> None:
        use_one_thread()
        keep_freed_memory()
        self.count = count
        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.backends.cudnn.deterministic = True
            torch.backends.cudnn.benchmark = False
        self._module = module.to(self.device)
        named = [(name, tensor) for name, tensor in module.named_parameters() if tensor.requires_grad]
        if not named:
            raise ValueError(f"{type(module).__name__} has no trainable parameter")
        for name, tensor in named:
            if tensor.dtype != torch.float32 and not _ANY_DTYPE.get():
                raise ValueError(
                    f"parameter {name} is {tensor.dtype}, but updates are float32; convert the module with "
                    ".float(), or freeze it and train adapters: std.lora"
                )
        self._parameters: list[torch.Tensor] = [tensor for _, tensor in named]
        self.layout = Layout.of((name, tuple(tensor.shape)) for name, tensor in named)
        persistent = module.state_dict().keys()
        # By the modules that hold them, which may assign other tensors.
        places = {
            f"{path}.{key}" if path else key: (owner, key)
            for path, owner in module.named_modules()
            for key, _ in owner.named_buffers(recurse=False)
        }
        self._buffers = {name: place for name, place in places.items() if name in persistent}
        passing = [place for name, place in places.items() if name not in persistent]
        held = [(owner, key, owner.get_buffer(key)) for owner, key in passing]
        self._first = [(owner, key, tensor, tensor.clone()) for owner, key, tensor in held]
        self._flat = torch.empty(0)
        self._notes: dict[Callable[[torch.nn.Module], Any], Any] = {}
        self._holds: tuple[NDArray[np.float32], list[int]] | None = None
        self._pending: NDArray[np.float32] | None = None
        self._hooks = -1
        self._attributes = Attributes(module)
        self._tried = _Tried()
        self._answers: list[Answers] = []  # those that were asked for last at the end
        self._suited: tuple[Examples, bool] | None = None

    @property
    def module(self) -> torch.nn.Module:
        """The module."""
        self._in_hand()
        return self._module

    @module.setter
    def module(self, module: torch.nn.Module) -> None:
        self._in_hand()
        self._module = module

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Its trainable parameters, in the order of the layout."""
        self._in_hand()
        return self._parameters

    @property
    def flat(self) -> torch.Tensor:
        """All trainable parameters as one tensor, (P,), which shares their memory."""
        self._in_hand()
        return self._all()

    def _in_hand(self) -> None:
        """From here on the module may change, so its cached facts are dropped."""
        self._settle()
        self._notes, self._holds = {}, None

    def noted(self, make: Callable[[torch.nn.Module], T]) -> T:
        """A function's result for the module, cached until the module is handed out or any module gets a hook.

        It must follow from the structure of the module, not from its values; code that changes those calls `moves`
        first.
        """
        self._settle()
        if self._hooks != RemovableHandle.next_id:
            self._notes, self._hooks = {}, RemovableHandle.next_id
        if make not in self._notes:
            self._notes[make] = make(self._module)
        found: T = self._notes[make]
        return found

    def moves(self) -> None:
        """Announces that its values are about to change."""
        self._holds = None

    def move_by(self, update: NDArray[np.float32]) -> None:
        """Moves the parameters by an update, (P,), which nobody else may hold; they are written when they are read."""
        self._settle()
        self._pending = update

    def _settle(self) -> None:
        if (update := self._pending) is not None:
            self._pending = self._holds = None
            self._all().add_(torch.from_numpy(update).to(self.device))

    def _all(self) -> torch.Tensor:
        self._settle()
        at, width = self._flat.data_ptr(), self._flat.element_size()
        for tensor, place in zip(self._parameters, self.layout.parameters, strict=True):
            if tensor.data_ptr() != at + width * place.offset:
                self._gather()  # the first time, or after the module got other tensors
                break
        return self._flat

    def _gather(self) -> None:
        self._notes = {}
        self._flat = torch.cat([tensor.detach().reshape(-1) for tensor in self._parameters])
        for tensor, place in zip(self._parameters, self.layout.parameters, strict=True):
            tensor.data = self._flat[place.slice].view(place.shape)

    def get_vector(self) -> NDArray[np.float32]:
        """All trainable parameters as one flat copy, (P,)."""
        vector = np.empty(self.layout.size, np.float32)
        torch.from_numpy(vector).copy_(self._all())
        return vector

    def moved_from(self, start: NDArray[np.float32]) -> NDArray[np.float32]:
        """The difference between the parameters and a vector, (P,); they may be reset to it afterwards."""
        if self._pending is not None and self._holds is not None and self._holds[0] is start:
            update, self._pending = self._pending, None
            return update
        if self.device.type != "cpu":
            return super().moved_from(start)
        moved: NDArray[np.float32] = np.subtract(self._all().numpy(), start)
        return moved

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Overwrites all trainable parameters.

        Raises:
            ValueError: the vector is not float32 (P,).
        """
        self._pending = None
        held = self._holds is not None and self._holds[0] is vector and self._holds[1] == self._versions()
        if held and is_unchangeable(vector):
            return
        if vector.shape != (self.layout.size,) or vector.dtype != np.float32:
            raise ValueError(f"a vector of {vector.dtype}{list(vector.shape)} must be float32[{self.layout.size}]")
        if self.device.type == "cpu":  # as_tensor copies what nobody can change
            self._all().numpy()[:] = vector
        else:
            self._all().copy_(as_tensor(vector))
        self._holds = vector, self._versions()

    def _versions(self) -> list[int]:
        """Torch's counters of in-place changes of parameters."""
        return [tensor._version for tensor in self._parameters]

    def get_buffers(self) -> dict[str, NDArray[Any]]:
        """Non-trainable state by name, such as batch-norm statistics; copies."""
        held = {name: owner.get_buffer(key) for name, (owner, key) in self._buffers.items()}
        return {name: _as_array(tensor.detach().cpu()).copy() for name, tensor in held.items()}

    def set_buffers(self, buffers: dict[str, NDArray[Any]]) -> None:
        """Overwrites the named buffers and leaves the others, except those that are not persistent, which begin anew.

        Values are converted to the buffer's type, so an averaged `num_batches_tracked` is rounded down.

        Raises:
            ValueError: the module has no buffer of that name, or it has another shape.
        """
        for name, values in buffers.items():
            if name not in self._buffers:
                raise ValueError(f"the module has no buffer {name!r}; it has {sorted(self._buffers)}")
            owner, key = self._buffers[name]
            tensor = owner.get_buffer(key)
            values = np.asarray(values)
            if values.shape != tuple(tensor.shape):
                raise ValueError(f"buffer {name} of shape {values.shape} must have shape {tuple(tensor.shape)}")
            tensor.detach().copy_(as_tensor(values).view(tensor.shape))
        for owner, key, tensor, first in self._first:
            if owner._buffers.get(key) is not tensor or not equal(tensor, first):
                setattr(owner, key, first.clone())
        self._attributes.begin_anew()

    def evaluate(self, examples: Examples, data: ClientData) -> Evaluation:
        """Computes the counts for the task of `data`, in evaluation mode, in batches of bounded memory.

        Args:
            examples: what to evaluate on; may be empty.
            data: the data set; its `mean` and `std` standardise the inputs, and its task counts. Without a task,
                correct predictions are counted: of examples, or of positions if the examples have targets.

        Returns:
            Counts, and the summed loss; without a task, the cross entropy in nats.
        """
        return self._evaluated([examples], data)[0]

    def evaluate_each(
        self, sets: Sequence[Examples], data: ClientData, kept: dict[str, torch.Tensor] | None = None
    ) -> list[Evaluation]:
        """Sets that fit into one batch pass the model together, because for a small model and few examples the overhead
        dominates. `kept` holds their standardised inputs.
        """
        if type(self).evaluate is not TorchModel.evaluate:
            return super().evaluate_each(sets, data, kept)
        return self._evaluated(sets, data, kept)

    def evaluate_parts(
        self, sets: Sequence[Examples], places: Sequence[NDArray[np.int64]], data: ClientData
    ) -> tuple[list[Evaluation], float] | None:
        """Evaluates parts of the common test set `data.shared_test`, each example of which passes the model once.

        The next who asks for the same parameters and buffers gets what was found, so whoever changes the module
        otherwise must not ask.

        Args:
            sets: the parts.
            places: of their examples in the common test set.
            data: as in `evaluate`.

        Returns:
            An evaluation for each part, and the seconds that they would take whoever asks for them alone. None where a
            module answers for examples together, or gives too many numbers: use `evaluate_each`.
        """
        common = data.shared_test
        if type(self).evaluate is not TorchModel.evaluate or not len(common):
            return None
        use_one_thread()
        answers = self._answers_for(common, data)
        every = np.concatenate(places)
        if answers.lacks(every):
            with self._evaluating() as toggled:
                forward = functools.partial(self._outputs_for, data=data, draws=toggled)
                if self._suited is None or self._suited[0] is not common:
                    self._suited = common, answers.suits(forward)
                if not self._suited[1]:
                    return None
                answers.ask(every, forward)
        found = [answers.of_part(*part) for part in zip(places, sets, strict=True)]
        return found, answers.seconds(every)

    def _answers_for(self, common: Examples, data: ClientData) -> Answers:
        """Those of the module as it is, for a set."""
        self._settle()
        held = self._holds[0] if self._holds is not None and self._holds[1] == self._versions() else None
        vector = held if held is not None and is_unchangeable(held) else unchangeable(self.get_vector())
        key = vector, self.get_buffers() if self._buffers else {}, data.task
        for number, answers in enumerate(self._answers):
            if answers.of is common and _same_model(answers.key, key):
                self._answers.append(self._answers.pop(number))
                return answers
        judged: Judged | None = self._counted if self.count else None
        if data.task is not None:
            judged = functools.partial(self._judged, task=data.task)
        size = BATCH if self.device.type == "cpu" else _EVALUATION_BATCH
        self._answers.append(Answers(common, min(size, batch_of(common, data)), key, judged))
        del self._answers[:-_MODELS]
        while len(self._answers) > 1 and sum(each.size for each in self._answers) > MOST_OUTPUTS:
            del self._answers[0]
        return self._answers[-1]

    def _outputs_for(self, examples: Examples, data: ClientData, draws: bool) -> torch.Tensor:
        inputs = to_tensor(examples.inputs, data.mean, data.std, self.device)
        perceptron = self.noted(Perceptron.of)
        if perceptron is not None:
            return perceptron.forward(inputs)
        with seeded(0, self.device) if draws else contextlib.nullcontext():
            found: torch.Tensor = self._module(inputs)
        return found

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[bool]:
        """Inside, the module is in evaluation mode and computes no gradients; whether its mode makes a difference."""
        self._settle()
        module = self._module
        was_training, toggled = module.training, not self.noted(modeless)
        if toggled:
            self._in_hand()  # what it does to itself is not known
            set_mode(module, training=False)
        # If a module also draws in evaluation, its draws must not depend on earlier users of this process.
        with torch.no_grad(), seeded(0, self.device) if toggled else contextlib.nullcontext():
            yield toggled
        if toggled:
            set_mode(module, was_training)

    def _evaluated(
        self, sets: Sequence[Examples], data: ClientData, kept: dict[str, torch.Tensor] | None = None
    ) -> list[Evaluation]:
        use_one_thread()
        step = batch_of(sets[0], data)
        with self._evaluating() as toggled:
            few = len(sets) > 1 and sum(map(len, sets)) <= step
            if few and (not toggled or self._answers_each(sets, data)):
                return self._together(sets, data, kept)
            return [self._in_batches(examples, data, step) for examples in sets]

    def _answers_each(self, sets: Sequence[Examples], data: ClientData) -> bool:
        """Whether a module's output for an example is independent of the other sets; each client tries it once."""
        if data not in self._tried.apart:
            try:
                module = copy.deepcopy(self._module)  # which may count its calls
            except Exception:  # it holds what torch does not copy
                return False
            inputs = [to_tensor(each.inputs, data.mean, data.std, self.device) for each in sets]
            together = self._answered(module, torch.cat(inputs))
            alone = torch.cat([self._answered(module, each) for each in inputs])
            room = 1e-4 * float(together.abs().nan_to_num(0.0).max()) if together.numel() else 0.0
            self._tried.apart[data] = torch.allclose(together, alone, rtol=1e-3, atol=room, equal_nan=True)
        return self._tried.apart[data]

    def _answered(self, module: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        with seeded(0, self.device):
            found: torch.Tensor = module(inputs)
        return found

    def _together(
        self, sets: Sequence[Examples], data: ClientData, kept: dict[str, torch.Tensor] | None
    ) -> list[Evaluation]:
        held = {} if kept is None else kept
        if not held:
            stacked = np.concatenate([each.inputs for each in sets])
            held["inputs"] = to_tensor(stacked, data.mean, data.std, self.device)
            held["answers"] = as_tensor(np.concatenate([each.answers for each in sets])).to(self.device)
        lengths = [len(each) for each in sets]
        inputs, answers = held["inputs"], held["answers"]
        written, perceptron = inputs._version, self.noted(Perceptron.of)
        outputs = self._module(inputs) if perceptron is None else perceptron.forward(inputs)
        if inputs._version != written:
            held.clear()  # the module writes to its inputs, and would see the changes the next time
        parts = [torch.split_with_sizes(each, lengths) for each in (outputs, answers)]
        if (task := data.task) is not None:
            judged = [self._judged(part, asked, task) for part, asked in zip(*parts, strict=True)]
            return [dataclasses.replace(found, outputs=_of_examples(part, asked))
                    for found, part, asked in zip(judged, *parts, strict=True)]  # fmt: skip
        predicted = outputs.argmax(1)
        right = (predicted == answers).cpu().numpy()  # counted in numpy, since reading numbers from torch is slow
        found: list[Evaluation] = []
        start = 0
        for length, part, asked in zip(lengths, *parts, strict=True):
            here = slice(start, start := start + length)
            loss = float(torch.nn.functional.cross_entropy(part, asked, reduction="sum"))
            counts = dict(self.count(predicted[here], asked)) if self.count else {}
            correct = int(np.count_nonzero(right[here]))
            found.append(Evaluation(correct, asked.numel(), loss, counts, _of_examples(part, asked)))
        return found

    def _in_batches(self, examples: Examples, data: ClientData, step: int) -> Evaluation:
        correct, count, loss = 0, 0, 0.0
        task: dict[str, float] = {}
        told: list[NDArray[np.float32] | None] = []
        few = len(examples) * len(data.classes) <= MOST_OUTPUTS
        for start in range(0, len(examples), step):
            batch = examples.take(slice(start, start + step))
            outputs = self._module(to_tensor(batch.inputs, data.mean, data.std, self.device))
            answers = as_tensor(batch.answers).to(self.device)
            found = self._counted(outputs, answers) if data.task is None else self._judged(outputs, answers, data.task)
            correct, count, loss = correct + found.correct, count + found.count, loss + found.loss
            told.append(_of_examples(outputs, answers) if few else None)
            for name, number in found.task.items():
                task[name] = task.get(name, 0) + number
        whole = [each for each in told if each is not None]
        return Evaluation(
            correct, count, loss, task, np.concatenate(whole) if whole and len(whole) == len(told) else None
        )

    def _judged(self, outputs: torch.Tensor, answers: torch.Tensor, task: Judge) -> Evaluation:
        """Counts by the task; the model's own counts, if any, are of classes."""
        if not len(answers):
            return Evaluation(0, 0, 0.0)
        loss = float(task.losses(outputs, answers).double().sum())
        counts = dict(task.counts(outputs, answers))
        if self.count:
            counts |= self.count(outputs.argmax(1), answers)
        correct, asked = int(counts.get("correct", 0)), int(counts.get("answers", len(answers)))
        return Evaluation(correct, asked, loss * asked / len(answers), counts)

    def _counted(self, logits: torch.Tensor, answers: torch.Tensor) -> Evaluation:
        predicted = logits.argmax(1)
        loss = float(torch.nn.functional.cross_entropy(logits, answers, reduction="sum"))
        task = dict(self.count(predicted, answers)) if self.count else {}
        return Evaluation(int((predicted == answers).sum()), answers.numel(), loss, task)


def _same_model(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether vectors, buffers and tasks are the same, to the bit."""
    (vector, buffers, task), (theirs, their_buffers, their_task) = one, other
    if task is not their_task or buffers.keys() != their_buffers.keys():
        return False
    if any(held.tobytes() != their_buffers[name].tobytes() for name, held in buffers.items()):
        return False
    return vector is theirs or np.array_equal(vector.view(np.uint32), theirs.view(np.uint32))


def _of_examples(outputs: torch.Tensor, answers: torch.Tensor) -> NDArray[np.float32] | None:
    """Outputs for examples of one class each, (n, classes); None where they are of something else."""
    if outputs.ndim != 2 or answers.ndim != 1 or answers.is_floating_point():
        return None
    return outputs.detach().to("cpu", torch.float32).numpy()


def _as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Its values; numpy knows no bfloat16, whose values all are float32."""
    array: NDArray[Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def batch_of(examples: Examples, data: ClientData) -> int:
    """Number of examples that pass a model at once without gradients: a fixed number, at least 1.

    It is bounded by the inputs, and by the outputs: a number for each class, at each position with an answer.
    """
    inputs, positions = math.prod(examples.inputs.shape[1:]), math.prod(examples.answers.shape[1:])
    bounds = (_EVALUATION_VALUES // max(1, inputs), _OUTPUT_VALUES // max(1, positions * len(data.classes)))
    return max(1, min(_EVALUATION_BATCH, *bounds))


def kinds(module: torch.nn.Module) -> set[type[torch.nn.Module]]:
    """The classes of a module and of all modules within it; torch's own walk notes names, which takes longer."""
    found, left = set(), [module]
    while left:
        part = left.pop()
        found.add(type(part))
        left += filter(None, part._modules.values())
    return found


def modeless(module: torch.nn.Module) -> bool:
    """Whether a module computes the same in training and in evaluation, of each example alone, and draws nothing.

    This is so if all its parts are known to, and none has hooks.
    """
    return kinds(module) <= _MODELESS and not hooked(module.modules(), module.parameters())


def set_mode(module: torch.nn.Module, training: bool) -> None:
    """As `module.train(training)`, whose walk takes as long as a small step; parts with their own are asked."""
    plain, left = torch.nn.Module, [module]
    while left:
        part = left.pop()
        kind, held = type(part), vars(part)
        usual = (kind.train, kind.eval, kind.__setattr__) == (plain.train, plain.eval, plain.__setattr__)
        if usual and "train" not in held:
            held["training"] = training
            left += filter(None, part._modules.values())
        elif training:
            part.train()
        else:
            part.eval()
