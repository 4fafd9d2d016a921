"""The runs of a study: made one after the other here, or several at a time in separate processes.

A study asks for one after the other and takes note of each that ends: a sweep and a comparison go through a list
(`Study`), a search chooses by what it has seen. What was cut off is resumed, what fails stops no other, and Ctrl-C
loses nothing: runs save what they have, and the same study continues them. A listener that has seen enough of a run
ends it with `Enough`; what the run has is kept, and it could continue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TextIO

from fedplug.api.errors import CheckpointError, FedplugError, RecipeError, SetupError, describe
from fedplug.recipe.catalog import Catalog, Own
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.verdict_words import number
from fedplug_runs import own_files, units
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.execution import INTERRUPTED, Equipment, resume, start
from fedplug_runs.files import read_text
from fedplug_runs.folder import load_run, writer_of
from fedplug_runs.settings import Settings
from fedplug_runs.shown import Display, say
from fedplug_terminal.lines import tell

from fedplug_lab.grid import Combination
from fedplug_lab.records import Line, NotBegun, OneRun, open_run
from fedplug_lab.sections import Result, sections_of_plugins


class Notes:
    """Hears a run that nobody watches, and keeps what was to be said; its results are in its folder.

    Attributes:
        noted: the notes.
    """

    def __init__(self) -> None:
        self.noted: list[str] = []

    def start(self, *given: object, **named: object) -> None:
        """Its folder has that."""

    round_done = finish = interrupted = close = start

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """Nobody looks."""

    def note(self, text: str) -> None:
        """Kept, to be shown with the result."""
        self.noted.append(text)


class SweepWatch(Notes):
    """What a person sees of one run of a study: a line that says how it goes, and in the end how it went.

    Args:
        stream: where to print.
        title: which run it is.
        rounds: how many it has.
        quiet: print notes and failures only.
    """

    def __init__(self, stream: TextIO, title: str, rounds: int, quiet: bool) -> None:
        super().__init__()
        self._stream, self._title, self._rounds, self._quiet = stream, title, rounds, quiet
        self._live = stream.isatty() and not quiet
        self._drawn = 0.0
        self._open = not quiet  # the title is in the last line, without an end
        if not quiet:
            self._print(self._title, end="")

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """In a terminal, the title's line says where the run is; a few times a second at most."""
        if self._live and time.monotonic() - self._drawn > 0.2:
            self._drawn = time.monotonic()
            text = f"{self._title}  round {round} of {self._rounds}, {phase}"
            self._print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="")

    def note(self, text: str) -> None:
        """Below the title, which is then repeated with the result."""
        if self._live:
            self._print(f"\r\x1b[K{self._title}  note: {text}")
        else:
            self._print(f"\n  note: {text}" if self._open else f"{self._title}  note: {text}")
        self._open = False

    def result(self, text: str, always: bool = False) -> None:
        """Ends the line with the outcome of the run."""
        if self._quiet and not always:
            return
        if self._live:
            self._print(f"\r\x1b[K{self._title}: {text}")
        else:
            self._print(f": {text}" if self._open else f"{self._title}: {text}")
        self._open = False

    def _print(self, text: str, end: str = "\n") -> None:
        say(self._stream, text, end)


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
        early: why a listener ended it before its last round; empty where none did.
        known: what that listener knew of it.
        error: why it failed.
        notes: what was to be said while it went on, where nobody listened.
    """

    run_dir: Path | None = None
    interrupted: bool = False
    early: str = ""
    known: Mapping[str, float] = dataclasses.field(default_factory=dict)
    error: str = ""
    notes: tuple[str, ...] = ()


def attempt(job: Job, catalog: Catalog, watch: Display) -> Outcome:
    """Makes the run, in this process."""
    try:
        own_files.remember(job.own_files)
        recipe = dataclasses.replace(Recipe.from_plain(job.recipe, catalog), origin=job.origin)
        unfinished = job.unfinished
        if unfinished is not None:
            try:
                code, run_dir = resume(unfinished, job.settings, None, catalog, watch), unfinished
            except CheckpointError as error:
                watch.note(f"{error}; it starts anew")
                unfinished = None
        if unfinished is None:
            code, run_dir = start(recipe, job.settings, catalog, job.name, watch)
    except Enough as error:
        # A run that has saved something tells how to continue, in an error around the one that was raised.
        found = error.__cause__ if isinstance(error.__cause__, Enough) else error
        return Outcome(found.run_dir or job.unfinished, early=str(found), known=found.known)
    except Exception as error:
        return Outcome(error=describe(error))
    return Outcome(run_dir, code == INTERRUPTED)


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
    guess = ", no better than a guess" if found.no_better else ""
    figures = f"{found.leads.name} {units.number(found.leading)}{guess}{of_groups}{of_personal}"
    return f"{figures}, {protected}, {units.duration(seconds)}"
