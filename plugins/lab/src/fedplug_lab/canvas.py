"""The common parts of the report's figures: colours, curves of rows, bars, lines, and the axis of rounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from fedplug.api.data import Better
from fedplug_runs.rows import GroupResult, Row

from fedplug_lab.axis import Axis
from fedplug_lab.drawing import Drawing
from fedplug_lab.panel import MUTED, Panel

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rows = Sequence[Row]
Curve: TypeAlias = "NDArray[np.float64]"  # one value a round

ZONE_COLOURS = {
    "encrypted": "#3b7dd8", "noised": "#e39a2d", "retained": "#3fa672", "clear": "#d9534f", "other": "#8b94a3",
}  # fmt: skip
"""One colour a zone in every figure and table; `other` is what belongs to no zone (questions, ballots, headers)."""
PHASE_COLOURS = {
    "train": "#64748b", "score": "#d4b13f", "negotiate": "#a97bd1", "protect": "#2aa198", "aggregate": "#e27d60",
    "open": "#85b04b", "adopt": "#5fb3d4", "evaluate": "#c2789f", "checkpoint": "#a89f91",
}  # fmt: skip
_SPARE_COLOURS = ("#8c6bb1", "#c0785a", "#4aa3a2", "#b5892e", "#7a9e5f", "#c2557f")
GLOBAL_COLOUR, TRAIN_COLOUR, PERSONAL_COLOUR = "#8661c1", "#c2557f", "#2f9e77"
"""Curves of the global model, of training, which happens before there is one, and of the clients' own models."""
HALF, WIDE = 5.0, 10.2  # inches; a figure fills one column of the page, or both
_MOST_POINTS = 800  # of a curve: a page is hardly wider than that many pixels
_MANY_ROUNDS = 40  # beyond this many, bars become a filled outline: one path instead of thousands


def rounds_of(rows: Rows) -> Curve:
    """The round numbers, as people count them."""
    return np.array([row.round for row in rows], np.float64)


def over_rounds(rows: Rows, height: float = 3.0) -> tuple[Drawing, Panel, Curve]:
    """A figure with one panel whose x axis has the rounds; `height` in inches."""
    drawing, rounds = Drawing(HALF, height), rounds_of(rows)
    (panel,) = drawing.panels
    round_axis(panel, rounds)
    return drawing, panel, rounds


def time_scale(highest: float) -> tuple[float, str]:
    """By what seconds are multiplied to be shown in a fitting unit, and that unit."""
    return (1000.0, "ms") if highest < 1 else (1.0, "s") if highest < 600 else (1 / 60, "min")


def curve_of(rows: Rows, read: Callable[[Row], float | None]) -> Curve:
    """One value a round; NaN, which is not drawn, where there is none or it is not finite."""
    return _curve([read(row) for row in rows])


def curves_of(rows: Rows, read: Callable[[Row], Mapping[str, float | None]]) -> dict[str, Curve]:
    """A curve for each name, in order of first appearance."""
    given = [read(row) for row in rows]
    names = dict.fromkeys(name for numbers in given for name in numbers)
    return {name: _curve([numbers.get(name) for numbers in given]) for name in names}


def _curve(values: Sequence[float | None]) -> Curve:
    curve = np.array(values, np.float64)  # None becomes NaN
    curve[~np.isfinite(curve)] = np.nan
    return curve


def thinned(*curves: Curve) -> NDArray[np.int64]:
    """Which rounds of curves to draw, ascending: of many, those at which one of them is lowest or highest in its part.

    Peaks and gaps stay, and so do the first and the last round.
    """
    count = len(curves[0])
    if count <= _MOST_POINTS:
        return np.arange(count)
    edges = np.linspace(0, count, _MOST_POINTS // 4 + 1).astype(np.int64)
    kept = {0, count - 1}
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        for curve in curves:
            part = curve[start:stop]
            known = np.isfinite(part)
            kept |= {start + int(np.argmin(known))} if not known.all() else set()
            if known.any():
                kept |= {start + int(np.nanargmin(part)), start + int(np.nanargmax(part))}
    return np.array(sorted(kept))


def draw_line(
    panel: Panel, x: Curve, y: Curve, colour: str, *, dashed: bool = False, thin: bool = False
) -> None:
    """Draws a curve, with gaps where it is NaN."""
    few = thinned(y)
    panel.line(x[few], y[few], colour, 1.1 if thin else 1.8, dashed)
    # Dots where there are few points, and always for points without a neighbour, which no line would show.
    known = np.isfinite(y)
    padded = np.pad(known, 1)
    alone = known & ~padded[:-2] & ~padded[2:]
    shown = known if len(y) <= 30 and not thin else alone
    panel.dots(x[shown], y[shown], colour, 4.5)


def draw_band(panel: Panel, x: Curve, low: Curve, high: Curve, colour: str = GLOBAL_COLOUR) -> None:
    """Fills between two curves, faintly; of a single round, a faint bar."""
    if len(x) == 1:
        panel.bars(x, low, high, 0.12, colour, 0.22)
    else:
        few = thinned(low, high)
        panel.area(x[few], low[few], high[few], colour, 0.22)


def draw_groups(panel: Panel, rows: Rows, read: Callable[[GroupResult], float | None]) -> bool:
    """One thin line for each group's own model, if there is more than one group; says whether there is."""
    groups = curves_of(rows, lambda row: {group: read(result) for group, result in row.groups.items()})
    for curve in groups.values() if len(groups) > 1 else ():
        if len(rows) == 1:
            panel.dots(rounds_of(rows), curve, GLOBAL_COLOUR, 3.0, 0.6)
        else:
            panel.line(rounds_of(rows), curve, GLOBAL_COLOUR, 0.9, opacity=0.6)
    return len(groups) > 1


def draw_stack(
    panel: Panel, x: Curve, curves: Mapping[str, Curve], colours: Mapping[str, str]
) -> tuple[tuple[str, str, str], ...]:
    """Stacks the curves, one bar a round; gives the legend."""
    base, legend = np.zeros(len(x)), []
    for name, curve in curves.items():
        values = np.nan_to_num(curve)
        if not values.any():
            continue
        colour = _colour(name, colours, list(curves))
        if len(x) <= _MANY_ROUNDS:
            panel.bars(x, base, base + values, 0.8 if len(x) > 3 else 0.4, colour)
        else:
            # Of more rounds than the picture has room for, neighbours share a step of their mean height.
            starts = np.arange(0, len(x), math.ceil(len(x) / _MOST_POINTS))
            counts = np.diff(np.append(starts, len(x)))
            low, high = (np.add.reduceat(part, starts) / counts for part in (base, base + values))
            panel.steps(np.append(x[starts] - 0.5, x[-1] + 0.5), low, high, colour)
        base = base + values
        legend.append((name, colour, "area"))
    return tuple(legend)


def round_axis(panel: Panel, rounds: Curve) -> None:
    """An x axis of whole rounds."""
    margin = 0.6 if len(rounds) <= _MANY_ROUNDS else 0.0
    low, high = float(rounds.min()) - margin, float(rounds.max()) + margin
    # Few rounds would give a few very wide bars.
    slack = max(0.0, (4 - (high - low)) / 2)
    panel.x = Axis(low - slack, high + slack, most=12, whole=True)
    if len(rounds) <= 4:
        panel.x.ticks = [(float(x), f"{x:.0f}") for x in rounds]
    panel.x_label = "round"


def log_axis(axis: Axis, low: float, high: float) -> None:
    """Makes an axis logarithmic, for values from `low` to `high`, both > 0."""
    axis.low, axis.high, axis.logarithmic = low / 1.5, min(high, 1e100) * 1.5, True


def _colour(name: str, fixed: Mapping[str, str], all_names: Sequence[str]) -> str:
    if name in fixed:
        return fixed[name]
    added = sorted({*all_names, name} - set(fixed))
    return _SPARE_COLOURS[added.index(name) % len(_SPARE_COLOURS)]


def tint(colour: str) -> str:
    """The colour of a band drawn in `colour`, for the legend."""
    return f"color-mix(in srgb, {colour} 22%, transparent)"  # as faint as the band


K = TypeVar("K")
_LOGARITHMIC = 3.0  # an axis is logarithmic where the largest value is this many times the smallest


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


def front_of(points: Mapping[K, Sequence[float]], better: Sequence[Better]) -> list[K]:
    """Those that no other beats: in no number better, and in one worse. From the best in the first on.

    Args:
        points: name -> numbers.
        better: which way each number is better.
    """
    losses = {name: tuple(value if way == "lower" else -value for value, way in zip(numbers, better, strict=True))
              for name, numbers in points.items()}  # fmt: skip

    def beats(one: Sequence[float], other: Sequence[float]) -> bool:
        return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))

    kept = [name for name, own in losses.items() if not any(beats(other, own) for other in losses.values())]
    return sorted(kept, key=lambda name: losses[name])


def front_panels(count: int) -> Drawing:
    """A figure with a panel for each thing that is weighed against another, two in a row."""
    return Drawing(WIDE, 3.2 * math.ceil(count / 2), count, 2 if count > 1 else 1, shared=False)


def draw_front(
    panel: Panel, points: Sequence[Point], across: Scale, up: Scale, marks: Sequence[float] = ()
) -> list[int]:
    """Draws the points with names, and the front as steps.

    What has no number on the x axis, such as an epsilon where nothing is guaranteed, lies in a strip that says so. It
    is not compared: it is on no front, and nothing beats it.

    Args:
        panel: is drawn in, axes and all; its y axis may be one that other panels have too.
        points: all of them.
        across, up: what the axes show.
        marks: further values that lie on the x axis.

    Returns:
        The places of those on the front, from the best x on.
    """
    known = {place: point.x for place, point in enumerate(points) if point.x is not None and math.isfinite(point.x)}
    counted = {place: (x, points[place].y) for place, x in known.items() if points[place].counts}
    front = front_of(counted, (across.better, up.better))
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
    if low > 0 and high > _LOGARITHMIC * low:
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
