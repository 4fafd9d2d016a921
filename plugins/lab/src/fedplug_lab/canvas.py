"""How the figures of the report are drawn: colours, axes, bars, lines, and the way into the page as inline SVG.

Matplotlib draws with stand-in colours for ink, grid and paper; they are replaced by CSS variables of the page, so one
picture serves light and dark. The SVG carries no XML declaration, no metadata and no namespace address, so the page
names no address at all.
"""

from __future__ import annotations

import dataclasses
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.rows import GroupResult, Row
from fedplug.api.units import number
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Row]
Curve = NDArray[np.float64]  # one value a round

INK, MUTED, GRID = "#010203", "#010204", "#010205"
_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)"}

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
"""The global model's curves; training, which happens before there is one; the clients' own models."""
HALF, WIDE = 5.0, 10.2  # inches; a figure fills one column of the page, or both
_MANY_ROUNDS = 40  # beyond this many, bars become a filled outline: one path instead of thousands
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "text.parse_math": False, "svg.hashsalt": "fedplug", "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": MUTED, "axes.labelcolor": MUTED,
    "axes.titlecolor": INK, "axes.titlesize": 9, "axes.titlelocation": "left",
    "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True,
    "grid.color": GRID, "grid.linewidth": 0.8, "text.color": INK, "xtick.color": MUTED, "ytick.color": MUTED,
    "xtick.major.size": 0, "ytick.major.size": 0, "lines.linewidth": 1.8, "axes.linewidth": 0.8,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Chart:
    """One figure.

    Attributes:
        key: short name, used for ids in the page.
        title: what it shows.
        note: how to read it: units, what was summed.
        alt: what a person who sees it would take from it, in a sentence.
        legend: (label, colour, `line`, `thin`, `dash`, `area` or `cross`), in the order drawn.
        svg: the picture.
        wide: True where it fills the width of the page.
    """

    key: str
    title: str
    note: str
    alt: str
    legend: tuple[tuple[str, str, str], ...]
    svg: str
    wide: bool = False


def new_figure(
    width: float, height: float, panels: int = 1, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Any]]:
    """A figure and its panels, side by side with one y axis. Sizes in inches; `ratios` are relative panel widths."""
    # The object interface needs no display and leaves no global state behind, unlike pyplot.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels, sharey=True, squeeze=False, width_ratios=ratios)
    return figure, list(axes[0])


def rounds_of(rows: Rows) -> Curve:
    """The round numbers, as people count them."""
    return np.array([row.round for row in rows], np.float64)


def curve_of(rows: Rows, read: Callable[[Row], float | None]) -> Curve:
    """One value a round; NaN, which matplotlib leaves out, where there is none or it is not finite."""
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


def last_of(curve: Curve) -> str:
    """The last finite value of a curve, as text."""
    known = curve[np.isfinite(curve)]
    return number(known[-1] if known.size else None)


def draw_line(ax: Axes, x: Curve, y: Curve, colour: str, *, dashed: bool = False, thin: bool = False) -> None:
    """Draws a curve, with gaps where it is NaN."""
    # Markers where there are few points, and always for points without a neighbour, which no line would show.
    known = np.isfinite(y)
    padded = np.pad(known, 1)
    alone = known & ~padded[:-2] & ~padded[2:]
    every = np.flatnonzero(known if len(y) <= 30 and not thin else alone)
    ax.plot(x, y, "--" if dashed else "-", color=colour, marker="o", markersize=3.5, markevery=list(map(int, every)),
            linewidth=1.1 if thin else 1.8)  # fmt: skip


def draw_band(ax: Axes, x: Curve, low: Curve, high: Curve, colour: str = GLOBAL_COLOUR) -> None:
    """Fills between two curves, faintly; of a single round, a faint bar."""
    if len(x) == 1:
        ax.bar(x, high - low, 0.12, low, color=colour, alpha=0.22)
    else:
        ax.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0)


def draw_groups(ax: Axes, rows: Rows, read: Callable[[GroupResult], float]) -> bool:
    """One thin line for each group's own model, if there is more than one group; says whether there is."""
    groups = curves_of(rows, lambda row: {group: read(result) for group, result in row.groups.items()})
    for curve in groups.values() if len(groups) > 1 else ():
        ax.plot(rounds_of(rows), curve, color=GLOBAL_COLOUR, linewidth=0.9, alpha=0.6,
                marker="." if len(rows) == 1 else "")  # fmt: skip
    return len(groups) > 1


def draw_stack(
    ax: Axes, x: Curve, curves: Mapping[str, Curve], colours: Mapping[str, str]
) -> tuple[tuple[str, str, str], ...]:
    """Stacks the curves, one bar a round; gives the legend."""
    base, legend = np.zeros(len(x)), []
    for name, curve in curves.items():
        values = np.nan_to_num(curve)
        if not values.any():
            continue
        colour = _colour(name, colours, list(curves))
        if len(x) <= _MANY_ROUNDS:
            ax.bar(x, values, 0.8 if len(x) > 3 else 0.4, base, color=colour, linewidth=0)
        else:
            ax.fill_between(x, base, base + values, step="mid", color=colour, linewidth=0)
        base = base + values
        legend.append((name, colour, "area"))
    return tuple(legend)


def round_axis(ax: Axes, rounds: Curve) -> None:
    """An x axis of whole rounds."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=10, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    margin = 0.6 if len(rounds) <= _MANY_ROUNDS else 0.0
    low, high = float(rounds.min()) - margin, float(rounds.max()) + margin
    # Few rounds would give a few very wide bars.
    slack = max(0.0, (4 - (high - low)) / 2)
    ax.set_xlim(low - slack, high + slack)
    if len(rounds) <= 4:
        ax.set_xticks(rounds, [f"{x:.0f}" for x in rounds])
    ax.set_xlabel("round")


def log_axis(ax: Axes, low: float, high: float) -> None:
    """A logarithmic y axis for values from `low` to `high`, both > 0."""
    from matplotlib.ticker import LogLocator, NullLocator

    # Given by hand, and first: matplotlib's own margins and ticks overflow for a run that diverged far enough.
    ax.set_ylim(low / 1.5, min(high, 1e100) * 1.5)
    ax.set_yscale("log")
    # Ticks at 1, 2, 5 where powers of ten alone would be too few; plain numbers, since mathematics is switched off.
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter("{x:g}")


def _colour(name: str, fixed: Mapping[str, str], all_names: Sequence[str]) -> str:
    if name in fixed:
        return fixed[name]
    added = sorted({*all_names, name} - set(fixed))
    return _SPARE_COLOURS[added.index(name) % len(_SPARE_COLOURS)]


def tint(colour: str) -> str:
    """The colour of a band drawn in `colour`, for the legend."""
    return f"{colour}38"  # the same 22% opacity as the band


def to_svg(figure: Figure, key: str, alt: str) -> str:
    """The figure as an element for the page: ids of its own, colours of the page, no address, a text alternative."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s+xmlns(:xlink)?="[^"]*"', "", text)
    text = text.replace("xlink:href=", "href=")
    # Charts share one page: what one defines, no other may refer to.
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{key}-", text)
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, variable)
    # The page sets the size; the view box keeps the proportions.
    head, rest = text.split(">", 1)
    head = re.sub(r'\s+(width|height|version)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{html.escape(alt)}">{rest}'
