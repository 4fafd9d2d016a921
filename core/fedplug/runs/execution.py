"""A recipe executed in a run folder: from the first round or from a checkpoint, to the end or to an error."""

from __future__ import annotations

import errno
import functools
import shutil
from pathlib import Path

from fedplug.api.errors import CheckpointError, FedplugError, PluginError, SetupError, log_error
from fedplug.api.events import (
    Asking,
    Events,
    ResultsWritten,
    RoundClosed,
    RowComplete,
    RunFinished,
    RunStarted,
    RunStopped,
)  # fmt: skip
from fedplug.api.outer_roles import Extension
from fedplug.console.display import Display, show
from fedplug.engines.base import TIMEOUT, Engine, Job
from fedplug.privacy.ledger_setup import ledger_of
from fedplug.recipe import yaml_source
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.own_files import keep, with_files
from fedplug.recipe.plan import plan_of
from fedplug.recipe.recipe import Recipe, load_recipe
from fedplug.round.checkpoint import Checkpoints
from fedplug.round.opening import needs_key_server
from fedplug.round.protocol import Protocol
from fedplug.round.world import World
from fedplug.runs import machine
from fedplug.runs.archive import Archive, Bookkeeping, Checkpoint
from fedplug.runs.folder import locked, new_folder, recipe_file, write_text
from fedplug.runs.listeners import listen, listeners
from fedplug.runs.result import Run
from fedplug.runs.settings import Settings
from fedplug.runs.shown import Shown, display_of
from fedplug.runs.summary import Summary, assessments, carried, class_distribution, versions
from fedplug.wire.record import Wire

INTERRUPTED = 130
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}


def start(
    recipe: Recipe, settings: Settings, catalog: Catalog | None = None, folder_name: str | None = None,
    watch: Shown | Display = "terminal",
) -> tuple[int, Path]:  # fmt: skip
    """Runs a recipe from the start; gives the exit code and the run folder, named after `folder_name` or the recipe."""
    run_dir = new_folder(Path(settings.output), folder_name or recipe.name)
    with locked(run_dir):
        write_text(run_dir / "recipe.yaml", yaml_source.dump(recipe.to_plain()))
        keep(recipe.own_files, run_dir)
        try:
            return Execution(recipe, run_dir, settings, catalog, watch).execute(None), run_dir
        except (FedplugError, KeyboardInterrupt) as error:
            saved = bool(Checkpoints(run_dir).rounds())
            if not saved:  # nothing ran, so there is nothing to keep
                shutil.rmtree(run_dir, ignore_errors=True)
            if isinstance(error, KeyboardInterrupt):  # before the first round, or after the last
                nothing = "nothing had begun, and nothing is left behind"
                words = f"to go on: fedplug resume {run_dir}" if saved else nothing
                raise KeyboardInterrupt(f"Interrupted; {words}") from error
            raise


def resume(
    run_dir: Path, settings: Settings, round: int | None = None, catalog: Catalog | None = None,
    watch: Shown | Display = "terminal",
) -> int:  # fmt: skip
    """Continues an interrupted run from its last checkpoint, or from that of `round`; gives the exit code.

    Raises:
        CheckpointError: there is no run there, its checkpoint is damaged, or its charging.jsonl is not whole.
        SetupError: another process writes in its folder.
    """
    file = recipe_file(run_dir)
    with locked(run_dir):
        recipe = load_recipe(file, (), catalog)
        checkpoint = Checkpoints(run_dir).read(round)
        execution = Execution(recipe, run_dir, settings, catalog, watch)
        execution.archive.charges.require(execution.archive.checkpoints)
        return execution.execute(checkpoint)


class Execution:
    """One execution of a recipe in a run folder, with the components of `catalog` or those installed; `watch` hears of
    progress, by default what suits this process's standard output.

    Raises:
        SetupError: as `Equipment`.
    """

    def __init__(
        self, recipe: Recipe, run_dir: Path, settings: Settings, catalog: Catalog | None,
        watch: Shown | Display = "terminal",
    ) -> None:
        self.recipe, self.run_dir, self.settings = recipe, run_dir, settings
        self.injected, self.display, self.in_terminal = catalog, display_of(watch, settings.quiet), watch == "terminal"
        # Attacks on earlier rounds need their messages, and what the parties had.
        looked_at = any(section.keeps_messages for section in recipe.sections.values())
        self.archive = Archive(recipe, run_dir, settings.record_wire or looked_at)
        self.equipment = machine.Equipment(settings, catalog)
        self.engine: Engine | None = None
        self.books: Bookkeeping | None = None

    def execute(self, checkpoint: Checkpoint | None) -> int:
        """Runs what is left of the recipe; gives the exit code.

        Raises:
            SetupError: the run folder cannot be written; says what is safe, and how to go on.
            FedplugError: the run failed.
        """
        try:
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
            with machine.terminated_like_interrupted():
                self._run(checkpoint)
        except KeyboardInterrupt:
            self._stopped(None)
            return INTERRUPTED
        except (FedplugError, OSError) as error:
            self._stopped(error)
            log_error(self.run_dir, "server", error)
            if isinstance(error, FedplugError) and self._saved() and not isinstance(error, CheckpointError):
                raise type(error)(f"{error}\n{self._how_to_go_on(error)}") from error
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
        recipe, self.memory = self.recipe, machine.PeakMemory()
        self.composition = Composition(recipe)
        device = machine.resolve_device(self.settings.device)
        self.world = World(recipe, self.composition, self.settings.data_root)
        self.model = self.world.model("cpu")
        layout = self.model.layout
        if self.equipment.engine_class.__module__.startswith("fedplug."):  # other engines may use other machines
            machine.require_memory(recipe, layout)
        self.ledger = ledger_of(recipe, self.composition, layout)
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
            command=machine.command_line(),
            parameters=layout.size,
        )
        self.events = Events()
        show(self.display, self.events)
        self._have_extensions_listen()
        note = self.archive.charges.note
        self.events.subscribe(Asking, lambda event: note(event.round, list(event.clients), event.what))

    def _have_extensions_listen(self) -> None:
        settings, recipe = self.settings, self.recipe
        inside = {use.use for use in recipe.extensions if use.own is None}  # hear it already
        catalog = with_files(self.equipment.catalog, settings.plugins)
        others = listeners(catalog, settings.listeners, (*settings.muted, *inside), self.events.note, recipe)
        extensions = [part for part in self.composition.components.values() if isinstance(part, Extension)]
        listen([*extensions, *others], self.events, self.run_dir)

    def _run(self, checkpoint: Checkpoint | None) -> None:
        """From the first round or from a checkpoint to the last, up to what is known at the end alone."""
        recipe, events, summary, recording = self.recipe, self.events, self.summary, self.archive.recording
        facts = {
            "recipe": recipe.name, "clients": recipe.data.clients, "rounds": recipe.rounds,
            "parameters": f"{summary.parameters:,}", "engine": summary.engine, "device": summary.device,
            "run folder": str(self.run_dir),
        }  # fmt: skip
        events.tell(RunStarted(summary.plan, facts, self.run_dir, summary.recipe, recipe.digest, summary.versions))
        for note in recipe.notes:
            events.note(note)
        self.engine = engine = self.equipment.engine_class(self._job())
        wire = Wire(keep=recording is not None, sink=recording.add if recording else None)
        protocol = Protocol(
            recipe, self.composition, engine, self.model.layout, wire, events, self.model, self.world.public
        )
        self.books = books = Bookkeeping(protocol, self.ledger)
        # From here on, once everybody else listens, the run folder is kept up to date.
        events.subscribe(RowComplete, lambda event: self.archive.add_row(event.row))
        end_of_round = functools.partial(self.archive.end_of_round, books, engine)
        events.subscribe(RoundClosed, lambda event: end_of_round(event.round + 1))
        if checkpoint is None:
            if len(self.archive.charges):
                so = f"{self.archive.checkpoints.folder} holds no checkpoint, though clients have uploaded in this"
                events.note(f"{so} run: it begins again with round 1, and what was uploaded before is charged as well")
            self.archive.begin()
            protocol.setup()
            self.archive.charge_again(books, 0)
            end_of_round(0)
        else:
            self.archive.go_on(books, engine, checkpoint)
            for row in books.rows[-5:]:
                self.display.round_done(row)
        if self.world.data is None:
            summary.class_distribution = class_distribution(self.world, protocol.server.remembered.classes)
        protocol.run(checkpoint[0] if checkpoint else 0)
        if recording:
            recording.end_of_round(recipe.rounds + 1)
        summary.assessments = assessments(protocol, summary.class_distribution)
        summary.carried, summary.peak_memory = carried(wire, engine), self.memory.bytes()

    def _job(self) -> Job:
        settings = self.settings
        return Job(
            recipe=self.summary.recipe,
            data_root=settings.data_root,
            device=self.summary.device,
            workers=settings.workers,
            key_server=needs_key_server(self.composition),
            catalog=self.injected,
            run_dir=self.run_dir,
            world=self.world,
            layout=self.model.layout,
            resident=settings.resident,
            timeout=TIMEOUT if settings.timeout is None else settings.timeout,
            own_files=self.recipe.own_files,
            options=self.equipment.options,
        )

    def _how_to_go_on(self, error: FedplugError) -> str:
        """What to do after an error, when there is a checkpoint."""
        alike = self.books is not None and self.books.protocol.office.all_failed_alike()
        if not alike and not isinstance(error, PluginError):
            return f"Nothing is lost: continue with fedplug resume {self.run_dir}"
        who = "Every client failed for the same reason" if alike else "A component failed"
        return (
            f"{who}, so resuming will fail again unless what caused it changes.\n"
            f"If it lies in this machine, its data or a plugin, mend that and continue: fedplug resume {self.run_dir}\n"
            f"If it lies in the recipe, change a copy of {self.run_dir / 'recipe.yaml'} and run that from the start."
        )

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
        onward = "give the same command again"
        if rounds := self._saved():
            many, folder, onward = rounds[-1], self.run_dir, f"go on: fedplug resume {self.run_dir}"
            safe = f"The first {many} rounds are" if many > 1 else "Round 1 is" if many else "The set-up is"
            kept = f"{safe} safe in {self.archive.checkpoints.folder}"
        return f"{kept}; make room, or make the folder {folder} writable, and {onward}"
