"""What is to be tried: a grid or a comparison, a YAML file that is read with positions, and the recipes that it makes.

A grid has values to try:

    parameters:                            # every combination of these, the last one changing fastest
      negotiate_mask.tau: [0.05, 0.1, 0.2]
      data.partition.alpha: [0.2, 0.5, 1]
    cases:                                 # each of them with every combination
      - {name: with noise}
      - {name: without noise, set: {protect.noised: []}}

A comparison has recipes, and perhaps a question:

    question: What does ParaAegis buy with 10% encrypted?
    baseline: fedavg
    seeds: [1, 2, 3]
    set: {rounds: 10}                       # in all of them
    recipes:                                # paths from here
      - ../fedavg.yaml
      - {recipe: ../paraaegis-static.yaml, name: ParaAegis 10%, set: {negotiate_mask.ratio: 0.1}}
    cases:                                  # the whole comparison under each of them, a table for each
      - {name: iid, set: {data.partition: {use: std.iid}}}
      - {name: dir0.5}

Each recipe goes by its own name unless the file gives it another. What a case sets holds over what all and an entry
set. Paths and values are those of `--set`. Every recipe is checked before anything runs; all mistakes are reported at
once.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from fedplug.api.component import Options
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import KeyPath, Position, Problem, Source, in_order
from fedplug_runs import shelf, yaml_source
from fedplug_runs.overlay import load_recipe
from fedplug_runs.shelf import located
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

SEED = "seed"
_END = "...\n"  # what YAML writes behind a scalar
MOST = 10_000
"""The most runs of one sweep; more is a mistake in the grid."""


def assignment(path: str, value: Any) -> str:
    """As `--set` takes it."""
    return f"{path}={yaml_source.dump(value).removesuffix(_END).strip()}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """One value for one path, and where both were written."""

    path: str
    value: Any
    place: str
    path_place: str

    @property
    def assignment(self) -> str:
        """As `--set` takes it."""
        return assignment(self.path, self.value)


@dataclasses.dataclass(frozen=True)
class Case:
    """Values that go together, under a name; empty where the grid has no cases."""

    name: str = ""
    choices: tuple[Choice, ...] = ()


@dataclasses.dataclass(frozen=True)
class Grid:
    """The content of a grid file.

    Attributes:
        cases: at least one.
        parameters: path -> what to try for it; the seed is among them where the file or `--seeds` lists seeds.
    """

    cases: tuple[Case, ...]
    parameters: Mapping[str, tuple[Choice, ...]]

    def __len__(self) -> int:
        return len(self.cases) * math.prod(map(len, self.parameters.values()))


@dataclasses.dataclass(frozen=True)
class Combination:
    """One run of a sweep.

    Attributes:
        case: name of its case; empty without cases.
        parameters: path -> value, without the seed.
        recipe: what to run.
        label: its case, parameters and seed for people, `tau=0.1 rho=0.5 seed=1`.
    """

    case: str
    parameters: Mapping[str, Any]
    recipe: Recipe
    label: str


def _is_path(path: str) -> str:
    if not all(path.split(".")) or "=" in path:
        raise ValueError(f"{path!r} is not a path into a recipe; write for instance protect.noised.0.norm")
    return path


def distinct(values: list[Any]) -> list[Any]:
    """The values; raises ValueError where one is there twice."""
    texts = [json.dumps(value) for value in values]
    if twice := [value for i, value in enumerate(values) if texts[i] in texts[:i]]:
        raise ValueError(f"{shown(twice[0])} is given twice; remove one of them")
    return values


def _named_apart(cases: list[CaseText]) -> list[CaseText]:
    names = [case.name for case in cases]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"the case {twice[0]!r} is there already; give it another name")
    return cases


PathText = Annotated[str, AfterValidator(_is_path)]
Values = dict[PathText, Any]


class CaseText(Options):
    """A case, as it is written."""

    name: str = Field(min_length=1, description="of the case, different from those of the others")
    set: Values = Field({}, description="values by path, such as {rounds: 5}")


Cases = Annotated[list[CaseText], AfterValidator(_named_apart)]


class _GridText(Options):
    """A grid, as it is written."""

    parameters: dict[PathText, Annotated[list[Any], Field(min_length=1), AfterValidator(distinct)]] = Field(
        {}, description="what to try, by path: {negotiate_mask.ratio: [0.1, 0.2]}"
    )
    cases: Cases = Field([], description="each with every combination: [{name: small, set: {rounds: 5}}]")

    @model_validator(mode="after")
    def _makes_runs(self) -> Self:
        if not self.parameters and not self.cases:
            raise ValueError("a grid needs parameters, cases or both; for instance parameters: {rounds: [5, 10]}")
        return self


def choices_of(source: Source, values: Mapping[str, Any], at: KeyPath) -> tuple[Choice, ...]:
    """Values by path, with their places."""
    where = source.where
    return tuple(
        Choice(path, value, str(where((*at, path))), str(where((*at, path), key=True)))
        for path, value in values.items()
    )


def cases_of(source: Source, cases: Sequence[CaseText]) -> tuple[Case, ...]:
    """Cases, with the places of their values."""
    return tuple(Case(one.name, choices_of(source, one.set, ("cases", i, "set"))) for i, one in enumerate(cases))


def seed_choices(seeds: Sequence[int]) -> tuple[Choice, ...]:
    """Seeds of the command line."""
    return tuple(Choice(SEED, seed, "--seeds", "--seeds") for seed in seeds)


def seed_problems(seeds: Sequence[int], sets: Sequence[str]) -> list[str]:
    """What is wrong with seeds of the command line, given its `--set`."""
    problems = ["--seeds: a seed is given twice; it would run twice alike"] if len({*seeds}) < len(seeds) else []
    if seeds and any(assignment.partition("=")[0].strip() == SEED for assignment in sets):
        listed = ", ".join(map(str, seeds))
        problems.append(f"--set {SEED}=...: the seeds are listed as well ({listed}); keep one of them")
    return problems


def read_grid(path: Path, seeds: Sequence[int] = (), sets: Sequence[str] = ()) -> Grid:
    """Reads a grid file.

    Args:
        path: the YAML file.
        seeds: of `--seeds`.
        sets: of `--set`; what is given there may not be in the grid as well.

    Raises:
        RecipeError: holds every mistake, as `file:line:column: message`.
    """
    text, source = shelf.read_as(_GridText, path, "grid")
    text = text or _GridText.model_construct()
    parameters: dict[str, tuple[Choice, ...]] = {}
    for name, values in text.parameters.items():
        at = ("parameters", name)
        places = [str(source.where((*at, i))) for i in range(len(values))]
        path_place = str(source.where(at, key=True))
        parameters[name] = tuple(Choice(name, *each, path_place) for each in zip(values, places, strict=True))
    cases = cases_of(source, text.cases) or (Case(),)
    fixed = {assignment.partition("=")[0] for assignment in sets}
    of_cases = {choice.path: case.name for case in cases for choice in case.choices}
    for name in {**parameters, **of_cases}:
        at = ("parameters", name) if name in parameters else ("cases", name)
        if name in fixed:
            source.complain(at, f"{name} is given by --set as well; keep one of them", key=True)
        if name in parameters and name in of_cases:
            source.complain(at, f"case {of_cases[name]!r} sets {name} too; keep one of them", key=True)
    if seeds:
        if SEED in parameters:
            source.complain(("parameters", SEED), "--seeds is given as well; keep one of them", key=True)
        if len({*seeds}) < len(seeds):
            source.problems.append(Problem(Position("--seeds"), "a seed is given twice; it would run twice alike"))
        parameters[SEED] = seed_choices(seeds)
    grid = Grid(cases, parameters)
    if len(grid) > MOST:
        source.complain((), f"the grid makes {len(grid):,} runs; a sweep has at most {MOST:,}")
    if source.problems:
        raise RecipeError(in_order(source, source.problems))
    return grid


def combinations(recipe: Path, grid: Grid, sets: Sequence[str], catalog: Catalog) -> list[Combination]:
    """The runs of a sweep, in order: by case, then parameters, the last one changing fastest.

    Args:
        recipe: its file.
        grid: what changes.
        sets: of `--set`, under what the grid changes.
        catalog: of components.

    Raises:
        RecipeError: holds every mistake of every combination, each once, with the combinations that it is in.
    """
    names, tries = short_names(list(grid.parameters)), []
    for case, values in itertools.product(grid.cases, itertools.product(*grid.parameters.values())):
        label = " ".join([*filter(None, [case.name]), *(f"{names[c.path]}={shown(c.value)}" for c in values)])
        parameters = {choice.path: choice.value for choice in values if choice.path != SEED}
        tries.append(Try(recipe, (*case.choices, *values), label or recipe.stem, case.name, parameters))
    made = loaded(tries, sets, (), catalog)
    if problems := alike({one.label: one for one in made}):
        raise RecipeError(problems)
    return made


@dataclasses.dataclass(frozen=True)
class Try:
    """Settings to try: changes of a recipe, with what the run is to be called, as in `Combination`."""

    recipe: Path
    choices: tuple[Choice, ...]
    label: str
    case: str = ""
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def loaded(tries: Sequence[Try], sets: Sequence[str], over: Sequence[str], catalog: Catalog) -> list[Combination]:
    """The recipes that settings make.

    Args:
        tries: the settings.
        sets: of `--set`, under what they change.
        over: of `--set`, over what they change.
        catalog: of components.

    Raises:
        RecipeError: holds every mistake, each once, with the settings that it is in where those are not all.
    """
    made: list[Combination] = []
    complaints: dict[str, list[Try]] = {}  # about values of a file: an empty list, the place says it all
    for one in tries:
        changes = [*sets, *(choice.assignment for choice in one.choices), *over]
        try:
            made.append(Combination(one.case, one.parameters, load_recipe(one.recipe, changes, catalog), one.label))
        except RecipeError as error:
            for problem in error.problems:
                placed = _at_its_place(problem, one.choices)
                complaints.setdefault(placed or problem, []).extend([] if placed else [one])
    if complaints:
        raise RecipeError([_with_labels(problem, those, tries) for problem, those in complaints.items()])
    return made


def alike(made: Mapping[str, Combination]) -> list[str]:
    """Complaints about runs of one recipe, by their names."""
    first: dict[str, str] = {}
    pairs = [(name, first.setdefault(one.recipe.digest, name)) for name, one in made.items()]
    return [f"{name} and {other} are the same recipe; remove one of them" for name, other in pairs if name != other]


def _at_its_place(problem: str, choices: Sequence[Choice]) -> str | None:
    """A complaint about a path or value of the grid, at its place; None for any other."""
    for choice in choices:
        if problem.startswith(prefix := f"--set {choice.path}: "):
            message = problem.removeprefix(prefix)
            return f"{choice.path_place if message.startswith('unknown ') else choice.place}: {message}"
    return None


def _with_labels(problem: str, those: Sequence[Try], tries: Sequence[Try]) -> str:
    """Which settings have the problem, where others could have it and have not."""
    files = {one.recipe for one in those}
    labels = list(dict.fromkeys(one.label for one in those))
    could = {one.label for one in tries if problem.startswith("--set") or one.recipe in files}
    if len(labels) in (0, len(could)):
        return problem
    return f"{problem} (with {labels[0]}{f' and {len(labels) - 1} more' if len(labels) > 1 else ''})"


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """For each path, the shortest end of it that no other path has: `tau` for `negotiate_mask.tau`."""
    names = {}
    for path in paths:
        parts = path.split(".")
        ends = [".".join(parts[-length:]) for length in range(1, len(parts) + 1)]
        others = [f".{other}" for other in paths if other != path]
        names[path] = next((end for end in ends if not any(o.endswith(f".{end}") for o in others)), path)
    return names


def shown(value: Any) -> str:
    """A value in a label or message: as short as it can be written."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclasses.dataclass(frozen=True)
class Entry:
    """One of the recipes: its file, its name in the comparison or an empty text for its own, and changes of it."""

    recipe: Path
    name: str = ""
    choices: tuple[Choice, ...] = ()


@dataclasses.dataclass(frozen=True)
class Contest:
    """A comparison: what is compared, and how.

    Attributes:
        title: a word or two, for the folder of its pages.
        question: that it answers; may be empty.
        baseline: the name of the one that the others are compared with; empty for the first.
        seeds: each recipe is run with each of them; with the recipe's own if empty.
        entries: the recipes.
        cases: what the whole comparison is made under, one after the other; none: as it is.
    """

    title: str
    question: str
    baseline: str
    seeds: tuple[int, ...]
    entries: tuple[Entry, ...]
    cases: tuple[Case, ...] = ()

    @property
    def titles(self) -> list[str]:
        """For the folder of each case."""
        return [f"{self.title}/{case.name}" for case in self.cases] or [self.title]


def is_comparison(path: Path) -> bool:
    """Whether a file is a comparison, and no recipe."""
    data = shelf.read(path).data
    return isinstance(data, Mapping) and bool({"recipes", "question"} & data.keys())


def of_recipes(recipes: Sequence[Path]) -> Contest:
    """The comparison of recipes as they are."""
    title = "-".join(dict.fromkeys(path.stem for path in recipes))[:60]
    return Contest(title, "", "", (), tuple(Entry(path) for path in recipes))


def _no_seed(values: dict[str, Any]) -> dict[str, Any]:
    if SEED in values:
        raise ValueError("the seeds of a comparison are the list `seeds`")
    return values


def _in_a_mapping(entry: Any) -> Any:
    return {"recipe": entry} if isinstance(entry, str) else entry


def _folder_names(cases: list[CaseText]) -> list[CaseText]:
    for case in cases:
        if not re.fullmatch(r"\w[\w.-]*", case.name):
            rule = "it may have letters, digits, '_', '.' and '-'"
            raise ValueError(f"the case {case.name!r} names a folder too; {rule}")
    return cases


_Set = Annotated[Values, AfterValidator(_no_seed)]


class _EntryText(Options):
    """One of the recipes, as it is written."""

    recipe: str = Field(description="a path from here, or a name")
    name: str = Field("", description="in the comparison; the recipe's own by default")
    set: _Set = Field({}, description="values by path, such as {rounds: 5}")


class _ContestText(Options):
    """A comparison, as it is written."""

    question: str = Field("", description="that it answers")
    baseline: str = Field("", description="the name of the one that the others are compared with")
    seeds: Annotated[list[Annotated[int, Field(ge=0, strict=True)]], AfterValidator(distinct)] = Field(
        [], description="each recipe is run with each"
    )
    set: _Set = Field({}, description="values by path, in all of them")
    recipes: list[Annotated[_EntryText, BeforeValidator(_in_a_mapping)]] = Field(
        min_length=2, description="two or more, such as [fedavg.yaml, fas.yaml]"
    )
    cases: Annotated[Cases, AfterValidator(_folder_names)] = Field(
        [], description="the whole comparison under each, such as [{name: iid, set: {path: value}}]"
    )


def read_contest(path: Path) -> Contest:
    """Reads a comparison file.

    Raises:
        RecipeError: holds every mistake, as `file:line:column: message`.
    """
    text, source = shelf.read_as(_ContestText, path, "comparison")
    entries = []
    for i, one in enumerate(text.recipes if text else ()):
        at = ("recipes", i)
        file = located(one.recipe, path.parent)
        if not file.is_file():
            where = "paths are from the comparison's folder, and fedplug recipes lists names"
            source.complain((*at, "recipe"), f"there is no recipe {file}; {where}")
        choices = (*choices_of(source, text.set, ("set",)), *choices_of(source, one.set, (*at, "set")))
        entries.append(Entry(file, one.name, choices))
    if source.problems:
        raise RecipeError(in_order(source, source.problems))
    cases = cases_of(source, text.cases)
    return Contest(path.stem, text.question, text.baseline, tuple(text.seeds), tuple(entries), cases)


def runs_of(contest: Contest, sets: Sequence[str], catalog: Catalog) -> list[list[Combination]]:
    """The runs of a comparison, for each case: each recipe with each seed. `case` of a run is the name of its recipe.

    Raises:
        RecipeError: holds every mistake of every recipe, each once; or two go by one name, or are the same.
    """
    cases, seeds = contest.cases or [Case()], [[one] for one in seed_choices(contest.seeds)] or [list[Choice]()]
    tries = [
        Try(entry.recipe, (*entry.choices, *case.choices, *seed), f"{_before(case)}{entry.name or entry.recipe.stem}")
        for case in cases for entry in contest.entries for seed in seeds
    ]  # fmt: skip
    made = iter(loaded(tries, (), sets, catalog))
    found, protocols, problems = list[list[Combination]](), dict[str, Combination](), list[str]()
    for case in cases:
        files: dict[str, Path] = {}
        found.append([])
        for entry in contest.entries:
            runs = list(itertools.islice(made, len(seeds)))
            name = entry.name or runs[0].recipe.name
            if (other := files.get(name)) is not None:
                remedy = "give one of them another name, in the recipe or in a comparison file"
                problems.append(f"{other} and {entry.recipe} both go by the name {name!r}; {remedy}")
            files.setdefault(name, entry.recipe)
            protocols[f"{_before(case)}{name}"] = runs[0]
            found[-1] += [
                dataclasses.replace(run, case=name, label=f"{_before(case)}{name} seed={run.recipe.seed}")
                for run in runs
            ]  # fmt: skip
    if problems := [*dict.fromkeys(problems), *alike(protocols)]:
        raise RecipeError(problems)
    return found


def _before(case: Case) -> str:
    """What the names of a case begin with."""
    return f"{case.name}: " if case.name else ""
