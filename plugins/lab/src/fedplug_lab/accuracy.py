"""The figures of accuracy: the global model, each group's, and beside them the models of the clients' own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.units import SEGMENTATION, number, spread

from fedplug_lab.canvas import (
    GLOBAL_COLOUR,
    HALF,
    PERSONAL_COLOUR,
    WIDE,
    Chart,
    Curve,
    Rows,
    curve_of,
    draw_band,
    draw_groups,
    draw_line,
    new_figure,
    round_axis,
    rounds_of,
    tint,
    to_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FOREGROUND_COLOURS = ("#3b7dd8", "#e39a2d", "#3fa672")
OWN, PUBLIC = "personal_accuracy", "personal_public_accuracy"
"""Keys of a row: accuracy of each client's personal model on its own test data, and on its share of the public set."""


def accuracy_chart(rows: Rows) -> Chart | None:
    """One panel for the global model; two, by test data, where clients have personal models. None without numbers."""
    rounds, accuracy = rounds_of(rows), curve_of(rows, "accuracy")
    low, _, high = spreads(rows, "client_accuracy")
    personal = {key: spreads(rows, key) for key in (PUBLIC, OWN)}
    has_personal = any(np.isfinite(mean).any() for _, mean, _ in personal.values())
    if not (np.isfinite(accuracy).any() or np.isfinite(low).any() or has_personal):
        return None
    figure, axes = new_figure(WIDE if has_personal else HALF, 3.0, 2 if has_personal else 1)
    legend = [("global model, public test set", GLOBAL_COLOUR, "line")]
    if has_personal:
        legend = [("global model", GLOBAL_COLOUR, "line")]
        axes[0].set_title("public test set, a share for each client")
        axes[1].set_title("test data with each client's own class mix")
        draw_line(axes[1], rounds, spreads(rows, "client_accuracy")[1], GLOBAL_COLOUR)
        for ax, key in zip(axes, (PUBLIC, OWN), strict=True):
            _draw_personal(ax, rounds, personal[key])
        legend.append(("personal models, mean over clients", PERSONAL_COLOUR, "line"))
        legend.append(("personal models, lowest to highest", tint(PERSONAL_COLOUR), "area"))
    elif np.isfinite(low).any():
        draw_band(axes[0], rounds, low, high)
        legend.append(("clients on their own class mix, lowest to highest", tint(GLOBAL_COLOUR), "area"))
    if draw_groups(axes[0], rows, "accuracy"):
        legend.append(("each group's model", GLOBAL_COLOUR, "thin"))
    draw_line(axes[0], rounds, accuracy, GLOBAL_COLOUR)
    axes[0].set_ylim(0, 1)
    axes[0].set_ylabel("accuracy (share of test examples)")
    for ax in axes:
        round_axis(ax, rounds)
    alt = _global_in_words(rounds, accuracy) + (_personal_in_words(rows) if has_personal else "")
    return Chart("accuracy", "Accuracy", "", alt, tuple(legend), to_svg(figure, "accuracy", alt), has_personal)


def segmentation_chart(rows: Rows) -> Chart | None:
    """How well the foreground of a segmentation is found; None where the task is another."""
    rounds = rounds_of(rows)
    curves = {name: curve_of(rows, "segmentation", key) for name, key in SEGMENTATION}
    if not any(np.isfinite(curve).any() for curve in curves.values()):
        return None
    figure, axes = new_figure(HALF, 3.0)
    colours = dict(zip(curves, (GLOBAL_COLOUR, *_FOREGROUND_COLOURS), strict=True))
    for name, curve in curves.items():
        draw_line(axes[0], rounds, curve, colours[name], thin=name != "IoU")
    axes[0].set_ylim(0, 1)
    axes[0].set_ylabel("share of pixels")
    round_axis(axes[0], rounds)
    said = ", ".join(f"{name} {number(curve[-1])}" for name, curve in curves.items())
    alt = f"Foreground after the last round, over the pixels of the public test set: {said}."
    legend = tuple((name, colours[name], "line" if name == "IoU" else "thin") for name in curves)
    return Chart("segmentation", "Foreground", "", alt, legend, to_svg(figure, "segmentation", alt), False)


def spreads(rows: Rows, key: str) -> tuple[Curve, Curve, Curve]:
    """Lowest, mean and highest over clients of each round's mapping under `key`; NaN where it has no number."""
    found = [spread(row, key) or (math.nan,) * 3 for row in rows]
    low, mean, high = np.array(found, np.float64).reshape(-1, 3).T
    return low, mean, high


def _draw_personal(ax: Axes, rounds: Curve, curves: tuple[Curve, Curve, Curve]) -> None:
    low, mean, high = curves
    draw_band(ax, rounds, low, high, PERSONAL_COLOUR)
    draw_line(ax, rounds, mean, PERSONAL_COLOUR)


def _global_in_words(rounds: Curve, accuracy: Curve) -> str:
    known = np.flatnonzero(np.isfinite(accuracy))
    if not known.size:
        return "No accuracy was measured for the global model."
    first, best, final = known[0], known[np.argmax(accuracy[known])], known[-1]
    alt = f"Accuracy of the global model is {accuracy[first]:.3f} after round {rounds[first]:.0f}"
    if known.size > 1:
        alt += (f" and {accuracy[final]:.3f} after round {rounds[final]:.0f}; the best is {accuracy[best]:.3f} "
                f"after round {rounds[best]:.0f}")  # fmt: skip
    return f"{alt}."


def _personal_in_words(rows: Rows) -> str:
    said = ""
    for key, where in ((OWN, "on their own test data"), (PUBLIC, "on the public test set")):
        if known := [found for row in rows if (found := spread(row, key))]:
            low, mean, high = known[-1]
            said += f"; {where} {number(mean)} on average, {number(low)} to {number(high)}"
    return f" The personal models reach in the end{said.removeprefix(';')}."
