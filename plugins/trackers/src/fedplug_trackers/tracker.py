"""What all trackers do alike: from the events of a run to its beginning, its rounds and its end in a library."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import fedplug
from fedplug import Field
from fedplug.api.errors import FedplugError, SetupError, describe
from fedplug.api.events import Event, Note, RowComplete, RowsRestored, RunFinished, RunStarted, RunStopped
from fedplug.api.files import Files

from fedplug_trackers.library import masked, missing
from fedplug_trackers.memory import Memory
from fedplug_trackers.said import Outcome, files_of, flat, numbers, outcome_of

if TYPE_CHECKING:
    from fedplug.api.rows import Row

State = Literal["finished", "failed", "interrupted", "superseded"]
"""How a run ends in a tracker; `superseded`: it went on from a round before the last one that is there."""


class TrackerLost(Exception):
    """A tracker takes no more; the run goes on without it."""


@dataclasses.dataclass(frozen=True)
class Begun:
    """A run as a tracker is told of it when it begins.

    Attributes:
        title: what it is called there.
        folder: of the run.
        files: where the tracker may write: of one that stands in the recipe, the run folder alone.
        params: the resolved recipe, flattened.
        facts: digest, versions, engine, device, size of the model, by name.
        earlier: the id of the run there that this one takes the place of; empty where there is none.
        rounds: how many rounds are there, of a run that goes on.
    """

    title: str
    folder: Path
    files: Files
    params: Mapping[str, Any]
    facts: Mapping[str, str]
    earlier: str = ""
    rounds: int = 0


class Sink(abc.ABC):
    """A run in a library. Whatever goes wrong there may be raised as it is."""

    id: str
    """Under which the run is found again."""
    rounds: int = 0
    """The last round that is there, of a run that goes on; 0 where the library does not say."""

    @abc.abstractmethod
    def row(self, round: int, values: Mapping[str, float]) -> None:
        """Adds the numbers of a round, which counts from 1."""

    @abc.abstractmethod
    def notes(self, lines: Sequence[str], round: int) -> None:
        """Has the notes of the run so far, of which the last is new."""

    @abc.abstractmethod
    def end(self, state: State, why: str, outcome: Outcome, files: Sequence[Path], round: int) -> None:
        """Adds what the run came to, and closes it.

        Args:
            state: how it ended.
            why: of a failed run, its error; else empty.
            outcome: what the ledger says.
            files: to be kept there.
            round: the last one.
        """


class Common(fedplug.Options):
    """Options of every tracker."""

    run_name: str = Field("", description="what the run is called there; default: the name of its folder")
    tags: dict[str, str] = Field({}, description="what to find it by, besides the digest and the versions")
    report: bool = Field(
        True, description="keep report.html there, with its class counts, rounds of each client and pictures"
    )


class Tracker(fedplug.Extension):
    """The part of a tracker that is the same for all libraries."""

    Options = Common
    hears = (RunStarted, RowsRestored, RowComplete, Note, RunFinished, RunStopped)
    extra: ClassVar[str] = ""
    """Of the distribution, which brings the library."""
    modules: ClassVar[tuple[str, ...]] = ()
    """What it imports, top-level names."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self._sink: Sink | None = None
        self._begun: Begun | None = None
        self._memory: Memory | None = None
        self._notes: list[str] = []

    @abc.abstractmethod
    def place(self, run_dir: Path) -> str:
        """Where it writes: server or folder, and project. A run is the same run in the same place."""

    @abc.abstractmethod
    def open(self, begun: Begun, id: str) -> Sink:
        """Begins a run, or goes on with that of `id`, where it is not empty."""

    def require_allowed(self, files: Files) -> None:
        """Refuses what its options lead to outside the run folder, where `files` does.

        Raises:
            SetupError: says how to allow it.
        """

    def check(self, recipe: fedplug.Recipe) -> Iterable[str]:
        """Asks for the library, before a run has begun."""
        if why := missing(self.extra, self.modules):
            yield why

    def observe(self, event: Event) -> None:
        """Passes on what happened. An error before the rounds refuses the run, a later one ends the tracking alone."""
        if isinstance(event, RunStarted):
            self._refusing(event)
            return
        if self._sink is None or self._begun is None or self._memory is None:
            return  # it has refused the run, or hears of attacks on one that has ended
        try:
            self._hear(event, self._sink, self._begun, self._memory)
        except Exception as error:
            sink, self._sink = self._sink, None
            with contextlib.suppress(Exception):
                if sink is not None and not isinstance(event, RunFinished | RunStopped):
                    sink.end("failed", "the tracker failed, not the run", Outcome(), (), self._memory.rounds)
            raise TrackerLost(
                f"{self._memory.where} takes no more: {masked(describe(error))}; it has {self._memory.rounds} rounds, "
                f"the run folder has all of them, and fedplug resume {self._begun.folder} --with {self.name} sends the "
                "rest"
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
                f"{self.name} cannot begin: {masked(describe(error))}; mend that, or run without it (--without "
                f"{self.name} where the config file names it)"
            ) from _shown(error)

    def _begin(self, begun: Begun, memory: Memory) -> Sink:
        self._sink = sink = self.open(begun, memory.id)
        memory.id = sink.id
        # A kill may have come between a round's way there and the note of it.
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
        """Goes on behind a checkpoint: sends what is not there yet; a run that goes back is another one there."""
        if memory.rounds > (rows[-1].round if rows else 0):
            sink.end("superseded", "", Outcome(), (), memory.rounds)
            earlier = memory.id
            memory.forget()
            sink = self._begin(dataclasses.replace(begun, earlier=earlier), memory)
        # The last one may wait for its accuracy, and is complete soon.
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
    """The error, whose traceback goes into the run folder; None where it tells a password."""
    return error if masked(describe(error)) == describe(error) else None
