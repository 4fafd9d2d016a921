"""What only some recipes have in their report: pictures that components made, groups of clients, assessments.

The pictures' format is in `fedplug_lab.pictures`. Histograms are drawn as one outline a panel, box plots from five
numbers a box; the caption says in words what each panel shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import ACCURACY
from fedplug_runs import units

from fedplug_lab.canvas import (
    GLOBAL_COLOUR,
    HALF,
    WIDE,
    Rows,
    log_axis,
)
from fedplug_lab.drawing import Chart, Drawing
from fedplug_lab.panel import INK, MUTED, Panel
from fedplug_lab.tables import render, table, text

if TYPE_CHECKING:
    from numpy.typing import NDArray

DRAWN, PANELS, IN_WORDS = 24, 24, 6
"""How many pictures the page shows, how many panels of each, and how many of those the caption describes."""

# ---- pictures


def picture_charts(pictures: Mapping[str, Mapping[str, Any]]) -> list[Chart]:
    """A chart for each picture, in order of name; at most `DRAWN`.

    Args:
        pictures: name -> picture, as `fedplug_lab.pictures.Pictures.kept` has them.
    """
    return [_chart(f"picture-{i}", pictures[name]) for i, name in enumerate(sorted(pictures)[:DRAWN])]


def _chart(key: str, picture: Mapping[str, Any]) -> Chart:
    panels = picture["panels"][:PANELS]
    boxes = picture["kind"] == "box"
    wide = len(panels) > 1 or (boxes and len(panels[0]["labels"]) > 8)
    columns = min(len(panels), 2 if boxes else 4)
    rows = math.ceil(len(panels) / columns)
    height = 2.9 if rows == 1 else 0.4 + 2.1 * rows
    drawing = Drawing(WIDE if wide else HALF, height, len(panels), columns, shared=False)
    if boxes:
        for canvas, panel in zip(drawing.panels, panels, strict=True):
            _draw_boxes(canvas, panel)
        legend = [("middle half of the values", f"{GLOBAL_COLOUR}55", "area"), ("median", "var(--ink)", "line"),
                  ("smallest to largest", "var(--muted)", "thin")]  # fmt: skip
        drawing.y_label = picture["y_label"]
        said = [_boxes_in_words(panel) for panel in panels]
    else:
        for canvas, panel in zip(drawing.panels, panels, strict=True):
            _draw_histogram(canvas, panel, picture["log_y"])
        legend = [("number of values", GLOBAL_COLOUR, "area")]
        if any(panel["mark"] is not None for panel in panels):
            legend.append((picture["mark_label"], "var(--ink)", "dash"))
        drawing.x_label = picture["x_label"]
        said = [_histogram_in_words(panel, picture["mark_label"]) for panel in panels]
    when = f"round {picture['round']}" if picture["round"] > 0 else "the set-up"
    note = " ".join(filter(None, [picture["note"], f"From {picture['party']}, in {when}."]))
    if more := len(said) - IN_WORDS:
        said = [*said[:IN_WORDS], f"{more} more panels are drawn."] if more > 0 else said
    if more := len(picture["panels"]) - len(panels):
        note += f" {more} more panels are in figures.json."
    alt = " ".join(said)
    return drawing.chart(key, picture["title"], alt, legend, note, wide)


def _draw_histogram(canvas: Panel, panel: Mapping[str, Any], log_y: bool) -> None:
    edges, counts = np.array(panel["edges"], np.float64), np.array(panel["counts"], np.float64)
    highest = float(counts.max())
    if log_y and highest > 0:
        # A bin with one value must be seen, so the floor lies below 1.
        log_axis(canvas.y, 0.75, max(highest, 2.0))
        canvas.steps(edges, np.full(len(counts), 0.1), np.maximum(counts, 0.1), GLOBAL_COLOUR)
    else:
        canvas.steps(edges, np.zeros(len(counts)), counts, GLOBAL_COLOUR)
        canvas.y.low, canvas.y.high = 0.0, min(1.08 * highest, 1e300) or 1.0
    if panel["mark"] is not None:
        canvas.upright(panel["mark"], INK)
    canvas.x.most, canvas.x.write = 4, _three_digits
    canvas.title = panel["title"][:40]


def _draw_boxes(canvas: Panel, panel: Mapping[str, Any]) -> None:
    boxes = np.array(panel["boxes"], np.float64)
    positive = boxes[boxes > 0]
    if panel["log_y"] and positive.size:
        # On this scale there is no zero: what is not above it is drawn at the bottom.
        floor = max(float(positive.min()), float(positive.max()) * 1e-12)
        boxes = np.maximum(boxes, floor)
        log_axis(canvas.y, floor, float(positive.max()))
    else:
        canvas.y.most, canvas.y.write = 4, _three_digits
    labels = [label[:18] for label in panel["labels"]]
    # Each kind of mark is one path, whatever the number of boxes.
    x, gap = np.arange(1, len(labels) + 1), np.full(len(labels), np.nan)
    low, q1, median, q3, high = boxes.T
    for ends in ((low, q1), (q3, high)):
        canvas.line(np.column_stack([x, x, x]).ravel(), np.column_stack([*ends, gap]).ravel(), MUTED, 0.9)
    canvas.boxes(x - 0.3, x + 0.3, q1, q3, f"{GLOBAL_COLOUR}55", GLOBAL_COLOUR)
    middle = np.column_stack([median, median, gap]).ravel()
    canvas.line(np.column_stack([x - 0.3, x + 0.3, x]).ravel(), middle, INK, 1.4)
    canvas.x.low, canvas.x.high = 0.3, len(labels) + 0.7
    every = math.ceil(len(labels) / 30)
    shown = labels[::every]
    canvas.x.ticks = list(zip(map(float, range(1, len(labels) + 1, every)), shown, strict=True))
    canvas.x.turned = len(shown) * max(map(len, shown)) > 40
    canvas.title = panel["title"][:60]


def _three_digits(value: float) -> str:
    """Of a scale that has few numbers anyway."""
    return f"{value:.3g}"


def _histogram_in_words(panel: Mapping[str, Any], mark_label: str) -> str:
    edges, counts = np.array(panel["edges"]), np.array(panel["counts"])
    total = counts.sum()
    title = f"{panel['title']}: " if panel["title"] else "All: "
    if not total:
        return f"{title}no values."
    below = np.concatenate([[0.0], np.cumsum(counts / total)])
    median = edges[1:][np.searchsorted(below[1:-1], 0.5)]
    said = f"{title}half of the {units.number(total, 0)} values lie below {median:.3g}"
    if panel["mark"] is not None:
        above = 1 - float(np.interp(panel["mark"], edges, below))
        said += f", about {units.percent(above)} above {mark_label} {panel['mark']:.3g}"
    return f"{said}."


def _boxes_in_words(panel: Mapping[str, Any]) -> str:
    boxes: NDArray[np.float64] = np.array(panel["boxes"])
    medians = boxes[:, 2]
    low, high = int(medians.argmin()), int(medians.argmax())
    title = f"{panel['title']}: " if panel["title"] else "All: "
    if len(medians) == 1:
        ends = f"the median of {panel['labels'][0]} is {medians[0]:.3g}"
    else:
        ends = (f"medians from {medians[low]:.3g} ({panel['labels'][low]}) to {medians[high]:.3g} "
                f"({panel['labels'][high]})")  # fmt: skip
    zeros = " Values of 0 and below are drawn at the bottom." if panel["log_y"] and (boxes <= 0).any() else ""
    return f"{title}{ends}; all values lie between {boxes[:, 0].min():.3g} and {boxes[:, 4].max():.3g}.{zeros}"


# ---- tables


def groups_table(rows: Rows) -> str:
    """Each group of the last round that had several: its clients, and how its model does."""
    known = [row for row in rows if len(row.group_members) > 1]
    if not known:
        return ""
    row, body = known[-1], []
    own, leads = row.of_groups, row.leads
    for group, ids in row.group_members.items():
        measured = [each.groups[group].leading(leads) for each in rows if group in each.groups]
        result, best = row.groups.get(group), max if leads.better == "higher" else min
        body.append([
            text(group), str(len(ids)), text(", ".join(map(str, ids))), units.number(own.get(group)),
            *(units.number(value) for value in ((result.leading(leads), result.loss) if result else (None, None))),
            units.number(best(units.finite(measured), default=None)),
        ])  # fmt: skip
    changes = sum(before.group_members != after.group_members for before, after in pairwise(known))
    caption = (
        f"Groups of clients with a model each, as in round {row.round}. A model is judged on test data like "
        "that of its clients. The common test set has classes that these clients may never have seen. "
    )
    caption += f"They changed {changes} times." if changes > 1 else "They changed once." if changes else ""
    title = "on the common test set" if leads == ACCURACY else f"{leads.name} on the common test set"
    header = ["group", "size", "clients", leads.name, title, "loss there", "best there"]
    return table(caption.rstrip(), header, body, numeric=3)


def assessments_table(assessments: Mapping[str, Mapping[str, float]]) -> str:
    """What components state of the run with knowledge that no party has: component -> fact -> value."""
    body = [
        [text(component), text(fact.replace("_", " ")), render(value)]
        for component, facts in assessments.items() for fact, value in facts.items()
    ]  # fmt: skip
    caption = "Assessments, made after the run with knowledge that no party of the protocol has."
    return table(caption, ["component", "fact", "value"], body, numeric=2)
