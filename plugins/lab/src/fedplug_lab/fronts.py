"""Pareto fronts: points between two axes with numbers and units, their names, and the front as steps.

What has no number on the x axis, such as an epsilon where nothing is guaranteed, lies in a strip that says so. It is
not compared: it is on no front, and nothing beats it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from fedplug.api.data import Better

from fedplug_lab.axis import Axis
from fedplug_lab.canvas import log_axis
from fedplug_lab.panel import MUTED, Panel

K = TypeVar("K")
_WIDE = 3.0  # an axis is logarithmic where the largest value is this many times the smallest


@dataclasses.dataclass(frozen=True)
class Point:
    """One protocol or trial.

    Attributes:
        name: written next to it; empty for nothing.
        x: None where it has no such number.
        y: the other number.
        colour: of its dot.
        deviation: of `y`, drawn as a bar; None for none.
        counts: whether it can be on the front.
        size: of its dot.
    """

    name: str
    x: float | None
    y: float
    colour: str
    deviation: float | None = None
    counts: bool = True
    size: float = 8.0


@dataclasses.dataclass(frozen=True)
class Scale:
    """What an axis shows.

    Attributes:
        label: with its unit.
        better: which way is better.
        missing: what is written below the strip of those without a number.
    """

    label: str
    better: Better
    missing: str = "no number"


def front_of(points: Mapping[K, tuple[float, float]], across: Better = "lower", up: Better = "higher") -> list[K]:
    """Those that no other beats: name -> (x, y); from the best x on. Equals are both on it."""
    signs = [1 if better == "lower" else -1 for better in (across, up)]
    losses = {name: (signs[0] * x, signs[1] * y) for name, (x, y) in points.items()}

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] <= other[0] and one[1] <= other[1]

    kept = [name for name, own in losses.items() if not any(beats(other, own) for other in losses.values())]
    return sorted(kept, key=lambda name: losses[name])


def draw_front(
    panel: Panel, points: Sequence[Point], across: Scale, up: Scale, marks: Sequence[float] = ()
) -> list[int]:
    """Draws the points with names, and the front as steps.

    Args:
        panel: is drawn in, axes and all; its y axis may be one that other panels have too.
        points: all of them.
        across, up: what the axes show.
        marks: further values that lie on the x axis.

    Returns:
        The places of those on the front, from the best x on.
    """
    known = {place: point.x for place, point in enumerate(points) if point.x is not None and math.isfinite(point.x)}
    front = front_of({place: (x, points[place].y) for place, x in known.items() if points[place].counts},
                     across.better, up.better)  # fmt: skip
    places = [known.get(place, math.inf) for place in range(len(points))]
    _axis(panel.x, [*known.values(), *marks])
    if len(known) < len(points):
        panel.x.strip = across.missing
    panel.x_label, panel.y_label = across.label + (", log scale" if panel.x.logarithmic else ""), up.label
    if front:
        panel.stairs([known[place] for place in front], [points[place].y for place in front], MUTED,
                     across.better == "lower", up.better == "higher")  # fmt: skip
    for x, point in zip(places, points, strict=True):
        if point.deviation:
            panel.line([x, x], [point.y - point.deviation, point.y + point.deviation], point.colour, 1.2)
    for x, point in zip(places, points, strict=True):
        panel.dots([x], [point.y], point.colour, point.size)
    panel.names([(x, point.y, point.name) for x, point in zip(places, points, strict=True)])
    return front


def height_axis(points: Sequence[Point]) -> Axis:
    """A y axis for these points, with room for names above and below."""
    axis = Axis()
    _span(axis, [y for point in points for d in [point.deviation or 0.0] for y in (point.y - d, point.y + d)])
    return axis


def _axis(axis: Axis, values: Sequence[float]) -> None:
    axis.most = 6
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low > 0 and high > _WIDE * low:
        log_axis(axis, low, high)
    else:
        _span(axis, values)


def _span(axis: Axis, values: Sequence[float]) -> None:
    """From below the smallest to above the largest; where none is negative, hardly below 0."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    about = max(abs(low), abs(high))  # what differs by less than a thousandth is alike, and no axis is made of it
    margin = 0.15 * (high - low) if high - low > 1e-3 * about else 0.15 * about or 0.5
    axis.low = max(-0.3 * margin, low - margin) if low >= 0 else low - margin
    axis.high = high + margin
