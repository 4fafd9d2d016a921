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
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_lab.api import Compared, OneRun, Outcome, Shelf, numbers_of, open_run, verdicts_of
from fedplug_runs import units
from fedplug_runs.folder import read_ledger, read_rows

from fedplug_search.limits import name_of, so_far
from fedplug_search.measures import measure
from fedplug_search.question import Question, leading_of
from fedplug_search.trial import PRUNED, Made, Told, judged


@dataclasses.dataclass(eq=False)
class Going:
    """An unfinished trial."""

    number: int
    values: Mapping[str, Any]
    recipes: Sequence[Recipe]
    began: float
    runs: list[OneRun] = dataclasses.field(default_factory=list)
    made: list[Made] = dataclasses.field(default_factory=list)


class Books:
    """Keeps the runs of unfinished trials.

    Args:
        question: what is asked.
        folder: of the search.
        prune: `all`, `certain` or `none`.
        catalog: the components on offer.
    """

    def __init__(self, question: Question, folder: Path, prune: str, catalog: Catalog) -> None:
        self.question, self.folder, self.prune, self.catalog = question, folder, prune, catalog

    def add(self, going: Going, folder: Path) -> None:
        """A complete run."""
        run = open_run(folder)
        prices = run.rows[-1].epsilon_prices
        made = Made(run.seed, self._inside(folder), run.summary.digest, len(run.rows), run.result.epsilon, prices)
        going.runs.append(run)
        going.made.append(made)

    def cut_off(self, going: Going) -> list[Made]:
        """The run of a trial that failed, where it has begun: it has released something too."""
        recipe = going.recipes[len(going.runs)]
        folder = Shelf(self.folder, [recipe.digest]).unfinished(self.catalog).get(recipe.digest)
        return [self._unfinished(recipe, folder)] if folder else []

    def _unfinished(self, recipe: Recipe, folder: Path) -> Made:
        rounds, epsilon, prices = 0, None, ""
        with contextlib.suppress(CheckpointError):  # damaged, or not written yet: nobody knows then
            ledger = read_ledger(folder)
            rounds, epsilon = ledger.rounds.actual, ledger.epsilon
            prices = next((row.epsilon_prices for row in reversed(read_rows(folder)) if row.epsilon_prices), "")
        return Made(recipe.seed, self._inside(folder), recipe.digest, rounds, epsilon, prices)

    def _inside(self, folder: Path) -> str:
        return str(folder.relative_to(self.folder))

    def judged(self, going: Going) -> Told:
        each = Compared(self.question.space.label(going.values), going.runs)
        seconds, asked = time.perf_counter() - going.began, self.question
        return judged(numbers_of(each), asked.constraints, asked.objectives, going.made, verdicts_of(each), seconds)

    def told(self, going: Going, status: str, reason: str) -> Told:
        return Told(status, reason, runs=list(going.made), seconds=time.perf_counter() - going.began)

    def pruned(self, going: Going, reason: str, outcome: Outcome | None) -> Told:
        """A trial that ended early, with what it had reached by then."""
        told, several = self.told(going, PRUNED, reason), len(going.recipes) > 1
        known = [dict(_known(run)) for run in going.runs]
        if outcome is not None and outcome.run_dir is not None:
            told.runs.append(self._unfinished(going.recipes[len(going.runs)], outcome.run_dir))
            known.append(dict(outcome.known))
            told.reason = f"seed {told.runs[-1].seed}: {reason}" if several else reason
        elif several and told.runs:
            told.reason = f"after seed {told.runs[-1].seed}: {reason}"
        for name in known[-1] if known else ():
            found = [each[name] for each in known if name in each]
            if name == "epsilon":
                told.numbers[name] = max(found)
            elif measure(name).grows:  # runs that are still to come would only add to the sum
                told.numbers[name] = math.fsum(found) / len(going.recipes)
            else:
                told.numbers[name] = found[-1]
        return told

    def limits(self, going: Going) -> tuple[dict[str, float], str]:
        """The bounds of the next run of a trial, and why the trial may end, where earlier runs decide that."""
        count, limits = len(going.recipes), dict[str, float]()
        if self.prune == "none":
            return {}, ""
        leads = leading_of(self.question.base)
        for constraint in self.question.constraints:
            name, bound, show = constraint.name, constraint.bound, constraint.measure.show
            if constraint.measure.grows and not constraint.least:
                spent = [so_far(run.rows).get(name) or 0.0 for run in going.runs]
                # Of several runs the largest epsilon counts, and the mean of everything else.
                if name == "epsilon":
                    left, total = bound, max(spent, default=0.0)
                    beyond = total > bound
                else:
                    total = math.fsum(spent) / count
                    left = count * bound - math.fsum(spent)
                    beyond = total > bound
                if beyond and spent:
                    return {}, f"{name} is {show(total)} at least, above {show(bound)}"
                limits[name] = max(left, 0.0)
            elif name == name_of(leads) and constraint.least == (leads.better == "higher"):
                known = units.finite(run.result.leading for run in going.runs)
                if len(known) < len(going.runs):
                    continue
                # The runs that are still to come may all be right; how good another figure can be nobody knows.
                asked = count * bound - math.fsum(known)
                if leads.name == ACCURACY.name:
                    asked -= count - 1 - len(known)
                    if asked > 1:
                        return {}, f"accuracy is {show(1 - (asked - 1) / count)} at most, below {show(bound)}"
                elif count - len(known) > 1:
                    continue
                if self.prune == "all" and (asked > 0 or leads.name != ACCURACY.name):
                    limits["leading"] = asked
        return limits, ""


def _known(run: OneRun) -> Mapping[str, float]:
    found = {**so_far(run.rows), name_of(run.result.leads): run.result.leading}
    return {name: value for name, value in found.items() if value is not None}
