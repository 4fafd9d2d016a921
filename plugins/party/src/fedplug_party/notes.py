"""What a party notes of what it gave away: a file that only grows, and that no checkpoint takes back.

    STATE/uploads.jsonl   one line for every answer of a round, every question that the party failed at, and for every
                          time it was sent back

A round that is run again costs the client again: other noise over the same values. So the party counts the rounds that
it answered in more than once, and answers no more when its site's bound is reached, whatever the server says.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError
from fedplug.api.files import shorten

from fedplug_party.owned import open_own


class Notes:
    """The notes of one party.

    Args:
        file: where they are; it need not exist.

    Attributes:
        lines: all of them.
        failures: how many questions the party has failed at, in the whole run.
        current: the checkpoint from which the party went on last, or made last; empty before any.

    Raises:
        CheckpointError: the file is damaged.
        SetupError: it is another user's, or a link.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: list[dict[str, Any]] = _read(file) if os.path.lexists(file) else []
        self.current = ""
        self.failures = 0
        self._attempt = 0  # how often the party was sent back, or to the beginning
        self._answered: dict[int, set[int]] = {}  # by round, from 0: in which attempts
        self._counts: Counter[tuple[int, int, str]] = Counter()  # by round, attempt and question
        for line in self.lines:
            self._count(line)

    @property
    def repeats(self) -> int:
        """How often, over all rounds, the party has answered in a round that it had answered in before."""
        return sum(len(attempts) - 1 for attempts in self._answered.values())

    def would_repeat(self, round: int) -> bool:
        """Whether an answer in this round would be one more repeat."""
        attempts = self._answered.get(round, set())
        return bool(attempts) and self._attempt not in attempts

    def answers(self, round: int, question: str) -> int:
        """How often the party has answered a question of a round since it was sent back last."""
        return self._counts[round, self._attempt, question]

    def answered(self, round: int, question: str, size: int) -> None:
        """Notes an answer; before it leaves the party."""
        self._append({"answered": question, "round": round + 1, "bytes": size})

    def failed(self, round: int, question: str) -> None:
        """Notes a question at which the party failed; before the server learns of it."""
        self._append({"failed": question, "round": round + 1})

    def sent_back(self, checkpoint: str) -> None:
        """Notes that the party goes on from a checkpoint; from the beginning, where it is empty."""
        self._append({"from": checkpoint})

    def saved(self, checkpoint: str) -> None:
        """Notes a checkpoint that lies there now."""
        self._append({"saved": checkpoint})

    def _append(self, line: dict[str, Any]) -> None:
        line = {**line, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        data = (json.dumps(line) + "\n").encode()
        with open(open_own(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                if file.write(data) != len(data):
                    raise OSError(None, "it could not be written to its end", str(self.file))
                os.fsync(file.fileno())  # others are told next, and a power failure must not take the note back
            except OSError:
                file.truncate(before)
                raise
        self.lines.append(line)
        self._count(line)

    def _count(self, line: dict[str, Any]) -> None:
        if "answered" in line:
            round = line["round"] - 1
            self._answered.setdefault(round, set()).add(self._attempt)
            self._counts[round, self._attempt, line["answered"]] += 1
        elif "failed" in line:
            self.failures += 1
        elif "from" in line:
            self._attempt += 1
            self.current = line["from"]
        else:
            self.current = line["saved"]


def _read(file: Path) -> list[dict[str, Any]]:
    with open(open_own(file, os.O_RDONLY), "rb") as opened:
        data = opened.read()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):  # cut off while it was written, so that nobody was told
        shorten(file, len(whole))
    found = []
    for number, text in enumerate(whole.splitlines(), 1):
        line = _line(text)
        if line is None:
            raise CheckpointError(
                f"{file}, line {number}, is damaged: {text[:60]!r}; without it rounds could be answered twice: put the "
                "file back as it was, or begin a run of its own with another --state"
            )
        found.append(line)
    return found


def _line(text: bytes) -> dict[str, Any] | None:
    """A line of the notes; None where it is none."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    if not isinstance(line, dict):
        return None
    if "answered" in line or "failed" in line:
        valid = type(line.get("answered", line.get("failed"))) is str and type(line.get("round")) is int
    else:
        valid = type(line.get("from", line.get("saved"))) is str
    return line if valid else None
