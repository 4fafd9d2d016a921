"""The figures of the report: each one an inline SVG that follows the page's light or dark colours.

Legends are made in HTML, where they wrap and can be read aloud; so is the caption, which says in words what the picture
shows. How things are drawn is in `fedplug_lab.canvas`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
from fedplug.api.rows import Row, Sent, Traffic
from fedplug.api.units import last, number, percent, size
from fedplug.runs.summary import Distribution

from fedplug_lab.accuracy import accuracy_chart, figures_chart
from fedplug_lab.canvas import (
    GLOBAL_COLOUR,
    HALF,
    INK,
    PHASE_COLOURS,
    STYLE,
    TRAIN_COLOUR,
    WIDE,
    ZONE_COLOURS,
    Chart,
    Curve,
    Rows,
    curve_of,
    curves_of,
    draw_groups,
    draw_line,
    draw_stack,
    last_of,
    log_axis,
    new_figure,
    round_axis,
    rounds_of,
    to_svg,
)
from fedplug_lab.clock_figures import chart as clock_chart

DIRECTIONS: dict[str, tuple[str, Callable[[Traffic], Sent]]] = {
    "up": ("clients to server", lambda bytes: bytes.up),
    "down": ("server to clients", lambda bytes: bytes.down),
    "key_server": ("to and from the key server", lambda bytes: bytes.key_server),
}


def charts(rows: Rows, distribution: Distribution | None) -> list[Chart]:
    """Every figure for which there is data.

    Args:
        rows: of the metrics; any number may be missing or not finite.
        distribution: who holds what; None where that is not known.

    Returns:
        The charts in the order of the page.
    """
    import matplotlib

    drawn: list[Chart] = []
    with matplotlib.rc_context(STYLE):
        makers: list[Callable[[Rows], Chart | None]] = [
            accuracy_chart, figures_chart, _loss, _zones, _seconds, clock_chart, _bytes, _epsilon, _churn,
        ]  # fmt: skip
        drawn += [chart for make in makers if rows and (chart := make(rows)) is not None]
        if distribution and distribution.clients:
            # Alone in its row, the picture of the partition may as well use all of it.
            alone = sum(not chart.wide for chart in drawn) % 2 == 0
            drawn.append(_partition(distribution, alone))
    return drawn


def _loss(rows: Rows) -> Chart | None:
    test, train = curve_of(rows, lambda row: row.loss), curve_of(rows, lambda row: row.train_loss)
    rounds = rounds_of(rows)
    both = np.concatenate([test, train])
    finite = both[np.isfinite(both)]
    if not finite.size:
        return None
    figure, (ax,) = new_figure(HALF, 3.0)
    draw_groups(ax, rows, lambda result: result.loss)
    draw_line(ax, rounds, test, GLOBAL_COLOUR)
    draw_line(ax, rounds, train, TRAIN_COLOUR, dashed=True)
    legend = [("global model, public test set", GLOBAL_COLOUR, "line")]
    legend.append(("training, mean over clients", TRAIN_COLOUR, "dash"))
    note = ""
    if finite.min() > 0 and finite.max() > 50 * finite.min():
        log_axis(ax, float(finite.min()), float(finite.max()))
        note = "Logarithmic scale."
    elif finite.min() >= 0:
        ax.set_ylim(0, 1.08 * float(finite.max()) or 1)
    # A round that reports neither None nor a number has diverged; it must not look like a gap in the record.
    diverged = [
        row.round for row in rows
        if any(loss is not None and not math.isfinite(loss) for loss in (row.loss, row.train_loss))
    ]  # fmt: skip
    if diverged:
        ax.plot(diverged, [0.03] * len(diverged), "x", color=ZONE_COLOURS["clear"], transform=ax.get_xaxis_transform())
        legend.append(("not finite: diverged", ZONE_COLOURS["clear"], "cross"))
    ax.set_ylabel("loss (nats)")
    round_axis(ax, rounds)
    ends = f"{last_of(test)} on the test set and {last_of(train)} in training"
    alt = f"The last loss is {ends}."
    if diverged:
        alt = f"Loss was not finite in {len(diverged)} of {len(rows)} rounds; the last finite one is {ends}."
    return Chart("loss", "Loss", note, alt, tuple(legend), to_svg(figure, "loss", alt))


def _zones(rows: Rows) -> Chart | None:
    shares = zone_shares(rows)
    if not shares:
        return None
    figure, (ax,) = new_figure(HALF, 3.0)
    rounds = rounds_of(rows)
    legend = draw_stack(ax, rounds, {zone: 100 * share for zone, share in shares.items()}, ZONE_COLOURS)
    ax.set_ylim(0, 100)
    ax.set_ylabel("share of the model (%)")
    round_axis(ax, rounds)
    said = ", ".join(f"{zone} {percent(last(share))}" for zone, share in shares.items())
    alt = f"Zone shares in the last round: {said}."
    return Chart("zones", "Zone shares", "Mean over clients.", alt, legend, to_svg(figure, "zones", alt))


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
    figure, (ax,) = new_figure(HALF, 3.0)
    rounds = rounds_of(rows)
    highest = float(max(np.nansum(list(curves.values()), axis=0).max(), np.nan_to_num(wall).max()))
    scale, unit = (1000.0, "ms") if highest < 1 else (1.0, "s") if highest < 600 else (1 / 60, "min")
    legend = list(draw_stack(ax, rounds, {phase: scale * curve for phase, curve in curves.items()}, PHASE_COLOURS))
    if np.isfinite(wall).any():
        draw_line(ax, rounds, scale * wall, INK, thin=True)
        legend.append(("wall clock", "var(--ink)", "line"))
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"time per round ({unit})")
    round_axis(ax, rounds)
    sums = {phase: float(np.nansum(curve)) for phase, curve in curves.items()}
    ordered = sorted(sums, key=lambda phase: -sums[phase])[:3]
    shares = ", ".join(f"{phase} {percent(sums[phase] / sum(sums.values()))}" for phase in ordered)
    alt = f"Largest shares of the working time over the run: {shares}."
    note = "Phases are summed over parties, so with several processes they add up to more than the wall clock."
    return Chart("seconds", "Time per phase", note, alt, tuple(legend), to_svg(figure, "seconds", alt))


def _bytes(rows: Rows) -> Chart | None:
    totals = curves_of(rows, lambda row: {way: of(row.bytes).total for way, (_, of) in DIRECTIONS.items()})
    present = {way: both for way, both in DIRECTIONS.items() if totals[way].any()}
    if not present:
        return None
    figure, axes = new_figure(WIDE, 2.9, len(present))
    rounds = rounds_of(rows)
    highest = max(float(curve.max()) for curve in totals.values())
    scale, unit = next((s, u) for s, u in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")) if highest >= s or s == 1)
    legend: dict[str, tuple[str, str, str]] = {}
    for ax, (text, of) in zip(axes, present.values(), strict=True):
        curves = curves_of(rows, functools.partial(_zones_sent, of))
        for entry in draw_stack(ax, rounds, {zone: curve / scale for zone, curve in curves.items()}, ZONE_COLOURS):
            legend[entry[0]] = entry
        ax.set_title(text)
        round_axis(ax, rounds)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel(f"bytes per round ({unit})")
    sums = [f"{text} {size(totals[way].sum())}" for way, (text, _) in present.items()]
    alt = f"Bytes over the run: {', '.join(sums)}."
    note = "All clients together; the panels share one scale. Other: questions, ballots, headers, whole models."
    svg = to_svg(figure, "bytes", alt)
    return Chart("bytes", "Bytes per zone and direction", note, alt, tuple(legend.values()), svg, wide=True)


def _zones_sent(of: Callable[[Traffic], Sent], row: Row) -> Mapping[str, float]:
    return of(row.bytes).zones


def _epsilon(rows: Rows) -> Chart | None:
    epsilon = curve_of(rows, lambda row: row.epsilon)
    if not np.isfinite(epsilon).any():
        return None
    return _single(rows, epsilon, "epsilon", "Epsilon so far", "epsilon", ZONE_COLOURS["noised"],
                   "What it covers, and under which assumptions, is in the ledger below.",
                   f"Epsilon after the last round is {number(last(row.epsilon for row in rows))}.")  # fmt: skip


def _churn(rows: Rows) -> Chart | None:
    churn = curve_of(rows, lambda row: row.mask_churn)
    if not np.isfinite(churn).any():
        return None
    return _single(rows, 100 * churn, "churn", "Mask churn", "share of the mask (%)", ZONE_COLOURS["encrypted"],
                   "Share of the encrypted zone that changed since the round before.",
                   f"In the last round {percent(last(churn))} of the mask was new.")  # fmt: skip


def _single(rows: Rows, curve: Curve, key: str, title: str, label: str, colour: str, note: str, alt: str) -> Chart:
    figure, (ax,) = new_figure(HALF, 2.6)
    draw_line(ax, rounds_of(rows), curve, colour)
    ax.set_ylim(0, 1.08 * float(np.nanmax(curve)) or 1)
    ax.set_ylabel(label)
    round_axis(ax, rounds_of(rows))
    return Chart(key, title, note, alt, (), to_svg(figure, key, alt))


def _partition(distribution: Distribution, wide: bool) -> Chart:
    """Heat map of examples per client and class; beside it, examples per client."""
    classes, clients = distribution.classes, distribution.clients
    width = len(classes)
    counts = np.array(list(clients.values()), np.float64)
    figure, (ax, bars) = new_figure(WIDE if wide else HALF, min(max(2.6, 0.9 + 0.17 * len(clients)), 9.0), 2, (4, 1))
    red, green, blue = (int(GLOBAL_COLOUR[i : i + 2], 16) / 255 for i in (1, 3, 5))
    # One colour whose opacity grows with the count: zero is the page's own colour, light or dark.
    pixels = np.zeros((*counts.shape, 4))
    pixels[..., :3] = red, green, blue
    pixels[..., 3] = 0.85 * np.sqrt(counts / max(counts.max(), 1))
    ax.imshow(pixels, aspect="auto", interpolation="none")
    if counts.size <= 260:
        for (i, j), count in np.ndenumerate(counts):
            if count:
                ax.text(j, i, f"{count:.0f}", ha="center", va="center", fontsize=7)
    step, every = math.ceil(len(clients) / 30), math.ceil(width / (40 if wide else 20))
    ax.set_yticks(range(0, len(clients), step), [str(name) for name in list(clients)[::step]])
    turned = max(map(len, classes[::every])) * len(classes[::every]) > (110 if wide else 45)
    shown = [name[:18] for name in classes[::every]]
    ax.set_xticks(range(0, width, every), shown, rotation=45 if turned else 0, ha="right" if turned else "center")
    ax.set_ylabel("client")
    ax.set_xlabel("class")
    sums = counts.sum(axis=1)
    bars.barh(np.arange(len(clients)), sums, height=0.7, color=GLOBAL_COLOUR)
    bars.set_xlabel("examples")
    bars.set_xlim(left=0)
    bars.xaxis.get_major_locator().set_params(nbins=2)
    bars.tick_params(labelleft=False)
    for each in (ax, bars):
        each.grid(visible=False)
        each.set_ylim(len(clients) - 0.5, -0.5)
        each.spines[:].set_visible(False)
    held = (counts > 0).sum(axis=1)
    alt = (f"{len(clients)} clients hold {sums.min():.0f} to {sums.max():.0f} training examples each, "
           f"of {held.min()} to {held.max()} of {width} classes.")  # fmt: skip
    note = "Training examples per client and class; stronger is more (square-root scale)."
    return Chart("partition", "Who holds what", note, alt, (), to_svg(figure, "partition", alt), wide)
