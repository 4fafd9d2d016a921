"""A recipe: the YAML file that composes components into a protocol, as a typed, validated, frozen object.

Every mistake is reported at once, with its place. How components get their names, under which state, messages and
noise streams are filed:

* `name:` if written, else the name of the component, `std.clip`;
* a second `{use: std.clip}` elsewhere is a separate component, named after its place: `std.clip@noised`. Zones are
  counted in the order of `Recipe.zones`, not of the file, so the order of keys in a file changes nothing;
* plain text such as `std.ckks` refers to the component of that name anywhere in the recipe; if there is none, it
  means `{use: std.ckks}`.

A name without a dot that no plugin offers means the plugin `std`: `dirichlet` is `std.dirichlet`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fedplug.api.errors import RecipeError
from fedplug.api.records import shown
from fedplug.recipe import overlay, yaml_source
from fedplug.recipe.catalog import SECTION, Catalog, installed
from fedplug.recipe.check import find_problems
from fedplug.recipe.composition import Composition
from fedplug.recipe.own_files import OwnFile, named_in
from fedplug.recipe.parts import SECTIONS, DataUse, General, Sampling, Use, leaves, mapped, zone_order
from fedplug.recipe.reader import Draft
from fedplug.recipe.sections import Section
from fedplug.recipe.shelf import located, origin_of
from fedplug.recipe.yaml_source import Source


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A protocol: which components do what, with which options.

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

    @classmethod
    def from_plain(
        cls,
        data: Mapping[str, Any],
        catalog: Catalog | None = None,
        origin: str = "recipe",
        sets: Sequence[overlay.Change] = (),
    ) -> Recipe:
        """Validates plain data, such as `to_plain` gives, with the changes of `sets`, as in `load_recipe`.

        Raises:
            RecipeError: holds every mistake, with its path.
        """
        source = Source(origin, data)
        if sets:
            source.data = copy.deepcopy(data)
            overlay.override(source, sets)
        return _finish(source, catalog)

    def to_plain(self) -> dict[str, Any]:
        """Plain data with every default written out; `from_plain` gives an equal recipe."""
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

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones in label order: the four that every protocol knows, then the recipe's own, sorted."""
        return zone_order([*self.protect, *self.postprocess])

    @property
    def clients(self) -> int:
        """K, the number of clients."""
        return self.data.clients

    @property
    def uses(self) -> list[Use]:
        """Every place that names a component, references included, in the order of the sections."""
        data, *others = (getattr(self, section) for section in SECTIONS)
        return [*leaves([data, data.partition, others, [section.uses for section in self.sections.values()]])]

    @property
    def own_files(self) -> tuple[OwnFile, ...]:
        """The files of the user's own that it is made of: code, and what options name."""
        uses = [each for use in self.uses for each in use.nested]
        return tuple(dict.fromkeys(own for use in uses for own in (use.own, *use.files) if own))

    @property
    def components(self) -> dict[str, Use]:
        """The defining place of every component, by instance name."""
        return {use.name: use for use in self.uses if not use.is_reference}


def load_recipe(
    path: Path | str, sets: Sequence[overlay.Change] = (), catalog: Catalog | None = None
) -> Recipe:  # fmt: skip
    """Reads, extends, overrides and checks a recipe file.

    Args:
        path: the YAML file, or the name of a shipped recipe (`recipe.shelf`).
        sets: overrides of the form `a.b.0.c=value`, or pairs of such a path and its value, applied in order.
        catalog: the components on offer, and the consent to code that the recipe brings; by default those installed,
            and nobody's.

    Raises:
        RecipeError: `problems` holds every mistake as `file:line:column: message`.
        PluginError: the installed plugins contradict each other.
    """
    file = located(path)
    return dataclasses.replace(_finish(read_extended(file, sets), catalog), origin=origin_of(file))


def read_extended(path: Path, sets: Sequence[overlay.Change] = ()) -> Source:
    """A recipe file as it is over what it `extends`, which may extend another, and with changes; nothing of it runs.

    Raises:
        RecipeError: what it extends is no recipe, or cannot be read; without it nobody can say what is missing.
    """
    source = _over(yaml_source.read(path), (path.resolve(),))
    overlay.override(source, sets)
    return source


def _over(source: Source, files: tuple[Path, ...]) -> Source:
    """A source with what it extends below it; `files` are those that led here, itself the last."""
    if not isinstance(source.data, dict) or "extends" not in source.data:
        return source
    name = source.data["extends"]
    if not isinstance(name, str) or not name:
        source.complain(("extends",), f"extends must be the path or the name of a recipe, not {name!r}")
        raise RecipeError(_in_order(source, source.problems))
    file = parent_of(source)
    if file.resolve() in files:
        circle = " extends ".join(each.name for each in (*files[files.index(file.resolve()) :], file))
        source.complain(("extends",), f"a recipe cannot extend itself: {circle}; leave one of these out")
        raise RecipeError(_in_order(source, source.problems))
    parent = yaml_source.read(file)
    if not file.resolve().is_relative_to(files[0].parent) and not _is_recipe(parent.data):
        source.closed.add(parent.origin)
        parent.closed.add(parent.origin)
    if parent.data is None and len(parent.problems) == 1 and not parent.problems[0].position.line:
        # The file cannot be read at all: the place to look at is the line that names it.
        parent.problems = [yaml_source.Problem(source.where(("extends",)), f"{file}: {parent.problems[0].message}")]
    if not isinstance(parent.data, dict):
        source.problems += parent.problems
        if not source.problems:
            source.complain(("extends",), f"{name} is not a recipe: it must be a mapping of keys")
        raise RecipeError(_in_order(source, source.problems))
    source = overlay.extend(_over(parent, (*files, file.resolve())), source)
    del source.data["extends"]
    return source


def _is_recipe(data: Any) -> bool:
    """Whether plain data is a part of a recipe at least: it has the keys of recipes alone."""
    known = {*General.model_fields, *SECTIONS, *installed(SECTION), "extends"}
    return isinstance(data, Mapping) and known.issuperset(data)


def parent_of(source: Source) -> Path:
    """The file that a source extends, by a path as seen from its folder or by the name of a shipped recipe."""
    return located(source.data["extends"], Path(source.origin).parent)


def _finish(source: Source, catalog: Catalog | None) -> Recipe:
    for path, value, _ in yaml_source.leaves(source.data):
        if yaml_source.too_long(value):  # in plain data; of text the reader has complained
            source.complain(path, f"{shown(value)}: {yaml_source.LONGEST}")
            raise RecipeError(_in_order(source, source.problems))
    if isinstance(source.data, Mapping):
        catalog = catalog or Catalog.discover()
        catalog.consent.covers(named_in(source), source.origin)
        draft = Draft(source, catalog)
        fields = draft.fields()
        recipe = Recipe(**fields) if fields else None
        notes = catalog.right.get(recipe.digest) if recipe else None
        if notes is None:
            problems, notes = find_problems(draft, recipe)
            for path, message in problems:
                of_zone = path[0] in ("protect", "postprocess") and len(path) == 2
                source.complain(path, message, key=of_zone)  # of a zone, point at its name
        if recipe is not None and not source.problems:
            catalog.right[recipe.digest] = notes
            return dataclasses.replace(recipe, notes=(*overlay.dropped_options(source, draft.uses), *notes))
    elif not source.problems:
        kind = "empty" if source.data is None else f"a {type(source.data).__name__}"
        source.complain((), f"a recipe is a mapping of keys such as name, rounds, protect; this one is {kind}")
    lines = [_in_order(source, found) for found in (source.problems + source.not_run, source.not_run)]
    raise RecipeError(*lines)


def _in_order(source: Source, problems: Sequence[yaml_source.Problem]) -> list[str]:
    """Distinct problems of a recipe as text, by file, line and column; those of `--set` last."""
    files = list(dict.fromkeys([source.origin, *(problem.position.origin for problem in problems)]))

    def place(problem: yaml_source.Problem) -> tuple[bool, int, int, int]:
        position = problem.position
        return position.origin.startswith("--set"), files.index(position.origin), position.line, position.column

    def told(problem: yaml_source.Problem) -> str:
        file, line, _ = problem.position
        if file not in source.closed:
            return str(problem)
        return (
            f"{file}:{line}: what is wrong is not shown, since this is no recipe, and not in the folder of the recipe "
            f"that extends it; fedplug check {file} shows it"
        )

    return list(dict.fromkeys(map(told, sorted(problems, key=place))))


def plan_of(recipe: Recipe, composition: Composition) -> list[tuple[str, str, str]]:
    """The protocol as people read it: (hook, component, what it does here), in the order in which it happens."""

    def line(hook: str, name: str) -> tuple[str, str, str]:
        return hook, name, composition.components[name].describe()

    plan = [line("data", recipe.data.name)]
    if recipe.data.partition is not None:
        plan.append(line("partition", recipe.data.partition.name))
    else:
        plan.append(("sites", "–", _sites(recipe)))
    if recipe.public:
        plan.append(line("public", recipe.public.name))
    elif recipe.data.public:
        plan.append(("public", recipe.data.name, f"{recipe.data.public} training examples set aside for everybody"))
    if recipe.task:
        plan.append(line("task", recipe.task.name))
    plan += [line("model", recipe.model.name), line("train", recipe.train.name)]
    if recipe.fine_tune:
        plan.append(line("fine_tune", recipe.fine_tune.name))
    if recipe.clusters:
        plan.append(("clusters", "–", f"figures of {', '.join(recipe.clusters)}; training stays as it is"))
    plan += [line("score_parameters", use.name) for use in recipe.score_parameters]
    if recipe.groups:
        plan.append(line("groups", recipe.groups.name))
    plan.append(line("negotiate_mask", recipe.negotiate_mask.name))
    for zone in recipe.zones:
        if zone in recipe.protect and not recipe.protect[zone]:
            plan.append((f"protect {zone}", "–", "sent as it is"))
        plan += [line(f"protect {zone}", use.name) for use in recipe.protect.get(zone, ())]
    plan.append(line("aggregate", recipe.aggregate.name))
    plan += [line(f"postprocess {zone}", use.name) for zone, chain in recipe.postprocess.items() for use in chain]
    for key, section in recipe.sections.items():
        if text := section.describe():
            plan.append((key, "–", text))
        plan += [line(key, use.name) for use in section.main]
    return plan


def _sites(recipe: Recipe) -> str:
    """The facts on which the sites have agreed."""
    agreed = recipe.data.agreed
    assert agreed is not None  # whatever is not split is at sites
    shape, mean, std = "x".join(map(str, agreed.shape)), agreed.mean, agreed.std
    return (
        f"each of {recipe.clients} clients has what lies at its site, the server nothing; inputs {shape}, "
        f"{len(agreed.classes)} classes, mean {', '.join(f'{each:g}' for each in mean)}, "
        f"std {', '.join(f'{each:g}' for each in std)}"
    )
