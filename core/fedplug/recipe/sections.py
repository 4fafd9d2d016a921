"""Sections that plugins add to recipes: a key of the recipe, typed and checked like the core's own.

An entry point of the group `fedplug.section` names the key and the class. The core reads, checks and writes such a
section by what its class declares, and knows none by name. A section that is absent, null, an empty list, or says
nothing (`Section.empty`) is not part of the recipe nor of its digest, so that recipes without it are the same on every
machine, whatever is installed there.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, create_model

from fedplug.api import component
from fedplug.api.errors import PluginError
from fedplug.api.events import Subject
from fedplug.api.roles import Component, Reveals
from fedplug.recipe.catalog import GROUPS, Entry, Own
from fedplug.recipe.parts import SECTIONS, DataUse, General, Sampling, Use, leaves, mapped, plain_options, zone_order
from fedplug.recipe.source import KeyPath, closest

Handing = Callable[[str, str, Any], AbstractContextManager[Callable[[Any], Any]]]
"""Entered with the names of a component and its method, and the party, around each call: it keeps back what the method
must not be handed, and gives what looks at the answer."""


@dataclasses.dataclass(frozen=True)
class Around:
    """What is known of the recipe around a section while it is checked.

    Attributes:
        clients: among how many clients the data is split; None where that is wrong itself.
        recipe: as read; None where it is wrong itself.
        parts: the components that could be built, by instance name.
    """

    clients: int | None
    recipe: Resolved | None
    parts: Mapping[str, Component]


@dataclasses.dataclass(frozen=True)
class Section:
    """One section of a recipe, as validated. A subclass declares its contents, and what follows from them.

    It has one of two forms: a mapping, with the keys of `Options` and those of `lists`, or a list of `Item`. A subclass
    is used as it is; give it properties that name the parts, and no `__init__`.

    Attributes:
        key: its key in the recipe.
        options: the keys that are not components, an instance of `Options`.
        items: what the list holds, where the section is one.
        uses: for each key of `lists`, the places of its components.
    """

    Options: ClassVar[type[component.Options]] = component.Options
    """The plain keys of the mapping."""
    Item: ClassVar[type[component.Options] | None] = None
    """The item of the list, where the section is a list of plain items instead."""
    lists: ClassVar[Mapping[str, str]] = {}
    """Keys of the mapping that hold lists of components, and the group of each. Where the section is written as a plain
    list, that is the first of them, and all else has its default. Where the mapping has `use`, its other keys are those
    of the one component in the first list, and of `Options`."""
    example: ClassVar[str] = ""
    """How the first of `lists` may look, such as `[{use: acme.one}]`, where the section makes no sense without it: a
    mapping that lacks it is refused with this."""

    key: str
    options: Any = dataclasses.field(default_factory=component.Options)
    items: Sequence[Any] = ()
    uses: Mapping[str, tuple[Use, ...]] = dataclasses.field(default_factory=dict)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if problems := list(_contradictions(cls)):
            raise TypeError(f"{cls.__module__}.{cls.__qualname__}: " + "; ".join(problems))

    @classmethod
    def of(cls, recipe: Resolved) -> Self | None:
        """The section of this class in a recipe; None where the recipe has none."""
        return next((section for section in recipe.sections.values() if isinstance(section, cls)), None)

    @classmethod
    def summary(cls) -> str:
        """The purpose of the section: the first line of its docstring, without the full stop."""
        return (cls.__doc__ or "").strip().partition("\n")[0].removesuffix(".")

    @property
    def empty(self) -> bool:
        """Whether it says nothing, so that the recipe is the same without it; by default if all of it has defaults."""
        return not self.items and not any(self.uses.values()) and not self.options.model_dump(exclude_defaults=True)

    def check(self, around: Around) -> Iterable[tuple[KeyPath, str]]:
        """The conflicts of the section with the recipe, each with its path inside the section."""
        return ()

    def reveals(self, recipe: Any) -> Sequence[Reveals]:
        """The values that a run makes visible because of this section; the ledger lists them."""
        return ()

    keeps_messages: ClassVar[bool] = False
    """Whether every message and every checkpoint of the run is kept, so that somebody can look back."""

    counts_operations: ClassVar[bool] = False
    """Whether every party reports its costly operations (`Party.operation`) with its replies."""

    @property
    def presence(self) -> float:
        """The chance that a client which is drawn for a round is there, each by itself; 0 where nobody can tell."""
        return 1.0

    def of_client(self, client_id: int) -> Any:
        """The section's facts about one client, which the client has as `said[key]`; None: nothing."""
        return None

    def around(self, composition: Any, world: Any) -> Handing | None:
        """Called once in each process with clients: what goes around every call at them; None: nothing."""
        return None

    def attach(self, protocol: Subject) -> None:
        """Called before the set-up of a run, once the ledger and the metrics listen; may subscribe to its events."""

    def after_run(self, run: Any) -> int:
        """Does what the section asks for once the run (a `fedplug.Run`) is complete; gives the exit code, 0 where all
        went well.
        """
        return 0

    def describe(self) -> str:
        """One line for the plan of the run; empty for none."""
        return ""

    @property
    def main(self) -> tuple[Use, ...]:
        """The components of the first of `lists`."""
        return self.uses.get(next(iter(self.lists), ""), ())

    def to_plain(self) -> Any:
        """Plain data that reads back as this section."""
        if self.Item is not None:
            return [plain_options(item) for item in self.items]
        lists = {name: [use.to_plain() for use in self.uses.get(name, ())] for name in self.lists}
        return {**plain_options(self.options), **lists}


@dataclasses.dataclass(frozen=True)
class Resolved:
    """What a recipe holds: which components do what, with which options.

    Attributes:
        name, description, seed, rounds, min_clients, sampling, buffers, delta, clusters: the key of that name.
        data, public, task, model, train, fine_tune, groups, negotiate_mask, aggregate, accountant: the component under
            that key; None where the recipe has none.
        score_parameters, extensions: the components under that key.
        protect, postprocess: the components under that key, in order, by zone.
        sections: what plugins' sections say, by key, sorted; those that say nothing are left out. `Section.of(recipe)`
            gives one by its class.
        notes: what its author should know, though nothing is wrong; not part of the recipe.
        origin: where it was read: a path, or `NAME (DISTRIBUTION VERSION)` where it was found by name; empty where it
            was not read from a file. Not part of the recipe either.
    """

    name: str
    description: str
    seed: int
    rounds: int
    min_clients: int
    sampling: Sampling | None
    buffers: Literal["local", "mean"]
    delta: float
    clusters: Mapping[str, tuple[int, ...]]
    data: DataUse
    public: Use | None
    task: Use | None
    model: Use
    train: Use
    fine_tune: Use | None
    score_parameters: tuple[Use, ...]
    groups: Use | None
    negotiate_mask: Use
    protect: Mapping[str, tuple[Use, ...]]
    aggregate: Use
    postprocess: Mapping[str, tuple[Use, ...]]
    accountant: Use | None
    extensions: tuple[Use, ...]
    sections: Mapping[str, Section]
    notes: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
    origin: str = dataclasses.field(default="", compare=False, repr=False)

    def to_plain(self) -> dict[str, Any]:
        """Plain data with every default written out; `Recipe.from_plain` gives an equal recipe."""
        plain: dict[str, Any] = {}
        for field in General.model_fields:
            value = getattr(self, field)
            plain[field] = value.to_plain() if isinstance(value, Sampling) else value
        for section in SECTIONS:
            plain[section] = mapped(getattr(self, section), lambda use: use.to_plain(), list)
        # As in recipes from before these keys existed, whose digests stay the same.
        for key in ("task", "fine_tune", "clusters"):
            if not plain[key]:
                del plain[key]
        return plain | {key: section.to_plain() for key, section in self.sections.items()}

    def resting(self, round: int) -> frozenset[int]:
        """The clients that are in a 0-based round with noise alone, since it is not their turn."""
        sampling, everybody = self.sampling, range(self.data.clients)
        if sampling is None or sampling.resting != "noise" or not 0 <= round < self.rounds:
            return frozenset()
        return frozenset(everybody) - frozenset(sampling.cohort(self.seed, everybody, round))

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the recipe without its description; equal recipes have equal digests on every machine."""
        plain = {key: value for key, value in self.to_plain().items() if key != "description"}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @functools.cached_property
    def zones(self) -> tuple[str, ...]:
        """The zones in label order: the four that every protocol knows, then the recipe's own, sorted."""
        return zone_order([*self.protect, *self.postprocess])

    @property
    def clients(self) -> int:
        """K, the number of clients."""
        return self.data.clients

    @functools.cached_property
    def uses(self) -> tuple[Use, ...]:
        """Every place that names a component, references included, in the order of the sections."""
        data, *others = (getattr(self, section) for section in SECTIONS)
        return (*leaves([data, data.partition, others, [section.uses for section in self.sections.values()]]),)

    @property
    def own_files(self) -> tuple[Own, ...]:
        """The files of the user's own that it is made of: code, and what options name."""
        uses = [each for use in self.uses for each in use.nested]
        return tuple(dict.fromkeys(own for use in uses for own in (use.own, *use.files) if own))

    @functools.cached_property
    def components(self) -> Mapping[str, Use]:
        """The defining place of every component, by instance name."""
        return {use.name: use for use in self.uses if not use.is_reference}


def _contradictions(cls: type[Section]) -> Iterator[str]:
    """What a class declares that cannot be read, as half sentences."""
    declared: dict[str, Any] = {"Options": cls.Options} | ({"Item": cls.Item} if cls.Item is not None else {})
    wrong = [k for k, kind in declared.items() if not (isinstance(kind, type) and issubclass(kind, component.Options))]
    if wrong:
        yield from (f"{name} must be a subclass of fedplug.Options" for name in wrong)
    elif cls.Item is not None and (cls.lists or cls.Options.model_fields):
        yield "a list of Item has no keys; leave out Options and lists, or Item"
    elif both := sorted(cls.lists.keys() & cls.Options.model_fields.keys()):
        yield f"{both[0]} is a key of Options and of lists"
    for name, group in cls.lists.items():
        if group not in GROUPS:
            yield f"{name} has the group {group!r}; {closest(group, GROUPS)}"


def load(entry: Entry) -> type[Section]:
    """Imports the class of a section.

    Raises:
        PluginError: the import fails, or gives no section; the message names the distribution.
    """
    section_class = entry.load()
    if not issubclass(section_class, Section):
        raise PluginError(f"{entry} is not a section; its class must inherit from fedplug.Section")
    return section_class


def list_model(key: str, section_class: type[Section]) -> type[BaseModel]:
    """A model whose one field is a section that is a list, so that messages and schema name its items by their path."""
    kind: Any = list[section_class.Item]  # type: ignore[name-defined]
    fields: dict[str, Any] = {key: (kind, Field([], description=section_class.summary()))}
    return create_model(key, __base__=component.Options, **fields)
