"""`fedplug sweep`: runs every combination of a grid, one after the other, and keeps a line for each.

The folder of a sweep holds a run folder for each combination, `sweep.jsonl`, one line a run, and a page, `sweep.html`.
The same command continues where the last one stopped: a run that is complete is not made again, one that was cut off
is resumed from its checkpoint, one that failed is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedplug.recipe.catalog import Catalog
from fedplug_runs.execution import INTERRUPTED, command_line, resolve_device
from fedplug_runs.files import write_text
from fedplug_runs.own_files import with_files
from fedplug_runs.settings import Settings
from fedplug_runs.trust import Consent

from fedplug_lab.grid import combinations, read_grid
from fedplug_lab.records import at_work
from fedplug_lab.study import Study
from fedplug_lab.sweep_table import print_table, to_csv, write_sweep_page


def sweep(
    recipe: Path,
    grid: Path,
    settings: Settings,
    sets: Sequence[str] = (),
    seeds: Sequence[int] = (),
    dry_run: bool = False,
    catalog: Catalog | None = None,
    jobs: int = 1,
) -> int:
    """Runs what is missing of a sweep; gives the exit code.

    Args:
        recipe: the recipe that the grid varies.
        grid: the grid file; see `fedplug_lab.grid`.
        settings: of this machine; `output` is the folder of the sweep.
        sets: `path=value` for every run.
        seeds: each combination is run with each of them; with the recipe's own seed if empty.
        dry_run: only checks all combinations, and says which are missing.
        catalog: the components on offer; those installed if None.
        jobs: how many run at a time.

    Raises:
        RecipeError: the grid, or any combination of it, is wrong; nothing has run.
        SetupError: the engine, device or data folder is not there; nothing has run.
    """
    catalog = catalog or Catalog.discover()
    consent = Consent(settings.trust or not dry_run, ask=True)
    runs = combinations(recipe, read_grid(grid, seeds, sets), sets, with_files(catalog, settings.plugins, consent))
    study = Study(runs, settings, catalog)
    if dry_run:
        study.tell()
        return 0
    resolve_device(settings.device)
    with at_work(settings.output, "sweep"):
        whole = study.run(jobs, after_each=lambda: _write_lines(study))
        _write_lines(study)
        if lines := study.lines():
            if whole:
                print_table(lines)
            file = settings.output / "sweep.csv"
            write_text(file, to_csv(lines))
            page = write_sweep_page(settings.output, lines, len(runs), command_line())
            if not settings.quiet:
                print(f"table: {file}")
                print(f"page: {page}")
        return study.tell_failures() if whole else INTERRUPTED


def _write_lines(study: Study) -> None:
    text = "".join(line.to_json() + "\n" for line in study.lines())
    write_text(study.settings.output / "sweep.jsonl", text)
