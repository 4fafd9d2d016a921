"""A party's record of its answers: a file that only grows. Going back to a checkpoint does not undo it.

    STATE/uploads.jsonl   one line for every answer in a round, for every question that the party failed at, and for
                          every time that it saved a checkpoint or was sent back

A repeated round costs the client again, because it sends different noise over the same values. So the party counts the
rounds that it answered more than once. It stops answering at its site's limit, whatever the server says.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fedplug_runs.files import append_line, read_lines

from fedplug_party.owned import open_own


class Notes:
    """The notes of one party.

    Args:
        file: where the notes are. It need not exist.

    Attributes:
        lines: all notes.
        failures: how many questions the party has failed at, in the whole run.
        attempt: how often the party was sent back to a checkpoint or to the beginning.
        current: the checkpoint that the party last saved or last continued from; empty before any.

    Raises:
        CheckpointError: the file is damaged.
        SetupError: the file belongs to another user, or is a link.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        if os.path.lexists(file):
            os.close(open_own(file, os.O_RDONLY))
        self.lines = read_lines(
            file, _line, "without it the party could answer rounds twice: restore the file from a copy, or begin a new "
            "run with another --state",
        )  # fmt: skip
        self.current = ""
        self.failures = 0
        self.attempt = 0
        self._answered: dict[int, set[int]] = {}  # by round, from 0: the attempts in which the party answered
        self._counts: Counter[tuple[int, int, str]] = Counter()  # by round, attempt and question
        for line in self.lines:
            self._count(line)

    @property
    def repeats(self) -> int:
        """How often, over all rounds, the party has answered in a round again."""
        return sum(len(attempts) - 1 for attempts in self._answered.values())

    def would_repeat(self, round: int) -> bool:
        """Whether an answer in this round would be one more repeat."""
        attempts = self._answered.get(round, set())
        return bool(attempts) and self.attempt not in attempts

    def answers(self, round: int, question: str) -> int:
        """How often the party has answered a question of a round since it was last sent back."""
        return self._counts[round, self.attempt, question]

    def answered(self, round: int, question: str, size: int) -> None:
        """Records an answer, before it leaves the party."""
        self._append({"answered": question, "round": round + 1, "bytes": size})

    def failed(self, round: int, question: str) -> None:
        """Records a question at which the party failed, before the server learns about it."""
        self._append({"failed": question, "round": round + 1})

    def sent_back(self, checkpoint: str) -> None:
        """Records that the party continues from a checkpoint, or from the beginning if the name is empty."""
        self._append({"from": checkpoint})

    def saved(self, checkpoint: str) -> None:
        """Records a new checkpoint."""
        self._append({"saved": checkpoint})

    def _append(self, line: dict[str, Any]) -> None:
        line = {**line, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        # The server learns about it next, so a power failure must not lose the note.
        append_line(self.file, (json.dumps(line) + "\n").encode(), synced=True)
        self.lines.append(line)
        self._count(line)

    def _count(self, line: dict[str, Any]) -> None:
        if "answered" in line:
            round = line["round"] - 1
            self._answered.setdefault(round, set()).add(self.attempt)
            self._counts[round, self.attempt, line["answered"]] += 1
        elif "failed" in line:
            self.failures += 1
        elif "from" in line:
            self.attempt += 1
            self.current = line["from"]
        else:
            self.current = line["saved"]


def _line(text: str) -> dict[str, Any]:
    """A line of the notes, or a ValueError."""
    line = json.loads(text)
    valid = isinstance(line, dict)
    if valid and ("answered" in line or "failed" in line):
        valid = type(line.get("answered", line.get("failed"))) is str and type(line.get("round")) is int
    elif valid:
        valid = type(line.get("from", line.get("saved"))) is str
    if not valid:
        raise ValueError("it is no note")
    return dict(line)
