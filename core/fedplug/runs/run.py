"""`fedplug.run` and `fedplug.resume`: a run folder around a protocol, from the first round or from a checkpoint."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from importlib_metadata import version

from fedplug.api import units
from fedplug.api.errors import CheckpointError, FedplugError, SetupError, describe, log_error
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
from fedplug.api.outer_roles import Extension, Partition
from fedplug.api.role_records import GroundTruth
from fedplug.api.rows import Row
from fedplug.api.types import Layout
from fedplug.console.choice import make_display
from fedplug.console.display import Display, show
from fedplug.engines.base import Engine, Job
from fedplug.privacy.ledger_setup import ledger_of
from fedplug.recipe import yaml_source
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.plan import plan_of
from fedplug.recipe.recipe import Recipe, load_recipe
from fedplug.round.checkpoint import KEPT, Checkpoints
from fedplug.round.opening import needs_key_server
from fedplug.round.protocol import Protocol
from fedplug.round.state_files import holding
from fedplug.round.world import World
from fedplug.runs.bookkeeping import Bookkeeping, listen, listeners
from fedplug.runs.finished import FinishedRun
from fedplug.runs.folder import Charges, locked, new_folder, write_text
from fedplug.runs.settings import Settings
from fedplug.runs.summary import Distribution, Summary
from fedplug.wire.record import Wire, write_wire

INTERRUPTED = 130


def start(
    recipe: Recipe,
    settings: Settings,
    catalog: Catalog | None = None,
    folder_name: str | None = None,
    watch: Display | None = None,
) -> tuple[int, Path]:
    """Runs a recipe from the start; gives the exit code and the run folder.

    Args:
        recipe: what to run.
        settings: of this machine.
        catalog: the components on offer; those installed if None.
        folder_name: begins the name of the run folder; the recipe's name if None.
        watch: told of progress; by default what suits this process's standard output.
    """
    run_dir = new_folder(Path(settings.output), folder_name or recipe.name)
    with locked(run_dir):
        write_text(run_dir / "recipe.yaml", yaml_source.dump(recipe.to_plain()))
        try:
            return Run(recipe, run_dir, settings, catalog, watch).execute(None), run_dir
        except FedplugError:
            if not Checkpoints(run_dir).rounds():  # nothing ran, so there is nothing to keep
                shutil.rmtree(run_dir, ignore_errors=True)
            raise


def resume(
    run_dir: Path,
    settings: Settings,
    round: int | None = None,
    catalog: Catalog | None = None,
    watch: Display | None = None,
) -> int:
    """Continues an interrupted run from its last checkpoint, or from that of `round`; gives the exit code.

    Raises:
        CheckpointError: there is no run there, its checkpoint is damaged, or its charging.jsonl is not whole.
        SetupError: another process writes in its folder.
    """
    file = run_dir / "recipe.yaml"
    if not file.is_file():
        raise CheckpointError(f"{run_dir} is no run folder: it has no recipe.yaml; fedplug run prints a run's folder")
    with locked(run_dir):
        recipe = load_recipe(file, (), catalog)
        checkpoint = Checkpoints(run_dir).read(round)
        run = Run(recipe, run_dir, settings, catalog, watch)
        run.charges.require(run.checkpoints)
        return run.execute(checkpoint)


class Run:
    """One execution of a recipe in a run folder.

    Args:
        recipe: what to run.
        run_dir: where everything is written.
        settings: of this machine.
        catalog: the components on offer; those installed if None.
        watch: told of progress; by default what suits this process's standard output.
    """

    def __init__(
        self, recipe: Recipe, run_dir: Path, settings: Settings, catalog: Catalog | None, watch: Display | None = None
    ) -> None:
        self.recipe, self.run_dir, self.settings, self.watch = recipe, run_dir, settings, watch
        self.injected = catalog
        self.catalog = catalog or Catalog.discover()
        # Attacks on earlier rounds need what was said in them, and what the parties had.
        looked_at = any(section.keeps_messages for section in recipe.sections.values())
        self.keeps = settings.record_wire or looked_at
        self.checkpoints = Checkpoints(run_dir, None if self.keeps else KEPT)
        self.data_root = str(settings.data) if settings.data else os.environ.get("FEDPLUG_DATA") or None
        self.charges = Charges(run_dir)
        self.engine_class = self._engine_class()
        if settings.data is not None and not settings.data.is_dir():
            raise SetupError(
                f"the folder of data sets {settings.data} does not exist; --data, the variable FEDPLUG_DATA or the "
                "config file names it"
            )

    def execute(self, checkpoint: tuple[int, dict[str, Any], Path] | None) -> int:
        """Runs what is left of the recipe; gives the exit code."""
        recipe = self.recipe
        composition = Composition(recipe, self.catalog)
        device = resolve_device(self.settings.device)
        world = World(recipe, composition, self.data_root)
        model, distribution = world.model("cpu"), class_distribution(world)
        layout = model.layout
        if self.engine_class.__module__.startswith("fedplug."):  # other engines may use other machines
            require_memory(recipe, layout)
        wire = Wire(keep=self.keeps)
        ledger = ledger_of(recipe, composition, layout)
        plan = plan_of(recipe, composition)
        events = Events()
        display = self.watch or make_display(self.settings.quiet)
        show(display, events)
        extensions = [part for part in composition.components.values() if isinstance(part, Extension)]
        listen([*extensions, *self._listeners(events)], events, self.run_dir)
        events.subscribe(Asking, lambda event: self.charges.note(event.round, list(event.clients), event.what))
        self.summary = Summary(
            name=recipe.name,
            digest=recipe.digest,
            recipe=recipe.to_plain(),
            plan=plan,
            versions=self._versions(),
            engine=self.settings.engine,
            device=device,
            class_distribution=distribution,
            resumed=checkpoint is not None,
            command=command_line(),
            parameters=layout.size,
        )
        events.tell(
            RunStarted(
                plan,
                {
                    "recipe": recipe.name, "clients": recipe.data.clients, "rounds": recipe.rounds,
                    "parameters": f"{layout.size:,}", "engine": self.settings.engine, "device": device,
                    "run folder": str(self.run_dir),
                },
            )
        )  # fmt: skip
        done = 0
        engine: Engine | None = None
        books: Bookkeeping | None = None
        try:
            with terminated_like_interrupted():
                engine = self._engine(device, composition, world, layout)
                protocol = Protocol(recipe, composition, engine, layout, wire, events, model, world.public)
                books = Bookkeeping(protocol, ledger)
                self._write_as_it_goes(books, engine)
                if checkpoint is None:
                    protocol.setup()
                    self._charge_again(books, 0)
                    self._end_of_round(books, engine, 0)
                else:
                    done, state, folder = checkpoint
                    self._check(state, folder, done)
                    self._load(engine, folder, done)
                    self._restore(protocol, state, folder, done)
                    books.restore(state)
                    books.metrics.pictures.load(self.run_dir / "figures.json")
                    self._charge_again(books, state["charges"])
                    self._write_metrics(books.rows)
                    for row in books.rows[-5:]:
                        display.round_done(row)
                protocol.run(done)
                self._write_wire(wire, recipe.rounds)
                self.summary.assessments = self._assess(composition, protocol, distribution)
        except KeyboardInterrupt:
            self._stopped(books, events, None)
            return INTERRUPTED
        except FedplugError as error:
            self._stopped(books, events, error)
            log_error(self.run_dir, "server", error)
            if self.checkpoints.rounds() and not isinstance(error, CheckpointError):
                raise type(error)(f"{error}\n{self._how_to_go_on(books)}") from error
            raise
        finally:
            if engine is not None:
                engine.close()
            display.close()
        self._write_results(books, events)
        events.tell(RunFinished(books.rows, ledger.verdict(), self.run_dir))
        finished = FinishedRun(recipe, self.run_dir, self.settings, self.injected, self.watch is not None, world)
        return max((section.after_run(finished) for section in recipe.sections.values()), default=0)

    def _write_as_it_goes(self, books: Bookkeeping, engine: Engine) -> None:
        """Keeps the run folder up to date from here on; called once everybody else listens."""
        events = books.protocol.events
        events.subscribe(RowComplete, lambda event: self._write_metrics(books.rows))
        events.subscribe(RoundClosed, lambda event: self._end_of_round(books, engine, event.round + 1))

    def _listeners(self, events: Events) -> list[Extension]:
        """The extensions that hear this run without standing in its recipe."""
        inside = {use.use for use in self.recipe.extensions}  # hears it already
        return listeners(self.catalog, self.settings.listeners, (*self.settings.muted, *inside), events.note)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _engine_class(self) -> type:
        name, installed = self.settings.engine, Catalog.discover()
        entry = self.catalog.get("engine", name) or installed.get("engine", name)
        if entry is None:
            raise SetupError(f"there is no engine {name!r}; {installed.suggest('engine', name)}")
        return entry.load()

    def _engine(self, device: str, composition: Composition, world: World, layout: Layout) -> Engine:
        job = Job(
            recipe=self.recipe.to_plain(),
            data_root=self.data_root,
            device=device,
            workers=self.settings.workers or max(1, os.cpu_count() or 1),
            key_server=needs_key_server(composition),
            catalog=self.injected,
            run_dir=self.run_dir,
            world=world,
            layout=layout,
        )
        engine: Engine = self.engine_class(job)
        return engine

    def _check(self, state: Any, folder: Path, round: int) -> None:
        """Refuses a checkpoint of something else."""
        digest = state.get("digest") if isinstance(state, dict) else None
        if digest is None:
            remedy = self.checkpoints.remedy(round)
            raise CheckpointError(f"{folder / 'server.state'} holds no server's state; {remedy}")
        if digest != self.recipe.digest:
            file = self.run_dir / "recipe.yaml"
            raise CheckpointError(
                f"{folder} belongs to recipe {digest[:12]}, but {file} is {self.recipe.digest[:12]} now; undo the "
                f"change, or start a run of its own: fedplug run {file}"
            )

    def _load(self, engine: Engine, folder: Path, round: int) -> None:
        try:
            engine.load(folder)
        except FedplugError as error:
            raise CheckpointError(f"{error}; {self.checkpoints.remedy(round)}") from error

    def _restore(self, protocol: Protocol, state: dict[str, Any], folder: Path, round: int) -> None:
        try:
            with holding(folder / "server.state", "server's state"):
                protocol.restore(state)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self.checkpoints.remedy(round)}") from error

    def _how_to_go_on(self, books: Bookkeeping | None) -> str:
        """What to do after an error, when there is a checkpoint."""
        if books is None or not books.protocol.office.all_failed_alike():
            return f"Nothing is lost: continue with fedplug resume {self.run_dir}"
        return (
            "Every client failed for the same reason, so resuming will fail again unless what caused it changes.\n"
            f"If it lies in this machine, its data or a plugin, mend that and continue: fedplug resume {self.run_dir}\n"
            f"If it lies in the recipe, change a copy of {self.run_dir / 'recipe.yaml'} and run that from the start."
        )

    def _end_of_round(self, books: Bookkeeping, engine: Engine, rounds: int) -> None:
        started = time.perf_counter()
        state = {**books.protocol.state(), **books.state(), "digest": self.recipe.digest, "charges": len(self.charges)}
        self.checkpoints.write(rounds, state, engine)
        self._write_wire(books.protocol.wire, rounds - 1)
        self._write_pictures(books)
        if books.metrics.awaiting is not None:
            books.metrics.awaiting.seconds["checkpoint"] = time.perf_counter() - started

    def _charge_again(self, books: Bookkeeping, known: int) -> None:
        """What was uploaded after the checkpoint is not in its ledger, and will be uploaded again with other noise."""
        for round, charged, what in self.charges.since(known):
            (books.charging.lost_ballots if what == "ballots" else books.charging.lost_round)(round, charged)

    def _write_wire(self, wire: Wire, round: int) -> None:
        if wire.keep:
            write_wire(self.run_dir / "wire" / f"round-{round + 1:04d}.wire", wire.take())

    def _write_metrics(self, rows: list[Row]) -> None:
        write_text(self.run_dir / "metrics.jsonl", "".join(row.to_json() + "\n" for row in rows))

    def _write_pictures(self, books: Bookkeeping) -> None:
        if books.metrics.pictures.kept:
            write_text(self.run_dir / "figures.json", books.metrics.pictures.to_json())

    def _write_results(self, books: Bookkeeping | None, events: Events) -> None:
        """Writes ledger.json, summary.json and figures.json with what there is."""
        ledger = books.charging.ledger_at_failure().to_json() if books else {}
        write_text(self.run_dir / "ledger.json", json.dumps(ledger, indent=2))
        write_text(self.run_dir / "summary.json", self.summary.to_json(indent=2))
        if books:
            self._write_pictures(books)
        events.tell(ResultsWritten(self.run_dir))

    def _stopped(self, books: Bookkeeping | None, events: Events, error: Exception | None) -> None:
        """Writes what there is, unless nothing was restored yet: what an earlier execution wrote must not be lost."""
        if not (self.run_dir / "ledger.json").is_file() or (books and books.charging.ledger_at_failure().log):
            self._write_results(books, events)
        rounds = self.checkpoints.rounds()
        events.tell(RunStopped(error, rounds[-1] if rounds else 0, self.run_dir))

    def _versions(self) -> dict[str, str]:
        versions = {"python": sys.version.split()[0], "numpy": np.__version__, "fedplug": version("fedplug")}
        for use in self.recipe.uses():
            entry = self.catalog.get(use.group, use.use)
            if entry is not None:
                versions[entry.distribution] = entry.version
        for entry in (self.catalog.sections[key] for key in self.recipe.sections):
            versions[entry.distribution] = entry.version
        return dict(sorted(versions.items()))

    def _assess(
        self, composition: Composition, protocol: Protocol, distribution: Distribution
    ) -> dict[str, dict[str, float]]:
        """Asks the components for facts that no party has, such as how well clusters match the true ones.

        Runs outside every party, with what was true of the data. An assessment that fails is said to, and left out.
        """
        examples = distribution.clients
        partition, found = composition.part(self.recipe.data.partition.name, Partition), {}
        for name, component in composition.components.items():
            try:
                categories = partition.categories(len(examples))
                truth = GroundTruth(classes=distribution.classes, examples=examples, categories=categories)
                if facts := component.assess(protocol.server, truth):
                    found[name] = {str(fact): float(value) for fact, value in facts.items()}
            except Exception as error:
                protocol.events.note(f"the assessment of {name} is left out: {describe(error)}")
        return found


def command_line() -> str:
    """The command of fedplug that this process runs, ready for a shell; empty in a script and in a notebook."""
    program = Path(sys.argv[0])
    ours = program.stem == "fedplug" or program.parts[-2:] == ("fedplug", "__main__.py")
    return shlex.join(["fedplug", *sys.argv[1:]]) if ours else ""


def class_distribution(world: World) -> Distribution:
    """For the report, how many examples of each class a client has, which no message carries."""
    data = world.data
    counts = {
        client_id: np.bincount(data.train.labels[mine], minlength=len(data.label_names)).tolist()
        for client_id, mine in enumerate(world.assignment)
    }
    return Distribution(list(data.label_names), counts)


def require_memory(recipe: Recipe, layout: Layout) -> None:
    """Refuses a run whose clients' updates and scores alone are larger than this machine's memory.

    Every client of a round holds its update and its scores, float32 each, until the round ends. What else a run needs
    (data, activations, ciphertexts) comes on top, so this refuses nothing that could work.

    Raises:
        SetupError: they do not fit.
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not every system tells
        return
    share = recipe.sampling.rate if recipe.sampling else 1.0
    needed = 4 * layout.size * (1 + len(recipe.score_parameters)) * share * recipe.data.clients
    if needed > memory:
        raise SetupError(
            f"{recipe.data.clients} clients with a model of {layout.size:,} parameters need more than "
            f"{units.size(needed)} of memory for updates and scores, and this machine has {units.size(memory)}; take "
            "fewer clients (data.clients), a smaller sampling.rate, or a smaller model"
        )


def resolve_device(device: str) -> str:
    """`auto` becomes `cuda` where there is one; the rest is checked by the model's own library."""
    from fedplug.api.torch_model import resolve_device as resolve

    return resolve(device)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Inside, SIGTERM ends the run as cleanly as Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread: leave signals alone
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
