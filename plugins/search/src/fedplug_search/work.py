"""The loop of a search: what to try is chosen, run, judged and written down, several trials at a time where asked.

A trial is one recipe with each of the seeds, one after the other. Runs that are there already count, those that were
cut off go on. With `jobs` trials at a time, trial n is chosen from the results of the trials up to n - jobs and from
those alone, whichever of the others has ended: the same command makes the same choices, interrupted or not.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time

from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug_lab.api import (
    Compared,
    Job,
    OneRun,
    Outcome,
    Shelf,
    SweepWatch,
    Wanted,
    make_runs,
    numbers_of,
)
from fedplug_runs import units
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings

from fedplug_search.going import Going
from fedplug_search.measures import in_words
from fedplug_search.question import Asked, Question
from fedplug_search.sampler import next_params
from fedplug_search.space import Params, assignments
from fedplug_search.store import Store
from fedplug_search.trial import FAILED, MET, MISSED, REFUSED, Told

_ALIKE = 3  # trials in a row that fail for one reason and end the search: the next would too


class Search:
    """The loop.

    Args:
        question: what is asked.
        store: what is known.
        asked: how much is tried, and how.
        settings: of this machine; `output` is the folder of the search.
        catalog: the components on offer.

    Attributes:
        why: it stopped before all trials were made: why; else empty.
        most: how many trials there are to be in all.
    """

    def __init__(self, question: Question, store: Store, asked: Asked, settings: Settings, catalog: Catalog) -> None:
        self.question, self.store, self.asked, self.settings, self.catalog = question, store, asked, settings, catalog
        self._deadline = math.inf if asked.timeout is None else time.monotonic() + asked.timeout
        self.why = ""
        self.most = min(asked.trials, question.space.size() or asked.trials)
        self._waiting = dict(store.open)  # of an earlier call
        self._begun: list[Going] = []  # those whose next run can begin
        self._ended: dict[int, Told] = {}  # those that wait until the ones before them have ended too
        self._now: set[int] = set()

    def run(self) -> bool:
        """Makes the trials; False if it was interrupted."""
        return make_runs(self._ask, self.catalog, self.asked.jobs, self.settings.quiet)

    def _ask(self) -> Wanted | None:
        """The next run: of a trial that has begun, or of the next one."""
        while going := self._begun.pop(0) if self._begun else self._next():
            if job := self._advance(going):
                return Wanted(self._title(going), job, functools.partial(self._take, going))
        return None

    # -- which trial is next -------------------------------------------------------------------------------------------

    def _next(self) -> Going | None:
        """The next trial; None where there is none, or none yet."""
        self._write()
        if self._waiting:
            number = min(self._waiting)
            return self._begin(number, self._waiting.pop(number))
        if self.why or len(self.store.open) >= self.asked.jobs:
            return None
        if self.store.counted(self._now) >= self.asked.trials:
            return None
        if time.monotonic() > self._deadline:
            self.why = "the time of --timeout is over"
            return None
        store, asked = self.store, self.asked
        params = next_params(
            self.question.space, store.study.directions, store.history(), self._tried(), asked.search_seed, store.size,
            asked.trials,
        )  # fmt: skip
        if params is None:
            self.why = "every combination was tried"
            return None
        return self._begin(self.store.begin(params), params)

    def _tried(self) -> list[Params]:
        """What need not come again: all but what failed at an earlier call."""
        failed = {n for n, told in self.store.told.items() if told.status == FAILED and n not in self._now}
        return [trial.params for trial in self.store.history() if trial.number not in failed]

    def _begin(self, number: int, params: Params) -> Going:
        values = self.question.space.values(params)
        self._now.add(number)
        going = Going(number, self.question, self.settings.output, values)
        try:
            sets = [*self.question.sets, *assignments(values)]
            going.recipes = [
                load_recipe(self.question.recipe, [*sets, f"seed={seed}"], self.catalog) for seed in self.question.seeds
            ]
        except RecipeError as error:
            self._end(going, Told(REFUSED, "; ".join(error.problems)))
        return going

    # -- what becomes of it --------------------------------------------------------------------------------------------

    def _advance(self, going: Going) -> Job | None:
        """The next run of a trial; None where the trial has ended."""
        while going.recipes and not going.is_whole:  # without recipes it was refused
            limits, beyond = going.limits(self.asked.prune)
            if beyond:
                self._end(going, going.pruned(beyond))
                return None
            shelf = Shelf(self.settings.output, [going.next.digest])
            if found := shelf.found.get(going.next.digest):
                going.add(found)
                continue
            settings = self.settings
            if limits:
                listener = json.dumps({"use": "search.limits", **limits})
                settings = settings.replace({"listeners": (*settings.listeners, listener)})
            unfinished = shelf.unfinished(self.catalog).get(going.next.digest)
            return Job.of(going.next, self._label(going), unfinished, settings)
        if going.recipes:
            self._end(going, going.judged())
        return None

    def _take(self, going: Going, outcome: Outcome, seconds: float, watch: SweepWatch) -> None:
        """Takes note of a run that has ended."""
        if outcome.error:
            digest = going.next.digest
            cut_off = Shelf(self.settings.output, [digest]).unfinished(self.catalog).get(digest)
            self._end(going, going.told(FAILED, outcome.error, cut_off), watch)
        elif outcome.early:
            self._end(going, going.pruned(outcome.early, outcome), watch)
        else:
            assert outcome.run_dir is not None
            going.add(outcome.run_dir)
            words = f"{self._of_run(going.runs[-1])}, {units.duration(seconds)}"
            if going.is_whole:
                self._end(going, going.judged(), watch, words)
            else:
                watch.result(words)
                self._begun.append(going)

    def _end(self, going: Going, told: Told, watch: SweepWatch | None = None, words: str = "") -> None:
        """A trial has ended; it is written down once all before it are."""
        shown = f"{told.status}: {told.reason}" if told.reason else told.status
        if told.status in (MET, MISSED) and (len(going.recipes) > 1 or not words):
            shown = f"{in_words({name: told.numbers.get(name) for name in self.question.shown})}; {shown}"
        watch = watch or SweepWatch(sys.stdout, self._title(going), 0, self.settings.quiet)
        watch.result(f"{words}; {shown}" if words else shown, always=told.status == FAILED)
        self._ended[going.number] = told
        self._write()
        last = [told for number, told in sorted(self.store.told.items()) if number in self._now][-_ALIKE:]
        if len(last) == _ALIKE and all(told.status == FAILED and _first(told) == _first(last[0]) for told in last):
            self.why = f"{_ALIKE} trials in a row failed for the same reason"

    def _write(self) -> None:
        """In the order of their numbers."""
        while (number := min(self.store.open, default=-1)) in self._ended:
            self.store.end(number, self._ended.pop(number))

    # -- words ---------------------------------------------------------------------------------------------------------

    def _label(self, going: Going) -> str:
        return self.question.space.label(going.values)

    def _title(self, going: Going) -> str:
        title = f"{going.number + 1}/{max(self.most, self.store.size)} {self._label(going)}"
        several = len(going.recipes) > 1
        return f"{title} seed={going.recipes[min(len(going.runs), len(going.recipes) - 1)].seed}" if several else title

    def _of_run(self, run: OneRun) -> str:
        stated = numbers_of(Compared("", [run]))
        return in_words({name: stated[name].value for name in self.question.shown if name in stated})


def _first(told: Told) -> str:
    """Why a trial failed, without how to continue its run."""
    return told.reason.partition("\n")[0]
