"""The figures of a comparison: what accuracy costs, accuracy over rounds and over bytes, bars of bytes and seconds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from fedplug.api import units

from fedplug_lab.canvas import (
    HALF,
    PHASE_COLOURS,
    WIDE,
    ZONE_COLOURS,
    Chart,
    Curve,
    draw_band,
    draw_line,
    draw_stack,
    log_axis,
    round_axis,
    tint,
)
from fedplug_lab.compare_table import accuracies, worst_epsilon
from fedplug_lab.compared import Compared, OneRun
from fedplug_lab.drawing import Drawing
from fedplug_lab.figures import DIRECTIONS
from fedplug_lab.intervals import spread_of
from fedplug_lab.leakage import worst_of
from fedplug_lab.panel import MUTED, Panel

COLOURS = (
    "#3b7dd8", "#e39a2d", "#3fa672", "#d9534f", "#8661c1", "#2aa198", "#c2557f", "#8c6b4a", "#64748b", "#a3b52e",
)  # fmt: skip
"""Of the protocols, in order; beyond these they begin anew."""
_BAND = 6  # of more protocols the bands would hide each other


@dataclasses.dataclass(frozen=True)
class Price:
    """One thing that accuracy may cost: small is good.

    Attributes:
        label: of the axis.
        read: of a protocol; None where nothing is stated, which no statement beats.
        logarithmic: how it is drawn.
        nothing: what stands at the end of the axis for None; empty: such a protocol is left out.
    """

    label: str
    read: Callable[[Compared], float | None]
    logarithmic: bool = True
    nothing: str = ""


def _mean(read: Callable[[OneRun], float | None]) -> Callable[[Compared], float | None]:
    def over_runs(each: Compared) -> float | None:
        found = spread_of([read(run) for run in each.runs])
        return found.mean if found else None

    return over_runs


def _all_bytes(run: OneRun) -> float:
    return (run.result.bytes.up + run.result.bytes.down + run.result.bytes.key_server) / 1e6


def _leaked(each: Compared) -> float | None:
    worst = worst_of(each)
    return None if worst is None or worst.succeeded is None else 100 * worst.succeeded


PRICES = (
    Price("MB sent, all ways", _mean(_all_bytes)),
    Price("seconds", _mean(lambda run: run.result.wall_seconds)),
    Price("ε of the server's view", lambda each: worst_epsilon(each, "aggregator"), nothing="none"),
    Price("ε of the released model", lambda each: worst_epsilon(each, "released_model"), nothing="none"),
    Price("best attack succeeded (%)", _leaked, logarithmic=False),
)


def charts(everyone: Sequence[Compared]) -> list[Chart]:
    """Every figure for which there is data, in the order of the page."""
    made = [_front(everyone), _curves(everyone), _over_bytes(everyone), _bytes(everyone), _seconds(everyone)]
    return [chart for chart in made if chart is not None]


def _legend(everyone: Sequence[Compared], kind: str = "line") -> list[tuple[str, str, str]]:
    return [(each.name, colour_of(place), kind) for place, each in enumerate(everyone)]


def colour_of(place: int) -> str:
    """The colour of a protocol, by its place."""
    return COLOURS[place % len(COLOURS)]


# ---- what accuracy costs


def front_of(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Those that no other beats: name -> (price, accuracy); by price. Equals are both on it."""
    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] <= other[0] and one[1] >= other[1]

    kept = [name for name, own in points.items() if not any(beats(other, own) for other in points.values())]
    return sorted(kept, key=lambda name: points[name])


def _front(everyone: Sequence[Compared]) -> Chart | None:
    shown = {each.name: found.mean for each in everyone if (found := spread_of([*accuracies(each).values()]))}
    prices = [price for price in PRICES if sum(_known(price.read(each)) for each in everyone) >= 1]
    if len(shown) < 2 or not prices:
        return None
    drawing = Drawing(WIDE, 3.0, len(prices))
    said = []
    for panel, price in zip(drawing.panels, prices, strict=True):
        said.append(_draw_front(panel, price, everyone, shown))
    drawing.panels[0].y_label = "accuracy"
    legend = [*_legend(everyone, "area"), ("with a rim: nobody is better in both", tint(MUTED), "area")]
    note = ("Up and to the left is better. Bars are standard deviations over seeds. Where a ledger states no epsilon "
            "for a view, the point stands at none: no guarantee.")  # fmt: skip
    alt = " ".join(said)
    return Chart("front", "What accuracy costs", note, alt, tuple(legend), drawing.svg("front", alt), True)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _draw_front(panel: Panel, price: Price, everyone: Sequence[Compared], shown: Mapping[str, float]) -> str:
    paid = {each.name: price.read(each) for each in everyone if each.name in shown}
    known = [value for value in paid.values() if value is not None and math.isfinite(value)]
    low, high = min(known), max(known)
    logarithmic = price.logarithmic and low > 0
    end = 4 * high if logarithmic else high + 0.3 * ((high - low) or 1.0)  # where there is no number
    missing = price.nothing != "" and len(known) < len(paid)
    places = {name: (value if value is not None and math.isfinite(value) else end) for name, value in paid.items()
              if value in known or price.nothing}  # fmt: skip
    front = front_of({name: (math.inf if missing and place == end else place, shown[name])
                      for name, place in places.items()})  # fmt: skip
    panel.dots([places[name] for name in front], [shown[name] for name in front], MUTED, 13.0, 0.45)
    for place, each in enumerate(everyone):
        if each.name not in places:
            continue
        found = spread_of([*accuracies(each).values()])
        assert found is not None
        x, colour = places[each.name], colour_of(place)
        if found.deviation:
            ends = [found.mean - found.deviation, found.mean + found.deviation]
            panel.line([x, x], ends, colour, 1.2)
        panel.dots([x], [found.mean], colour, 8.0)
    panel.x.most = 4
    if logarithmic:
        log_axis(panel.x, low, end if missing else high)
    if missing:
        marks = [low, high] if high > 1.5 * low else [high]
        panel.x.ticks = [*((value, f"{value:.3g}") for value in marks), (end, price.nothing)]
    panel.x_label = price.label
    return f"By {price.label}, nobody beats {', '.join(front)}."


# ---- curves


def _curves(everyone: Sequence[Compared]) -> Chart | None:
    longest = max(len(run.rows) for each in everyone for run in each.runs)
    rounds = np.arange(1, longest + 1, dtype=np.float64)
    drawing = Drawing(HALF, 3.2)
    (panel,) = drawing.panels
    said, legend = [], list[tuple[str, str, str]]()
    for place, each in enumerate(everyone):
        found = np.full((len(each.runs), longest), np.nan)
        for number, run in enumerate(each.runs):
            for row in run.rows:
                if row.accuracy is not None and row.round <= longest:
                    found[number, row.round - 1] = row.accuracy
        low, mean, high = _over_runs(found)
        if not np.isfinite(mean).any():
            continue
        if len(each.runs) > 1 and len(everyone) <= _BAND:
            draw_band(panel, rounds, low, high, colour_of(place))
        draw_line(panel, rounds, mean, colour_of(place))
        legend.append((each.name, colour_of(place), "line"))
        known = np.flatnonzero(np.isfinite(mean))
        said.append(f"{each.name} ends at {mean[known[-1]]:.3f}")
    if not legend:
        return None
    if any(len(each.runs) > 1 for each in everyone) and len(everyone) <= _BAND:
        legend.append(("lowest to highest over seeds", tint(MUTED), "area"))
    panel.y.low, panel.y.high = 0.0, 1.0
    panel.y_label = "accuracy (share of test examples)"
    round_axis(panel, rounds)
    alt = f"Mean accuracy over seeds after the last round: {', '.join(said)}."
    return Chart("curves", "Accuracy over rounds", "", alt, tuple(legend), drawing.svg("curves", alt))


def _over_runs(found: Curve) -> tuple[Curve, Curve, Curve]:
    """Lowest, mean and highest of each round; NaN where not all runs have a number."""
    whole = np.isfinite(found).all(axis=0)
    pick = [np.where(whole, fold(np.nan_to_num(found), axis=0), np.nan) for fold in (np.min, np.mean, np.max)]
    return pick[0], pick[1], pick[2]


def _over_bytes(everyone: Sequence[Compared]) -> Chart | None:
    drawing = Drawing(HALF, 3.2)
    (panel,) = drawing.panels
    smallest, largest, said = math.inf, 0.0, []
    for place, each in enumerate(everyone):
        for run in each.runs:
            sent = np.cumsum([sum(of(row.bytes).total for _, of in DIRECTIONS.values()) for row in run.rows]) / 1e6
            accuracy = np.array([row.accuracy for row in run.rows], np.float64)
            accuracy[~np.isfinite(accuracy)] = np.nan
            draw_line(panel, sent, accuracy, colour_of(place), thin=len(each.runs) > 1)
            smallest, largest = min(smallest, float(sent[0])), max(largest, float(sent[-1]))
        said.append(f"{each.name} {_mean(_all_bytes)(each):.1f}")
    if not largest > 0 or not smallest > 0:
        return None
    log_axis(panel.x, smallest, largest)
    panel.y.low, panel.y.high = 0.0, 1.0
    panel.y_label, panel.x_label = "accuracy (share of test examples)", "MB sent so far, all ways"
    alt = f"MB sent in all: {', '.join(said)}."
    note = "Logarithmic scale. A line for each seed."
    return Chart("accuracy-bytes", "Accuracy over bytes", note, alt, tuple(_legend(everyone)),
                 drawing.svg("accuracy-bytes", alt))  # fmt: skip


# ---- bars


def _bytes(everyone: Sequence[Compared]) -> Chart | None:
    def zones(run: OneRun) -> dict[str, float]:
        found: dict[str, float] = {}
        for row in run.rows:
            for _, of in DIRECTIONS.values():
                sent = of(row.bytes)
                for zone, count in sent.zones.items():
                    found[zone] = found.get(zone, 0.0) + count / 1e6
        return found

    note = "All messages both ways, those of the key server too; means over seeds. Other: belongs to no zone."
    return _bars(everyone, "bytes", "Bytes", "MB", zones, ZONE_COLOURS, note)


def _seconds(everyone: Sequence[Compared]) -> Chart | None:
    note = "Summed over the parties, so that with several processes they add up to more than the wall clock."
    return _bars(everyone, "seconds", "Seconds by phase", "s", lambda run: run.result.seconds, PHASE_COLOURS, note)


def _bars(
    everyone: Sequence[Compared], key: str, title: str, unit: str, read: Callable[[OneRun], Mapping[str, float]],
    colours: Mapping[str, str], note: str,
) -> Chart | None:  # fmt: skip
    """A bar for each protocol, stacked by what `read` names."""
    parts = [[read(run) for run in each.runs] for each in everyone]
    kinds = dict.fromkeys(kind for runs in parts for run in runs for kind in run)
    stack = {
        kind: np.array([np.mean([run.get(kind, 0.0) for run in runs]) for runs in parts], np.float64) for kind in kinds
    }
    total = np.sum(list(stack.values()), axis=0) if stack else np.zeros(1)
    if not np.any(total):
        return None
    drawing = Drawing(HALF, 3.4)
    (panel,) = drawing.panels
    legend = draw_stack(panel, np.arange(1.0, len(everyone) + 1), stack, colours)
    panel.y.low, panel.y.high, panel.y_label = 0.0, 1.08 * float(total.max()), unit
    panel.x.low, panel.x.high = 0.3, len(everyone) + 0.7
    names = [each.name[:24] for each in everyone]
    panel.x.ticks = [(place + 1.0, name) for place, name in enumerate(names)]
    panel.x.turned = len(names) * max(map(len, names)) > 50
    said = ", ".join(f"{name} {units.number(value, 1)} {unit}" for name, value in zip(names, total, strict=True))
    return Chart(key, title, note, f"In all: {said}.", legend, drawing.svg(key, f"In all: {said}."))
