"""The answers of a run in its report and in tables of runs. Loaded by fedplug-lab, and only there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedplug import FedplugError, open_run
from fedplug_lab.sections import Column, Result, Section
from fedplug_lab.tables import sentence, table
from fedplug_runs.units import number

from fedplug_analytics.answering import KEY, Answers, cells


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
        return "".join([*parts, f"<p>{sentence(said)}</p>"])

    def record(self, run_dir: Path) -> dict[str, Any]:
        """All of it."""
        found = _of(run_dir)
        return {} if found is None else found.to_plain(for_json=True)

    def columns(self, results: Sequence[Result]) -> Iterator[Column]:
        """For each number that has an interval, how far that reaches to each side."""
        names = dict.fromkeys(name for result in results for name in _reaches(result))
        for name in names:
            yield f"± {name}", lambda result, name=name: _reaches(result).get(name), number  # type: ignore[misc]


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
