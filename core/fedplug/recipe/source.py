"""A recipe as plain data, together with the position of every key and value, so that each complaint can point."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Key = str | int
KeyPath = tuple[Key, ...]
"""Where something sits in the data: `("protect", "noised", 1, "epsilon")`."""

MOST_BITS = 64
"""Of a whole number anywhere in a recipe: seeds and sizes fit. Python writes no number of more than 4,300 digits."""
LONGEST = f"a whole number has at most {MOST_BITS} bits; write one below {2**MOST_BITS:,}, or a fraction such as 1e30"


class Position(NamedTuple):
    """A place a person can look at: `file:line:column` (1-based), or just an origin such as `--set rounds`."""

    origin: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.origin}:{self.line}:{self.column}" if self.line else self.origin


class Problem(NamedTuple):
    """One complaint and its place."""

    position: Position
    message: str

    def __str__(self) -> str:
        return f"{self.position}: {self.message}"


class Marks(NamedTuple):
    """Positions of a key (of a value's own position, for list items) and of its value."""

    key: Position
    value: Position


@dataclasses.dataclass
class Source:
    """Plain data, where each part of it was written, and what was wrong with the text.

    Attributes:
        origin: the file, or its name in messages.
        data: dictionaries, lists, text, numbers, booleans, None.
        marks: positions by path; `()` is the whole document.
        problems: what was refused while reading.
        dropped: components that others replaced, by `extends` or `--set`, as they were written.
        not_run: places that name code which may not run, so that nobody knows whether they are right.
        closed: files of which messages tell the place alone: a recipe of somebody else can extend any file of this
            user, and messages are shown to others.
    """

    origin: str
    data: Any
    marks: dict[KeyPath, Marks] = dataclasses.field(default_factory=dict)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    dropped: dict[KeyPath, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    not_run: list[Problem] = dataclasses.field(default_factory=list)
    closed: set[str] = dataclasses.field(default_factory=set)

    def where(self, path: KeyPath, key: bool = False) -> Position:
        """Position of the value (or key) at `path`, or of the closest thing around it."""
        if not self.marks:
            return Position(".".join([self.origin, *map(str, path)]))
        for length in range(len(path), -1, -1):
            if marks := self.marks.get(path[:length]):
                return marks.key if key and length == len(path) else marks.value
        return Position(self.origin)

    def folders(self, path: KeyPath) -> list[Path]:
        """Where files are looked for that are named at `path`: next to where it is written, which may be a recipe that
        this one extends, and then next to this one.
        """
        return [Path(place).parent for place in (self.where(path).origin, self.origin)]

    def complain(self, path: KeyPath, message: str, key: bool = False) -> None:
        """Adds a problem at `path`."""
        self.problems.append(Problem(self.where(path, key), message))


def in_order(source: Source, problems: Sequence[Problem]) -> list[str]:
    """Distinct problems of a recipe as text, by file, line and column; those of `--set` last."""
    files = list(dict.fromkeys([source.origin, *(problem.position.origin for problem in problems)]))

    def place(problem: Problem) -> tuple[bool, int, int, int]:
        position = problem.position
        return position.origin.startswith("--set"), files.index(position.origin), position.line, position.column

    def told(problem: Problem) -> str:
        file, line, _ = problem.position
        if file not in source.closed:
            return str(problem)
        return (
            f"{file}:{line}: what is wrong is not shown, since this is no recipe, and not in the folder of the recipe "
            f"that extends it; fedplug check {file} shows it"
        )

    return list(dict.fromkeys(map(told, sorted(problems, key=place))))


class OptionProblem(NamedTuple):
    """One complaint: where inside the options, whether about the key itself, and what."""

    path: tuple[str | int, ...]
    on_key: bool
    message: str


def closest(word: str, words: Iterable[str]) -> str:
    """`did you mean x?`, or the words there are."""
    words = list(words)
    return meant(word, words) or f"there is {', '.join(words) or 'none'}"


def meant(word: str, words: Iterable[str]) -> str:
    """`did you mean x?`; empty where no word is close."""
    return "".join(f"did you mean {close}?" for close in difflib.get_close_matches(word, list(words), n=1))


def too_long(value: Any) -> bool:
    """Whether a value is a whole number beyond those of recipes."""
    return isinstance(value, int) and value.bit_length() > MOST_BITS


def leaves(data: Any) -> Iterator[tuple[KeyPath, Any, Any]]:
    """The values of plain data that are neither mappings nor lists: the place, the value, and what it is in."""
    left: list[tuple[KeyPath, Any, Any]] = [((), data, None)]
    while left:
        path, value, around = left.pop()
        if isinstance(value, Mapping):
            left += [((*path, key), held, value) for key, held in value.items()]
        elif isinstance(value, list | tuple):
            left += [((*path, index), held, value) for index, held in enumerate(value)]
        else:
            yield path, value, around
