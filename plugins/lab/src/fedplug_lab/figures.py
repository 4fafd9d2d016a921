"""The figures of the report: each one an inline SVG that follows the page's light or dark colours.

Legends are made in HTML, where they wrap and can be read aloud; so is the caption, which says in words what the picture
shows. How things are drawn is in `fedplug_lab.canvas`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from fedplug.api.data import ACCURACY, Figure
from fedplug_ledger.verdict_words import BRIEF
from fedplug_runs.folder import Distribution
from fedplug_runs.row_text import best_of, in_groups
from fedplug_runs.rows import Row, Sent, Traffic
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
from fedplug_lab.panel import INK, Panel
from fedplug_lab.sections import sections_of_plugins
from fedplug_lab.words import capital

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
    row = next(row for row in reversed(rows) if row.of_groups)
    alt = (f"On test data like each group's clients have, the models' {row.leads.name} after round {row.round} is "
           f"{in_groups(row)}; on the common test set {number(last(accuracy))} on average.")  # fmt: skip
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
    alt = f"{capital(leads.name)} of the global model is {number(figure[first])} after round {rounds[first]:.0f}"
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
