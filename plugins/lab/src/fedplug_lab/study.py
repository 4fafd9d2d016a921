"""A study of a list of runs: makes what is missing. What was cut off is resumed, what fails stops no other."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fedplug.api.errors import CheckpointError, RecipeError, SetupError
from fedplug.recipe.catalog import Catalog
from fedplug_ledger.verdict_words import number
from fedplug_runs import units
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.execution import Equipment
from fedplug_runs.files import read_text
from fedplug_runs.folder import load_run, writer_of
from fedplug_runs.settings import Settings
from fedplug_terminal.lines import tell

from fedplug_lab.compared import NotBegun, OneRun, open_run
from fedplug_lab.grid import Combination
from fedplug_lab.jobs import Job, Outcome, Wanted, make_runs
from fedplug_lab.records import Line
from fedplug_lab.results import Result
from fedplug_lab.sections import sections_of_plugins
from fedplug_lab.sweep_watch import SweepWatch


class Shelf:
    """The runs below a folder: complete ones count, interrupted ones continue.

    Args:
        folder: with run folders in it, or in folders in it; need not exist.
        wanted: digests of the recipes of which runs are looked for.

    Attributes:
        found: folders of complete runs, by digest; of several the last one.
        notes: of runs that would have counted, why they do not.
    """

    def __init__(self, folder: Path, wanted: Sequence[str]) -> None:
        self.found, self.notes = dict[str, Path](), list[str]()
        self._others: list[Path] = []
        files = [file for pattern in ("*/recipe.yaml", "*/*/recipe.yaml") for file in folder.glob(pattern)]
        for file in sorted(files, key=lambda file: _started(file.parent)):
            self._look(file.parent, {*wanted})

    def _look(self, folder: Path, wanted: set[str]) -> None:
        digest = _digest(folder)
        if digest is not None and digest not in wanted:
            return
        try:
            if digest is not None and is_whole(open_run(folder)):
                self.found[digest] = folder
                return
        except NotBegun:  # it continues
            pass
        except CheckpointError as error:
            self.notes.append(f"not used: {error}")
        if by := writer_of(folder):
            self.notes.append(f"not waited for: {folder} is being written by {by}; this study makes its own run")
        else:
            self._others.append(folder)

    def unfinished(self, catalog: Catalog) -> dict[str, Path]:
        """Folders of runs that were cut off and have a checkpoint, by digest of their recipe."""
        found = {}
        for folder in self._others:
            if Checkpoints(folder).rounds():
                # One of a plugin that has changed since, or with code that never ran here, is run anew.
                with contextlib.suppress(RecipeError, SetupError):
                    found[load_run(folder, catalog).digest] = folder
        return found


def is_whole(run: OneRun) -> bool:
    """Whether a run has all rounds, and all that its recipe wants done with it afterwards."""
    recipe = run.summary.recipe
    return len(run.rows) == run.planned and not any(
        section.is_awaited(run.folder, recipe) for section in sections_of_plugins()
    )


def _digest(folder: Path) -> str | None:
    """Of a run's recipe, as it wrote it at its end; None where it did not come that far."""
    try:
        return str(json.loads(read_text(folder / "summary.json"))["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _started(folder: Path) -> tuple[str, str]:
    """When a run began, as the name of its folder says, for sorting."""
    stamp = re.search(r"\d{8}-\d{6}(-\d+)?$", folder.name)
    return stamp[0] if stamp else "", str(folder)


class Study:
    """A list of runs, of which some may be there.

    Args:
        runs: what is to be there in the end, in order.
        settings: of this machine; `output` is where runs are looked for and made.
        catalog: the components on offer.

    Attributes:
        found: folders of complete runs, by digest.

    Raises:
        SetupError: this machine lacks what would stop every run.
    """

    def __init__(self, runs: Sequence[Combination], settings: Settings, catalog: Catalog) -> None:
        self.runs, self.settings, self.catalog = runs, settings, catalog
        Equipment(settings, catalog)
        self._shelf = Shelf(settings.output, [one.recipe.digest for one in runs])
        self.found = self._shelf.found
        self._lines: dict[str, Line] = {}

    def tell(self) -> None:
        """Says which runs there are to be, and where those are that are there."""
        for place, one in enumerate(self.runs, 1):
            found = self.found.get(one.recipe.digest)
            tell(f"{self._title(place, one)}  ({one.recipe.digest[:12]}){f'  there: {found}' if found else ''}")

    def run(self, jobs: int, after_each: Callable[[], object] = lambda: None) -> bool:
        """Runs what is missing, several at a time where asked; False if it was interrupted."""
        for note in self._shelf.notes:
            tell(f"note: {note}")
        missing = [(place, one) for place, one in enumerate(self.runs, 1) if one.recipe.digest not in self.found]
        if len(missing) < len(self.runs) and not self.settings.quiet:
            print(f"{len(self.runs) - len(missing)} of {len(self.runs)} are done already")
        unfinished = self._shelf.unfinished(self.catalog)

        def take(one: Combination, outcome: Outcome, seconds: float, watch: SweepWatch) -> None:
            self._note(one, outcome.run_dir, outcome.error)
            after_each()
            result = self._lines[one.recipe.digest].result
            watch.result(_in_words(result, seconds) if result else f"failed: {outcome.error}", always=result is None)

        wanted = (
            Wanted(
                self._title(place, one),
                Job.of(one.recipe, one.label, unfinished.get(one.recipe.digest), self.settings),
                functools.partial(take, one),
            )
            for place, one in missing
        )
        at_a_time = min(jobs, max(1, len(missing)))
        whole = make_runs(lambda: next(wanted, None), self.catalog, at_a_time, self.settings.quiet)
        if not whole:
            done = f"{len(self.found)} of {len(self.runs)} runs are complete"
            tell(f"Interrupted; {done}. The same command goes on.")
        return whole

    def lines(self) -> list[Line]:
        """What is known of the runs by now, of those of which something is."""
        for one in self.runs:
            if one.recipe.digest in self.found and one.recipe.digest not in self._lines:
                self._note(one, self.found[one.recipe.digest])
        return [line for one in self.runs if (line := self._lines.get(one.recipe.digest))]

    def tell_failures(self) -> int:
        """Says how many failed; gives the exit code."""
        failed = [line for line in self._lines.values() if line.result is None]
        if failed:
            print(f"{len(failed)} of {len(self.runs)} runs failed; the same command tries them again", file=sys.stderr)
        return 1 if failed else 0

    def _title(self, place: int, one: Combination) -> str:
        return f"{place}/{len(self.runs)} {one.label}"

    def _note(self, one: Combination, folder: Path | None, error: str = "") -> None:
        line = Line(one.recipe.digest, one.case, dict(one.parameters), one.recipe.seed, error=error)
        if folder is not None:
            run = open_run(folder)
            line.result, line.resumed = run.result, run.summary.resumed
            line.run, self.found[line.digest] = str(folder.relative_to(self.settings.output)), folder
        self._lines[line.digest] = line


def _in_words(found: Result, seconds: float) -> str:
    """`accuracy 0.9, protected from 2 of 4 parties, epsilon up to 8.00, 3 s`: what of a client is protected."""
    of_groups = f", in groups {units.number(found.of_groups.mean)}" if found.of_groups else ""
    of_personal = f", personal {units.number(found.of_personal.mean)}" if found.of_personal else ""
    stated = [epsilon for epsilon in found.guarantees.values() if epsilon is not None]
    most = f", epsilon up to {number(max(stated))}" if stated else ""
    protected = f"protected from {len(stated)} of {len(found.guarantees)} parties{most}"
    figures = f"{found.leads.name} {units.number(found.leading)}{of_groups}{of_personal}"
    return f"{figures}, {protected}, {units.duration(seconds)}"
