"""What can be asked of a protocol: the numbers of `fedplug compare`, by its names, and how people write bounds."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from fedplug.api.data import Better, Figure
from fedplug_runs import units
from fedplug_runs.by_class import figure_named

_UNITS: dict[str, dict[str, float]] = {
    "bytes": {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    "seconds": {"": 1, "s": 1, "min": 60, "h": 3600},
    "share": {"": 1, "%": 0.01},
    "number": {"": 1},
    "figure": {"": 1},
}
_NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%]*)\s*")


@dataclasses.dataclass(frozen=True)
class Measure:
    """One number of a protocol.

    Attributes:
        title: for people.
        kind: `share` (0 to 1), `bytes`, `seconds`, `number` (>= 0) or `figure` (of a task, any number).
        better: which of two is the better one; None where that is for its task to say.
        grows: a run's own number only grows from round to round, and a listener can read it.
    """

    title: str
    kind: str
    better: Better | None = "lower"
    grows: bool = False

    def read(self, text: str) -> float:
        """A bound as people write it: `0.9`, `90%`, `100MB`, `5min`.

        Raises:
            ValueError: says what is wrong with it.
        """
        found = _NUMBER.fullmatch(text)
        known = _UNITS[self.kind]
        if not found or found[2] not in known:
            named = ", ".join(filter(None, known))
            raise ValueError(f"{text!r} must be a number" + (f", perhaps with a unit: {named}" if named else ""))
        value = float(found[1]) * known[found[2]]
        if not math.isfinite(value) or (value < 0 and self.kind != "figure"):
            raise ValueError(f"{text} must be >= 0 and finite")
        if self.kind == "share" and value > 1:
            raise ValueError(f"{text} must be a share of 1, such as 0.9 or 90%")
        return value

    def show(self, value: float | None) -> str:
        """A value for people."""
        if value is None:
            return units.NOTHING
        if self.kind == "bytes":
            return units.size(value)
        if self.kind == "seconds":
            return units.duration(value)
        return units.number(value)


MEASURES: Mapping[str, Measure] = {
    "accuracy": Measure("accuracy", "share", better="higher"),
    "group_accuracy": Measure("accuracy in groups", "share", better="higher"),
    "personal_accuracy": Measure("accuracy of personal models", "share", better="higher"),
    "epsilon": Measure("epsilon", "number", grows=True),
    "epsilon_server": Measure("ε of the server's view", "number"),
    "epsilon_key_holder": Measure("ε of the key holder's view", "number"),
    "epsilon_client": Measure("ε of a client's view", "number"),
    "epsilon_client_and_server": Measure("ε of a client and the server together", "number"),
    "epsilon_released_model": Measure("ε of the released model", "number"),
    "bytes": Measure("bytes, all ways", "bytes", grows=True),
    "bytes_up": Measure("bytes up", "bytes", grows=True),
    "bytes_down": Measure("bytes down", "bytes", grows=True),
    "bytes_key_server": Measure("bytes of the key server", "bytes", grows=True),
    "seconds": Measure("seconds", "seconds", grows=True),
    "seconds_simulated": Measure("simulated seconds", "seconds", grows=True),
    "leakage": Measure("best attack succeeded", "share"),
    "peak_memory": Measure("memory", "bytes"),
}
"""By name. `epsilon` is the one that a run leads with; means over seeds, except epsilons, leakage and memory, where the
largest counts."""
FIGURE, LEVEL = "figure_", "epsilon_of_"
"""How the names begin of what the recipe's task, or a component that keeps another account, adds to them."""
NAMES = (*MEASURES, f"{FIGURE}NAME of a task, such as {FIGURE}IoU", f"{LEVEL}LEVEL, such as {LEVEL}record")
"""All that may be asked, for people."""


def is_measure(name: str) -> bool:
    """Whether a search can ask for it; whether the runs state it is another matter."""
    return name in MEASURES or any(len(name) > len(head) and name.startswith(head) for head in (FIGURE, LEVEL))


def measure(name: str) -> Measure:
    """The measure of that name.

    Raises:
        KeyError: there is none.
    """
    if name in MEASURES or not is_measure(name):
        return MEASURES[name]
    if name.startswith(FIGURE):
        return Measure(name.removeprefix(FIGURE), "figure", better=None)
    return Measure(f"ε of a {name.removeprefix(LEVEL)}", "number")


def in_words(numbers: Mapping[str, float | None]) -> str:
    """Measures for people: `accuracy 0.900, bytes 1.2 MB`."""
    return ", ".join(f"{name} {measure(name).show(value)}" for name, value in numbers.items())


def better_of(name: str, figures: Sequence[Figure]) -> Better | None:
    """Which of two numbers of a measure is the better one; None where nobody declares it.

    Args:
        name: of the measure.
        figures: those that the task declares.
    """
    if name.startswith(FIGURE):
        declared = figure_named(name.removeprefix(FIGURE), figures)
        return declared.better if declared else None
    return measure(name).better


DIRECTIONS: Mapping[str, Better] = {"min": "lower", "max": "higher"}
"""How people write which way is better."""


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A bound that a protocol has to meet.

    Attributes:
        name: of the measure.
        least: the value is the least that is allowed; else the most.
        bound: that value.
    """

    name: str
    least: bool
    bound: float

    @property
    def measure(self) -> Measure:
        """The bounded measure."""
        return measure(self.name)

    def __str__(self) -> str:
        return f"{self.name} {'>=' if self.least else '<='} {self.measure.show(self.bound)}"

    def miss(self, value: float | None) -> float:
        """By how much a value misses it, as a share of the bound; 0 where it is met, 1 where there is no value."""
        if value is None or math.isnan(value):
            return 1.0
        over = self.bound - value if self.least else value - self.bound
        if over <= 0:
            return 0.0
        return min(over / abs(self.bound), 1e6) if self.bound else min(over, 1e6)
