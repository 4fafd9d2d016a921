"""`fedplug search`: constraints in, protocols out.

A search has a folder: a run folder for each run, the study, and the answer in `search.html`, `trials.csv`,
`trials.json`, `best.yaml` and, where several protocols are on the front, `front/`.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from fedplug.api.errors import RecipeError, SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.source import closest
from fedplug_lab.api import at_work, short_names
from fedplug_runs.execution import INTERRUPTED, Equipment, command_line, resolve_device
from fedplug_runs.overlay import load_recipe
from fedplug_runs.own_files import with_files
from fedplug_runs.settings import Settings
from fedplug_runs.trust import Consent
from fedplug_terminal.lines import tell

from fedplug_search.answer import Answer
from fedplug_search.files import BEST, rows_of, write_recipes, write_search_page, write_tables
from fedplug_search.question import PRUNE, Asked, Question, assignments, read_question
from fedplug_search.store import Store
from fedplug_search.work import Search


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
        most = min(asked.trials, answer.question.space.size() or asked.trials)
        print(f"Interrupted; {len(answer.told)} of {most} trials have ended, and what the others have is kept. "
              f"The same command goes on{again}")  # fmt: skip
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
    question, catalog = _checked(recipe, settings, asked, catalog)
    resolve_device(settings.device)
    with at_work(settings.output, "search"):
        store = Store(settings.output, question, {"--search-seed": asked.search_seed, "--prune": asked.prune})
        _require_unchanged(question, store, catalog)
        looking = Search(question, store, asked, settings, catalog)
        if store.told and not settings.quiet:
            print(f"{len(store.told)} of {max(looking.most, store.size)} trials have ended already")
        complete = looking.run()
        told = dict(sorted(store.told.items()))
        values = {number: question.space.values(store.params(number)) for number in told}
        facts = {
            "command": command_line(), "search seed": asked.search_seed, "trials at a time": asked.jobs,
            "pruning": PRUNE[asked.prune], "complete": complete,
        }  # fmt: skip
        why = looking.why if store.counted(set(store.told)) != question.space.size() else ""
        answer = Answer(question, told, values, settings.output, facts, (), why)
        write_tables(answer)
        answer = dataclasses.replace(answer, recipes=write_recipes(answer, catalog))
        write_search_page(answer)
        return answer


def _checked(recipe: Path, settings: Settings, asked: Asked, catalog: Catalog) -> tuple[Question, Catalog]:
    """The question, after the checks for everything that would stop every run, and the components on offer."""
    if asked.prune not in PRUNE:
        raise SetupError(f"--prune {asked.prune}: {closest(asked.prune, PRUNE)}")
    catalog = with_files(catalog, settings.plugins, Consent(settings.trust or not asked.dry_run, ask=True))
    question = read_question(recipe, asked, catalog)
    Equipment(settings, catalog)
    return question, catalog


def _require_unchanged(question: Question, store: Store, catalog: Catalog) -> None:
    """Refuses to continue where trials would be of another recipe now: a file that they name, or a plugin, has changed.

    Raises:
        SetupError: names the first.
    """
    for number, told in sorted(store.told.items()):
        for made in told.runs:
            sets = [*question.sets, *assignments(question.space.values(store.params(number))), f"seed={made.seed}"]
            try:
                same = load_recipe(question.recipe, sets, catalog).digest == made.digest
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
    every = size is not None and size <= asked.trials
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
        rows = [[Text(cell) for cell in row] for row in rows_of(answer)]
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
        tell(f"{failed} trials failed; the same command tries them again, and the page says why", sys.stderr)
    if answer.front:
        print(f"recipe: {answer.folder / BEST}")
    print(f"page: {answer.page}")
