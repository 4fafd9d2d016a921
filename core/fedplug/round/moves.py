"""How opened sums move the global model of the clients of a process, once for all whose model and sums are the same."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.unchangeable import is_unchangeable, unchangeable
from fedplug.round import borders

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.types import Block, Plan
    from fedplug.round.hosted import HostedClient

Opened = Mapping[str, "tuple[Plan | None, Block]"]
"""By zone, the sum that a client has opened, and the plan by which it lies; None where the sum has its positions."""


@dataclasses.dataclass(frozen=True, eq=False)
class Move:
    """How a global model moved.

    Attributes:
        vector: after it; nobody can change it.
        problems: by zone, why it was left as it was.
        seconds: that it took.
    """

    vector: NDArray[np.float32]
    problems: Mapping[str, Exception]
    seconds: float


class Moves:
    """The moves of the clients of one process; remembers the last one."""

    def __init__(self) -> None:
        self._asked: list[Any] = []
        self._last: Move | None = None

    def of(self, client: HostedClient, opened: Opened) -> Move:
        """The client's global model, moved by the means of opened sums; a zone whose mean cannot be is left as it was.

        Clients that hold equal arrays are moved once. Each reports the seconds that it takes.
        """
        asked: list[Any] = [client.ctx.round, client.vector]
        for zone, (plan, block) in opened.items():
            asked += [zone, plan and plan.labels, plan and plan.zones, block.values, block.positions, block.divisor]
        if self._last is not None and _alike(self._asked, asked):
            client.took("open", self._last.seconds, spent=0.0)
            return self._last
        started = time.perf_counter()
        vector, problems = moved(client, opened)
        self._asked = [one.copy() if isinstance(one, np.ndarray) and not is_unchangeable(one) else one for one in asked]
        self._last = Move(unchangeable(vector), problems, time.perf_counter() - started)
        client.took("open", self._last.seconds)
        return self._last


def moved(client: HostedClient, opened: Opened) -> tuple[NDArray[np.float32], dict[str, Exception]]:
    """A copy of the client's global model, moved, and by zone why it was left as it was."""
    vector, problems = client.vector.copy(), {}
    for zone, (plan, block) in opened.items():
        try:
            where: Any = block.positions if plan is None else plan.where(zone)
            mean = _mean_at(where, block, vector.size)  # before the vector is looked at there
            last = client.ctx.steps(zone)[-1:]
            with np.errstate(over="ignore"):
                values = vector[where] + mean
            if said := borders.mean_problem(values, zone, last[0] if last else None):
                raise ProtectionError(said)
            vector[where] = values
        except Exception as error:
            problems[zone] = error
    return vector, problems


def _alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether everything is equal; arrays that are one object are not looked at."""

    def same(one: Any, other: Any) -> bool:
        if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
            return not isinstance(one, np.ndarray) and not isinstance(other, np.ndarray) and bool(one == other)
        alike = (one.dtype, one.shape) == (other.dtype, other.shape)
        return one is other or (alike and one.tobytes() == other.tobytes())  # to the bit, which == is not for zeros

    return len(some) == len(others) and all(map(same, some, others))


def _mean_at(where: Any, block: Block, size: int) -> NDArray[np.float32]:
    """The mean of an opened sum, one value for each of the positions where it belongs; a slice is all of them.

    Raises:
        MessageError: it has another number of values, or values or positions that cannot be.
    """
    mean = block.mean()
    count = size if isinstance(where, slice) else where.size
    if mean.shape != (count,):
        raise MessageError(f"it has {mean.size} values for {count} positions")
    if not isinstance(where, slice) and where.size and int(where[-1]) >= size:
        raise MessageError(f"it has position {int(where[-1])}, but the model has {size} scalars")
    return mean
