"""`search.limits`: ends a run that is certain to cost more than allowed, or that can hardly become as good as asked.

Epsilon, bytes and seconds only grow from round to round, so that a run above its limit stays there. The figure that
leads, such as accuracy, may do anything; the rule for it is a guess, which is stated in `hopeless`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import fedplug
from fedplug import Field
from fedplug.api.data import ACCURACY, Better, Figure
from fedplug.api.events import Event, RoundStarted
from fedplug_runs.by_class import BALANCED
from fedplug_runs.events import RowComplete, RowMade, RowsRestored, RunStarted
from fedplug_runs.rows import Row
from fedplug_runs.units import last, number

from fedplug_search.measures import FIGURE, MEASURES


class Limits(fedplug.Extension):
    """End a run before a round begins if its epsilon, bytes or seconds are above a limit, or what leads is hopeless.

    What the run has by then is kept, and `fedplug resume` without this extension continues it.
    """

    hears = (RunStarted, RowsRestored, RowMade, RowComplete, RoundStarted)

    class Options(fedplug.Options):
        epsilon: float | None = Field(None, ge=0, description="the most that the run's epsilon may be")
        bytes: float | None = Field(None, ge=0, description="the most bytes of all messages, all ways")
        bytes_up: float | None = Field(None, ge=0, description="the most bytes from the clients to the server")
        bytes_down: float | None = Field(None, ge=0, description="the most bytes from the server to the clients")
        bytes_key_server: float | None = Field(None, ge=0, description="the most bytes to and from the key server")
        seconds: float | None = Field(None, ge=0, description="the most seconds of the rounds on the wall clock")
        seconds_simulated: float | None = Field(None, ge=0, description="the most seconds on the devices of the recipe")
        leading: float | None = Field(
            None,
            allow_inf_nan=False,
            description="what the figure that leads, such as accuracy or RMSE, must reach in the end; judged "
            "after half of the rounds",
        )

    def __init__(self, options: Options) -> None:
        self.options: Limits.Options = options
        self._folder: Path | None = None
        self._rounds = 0
        self._rows: dict[int, Row] = {}

    def observe(self, event: Event) -> None:
        """Notes the rows; stops the run before it asks anybody for anything more."""
        if isinstance(event, RunStarted):
            self._folder, self._rounds = event.folder, int(event.facts["rounds"])
        elif isinstance(event, RowsRestored):
            self._rows = {row.round: row for row in event.rows}
        elif isinstance(event, RowMade | RowComplete):
            self._rows[event.row.round] = event.row
        elif isinstance(event, RoundStarted) and (why := self.reason()):
            from fedplug_lab.api import Enough

            raise Enough(why, self._folder, self.known())

    def reason(self) -> str:
        """Why the run need not continue; empty where it should."""
        rows = [row for _, row in sorted(self._rows.items())]
        after = f"after round {len(rows)} of {self._rounds}"
        for name, value in so_far(rows).items():
            limit = getattr(self.options, name)
            if limit is not None and value is not None and value > limit:
                show = MEASURES[name].show
                return f"{name} is {show(value)} {after}, above {show(limit)}, and only grows"
        asked = self.options.leading
        if asked is not None and rows:
            leads, reached = _judging(rows)
            best = 1.0 if leads.name == ACCURACY.name else None  # how good another figure can be nobody knows
            most = hopeless(reached, self._rounds, asked, leads.better, best)
            if most is not None:
                gain = f"even the best gain so far, repeated, gives {most:.3f}"
                return f"{leads.name} can hardly reach {asked:.3f}: {after} {gain}"
        return ""

    def known(self) -> dict[str, float]:
        """The numbers of the run so far."""
        return known([row for _, row in sorted(self._rows.items())])

    def describe(self) -> str:
        """One line for the plan of the run."""
        given = self.options.model_dump(exclude_none=True)
        shown = ", ".join(
            f"{name} {MEASURES[name].show(value) if name in MEASURES else number(value)}"
            for name, value in given.items()
        )
        return f"ends the run where it cannot keep to {shown}" if shown else "has no limit, and ends nothing"


def so_far(rows: Sequence[Row]) -> Mapping[str, float | None]:
    """What a run has reached by its last row, of the measures that only grow."""
    if not rows:
        return {}
    up = float(sum(row.bytes.up.total for row in rows))
    down = float(sum(row.bytes.down.total for row in rows))
    key_server = float(sum(row.bytes.key_server.total for row in rows))
    simulated = [row.simulated_seconds for row in rows if row.simulated_seconds is not None]
    return {
        "epsilon": rows[-1].epsilon,
        "bytes": up + down + key_server,
        "bytes_up": up,
        "bytes_down": down,
        "bytes_key_server": key_server,
        "seconds": math.fsum(row.wall_seconds for row in rows),
        "seconds_simulated": math.fsum(simulated) if simulated else None,
    }


def known(rows: Sequence[Row]) -> dict[str, float]:
    """The same, and the figures that a search may ask for; without what nobody knows."""
    if not rows:
        return {}
    leads, reached = _judging(rows)
    balanced = {f"{FIGURE}{BALANCED.name}": last(row.figures.get(BALANCED.name) for row in rows)}
    found = {**so_far(rows), **balanced, name_of(leads): last(reached)}
    return {name: value for name, value in found.items() if value is not None}


def _judging(rows: Sequence[Row]) -> tuple[Figure, list[float | None]]:
    """By what the recipe says that its models are judged, and that of each row.

    A search is asked before it has seen any data, so it is accuracy where a rare class has another figure lead.
    """
    leads = rows[-1].leads
    if leads.name != BALANCED.name:
        return leads, [row.leading for row in rows]
    return ACCURACY, [row.accuracy for row in rows]


def name_of(leads: Figure) -> str:
    """The measure of a figure that leads."""
    return leads.name if leads.name == ACCURACY.name else f"{FIGURE}{leads.name}"


def hopeless(
    figures: Iterable[float | None], rounds: int, asked: float, better: Better = "higher", best: float | None = 1.0
) -> float | None:
    """What a figure would reach at best, where that is worse than what is asked; None where it may still do.

    At best means that every round that is left gains as much as the best one so far. Nothing is said before half of the
    rounds, and three of them, have a number: learning may start slowly.
    """
    sign = 1 if better == "higher" else -1
    known = [sign * value for value in figures if value is not None and math.isfinite(value)]
    if len(known) < max(3, rounds / 2):
        return None
    gain = max(0.0, *(later - earlier for earlier, later in pairwise(known)))
    most = max(known) + (rounds - len(known)) * gain
    if most >= sign * asked:
        return None
    return sign * (most if best is None else min(most, sign * best))
