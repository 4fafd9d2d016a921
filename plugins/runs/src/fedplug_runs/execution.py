"""A recipe executed in a run folder: from the first round or from a checkpoint, to the end or to an error."""

from __future__ import annotations

import errno
import functools
import math
import re
import shutil
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.api.data import ACCURACY
from fedplug.api.errors import CheckpointError, FedplugError, PluginError, SetupError, log_error
from fedplug.api.events import Asking, Events, RoundClosed
from fedplug.api.roles import Extension, Task
from fedplug.engines.base import TIMEOUT, Engine, Job
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.composition import Composition, strange
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug.round.steps import needs_key_server
from fedplug.round.world import World
from fedplug_ledger.charging import ledger_of

from fedplug_runs import session, soundness, trust
from fedplug_runs.archive import Archive, Bookkeeping, Checkpoint
from fedplug_runs.by_class import guess_of
from fedplug_runs.checkpoint import Checkpoints, StateFiles
from fedplug_runs.choice import engine_entry, options_of
from fedplug_runs.doubts import Doubts
from fedplug_runs.events import ResultsWritten, RowComplete, RunFinished, RunStarted, RunStopped
from fedplug_runs.files import Files, private_process, write_text
from fedplug_runs.folder import (
    Summary,
    assessments,
    carried,
    class_distribution,
    load_run,
    locked,
    new_folder,
    recipe_file,
    versions,
    write_recipe,
)
from fedplug_runs.listeners import listen, listeners, of_session
from fedplug_runs.loaded import Once
from fedplug_runs.machine import (
    PeakMemory,
    command_line,
    parties_compute_with,
    require_memory,
    resolve_device,
    terminated_like_interrupted,
)
from fedplug_runs.metrics import figures_of
from fedplug_runs.onward import keep_settings, resume_command, runs_here
from fedplug_runs.own_files import keep, with_files
from fedplug_runs.plan import plan_of
from fedplug_runs.result import Run
from fedplug_runs.settings import Settings
from fedplug_runs.shown import Display, Shown, display_of, show
from fedplug_runs.trust import RUNS
from fedplug_runs.wire_record import Wire


class Equipment:
    """What a run is done with on this machine: the components, the engine with its options, the folder of data sets.

    Attributes:
        catalog: the components on offer; those installed, where none are given.
        entry, engine_class, options: of the engine.

    Raises:
        SetupError: there is no such engine, option or folder.
    """

    def __init__(self, settings: Settings, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog.discover()
        self.entry = engine_entry(settings.engine, self.catalog)
        self.engine_class: Any = self.entry.load()
        self.options = options_of(f"engine {settings.engine}", self.engine_class, settings.engine_options)
        if settings.data is not None and not settings.data.is_dir():
            remedy = "--data, the variable FEDPLUG_DATA or the config file names it"
            raise SetupError(f"the folder of data sets {settings.data} does not exist; {remedy}")


class Stop(typing.Protocol):
    """What tells a run to end, such as a `threading.Event`."""

    def is_set(self) -> bool: ...


class _Enough(Exception):
    """A round is over, and the run was told to stop."""


INTERRUPTED = 130
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}


def start(
    recipe: Recipe, settings: Settings, catalog: Catalog | None = None, folder_name: str | None = None,
    watch: Shown | Display = "terminal", keep_data: bool = False, stop: Stop | None = None,
) -> tuple[int, Path]:  # fmt: skip
    """Runs a recipe from the start; gives the exit code and the run folder, named after `folder_name` or the recipe.

    With `keep_data` the arrays of a script that are its data are kept there. `stop` ends it after a round.
    """
    run_dir = new_folder(Path(settings.output), folder_name or recipe.name)
    with locked(run_dir), private_process():
        try:
            write_recipe(run_dir, recipe)
            keep(recipe.own_files, run_dir)
            if keep_data:
                session.keep_arrays(recipe.own_files, run_dir)
            trust.note(recipe.own_files)  # a user who starts a recipe means to run what is in it
            return Execution(recipe, run_dir, settings, catalog, watch, stop).execute(None), run_dir
        except (FedplugError, KeyboardInterrupt) as error:
            saved = bool(Checkpoints(run_dir).rounds())
            if isinstance(error, FedplugError):
                error.run_folder = run_dir if saved else None
            if not saved:  # nothing ran, so there is nothing to keep
                shutil.rmtree(run_dir, ignore_errors=True)
            if isinstance(error, KeyboardInterrupt):  # before the first round, or after the last
                nothing = "nothing had begun, and nothing is left behind"
                words = f"to continue: {resume_command(run_dir)}" if saved else nothing
                raise KeyboardInterrupt(f"Interrupted; {words}") from error
            raise


def resume(
    run_dir: Path, settings: Settings, round: int | None = None, catalog: Catalog | None = None,
    watch: Shown | Display = "terminal", stop: Stop | None = None,
) -> int:  # fmt: skip
    """Continues an interrupted run from its last checkpoint, or from that of `round`; gives the exit code.

    `stop` is as of `start`.

    Raises:
        CheckpointError: there is no run there, its checkpoint is damaged, or its charging.jsonl is not whole.
        SetupError: another process writes in its folder; or this brings code that nobody says may run.
    """
    recipe_file(run_dir)
    try:
        with locked(run_dir), private_process():
            recipe = load_run(run_dir, catalog, settings.trust, ask=True)
            checkpoint = Checkpoints(run_dir).read(round)
            execution = Execution(recipe, run_dir, settings, catalog, watch, stop)
            execution.archive.charges.require(execution.archive.checkpoints)
            return execution.execute(checkpoint)
    except FedplugError as error:
        error.run_folder = run_dir
        raise
    except KeyboardInterrupt as error:  # another one, or before it continues
        raise KeyboardInterrupt(f"Interrupted; to continue: {resume_command(run_dir)}") from error


class Execution:
    """One execution of a recipe in a run folder, with the components of `catalog` or those installed; `watch` hears of
    progress, by default what suits this process's standard output. `stop` ends it after a round.

    Raises:
        SetupError: as `Equipment`; or objects of this process do not travel to those of the engine.
    """

    def __init__(
        self, recipe: Recipe, run_dir: Path, settings: Settings, catalog: Catalog | None,
        watch: Shown | Display = "terminal", stop: Stop | None = None,
    ) -> None:  # fmt: skip
        self.recipe, self.run_dir, self.settings = recipe, run_dir, settings
        self.injected, self.display, self.in_terminal = catalog, display_of(watch, settings.quiet), watch == "terminal"
        # Attacks on earlier rounds need their messages, and what the parties had.
        looked_at = any(section.keeps_messages for section in recipe.sections.values())
        self.archive = Archive(recipe, run_dir, settings.record_wire or looked_at)
        self.equipment, self._stop = Equipment(settings, catalog), stop
        runs_here(run_dir, settings, self.equipment.engine_class, self.equipment.options.model_dump())
        self.in_memory = session.only_in_memory(recipe.own_files, run_dir)
        stays_here = session.only_in_memory(recipe.own_files)
        if stays_here and not self.equipment.engine_class.in_process:
            raise SetupError(
                f"engine {settings.engine} runs parties in other processes, and what is in memory here does not travel "
                f"there: {'; '.join(stays_here)}. Arrays: write them with numpy.savez, and name the file: data="
                "{'use': 'std.arrays', 'file': 'data.npz', ...}; or take the engine local"
            )
        self.engine: Engine | None = None
        self.books: Bookkeeping | None = None
        self._doubts: tuple[str, ...] = ()
        self._diverged, self._in_full = False, isinstance(watch, str)  # of many runs each gets a line

    def execute(self, checkpoint: Checkpoint | None) -> int:
        """Runs what is left of the recipe; gives the exit code.

        Raises:
            SetupError: the run folder cannot be written; says what is safe, and how to continue.
            FedplugError: the run failed.
        """
        resolve_device(self.settings.device)  # which imports torch, in the way that costs least
        try:
            with parties_compute_with(self.settings.threads):
                return self._execute(checkpoint)
        except BrokenPipeError:  # of the standard output
            raise
        except OSError as error:
            file = Path(str(error.filename or self.run_dir))
            if error.errno not in _NO_ROOM and not file.is_relative_to(self.run_dir):
                raise
            why = f"{file} cannot be used ({error.strerror or error})"
            raise SetupError(f"{why}. {self._what_is_safe()}") from error

    def _execute(self, checkpoint: Checkpoint | None) -> int:
        self._prepare(resumed=checkpoint is not None)
        try:
            with terminated_like_interrupted():
                self._run(checkpoint)
        except KeyboardInterrupt:
            self._stopped(None)
            return INTERRUPTED
        except _Enough:
            self._stopped(None)
            return 0
        except (FedplugError, OSError) as error:
            self._stopped(error)
            log_error(self.run_dir, "server", error)
            if not isinstance(error, FedplugError):
                raise
            said = [f"Likely causes: {self._likely_causes()}"] if "diverged" in str(error) else []
            if self._saved() and not isinstance(error, CheckpointError):
                said.append(self._how_to_go_on(error))
            if said:
                raise type(error)("\n".join([str(error), *said])) from error
            raise
        finally:
            if self.engine is not None:
                self.engine.close()
            if self.archive.recording:
                self.archive.recording.close()
            self.display.close()
        self._write_results()
        assert self.books is not None  # they were made before the first round
        self.events.tell(RunFinished(self.books.rows, self.ledger.verdict(), self.run_dir))
        # Where somebody else shows how it goes, nothing but warnings is to be printed.
        settings = self.settings if self.in_terminal else self.settings.replace({"quiet": True})
        finished = Run(self.run_dir, settings, 0, self.injected, self.world)
        finished.recipe = self.recipe
        return max((section.after_run(finished) for section in self.recipe.sections.values()), default=0)

    def _prepare(self, resumed: bool) -> None:
        """Builds what needs no engine, and has everybody listen who is to hear all of the run."""
        recipe, self.memory = self.recipe, PeakMemory()
        self.events = Events()
        show(self.display, self.events)
        others = self._others_who_listen()
        around = strange([self.equipment.entry, *(entry for entry, _ in others)])
        self.composition = Composition(recipe, around)
        device = resolve_device(self.settings.device)
        once = Once(recipe, self.composition)
        self.world = self.make_world(once.composition)
        self.archive.data = self.world.digest.hex()
        self.model = self.world.model("cpu")
        layout = self.model.layout
        if self.equipment.engine_class.__module__.startswith("fedplug."):  # other engines may use other machines
            require_memory(recipe, layout)
        self.ledger = ledger_of(recipe, self.composition, layout)
        task = self.composition.part(recipe.task.name, Task) if recipe.task else None
        self.guess = guess_of(recipe, self.world, task)
        self.summary = Summary(
            name=recipe.name,
            digest=recipe.digest,
            recipe=recipe.to_plain(),
            plan=plan_of(recipe, self.composition),
            versions=versions(recipe, self.equipment.catalog, self.equipment.entry),
            engine=self.settings.engine,
            device=device,
            class_distribution=class_distribution(self.world, {}),
            resumed=resumed,
            command=command_line(),
            parameters=layout.size,
            origin=recipe.origin,
            figures=[figure for figure in figures_of(recipe, self.composition) if figure.name != ACCURACY.name],
            not_repeatable=self.in_memory,
            guess=dict(self.guess.figures),
            common=self.guess.common,
            data=once.digest,
        )
        listen(self.extensions(), self.events, self.run_dir, self.settings.allow_outside)
        wanted = [*(extension for _, extension in others), *of_session(self.settings.listeners)]
        listen(wanted, self.events, self.run_dir)  # the user's word
        self.events.subscribe(Asking, self._note_charge)

    def make_world(self, composition: Composition) -> World:
        """The data, which the composition loads, and the initial model; a trial has little data."""
        return World(self.recipe, composition, self.settings.data_root)

    def extensions(self) -> list[Extension]:
        """Those of the recipe, which hear of the run; a trial has none."""
        return [part for part in self.composition.components.values() if isinstance(part, Extension)]

    def _note_charge(self, event: Asking) -> None:
        assert self.books is not None  # they were made before the first round
        public = self.books.charging.public() if event.what == "upload" else ""
        self.archive.charges.note(event.round, list(event.clients), event.what, public)

    def _others_who_listen(self) -> list[tuple[Entry, Extension]]:
        """Extensions of every run, and those that the user asks for."""
        settings, recipe = self.settings, self.recipe
        inside = {use.use for use in recipe.extensions if use.own is None}  # hear it already
        catalog = with_files(self.equipment.catalog, settings.plugins, RUNS)
        named = [each for each in settings.listeners if isinstance(each, str | Mapping)]
        return listeners(catalog, named, (*settings.muted, *inside), self.events.note, recipe)

    def _run(self, checkpoint: Checkpoint | None) -> None:
        """From the first round or from a checkpoint to the last, up to what is known at the end alone."""
        recipe, events, summary, recording = self.recipe, self.events, self.summary, self.archive.recording
        facts = {
            "recipe": recipe.name, "clients": recipe.data.clients, "rounds": recipe.rounds,
            "parameters": f"{summary.parameters:,}", "engine": summary.engine, "device": summary.device,
            "run folder": str(self.run_dir),
        }  # fmt: skip
        files = Files(self.run_dir, self.settings.allow_outside)
        about = RunStarted(summary.plan, facts, self.run_dir, summary.recipe, recipe.digest, summary.versions, files)
        events.tell(about)
        alone = (f"nobody can repeat this run elsewhere: {why}" for why in self.in_memory)
        self._doubts = tuple(self.world.doubts)
        for note in (*recipe.notes, *self._doubts, *alone, *filter(None, [self.guess.why])):
            events.note(note)
        self.engine = engine = self.equipment.engine_class(self._job())
        wire = Wire(keep=recording is not None, sink=recording.add if recording else None)
        protocol = Protocol(
            recipe, self.composition, engine, self.model.layout, wire, events, self.model, self.world.public
        )
        for doubt in self.world.doubts[len(self._doubts) :]:  # of data at sites, which the engine has loaded by now
            events.note(doubt)
        self.books = books = Bookkeeping(protocol, wire, self.ledger, self.guess)
        doubts = Doubts(recipe, self.composition, events, self.guess)
        keep = functools.partial(keep_settings, self.run_dir, self.settings, self.equipment.options.model_dump())
        # From here on, once everybody else listens, the run folder is kept up to date.
        events.subscribe(RowComplete, lambda event: self.archive.add_row(event.row))
        events.subscribe(RowComplete, self._tell_of_divergence)
        end_of_round = functools.partial(self.archive.end_of_round, books, engine)
        events.subscribe(RoundClosed, lambda event: end_of_round(event.round + 1))
        events.subscribe(RoundClosed, self._end_if_told)
        if checkpoint is None:
            if len(self.archive.charges):
                so = f"{self.archive.checkpoints.folder} holds no checkpoint, though clients have uploaded in this"
                events.note(f"{so} run: it begins again with round 1, and what was uploaded before is charged as well")
            self.archive.begin()
            keep()
            protocol.setup()
            self.archive.charge_again(books, 0)
            end_of_round(0)
        else:
            self.archive.go_on(books, engine, checkpoint)
            keep()  # not before: this may be the wrong engine
            for row in books.rows[-5:]:
                self.display.round_done(row)
        if self.world.data is None:
            summary.class_distribution = class_distribution(self.world, protocol.server.remembered.classes)
        protocol.run(checkpoint[0] if checkpoint else 0)
        if recording:
            recording.end_of_round(recipe.rounds + 1)
        odd = doubts.of_results(books.rows)
        summary.doubts = [*doubts.of_losses(books.rows), *odd]
        for doubt in odd if self._in_full else ():
            events.note(doubt)
        summary.assessments = assessments(protocol, summary.class_distribution)
        summary.carried, summary.peak_memory = carried(wire, engine), self.memory.bytes()

    def _tell_of_divergence(self, event: RowComplete) -> None:
        """Once: likely reasons for a loss that is not a number."""
        row = event.row
        losses = [each for each in (row.loss, row.train_loss) if each is not None]
        if not self._diverged and not all(map(math.isfinite, losses)):
            self._diverged = True
            self.events.note(f"round {row.round}: the loss is not a number: training diverged: {self._likely_causes()}")

    def _likely_causes(self) -> str:
        """Why training diverges, with the recipe's steps and, where they lie here, the ranges of the data."""
        options = self.recipe.train.options
        steps = f"steps too large (lr is {options.lr:g} in train)" if hasattr(options, "lr") else "steps too large"
        data = self.world.data
        where = "the data, whose ranges each site can look at" if data is None else soundness.ranges(data.train, data)
        noise = ", or noise that is larger than the updates (try more clients, or a model with fewer weights)"
        return f"{steps}{noise if any(self.recipe.protect.values()) else ''}, or {where}. Lower the steps first"

    def _end_if_told(self, event: RoundClosed) -> None:
        """Once a round is saved; after the last one there is nothing to leave out."""
        if self._stop is not None and self._stop.is_set() and event.round + 1 < self.recipe.rounds:
            self.enough()

    def enough(self) -> None:
        """Ends the execution after the round that has closed."""
        raise _Enough

    def _job(self) -> Job:
        settings = self.settings
        return Job(
            recipe=self.summary.recipe,
            data_root=settings.data_root,
            device=self.summary.device,
            workers=settings.workers,
            key_server=needs_key_server(self.composition),
            catalog=self.injected,
            store=StateFiles(self.run_dir, settings.max_clients_in_memory),
            world=self.world,
            data=self.world.digest,
            layout=self.model.layout,
            timeout=TIMEOUT if settings.timeout is None else settings.timeout,
            own_files=self.recipe.own_files,
            options=self.equipment.options,
            threads=settings.threads,
        )

    def _how_to_go_on(self, error: FedplugError) -> str:
        """What to do after an error, when there is a checkpoint."""
        alike = self.books is not None and self.books.protocol.office.all_failed_alike()
        if not alike and not isinstance(error, PluginError) and "diverged" not in str(error):
            return f"Nothing is lost: continue with {resume_command(self.run_dir)}"
        who = "Every client failed for the same reason" if alike else "Training failed"
        who = "A component failed" if isinstance(error, PluginError) else who
        own, causes = "", "this machine, its data or a plugin"
        if files := self._own_files_of(error):
            causes = "this machine or its data"
            own = f"If the cause is {files}, fix it and run the recipe anew: fedplug resume takes the run's copy.\n"
        return (
            f"{who}, so resuming fails again unless the cause changes.\n{own}"
            f"If the cause is {causes}, fix it and continue: {resume_command(self.run_dir)}\n"
            f"If the cause is the recipe, change a copy of {self.run_dir / 'recipe.yaml'} and run that from the start."
        )

    def _own_files_of(self, error: FedplugError) -> str:
        """The user's own files that the components which an error names are from; empty where they are installed."""
        named = set(re.findall(r"component ([\w.@-]+\w)", str(error)))
        uses = (use for use in self.recipe.components.values() if use.name in named)
        files = {each.own.name for use in uses for each in use.nested if each.own is not None}
        return " or ".join(sorted(files))

    def _write_results(self) -> None:
        """Writes ledger.json and summary.json with what there is."""
        write_text(self.run_dir / "ledger.json", self.ledger.report().to_json(indent=2))
        write_text(self.run_dir / "summary.json", self.summary.to_json(indent=2))
        self.events.tell(ResultsWritten(self.run_dir))

    def _stopped(self, error: Exception | None) -> None:
        """Writes what there is, unless nothing was restored yet: what an earlier execution wrote must not be lost."""
        if self.books:
            self.ledger = self.books.charging.ledger_at_failure()
        if self.ledger.log or not (self.run_dir / "ledger.json").is_file():
            try:
                self._write_results()
            except OSError as why:
                self.events.note(f"ledger.json and summary.json are not written: {why.strerror or why}")
        self.events.tell(RunStopped(error, (self._saved() or [0])[-1], self.run_dir))

    def _saved(self) -> list[int]:
        """The rounds that have a checkpoint; none where nobody can look."""
        try:
            return self.archive.checkpoints.rounds()
        except CheckpointError:
            return []

    def _what_is_safe(self) -> str:
        """What to do where the run folder cannot be written or read any more."""
        kept, folder = "Nothing was saved yet, so nothing is kept", self.run_dir.parent
        onward = "repeat the command"
        if rounds := self._saved():
            many, folder, onward = rounds[-1], self.run_dir, f"continue: {resume_command(self.run_dir)}"
            safe = f"The first {many} rounds are" if many > 1 else "Round 1 is" if many else "The set-up is"
            kept = f"{safe} safe in {self.archive.checkpoints.folder}"
        return f"{kept}; make room, or make the folder {folder} writable, and {onward}"
