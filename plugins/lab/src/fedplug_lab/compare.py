"""`fedplug compare`: runs what is not there yet, and sets the runs side by side in a table and a page.

A comparison leaves a folder with `compare.html` and its table as CSV, JSON, LaTeX and Markdown next to the runs. Runs
below the folder of runs that are complete and of the same recipe and seed are used, those that were cut off continue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.source import closest
from fedplug_runs.execution import INTERRUPTED, command_line, resolve_device
from fedplug_runs.files import private_folder, write_text
from fedplug_runs.own_files import with_files
from fedplug_runs.settings import Settings
from fedplug_runs.trust import Consent
from fedplug_terminal.lines import tell

from fedplug_lab.comparable import warnings
from fedplug_lab.compare_formats import FORMATS, brief, print_table, write_compare_page
from fedplug_lab.compare_table import columns, reasons, summary_of
from fedplug_lab.grid import Contest, is_comparison, of_recipes, read_contest, runs_of, seed_problems
from fedplug_lab.records import Compared, at_work, of_combinations, of_folders
from fedplug_lab.study import Study


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command line asks for besides what to compare.

    Attributes:
        baseline: the name of the one that the others are compared with; empty for that of the file, or the first.
        seeds: of all recipes; those of the file, or the recipes' own, if empty.
        sets: `path=value` for every recipe.
        jobs: how many run at a time.
        dry_run: only checks, and says what is missing.
        format: print the table as `csv`, `json`, `latex` or `markdown`; empty: for people.
    """

    baseline: str = ""
    seeds: Sequence[int] = ()
    sets: Sequence[str] = ()
    jobs: int = 1
    dry_run: bool = False
    format: str = ""


def compare(what: Sequence[Path], settings: Settings, asked: Asked, catalog: Catalog | None = None) -> int:
    """Compares recipes, the recipes of one comparison file, or runs that are there; gives the exit code.

    Args:
        what: recipes, one comparison file, or run folders.
        settings: of this machine; `output` is where runs are looked for and made.
        asked: the rest of the command line.
        catalog: the components on offer; those installed if None.

    Raises:
        RecipeError: a comparison file, or any recipe, is wrong; nothing has run.
        CheckpointError: a folder holds no run that can be read.
        SetupError: what is given does not go together, or this machine lacks something; nothing has run.
    """
    if asked.format and asked.format not in FORMATS:
        raise SetupError(f"--format {asked.format}: {closest(asked.format, FORMATS)}")
    settings = settings.replace({"quiet": True}) if asked.format else settings
    folders = [path for path in what if path.is_dir()]
    if folders:
        return _of_runs(folders, what, settings, asked)
    contest = _contest(what)
    seeds = tuple(asked.seeds) or contest.seeds
    if problems := seed_problems(seeds, asked.sets):
        raise SetupError("\n".join(problems))
    contest = dataclasses.replace(contest, seeds=seeds, baseline=asked.baseline or contest.baseline)
    catalog = catalog or Catalog.discover()
    consent = Consent(settings.trust or not asked.dry_run, ask=True)
    by_case = runs_of(contest, asked.sets, with_files(catalog, settings.plugins, consent))
    runs = [one for case in by_case for one in case]
    names = list(dict.fromkeys(one.case for one in runs))
    _require_baseline(contest.baseline, names)
    study = Study(runs, settings, catalog)
    if asked.dry_run:
        study.tell()
        return 0
    resolve_device(settings.device)
    with at_work(settings.output / f"compare-{contest.title}", "compare"):
        # With a format, nothing else goes to the standard output.
        with contextlib.redirect_stdout(sys.stderr if asked.format else sys.stdout):
            if not study.run(asked.jobs):
                return INTERRUPTED
        code = study.tell_failures()
        for title, its in zip(contest.titles, by_case, strict=True):
            everyone = of_combinations(its, study.found)
            if len(everyone) < 2 or contest.baseline not in ("", *(each.name for each in everyone)):
                where = f" in {title}" if contest.cases else ""
                raise SetupError(
                    f"there is nothing to compare{where}: that needs a run of the baseline and one of another recipe"
                )
            _show(dataclasses.replace(contest, title=title), everyone, settings, asked)
    return code


def _contest(what: Sequence[Path]) -> Contest:
    """What the arguments say.

    Raises:
        RecipeError: a comparison file is wrong.
        SetupError: a comparison file together with something else, or one recipe alone.
    """
    files = [path for path in what if is_comparison(path)]
    if len(files) == len(what) == 1:
        return read_contest(files[0])
    if files:
        raise SetupError(f"{files[0]} is a whole comparison; give it alone, or recipes without it")
    if len(what) < 2:
        raise SetupError(f"{what[0]} alone cannot be compared; name two recipes or more, or a comparison file")
    return of_recipes(what)


def _of_runs(folders: Sequence[Path], what: Sequence[Path], settings: Settings, asked: Asked) -> int:
    """Compares runs that are there."""
    if others := [path for path in what if path not in folders]:
        raise SetupError(f"{others[0]} is not a folder, and the others are: compare recipes, or runs, not both")
    given = {"--seeds": asked.seeds, "--set": asked.sets, "--dry-run": asked.dry_run}
    if ignored := [name for name, value in given.items() if value]:
        raise SetupError(f"{ignored[0]} changes nothing about runs that are there; leave it out")
    everyone = of_folders(folders)
    if len(everyone) < 2:
        raise SetupError(f"all of these runs are of one protocol, {everyone[0].name}; name runs of two or more")
    names = [each.name for each in everyone]
    _require_baseline(asked.baseline, names)
    title = "-".join(dict.fromkeys(each.one.summary.name for each in everyone))[:60]
    contest = Contest(f"runs-{title}", "", asked.baseline, (), ())
    with at_work(settings.output / f"compare-{contest.title}", "compare"):
        _show(contest, everyone, settings, asked)
    return 0


def _require_baseline(name: str, names: Sequence[str]) -> None:
    if name and name not in names:
        raise SetupError(f"the baseline {name!r} is not among what is compared; {closest(name, names)}")


def _show(contest: Contest, everyone: Sequence[Compared], settings: Settings, asked: Asked) -> None:
    """Prints the table and writes the files."""
    baseline = next((each for each in everyone if each.name == contest.baseline), everyone[0])
    warned = warnings(everyone)
    spoiled = {group for warning in warned for group in warning.spoils}
    table, summary = columns(everyone, baseline, spoiled), summary_of(everyone, spoiled)
    about: Mapping[str, Any] = {
        "title": contest.title, "question": contest.question, "baseline": baseline.name, "summary": summary,
        "warnings": [warning.text for warning in warned], "command": command_line(),
    }  # fmt: skip
    folder = settings.output / f"compare-{contest.title}"
    private_folder(folder)
    for file, write in FORMATS.values():
        write_text(folder / file, write(table, everyone, about))
    page = write_compare_page(folder / "compare.html", everyone, table, about)
    if asked.format:
        print(FORMATS[asked.format][1](table, everyone, about), end="")
        return
    _, _, case = contest.title.partition("/")
    if contest.question or case:
        tell(": ".join(filter(None, (case, contest.question))))
    for said in summary:
        tell(said)
    print()
    print_table(table)
    for warning in warned:
        tell(f"not comparable: {warning.text}")
    if not settings.quiet:
        # The table itself says why there is no guarantee.
        for reason in reasons([c for c in brief(table) if not c.cells[0].values.get("state")]):
            tell(f"no number: {reason}")
    print(f"page: {page}")
