"""The figures of a comparison: what accuracy costs, accuracy over rounds and over bytes, bars of bytes and seconds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from fedplug.api.data import ACCURACY
from fedplug_ledger.verdict_words import named
from fedplug_runs import units

from fedplug_lab.axis import Axis
from fedplug_lab.canvas import (
    HALF,
    PHASE_COLOURS,
    ZONE_COLOURS,
    Curve,
    Point,
    Scale,
    draw_band,
    draw_front,
    draw_line,
    draw_stack,
    front_panels,
    height_axis,
    log_axis,
    round_axis,
    tint,
)
from fedplug_lab.compare_table import all_bytes, by_seed, goal_of, mean_of, worst_epsilon
from fedplug_lab.drawing import Chart, Drawing
from fedplug_lab.figures import DIRECTIONS
from fedplug_lab.intervals import spread_of
from fedplug_lab.panel import MUTED, Panel
from fedplug_lab.records import Compared, OneRun, worst_of
from fedplug_lab.words import capital

COLOURS = (
    "#3b7dd8", "#e39a2d", "#3fa672", "#d9534f", "#8661c1", "#2aa198", "#c2557f", "#8c6b4a", "#64748b", "#a3b52e",
)  # fmt: skip
"""Of the protocols, in order; beyond these they begin anew."""
_BAND = 6  # of more protocols the bands would hide each other


@dataclasses.dataclass(frozen=True)
class Price:
    """One thing that a good model may cost: small is good.

    Attributes:
        label: of the axis, with its unit.
        read: of a protocol; None where it has no such number.
        missing: the words for None; empty: such a protocol is left out.
    """

    label: str
    read: Callable[[Compared], float | None]
    missing: str = ""


def _megabytes(each: Compared) -> float:
    return mean_of(each, lambda run: all_bytes(run) / 1e6) or 0.0


def _leaked(each: Compared) -> float | None:
    worst = worst_of(each)
    return None if worst is None or worst.succeeded is None else 100 * worst.succeeded


PRICES = (
    Price("MB sent, all ways", _megabytes),
    Price("seconds of the rounds", lambda each: mean_of(each, lambda run: run.result.wall_seconds)),
    Price("epsilon toward the server", lambda each: worst_epsilon(each, "server"), "no guarantee"),
    Price("epsilon of the released model", lambda each: worst_epsilon(each, "released_model"), "no guarantee"),
    Price("best attack succeeded (% of its targets)", _leaked, "not attacked"),
)  # fmt: skip


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


def _front(everyone: Sequence[Compared]) -> Chart | None:
    goal = goal_of(everyone)
    if goal is None:
        return None
    name, read, better = goal
    shown = {place: found for place, each in enumerate(everyone)
             if (found := spread_of([*by_seed(each, read).values()]))}  # fmt: skip
    if len(shown) < 2:
        return None
    paid = {price: {place: price.read(everyone[place]) for place in shown} for price in PRICES}
    drawn = [price for price, costs in paid.items() if any(map(_known, costs.values()))]
    unit = "accuracy (share of test examples)" if name == "accuracy" else name
    drawing = front_panels(len(drawn))
    said, axis = list[str](), Axis()
    for panel, price in zip(drawing.panels, drawn, strict=True):
        places = [place for place in shown if price.missing or _known(paid[price][place])]
        points = [Point(everyone[place].name, paid[price][place], shown[place].mean, colour_of(place),
                        shown[place].deviation) for place in places]  # fmt: skip
        if panel is drawing.panels[0]:
            axis = height_axis(points)
        panel.y = axis
        front = draw_front(panel, points, Scale(price.label, "lower", price.missing), Scale(unit, better))
        beaten = named(points[place].name for place in front)
        without = [point.name for point in points if not _known(point.x)]
        said.append(f"By {price.label}, no protocol beats {beaten}"
                    + (f"; {price.missing}: {named(without)}." if without else "."))  # fmt: skip
    for price, costs in paid.items():
        if price.missing == "no guarantee" and not any(map(_known, costs.values())):
            said.append(f"No protocol has a guaranteed {price.label}.")
    lacking = [each.name for place, each in enumerate(everyone) if place not in shown]
    side = "up" if better == "higher" else "down"
    note = (f"Left and {side} is better. Steps join the protocols that no other beats in both. Bars are standard "
            "deviations over seeds. A strip holds protocols without a number, which are "
            f"not compared.{f' No {name} is known of {named(lacking)}.' if lacking else ''}")  # fmt: skip
    alt = " ".join(said)
    legend = (*_legend(everyone, "area"), ("nobody is better in both", MUTED, "line"))
    title = "What accuracy costs" if name == "accuracy" else f"What {name} costs"
    return drawing.chart("front", title, alt, legend, note, wide=True)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


# ---- curves


def _curves(everyone: Sequence[Compared]) -> Chart | None:
    longest = max(len(run.rows) for each in everyone for run in each.runs)
    rounds = np.arange(1, longest + 1, dtype=np.float64)
    goal = goal_of(everyone)
    name = goal[0] if goal else ACCURACY.name
    drawing = Drawing(HALF, 3.2)
    (panel,) = drawing.panels
    said, legend = [], list[tuple[str, str, str]]()
    for place, each in enumerate(everyone):
        found = np.full((len(each.runs), longest), np.nan)
        for number, run in enumerate(each.runs):
            for row in run.rows:
                if (value := row.judged.get(name)) is not None and row.round <= longest:
                    found[number, row.round - 1] = value
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
    panel.y_label = _upright(panel, name)
    round_axis(panel, rounds)
    alt = f"Mean {name} over seeds after the last round: {', '.join(said)}."
    return drawing.chart("curves", f"{capital(name)} over rounds", alt, legend)


def _upright(panel: Panel, name: str) -> str:
    """What the axis of a leading figure is called; that of accuracy goes from 0 to 1."""
    if name != ACCURACY.name:
        return name
    panel.y.low, panel.y.high = 0.0, 1.0
    return "accuracy (share of test examples)"


def _over_runs(found: Curve) -> tuple[Curve, Curve, Curve]:
    """Lowest, mean and highest of each round; NaN where not all runs have a number."""
    whole = np.isfinite(found).all(axis=0)
    pick = [np.where(whole, fold(np.nan_to_num(found), axis=0), np.nan) for fold in (np.min, np.mean, np.max)]
    return pick[0], pick[1], pick[2]


def _over_bytes(everyone: Sequence[Compared]) -> Chart | None:
    drawing = Drawing(HALF, 3.2)
    (panel,) = drawing.panels
    smallest, largest, said = math.inf, 0.0, []
    goal = goal_of(everyone)
    name = goal[0] if goal else ACCURACY.name
    for place, each in enumerate(everyone):
        for run in each.runs:
            sent = np.cumsum([sum(of(row.bytes).total for _, of in DIRECTIONS.values()) for row in run.rows]) / 1e6
            curve = np.array([row.judged.get(name) for row in run.rows], np.float64)
            curve[~np.isfinite(curve)] = np.nan
            draw_line(panel, sent, curve, colour_of(place), thin=len(each.runs) > 1)
            smallest, largest = min(smallest, float(sent[0])), max(largest, float(sent[-1]))
        said.append(f"{each.name} {_megabytes(each):.1f}")
    if not largest > 0 or not smallest > 0:
        return None
    log_axis(panel.x, smallest, largest)
    panel.y_label, panel.x_label = _upright(panel, name), "MB sent so far, all ways"
    alt = f"MB sent in all: {', '.join(said)}."
    note = "Logarithmic scale. A line for each seed."
    return drawing.chart("accuracy-bytes", f"{capital(name)} over bytes", alt, _legend(everyone), note)


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
    names = [each.name for each in everyone]
    # Slanted names are whole: long ones get room below the bars.
    drawing = Drawing(HALF, 3.4 + 0.06 * max(0, max(map(len, names)) - 24))
    (panel,) = drawing.panels
    legend = draw_stack(panel, np.arange(1.0, len(everyone) + 1), stack, colours)
    panel.y.low, panel.y.high, panel.y_label = 0.0, 1.08 * float(total.max()), unit
    panel.x.low, panel.x.high = 0.3, len(everyone) + 0.7
    panel.x.ticks = [(place + 1.0, name) for place, name in enumerate(names)]
    panel.x.turned = len(names) * max(map(len, names)) > 50
    said = ", ".join(f"{name} {units.number(value, 1)} {unit}" for name, value in zip(names, total, strict=True))
    return drawing.chart(key, title, f"In all: {said}.", legend, note)
