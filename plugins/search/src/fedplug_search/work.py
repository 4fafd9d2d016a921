"""The loop of a search: what to try is chosen, run, judged and written down, several trials at a time where asked.

A trial is one recipe with each of the seeds, one after the other. Runs that are there already count, those that were
cut off go on. With `jobs` trials at a time, trial n is chosen from the results of the trials up to n - jobs and from
those alone, whichever of the others has ended: the same command makes the same choices, interrupted or not.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
import time

from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug_lab.api import (
    Compared,
    Crew,
    Job,
    OneRun,
    Outcome,
    Shelf,
    SweepWatch,
    attempt,
    numbers_of,
)
from fedplug_runs import units
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings

from fedplug_search.going import Books, Going
from fedplug_search.measures import measure
from fedplug_search.question import Question
from fedplug_search.sampler import next_params
from fedplug_search.space import Params, assignments
from fedplug_search.store import Store
from fedplug_search.trial import FAILED, MET, REFUSED, Told

_ALIKE = 3  # trials in a row that fail for one reason and end the search: the next would too


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is tried, and how.

    Attributes:
        trials: how many in all.
        jobs: how many at a time.
        seed: of what is chosen.
        prune: `all`, `certain` (without the rule for a hopeless figure), or `none`.
        timeout: seconds after which no trial begins; None: no limit.
    """

    trials: int = 20
    jobs: int = 1
    seed: int = 0
    prune: str = "all"
    timeout: float | None = None


class Search:
    """The loop.

    Args:
        question: what is asked.
        store: what is known.
        plan: how much is tried.
        settings: of this machine; `output` is the folder of the search.
        catalog: the components on offer.

    Attributes:
        why: it stopped before all trials were made: why; else empty.
    """

    def __init__(self, question: Question, store: Store, plan: Plan, settings: Settings, catalog: Catalog) -> None:
        self.question, self.store, self.plan, self.settings, self.catalog = question, store, plan, settings, catalog
        self._books = Books(question, settings.output, plan.prune, catalog)
        self.why = ""
        self._waiting = dict(store.open)  # of an earlier call
        self._going: dict[int, Going] = {}
        self._ended: dict[int, Told] = {}  # those that wait until the ones before them have ended too
        self._now: set[int] = set()
        self._stopping = False
        self._watch: SweepWatch | None = None

    def run(self) -> bool:
        """Makes the trials; False if it was interrupted."""
        deadline = math.inf if self.plan.timeout is None else time.monotonic() + self.plan.timeout
        crew: Crew | _Here = Crew(self.catalog) if self.plan.jobs > 1 else _Here(self)
        try:
            with crew:
                while True:
                    while len(crew) < self.plan.jobs and not self._stopping and (going := self._next(deadline)):
                        if job := self._advance(going):
                            crew.begin(going.number, job)
                    if not len(crew):
                        return not self._stopping
                    try:
                        found = crew.wait()
                    except KeyboardInterrupt:
                        self._stopping = True
                        crew.stop()
                        continue
                    for number, outcome, seconds in found:
                        if job := self._take(self._going[number], outcome, seconds):
                            crew.begin(number, job)
        except KeyboardInterrupt:  # between runs, or while one was read
            print()
            return False

    # -- which trial is next -------------------------------------------------------------------------------------------

    def _next(self, deadline: float) -> Going | None:
        """The next trial; None where there is none, or none yet."""
        self._write()
        if self._waiting:
            number = min(self._waiting)
            return self._begun(number, self._waiting.pop(number))
        if self.why or len(self.store.open) >= self.plan.jobs:
            return None
        if self.store.counted(self._now) >= self.plan.trials:
            return None
        if time.monotonic() > deadline:
            self.why = "the time of --timeout is over"
            return None
        params = next_params(
            self.question.space, self.store.study.directions, self.store.history(), self._tried(), self.plan.seed,
            self.store.size, self.plan.trials,
        )  # fmt: skip
        if params is None:
            self.why = "every combination was tried"
            return None
        return self._begun(self.store.begin(params), params)

    def _tried(self) -> list[Params]:
        """What need not come again: all but what failed at an earlier call."""
        failed = {n for n, told in self.store.told.items() if told.status == FAILED and n not in self._now}
        return [trial.params for trial in self.store.history() if trial.number not in failed]

    def _begun(self, number: int, params: Params) -> Going:
        values = self.question.space.values(params)
        self._now.add(number)
        going = Going(number, values, (), time.perf_counter())
        self._going[number] = going
        try:
            sets = [*self.question.sets, *assignments(values)]
            going.recipes = [
                load_recipe(self.question.recipe, [*sets, f"seed={seed}"], self.catalog) for seed in self.question.seeds
            ]
        except RecipeError as error:
            told = Told(REFUSED, "; ".join(error.problems))
            self._end(going, told)
        return going

    # -- what becomes of it --------------------------------------------------------------------------------------------

    def _advance(self, going: Going) -> Job | None:
        """The next run of a trial; None where the trial has ended."""
        while going.number in self._going:
            if len(going.runs) == len(going.recipes):
                self._end(going, self._books.judged(going))
                break
            limits, beyond = self._books.limits(going)
            if beyond:
                self._end(going, self._books.pruned(going, beyond, None))
                break
            recipe = going.recipes[len(going.runs)]
            shelf = Shelf(self.settings.output, [recipe.digest])
            if found := shelf.found.get(recipe.digest):
                self._books.add(going, found)
                continue
            settings = self.settings
            if limits:
                listener = json.dumps({"use": "search.limits", **limits})
                settings = settings.replace({"listeners": (*settings.listeners, listener)})
            unfinished = shelf.unfinished(self.catalog).get(recipe.digest)
            name = re.sub(r"[^A-Za-z0-9._=-]+", "-", self._label(going)).strip("-.")[:80] or "run"
            if self.plan.jobs == 1:
                self._watch = self._begin_line(going)
            return Job(recipe.to_plain(), name, unfinished, settings, recipe.own_files, recipe.origin)
        return None

    def _take(self, going: Going, outcome: Outcome, seconds: float) -> Job | None:
        """Takes note of a run that has ended; what is to be run next of its trial, if anything."""
        watch, self._watch = self._watch or self._begin_line(going), None
        for note in outcome.notes:
            watch.note(note)
        if outcome.interrupted:
            self._stopping = True
            watch.result("interrupted")
            del self._going[going.number]
            return None
        if outcome.error:
            told = self._books.told(going, FAILED, outcome.error)
            told.runs += self._books.cut_off(going)
        elif outcome.early:
            told = self._books.pruned(going, outcome.early, outcome)
        else:
            assert outcome.run_dir is not None
            self._books.add(going, outcome.run_dir)
            words = f"{self._of_run(going.runs[-1])}, {units.duration(seconds)}"
            if len(going.runs) < len(going.recipes):
                watch.result(words)
                return None if self._stopping else self._advance(going)
            self._end(going, self._books.judged(going), watch, words)
            return None
        self._end(going, told, watch)
        return None

    def _end(self, going: Going, told: Told, watch: SweepWatch | None = None, words: str = "") -> None:
        """A trial has ended; it is written down once all before it are."""
        shown = f"{told.status}: {told.reason}" if told.reason else told.status
        if told.status in (MET, "missed") and (len(going.recipes) > 1 or not words):
            shown = f"{self._numbers(told)}; {shown}"
        (watch or self._begin_line(going)).result(f"{words}; {shown}" if words else shown, always=told.status == FAILED)
        self._ended[going.number] = told
        self._going.pop(going.number, None)
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

    def _begin_line(self, going: Going) -> SweepWatch:
        most = min(self.plan.trials, self.question.space.size() or self.plan.trials)
        title = f"{going.number + 1}/{max(most, self.store.size)} {self._label(going)}"
        seed = going.recipes[min(len(going.runs), len(going.recipes) - 1)].seed if len(going.recipes) > 1 else None
        rounds = going.recipes[0].rounds if going.recipes else 0
        shown = title if seed is None else f"{title} seed={seed}"
        return SweepWatch(sys.stdout, shown, rounds, self.settings.quiet)

    def _of_run(self, run: OneRun) -> str:
        stated = numbers_of(Compared("", [run]))
        known = {name: stated[name].value for name in self._shown() if name in stated}
        return ", ".join(f"{name} {measure(name).show(value)}" for name, value in known.items())

    def _numbers(self, told: Told) -> str:
        return ", ".join(f"{name} {measure(name).show(told.numbers.get(name))}" for name in self._shown())

    def _shown(self) -> list[str]:
        bounded = [constraint.name for constraint in self.question.constraints]
        return list(dict.fromkeys([*self.question.objectives, *bounded]))


def _first(told: Told) -> str:
    """Why a trial failed, without how to continue its run."""
    return told.reason.partition("\n")[0]


class _Here:
    """One run at a time, in this process, with a line that says how it goes on."""

    def __init__(self, search: Search) -> None:
        self._search, self._job = search, list[tuple[int, Job]]()

    def __len__(self) -> int:
        return len(self._job)

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.clear()

    def begin(self, place: int, job: Job) -> None:
        """Keeps the run for `wait`."""
        self._job.append((place, job))

    def wait(self) -> list[tuple[int, Outcome, float]]:
        """Makes it."""
        place, job = self._job.pop()
        watch, began = self._search._watch, time.perf_counter()
        assert watch is not None
        return [(place, attempt(job, self._search.catalog, watch), time.perf_counter() - began)]

    def stop(self) -> None:
        """A run in this process hears Ctrl-C itself."""
