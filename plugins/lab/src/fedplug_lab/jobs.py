"""One run of many: here, or several at a time in processes of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError, describe
from fedplug.console.display import Display
from fedplug.recipe import own_files
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.runs.execution import INTERRUPTED
from fedplug.runs.run import resume, start
from fedplug.runs.settings import Settings

from fedplug_lab.sweep_watch import Notes


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to make.

    Attributes:
        recipe: checked, as plain data.
        name: begins the name of its folder.
        unfinished: folder of a run of this recipe that was cut off; None: there is none.
        settings: of this machine.
        own_files: of the user's own that the recipe names; they travel with it.
    """

    recipe: dict[str, Any]
    name: str
    unfinished: Path | None
    settings: Settings
    own_files: tuple[own_files.OwnFile, ...]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        run_dir: its folder; None where it failed.
        interrupted: it has stopped and can go on.
        resumed: it went on from a checkpoint.
        error: why it failed.
        notes: what was to be said while it went on, where nobody listened.
    """

    run_dir: Path | None = None
    interrupted: bool = False
    resumed: bool = False
    error: str = ""
    notes: tuple[str, ...] = ()


def attempt(job: Job, catalog: Catalog, watch: Display) -> Outcome:
    """Makes the run, in this process."""
    try:
        own_files.remember(job.own_files)
        recipe = Recipe.from_plain(job.recipe, catalog)
        resumed = job.unfinished is not None
        if job.unfinished is not None:
            try:
                code, run_dir = resume(job.unfinished, job.settings, None, catalog, watch), job.unfinished
            except CheckpointError as error:
                watch.note(f"{error}; it starts anew")
                resumed = False
        if not resumed:
            code, run_dir = start(recipe, job.settings, catalog, job.name, watch)
    except Exception as error:
        return Outcome(error=describe(error))
    return Outcome(run_dir, code == INTERRUPTED, resumed)


def several(jobs: Sequence[Job], catalog: Catalog, at_a_time: int) -> Iterator[tuple[int, Outcome, float]]:
    """Makes the runs, so many at a time, each in a process of its own.

    Ctrl-C is passed on to those that run, which then save what they have.

    Yields:
        The place of a job, what came of it, and how many seconds it took, as they end.
    """
    context = multiprocessing.get_context("spawn")
    waiting, running = list(enumerate(jobs))[::-1], dict[Connection, tuple[int, SpawnProcess, float]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                place, job = waiting.pop()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_serve, args=(theirs, job, catalog))
                with _undisturbed():
                    process.start()
                theirs.close()
                running[ours] = place, process, time.perf_counter()
            try:
                ready = [found for found in wait(list(running)) if isinstance(found, Connection)]
            except KeyboardInterrupt:
                waiting.clear()
                _stop(running.values())
                continue
            for pipe in ready:
                place, process, began = running.pop(pipe)
                yield place, _answer(pipe, process), time.perf_counter() - began
    finally:
        _stop(running.values())
        for _, process, _ in running.values():
            process.join()


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


def _stop(running: Any) -> None:
    for _, process, _ in running:
        if process.is_alive() and process.pid:
            os.kill(process.pid, signal.SIGINT)


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
