"""An unfinished trial: the runs that it has, what they leave for the next one, and their numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.data import ACCURACY
from fedplug.api.errors import CheckpointError
from fedplug.recipe.recipe import Recipe
from fedplug_lab.api import Compared, OneRun, Outcome, numbers_of, open_run, verdicts_of
from fedplug_runs import units
from fedplug_runs.folder import read_ledger, read_rows

from fedplug_search.limits import name_of, so_far
from fedplug_search.measures import measure
from fedplug_search.question import Question, leading_of
from fedplug_search.trial import PRUNED, Made, Told, judged


@dataclasses.dataclass(eq=False)
class Going:
    """An unfinished trial.

    Attributes:
        number: of the trial, from 0.
        question: what the search is asked.
        folder: of the search.
        values: what was chosen, by path.
        recipes: one for each seed; none where `fedplug check` refuses what was chosen.
        began: when, by `time.perf_counter`.
        runs: those of the first recipes, which are complete.
    """

    number: int
    question: Question
    folder: Path
    values: Mapping[str, Any]
    recipes: Sequence[Recipe] = ()
    began: float = dataclasses.field(default_factory=time.perf_counter)
    runs: list[OneRun] = dataclasses.field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether all its runs are complete."""
        return len(self.runs) == len(self.recipes)

    @property
    def next(self) -> Recipe:
        """Of the run that it lacks."""
        return self.recipes[len(self.runs)]

    def add(self, folder: Path) -> None:
        """A complete run."""
        self.runs.append(open_run(folder))

    def judged(self) -> Told:
        """A trial all of whose runs are complete."""
        each, asked = Compared(self.question.space.label(self.values), self.runs), self.question
        told = self.told("", "")
        return judged(numbers_of(each), asked.constraints, asked.objectives, told.runs, verdicts_of(each), told.seconds)

    def told(self, status: str, reason: str, cut_off: Path | None = None) -> Told:
        """Another one; `cut_off` is the folder of a run that is not complete, but has released something too."""
        made = [
            Made(run.seed, self._inside(run.folder), run.summary.digest, len(run.rows), run.result.epsilon,
                 run.rows[-1].epsilon_prices) for run in self.runs
        ]  # fmt: skip
        if cut_off is not None:
            made.append(self._unfinished(cut_off))
        return Told(status, reason, runs=made, seconds=time.perf_counter() - self.began)

    def _unfinished(self, folder: Path) -> Made:
        rounds, epsilon, prices = 0, None, ""
        with contextlib.suppress(CheckpointError):  # damaged, or not written yet: nobody knows then
            ledger = read_ledger(folder)
            rounds, epsilon = ledger.rounds.actual, ledger.epsilon
            prices = next((row.epsilon_prices for row in reversed(read_rows(folder)) if row.epsilon_prices), "")
        return Made(self.next.seed, self._inside(folder), self.next.digest, rounds, epsilon, prices)

    def _inside(self, folder: Path) -> str:
        return str(folder.relative_to(self.folder))

    def pruned(self, reason: str, outcome: Outcome | None = None) -> Told:
        """A trial that ended early, between runs or in one with that outcome, with what it had reached by then."""
        told, several = self.told(PRUNED, reason, outcome.run_dir if outcome else None), len(self.recipes) > 1
        known = [dict(_known(run)) for run in self.runs]
        if outcome is not None and outcome.run_dir is not None:
            known.append(dict(outcome.known))
            told.reason = f"seed {told.runs[-1].seed}: {reason}" if several else reason
        elif several and told.runs:
            told.reason = f"after seed {told.runs[-1].seed}: {reason}"
        for name in known[-1] if known else ():
            found = [each[name] for each in known if name in each]
            if name == "epsilon":
                told.numbers[name] = max(found)
            elif measure(name).grows:  # runs that are still to come would only add to the sum
                told.numbers[name] = math.fsum(found) / len(self.recipes)
            else:
                told.numbers[name] = found[-1]
        return told

    def limits(self, prune: str) -> tuple[dict[str, float], str]:
        """The bounds of its next run, and why it may end, where earlier runs decide that.

        Args:
            prune: `all`, `certain` or `none`.
        """
        count, limits = len(self.recipes), dict[str, float]()
        leads = leading_of(self.question.base)
        for constraint in self.question.constraints if prune != "none" else ():
            name, bound, show = constraint.name, constraint.bound, constraint.measure.show
            if constraint.measure.grows and not constraint.least:
                spent = [so_far(run.rows).get(name) or 0.0 for run in self.runs]
                # Of several runs the largest epsilon counts, and the mean of everything else.
                total, left = math.fsum(spent) / count, count * bound - math.fsum(spent)
                if name == "epsilon":
                    total, left = max(spent, default=0.0), bound
                if total > bound and spent:
                    return {}, f"{name} is {show(total)} at least, above {show(bound)}"
                limits[name] = max(left, 0.0)
            elif name == name_of(leads) and constraint.least == (leads.better == "higher"):
                known = units.finite(run.result.leading for run in self.runs)
                if len(known) < len(self.runs):
                    continue
                # The runs that are still to come may all be right; how good another figure can be nobody knows.
                asked = count * bound - math.fsum(known)
                if leads.name == ACCURACY.name:
                    asked -= count - 1 - len(known)
                    if asked > 1:
                        return {}, f"accuracy is {show(1 - (asked - 1) / count)} at most, below {show(bound)}"
                elif count - len(known) > 1:
                    continue
                if prune == "all" and (asked > 0 or leads.name != ACCURACY.name):
                    limits["leading"] = asked
        return limits, ""


def _known(run: OneRun) -> Mapping[str, float]:
    found = {**so_far(run.rows), name_of(run.result.leads): run.result.leading}
    return {name: value for name, value in found.items() if value is not None}
