"""`fedplug search`: constraints in, protocols out.

A search has a folder: a run folder for each run, the study, and the answer in `search.html`, `trials.csv`,
`trials.json`, `best.yaml` and, where several protocols are on the front, `front/`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.option_errors import closest
from fedplug.runs.execution import INTERRUPTED, Execution
from fedplug.runs.machine import command_line, resolve_device
from fedplug.runs.settings import Settings
from fedplug_lab.api import at_work, short_names

from fedplug_search.answer import Answer
from fedplug_search.files import write_recipes, write_tables
from fedplug_search.measures import MEASURES
from fedplug_search.page import rows_of, write_search_page
from fedplug_search.question import Question, read_question
from fedplug_search.store import Store
from fedplug_search.work import Plan, Search

PRUNE = {
    "all": "a trial ends when it is certain to miss a constraint, or when its accuracy is hopeless",
    "certain": "a trial ends when it is certain to miss a constraint",
    "none": "every trial runs to its end",
}


@dataclasses.dataclass(frozen=True)
class Asked:
    """The command line beside the recipe and the settings.

    Attributes:
        over: `path=range`.
        least, most: `measure=bound`.
        objectives: names of measures.
        sets: `path=value` for every trial.
        seeds: every trial is run with each.
        file: a YAML file with more of the same.
        plan: how much is tried, and how.
        dry_run: only checks, and says what would be searched.
    """

    over: Sequence[str] = ()
    least: Sequence[str] = ()
    most: Sequence[str] = ()
    objectives: Sequence[str] = ()
    sets: Sequence[str] = ()
    seeds: Sequence[int] = ()
    file: Path | None = None
    plan: Plan = dataclasses.field(default_factory=Plan)
    dry_run: bool = False


def search(recipe: Path, settings: Settings, asked: Asked, catalog: Catalog | None = None) -> int:
    """Searches, or goes on with a search; gives the exit code: 1 where nothing meets the constraints.

    Args:
        recipe: the file that is varied.
        settings: of this machine; `output` is the folder of the search.
        asked: the rest of the command line.
        catalog: the components on offer; those installed if None.

    Raises:
        RecipeError: what is asked is wrong; holds every mistake. Nothing has run.
        SetupError: this machine lacks something, or the folder holds another search. Nothing has run.
    """
    catalog, plan = catalog or Catalog.discover(), asked.plan
    if plan.prune not in PRUNE:
        raise SetupError(f"--prune {plan.prune}: {closest(plan.prune, PRUNE)}")
    question = read_question(
        recipe, catalog, asked.over, asked.least, asked.most, asked.objectives, asked.sets, asked.seeds, asked.file
    )
    Execution(question.base, settings.output, settings, catalog)  # what would stop every run is found before the first
    if asked.dry_run:
        _tell_plan(question, plan)
        return 0
    resolve_device(settings.device)
    with at_work(settings.output, "search"):
        store = Store(settings.output, question, {"--search-seed": plan.seed, "--prune": plan.prune})
        if store.told and not settings.quiet:
            most = min(plan.trials, question.space.size() or plan.trials)
            print(f"{len(store.told)} of {max(most, store.size)} trials have ended already")
        looking = Search(question, store, plan, settings, catalog)
        complete = looking.run()
        told = dict(sorted(store.told.items()))
        values = {number: question.space.values(store.params(number)) for number in told}
        facts = {
            "command": command_line(), "search seed": plan.seed, "trials at a time": plan.jobs,
            "pruning": PRUNE[plan.prune], "complete": complete,
        }  # fmt: skip
        answer = Answer(question, told, values, settings.output, facts)
        write_tables(answer)
        recipes, page = write_recipes(answer, catalog), write_search_page(answer)
        if looking.why and not settings.quiet and store.counted(set(store.told)) != question.space.size():
            print(f"Stopped: {looking.why}.")
        if not complete:
            again = f": {command_line()}" if command_line() else "."
            print(f"Interrupted; {len(told)} of {plan.trials} trials have ended, and what the others have is kept. "
                  f"The same command goes on{again}")  # fmt: skip
            return INTERRUPTED
        _show(answer, recipes, page, settings.quiet)
        return 0 if answer.front else 1


def _tell_plan(question: Question, plan: Plan) -> None:
    """What would be searched."""
    size = question.space.size()
    for path, dimension in question.space.dimensions.items():
        print(f"choose {path}: {dimension}")
    for constraint in question.constraints:
        print(f"require {constraint}")
    for name in question.objectives:
        print(f"weigh {name}: {'more' if MEASURES[name].more_is_better else 'less'} is better")
    every = size is not None and size <= plan.trials
    trials = f"all {size} combinations" if every else f"{plan.trials} of {size or 'countless'} combinations"
    print(f"try {trials}, each with seed {', '.join(map(str, question.seeds))}; {PRUNE[plan.prune]}")


def _show(answer: Answer, recipes: Sequence[Path], page: Path, quiet: bool) -> None:
    """Prints what it came to."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    print(answer.headline())
    if answer.front:
        names = short_names(list(answer.question.space.dimensions))
        shown = Table(box=None, pad_edge=False, header_style="bold")
        for title in ["trial", *answer.shown, *names.values()]:
            shown.add_column(title, justify="right", overflow="fold")
        for row in rows_of(answer):
            shown.add_row(*map(Text, row))
        Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 240).print(shown)
    else:
        for line in answer.shortfall():
            print(line)
    for line in answer.privacy() if not quiet else ():
        print(f"privacy: {line}")
    if failed := answer.counts.get("failed"):
        print(f"{failed} trials failed; the same command tries them again, and the page says why", file=sys.stderr)
    for file in recipes[:1]:
        print(f"recipe: {file}")
    print(f"page: {page}")
