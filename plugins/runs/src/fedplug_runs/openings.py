"""What the parties of a process have opened, noted on the disk before any of them answers.

    RUN/openings/client-0.jsonl     a line for each sum; `by` has the clients that opened it, where others did too

A process writes into one file, that of its first party, so that one write to the disk serves all of its parties: a
thousand files take seconds a round. It reads all files, since a party may have been in another process before.
"""

from __future__ import annotations

import functools
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fedplug.api.codec import Message
from fedplug.api.errors import CheckpointError
from fedplug.api.parties import Opening, Openings, file_name

from fedplug_runs.files import append_line, private_folder, read_lines
from fedplug_runs.onward import run_command

Answer = tuple[str, Message | Exception]
"""An address, and the reply of its party."""
_HELD_BYTES, _HELD_SECONDS = 1 << 24, 0.5
"""So much of replies, and so long, waits for the notes of others: uploads are large, and people watch the rounds."""


class Notes:
    """The notes of the parties of one process."""

    def __init__(self) -> None:
        self._waiting: dict[Path, dict[bytes, list[str]]] = {}
        self._holding = 0

    def openings(self, folder: Path, known: Mapping[str, int]) -> dict[str, Openings]:
        """What parties have opened so far, and where they note more.

        Args:
            folder: of the notes; it may be missing.
            known: by the address of each party in this process, how many notes of it a checkpoint knows of.

        Raises:
            CheckpointError: a file is damaged, or there are fewer.
        """
        own = folder / f"{_name(next(iter(known)))}.jsonl"
        without = "without it sums could be opened twice; put the files back as they were, or start a new run"
        remedy = f"{without}: {run_command(folder.parent)}"
        names = {_name(address): address for address in known}
        noted: dict[str, list[Opening]] = {address: [] for address in known}
        for file in sorted({own, *folder.glob("*.jsonl")}):
            read = functools.partial(_read, file.stem, names)
            # Another process may be writing to its file, so what it has not finished stays there.
            for addresses, opening in read_lines(file, read, remedy, cut=file == own):
                for address in addresses:
                    noted[address].append(opening)
        for address, count in known.items():
            if len(noted[address]) < count:
                raise CheckpointError(
                    f"{folder} has {len(noted[address])} notes of {_name(address)}, but a checkpoint knows of {count} "
                    f"sums that it opened; {remedy}"
                )
        keep = {address: functools.partial(self._note, own, address) for address in known}
        return {address: Openings(noted[address], keep[address]) for address in known}

    def before(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """Gives answers, each after the notes that were made for it are on the disk: one write for as many as may wait.

        Where they cannot be written, an answer is the error.
        """
        held, size, since = deque[Answer](), 0, 0.0
        self._holding += 1
        try:
            for answer in answers:
                if not self._waiting and not held:
                    yield answer
                    continue
                since = since if held else time.monotonic()
                held.append(answer)
                size += len(answer[1]) if isinstance(answer[1], Message) else 0
                if size > _HELD_BYTES or time.monotonic() > since + _HELD_SECONDS:
                    yield from self._noted(held)
                    size = 0
            yield from self._noted(held)
        finally:
            self._holding -= 1

    def _noted(self, held: deque[Answer]) -> Iterator[Answer]:
        wrong: OSError | None = None
        try:
            self.write()
        except OSError as error:
            wrong = error
        while held:
            address, answer = held.popleft()
            yield address, answer if wrong is None else wrong

    def _note(self, file: Path, address: str, line: bytes) -> None:
        lines = self._waiting.setdefault(file, {})
        lines.setdefault(line, []).append(address)
        if self._holding:
            return
        try:
            self.write()
        except OSError:  # it was not opened
            lines[line].remove(address)
            if not any(lines.values()):
                del self._waiting[file]
            raise

    def write(self) -> None:
        """Writes the notes that wait. A checkpoint, which knows how many there are, comes after this.

        Raises:
            OSError: they cannot be written; they wait on.
        """
        for file, lines in [*self._waiting.items()]:
            private_folder(file.parent)
            written = b"".join(_line(file.stem, line, addresses) for line, addresses in lines.items() if addresses)
            append_line(file, written, synced=True)  # the sum goes to others: a power failure must not take it back
            del self._waiting[file]


def _name(address: str) -> str:
    return file_name(address).rpartition(".")[0]


def _line(stem: str, line: bytes, addresses: list[str]) -> bytes:
    if [*map(_name, addresses)] == [stem]:
        return line
    clients = [int(address.rpartition(":")[2]) for address in addresses]
    return b'{"by": %s, %s' % (json.dumps(clients).encode(), line[1:])


def _read(stem: str, names: Mapping[str, str], line: str) -> tuple[list[str], Opening]:
    """The parties of this process that noted a line, and what they did.

    Raises:
        ValueError: it is no note.
    """
    if not line.startswith('{"by": '):
        return [names[stem]] if stem in names else [], Opening.from_json(line)
    plain = json.loads(line)
    by = plain.pop("by")
    if not isinstance(by, list) or not all(type(each) is int for each in by):
        raise ValueError(f"by is {by!r:.40}, and must be a list of clients")
    mine = [names[f"client-{each}"] for each in by if f"client-{each}" in names]
    return mine, Opening.from_plain(plain)
