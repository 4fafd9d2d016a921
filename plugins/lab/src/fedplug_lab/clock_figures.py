"""The figure of the simulated clock beside the wall clock, where the recipe describes the parties' devices."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from fedplug.api.units import as_float, duration, mapping, read, total

from fedplug_lab.canvas import (
    HALF,
    INK,
    Chart,
    Rows,
    curve_of,
    draw_line,
    log_axis,
    new_figure,
    round_axis,
    rounds_of,
    to_svg,
)

SIMULATED_COLOUR, TRANSFER_COLOUR = "#2aa198", "#5fb3d4"
_FAR_APART = 20  # beyond this ratio of the largest to the smallest value, the axis is logarithmic


def chart(rows: Rows) -> Chart | None:
    """Seconds of each round on both clocks; None where no row has the simulated one."""
    rounds, simulated = rounds_of(rows), curve_of(rows, "simulated", "seconds")
    if not np.isfinite(simulated).any():
        return None
    transfer, wall = curve_of(rows, "simulated", "transfer"), curve_of(rows, "seconds", "wall")
    every = np.concatenate([simulated, transfer, wall])
    shown = every[np.isfinite(every) & (every > 0)]
    highest = float(shown.max(initial=0.0))
    scale, unit = (1000.0, "ms") if highest < 1 else (1.0, "s") if highest < 600 else (1 / 60, "min")
    figure, (ax,) = new_figure(HALF, 3.0)
    note = "Two different clocks: the wall clock is this machine's, with all parties on it."
    if shown.size and highest > _FAR_APART * float(shown.min()):
        log_axis(ax, scale * float(shown.min()), scale * highest)
        transfer = np.where(transfer > 0, transfer, np.nan)  # nothing sent at all: a logarithm has no place for it
        note += " Logarithmic scale."
    else:
        ax.set_ylim(0, 1.08 * scale * highest or 1)
    draw_line(ax, rounds, scale * simulated, SIMULATED_COLOUR)
    draw_line(ax, rounds, scale * transfer, TRANSFER_COLOUR, dashed=True)
    draw_line(ax, rounds, scale * wall, INK, thin=True)
    ax.set_ylabel(f"time per round ({unit})")
    round_axis(ax, rounds)
    legend = (
        ("simulated, on the devices of the profiles", SIMULATED_COLOUR, "line"),
        ("of it, transfer of the slowest client", TRANSFER_COLOUR, "dash"),
        ("wall clock", "var(--ink)", "line"),
    )
    both = f"{duration(total(rows, 'simulated', 'seconds'))} on the simulated clock and"
    alt = f"The run takes {both} {duration(total(rows, 'seconds', 'wall'))} on the wall clock. {_slowest(rows)}"
    key = "simulated"
    return Chart(key, "Simulated clock beside the wall clock", note, alt, legend, to_svg(figure, key, alt))


def _slowest(rows: Rows) -> str:
    """Which client the rounds waited for most often, and how much slower it is than the middle of them."""
    found = Counter(slowest for row in rows if (slowest := mapping(row, "simulated").get("slowest")) is not None)
    if not found:
        return "No client took part."
    client, times = found.most_common(1)[0]
    ratios = []
    for row in rows:
        seconds = [as_float(one) for one in mapping(mapping(row, "simulated"), "clients").values()]
        own, middle = read(row, "simulated", "clients", str(client)), float(np.median(seconds or [0.0]))
        if mapping(row, "simulated").get("slowest") == client and middle > 0 and math.isfinite(own / middle):
            ratios.append(own / middle)
    slower = f", {np.mean(ratios):.1f} times as long as for the median client" if ratios else ""
    return f"In {times} of {len(rows)} rounds it waits for client {client}{slower}."
