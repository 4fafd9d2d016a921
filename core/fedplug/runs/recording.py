"""Messages as they crossed the wire, written to disk as they come: one file a round, complete once it has its name.

    RUN/wire/   round-0000.wire (the set-up), round-0001.wire, ...; the last holds the end of the run
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from fedplug.wire.record import Message, framed


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
