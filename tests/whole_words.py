"""What a terminal does with lines that are too long, for tests: it ends them in the middle of a word."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def require_whole_words(shown: str, source: str, columns: int) -> None:
    """Fails where a word of the source is broken, or where the terminal would break a line that it need not."""
    whole = {word.rstrip(":") for word in shown.split()}  # titles may have become names
    broken = {word.rstrip(":") for word in source.split()} - whole
    assert not broken, f"at {columns} columns: {sorted(broken)}"
    for line in shown.splitlines():
        assert len(line) <= columns or len(line.split()) == 1, f"{len(line)} characters at {columns} columns: {line!r}"
