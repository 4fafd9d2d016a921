"""What a person sees during a sweep: a line for each run."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from fedplug_runs.shown import say


class Notes:
    """Hears a run that nobody watches, and keeps what was to be said; its results are in its folder.

    Attributes:
        noted: the notes.
    """

    def __init__(self) -> None:
        self.noted: list[str] = []

    def start(self, *given: object, **named: object) -> None:
        """Its folder has that."""

    round_done = finish = interrupted = close = start

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """Nobody looks."""

    def note(self, text: str) -> None:
        """Kept, to be shown with the result."""
        self.noted.append(text)


class SweepWatch(Notes):
    """What a person sees of one run of a sweep: a line that says how it goes, and in the end how it went.

    Args:
        stream: where to print.
        title: which run it is.
        rounds: how many it has.
        quiet: print notes and failures only.
    """

    def __init__(self, stream: TextIO, title: str, rounds: int, quiet: bool) -> None:
        super().__init__()
        self._stream, self._title, self._rounds, self._quiet = stream, title, rounds, quiet
        self._live = stream.isatty() and not quiet
        self._drawn = 0.0
        self._open = False  # the title is in the last line, without an end
        if not quiet:
            self._show_title()

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """In a terminal, the title's line says where the run is; a few times a second at most."""
        if self._live and time.monotonic() - self._drawn > 0.2:
            self._drawn = time.monotonic()
            text = f"{self._title}  round {round} of {self._rounds}, {phase}"
            self._print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="")

    def note(self, text: str) -> None:
        """Below the title, which is then repeated with the result."""
        if self._live:
            self._print(f"\r\x1b[K{self._title}  note: {text}")
        else:
            self._print(f"\n  note: {text}" if self._open else f"{self._title}  note: {text}")
        self._open = False

    def result(self, text: str, always: bool = False) -> None:
        """Ends the line with the outcome of the run."""
        if self._quiet and not always:
            return
        if self._live:
            self._print(f"\r\x1b[K{self._title}: {text}")
        else:
            self._print(f": {text}" if self._open else f"{self._title}: {text}")
        self._open = False

    def _show_title(self) -> None:
        self._print(self._title, end="")
        self._open = True

    def _print(self, text: str, end: str = "\n") -> None:
        say(self._stream, text, end)
