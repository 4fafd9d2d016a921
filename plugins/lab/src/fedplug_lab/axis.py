"""One axis of a figure: which values it spans, where a value lies on it, which numbers label it; and its letters."""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values: TypeAlias = "NDArray[np.float64]"
Tick = tuple[float, str]

_LARGEST = 1e300  # what a diverged run reports may be anything; differences of such values must stay finite
_MARGIN = 0.05  # beyond the values at either end, as a share of what they span
_STRIP = 0.24  # of the axis, where it has a strip
_MOST_TICKS = 60  # a guard: an axis so fine that rounding hides its steps has no more


@dataclasses.dataclass
class Axis:
    """A scale, from `low` at its start to `high` at its end; `low` may be the larger.

    Attributes:
        low, high: the ends; None: a little beyond the values seen.
        logarithmic: powers of ten are equally far apart; `low` and `high` must be given then, both > 0.
        ticks: values and what to write there; None: round numbers.
        most: how many round numbers there may be, about, where there is room; None: as many as there is room for.
        whole: the round numbers are whole.
        write: how a round number is written; None: with as many decimals as tell them apart.
        turned: the labels of the ticks are slanted, to have room.
        strip: what is written below a strip at the end of the axis, in which infinity lies: what has no number. Empty:
            there is no strip, and infinity is far outside.
    """

    low: float | None = None
    high: float | None = None
    logarithmic: bool = False
    ticks: Sequence[Tick] | None = None
    most: int | None = None
    whole: bool = False
    write: Callable[[float], str] | None = None
    turned: bool = False
    strip: str = ""
    _seen: tuple[float, float] = (math.inf, -math.inf)

    def see(self, *values: Any) -> None:
        """Takes note of values that are to lie on the axis; NaN is none."""
        for given in values:
            known = np.asarray(given, np.float64)
            known = np.clip(known[np.isfinite(known)], -_LARGEST, _LARGEST)
            if known.size:
                self._seen = min(self._seen[0], float(known.min())), max(self._seen[1], float(known.max()))

    def include(self, values: Sequence[float]) -> None:
        """Makes an axis that has its ends reach these values too."""
        low, high = self.ends()
        self.low, self.high = min([low, *values]), max([high, *values])

    def from_zero(self, highest: float) -> None:
        """Makes the axis go from 0 to a little above the highest value."""
        self.low, self.high = 0.0, 1.08 * highest or 1.0

    def ends(self) -> tuple[float, float]:
        """Where the axis starts and ends."""
        low, high = self._seen if self._seen[0] <= self._seen[1] else (0.0, 1.0)
        margin = _MARGIN * (high - low) or _MARGIN * abs(high) or 0.5
        low = low - margin if self.low is None else self.low
        high = high + margin if self.high is None else self.high
        return (low, high) if low != high else (low, low + (abs(low) or 1.0))

    @property
    def numbers_end(self) -> float:
        """Where the numbers end on the axis, and its strip begins."""
        return 1 - _STRIP if self.strip else 1.0

    def places(self, values: Any) -> Values:
        """Of each value its place on the axis, 0 at the start and 1 at the end; what lies far outside comes near."""
        low, high = self.ends()
        found = np.asarray(values, np.float64)
        aside = np.isposinf(found) & bool(self.strip)
        if self.logarithmic:
            low, high, found = math.log10(low), math.log10(high), np.log10(np.maximum(found, 1e-307))
        found = np.clip(found, -_LARGEST, _LARGEST)
        along = self.numbers_end * np.clip((found - low) / (high - low), -1.0, 2.0)
        return np.asarray(np.where(aside, (1 + self.numbers_end) / 2, along), np.float64)

    def marks(self, most: int | None = None) -> list[Tick]:
        """The place of each tick on the axis, and what is written there; of round numbers about `most`."""
        found = self.ticks if self.ticks is not None else self._round_numbers(most or self.most or 8)
        low, high = sorted(self.ends())
        slack = 1e-9 * (high - low)
        inside = [(value, text) for value, text in found if low - slack <= value <= high + slack]
        aside = [(math.inf, self.strip)] if self.strip else []
        texts = [text for _, text in [*inside, *aside]]
        return list(zip(map(float, self.places([value for value, _ in [*inside, *aside]])), texts, strict=True))

    def _round_numbers(self, most: int) -> list[Tick]:
        low, high = sorted(self.ends())
        if self.logarithmic:
            return [(value, f"{value:g}") for value in powers(low, high, most)]
        step = round_step((high - low) / most, self.whole)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        values = [step * number for number in range(first, min(last, first + _MOST_TICKS) + 1)]
        write = self.write or _decimals(step, max(abs(low), abs(high)))
        return list({write(value): (value, write(value)) for value in values}.values())


def round_step(least: float, whole: bool = False) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `least`; of whole numbers, 1 or more."""
    least = max(least, 1.0) if whole else least
    power = 10.0 ** math.floor(math.log10(least))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    return next((power * factor for factor in factors if power * factor >= least * (1 - 1e-9)), 10 * power)


def powers(low: float, high: float, most: int) -> list[float]:
    """Powers of ten from `low` to `high`, and their multiples by 2 and 5 where those alone would be too few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / most))
    factors = (1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)
    return [factor * 10.0**power for power in range(first, last + 1, stride) for factor in factors]


def _decimals(step: float, largest: float) -> Callable[[float], str]:
    if largest >= 1e7 or step < 1e-5:
        return lambda value: f"{value:.4g}"
    digits = max(0, -math.floor(math.log10(step)))
    digits += abs(step * 10**digits - round(step * 10**digits)) > 1e-6  # a step of 2.5, 0.25, ...
    return lambda value: f"{value:.{digits}f}"


FONT = 9.0
"""Size of the letters of a broad picture, in points like everything here."""


class Lettering(NamedTuple):
    """The labels of a panel's axes.

    Attributes:
        across, upward: places on the axes and their labels.
        turned: the labels below are slanted, to have room.
    """

    across: Sequence[Tick]
    upward: Sequence[Tick]
    turned: bool


def lettering(x: Axis, width: float, font: float, upward: Sequence[Tick]) -> Lettering:
    """The labels of the axes of a panel of that width: as many as there is room for.

    Args:
        x: the x axis.
        width: between its ends.
        font: size of the letters.
        upward: the labels of the y axis.
    """
    if x.ticks is None:
        found = x.marks()
        for most in range(x.most or 8, 1, -1):
            found = x.marks(most)
            if not _crowded(found, width, font):
                break
        return Lettering(found[::2] if _crowded(found, width, font) else found, upward, False)
    found = x.marks()
    turned = x.turned or _crowded(found, width, font)
    step = 1.0 if len(found) < 2 else width * (found[-1][0] - found[0][0]) / (len(found) - 1)
    every = max(1, math.ceil(1.1 * font / step)) if turned and step > 0 else 1
    return Lettering(found[::every], upward, turned)


def _crowded(marks: Sequence[Tick], width: float, font: float) -> bool:
    """Whether a label below an axis of that width would run into its neighbour."""
    ends = [(width * place, width_of(text, font) / 2) for place, text in sorted(marks)]
    return any(right - half < left + other + 3 for (left, other), (right, half) in itertools.pairwise(ends))


def width_of(text: str, size: float = FONT) -> float:
    """About how wide a text is: which font the page has, nobody knows here."""
    return 0.62 * size * len(text)


def words(text: str, x: float, y: float, style: str = "", anchor: str = "start", turned: float = 0.0) -> str:
    """A line of text whose middle is at the height `y`."""
    turn = f' transform="rotate({turned:g} {coordinate(x)} {coordinate(y)})"' if turned else ""
    look = f' style="{style}"' if style else ""
    place = f'x="{coordinate(x)}" y="{coordinate(y)}" dy=".35em" text-anchor="{anchor}"'
    return f"<text {place}{look}{turn}>{html.escape(text, quote=False)}</text>"


def coordinate(value: float) -> str:
    """A coordinate, to a hundredth of a point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
