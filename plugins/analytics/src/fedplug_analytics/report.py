"""The answers of a run in its report and in tables of runs. Loaded by fedplug-lab, and only there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fedplug import FedplugError, open_run
from fedplug_lab.canvas import GLOBAL_COLOUR, WIDE, tint
from fedplug_lab.drawing import Chart, Drawing
from fedplug_lab.sections import Column, Result, Section
from fedplug_lab.tables import bullets, sentence, table
from fedplug_runs.rows import Row
from fedplug_runs.units import number

from fedplug_analytics.answering import KEY, Answers, cells, lines
from fedplug_analytics.statistic import Estimate

_ENDS = "value", "low", "high"
_MOST, _NAMED = 8, 10
"""Panels of the figure, and names below a panel, at most."""


class AnswersOfRuns(Section):
    """A table for each statistic, and columns with the values and half the widths of their intervals."""

    key, title, order = KEY, "Answers", 5

    def html(self, run_dir: Path) -> str:
        """The tables; empty where the run has no answers."""
        if (found := _of(run_dir)) is None:
            return ""
        if found.problem:
            return f"<p>{sentence('No answers: ' + found.problem)}.</p>"
        head = ["", "value", f"{found.confidence:.4g} interval", ""]
        parts = [
            table(answer.title, head, [[sentence(cell) for cell in row] for row in cells(answer)], numeric=True)
            for answer in found.answers
        ]
        said = (
            f"Of the records of {found.clients} of {found.of} clients. Intervals include sampling and the noise of the "
            "run; those of numbers of records include the noise alone."
        )
        return "".join([*parts, f"<p>{sentence(said)}</p>", bullets([sentence(f"{note}.") for note in found.notes])])

    def chart(self, rows: Sequence[Row]) -> Chart | None:
        """Cells of tables and points of curves with their intervals, a panel each; None where there are none."""
        found = Answers.among(rows)
        panels = dict(itertools.islice(_panels(found), _MOST)) if found else {}
        if found is None or not panels:
            return None
        drawing = Drawing(WIDE, 2.7 * math.ceil(len(panels) / 2), len(panels), min(len(panels), 2), shared=False)
        for panel, (title, estimates) in zip(drawing.panels, panels.items(), strict=True):
            places = np.arange(len(estimates), dtype=np.float64)
            value, low, high = (np.array([getattr(each, end) for each in estimates], np.float64) for end in _ENDS)
            panel.bars(places, low, high, 0.18, GLOBAL_COLOUR, 0.35)
            panel.dots(places, value, GLOBAL_COLOUR, 4.5)
            panel.y.include([0.0])
            every = math.ceil(len(estimates) / _NAMED)
            panel.x.ticks = [(float(i), _short(each.name)) for i, each in enumerate(estimates) if i % every == 0]
            panel.x.turned, panel.title = max(len(text) for _, text in panel.x.ticks) > 6, title
        alt = f"Estimates with intervals of {found.confidence:.4g}: {', '.join(panels)}."
        legend = [("estimate", GLOBAL_COLOUR, "line"), ("its interval", tint(GLOBAL_COLOUR), "area")]
        return drawing.chart("answers", "Answers", alt, legend, "Intervals include the noise.", wide=True)

    def record(self, run_dir: Path) -> dict[str, Any]:
        """All of it."""
        found = _of(run_dir)
        return {} if found is None else found.to_plain(for_json=True)

    def released(self, run_dir: Path) -> list[str]:
        """The answers, as the command prints them."""
        found = _of(run_dir)
        return [] if found is None else [*lines(found)]

    def columns(self, results: Sequence[Result]) -> Iterator[Column]:
        """For each number that has an interval, how far that reaches to each side."""
        names = dict.fromkeys(name for result in results for name in _reaches(result))
        for name in names:
            yield f"± {name}", lambda result, name=name: _reaches(result).get(name), number  # type: ignore[misc]


def _panels(found: Answers) -> Iterator[tuple[str, list[Estimate]]]:
    """What belongs into one panel, by its title: counts of the cells of a table, or a curve."""
    for answer in found.answers:
        curves: dict[str, list[Estimate]] = {}
        for each in answer.estimates:
            of_curve = each.name.startswith("S(") and answer.statistic == "kaplan_meier"
            of_table = not each.name.startswith("share of") and answer.statistic in ("histogram", "contingency")
            if None not in (each.value, each.low, each.high) and (of_curve or of_table):
                curves.setdefault(each.name.partition(" where ")[2] if of_curve else "", []).append(each)
        yield from ((f"{answer.title}: {whose}" if whose else answer.title, line) for whose, line in curves.items())


def _short(name: str) -> str:
    """Of a point of a curve its time alone."""
    return name.partition(" where ")[0].removeprefix("S(").removesuffix(")") if name.startswith("S(") else name


def _of(run_dir: Path) -> Answers | None:
    try:
        return Answers.among(open_run(run_dir).metrics)
    except (FedplugError, ValueError):  # damaged, or not there yet
        return None


def _reaches(result: Result) -> dict[str, float]:
    """Half the width of each interval, by name."""
    if KEY not in result.added:
        return {}
    found = Answers.from_plain(result.added[KEY])
    each = [estimate for answer in found.answers for estimate in answer.estimates]
    return {one.name: (one.high - one.low) / 2 for one in each if one.low is not None and one.high is not None}


ANSWERS = AnswersOfRuns()
"""The entry point."""
