"""Histories of a run, which only grow: files of JSON lines whose standing can be marked, such as who paid for which
upload; and messages as they crossed the wire, in a file a round that is complete once it has its name.

    RUN/charging.jsonl
    RUN/wire/   round-0000.wire (the set-up), round-0001.wire, ...; the last holds the end of the run
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypedDict

from fedplug.api.errors import CheckpointError
from fedplug.api.record import Count, Record
from fedplug.round.checkpoint import Checkpoints
from fedplug.wire.record import Message, framed


class Mark(TypedDict):
    """Where a file stood: how many lines and bytes it had, and the CRC-32 of those bytes."""

    lines: int
    size: int
    checksum: int


START: Mark = {"lines": 0, "size": 0, "checksum": 0}


class Lines:
    """A file of JSON lines, which need not exist yet, readable by its owner alone where it is `private`.

    Attributes:
        mark: where it stands; what an earlier process wrote is known once it is `cut`.
    """

    def __init__(self, file: Path, private: bool = False) -> None:
        self.file, self.mark = file, START
        self._mode = 0o600 if private else 0o666

    def append(self, *records: Any) -> None:
        """Adds a line for each record; all of them or, where that fails, none.

        Raises:
            OSError: they cannot be written.
        """
        if not records:
            return
        data = "".join(json.dumps(record) + "\n" for record in records).encode()
        handle = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self._mode)
        with open(handle, "ab", buffering=0) as file:
            before = os.fstat(handle).st_size
            try:
                if file.write(data) != len(data):
                    raise OSError(None, "it could not be written to its end", str(self.file))
            except OSError:
                file.truncate(before)
                raise
        lines, size, checksum = self.mark["lines"] + len(records), self.mark["size"] + len(data), self.mark["checksum"]
        self.mark = {"lines": lines, "size": size, "checksum": zlib.crc32(data, checksum)}

    def read(self, mark: Mark) -> list[Any]:
        """The records up to a mark.

        Raises:
            CheckpointError: the file was shortened or altered since it stood there.
        """
        data = self.file.read_bytes()[: mark["size"]] if mark["size"] else b""
        if len(data) < mark["size"] or zlib.crc32(data) != mark["checksum"]:
            raise CheckpointError(
                f"{self.file} is damaged: its first {mark['size']} bytes are not those that were written (length or "
                "checksum differ)"
            )
        return [json.loads(line) for line in data.splitlines()]

    def cut(self, mark: Mark) -> None:
        """Forgets what was written after a mark; the file goes on from there."""
        if self.file.exists():
            os.truncate(self.file, mark["size"])
        self.mark = mark


class Recording:
    """The recorded messages of a run folder.

    Args:
        run_dir: the run folder.
    """

    def __init__(self, run_dir: Path) -> None:
        self.folder = run_dir / "wire"
        self._file: BinaryIO | None = None

    @property
    def begun(self) -> bool:
        """Whether the run was recorded so far."""
        return self.folder.is_dir()

    def begin(self, done: int) -> None:
        """Forgets what was recorded after `done` rounds, which are run again, and what of a round is not whole."""
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            number = path.stem.partition("-")[2]
            if path.suffix == ".tmp" or (path.suffix == ".wire" and number.isdigit() and int(number) > done):
                path.unlink()

    def add(self, message: Message) -> None:
        """Writes a message behind those of its round."""
        if self._file is None:
            self._file = self._draft.open("wb")
        self._file.write(framed(message))

    def end_of_round(self, rounds: int) -> None:
        """Gives the messages since the last call the name of the round after which there are `rounds`."""
        self.close()
        self._draft.touch()
        os.replace(self._draft, self.folder / f"round-{rounds:04d}.wire")

    def close(self) -> None:
        """Writes no more; what has no name yet will be forgotten."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _draft(self) -> Path:
        return self.folder / "messages.tmp"


class Charge(Record):
    """A request: the 0-based round, the clients that pay, and for what."""

    round: Count
    charged: list[Count]
    what: Literal["upload", "ballots"]


class Charges:
    """`charging.jsonl`: every request for uploads of a run, those of rounds that were repeated too.

    It is written before clients are asked, so that a kill makes no release free.

    Args:
        run_dir: the run folder.

    Raises:
        CheckpointError: the file is damaged.
    """

    def __init__(self, run_dir: Path) -> None:
        self.file = run_dir / "charging.jsonl"
        self._remedy = (
            "without it the ledger would not count repeated uploads; put the file back as it was, or start a run of "
            f"its own: fedplug run {run_dir / 'recipe.yaml'}"
        )
        self._lines = Lines(self.file)
        self._noted: list[Charge] = []
        if self.file.is_file():
            data = self.file.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            self._noted = [self._charge(number, line) for number, line in enumerate(whole.splitlines(), 1)]
            if len(whole) < len(data):  # cut off while it was written, so nobody was asked
                os.truncate(self.file, len(whole))

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, round: int, charged: list[int], what: Literal["upload", "ballots"] = "upload") -> None:
        """Adds a request."""
        charge = Charge(round, charged, what)
        self._lines.append(charge.to_plain())
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

    def _charge(self, number: int, line: bytes) -> Charge:
        try:
            return Charge.from_json(line.decode())
        except ValueError as error:
            raise CheckpointError(f"{self.file}, line {number}, is damaged: {line[:60]!r}; {self._remedy}") from error
