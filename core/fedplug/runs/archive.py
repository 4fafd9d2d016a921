"""The books of a run, and what its folder keeps of them and of the parties: nothing in it grows dearer by round.

Rows, entries of the ledger and requests for uploads are appended. A checkpoint knows how far the first two had come, so
that going on from it cuts off what was written after; the requests stay, since uploads are paid for however often a
round is run. The order at the end of a round is histories, messages, checkpoint: the checkpoint makes the round whole.

    RUN/metrics.jsonl              a row a round, for people and programs
    RUN/charging.jsonl             who was asked to upload, and pays
    RUN/wire/                      the messages of a recorded run
    RUN/checkpoint/rows.jsonl      the rows as they were, for a run that goes on
    RUN/checkpoint/ledger.jsonl    the entries of the ledger, which may name secret cohorts: for their owner alone
    RUN/checkpoint/round-0007/     what each party holds, see `fedplug.round.checkpoint`
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import CheckpointError, FedplugError
from fedplug.api.outer_roles import ModelSource
from fedplug.api.rows import Row
from fedplug.privacy.charging import Charging
from fedplug.privacy.ledger_record import RoundEntry
from fedplug.round.checkpoint import KEPT, Checkpoints
from fedplug.round.state_files import holding
from fedplug.runs.folder import write_text
from fedplug.runs.histories import START, Charges, Lines, Recording
from fedplug.runs.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedplug.engines.base import Engine
    from fedplug.privacy.ledger import Ledger
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.protocol import Protocol


class Bookkeeping:
    """What is kept of a run beside what its parties hold. It follows from the events of a protocol about to run:
    `charging` enters what was released into the ledger, `metrics` has rows.
    """

    def __init__(self, protocol: Protocol, ledger: Ledger) -> None:
        recipe, events = protocol.recipe, protocol.events
        self.protocol, self.ledger = protocol, ledger
        model = protocol.composition.part(recipe.model.name, ModelSource)
        self.charging = Charging(recipe, protocol.composition, protocol.server, ledger, protocol.layout.size)
        self.charging.subscribe(events)
        self.metrics = Metrics(recipe, model, protocol.office, ledger, protocol.server, events)
        for section in recipe.sections.values():
            section.attach(protocol)

    @property
    def rows(self) -> list[Row]:
        """The complete rows of the metrics."""
        return self.metrics.rows

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs beside the state of the protocol, without what lies behind; plain data."""
        awaiting = self.metrics.awaiting
        return {"awaiting": awaiting and awaiting.to_plain(), "ledger": self.ledger.state()}

    def restore(self, state: dict[str, Any], rows: list[Row], log: list[RoundEntry]) -> None:
        """Inverse of `state`, with the complete rows and the entries of the ledger until then."""
        awaiting = state["awaiting"]
        self.metrics.restore(rows, awaiting and Row.from_plain(awaiting))
        self.ledger.restore(state["ledger"], log)


Checkpoint = tuple[int, dict[str, Any], Path]
"""After how many rounds, the server's state, and the folder: as `Checkpoints.read` gives it."""


class Archive:
    """The files of one run folder that a run writes as it goes.

    Messages are recorded if `records`, or if they have been so far. Then all checkpoints are kept, since attacks on
    earlier rounds need both.
    """

    def __init__(self, recipe: Recipe, run_dir: Path, records: bool) -> None:
        self.recipe, self.run_dir = recipe, run_dir
        recording = Recording(run_dir)
        self.recording = recording if records or recording.begun else None
        self.checkpoints = Checkpoints(run_dir, KEPT if self.recording is None else None)
        self.charges = Charges(run_dir)
        self._metrics = Lines(run_dir / "metrics.jsonl")
        self._rows = Lines(self.checkpoints.folder / "rows.jsonl", private=True)
        self._ledger = Lines(self.checkpoints.folder / "ledger.jsonl", private=True)

    def add_row(self, row: Row) -> None:
        """Adds the complete numbers of a round to `metrics.jsonl`."""
        self._metrics.append(row.to_plain(for_json=True))

    def end_of_round(self, books: Bookkeeping, engine: Engine, rounds: int) -> None:
        """Saves everything after `rounds` rounds."""
        started = time.perf_counter()
        # Not for other programs: with NaN as Python writes it, so that a loss that diverged comes back as one.
        self._rows.append(*(row.to_plain() for row in books.rows[self._rows.mark["lines"] :]))
        self._ledger.append(*(entry.to_plain() for entry in books.ledger.log[self._ledger.mark["lines"] :]))
        if self.recording is not None:
            self.recording.end_of_round(rounds)
        state = {
            **books.protocol.state(), **books.state(), "digest": self.recipe.digest, "charges": len(self.charges),
            "histories": {"rows": self._rows.mark, "ledger": self._ledger.mark},
        }  # fmt: skip
        self.checkpoints.write(rounds, state, engine)
        if books.metrics.awaiting is not None:
            books.metrics.awaiting.seconds["checkpoint"] = time.perf_counter() - started

    def begin(self) -> None:
        """Before the set-up: nothing is saved yet, whatever lies here."""
        self.checkpoints.folder.mkdir(mode=0o700, exist_ok=True)
        self._from(0, {"rows": START, "ledger": START}, [])

    def go_on(self, books: Bookkeeping, engine: Engine, checkpoint: Checkpoint) -> None:
        """Takes every party and the books back to a checkpoint, and then forgets what was written after it.

        Raises:
            CheckpointError: it is damaged, or of another recipe.
        """
        done, state, folder = checkpoint
        self._check(state, folder, done)
        try:
            engine.load(folder)
            with holding(folder / "server.state", "server's state"):
                marks = state["histories"]
                rows = [Row.from_plain(row) for row in self._rows.read(marks["rows"])]
                log = [RoundEntry.from_plain(entry) for entry in self._ledger.read(marks["ledger"])]
                books.protocol.restore(state)
                books.restore(state, rows, log)
        except FedplugError as error:
            raise CheckpointError(f"{error}; {self.checkpoints.remedy(done)}") from error
        self._from(done, marks, rows)
        self.charge_again(books, state["charges"])

    def charge_again(self, books: Bookkeeping, known: int) -> None:
        """What was uploaded after the checkpoint is not in its ledger, and will be uploaded again with other noise."""
        for charge in self.charges.since(known):
            if charge.what == "ballots":
                books.charging.charge_ballots(charge.round, charge.charged, again=True)
            else:
                books.charging.lost_round(charge.round, charge.charged)

    def _from(self, done: int, marks: Mapping[str, Any], rows: list[Row]) -> None:
        # What is later than the checkpoint goes first: it would know of more than the files hold.
        self.checkpoints.forget_after(done)
        if self.recording is not None:
            self.recording.begin(done)
        self._rows.cut(marks["rows"])
        self._ledger.cut(marks["ledger"])
        write_text(self._metrics.file, "".join(row.to_json() + "\n" for row in rows))

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
