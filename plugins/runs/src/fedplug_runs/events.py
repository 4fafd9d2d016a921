"""The events of a run that has a folder and a verdict; those of the protocol are in `fedplug.api.events`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.events import Event
from fedplug.api.reports import Reports
from fedplug_ledger.verdict import Verdict

from fedplug_runs.files import Files
from fedplug_runs.rows import Row


class RunStarted(Event):
    """Before anything runs.

    Attributes:
        plan: (hook, component, what it does here), in the order of a round.
        facts: of the run, for people: recipe, clients, rounds, engine, ...
        folder: of the run.
        recipe, digest: the recipe as plain data, with every default written out, and its digest.
        versions: of Python, numpy, fedplug and the plugins that take part.
        files: where listeners may write; an extension that the recipe names may write to the run folder alone.
    """

    plan: Sequence[tuple[str, str, str]]
    facts: Mapping[str, Any]
    folder: Path
    recipe: Mapping[str, Any]
    digest: str
    versions: Mapping[str, str]
    files: Files


class ResultsWritten(Event):
    """The run folder holds the results of the run, complete or not: metrics, ledger, summary."""

    folder: Path


class RunFinished(Event):
    """The run is complete.

    Attributes:
        verdict: what privacy it gave.
    """

    rows: Sequence[Row]
    verdict: Verdict
    folder: Path


class RunStopped(Event):
    """The run ended before its last round.

    Attributes:
        error: why; None where the user stopped it.
        round: the last round in a checkpoint, 0 if none is.
    """

    error: Exception | None
    round: int
    folder: Path


class RowMade(Event):
    """A round has numbers; its accuracy is still to come. A section may add to the row; extensions get a copy.

    Attributes:
        row: of the metrics; what a listener adds goes to `row.added`.
        reports: (client, what came with a reply of it) since the last one.
        seconds: of the server's own work.
    """

    round: int
    row: Row
    reports: Sequence[tuple[int, Reports]]
    seconds: float


class RowsRestored(Event):
    """A run continues from a checkpoint, after these rows; the last may wait for its accuracy."""

    rows: Sequence[Row]


class RowComplete(Event):
    """The numbers of a round, its accuracy included; may come after the next round's first replies."""

    row: Row


class PicturesMade(Event):
    """Components of a party have drawn something for the report (`Party.figures`).

    Attributes:
        client_id: whose they are; None: the server's.
        pictures: JSON, by name.
        left_out: why others of that party cannot travel, by name.
    """

    round: int
    client_id: int | None
    pictures: Mapping[str, str]
    left_out: Mapping[str, str]
