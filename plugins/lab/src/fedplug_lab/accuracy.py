"""The figure that leads, such as accuracy: of the global model, of each group's, and of the clients' own models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from fedplug.api.data import ACCURACY, Figure
from fedplug_runs.row_text import best_of, in_groups
from fedplug_runs.rows import Row
from fedplug_runs.units import number, spread

from fedplug_lab.canvas import (
    GLOBAL_COLOUR,
    HALF,
    PERSONAL_COLOUR,
    WIDE,
    Curve,
    Rows,
    curve_of,
    curves_of,
    draw_band,
    draw_groups,
    draw_line,
    last_of,
    over_rounds,
    round_axis,
    rounds_of,
    tint,
)
from fedplug_lab.drawing import Chart, Drawing
from fedplug_lab.panel import Panel

_FIGURE_COLOURS = ("#3b7dd8", "#e39a2d", "#3fa672")
ByClient = Callable[[Row], Mapping[int, float]]


def _of_clients(row: Row) -> Mapping[int, float]:
    return row.of_clients


def _own(row: Row) -> Mapping[int, float]:
    return row.of_personal


def _public(row: Row) -> Mapping[int, float]:
    return row.of_personal_public


def accuracy_chart(rows: Rows) -> Chart | None:
    """One panel for the global model; two, by test data, where clients or groups have models. None without numbers."""
    if any(row.of_groups for row in rows):
        return _of_groups(rows)
    rounds, accuracy = rounds_of(rows), curve_of(rows, lambda row: row.leading)
    low, _, high = spreads(rows, _of_clients)
    personal = [spreads(rows, read) for read in (_public, _own)]
    has_personal = any(np.isfinite(mean).any() for _, mean, _ in personal)
    if not (np.isfinite(accuracy).any() or np.isfinite(low).any() or has_personal):
        return None
    drawing = Drawing(WIDE if has_personal else HALF, 3.0, 2 if has_personal else 1)
    panels = drawing.panels
    legend = [("global model, common test set", GLOBAL_COLOUR, "line")]
    if has_personal:
        legend = [("global model", GLOBAL_COLOUR, "line")]
        panels[0].title = "common test set, a share for each client"
        panels[1].title = "test data with each client's own class mix"
        draw_line(panels[1], rounds, spreads(rows, _of_clients)[1], GLOBAL_COLOUR)
        for panel, curves in zip(panels, personal, strict=True):
            _draw_personal(panel, rounds, curves)
        legend.append(("personal models, mean over clients", PERSONAL_COLOUR, "line"))
        legend.append(("personal models, lowest to highest", tint(PERSONAL_COLOUR), "area"))
    elif np.isfinite(low).any():
        draw_band(panels[0], rounds, low, high)
        legend.append(("clients on their own class mix, lowest to highest", tint(GLOBAL_COLOUR), "area"))
    if draw_groups(panels[0], rows, lambda result: result.leading(rows[-1].leads)):
        legend.append(("each group's model", GLOBAL_COLOUR, "thin"))
    draw_line(panels[0], rounds, accuracy, GLOBAL_COLOUR)
    _name_axis(panels[0], rows[-1].leads)
    for panel in panels:
        round_axis(panel, rounds)
    alt = _global_in_words(rows, rounds, accuracy) + (_personal_in_words(rows) if has_personal else "")
    return _chart(rows, "", alt, legend, drawing, has_personal)


def _name_axis(panel: Panel, leads: Figure) -> None:
    """Accuracy goes from 0 to 1, and other figures as far as they do."""
    if leads == ACCURACY:
        panel.y.low, panel.y.high = 0.0, 1.0
        panel.y_label = "accuracy (share of test examples)"
    else:
        panel.y_label = f"{leads.name} ({leads.unit})" if leads.unit else leads.name


def _chart(
    rows: Rows, note: str, alt: str, legend: Sequence[tuple[str, str, str]], drawing: Drawing, wide: bool
) -> Chart:
    leads = rows[-1].leads
    if leads == ACCURACY:
        return drawing.chart("accuracy", "Accuracy", alt, legend, note, wide)
    said = f"{note} {leads.better.capitalize()} is better.".strip()
    return drawing.chart("leading", leads.name, alt, legend, said, wide)


def _of_groups(rows: Rows) -> Chart:
    """The models of groups: on test data like their clients' own, for which they are made, and on all classes."""
    drawing = Drawing(WIDE, 3.0, 2)
    own, public = drawing.panels
    own.title, public.title = "test data like each group's clients have", "common test set, all classes"
    rounds = rounds_of(rows)
    for curve in curves_of(rows, lambda row: dict(row.of_groups)).values():
        draw_line(own, rounds, curve, GLOBAL_COLOUR, thin=True)
    mean = curve_of(rows, lambda row: math.fsum(g.values()) / len(g) if (g := row.of_groups) else None)
    draw_line(own, rounds, mean, GLOBAL_COLOUR)
    legend = [("mean over groups", GLOBAL_COLOUR, "line"), ("each group's model", GLOBAL_COLOUR, "thin")]
    draw_groups(public, rows, lambda result: result.leading(rows[-1].leads))
    accuracy = curve_of(rows, lambda row: row.leading)
    draw_line(public, rounds, accuracy, GLOBAL_COLOUR)
    if personal := [curves for read in (_own, _public) if np.isfinite((curves := spreads(rows, read))[1]).any()]:
        for panel, curves in zip((own, public), personal, strict=False):
            _draw_personal(panel, rounds, curves)
        legend.append(("personal models, mean over clients", PERSONAL_COLOUR, "line"))
        legend.append(("personal models, lowest to highest", tint(PERSONAL_COLOUR), "area"))
    _name_axis(own, rows[-1].leads)
    for panel in drawing.panels:
        round_axis(panel, rounds)
    last = next(row for row in reversed(rows) if row.of_groups)
    alt = (f"On test data like each group's clients have, the models' {last.leads.name} after round {last.round} is "
           f"{in_groups(last)}; on the common test set {last_of(accuracy)} on average.")  # fmt: skip
    if personal:
        alt += _personal_in_words(rows)
    note = "A group's model is made for the classes of its clients; the common test set has others too."
    return _chart(rows, note, alt, legend, drawing, True)


def figures_chart(rows: Rows) -> Chart | None:
    """The figures of the task other than the leading one; None where there are none."""
    leads = rows[-1].leads.name
    curves = curves_of(rows, lambda row: {title: value for title, value in row.judged.items()
                                       if title != leads and value is not None})
    known = np.concatenate([np.zeros(0), *curves.values()])
    known = known[np.isfinite(known)]
    if not known.size:
        return None
    drawing, panel, rounds = over_rounds(rows)
    for i, curve in enumerate(curves.values()):
        draw_line(panel, rounds, curve, _colour(i), thin=i > 0)
    if known.min() >= 0 and known.max() <= 1:
        panel.y.low, panel.y.high = 0.0, 1.0
    panel.y_label = "figures of the task"
    said = ", ".join(f"{title} {number(curve[-1])}" for title, curve in curves.items())
    alt = f"After the last round, over the common test set: {said}."
    legend = [(title, _colour(i), "thin" if i else "line") for i, title in enumerate(curves)]
    return drawing.chart("task", "Figures of the task", alt, legend)


def _colour(index: int) -> str:
    return (GLOBAL_COLOUR, *_FIGURE_COLOURS)[index % (1 + len(_FIGURE_COLOURS))]


def spreads(rows: Rows, read: ByClient) -> tuple[Curve, Curve, Curve]:
    """Lowest, mean and highest over clients of each round's mapping; NaN where it has no number."""
    found = [spread(read(row)) or (math.nan,) * 3 for row in rows]
    low, mean, high = np.array(found, np.float64).reshape(-1, 3).T
    return low, mean, high


def _draw_personal(panel: Panel, rounds: Curve, curves: tuple[Curve, Curve, Curve]) -> None:
    low, mean, high = curves
    draw_band(panel, rounds, low, high, PERSONAL_COLOUR)
    draw_line(panel, rounds, mean, PERSONAL_COLOUR)


def _global_in_words(rows: Rows, rounds: Curve, figure: Curve) -> str:
    leads, known = rows[-1].leads, np.flatnonzero(np.isfinite(figure))
    if not known.size:
        return f"No {leads.name} was measured for the global model."
    first, best, final = known[0], [*rows].index(best_of(rows)), known[-1]
    name = f"{leads.name[:1].upper()}{leads.name[1:]}"
    alt = f"{name} of the global model is {number(figure[first])} after round {rounds[first]:.0f}"
    if known.size > 1:
        alt += (f" and {number(figure[final])} after round {rounds[final]:.0f}; the best is {number(figure[best])} "
                f"after round {rounds[best]:.0f}")  # fmt: skip
    return f"{alt}."


def _personal_in_words(rows: Rows) -> str:
    said = ""
    for read, where in ((_own, "on their own test data"), (_public, "on the common test set")):
        if known := [found for row in rows if (found := spread(read(row)))]:
            low, mean, high = known[-1]
            said += f"; {where} {number(mean)} on average, {number(low)} to {number(high)}"
    return f" The personal models reach in the end{said.removeprefix(';')}."
