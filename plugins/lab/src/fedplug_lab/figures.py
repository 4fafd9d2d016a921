"""The figures of the report: each one an inline SVG that follows the page's light or dark colours.

Legends are made in HTML, where they wrap and can be read aloud; so is the caption, which says in words what the picture
shows. How things are drawn is in `fedplug_lab.canvas`. Pictures that components made (`fedplug_lab.pictures`) come
last: of histograms one outline a panel, of box plots five numbers a box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import ACCURACY, Figure
from fedplug_ledger.verdict_words import BRIEF
from fedplug_runs import units
from fedplug_runs.folder import Distribution
from fedplug_runs.row_text import best_of, in_groups
from fedplug_runs.rows import Sent, Traffic
from fedplug_runs.units import last, number, percent, size, spread

from fedplug_lab.canvas import (
    GLOBAL_COLOUR,
    HALF,
    PERSONAL_COLOUR,
    PHASE_COLOURS,
    TRAIN_COLOUR,
    WIDE,
    ZONE_COLOURS,
    Curve,
    Rows,
    curve_of,
    curves_of,
    draw_band,
    draw_groups,
    draw_line,
    draw_stack,
    log_axis,
    over_rounds,
    round_axis,
    rounds_of,
    time_scale,
    tint,
)
from fedplug_lab.drawing import Chart, Drawing
from fedplug_lab.panel import INK, MUTED, Panel
from fedplug_lab.sections import sections_of_plugins
from fedplug_lab.words import capital

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PARTY_COLOURS = ("#8661c1", "#e39a2d", "#3b7dd8", "#2f9e77", "#c2557f")
DIRECTIONS: dict[str, tuple[str, Callable[[Traffic], Sent]]] = {
    "up": ("clients to server", lambda bytes: bytes.up),
    "down": ("server to clients", lambda bytes: bytes.down),
    "key_server": ("to and from the key server", lambda bytes: bytes.key_server),
}


def charts(rows: Rows, distribution: Distribution | None) -> list[Chart]:
    """Every figure for which there is data; those of plugins follow that of the seconds.

    Args:
        rows: of the metrics; any number may be missing or not finite.
        distribution: who holds what; None where that is not known.

    Returns:
        The charts in the order of the page.
    """
    makers: list[Callable[[Rows], Chart | None]] = [
        accuracy_chart, figures_chart, _loss, _zones, _seconds,
        *(section.chart for section in sections_of_plugins()), _bytes, _epsilon, _churn,
    ]  # fmt: skip
    drawn = [chart for make in makers if rows and (chart := make(rows)) is not None]
    if distribution and distribution.clients:
        # Alone in its row, the picture of the partition may as well use all of it.
        alone = sum(not chart.wide for chart in drawn) % 2 == 0
        drawn.append(_partition(distribution, alone))
    return drawn


def _loss(rows: Rows) -> Chart | None:
    test, train = curve_of(rows, lambda row: row.loss), curve_of(rows, lambda row: row.train_loss)
    both = np.concatenate([test, train])
    finite = both[np.isfinite(both)]
    if not finite.size:
        return None
    drawing, panel, rounds = over_rounds(rows)
    draw_groups(panel, rows, lambda result: result.loss)
    draw_line(panel, rounds, test, GLOBAL_COLOUR)
    draw_line(panel, rounds, train, TRAIN_COLOUR, dashed=True)
    whose = "mean over groups" if any(len(row.groups) > 1 for row in rows) else "global model"
    legend = [(f"{whose}, common test set", GLOBAL_COLOUR, "line")]
    legend.append(("training, mean over clients", TRAIN_COLOUR, "dash"))
    note = ""
    if finite.min() > 0 and finite.max() > 50 * finite.min():
        log_axis(panel.y, float(finite.min()), float(finite.max()))
        note = "Logarithmic scale."
    elif finite.min() >= 0:
        panel.y.from_zero(float(finite.max()))
    # A round that reports neither None nor a number has diverged; it must not look like a gap in the record.
    diverged = [
        row.round for row in rows
        if any(loss is not None and not math.isfinite(loss) for loss in (row.loss, row.train_loss))
    ]  # fmt: skip
    if diverged:
        panel.crosses(diverged, ZONE_COLOURS["clear"])
        legend.append(("not finite: diverged", ZONE_COLOURS["clear"], "cross"))
    panel.y_label = "loss (nats)"
    ends = f"{number(last(test))} on the test set and {number(last(train))} in training"
    alt = f"The last loss is {ends}."
    if diverged:
        alt = f"Loss was not finite in {len(diverged)} of {len(rows)} rounds; the last finite one is {ends}."
    return drawing.chart("loss", "Loss", alt, legend, note)


def _zones(rows: Rows) -> Chart | None:
    shares = zone_shares(rows)
    if not shares:
        return None
    drawing, panel, rounds = over_rounds(rows)
    legend = draw_stack(panel, rounds, {zone: 100 * share for zone, share in shares.items()}, ZONE_COLOURS)
    panel.y.low, panel.y.high = 0.0, 100
    panel.y_label = "share of the model (%)"
    said = ", ".join(f"{zone} {percent(last(share))}" for zone, share in shares.items())
    alt = f"Zone shares in the last round: {said}."
    return drawing.chart("zones", "Zone shares", alt, legend, "Mean over clients.")


def zone_shares(rows: Rows) -> dict[str, Curve]:
    """Zone -> its share of the model in each round, of zones that are not empty throughout."""
    return _not_empty(curves_of(rows, lambda row: row.zones))


def _not_empty(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    return {name: curve for name, curve in curves.items() if np.nan_to_num(curve).any()}


def _seconds(rows: Rows) -> Chart | None:
    curves = _not_empty(curves_of(rows, lambda row: row.seconds))
    wall = curve_of(rows, lambda row: row.wall_seconds)
    if not curves:
        return None
    drawing, panel, rounds = over_rounds(rows)
    highest = float(max(np.nansum(list(curves.values()), axis=0).max(), np.nan_to_num(wall).max()))
    scale, unit = time_scale(highest)
    legend = list(draw_stack(panel, rounds, {phase: scale * curve for phase, curve in curves.items()}, PHASE_COLOURS))
    if np.isfinite(wall).any():
        draw_line(panel, rounds, scale * wall, INK, thin=True)
        legend.append(("wall clock", "var(--ink)", "line"))
    panel.y.low = 0.0
    panel.y_label = f"time per round ({unit})"
    sums = {phase: float(np.nansum(curve)) for phase, curve in curves.items()}
    ordered = sorted(sums, key=lambda phase: -sums[phase])[:3]
    shares = ", ".join(f"{phase} {percent(sums[phase] / sum(sums.values()))}" for phase in ordered)
    alt = f"Largest shares of the working time over the run: {shares}."
    note = "Phases are summed over parties, so with several processes they add up to more than the wall clock."
    return drawing.chart("seconds", "Time per phase", alt, legend, note)


def _bytes(rows: Rows) -> Chart | None:
    totals = curves_of(rows, lambda row: {way: of(row.bytes).total for way, (_, of) in DIRECTIONS.items()})
    present = {way: both for way, both in DIRECTIONS.items() if totals[way].any()}
    if not present:
        return None
    drawing = Drawing(WIDE, 2.9, len(present))
    rounds = rounds_of(rows)
    highest = max(float(curve.max()) for curve in totals.values())
    scale, unit = next((s, u) for s, u in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")) if highest >= s or s == 1)
    legend: dict[str, tuple[str, str, str]] = {}
    for panel, (text, of) in zip(drawing.panels, present.values(), strict=True):
        curves = curves_of(rows, lambda row, of=of: of(row.bytes).zones)  # type: ignore[misc]
        for entry in draw_stack(panel, rounds, {zone: curve / scale for zone, curve in curves.items()}, ZONE_COLOURS):
            legend[entry[0]] = entry
        panel.title = text
        round_axis(panel, rounds)
    drawing.panels[0].y.low = 0.0
    drawing.panels[0].y_label = f"bytes per round ({unit})"
    sums = [f"{text} {size(totals[way].sum())}" for way, (text, _) in present.items()]
    alt = f"Bytes over the run: {', '.join(sums)}."
    note = "All clients together; the panels share one scale. Other: questions, ballots, headers, whole models."
    return drawing.chart("bytes", "Bytes per zone and direction", alt, legend.values(), note, wide=True)


def _epsilon(rows: Rows) -> Chart | None:
    curves = {
        BRIEF.get(party, party): curve for party, curve in curves_of(rows, lambda row: row.view_epsilons).items()
        if np.isfinite(curve).any()
    }  # fmt: skip
    if not any(np.nan_to_num(curve).any() for curve in curves.values()):
        return None
    drawing, panel, rounds = over_rounds(rows, 2.6)
    # Parties that have spent the same are one line.
    alike: dict[bytes, list[str]] = {}
    for who, curve in curves.items():
        alike.setdefault(curve.tobytes(), []).append(who)
    legend = []
    for place, (key, names) in enumerate(alike.items()):
        draw_line(panel, rounds, np.frombuffer(key), _PARTY_COLOURS[place])
        legend.append((f"toward {', '.join(names)}", _PARTY_COLOURS[place], "line"))
    panel.y.from_zero(max(float(np.max(curve[np.isfinite(curve)])) for curve in curves.values()))
    panel.y_label = "epsilon"
    without = [BRIEF.get(party, party) for party in rows[-1].unprotected]
    note = f"No guarantee, and so no line: {', '.join(without)}." if without else "What it rests on is in the verdict."
    said = ", ".join(f"{BRIEF.get(who, who)} {number(spent)}" for who, spent in rows[-1].view_epsilons.items())
    alt = f"Epsilon after the last round: {said or 'none is stated'}."
    return drawing.chart("epsilon", "Epsilon spent, by party", alt, legend, note)


def _churn(rows: Rows) -> Chart | None:
    churn = curve_of(rows, lambda row: row.mask_churn)
    if not np.isfinite(churn).any() or not any(row.sealed_share for row in rows):  # else it is 0 of nothing
        return None
    drawing, panel, rounds = over_rounds(rows, 2.6)
    draw_line(panel, rounds, 100 * churn, ZONE_COLOURS["encrypted"])
    panel.y.from_zero(float(np.nanmax(100 * churn)))
    panel.y_label = "share of the mask (%)"
    alt = f"In the last round {percent(last(churn))} of the mask was new."
    note = "Share of the encrypted zone that changed since the round before."
    return drawing.chart("churn", "Mask churn", alt, (), note)


def _partition(distribution: Distribution, wide: bool) -> Chart:
    """Heat map of examples per client and class, with a chart of examples per client."""
    classes, clients = distribution.classes, distribution.clients
    width = len(classes)
    counts = np.array(list(clients.values()), np.float64)
    tall = min(max(2.6, 0.9 + 0.17 * len(clients)), 9.0)
    drawing = Drawing(WIDE if wide else HALF, tall, 2, ratios=(4, 1))
    grid, bars = drawing.panels
    grid.x.low, grid.x.high = -0.5, width - 0.5
    grid.y.low, grid.y.high = len(clients) - 0.5, -0.5
    # One colour whose opacity grows with the count: zero is the page's own colour, light or dark.
    red, green, blue = (int(GLOBAL_COLOUR[i : i + 2], 16) for i in (1, 3, 5))
    grid.cells(0.85 * np.sqrt(counts / max(counts.max(), 1)), (red, green, blue))
    if counts.size <= 260:
        grid.notes([(j, i, f"{count:.0f}") for (i, j), count in np.ndenumerate(counts) if count])
    step, every = math.ceil(len(clients) / 30), math.ceil(width / (40 if wide else 20))
    grid.y.ticks = [(place, str(name)) for place, name in enumerate(clients)][::step]
    shown = [name[:18] for name in classes[::every]]
    grid.x.ticks = list(zip(map(float, range(0, width, every)), shown, strict=True))
    grid.x.turned = max(map(len, classes[::every])) * len(classes[::every]) > (110 if wide else 45)
    grid.x_label, grid.y_label, bars.x_label = "class", "client", "examples"
    sums = counts.sum(axis=1)
    bars.lying_bars(np.arange(len(clients)), sums, 0.7, GLOBAL_COLOUR)
    bars.x.low, bars.x.most = 0.0, 2
    grid.framed = bars.framed = False
    held = (counts > 0).sum(axis=1)
    alt = (f"{len(clients)} clients hold {sums.min():.0f} to {sums.max():.0f} training examples each, "
           f"of {held.min()} to {held.max()} of {width} classes.")  # fmt: skip
    note = "Training examples per client and class; stronger is more (square-root scale)."
    return drawing.chart("partition", "Who holds what", alt, (), note, wide)


_FIGURE_COLOURS = ("#3b7dd8", "#e39a2d", "#3fa672")


def accuracy_chart(rows: Rows) -> Chart | None:
    """One panel for the global model; two, by test data, where clients or groups have models. None without numbers."""
    if any(row.of_groups for row in rows):
        return _of_groups(rows)
    rounds, accuracy = rounds_of(rows), curve_of(rows, lambda row: row.leading)
    low, mean, high = spreads([row.of_clients for row in rows])
    personal = [spreads([row.of_personal_public for row in rows]), spreads([row.of_personal for row in rows])]
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
        draw_line(panels[1], rounds, mean, GLOBAL_COLOUR)
        legend += _draw_personal(panels, rounds, personal)
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
    personal = [spreads([row.of_personal for row in rows]), spreads([row.of_personal_public for row in rows])]
    has_personal = any(np.isfinite(mean).any() for _, mean, _ in personal)
    if has_personal:
        legend += _draw_personal(drawing.panels, rounds, personal)
    _name_axis(own, rows[-1].leads)
    for panel in drawing.panels:
        round_axis(panel, rounds)
    row = next(row for row in reversed(rows) if row.of_groups)
    alt = (f"On test data like each group's clients have, the models' {row.leads.name} after round {row.round} is "
           f"{in_groups(row)}; on the common test set {number(last(accuracy))} on average.")  # fmt: skip
    if has_personal:
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


def spreads(by_round: Sequence[Mapping[int, float]]) -> tuple[Curve, Curve, Curve]:
    """Lowest, mean and highest over clients of each round's mapping; NaN where it has no number."""
    found = [spread(by_client) or (math.nan,) * 3 for by_client in by_round]
    low, mean, high = np.array(found, np.float64).reshape(-1, 3).T
    return low, mean, high


def _draw_personal(
    panels: Sequence[Panel], rounds: Curve, personal: Sequence[tuple[Curve, Curve, Curve]]
) -> list[tuple[str, str, str]]:
    """Draws the clients' own models, in a panel for each kind of test data; gives their legend."""
    for panel, (low, mean, high) in zip(panels, personal, strict=True):
        draw_band(panel, rounds, low, high, PERSONAL_COLOUR)
        draw_line(panel, rounds, mean, PERSONAL_COLOUR)
    return [("personal models, mean over clients", PERSONAL_COLOUR, "line"),
            ("personal models, lowest to highest", tint(PERSONAL_COLOUR), "area")]  # fmt: skip


def _global_in_words(rows: Rows, rounds: Curve, figure: Curve) -> str:
    leads, known = rows[-1].leads, np.flatnonzero(np.isfinite(figure))
    if not known.size:
        return f"No {leads.name} was measured for the global model."
    first, best, final = known[0], [*rows].index(best_of(rows)), known[-1]
    alt = f"{capital(leads.name)} of the global model is {number(figure[first])} after round {rounds[first]:.0f}"
    if known.size > 1:
        alt += (f" and {number(figure[final])} after round {rounds[final]:.0f}; the best is {number(figure[best])} "
                f"after round {rounds[best]:.0f}")  # fmt: skip
    return f"{alt}."


def _personal_in_words(rows: Rows) -> str:
    said = ""
    own, public = [row.of_personal for row in rows], [row.of_personal_public for row in rows]
    for by_round, where in ((own, "on their own test data"), (public, "on the common test set")):
        if known := [found for by_client in by_round if (found := spread(by_client))]:
            low, mean, high = known[-1]
            said += f"; {where} {number(mean)} on average, {number(low)} to {number(high)}"
    return f" The personal models reach in the end{said.removeprefix(';')}."


DRAWN, PANELS, IN_WORDS = 24, 24, 6
"""How many pictures the page shows, how many panels of each, and how many of those the caption describes."""

# ---- pictures


def picture_charts(pictures: Mapping[str, Mapping[str, Any]]) -> list[Chart]:
    """A chart for each picture, in order of name; at most `DRAWN`.

    Args:
        pictures: name -> picture, as `fedplug_lab.pictures.Pictures.kept` has them.
    """
    return [_picture_chart(f"picture-{i}", pictures[name]) for i, name in enumerate(sorted(pictures)[:DRAWN])]


def _picture_chart(key: str, picture: Mapping[str, Any]) -> Chart:
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
    canvas.x.most, canvas.x.write = 4, "{:.3g}".format
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
        canvas.y.most, canvas.y.write = 4, "{:.3g}".format
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
