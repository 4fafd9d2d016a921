"""The installed components and sections of recipes, listed from entry points without importing any plugin.

The entry-point group is the hook (`fedplug.protect`), the name is `<plugin>.<thing>`, the value is the class. Listing
reads the one-line summaries from the source files; a component is imported when a recipe chooses it. The group
`fedplug.section` holds sections that plugins add to recipes (`fedplug.recipe.sections`); the name is the key of the
recipe.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from fedplug.api.errors import PluginError

HOOK_GROUPS: tuple[str, ...] = (
    "score_parameters", "negotiate_mask", "protect", "aggregate", "postprocess", "attack",
)  # fmt: skip
"""Groups named after a hook, in the order of a round."""

GROUPS: tuple[str, ...] = (
    *HOOK_GROUPS, "dataset", "partition", "task", "model", "trainer", "metric", "engine", "accountant", "groups",
    "poison", "extension",
)  # fmt: skip
"""Every entry-point group of components, without the prefix `fedplug.`"""

COMMAND = "command"
"""The entry-point group of commands."""
REPORT = "report"
"""The entry-point group of what draws the report of a run: a function from the run folder to the path of the report."""
DISPLAY = "display"
"""The entry-point group of what draws runs in a terminal: a function that gives a display, or None where it cannot."""
ADAPTER = "adapter"
"""The entry-point group of what makes components out of a user's own classes and functions (`recipe.own_files`)."""
SECTION = "section"
"""The entry-point group of sections of recipes."""
RECIPES = "recipes"
"""The entry-point group of packages whose folders hold recipes (`recipe.shelf`)."""
SERVICE = "service"
"""The entry-point group of what the kernel does without where nobody offers it. `files` is a `Resolver`, `explain` has
words for what pydantic finds (`fedplug_runs.option_errors`), and `sites` reads data at the sites of clients
(`fedplug_runs.sites`). `evaluation` says on which examples clients judge models (`fedplug_runs.evaluation`), `drawn`
has what they draw as it travels (`fedplug_runs.drawn`), `members` looks at a component (`fedplug_runs.members`),
`fitting` at a model before it is built (`fedplug_runs.fitting`), and `hints` says what may have been meant
(`fedplug_runs.hints`).
"""
EXAMINE = "examine"
"""The entry-point group of modules that look at examples before the first round. `problem(examples, about)` says why
nobody can learn from them, or nothing; `doubts(examples, about, scales)` lists what is odd about those to train on,
where `scales` says whether the data set has an option `scale` for columns.
"""
RULES = "rules"
"""The entry-point group of modules with rules for recipes: of `recipe.check.Rules`, `problems(rules)` yields complaints
with their places, and `notes(rules)` what is right and promises nothing.
"""

_OTHERS = (COMMAND, REPORT, DISPLAY, ADAPTER, SECTION, RECIPES, SERVICE, EXAMINE, RULES)
_PREFIX = "fedplug."


class NotTrusted(PluginError):
    """A file has not run here before, and nobody has said that it may."""


class Own(Protocol):
    """A file of the user's own, as recipes hold it."""

    @property
    def sha256(self) -> str:
        """Of what it holds."""

    @property
    def name(self) -> str:
        """Without a folder."""

    @property
    def text(self) -> bytes:
        """What it holds."""

    @property
    def path(self) -> Path | None:
        """Where it was read."""

    @property
    def is_code(self) -> bool:
        """Whether it is Python."""

    def module(self) -> ModuleType:
        """The file as a module. Raises PluginError, or NotTrusted where nobody has said that it may run."""

    def docstring(self, name: str) -> str:
        """That of a class at its top, from its text."""


class Resolver(Protocol):
    """What finds, reads and runs files of the user's own; all raise a PluginError where they cannot."""

    def is_own(self, use: str) -> bool:
        """Whether a recipe names a file here, rather than an installed component."""

    def parts(self, use: str) -> tuple[str, str]:
        """How the resolved recipe names it, and the instance's automatic name."""

    def covers(self, source: Any) -> None:
        """Asks whether the code that a recipe's `Source` names may run."""

    def see(self, own: Any) -> None:
        """From here on, a recipe that names this file with its SHA-256 reads back in this process."""

    def remember(self, files: Iterable[Any]) -> None:
        """The same of files that a process has sent which runs them."""

    def read(self, use: str, folders: Iterable[Path], sha256: str | None) -> Own:
        """The file behind a component."""

    def read_file(self, path: Path, folders: Iterable[Path], sha256: str | None) -> Own:
        """The file that an option names."""

    def component(self, own: Any, use: str, group: str) -> type:
        """The class that a place of this group gets."""


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """The offer of a plugin under one entry point: a component, a section of recipes, a command, ...

    Attributes:
        name: of a component `<plugin>.<thing>`, as recipes write it; of a section its key.
        group: of the entry point, without the prefix `fedplug.`
        value: `module:Class`, or `module:function`.
        distribution: the installed package that offers it.
        version: of that distribution; of a file the first digits of its SHA-256.
        made_of: the class itself, where the entry is no installed one.
        own: the file of the user's own that it is in, which then is its distribution.
    """

    name: str
    group: str
    value: str
    distribution: str
    version: str
    made_of: type | None = None
    own: Own | None = None

    @property
    def title(self) -> str:
        """Its group and name, for messages."""
        return f"{self.group} component {self.name}" if self.group in GROUPS else f"{self.group} {self.name}"

    def imported(self) -> Any:
        """The object that the entry point names.

        Raises:
            PluginError: the import fails; the message names the plugin, the entry and the cause.
        """
        if self.made_of is not None:
            return self.made_of
        if self.own is not None:
            return getattr(self.own.module(), self.value.rpartition(":")[2])
        from importlib_metadata import EntryPoint

        try:
            return EntryPoint(self.name, self.value, self.group).load()
        # Plugin code may raise anything while it is imported, and even exit; none of it may take the program down.
        except (Exception, SystemExit) as error:
            raise PluginError(f"{self} cannot be imported: {type(error).__name__}: {error}") from error

    def load(self) -> type:
        """Imports the class.

        Raises:
            PluginError: the import fails, or gives something else.
        """
        named = self.imported()
        if not isinstance(named, type):
            raise PluginError(
                f"{self} is not a class but {type(named).__name__}; the entry point must have the form module:Class"
            )
        return named

    def __str__(self) -> str:
        """Who offers it and where it is, for messages."""
        return f"plugin {self.distribution} {self.version}: {self.title} ({self.value})"


class NoFiles:
    """A resolver where none is installed: recipes name what is installed, and nothing of the user's own.

    Args:
        consent: to the code that recipes bring.
    """

    def __init__(self, consent: Any) -> None:
        self.consent = consent

    def is_own(self, use: Any) -> bool:
        """Never."""
        return False

    def covers(self, source: Any) -> None:
        """Nothing."""

    def remember(self, files: Any) -> None:
        """Nothing."""


class Catalog:
    """The components on offer, by group and name, and the sections of recipes, by key.

    Attributes:
        strays: entry points in groups that fedplug does not know, as `group name (distribution)`.
        right: by digest, the notes on recipes that were checked against it and are right: every party of a process
            reads its copy.
        consent: to the code that recipes bring which are read with it; None: nobody's.
        not_run: files of the user's own that may not run, by name without `.py`: their text may not show all that they
            offer.
    """

    def __init__(
        self,
        entries: Mapping[str, Mapping[str, Entry]],
        strays: tuple[str, ...] = (),
        sections: Mapping[str, Entry] | None = None,
        consent: Any = None,
    ) -> None:
        self.groups: dict[str, dict[str, Entry]] = {group: dict(entries.get(group, {})) for group in GROUPS}
        self.strays = strays
        self._sections = sections
        self.right: dict[str, list[str]] = {}
        self.consent = consent
        self.not_run: dict[str, Own] = {}

    @classmethod
    def discover(cls) -> Catalog:
        """Reads the entry points of all installed distributions; imports none of them.

        Raises:
            PluginError: a name is offered twice in one group; the message names both distributions.
        """
        groups = _offered(None)
        strays = [entry for group in sorted(groups.keys() - {*GROUPS, *_OTHERS}) for entry in groups[group].values()]
        texts = tuple(f"{_PREFIX}{entry.group} {entry.name} ({entry.distribution})" for entry in strays)
        return cls(groups, texts, groups.get(SECTION, {}))

    @classmethod
    def of(cls, components: Mapping[str, Mapping[str, type]], sections: Mapping[str, type] | None = None) -> Catalog:
        """A catalog of exactly these classes, `{group: {name: class}}`, for tests: no installed component is seen;
        sections are those installed where none are given.

        Raises:
            PluginError: a group that does not exist.
        """
        unknown = sorted(set(components) - set(GROUPS))
        if unknown:
            raise PluginError(f"no such component groups: {', '.join(unknown)}; there are {', '.join(GROUPS)}")

        def entries(group: str, classes: Mapping[str, type]) -> dict[str, Entry]:
            return {
                name: Entry(name, group, f"{each.__module__}:{each.__qualname__}", "test", "0", each)
                for name, each in sorted(classes.items())
            }

        groups = {group: entries(group, classes) for group, classes in components.items()}
        return cls(groups, (), None if sections is None else entries(SECTION, sections))

    def under(self, consent: Any) -> Catalog:
        """A copy with another consent; None: with the same."""
        made = Catalog(self.groups, self.strays, self._sections, self.consent if consent is None else consent)
        made.not_run |= self.not_run
        return made

    @functools.cached_property
    def files(self) -> Resolver:
        """What resolves files of the user's own, under the consent."""
        kind: Any = service("files") or NoFiles
        made: Resolver = kind(self.consent)
        return made

    @property
    def sections(self) -> Mapping[str, Entry]:
        """The sections of recipes that plugins offer, by key."""
        return _sections() if self._sections is None else self._sections

    def __iter__(self) -> Iterator[Entry]:
        """All components, by group in the order of `GROUPS`, then by name."""
        for entries in self.groups.values():
            yield from entries.values()

    def get(self, group: str, name: str) -> Entry | None:
        """The entry of that name in that group, or None."""
        return self.groups[group].get(name)

    def named(self, name: str) -> list[Entry]:
        """The entries of that name in all groups: one class may serve several hooks."""
        return [entry for entry in self if entry.name == name]

    def offer(self, group: str) -> str:
        """The names in a group, as half a sentence."""
        return f"for {group} there is {', '.join(self.groups[group]) or 'nothing installed'}"


def installed(group: str) -> dict[str, Entry]:
    """What plugins offer in one group, by name, sorted.

    Raises:
        PluginError: a name is offered twice; the message names both distributions.
    """
    return _offered(group).get(group, {})


def service(name: str) -> Any:
    """What is offered as this service; None where nothing is."""
    entry = installed(SERVICE).get(name)
    return entry and entry.imported()


def _offered(wanted: str | None) -> dict[str, dict[str, Entry]]:
    """The entry points of one group, or of all, by group and name, sorted; without adapters, which may share a name."""
    groups, clashes = _entries(_where_distributions_are())
    told = [text for group, text in clashes if wanted in (None, group)]
    if told:
        raise PluginError("\n".join(told))
    return {group: dict(entries) for group, entries in groups.items()}


def _where_distributions_are() -> tuple[tuple[str, tuple[int, int, int] | None], ...]:
    """The folders in which Python looks, each as it is now: to install or remove a distribution changes one."""

    def now(folder: str) -> tuple[int, int, int] | None:
        try:
            status = os.stat(folder or ".")
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns

    return tuple((folder, now(folder)) for folder in sys.path)


@functools.lru_cache(maxsize=1)
def _entries(
    where: tuple[tuple[str, tuple[int, int, int] | None], ...],
) -> tuple[dict[str, dict[str, Entry]], list[tuple[str, str]]]:
    """All entry points, and the names that are offered twice, by group. A run asks a few times, and to read the files
    of some hundred distributions takes longer than a round of a small one."""
    from importlib_metadata import entry_points

    groups: dict[str, dict[str, Entry]] = {}
    clashes = []
    for point in entry_points():
        group = point.group.removeprefix(_PREFIX)
        if group in (point.group, ADAPTER):
            continue
        entry = Entry(point.name, group, point.value, *_named(point.dist))
        other = groups.setdefault(group, {}).setdefault(point.name, entry)
        if other is not entry:
            text = (
                f"{entry.title} is offered twice, by {other.distribution} {other.version} ({other.value}) and by "
                f"{entry.distribution} {entry.version} ({entry.value}); uninstall one of them"
            )
            clashes.append((group, text))
    return {group: dict(sorted(entries.items())) for group, entries in groups.items()}, clashes


@functools.cache
def _named(dist: Any) -> tuple[str, str]:
    """Name and version of a distribution.

    The first lines of METADATA say both. `dist.name` and `dist.version` each parse all of it, as an e-mail.
    """
    header = (dist.read_text("METADATA") or "").partition("\n\n")[0] if dist else ""
    fields = dict(line.split(": ", 1) for line in header.splitlines() if line.startswith(("Name: ", "Version: ")))
    return fields.get("Name", "unknown"), fields.get("Version", "unknown")


@functools.cache
def _sections() -> dict[str, Entry]:
    """The installed sections, for catalogs that were made by hand; read once, and only when one is asked for."""
    return installed(SECTION)
