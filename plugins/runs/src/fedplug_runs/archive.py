"""The books of a run, and what its folder keeps of them and of the parties: nothing in it grows dearer by round.

Rows, entries of the ledger and requests for uploads are appended. A checkpoint knows how far the first two had come, so
that going on from it cuts off what was written after; the requests stay, since uploads are paid for however often a
round is run. The order at the end of a round is histories, messages, checkpoint: the checkpoint makes the round whole.

    RUN/metrics.jsonl              a row a round, for people and programs
    RUN/charging.jsonl             who was asked to upload, and pays
    RUN/wire/                      the messages of a recorded run
    RUN/checkpoint/rows.jsonl      the rows as they were, for a resumed run
    RUN/checkpoint/ledger.jsonl    the entries of the ledger, which may name secret cohorts: for their owner alone
    RUN/checkpoint/round-0007/     what each party holds, see `fedplug_runs.checkpoint`
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal, TypedDict

from fedplug.api import codec
from fedplug.api.errors import CheckpointError, FedplugError, MessageError
from fedplug.api.records import Count, Record, Text
from fedplug.engines.base import Engine
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug_ledger.charging import Charging
from fedplug_ledger.entries import RoundEntry
from fedplug_ledger.ledger import Ledger

from fedplug_runs.by_class import Guess
from fedplug_runs.checkpoint import ELSEWHERE, KEPT, Checkpoints, HeldElsewhere, holding
from fedplug_runs.files import append_line, open_private, private_folder, read_bytes, read_lines, shorten, write_text
from fedplug_runs.metrics import Metrics
from fedplug_runs.onward import engine_of, resume_command, run_command
from fedplug_runs.patterns import Pattern, facts_by_group, pattern_of
from fedplug_runs.rows import Row
from fedplug_runs.wire_record import Message, Wire, file_of, framed, recordings


class Mark(TypedDict):
    """Where a file stood: how many lines and bytes it had, and the CRC-32 of those bytes."""

    lines: int
    size: int
    checksum: int


START: Mark = {"lines": 0, "size": 0, "checksum": 0}


class Lines:
    """A file of JSON lines, which need not exist.

    Attributes:
        mark: its position; what an earlier process wrote is known once it is `cut`.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.mark = file, START

    def append(self, *records: Any) -> None:
        """Adds a line for each record; all of them or, where that fails, none.

        Raises:
            OSError: they cannot be written.
        """
        if not records:
            return
        data = "".join(json.dumps(record) + "\n" for record in records).encode()
        append_line(self.file, data)
        lines, size, checksum = self.mark["lines"] + len(records), self.mark["size"] + len(data), self.mark["checksum"]
        self.mark = {"lines": lines, "size": size, "checksum": zlib.crc32(data, checksum)}

    def read(self, mark: Mark) -> list[Any]:
        """The records up to a mark.

        Raises:
            CheckpointError: the file was shortened or altered since it stood there.
        """
        data = read_bytes(self.file)[: mark["size"]] if mark["size"] else b""
        if len(data) < mark["size"] or zlib.crc32(data) != mark["checksum"]:
            raise CheckpointError(
                f"{self.file} is damaged: its first {mark['size']} bytes are not those that were written (length or "
                "checksum differ)"
            )
        return [json.loads(line) for line in data.splitlines()]

    def cut(self, mark: Mark) -> None:
        """Forgets what was written after a mark; the file continues from there."""
        if self.file.exists():
            shorten(self.file, mark["size"])
        self.mark = mark


class Recording:
    """The recorded messages of a run folder.

    Args:
        run_dir: the run folder.
    """

    def __init__(self, run_dir: Path) -> None:
        self.folder = run_dir / "wire"
        self._file: IO[Any] | None = None

    @property
    def begun(self) -> bool:
        """Whether the run was recorded so far."""
        return self.folder.is_dir()

    def begin(self, done: int) -> None:
        """Forgets what was recorded after `done` rounds, which are run again, and what of a round is not whole."""
        private_folder(self.folder)
        self._draft.unlink(missing_ok=True)
        for rounds, path in recordings(self.folder).items():
            if rounds > done:
                path.unlink()

    def add(self, message: Message) -> None:
        """Writes a message behind those of its round."""
        if self._file is None:
            self._file = open_private(self._draft, "wb")
        self._file.write(framed(message))

    def end_of_round(self, rounds: int) -> None:
        """Gives the messages since the last call the name of the round after which there are `rounds`."""
        self.close()
        open_private(self._draft, "ab").close()  # of a round without messages
        os.replace(self._draft, self.folder / file_of(rounds))

    def close(self) -> None:
        """Writes no more; what has no name yet will be forgotten."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _draft(self) -> Path:
        return self.folder / "messages.tmp"


class Charge(Record):
    """A request: the 0-based round, the clients that pay, and for what; see `fedplug.api.events.Asking`.

    With what they went by, as `Charging.public` gave it: a checkpoint before the round does not know it.
    """

    round: Count
    charged: list[Count]
    what: Literal["upload", "ballots", "opening"]
    public: Text = ""

    def __post_init__(self) -> None:
        """Raises ValueError: what it went by cannot be read."""
        try:
            codec.decode_saved(bytes.fromhex(self.public) or codec.encode(None))
        except MessageError as error:
            raise ValueError(f"public: {error}") from error


class Charges:
    """`charging.jsonl`: every request for uploads of a run, those of rounds that were repeated too.

    It is on the disk before clients are asked, so that neither a kill nor a power failure makes a release free.

    Args:
        run_dir: the run folder.

    Raises:
        CheckpointError: the file is damaged.
    """

    def __init__(self, run_dir: Path) -> None:
        self.file = run_dir / "charging.jsonl"
        self._remedy = (
            "without it the ledger would not count repeated uploads; put the file back as it was, or start a new "
            f"run: {run_command(run_dir)}"
        )
        self._noted = read_lines(self.file, Charge.from_json, self._remedy)

    def __len__(self) -> int:
        return len(self._noted)

    def note(
        self, round: int, charged: list[int], what: Literal["upload", "ballots", "opening"] = "upload",
        public: str = "",
    ) -> None:  # fmt: skip
        """Adds a request."""
        charge = Charge(round, charged, what, public)
        append_line(self.file, (charge.to_json() + "\n").encode(), synced=True)
        self._noted.append(charge)

    def since(self, known: int) -> list[Charge]:
        """Every request after the first `known`."""
        return self._noted[known:]

    def require(self, checkpoints: Checkpoints) -> None:
        """Refuses a file that holds fewer requests than a checkpoint of the run knows of.

        Raises:
            CheckpointError: the file is missing or was shortened.
        """
        for round in checkpoints.rounds():
            try:
                checkpoint = checkpoints.read(round)
            except CheckpointError:
                continue  # damaged; resuming from it says so
            state = checkpoint[1] if checkpoint else None
            known = state.get("charges", 0) if isinstance(state, dict) else 0
            if known > len(self):
                has = f"has {len(self)} lines" if self.file.is_file() else "is missing"
                rule = f"the checkpoint after round {round} knows of {known} requests for uploads"
                raise CheckpointError(f"{self.file} {has}, but {rule}; {self._remedy}")


class Bookkeeping:
    """What is kept of a run besides the state of its parties. It follows from the events of a protocol about to run:
    `charging` enters what was released into the ledger, `metrics` has rows. `guess` is what is known of the common test
    set; by default nothing.
    """

    def __init__(self, protocol: Protocol, wire: Wire, ledger: Ledger, guess: Guess | None = None) -> None:
        recipe, events = protocol.recipe, protocol.events
        self.protocol, self.ledger = protocol, ledger
        self.charging = Charging(recipe, protocol.composition, protocol.server, ledger, protocol.layout.size)
        self.charging.subscribe(events)
        self.metrics = Metrics(
            recipe, protocol.composition, protocol.office, wire, ledger, protocol.server, events, guess
        )

    @property
    def rows(self) -> list[Row]:
        """The complete rows of the metrics."""
        return self.metrics.rows

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs in addition to the state of the protocol, without what lies behind; plain data."""
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
        self.data = ""  # the digest of a `World`, in hex
        recording = Recording(run_dir)
        self.recording = recording if records or recording.begun else None
        self.checkpoints = Checkpoints(run_dir, KEPT if self.recording is None else None)
        self.charges = Charges(run_dir)
        self._kinds: dict[int, Pattern] = {}
        self._metrics = run_dir / "metrics.jsonl"
        self._rows = Lines(self.checkpoints.folder / "rows.jsonl")
        self._ledger = Lines(self.checkpoints.folder / "ledger.jsonl")

    def add_row(self, row: Row) -> None:
        """Adds the complete numbers of a round to `metrics.jsonl`."""
        append_line(self._metrics, (row.to_json() + "\n").encode())

    def end_of_round(self, books: Bookkeeping, engine: Engine, rounds: int) -> None:
        """Saves everything after `rounds` rounds."""
        started = time.perf_counter()
        # Not for other programs: with NaN as Python writes it, so that a loss that diverged is read as one.
        self._rows.append(*(row.to_plain() for row in books.rows[self._rows.mark["lines"] :]))
        self._ledger.append(*(entry.to_plain() for entry in books.ledger.log[self._ledger.mark["lines"] :]))
        if self.recording is not None:
            self.recording.end_of_round(rounds)
        state = {
            **books.protocol.state(), **books.state(), "digest": self.recipe.digest, "charges": len(self.charges),
            "data": self.data,
            "histories": {"rows": self._rows.mark, "ledger": self._ledger.mark},
        }  # fmt: skip
        self.checkpoints.write(rounds, state, engine, functools.partial(self._kind, books))
        if books.metrics.awaiting is not None:
            books.metrics.awaiting.seconds["checkpoint"] = time.perf_counter() - started

    def _kind(self, books: Bookkeeping, round: int) -> Pattern:
        """What a finished round (0-based) sent, in kind."""
        if round not in self._kinds:
            entry = next((entry for entry in reversed(books.ledger.log) if entry.round == round + 1), None)
            try:
                self._kinds[round] = pattern_of(facts_by_group(books.protocol, round).values(), entry)
            except Exception:  # a component of a plugin may refuse to be asked again; the run goes on all the same
                self._kinds[round] = frozenset()
        return self._kinds[round]

    def begin(self) -> None:
        """Before the set-up: nothing is saved yet, whatever lies here."""
        private_folder(self.checkpoints.folder)
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
        except HeldElsewhere:
            raise
        except FedplugError as error:
            onward = self._engine_hint(folder) or self.checkpoints.remedy(done, functools.partial(self._usable, engine))
            raise CheckpointError(f"{error}; {onward}") from error
        self._from(done, marks, rows)
        self.charge_again(books, state["charges"])

    def _engine_hint(self, folder: Path) -> str:
        """What to do where the parties' states are of another kind of engine, which no other round can mend."""
        if not (before := engine_of(self.run_dir)) or not (folder / ELSEWHERE).is_file():
            return ""
        whose = f"the run had the engine {before}, whose parties keep their own states"
        return f"{whose}; continue it with that one: {resume_command(self.run_dir)}"

    def _usable(self, engine: Engine, round: int) -> bool:
        """Whether the run could go on from the checkpoint of another round, with this engine."""
        try:
            found = self.checkpoints.read(round)
            if found is None:
                return False
            _, state, folder = found
            self._check(state, folder, round)
            if not (folder / ELSEWHERE).is_file():  # parties that keep their own states are not moved for a look
                engine.load(folder)
            for lines, mark, read in (
                (self._rows, state["histories"]["rows"], Row.from_plain),
                (self._ledger, state["histories"]["ledger"], RoundEntry.from_plain),
            ):
                for record in lines.read(mark):
                    read(record)
        except (FedplugError, OSError, LookupError, TypeError, ValueError):
            return False
        return True

    def charge_again(self, books: Bookkeeping, known: int) -> None:
        """What was uploaded after the checkpoint is not in its ledger, and will be uploaded again with other noise."""
        noted = self.charges.since(known)
        for number, charge in enumerate(noted):
            if charge.what == "ballots":
                books.charging.charge_ballots(charge.round, charge.charged, again=True)
            elif charge.what == "upload":
                behind = itertools.takewhile(lambda each: each.what != "upload", noted[number + 1 :])
                opened = [len(each.charged) for each in behind if each.what == "opening"]
                last = all(each.what != "upload" for each in noted[number + 1 :])
                books.charging.lost_round(charge.round, charge.charged, min(opened, default=0), last, charge.public)

    def _from(self, done: int, marks: Mapping[str, Any], rows: list[Row]) -> None:
        # What is later than the checkpoint goes first: it would know of more than the files hold.
        self.checkpoints.forget_after(done)
        if self.recording is not None:
            self.recording.begin(done)
        self._rows.cut(marks["rows"])
        self._ledger.cut(marks["ledger"])
        write_text(self._metrics, "".join(row.to_json() + "\n" for row in rows))

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
                f"change, or start a new run: {run_command(self.run_dir)}"
            )
        if state.get("data") not in (self.data, "", None):  # older runs did not always say
            raise CheckpointError(
                f"{folder} was written with other training examples, or another split, than {self.recipe.data.use} has "
                "now, so that two clients would have the same example; put the data back as they were"
            )
