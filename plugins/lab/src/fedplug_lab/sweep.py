"""`fedplug sweep`: runs every combination of a grid, one after the other, and keeps a line for each.

The folder of a sweep holds a run folder for each combination and `sweep.jsonl`, one line a run. The same command goes
on where the last one stopped: what has its line is skipped, a run that was cut off is resumed from its checkpoint, a
run that failed is tried again.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fedplug.api import units
from fedplug.api.errors import CheckpointError, describe
from fedplug.recipe.catalog import Catalog
from fedplug.runs.execution import INTERRUPTED, Execution
from fedplug.runs.folder import write_text
from fedplug.runs.machine import resolve_device
from fedplug.runs.run import resume, start
from fedplug.runs.settings import Settings

from fedplug_lab.grid import Combination, combinations, read_grid
from fedplug_lab.records import Line, Records, at_work, result_of
from fedplug_lab.sweep_table import print_table, to_csv
from fedplug_lab.sweep_watch import SweepWatch


def sweep(
    recipe: Path,
    grid: Path,
    settings: Settings,
    sets: Sequence[str] = (),
    seeds: Sequence[int] = (),
    dry_run: bool = False,
    catalog: Catalog | None = None,
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

    Raises:
        RecipeError: the grid, or any combination of it, is wrong; nothing has run.
        SetupError: the engine, device or data folder is not there, or `sweep.jsonl` is damaged; nothing has run.
    """
    catalog = catalog or Catalog.discover()
    runs = combinations(recipe, read_grid(grid, seeds, sets), sets, catalog)
    # What would stop every run in the same way is found before the first one.
    Execution(runs[0].recipe, settings.output, settings, catalog)
    records = Records(settings.output)
    if dry_run:
        for number, one in enumerate(runs, 1):
            done = "  done" if records.is_done(one) else ""
            print(f"{number}/{len(runs)} {one.label}  ({one.recipe.digest[:12]}){done}")
        return 0
    resolve_device(settings.device)
    with at_work(settings.output):
        return _Sweep(runs, Records(settings.output), settings, catalog).run()


class _Sweep:
    """The loop over the runs."""

    def __init__(self, runs: Sequence[Combination], records: Records, settings: Settings, catalog: Catalog) -> None:
        self.runs, self.records, self.settings, self.catalog = runs, records, settings, catalog
        self.unfinished = records.unfinished(catalog)

    def run(self) -> int:
        """Runs what is missing, prints the table; gives the exit code."""
        done = sum(map(self.records.is_done, self.runs))
        if done and not self.settings.quiet:
            print(f"{done} of {len(self.runs)} are done already")
        try:
            for number, one in enumerate(self.runs, 1):
                if not self.records.is_done(one) and not self._one(number, one):
                    return self._interrupted()
        except KeyboardInterrupt:
            return self._interrupted()
        lines = [line for one in self.runs if (line := self.records.of(one))]
        print_table(lines)
        self._write_csv(lines)
        failed = [line for line in lines if line.result is None]
        if failed:
            print(f"{len(failed)} of {len(self.runs)} runs failed; the same command tries them again", file=sys.stderr)
        return 1 if failed else 0

    def _one(self, number: int, one: Combination) -> bool:
        """Runs one combination and records it; False if it was interrupted."""
        watch = SweepWatch(sys.stdout, f"{number}/{len(self.runs)} {one.label}", one.recipe.rounds, self.settings.quiet)
        began = time.perf_counter()
        line = Line(one.recipe.digest, one.case, dict(one.parameters), one.recipe.seed)
        try:
            code, run_dir, resumed = self._execute(one, watch)
        except Exception as error:
            line.error = describe(error)
            self.records.add(line)
            watch.result(f"failed: {line.error}", always=True)
            return True
        if code == INTERRUPTED:
            return False
        line.result, line.resumed, line.run = result_of(run_dir), resumed, run_dir.name
        self.records.add(line)
        found = line.result
        of_personal = f", personal {units.number(found.personal_accuracy.mean)}" if found.personal_accuracy else ""
        watch.result(
            f"accuracy {units.number(found.accuracy)}{of_personal}, epsilon {units.number(found.epsilon)}, "
            f"{units.duration(time.perf_counter() - began)}"
        )
        return True

    def _execute(self, one: Combination, watch: SweepWatch) -> tuple[int, Path, bool]:
        """Exit code and folder of the run, and whether it was resumed."""
        folder = self.unfinished.get(one.recipe.digest)
        if folder is not None:
            try:
                return resume(folder, self.settings, None, self.catalog, watch), folder, True
            except CheckpointError as error:
                watch.note(f"{error}; it starts anew")
        name = re.sub(r"[^A-Za-z0-9._=-]+", "-", one.label).strip("-.")[:80] or "run"
        return *start(one.recipe, self.settings, self.catalog, name, watch), False

    def _interrupted(self) -> int:
        lines = [line for one in self.runs if (line := self.records.of(one))]
        print()  # the line of the run has no end yet
        self._write_csv(lines)
        print(f"Interrupted; {len(lines)} of {len(self.runs)} runs are recorded in {self.records.file}. "
              "The same command goes on.")  # fmt: skip
        return INTERRUPTED

    def _write_csv(self, lines: Sequence[Line]) -> None:
        if lines:
            file = self.records.folder / "sweep.csv"
            write_text(file, to_csv(lines))
            if not self.settings.quiet:
                print(f"table: {file}")
