"""The figure of the simulated clock next to the wall clock, where the recipe describes the parties' devices.

fedplug-lab finds it through the entry-point group `fedplug_lab.section`. No other module imports it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from fedplug_lab.canvas import (
    Rows,
    curve_of,
    draw_line,
    log_axis,
    over_rounds,
    time_scale,
)
from fedplug_lab.drawing import Chart
from fedplug_lab.panel import INK
from fedplug_lab.sections import Section
from fedplug_runs.units import duration

from fedplug_sensecrypt.simulated_clock import SimulatedTime

SIMULATED_COLOUR, TRANSFER_COLOUR = "#2aa198", "#5fb3d4"
_FAR_APART = 20  # beyond this ratio of the largest to the smallest value, the axis is logarithmic


class Clock(Section):
    """The simulated clock's addition to a report: a figure."""

    key = "clock"

    def chart(self, rows: Rows) -> Chart | None:
        """Both clocks."""
        return chart(rows)


CLOCK = Clock()


def chart(rows: Rows) -> Chart | None:
    """Seconds of each round on both clocks; None where no row has the simulated one."""
    simulated = curve_of(rows, lambda row: row.simulated_seconds)
    if not np.isfinite(simulated).any():
        return None
    parts = [SimulatedTime.of(row) for row in rows]
    transfer = np.array([one.transfer if one else math.nan for one in parts])
    wall = curve_of(rows, lambda row: row.wall_seconds)
    every = np.concatenate([simulated, transfer, wall])
    shown = every[np.isfinite(every) & (every > 0)]
    highest = float(shown.max(initial=0.0))
    scale, unit = time_scale(highest)
    drawing, panel, rounds = over_rounds(rows)
    note = "Two different clocks: the wall clock is this machine's, with all parties on it."
    if shown.size and highest > _FAR_APART * float(shown.min()):
        log_axis(panel.y, scale * float(shown.min()), scale * highest)
        transfer = np.where(transfer > 0, transfer, np.nan)  # nothing was sent: a logarithm cannot show it
        note += " Logarithmic scale."
    else:
        panel.y.from_zero(scale * highest)
    draw_line(panel, rounds, scale * simulated, SIMULATED_COLOUR)
    draw_line(panel, rounds, scale * transfer, TRANSFER_COLOUR, dashed=True)
    draw_line(panel, rounds, scale * wall, INK, thin=True)
    panel.y_label = f"time per round ({unit})"
    legend = (
        ("simulated, on the devices of the profiles", SIMULATED_COLOUR, "line"),
        ("of it, transfer of the slowest client", TRANSFER_COLOUR, "dash"),
        ("wall clock", "var(--ink)", "line"),
    )
    both = f"{duration(np.nansum(simulated))} on the simulated clock and {duration(np.nansum(wall))} on the wall clock"
    alt = f"The run takes {both}. {_slowest([one for one in parts if one])}"
    return drawing.chart("simulated", "Simulated clock and wall clock", alt, legend, note)


def _slowest(rounds: Sequence[SimulatedTime]) -> str:
    """The client that the rounds waited for most often, and how much slower it is than the median."""
    found = Counter(each.slowest for each in rounds if each.slowest is not None)
    if not found:
        return "No client took part."
    client, times = found.most_common(1)[0]
    seconds_of = [each.clients for each in rounds if each.slowest == client]
    pairs = [(seconds[client], float(np.median(list(seconds.values())))) for seconds in seconds_of if client in seconds]
    ratios = [own / middle for own, middle in pairs if middle > 0]
    slower = f", {np.mean(ratios):.1f} times as long as for the median client" if ratios else ""
    return f"In {times} of {len(rounds)} rounds it waits for client {client}{slower}."
