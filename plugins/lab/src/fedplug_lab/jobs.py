"""The runs of a study: made one after the other here, or several at a time in separate processes.

A study asks for one after the other and takes note of each that ends: a sweep and a comparison go through a list, a
search chooses by what it has seen. Ctrl-C loses nothing: runs save what they have, and the same study continues them.
A listener that has seen enough of a run ends it with `Enough`; what the run has is kept, and it could continue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from fedplug.api.errors import CheckpointError, FedplugError, describe
from fedplug.recipe.catalog import Catalog, Own
from fedplug.recipe.recipe import Recipe
from fedplug_runs import own_files
from fedplug_runs.execution import INTERRUPTED, resume, start
from fedplug_runs.settings import Settings
from fedplug_runs.shown import Display

from fedplug_lab.sweep_watch import Notes, SweepWatch


class Enough(FedplugError):
    """A listener ends a run before its last round, on purpose.

    Attributes:
        run_dir: the folder of the run; None where nobody said.
        known: numbers by which it was judged, by name: the last round's may not be in its files yet.
    """

    def __init__(self, message: str, run_dir: Path | None = None, known: Mapping[str, float] | None = None) -> None:
        self.run_dir, self.known = run_dir, dict(known or {})
        super().__init__(message)


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to make.

    Attributes:
        recipe: checked, as plain data.
        name: begins the name of its folder.
        unfinished: folder of a run of this recipe that was cut off; None: there is none.
        settings: of this machine.
        own_files: of the user's own that the recipe names; they travel with it.
        origin: where the recipe was read.
    """

    recipe: dict[str, Any]
    name: str
    unfinished: Path | None
    settings: Settings
    own_files: tuple[Own, ...]
    origin: str = ""

    @classmethod
    def of(cls, recipe: Recipe, label: str, unfinished: Path | None, settings: Settings) -> Self:
        """The run of a recipe, whose folder is called after a label."""
        name = re.sub(r"[^A-Za-z0-9._=-]+", "-", label).strip("-.")[:80] or "run"
        return cls(recipe.to_plain(), name, unfinished, settings, recipe.own_files, recipe.origin)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        run_dir: its folder; None where it failed.
        interrupted: it has stopped and can continue.
        resumed: it went on from a checkpoint.
        early: why a listener ended it before its last round; empty where none did.
        known: what that listener knew of it.
        error: why it failed.
        notes: what was to be said while it went on, where nobody listened.
    """

    run_dir: Path | None = None
    interrupted: bool = False
    resumed: bool = False
    early: str = ""
    known: Mapping[str, float] = dataclasses.field(default_factory=dict)
    error: str = ""
    notes: tuple[str, ...] = ()


def attempt(job: Job, catalog: Catalog, watch: Display) -> Outcome:
    """Makes the run, in this process."""
    try:
        own_files.remember(job.own_files)
        recipe = dataclasses.replace(Recipe.from_plain(job.recipe, catalog), origin=job.origin)
        resumed = job.unfinished is not None
        if job.unfinished is not None:
            try:
                code, run_dir = resume(job.unfinished, job.settings, None, catalog, watch), job.unfinished
            except CheckpointError as error:
                watch.note(f"{error}; it starts anew")
                resumed = False
        if not resumed:
            code, run_dir = start(recipe, job.settings, catalog, job.name, watch)
    except Enough as error:
        # A run that has saved something tells how to continue, in an error around the one that was raised.
        found = error.__cause__ if isinstance(error.__cause__, Enough) else error
        resumed = job.unfinished is not None
        return Outcome(found.run_dir or job.unfinished, resumed=resumed, early=str(found), known=found.known)
    except Exception as error:
        return Outcome(error=describe(error))
    return Outcome(run_dir, code == INTERRUPTED, resumed)


class Wanted(NamedTuple):
    """A run that a study asks for: its title for people, what to make, and who takes note of how it ended."""

    title: str
    job: Job
    take: Callable[[Outcome, float, SweepWatch], None]


def make_runs(ask: Callable[[], Wanted | None], catalog: Catalog, at_a_time: int, quiet: bool) -> bool:
    """Makes the runs that are asked for; False if Ctrl-C ended that.

    Args:
        ask: gives the next one; None where there is none, or none before another one has ended.
        catalog: the components on offer.
        at_a_time: how many; more than one run in separate processes.
        quiet: print notes and failures only.
    """
    stopping = False
    try:
        with Crew(catalog, at_a_time > 1, quiet) as crew:
            while True:
                while not stopping and len(crew) < at_a_time and (wanted := ask()):
                    crew.begin(wanted)
                if not len(crew):
                    return not stopping
                try:
                    ended = crew.wait()
                except KeyboardInterrupt:
                    stopping = True
                    crew.stop()
                    continue
                for wanted, outcome, seconds, watch in ended:
                    for note in outcome.notes:
                        watch.note(note)
                    if outcome.interrupted:
                        stopping = True
                        watch.result("interrupted")
                    else:
                        wanted.take(outcome, seconds, watch)
    except KeyboardInterrupt:  # between runs, or while one was read
        print()
        return False


Ended = tuple[Wanted, Outcome, float, SweepWatch]
"""A run that has ended, how many seconds it took, and the line that says how it goes."""


class Crew:
    """Runs that are being made. A context, at whose end all have stopped.

    Args:
        catalog: the components on offer.
        apart: each in a separate process; else here, one at a time.
        quiet: print notes and failures only.
    """

    def __init__(self, catalog: Catalog, apart: bool, quiet: bool) -> None:
        self._catalog, self._apart, self._quiet = catalog, apart, quiet
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[Connection, tuple[Wanted, SpawnProcess, float]] = {}
        self._ended: list[Ended] = []

    def __len__(self) -> int:
        return len(self._running) + len(self._ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        for _, process, _ in self._running.values():
            process.join()

    def begin(self, wanted: Wanted) -> None:
        """Begins a run; one that is made here has ended then."""
        began = time.perf_counter()
        if not self._apart:
            watch = self._watch(wanted)
            self._ended.append((wanted, attempt(wanted.job, self._catalog, watch), time.perf_counter() - began, watch))
            return
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_serve, args=(theirs, wanted.job, self._catalog))
        with _undisturbed():
            process.start()
        theirs.close()
        self._running[ours] = wanted, process, began

    def wait(self) -> list[Ended]:
        """Waits until a run or more have ended; their lines come in the order in which they end."""
        ended, self._ended = self._ended, []
        for pipe in wait(list(self._running)) if self._running else ():
            assert isinstance(pipe, Connection)
            wanted, process, began = self._running.pop(pipe)
            outcome = _answer(pipe, process)
            ended.append((wanted, outcome, time.perf_counter() - began, self._watch(wanted)))
        return ended

    def stop(self) -> None:
        """Passes Ctrl-C on to the running ones, which then save what they have."""
        for _, process, _ in self._running.values():
            if process.is_alive() and process.pid:
                os.kill(process.pid, signal.SIGINT)

    def _watch(self, wanted: Wanted) -> SweepWatch:
        return SweepWatch(sys.stdout, wanted.title, wanted.job.recipe["rounds"], self._quiet)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Inside, Ctrl-C waits. A process that is started here has it wait until it can answer, and imports undisturbed."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answer(pipe: Connection, process: SpawnProcess) -> Outcome:
    try:
        outcome = pipe.recv()
    except EOFError:
        process.join()
        code = process.exitcode
        interrupted = code in (INTERRUPTED, -signal.SIGINT)
        return Outcome(interrupted=interrupted, error=f"its process ended with {code}; is there enough memory?")
    process.join()
    assert isinstance(outcome, Outcome)
    return outcome


def _serve(pipe: Connection, job: Job, catalog: Catalog) -> None:
    """What the process does."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C in a terminal comes from the parent then, and once
    watch = Notes()
    try:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        outcome = attempt(job, catalog, watch)
    except KeyboardInterrupt:  # before or after the rounds, where nothing has to be saved
        outcome = Outcome(interrupted=True)
    pipe.send(dataclasses.replace(outcome, notes=tuple(watch.noted)))
    pipe.close()
