"""What other plugins add to reports and tables, such as the attacks that were made on a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedplug_lab.records import Result

GROUP = "fedplug_lab.section"
"""The entry-point group: each entry is an instance of a `Section`."""


Column = tuple[str, Callable[["Result"], float | None], Callable[[float], str]]
"""Title, the number of a run, and the number as text."""


class Section:
    """Something that is known of a run beside what the run itself wrote.

    Attributes:
        key: of the section in the page, a word.
        title: its heading.
        order: where it stands among the sections of plugins.
    """

    key: str = ""
    title: str = ""
    order: int = 0

    def html(self, run_dir: Path) -> str:
        """The section, escaped; empty where there is nothing to say of this run."""
        return ""

    def headline(self, run_dir: Path) -> tuple[str, str] | None:
        """A label and a sentence for the top of the page, beside the verdict."""
        return None

    def record(self, run_dir: Path) -> dict[str, Any]:
        """What the line of a sweep keeps of a run in `Result.added[key]`, as plain data; empty for nothing."""
        return {}

    def columns(self, results: Sequence[Result]) -> Iterable[Column]:
        """Columns of the table of a sweep, made from what `record` kept of each run that did not fail."""
        return ()


@functools.cache
def sections_of_plugins() -> tuple[Section, ...]:
    """Those of all installed plugins."""
    from importlib_metadata import entry_points

    return tuple(sorted((point.load() for point in entry_points(group=GROUP)), key=lambda section: section.order))
