"""Runs what is missing of a list of combinations: what was cut off is resumed, what fails does not stop the others.

A `Store` says which results exist; `sweep` and `compare` have one each.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fedplug.recipe.catalog import Catalog
from fedplug_ledger.verdict_words import number
from fedplug_runs import units
from fedplug_runs.settings import Settings

from fedplug_lab.grid import Combination
from fedplug_lab.jobs import Job, Outcome, attempt, several
from fedplug_lab.records import Line, result_of
from fedplug_lab.results import Result
from fedplug_lab.sweep_watch import SweepWatch


class Store(Protocol):
    """What is known of runs that ended."""

    @property
    def folder(self) -> Path:
        """Where runs are made."""

    def is_done(self, one: Combination) -> bool:
        """Whether the combination has run to its end."""

    def of(self, one: Combination) -> Line | None:
        """What is known of it; None where nothing is."""

    def add(self, line: Line) -> None:
        """Takes note of a run that ended, well or not."""

    def unfinished(self, catalog: Catalog) -> Mapping[str, Path]:
        """Folders of runs that were cut off and can continue, by digest."""


class Runner:
    """The loop over the runs.

    Args:
        runs: what is to be there in the end, in order.
        store: the results that exist.
        settings: of this machine; `output` is where new runs go.
        catalog: the components on offer.
        jobs: how many run at a time; more than one run in separate processes.
    """

    def __init__(
        self, runs: Sequence[Combination], store: Store, settings: Settings, catalog: Catalog, jobs: int = 1
    ) -> None:
        self.runs, self.store, self.settings, self.catalog, self.jobs = runs, store, settings, catalog, jobs
        self._unfinished = store.unfinished(catalog)

    def run(self) -> bool:
        """Runs what is missing; False if it was interrupted."""
        missing = [(number, one) for number, one in enumerate(self.runs, 1) if not self.store.is_done(one)]
        done = len(self.runs) - len(missing)
        if done and not self.settings.quiet:
            print(f"{done} of {len(self.runs)} are done already")
        try:
            if self.jobs > 1 and len(missing) > 1:
                return self._several(missing)
            for number, one in missing:
                watch = SweepWatch(sys.stdout, self._title(number, one), one.recipe.rounds, self.settings.quiet)
                began = time.perf_counter()
                outcome = attempt(self._job(one), self.catalog, watch)
                if outcome.interrupted:
                    print()  # the line of the run has no end yet
                    return False
                self._record(one, outcome, watch, time.perf_counter() - began)
        except KeyboardInterrupt:
            print()
            return False
        return True

    def lines(self) -> list[Line]:
        """What is known of the runs by now, of those of which something is."""
        return [line for one in self.runs if (line := self.store.of(one))]

    def tell_failures(self) -> int:
        """Says how many failed; gives the exit code."""
        failed = [line for line in self.lines() if line.result is None]
        if failed:
            print(f"{len(failed)} of {len(self.runs)} runs failed; the same command tries them again", file=sys.stderr)
        return 1 if failed else 0

    def _several(self, missing: Sequence[tuple[int, Combination]]) -> bool:
        """Several at a time, in processes; their lines come in the order in which they end."""
        jobs = [self._job(one) for _, one in missing]
        whole = True
        for place, outcome, seconds in several(jobs, self.catalog, self.jobs):
            number, one = missing[place]
            if outcome.interrupted:
                whole = False
                continue
            watch = SweepWatch(sys.stdout, self._title(number, one), one.recipe.rounds, self.settings.quiet)
            for note in outcome.notes:
                watch.note(note)
            self._record(one, outcome, watch, seconds)
        return whole

    def _title(self, number: int, one: Combination) -> str:
        return f"{number}/{len(self.runs)} {one.label}"

    def _job(self, one: Combination) -> Job:
        name = re.sub(r"[^A-Za-z0-9._=-]+", "-", one.label).strip("-.")[:80] or "run"
        unfinished = self._unfinished.get(one.recipe.digest)
        return Job(one.recipe.to_plain(), name, unfinished, self.settings, one.recipe.own_files, one.recipe.origin)

    def _record(self, one: Combination, outcome: Outcome, watch: SweepWatch, seconds: float) -> None:
        line = Line(one.recipe.digest, one.case, dict(one.parameters), one.recipe.seed, error=outcome.error)
        if outcome.run_dir is not None:
            line.result, line.resumed = result_of(outcome.run_dir), outcome.resumed
            line.run = str(outcome.run_dir.relative_to(self.store.folder))
        self.store.add(line)
        if (found := line.result) is None:
            watch.result(f"failed: {line.error}", always=True)
            return
        of_groups = f", in groups {units.number(found.of_groups.mean)}" if found.of_groups else ""
        of_personal = f", personal {units.number(found.of_personal.mean)}" if found.of_personal else ""
        watch.result(
            f"{found.leads.name} {units.number(found.leading)}{of_groups}{of_personal}, {_protection(found)}, "
            f"{units.duration(seconds)}"
        )


def _protection(found: Result) -> str:
    """`protected from 2 of 4 parties, epsilon up to 8.00`, of a client; those that there are."""
    stated = [epsilon for epsilon in found.guarantees.values() if epsilon is not None]
    most = f", epsilon up to {number(max(stated))}" if stated else ""
    return f"protected from {len(stated)} of {len(found.guarantees)} parties{most}"
