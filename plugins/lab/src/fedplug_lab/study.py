"""The runs of a study: made one after the other here, or several at a time in separate processes.

A study asks for one after the other and takes note of each that ends: a sweep and a comparison go through a list
(`Study`), a search chooses by what it has seen. What was cut off is resumed, what fails stops no other, and Ctrl-C
loses nothing: runs save what they have, and the same study continues them. A listener that has seen enough of a run
ends it with `Enough`; what the run has is kept, and it could continue.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import dataclasses
import functools
import gc
import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import threading
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
from fedplug_runs.estimate import LIMIT, estimate, in_short
from fedplug_runs.execution import INTERRUPTED, Equipment, resume, start
from fedplug_runs.files import read_text
from fedplug_runs.folder import load_run, versions, writer_of
from fedplug_runs.loaded import MOST, Loaded, keeping, place_of
from fedplug_runs.machine import memory_now, resolve_device, terminated_like_interrupted
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


def make_runs(
    ask: Callable[[], Wanted | None], catalog: Catalog, at_a_time: int, quiet: bool, loaded: Loaded | None = None
) -> bool:  # fmt: skip
    """Makes the runs that are asked for; False if Ctrl-C, or SIGTERM, ended that.

    Args:
        ask: gives the next one; None where there is none, or none before another one has ended.
        catalog: the components on offer.
        at_a_time: how many; more than one run in separate processes, of which each makes several, one after the other.
        quiet: print notes and failures only.
        loaded: data sets that the runs have in common.
    """
    stopping = False
    try:
        with terminated_like_interrupted(), Crew(catalog, at_a_time > 1, quiet, loaded) as crew:
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


class _Hand(NamedTuple):
    """A process that makes runs, one after the other, and our end of the pipe to it."""

    pipe: Connection
    process: SpawnProcess


class Crew:
    """Runs that are being made. A context, at whose end all have stopped.

    Args:
        catalog: the components on offer.
        apart: in separate processes; else here, one at a time.
        quiet: print notes and failures only.
        loaded: data sets that the runs have in common.
    """

    def __init__(self, catalog: Catalog, apart: bool, quiet: bool, loaded: Loaded | None = None) -> None:
        self._catalog, self._apart, self._quiet = catalog, apart, quiet
        self._loaded, self._packed = loaded or Loaded(), dict[str, bytes]()
        self._context = multiprocessing.get_context("spawn")
        self._idle: list[_Hand] = []
        self._running: dict[Connection, tuple[Wanted, _Hand, float]] = {}
        self._ended: list[Ended] = []

    def __len__(self) -> int:
        return len(self._running) + len(self._ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        hands = [*self._idle, *(hand for _, hand, _ in self._running.values())]
        for hand in self._idle:
            hand.pipe.close()  # of the others only once they have answered: they would find nobody there
        for hand in hands:
            hand.process.join()

    def begin(self, wanted: Wanted) -> None:
        """Begins a run; one that is made here has ended then."""
        began = time.perf_counter()
        if not self._apart:
            watch = self._watch(wanted)
            with keeping(self._loaded):
                outcome = attempt(wanted.job, self._catalog, watch)
            self._ended.append((wanted, outcome, time.perf_counter() - began, watch))
            return
        hand = self._idle.pop() if self._idle else self._hired()
        try:
            hand.pipe.send(wanted.job)
        except OSError:  # it has ended while it had nothing to do
            hand = self._hired()
            hand.pipe.send(wanted.job)
        self._running[hand.pipe] = wanted, hand, began

    def _hired(self) -> _Hand:
        self._packed = self._packed or self._loaded.packed()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._catalog, self._packed))
        with _undisturbed():
            process.start()
        theirs.close()
        return _Hand(ours, process)

    def wait(self) -> list[Ended]:
        """Waits until a run or more have ended; their lines come in the order in which they end."""
        ended, self._ended = self._ended, []
        for pipe in wait(list(self._running)) if self._running else ():
            assert isinstance(pipe, Connection)
            wanted, hand, began = self._running.pop(pipe)
            outcome = _answer(hand)
            if hand.process.is_alive():
                self._idle.append(hand)
            ended.append((wanted, outcome, time.perf_counter() - began, self._watch(wanted)))
        return ended

    def stop(self) -> None:
        """Passes Ctrl-C on to the running ones, which then save what they have."""
        for _, hand, _ in self._running.values():
            if hand.process.is_alive() and hand.process.pid:
                os.kill(hand.process.pid, signal.SIGINT)

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


def _answer(hand: _Hand) -> Outcome:
    try:
        outcome = hand.pipe.recv()
    except (EOFError, OSError):
        hand.process.join()
        code = hand.process.exitcode
        interrupted = code in (INTERRUPTED, -signal.SIGINT)
        return Outcome(interrupted=interrupted, error=f"its process ended with {code}; is there enough memory?")
    assert isinstance(outcome, Outcome)
    return outcome


def _serve(pipe: Connection, catalog: Catalog, packed: Mapping[str, bytes]) -> None:
    """What the process does: jobs as they come, until nobody is there any more."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C in a terminal comes from the parent then, and once
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has programs in the background ignore it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with keeping(Loaded.unpacked(packed)), contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            job, watch = pipe.recv(), Notes()
            try:
                _heed(signal.SIG_UNBLOCK)
                outcome = attempt(job, catalog, watch)
                _heed(signal.SIG_BLOCK)
            except KeyboardInterrupt:  # before or after the rounds, where nothing has to be saved
                outcome = Outcome(interrupted=True)
            pipe.send(dataclasses.replace(outcome, notes=tuple(watch.noted)))
            gc.collect()  # the next run's memory is measured


def _end_with_parent() -> None:
    """Waits until the process that wants the runs is gone, however it went; the one that is made is then saved."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _thread.interrupt_main()


def _heed(how: int) -> None:
    """Has Ctrl-C come from here on, or wait: between jobs there is nothing to interrupt."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(how, {signal.SIGINT})


class Shelf:
    """The runs below a folder: complete ones count, interrupted ones continue.

    Args:
        folder: with run folders in it, or in folders in it; need not exist.
        wanted: digests of the recipes of which runs are looked for.
        unlike: says why a complete run of such a recipe does not count; empty where it does.

    Attributes:
        found: folders of complete runs, by digest; of several the last one.
        notes: of runs that would have counted, why they do not.
    """

    def __init__(
        self, folder: Path, wanted: Sequence[str], unlike: Callable[[OneRun], str] = lambda run: ""
    ) -> None:  # fmt: skip
        self._unlike = unlike
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
            if digest is not None and is_whole(run := open_run(folder)):
                if why := self._unlike(run):
                    self.notes.append(f"not used: {folder} {why}; it is run again")
                else:
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


def room(equipment: Equipment, settings: Settings) -> int:
    """How many runs this machine takes at a time: one a core, as long as there is memory for another process like this
    one; an engine with processes uses the cores itself.
    """
    if not equipment.engine_class.in_process or resolve_device(settings.device) != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    held, free = memory_now()
    most = cores if held is None or free is None else int(0.8 * free / held)
    return max(1, min(cores // settings.threads, most))


def at_once(jobs: int | None, most: int, equipment: Equipment, settings: Settings) -> int:
    """How many of at most so many runs are made at a time, which is said where nobody has chosen it.

    Args:
        jobs: the option `--jobs`; None: as many as this machine takes.
        most: how many are to be made.
        equipment, settings: of this machine.
    """
    found = min(jobs or room(equipment, settings), max(1, most))
    if found > 1 and jobs is None and not settings.quiet:
        print(f"{found} runs at a time; --jobs 1 makes one after the other")
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


@functools.cache
def _edited(package: str) -> float:
    """When the newest file of a package was written, in seconds; 0 where it was not installed from a folder of its
    author's, in which code changes and the version does not.
    """
    spec = importlib.util.find_spec(package)
    folders = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    if any({"site-packages", "dist-packages"} & {*folder.parts} for folder in folders):
        return 0.0
    return max((file.stat().st_mtime for folder in folders for file in folder.rglob("*.py")), default=0.0)


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
        self._equipment, self._loaded = Equipment(settings, catalog), Loaded()
        self._recipes = {one.recipe.digest: one.recipe for one in runs}
        self._shelf = Shelf(settings.output, [*self._recipes], self._unlike)
        self.found = self._shelf.found
        self._lines: dict[str, Line] = {}

    def tell(self) -> None:
        """Says which runs there are to be, and where those are that are there."""
        for place, one in enumerate(self.runs, 1):
            found = self.found.get(one.recipe.digest)
            tell(f"{self._title(place, one)}  ({one.recipe.digest[:12]}){f'  there: {found}' if found else ''}")

    def tell_estimates(self, jobs: int | None) -> None:
        """Says what the missing runs would take: of each case its first is measured, see `fedplug_runs.estimate`."""
        missing = [one for one in self.runs if one.recipe.digest not in self.found]
        cases = collections.Counter(one.case for one in missing)
        self._load([one.recipe for one in missing])
        seconds: float | None = 0.0
        for case, count in cases.items():
            recipe = next(one.recipe for one in missing if one.case == case)
            try:
                with keeping(self._loaded):
                    found = estimate(recipe, self.settings, self.catalog, LIMIT / len(cases))
            except FedplugError as error:  # the list of runs is worth having all the same
                tell(f"estimate of {case or recipe.name}: none, a run would fail: {error}")
                seconds = None
                continue
            many = f"{count} runs, each " if count > 1 else ""
            tell(f"estimate of {case or recipe.name}: {many}{in_short(found)}")
            seconds = None if seconds is None or found.seconds is None else seconds + count * found.seconds
        if missing:
            at_a_time = min(jobs or room(self._equipment, self.settings), len(missing))
            whole = "not known" if seconds is None else f"about {units.duration(seconds / at_a_time)}"
            tell(f"estimate of all: {whole}, with {len(missing)} runs to make, {at_a_time} at a time")

    def _unlike(self, run: OneRun) -> str:
        """Why a complete run is none of this study: code or data have changed since."""
        recipe, then = self._recipes[run.summary.digest], run.summary.versions
        now = versions(recipe, self.catalog, self._equipment.entry)
        changed = [f"{name} {then[name]}, which is {now[name]} now" for name in now.keys() & then.keys()
                   if now[name] != then[name]]  # fmt: skip
        if changed:
            return f"was made with {', '.join(sorted(changed))}"
        began = (run.folder / "recipe.yaml").stat().st_mtime
        entries = [entry for use in recipe.uses if (entry := self.catalog.get(use.group, use.use)) and not entry.own]
        packages = {"fedplug", *(re.split("[.:]", entry.value)[0] for entry in entries)}
        if newer := sorted(package for package in packages if _edited(package) > began):
            return f"is older than the code of {', '.join(newer)}"
        if run.summary.data != self._loaded.digest(recipe, self.settings.data_root):
            return "had other data than there are now" if run.summary.data else "does not say which data it had"
        return ""

    def run(self, jobs: int | None, after_each: Callable[[], object] = lambda: None) -> bool:
        """Runs what is missing, `jobs` at a time, or as many as this machine takes; False if it was interrupted."""
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
        self._load([one.recipe for _, one in missing])
        at_a_time = at_once(jobs, len(missing), self._equipment, self.settings)
        whole = make_runs(lambda: next(wanted, None), self.catalog, at_a_time, self.settings.quiet, self._loaded)
        if not whole:
            done = f"{len(self.found)} of {len(self.runs)} runs are complete"
            tell(f"Interrupted; {done}. The same command goes on.")
        return whole

    def _load(self, recipes: Sequence[Recipe]) -> None:
        """Loads data that several of these runs have in common."""
        root = self.settings.data_root
        places = [place_of(recipe, root) for recipe in recipes if recipe.data.agreed is None]
        shared = [place for place, count in collections.Counter(places).items() if count > 1][:MOST]
        by_place = {place_of(recipe, root): recipe for recipe in recipes}
        for place in shared:
            with contextlib.suppress(Exception):  # the run itself says so
                self._loaded.digest(by_place[place], root)

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
    """`accuracy 0.9, protected from 2 of 4 parties, epsilon up to 8.00, 3 s`: a client, unless a unit is named."""
    of_groups = f", in groups {units.number(found.of_groups.mean)}" if found.of_groups else ""
    of_personal = f", personal {units.number(found.of_personal.mean)}" if found.of_personal else ""
    stated = {party: epsilon for party, epsilon in found.guarantees.items() if epsilon is not None}
    by_unit: dict[str, list[float]] = {"client": []}
    for party, epsilon in stated.items():
        by_unit.setdefault(found.units.get(party, "client"), []).append(epsilon)
    protected = "; ".join(
        f"{'protected' if unit == 'client' else f'each {unit}'} from {len(epsilons)} of {len(found.guarantees)} parties"
        + (f", epsilon up to {number(max(epsilons))}" if epsilons else "")
        for unit, epsilons in by_unit.items()
    )
    guess = ", no better than a guess" if found.no_better else ""
    figures = f"{found.leads.name} {units.number(found.leading)}{guess}{of_groups}{of_personal}"
    return f"{figures}, {protected}, {units.duration(seconds)}"
