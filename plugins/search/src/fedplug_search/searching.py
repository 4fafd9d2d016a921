"""`fedplug search`: constraints in, protocols out.

A search has a folder: a run folder for each run, the study, and the answer in `search.html`, `trials.csv`,
`trials.json`, `best.yaml` and, where several protocols are on the front, `front/`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.data import ACCURACY
from fedplug.api.errors import CheckpointError, RecipeError, SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import closest
from fedplug_lab.api import (
    Compared,
    Job,
    OneRun,
    Outcome,
    Shelf,
    SweepWatch,
    Wanted,
    at_once,
    at_work,
    make_runs,
    numbers_of,
    open_run,
    short_names,
    verdicts_of,
)
from fedplug_runs import units
from fedplug_runs.execution import INTERRUPTED, Equipment
from fedplug_runs.folder import read_ledger, read_rows
from fedplug_runs.machine import command_line, resolve_device
from fedplug_runs.overlay import load_recipe
from fedplug_runs.own_files import with_files
from fedplug_runs.settings import Settings
from fedplug_runs.trust import Consent
from fedplug_terminal.lines import tell

from fedplug_search.answer import FAILED, MET, MISSED, PRUNED, REFUSED, Answer, Made, Told, judged
from fedplug_search.files import BEST, write_recipes, write_search_page, write_tables
from fedplug_search.limits import known, name_of, so_far
from fedplug_search.measures import in_words, measure
from fedplug_search.private import Choice, drawn, made_again
from fedplug_search.question import PRUNE, Asked, Params, Question, leading_of, read_question
from fedplug_search.store import AHEAD, Store, is_foreseen, next_params


def search(recipe: Path, settings: Settings, asked: Asked, catalog: Catalog | None = None) -> int:
    """The command: searches, or continues a search, and prints the answer.

    Returns:
        The exit code: 1 where nothing meets the constraints, 130 where it was interrupted.

    Raises:
        RecipeError, SetupError: as `find`.
    """
    catalog = catalog or Catalog.discover()
    if asked.dry_run:
        _tell_plan(_checked(recipe, settings, asked, catalog)[0], asked)
        return 0
    answer = find(recipe, settings, asked, catalog)
    if answer.stopped and not settings.quiet:
        print(f"Stopped: {answer.stopped}.")
    if not answer.complete:
        again = f": {command_line()}" if command_line() else "."
        ended = f"{len(answer.told)} of {answer.facts['trials']} trials have ended"
        print(f"Interrupted; {ended}, and what the others have is kept. The same command goes on{again}")
        return INTERRUPTED
    _show(answer, settings.quiet)
    return 0 if answer.front else 1


def find(recipe: Path, settings: Settings, asked: Asked, catalog: Catalog) -> Answer:
    """Searches, or continues a search, and writes the answer, also after an interruption.

    Args:
        recipe: the file that is varied.
        settings: of this machine; `output` is the folder of the search.
        asked: the rest of the command line.
        catalog: the components on offer.

    Raises:
        RecipeError: what is asked is wrong; holds every mistake. Nothing has run.
        SetupError: this machine lacks something, or the folder holds another search. Nothing has run.
    """
    question, catalog, equipment = _checked(recipe, settings, asked, catalog)
    resolve_device(settings.device)
    price = None
    if question.private is not None:
        price = Choice.of(question, question.private, catalog, settings.data)
        asked = dataclasses.replace(asked, prune="none")
    with at_work(settings.output, "search"):
        store = Store(settings.output, question, {"--search-seed": asked.search_seed, "--prune": asked.prune})
        _require_unchanged(question, store, catalog)
        kind = Search if price is None else PrivateSearch
        looking = kind(question, store, asked, settings, catalog)
        if store.told and not settings.quiet:
            print(f"{len(store.told)} of {max(looking.most, store.size)} trials have ended already")
        at_a_time = at_once(asked.jobs, looking.most - len(store.told), equipment, settings)
        complete = make_runs(looking.ask, catalog, at_a_time, settings.quiet)
        if question.private is not None and (again := made_again(settings.output)):
            price = Choice.of(question, question.private, catalog, settings.data, again)
        told = dict(sorted(store.told.items()))
        values = {number: question.space.values(store.params(number)) for number in told}
        facts = {
            "command": command_line(), "search seed": asked.search_seed, "trials at a time": at_a_time,
            "pruning": PRUNE[asked.prune], "complete": complete, "trials": looking.most,
        }  # fmt: skip
        why = looking.why if store.counted(set(store.told)) != question.space.size() else ""
        answer = Answer(question, told, values, settings.output, facts, (), why, price)
        write_tables(answer)
        answer = dataclasses.replace(answer, recipes=write_recipes(answer, catalog))
        write_search_page(answer)
        return answer


def _checked(recipe: Path, settings: Settings, asked: Asked, catalog: Catalog) -> tuple[Question, Catalog, Equipment]:
    """The question, after the checks for everything that would stop every run, the components on offer, and what this
    machine runs them with.
    """
    if asked.prune not in PRUNE:
        raise SetupError(f"--prune {asked.prune}: {closest(asked.prune, PRUNE)}")
    catalog = with_files(catalog, settings.plugins, Consent(settings.trust or not asked.dry_run, ask=True))
    question = read_question(recipe, asked, catalog)
    return question, catalog, Equipment(settings, catalog)


def _require_unchanged(question: Question, store: Store, catalog: Catalog) -> None:
    """Refuses to continue where trials would be of another recipe now: a file that they name, or a plugin, has changed.

    Raises:
        SetupError: names the first.
    """
    for number, told in sorted(store.told.items()):
        for made in told.runs:
            changes = question.changes(question.space.values(store.params(number)), made.seed)
            try:
                same = load_recipe(question.recipe, changes, catalog).digest == made.digest
            except RecipeError:
                same = False
            if not same:
                raise SetupError(
                    f"trial {number + 1} of {store.file.parent} was of another recipe than the same values make now: a "
                    "file that they name, or a plugin, has changed since; put it back, or take another --output"
                )


def _tell_plan(question: Question, asked: Asked) -> None:
    """What would be searched."""
    size = question.space.size()
    for path, dimension in question.space.dimensions.items():
        tell(f"choose {path}: {dimension}")
    for constraint in question.constraints:
        tell(f"require {constraint}")
    for name, better in question.objectives.items():
        tell(f"weigh {name}: {'more' if better == 'higher' else 'less'} is better")
    every = size is not None and size <= asked.trials and question.private is None
    if question.private is not None:
        tell(f"draw how many of {size} combinations are tried: {question.private}; each is drawn anew")
        return
    trials = f"all {size} combinations" if every else f"{asked.trials} of {size or 'countless'} combinations"
    tell(f"try {trials}, each with seed {', '.join(map(str, question.seeds))}; {PRUNE[asked.prune]}")


def _show(answer: Answer, quiet: bool) -> None:
    """Prints the answer."""
    from fedplug_lab.terminal import Rows, console
    from rich.text import Text

    tell(answer.headline())
    if answer.front:
        names = short_names(list(answer.question.space.dimensions))
        shown = answer.question.shown
        titles = ["trial", *shown, *(path if name in shown else name for path, name in names.items())]
        rows = [[*map(Text, [str(number + 1), *answer.cells(number)])] for number in answer.front]
        console().print(Rows(titles, rows, right=range(len(titles))), crop=False)
    else:
        for line in answer.shortfall():
            tell(line)
    for line in answer.unlike:
        tell(f"not comparable: {line}")
    if not quiet:
        if luck := answer.luck():
            tell(f"note: {luck}")
        for line in answer.privacy():
            tell(f"privacy: {line}")
    if failed := answer.counts.get("failed"):
        again = "" if answer.private else "the same command tries them again, and "
        tell(f"{failed} trials failed; {again}the page says why", sys.stderr)
    if answer.front:
        print(f"recipe: {answer.folder / BEST}")
    print(f"page: {answer.page}")


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
        reached = [known(run.rows) for run in self.runs]
        if outcome is not None and outcome.run_dir is not None:
            reached.append(dict(outcome.known))
            told.reason = f"seed {told.runs[-1].seed}: {reason}" if several else reason
        elif several and told.runs:
            told.reason = f"after seed {told.runs[-1].seed}: {reason}"
        for name in reached[-1] if reached else ():
            found = [each[name] for each in reached if name in each]
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
                figures = units.finite(run.result.number_of(leads) for run in self.runs)
                if len(figures) < len(self.runs):
                    continue
                # The runs that are still to come may all be right; how good another figure can be nobody knows.
                asked = count * bound - math.fsum(figures)
                if leads.name == ACCURACY.name:
                    asked -= count - 1 - len(figures)
                    if asked > 1:
                        return {}, f"accuracy is {show(1 - (asked - 1) / count)} at most, below {show(bound)}"
                elif count - len(figures) > 1:
                    continue
                if prune == "all" and (asked > 0 or leads.name != ACCURACY.name):
                    limits["leading"] = asked
        return limits, ""


_ALIKE = 3  # trials in a row that fail for one reason and end the search: the next would too


class Search:
    """The loop: what to try is chosen, run, judged and written down.

    A trial is one recipe with each of the seeds, one after the other. Runs that are there already count, those that
    were cut off go on. Trial n is chosen from the results of the trials up to n - `AHEAD`, or n - jobs if that is less,
    and from those alone, whichever of the others has ended: the same command makes the same choices, interrupted or
    not, on a machine with few cores or many.

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

    def ask(self) -> Wanted | None:
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
        if self.why:
            return None
        if self.store.counted(self._now) >= self.asked.trials:
            return None
        if time.monotonic() > self._deadline:
            self.why = "the time of --timeout is over"
            return None
        store, asked, tried = self.store, self.asked, self._tried()
        ahead = max(AHEAD, asked.jobs or 0)
        space, which = self.question.space, (tried, asked.search_seed, store.size, asked.trials)
        if len(store.open) >= ahead and not is_foreseen(space, *which):
            return None
        history = store.history(max(0, store.size - ahead + 1))
        params = next_params(space, store.study.directions, history, *which)
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
            going.recipes = [
                load_recipe(self.question.recipe, self.question.changes(values, seed), self.catalog)
                for seed in self.question.seeds
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
            settings = self.settings.replace({"output": self._home(going)})
            shelf = Shelf(settings.output, [going.next.digest])
            if found := shelf.found.get(going.next.digest):
                going.add(found)
                continue
            if limits:
                listener = json.dumps({"use": "search.limits", **limits})
                settings = settings.replace({"listeners": (*settings.listeners, listener)})
            unfinished = shelf.unfinished(self.catalog).get(going.next.digest)
            return Job.of(going.next, self._label(going), unfinished, settings)
        if going.recipes:
            self._end(going, going.judged())
        return None

    def _home(self, going: Going) -> Path:
        """Where its runs are, and may be already."""
        return self.settings.output

    def _take(self, going: Going, outcome: Outcome, seconds: float, watch: SweepWatch) -> None:
        """Takes note of a run that has ended."""
        if outcome.error:
            digest = going.next.digest
            cut_off = Shelf(self._home(going), [digest]).unfinished(self.catalog).get(digest)
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


class PrivateSearch(Search):
    """The same where the number of trials was drawn, and each trial's values: the best alone is given.

    Two trials with the same values are two runs, since the second has other noise. What fails is not made again.
    """

    def __init__(self, question: Question, store: Store, asked: Asked, settings: Settings, catalog: Catalog) -> None:
        super().__init__(question, store, asked, settings, catalog)
        assert question.private is not None
        self._drawn = drawn(settings.output, question, question.private)
        self.most = len(self._drawn)

    def _next(self) -> Going | None:
        self._write()
        if self._waiting:
            number = min(self._waiting)
            return self._begin(number, self._waiting.pop(number))
        if self.why or self.store.size >= len(self._drawn):
            return None
        params = self._drawn[self.store.size]
        return self._begin(self.store.begin(params), params)

    def _home(self, going: Going) -> Path:
        return self.settings.output / f"trial-{going.number + 1}"

    def _end(self, going: Going, told: Told, watch: SweepWatch | None = None, words: str = "") -> None:
        super()._end(going, told, watch, words)
        self.why = ""  # failures tell of data, and by data nobody may end it early


def _first(told: Told) -> str:
    """Why a trial failed, without how to continue its run."""
    return told.reason.partition("\n")[0]
