"""A recipe executed in a run folder: from the first round or from a checkpoint, to the end or to an error."""

from __future__ import annotations

import errno
import functools
import os
import shutil
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError, FedplugError, SetupError, log_error
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
from fedplug.api.types import Layout
from fedplug.console.display import Display, show
from fedplug.engines.base import TIMEOUT, Job
from fedplug.engines.choice import engine_entry, options_of
from fedplug.privacy.ledger import Ledger
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
from fedplug.runs.archive import Archive
from fedplug.runs.bookkeeping import Bookkeeping, listen, listeners
from fedplug.runs.folder import locked, new_folder, recipe_file, write_text
from fedplug.runs.machine import PeakMemory, command_line, require_memory, resolve_device, terminated_like_interrupted
from fedplug.runs.result import Run
from fedplug.runs.settings import Settings
from fedplug.runs.shown import make_display
from fedplug.runs.summary import Summary, assessments, carried, class_distribution, versions
from fedplug.wire.record import Wire

INTERRUPTED = 130
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}


def start(
    recipe: Recipe, settings: Settings, catalog: Catalog | None = None, folder_name: str | None = None,
    watch: Display | None = None,
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
    watch: Display | None = None,
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
    """

    def __init__(
        self, recipe: Recipe, run_dir: Path, settings: Settings, catalog: Catalog | None, watch: Display | None = None
    ) -> None:
        self.recipe, self.run_dir, self.settings, self.watch = recipe, run_dir, settings, watch
        self.injected = catalog
        self.catalog = catalog or Catalog.discover()
        # Attacks on earlier rounds need their messages, and what the parties had.
        looked_at = any(section.keeps_messages for section in recipe.sections.values())
        self.archive = Archive(recipe, run_dir, settings.record_wire or looked_at)
        self.data_root = str(settings.data) if settings.data else os.environ.get("FEDPLUG_DATA") or None
        self.engine_entry = engine_entry(settings.engine, self.catalog)
        self.engine_class = self.engine_entry.load()
        self.engine_options = options_of(settings.engine, self.engine_class, settings.engine_options)
        if settings.data is not None and not settings.data.is_dir():
            remedy = "--data, the variable FEDPLUG_DATA or the config file names it"
            raise SetupError(f"the folder of data sets {settings.data} does not exist; {remedy}")

    def execute(self, checkpoint: tuple[int, dict[str, Any], Path] | None) -> int:
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

    def _execute(self, checkpoint: tuple[int, dict[str, Any], Path] | None) -> int:
        recipe, memory = self.recipe, PeakMemory()
        composition = Composition(recipe)
        device = resolve_device(self.settings.device)
        world = World(recipe, composition, self.data_root)
        model, distribution = world.model("cpu"), class_distribution(world, {})
        layout = model.layout
        if self.engine_class.__module__.startswith("fedplug."):  # other engines may use other machines
            require_memory(recipe, layout)
        recording = self.archive.recording
        wire = Wire(keep=recording is not None, sink=recording.add if recording else None)
        ledger = ledger_of(recipe, composition, layout)
        plan = plan_of(recipe, composition)
        events = Events()
        display = self.watch or make_display(self.settings.quiet)
        show(display, events)
        extensions = [part for part in composition.components.values() if isinstance(part, Extension)]
        inside = {use.use for use in recipe.extensions if use.own is None}  # hear it already
        others = listeners(with_files(self.catalog, self.settings.plugins), self.settings.listeners,
                           (*self.settings.muted, *inside), events.note, recipe)  # fmt: skip
        listen([*extensions, *others], events, self.run_dir)
        events.subscribe(Asking, lambda event: self.archive.charges.note(event.round, list(event.clients), event.what))
        self.summary = Summary(
            name=recipe.name,
            digest=recipe.digest,
            recipe=recipe.to_plain(),
            plan=plan,
            versions=versions(recipe, self.catalog, self.engine_entry),
            engine=self.settings.engine,
            device=device,
            class_distribution=distribution,
            resumed=checkpoint is not None,
            command=command_line(),
            parameters=layout.size,
        )
        done, engine, books = 0, None, None
        try:
            with terminated_like_interrupted():
                facts = {
                    "recipe": recipe.name, "clients": recipe.data.clients, "rounds": recipe.rounds,
                    "parameters": f"{layout.size:,}", "engine": self.settings.engine, "device": device,
                    "run folder": str(self.run_dir),
                }  # fmt: skip
                plain, known = self.summary.recipe, self.summary.versions
                events.tell(RunStarted(plan, facts, self.run_dir, plain, recipe.digest, known))
                for note in recipe.notes:
                    events.note(note)
                engine = self.engine_class(self._job(device, composition, world, layout))
                protocol = Protocol(recipe, composition, engine, layout, wire, events, model, world.public)
                books = Bookkeeping(protocol, ledger)
                # From here on, once everybody else listens, the run folder is kept up to date.
                events.subscribe(RowComplete, lambda event: self.archive.add_row(event.row))
                end_of_round = functools.partial(self.archive.end_of_round, books, engine)
                events.subscribe(RoundClosed, lambda event: end_of_round(event.round + 1))
                if checkpoint is None:
                    if len(self.archive.charges):
                        events.note(
                            f"{self.archive.checkpoints.folder} holds no checkpoint, though clients have uploaded in "
                            "this run: it begins again with round 1, and what was uploaded before is charged as well"
                        )
                    self.archive.begin()
                    protocol.setup()
                    self.archive.charge_again(books, 0)
                    end_of_round(0)
                else:
                    done = checkpoint[0]
                    self.archive.go_on(books, engine, checkpoint)
                    for row in books.rows[-5:]:
                        display.round_done(row)
                if world.data is None:
                    at_sites = protocol.server.remembered.classes
                    self.summary.class_distribution = distribution = class_distribution(world, at_sites)
                protocol.run(done)
                if recording:
                    recording.end_of_round(recipe.rounds + 1)
                self.summary.assessments = assessments(protocol, distribution)
                self.summary.carried, self.summary.peak_memory = carried(wire, engine), memory.bytes()
        except KeyboardInterrupt:
            self._stopped(ledger, books, events, None)
            return INTERRUPTED
        except (FedplugError, OSError) as error:
            self._stopped(ledger, books, events, error)
            log_error(self.run_dir, "server", error)
            if isinstance(error, FedplugError) and self._saved() and not isinstance(error, CheckpointError):
                raise type(error)(f"{error}\n{self._how_to_go_on(books)}") from error
            raise
        finally:
            if engine is not None:
                engine.close()
            if recording:
                recording.close()
            display.close()
        self._write_results(ledger, events)
        events.tell(RunFinished(books.rows, ledger.verdict(), self.run_dir))
        # Where somebody else shows how it goes, nothing but warnings is to be printed.
        settings = self.settings.replace({"quiet": True}) if self.watch else self.settings
        finished = Run(self.run_dir, settings, 0, self.injected, world)
        finished.recipe = recipe
        return max((section.after_run(finished) for section in recipe.sections.values()), default=0)

    def _job(self, device: str, composition: Composition, world: World, layout: Layout) -> Job:
        return Job(
            recipe=self.recipe.to_plain(),
            data_root=self.data_root,
            device=device,
            workers=self.settings.workers,
            key_server=needs_key_server(composition),
            catalog=self.injected,
            run_dir=self.run_dir,
            world=world,
            layout=layout,
            resident=self.settings.resident,
            timeout=TIMEOUT if self.settings.timeout is None else self.settings.timeout,
            own_files=self.recipe.own_files,
            options=self.engine_options,
        )

    def _how_to_go_on(self, books: Bookkeeping | None) -> str:
        """What to do after an error, when there is a checkpoint."""
        if books is None or not books.protocol.office.all_failed_alike():
            return f"Nothing is lost: continue with fedplug resume {self.run_dir}"
        return (
            "Every client failed for the same reason, so resuming will fail again unless what caused it changes.\n"
            f"If it lies in this machine, its data or a plugin, mend that and continue: fedplug resume {self.run_dir}\n"
            f"If it lies in the recipe, change a copy of {self.run_dir / 'recipe.yaml'} and run that from the start."
        )

    def _write_results(self, ledger: Ledger, events: Events) -> None:
        """Writes ledger.json and summary.json with what there is."""
        write_text(self.run_dir / "ledger.json", ledger.report().to_json(indent=2))
        write_text(self.run_dir / "summary.json", self.summary.to_json(indent=2))
        events.tell(ResultsWritten(self.run_dir))

    def _stopped(self, ledger: Ledger, books: Bookkeeping | None, events: Events, error: Exception | None) -> None:
        """Writes what there is, unless nothing was restored yet: what an earlier execution wrote must not be lost."""
        ledger = books.charging.ledger_at_failure() if books else ledger
        if ledger.log or not (self.run_dir / "ledger.json").is_file():
            try:
                self._write_results(ledger, events)
            except OSError as why:
                events.note(f"ledger.json and summary.json are not written: {why.strerror or why}")
        rounds = self._saved()
        events.tell(RunStopped(error, rounds[-1] if rounds else 0, self.run_dir))

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
