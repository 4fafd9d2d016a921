"""The common part of all trackers: it turns the events of a run into calls of a library."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import importlib.util
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import fedplug
from fedplug import Field
from fedplug.api.errors import FedplugError, SetupError, describe
from fedplug.api.events import Event, Note
from fedplug_runs.events import RowComplete, RowsRestored, RunFinished, RunStarted, RunStopped
from fedplug_runs.files import Files, private_folder, read_text, write_text

from fedplug_trackers.said import Outcome, files_of, flat, numbers, outcome_of

if TYPE_CHECKING:
    from fedplug_runs.rows import Row

State = Literal["finished", "failed", "interrupted", "superseded"]
"""How a run ends in a tracker. `superseded`: the run went back to a round before the last one in the tracker."""
FOLDER = "trackers"
_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")


def masked(text: str) -> str:
    """The text with the passwords in addresses hidden: `http://me:***@host`. Run files are kept and shown to others."""
    return _PASSWORD.sub(r"\1:***@", text)


def missing(extra: str, modules: tuple[str, ...]) -> str:
    """A sentence with the command to install a missing library; empty if nothing is missing.

    It looks for the modules without importing them, because importing MLflow takes seconds.

    Args:
        extra: of the distribution, and what pip knows the library as.
        modules: top-level names of the modules that the tracker imports.
    """
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    what = " and ".join(absent)
    return f"{what} {'is' if len(absent) == 1 else 'are'} not installed; pip install {extra}"


@dataclasses.dataclass
class Memory:
    """One tracker's file in a run folder, `trackers/NAME.json`.

    Attributes:
        file: path of the memory.
        where: the server and project that have the run. Other places do not know it.
        id: of the run there; empty if it has none yet.
        rounds: how many rounds the tracker has.
    """

    file: Path
    where: str
    id: str = ""
    rounds: int = 0

    @classmethod
    def of(cls, run_dir: Path, name: str, where: str) -> Self:
        """The memory of a run in this place; an empty one if there is none or it cannot be read."""
        file = run_dir / FOLDER / f"{name}.json"
        try:
            found = json.loads(read_text(file))
            known = cls(file, str(found["where"]), str(found["id"]), int(found["rounds"]))
        except (OSError, ValueError, LookupError, TypeError):
            return cls(file, where)
        return known if known.where == where else cls(file, where)

    def keep(self) -> None:
        """Writes the memory. A kill leaves either the old file or the new one."""
        private_folder(self.file.parent)
        write_text(self.file, json.dumps({"where": self.where, "id": self.id, "rounds": self.rounds}))

    def forget(self) -> None:
        """Forgets the run. The tracker then begins another one."""
        self.id, self.rounds = "", 0
        with contextlib.suppress(FileNotFoundError):
            self.file.unlink()


class TrackerLost(Exception):
    """A tracker has failed. The run continues without it."""


@dataclasses.dataclass(frozen=True)
class Begun:
    """The facts about a run that a tracker receives when the run begins.

    Attributes:
        title: the name of the run in the tracker.
        folder: of the run.
        files: where the tracker may write. A tracker in the recipe may write only to the run folder.
        params: the resolved recipe, flattened.
        facts: digest, versions, engine, device, size of the model, by name.
        earlier: the id of the run in the tracker that this one replaces; empty if there is none.
        rounds: how many rounds of a resumed run the tracker has.
    """

    title: str
    folder: Path
    files: Files
    params: Mapping[str, Any]
    facts: Mapping[str, str]
    earlier: str = ""
    rounds: int = 0


class Sink(abc.ABC):
    """A run in a library. Methods may raise any error of the library."""

    id: str
    """The id by which the library finds the run again."""
    rounds: int = 0
    """The last round of a resumed run in the library; 0 if the library does not say."""

    @abc.abstractmethod
    def row(self, round: int, values: Mapping[str, float]) -> None:
        """Adds the numbers of a round, counted from 1."""

    @abc.abstractmethod
    def notes(self, lines: Sequence[str], round: int) -> None:
        """Writes all notes of the run so far. The last one is new."""

    @abc.abstractmethod
    def end(self, state: State, why: str, outcome: Outcome, files: Sequence[Path], round: int) -> None:
        """Adds the outcome of the run and closes it.

        Args:
            state: how the run ended.
            why: the error of a failed run; otherwise empty.
            outcome: the result of the ledger.
            files: to store in the library.
            round: the last round.
        """


class Common(fedplug.Options):
    """Options of every tracker."""

    run_name: str = Field("", description="the name of the run in the tracker; default: the name of its folder")
    tags: dict[str, str] = Field({}, description="tags of the run, in addition to the digest and the versions")
    report: bool = Field(
        True, description="store report.html too, with its class counts, rounds of each client and pictures"
    )


class Tracker(fedplug.Extension):
    """The part of a tracker that is common to all libraries."""

    Options = Common
    hears = (RunStarted, RowsRestored, RowComplete, Note, RunFinished, RunStopped)
    extra: ClassVar[str] = ""
    """The extra of the distribution that installs the library, and what pip knows the library as."""
    modules: ClassVar[tuple[str, ...]] = ()
    """Top-level names of the modules that it imports."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self._sink: Sink | None = None
        self._begun: Begun | None = None
        self._memory: Memory | None = None
        self._notes: list[str] = []

    @abc.abstractmethod
    def place(self, run_dir: Path) -> str:
        """The place of the run: server or folder, and project. A resumed run is the same run in the same place."""

    @abc.abstractmethod
    def open(self, begun: Begun, id: str) -> Sink:
        """Begins a run, or continues the run `id` if it is not empty."""

    def require_allowed(self, files: Files) -> None:
        """Asks `files` whether the options may lead outside the run folder.

        Raises:
            SetupError: they may not; says how to allow it.
        """

    def check(self, recipe: fedplug.Recipe) -> Iterable[str]:
        """Requires the library, before a run begins."""
        if why := missing(self.extra, self.modules):
            yield why

    def observe(self, event: Event) -> None:
        """Passes on an event. An error before the rounds refuses the run. A later one ends only the tracking."""
        if isinstance(event, RunStarted):
            self._refusing(event)
            return
        if self._sink is None or self._begun is None or self._memory is None:
            return  # the tracker refused the run, or the event is an attack after the run
        try:
            self._hear(event, self._sink, self._begun, self._memory)
        except Exception as error:
            sink, self._sink = self._sink, None
            with contextlib.suppress(Exception):
                if sink is not None and not isinstance(event, RunFinished | RunStopped):
                    sink.end("failed", "the tracker failed, not the run", Outcome(), (), self._memory.rounds)
            raise TrackerLost(
                f"tracking in {self._memory.where} has stopped: {masked(describe(error))}; rounds sent: "
                f"{self._memory.rounds}. The run folder has all rounds. To send the rest: fedplug resume "
                f"{self._begun.folder} --with {self.name}"
            ) from _shown(error)

    def _refusing(self, event: RunStarted) -> None:
        facts = {"digest": event.digest, **{f"version.{name}": text for name, text in event.versions.items()}}
        facts |= {f"run.{key}": str(event.facts[key]) for key in ("engine", "device", "parameters")}
        title = self.options.run_name or event.folder.name
        self._begun = begun = Begun(title, event.folder, event.files, dict(flat(event.recipe)), facts)
        try:
            self.require_allowed(event.files)
            self._memory = Memory.of(event.folder, self.name, masked(self.place(event.folder)))
            self._begin(dataclasses.replace(begun, rounds=self._memory.rounds), self._memory)
        except FedplugError:
            raise
        except Exception as error:
            raise SetupError(
                f"{self.name} cannot start: {masked(describe(error))}; fix this, or run without the tracker (--without "
                f"{self.name} if the config file names it)"
            ) from _shown(error)

    def _begin(self, begun: Begun, memory: Memory) -> Sink:
        self._sink = sink = self.open(begun, memory.id)
        memory.id = sink.id
        # A kill may have happened between sending a round and recording it.
        memory.rounds = max(memory.rounds, sink.rounds)
        memory.keep()
        return sink

    def _hear(self, event: Event, sink: Sink, begun: Begun, memory: Memory) -> None:
        if isinstance(event, RowsRestored):
            self._restore(event.rows, sink, begun, memory)
        elif isinstance(event, RowComplete):
            self._add(event.row, sink, memory)
        elif isinstance(event, Note):
            self._notes.append(event.text)
            sink.notes(self._notes, memory.rounds)
        elif isinstance(event, RunFinished):
            self._end("finished", "", event.folder, sink, memory)
        elif isinstance(event, RunStopped):
            state: State = "interrupted" if event.error is None else "failed"
            self._end(state, "" if event.error is None else describe(event.error), event.folder, sink, memory)

    def _restore(self, rows: Sequence[Row], sink: Sink, begun: Begun, memory: Memory) -> None:
        """Continues after a checkpoint and sends the missing rounds. A run that goes back becomes another run there."""
        if memory.rounds > (rows[-1].round if rows else 0):
            sink.end("superseded", "", Outcome(), (), memory.rounds)
            earlier = memory.id
            memory.forget()
            sink = self._begin(dataclasses.replace(begun, earlier=earlier), memory)
        # The last row may still lack its accuracy. It is sent when it is complete.
        for row in rows[:-1]:
            self._add(row, sink, memory)

    def _add(self, row: Row, sink: Sink, memory: Memory) -> None:
        if row.round > memory.rounds:
            sink.row(row.round, numbers(row))
            memory.rounds = row.round
            memory.keep()

    def _end(self, state: State, why: str, folder: Path, sink: Sink, memory: Memory) -> None:
        self._sink = None
        sink.end(state, why, outcome_of(folder), files_of(folder, self.options.report), memory.rounds)


def _shown(error: Exception) -> Exception | None:
    """The error, for the traceback in the run folder; None if it contains a password."""
    return error if masked(describe(error)) == describe(error) else None
