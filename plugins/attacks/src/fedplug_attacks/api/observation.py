"""An adversary's view of one update: a value and a state for each entry. Hidden values are absent, never 0.

Treating a hidden entry as the value 0 makes protection look near-perfect. An attack that knows which entries are hidden
often succeeds on the same view. So unseen values do not exist here, and an attack that wants zeros must request them.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ViewError
from fedplug.api.records import Record

if TYPE_CHECKING:
    from fedplug.api.blocks import Layout, Parameter
    from numpy.typing import NDArray


class Seen(enum.IntEnum):
    """The state of one entry of an update in one adversary's view."""

    ABSENT = 0
    """Not seen, or seen without knowing where in the model it belongs."""
    CLEAR = 1
    """Seen: its value is known up to rounding."""
    NOISED = 2
    """Seen with noise of a known standard deviation."""
    ENCRYPTED = 3
    """It crossed the wire under a key that this adversary does not hold."""
    RETAINED = 4
    """The client did not send it."""
    SCRAMBLED = 5
    """It crossed the wire as bytes under a key that this adversary does not hold, and no proof shows that they hide it.
    A stronger adversary might read it from these bytes alone."""


@dataclasses.dataclass(frozen=True, eq=False)
class Clipped:
    """A public norm that bounds part of an update: longer parts are scaled down to it. In units of the update.

    Attributes:
        norm: the largest norm; or one for each layer of the model, infinite for a layer that was not scaled down.
        order: order of the norm: 2 or 1; infinity: each magnitude was clipped.
        where: positions in the model that it covers, ascending; a layer's norm covers those in the layer.
        noised: True if noise came afterwards, so that nobody sees whether it acted; else it acted.
    """

    norm: float | tuple[float, ...]
    order: float
    where: NDArray[np.int64]
    noised: bool

    @property
    def least(self) -> float:
        """The smallest of the norms."""
        return min(self.norm, default=math.inf) if isinstance(self.norm, tuple) else self.norm

    def scaled(self, factor: float) -> Clipped:
        """The same clip of values that are this many times as large."""
        norm = tuple(n * factor for n in self.norm) if isinstance(self.norm, tuple) else self.norm * factor
        return dataclasses.replace(self, norm=norm)


class Meaning(Record, frozen=True):
    """The meaning of an update's numbers: public facts of the recipe, and sizes that messages showed.

    With plain gradient descent, update = sign x lr x (sum over `steps` of the mean gradient of a batch).

    Attributes:
        sign: -1 if an update is the local model minus the one it started from.
        lr: learning rate of the round; None where the trainer has none.
        steps: gradient steps behind the update; None where the adversary cannot know.
        batch_size: examples in each step; None where unknown.
        examples: of the client, in this update; None where unknown.
        epochs: times the client went through its examples; None where unknown.
        loss: the loss that the steps descend: `cross_entropy`, or the trainer's description.
        class_weights: weights of the loss, one a class; None: equal.
        training_mode: True where the model computes its gradients in training mode (batch norm, dropout).
        momentum, weight_decay: of the optimiser.
        grid: values are multiples of it, so that each may be off by half of it; 0 if unknown.
        clip_norm: the visible values, or part of them, may have been scaled down to this norm (the smallest of
            several), so that their size is not informative; None without a clip, or if values are shorter.
            `ObservedUpdate.clips` has the details.
    """

    sign: int = -1
    lr: float | None = None
    steps: int | None = None
    batch_size: int | None = None
    examples: int | None = None
    epochs: int | None = None
    loss: str = "cross_entropy"
    class_weights: tuple[float, ...] | None = None
    training_mode: bool = True
    momentum: float = 0.0
    weight_decay: float = 0.0
    grid: float = 0.0
    clip_norm: float | None = None

    @property
    def reach(self) -> float | None:
        """How many times a gradient that stays the same is in the update: lr x steps, and more with momentum.

        With momentum m that starts at 0, step k moves by 1 + m + ... + m^(k-1) = (1 - m^k) / (1 - m) gradients. None
        where the learning rate or the number of steps is not known.
        """
        if not self.lr or not self.steps:
            return None
        m, n = self.momentum, self.steps
        return self.lr * (n - m * (1 - m**n) / (1 - m)) / (1 - m)


@dataclasses.dataclass(frozen=True, eq=False)
class TensorView:
    """One parameter tensor of an observed update.

    Attributes:
        name: of the parameter, such as `fc.weight`.
        states: uint8, the tensor's shape; values of `Seen`.
        values: float32 (n,), those of the visible entries, in row-major order.
        sigma: float32 (n,), standard deviation of the noise on each: 0 clear, NaN unknown.
    """

    name: str
    states: NDArray[np.uint8]
    values: NDArray[np.float32]
    sigma: NDArray[np.float32]

    @property
    def visible(self) -> NDArray[np.bool_]:
        """Which entries have a value; the tensor's shape."""
        return _visible(self.states)

    def dense(self, hidden: float) -> NDArray[np.float32]:
        """The tensor with `hidden` where nothing is visible: NaN to mark it, 0 for the naive attacker."""
        return _dense(self.states, self.values, hidden)


@dataclasses.dataclass(frozen=True, eq=False)
class ObservedUpdate:
    """One update, or sum of updates, as one adversary saw it.

    Attributes:
        round: 0-based.
        contributors: the clients behind it; one, unless it is a sum; -1 where the adversary does not know which.
        layout: where parameters live in the flat vector.
        states: uint8 (P,), values of `Seen`.
        values: float32 (n,), of the visible entries, in ascending order of position; local model minus global model.
        sigma: float32 (n,), standard deviation of the noise on each: 0 clear, NaN unknown.
        meaning: the meaning of the numbers.
        unplaced: number of values seen whose position in the model the adversary does not know; they count as absent.
        clips: norms that visible values may have been scaled down to, in order.
        subtracted: sealed zones whose values are an opened sum minus the known updates of all others in it.

    Raises:
        ViewError: the arrays do not fit each other.
    """

    round: int
    contributors: tuple[int, ...]
    layout: Layout
    states: NDArray[np.uint8]
    values: NDArray[np.float32]
    sigma: NDArray[np.float32]
    meaning: Meaning
    unplaced: int = 0
    clips: tuple[Clipped, ...] = ()
    subtracted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen = int(np.count_nonzero(self.visible))
        if self.states.shape != (self.layout.size,) or len(self.values) != seen or len(self.sigma) != seen:
            raise ViewError(
                f"{len(self.values)} values and {len(self.sigma)} sigmas for {seen} visible of {len(self.states)} "
                f"entries of a model with {self.layout.size}"
            )

    @property
    def visible(self) -> NDArray[np.bool_]:
        """Which entries have a value; (P,)."""
        return _visible(self.states)

    def dense(self, hidden: float) -> NDArray[np.float32]:
        """The update (P,) with `hidden` where nothing is visible: NaN to mark it, 0 for the naive attacker."""
        return _dense(self.states, self.values, hidden)

    def as_gradient(self, vector: NDArray[np.float32] | None = None) -> ObservedUpdate:
        """The estimate of the mean gradient behind it, update / (sign x reach), with its noise scaled alike.

        It is exact for one step of plain gradient descent. For many steps it is the mean along the path, with later
        steps counted less under momentum. A clip may have made it smaller: clip your own gradient in the same way
        before you compare (`clips`, which are then in units of the gradient).

        Args:
            vector: float32 (P,), the model it was made from. Weight decay is then subtracted, exactly after one step.
                If it is None, or if a clip may have scaled the sum of both, the decay stays in.

        Raises:
            ViewError: the learning rate or the number of steps is not known.
        """
        meaning = self.meaning
        reach = meaning.reach
        if reach is None:
            what = "learning rate" if not meaning.lr else "number of local steps"
            raise ViewError(f"the {what} behind the update is not known to this adversary")
        factor = np.float32(1.0 / (meaning.sign * reach))
        values = self.values * factor
        if vector is not None and meaning.weight_decay and not self.clips:
            values = values - np.float32(meaning.weight_decay) * vector[self.visible]
            meaning = dataclasses.replace(meaning, weight_decay=0.0)
        size = abs(float(factor))
        clip_norm = None if meaning.clip_norm is None else meaning.clip_norm * size
        return dataclasses.replace(
            self, values=values, sigma=self.sigma * np.float32(size), clips=tuple(c.scaled(size) for c in self.clips),
            meaning=dataclasses.replace(
                meaning, sign=1, lr=1.0, steps=1, momentum=0.0, grid=meaning.grid * size, clip_norm=clip_norm
            ),
        )  # fmt: skip

    def tensor(self, name: str) -> TensorView:
        """One parameter tensor.

        Raises:
            ViewError: the model has no such parameter.
        """
        parameter = next((p for p in self.layout.parameters if p.name == name), None)
        if parameter is None:
            names = ", ".join(p.name for p in self.layout.parameters)
            raise ViewError(f"the model has no parameter {name}; it has {names}")
        return self._cut(parameter)

    def tensors(self) -> dict[str, TensorView]:
        """All parameter tensors by name, in the order of the layout."""
        return {parameter.name: self._cut(parameter) for parameter in self.layout.parameters}

    def shares(self) -> dict[str, float]:
        """Share of the entries in each state, by its lower-case name."""
        counts = np.bincount(self.states, minlength=len(Seen))
        return {state.name.lower(): float(counts[state]) / max(1, len(self.states)) for state in Seen}

    def _cut(self, parameter: Parameter) -> TensorView:
        before = int(np.count_nonzero(self.visible[: parameter.offset]))
        states = self.states[parameter.slice]
        inside = int(np.count_nonzero(self.visible[parameter.slice]))
        part = slice(before, before + inside)
        return TensorView(parameter.name, states.reshape(parameter.shape), self.values[part], self.sigma[part])


@dataclasses.dataclass(frozen=True, eq=False)
class Observation:
    """An adversary's observation of the target in one round.

    Attributes:
        round: 0-based.
        update: the observed update of the target, or a sum.
        vector: float32 (P,), the global model it was made from, as far as the adversary knows it; else None.
        buffers: batch-norm statistics that travelled with that model, by name; empty where they stay at the clients.
        same_examples: whether it was certainly made from the same examples as the attacked update; False if that is not
            declared.
    """

    round: int
    update: ObservedUpdate
    vector: NDArray[np.float32] | None = None
    buffers: dict[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    same_examples: bool = False


def _visible(states: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.isin(states, (Seen.CLEAR, Seen.NOISED))


def _dense(states: NDArray[np.uint8], values: NDArray[np.float32], hidden: float) -> NDArray[np.float32]:
    dense = np.full(states.shape, hidden, np.float32)
    dense[_visible(states)] = values
    return dense


def all_clear(round: int, client_id: int, layout: Layout, update: NDArray[np.float32], meaning: Meaning,
              hidden: NDArray[np.bool_] | None = None, sigma: float = 0.0) -> ObservedUpdate:
    """An observed update made by hand, for tests and for trying an attack outside a run.

    Args:
        round, client_id, layout, meaning: as in `ObservedUpdate`.
        update: float32 (P,), the true update.
        hidden: bool (P,), entries that are encrypted; none if None.
        sigma: standard deviation of noise that `update` already carries; 0 if it carries none.
    """
    state = Seen.NOISED if sigma else Seen.CLEAR
    states = np.full(layout.size, state, np.uint8)
    if hidden is not None:
        states[hidden] = Seen.ENCRYPTED
    values = np.ascontiguousarray(update[states == state], np.float32)
    return ObservedUpdate(round, (client_id,), layout, states, values, np.full(len(values), sigma, np.float32), meaning)
