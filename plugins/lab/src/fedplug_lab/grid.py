"""The grid of a sweep: a YAML file of values to try, read with positions, and the recipes that it makes.

    parameters:                            # every combination of these, the last one changing fastest
      negotiate_mask.tau: [0.05, 0.1, 0.2]
      data.partition.alpha: [0.2, 0.5, 1]
    cases:                                 # each of them with every combination
      - {name: with noise}
      - {name: without noise, set: {protect.noised: []}}

Paths and values are those of `--set`. Every recipe is checked before anything runs; all mistakes are reported at once.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import KeyPath, Position, Problem, Source, closest
from fedplug_runs import shelf, yaml_source
from fedplug_runs.overlay import load_recipe

SEED = "seed"
MOST = 10_000
"""The most runs of one sweep; more is a mistake in the grid."""


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
        return f"{self.path}={yaml_source.dump(self.value)}"


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


def read_grid(path: Path, seeds: Sequence[int] = (), sets: Sequence[str] = ()) -> Grid:
    """Reads a grid file.

    Args:
        path: the YAML file.
        seeds: of `--seeds`.
        sets: of `--set`; what is given there may not be in the grid as well.

    Raises:
        RecipeError: holds every mistake, as `file:line:column: message`.
    """
    source = shelf.read(path)
    source.problems = [p._replace(message=p.message.replace("the recipe", "the grid")) for p in source.problems]
    grid = _Reader(source).read(seeds, [assignment.partition("=")[0] for assignment in sets])
    if source.problems:
        raise RecipeError([str(problem) for problem in source.problems])
    return grid


class _Reader:
    """One pass over a grid's data; complaints go to the source."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def read(self, seeds: Sequence[int], fixed: Sequence[str]) -> Grid:
        data = self.source.data
        if not isinstance(data, Mapping):
            if not self.source.problems:
                found = "empty" if data is None else f"a {type(data).__name__}"
                self.complain((), f"a grid is a mapping with parameters, cases or both; this one is {found}")
            return Grid((Case(),), {})
        for key in data:
            if key not in ("parameters", "cases"):
                self.complain((key,), f"unknown key {key!r}; {closest(str(key), ('parameters', 'cases'))}", key=True)
        parameters = self.parameters(data["parameters"]) if "parameters" in data else {}
        cases = self.cases(data["cases"]) if "cases" in data else (Case(),)
        if not {"parameters", "cases"} & data.keys():
            self.complain((), "a grid needs parameters, cases or both; for instance parameters: {rounds: [5, 10]}")
        for case in cases:
            for choice in case.choices:
                if choice.path in parameters:
                    message = f"case {case.name!r} sets {choice.path} too; keep one of them"
                    self.complain(("parameters", choice.path), message, key=True)
        for path in {*parameters, *(choice.path for case in cases for choice in case.choices)} & set(fixed):
            at: KeyPath = ("parameters", path) if path in parameters else ("cases",)
            self.complain(at, f"{path} is given by --set as well; keep one of them", key=True)
        if seeds:
            if SEED in parameters:
                self.complain(("parameters", SEED), "--seeds is given as well; keep one of them", key=True)
            if len({*seeds}) < len(seeds):
                self.source.problems.append(self.problem("--seeds", "a seed is given twice; it would run twice alike"))
            parameters[SEED] = tuple(Choice(SEED, seed, "--seeds", "--seeds") for seed in seeds)
        grid = Grid(cases, parameters)
        if len(grid) > MOST:
            self.complain((), f"the grid makes {len(grid):,} runs; a sweep has at most {MOST:,}")
        return grid

    def parameters(self, data: Any) -> dict[str, tuple[Choice, ...]]:
        if not isinstance(data, Mapping) or not data:
            self.complain(("parameters",), "parameters must map paths to lists, such as {negotiate_mask.ratio: [0.1]}")
            return {}
        found: dict[str, tuple[Choice, ...]] = {}
        for path, values in data.items():
            at: KeyPath = ("parameters", path)
            if not self.is_path(path, at):
                continue
            if not isinstance(values, list):
                self.complain(at, f"{path}: what to try must be a list; write [{_shown(values)}]")
            elif not values:
                self.complain(at, f"{path}: the list is empty; give at least one value, or leave {path} out")
            else:
                choices = [self.choice(path, value, at, (*at, i)) for i, value in enumerate(values)]
                seen: set[str] = set()
                for i, value in enumerate(values):
                    if repr(value) in seen:
                        self.complain((*at, i), f"{path}: {_shown(value)} is given twice; remove one of them")
                    seen.add(repr(value))
                found[path] = tuple(choices)
        return found

    def cases(self, data: Any) -> tuple[Case, ...]:
        if not isinstance(data, list) or not data:
            self.complain(("cases",), "cases must be a list, such as [{name: small, set: {rounds: 5}}]")
            return (Case(),)
        found: dict[str, Case] = {}
        for i, entry in enumerate(data):
            at: KeyPath = ("cases", i)
            name = entry.get("name") if isinstance(entry, Mapping) else None
            if not isinstance(entry, Mapping) or not isinstance(name, str) or not name:
                self.complain(at, "a case is a mapping {name: text, set: {path: value}}")
                continue
            for key in entry:
                if key not in ("name", "set"):
                    self.complain((*at, key), f"unknown key {key!r}; {closest(str(key), ('name', 'set'))}", key=True)
            if name in found:
                self.complain((*at, "name"), f"the case {name!r} is there already; every case needs a different name")
            values = entry.get("set") or {}
            if not isinstance(values, Mapping):
                self.complain((*at, "set"), f"set must map paths to values, not {_shown(values)}")
                continue
            choices = [
                self.choice(path, value, (*at, "set", path), (*at, "set", path))
                for path, value in values.items() if self.is_path(path, (*at, "set", path))
            ]  # fmt: skip
            found[name] = Case(name, tuple(choices))
        return tuple(found.values())

    def choice(self, path: str, value: Any, at: KeyPath, value_at: KeyPath) -> Choice:
        return Choice(path, value, str(self.source.where(value_at)), str(self.source.where(at, key=True)))

    def is_path(self, path: str, at: KeyPath) -> bool:
        good = all(path.split(".")) and "=" not in path
        if not good:
            remedy = "write for instance protect.noised.0.norm"
            self.complain(at, f"{path!r} is not a path into a recipe; {remedy}", key=True)
        return good

    def complain(self, path: KeyPath, message: str, key: bool = False) -> None:
        self.source.complain(path, message, key)

    @staticmethod
    def problem(origin: str, message: str) -> Problem:
        return Problem(Position(origin), message)


def combinations(
    recipe: Path, grid: Grid, sets: Sequence[str], catalog: Catalog, over: Sequence[str] = ()
) -> list[Combination]:
    """The runs of a sweep, in order: by case, then parameters, the last one changing fastest.

    Args:
        recipe: its file.
        grid: what changes.
        sets: of `--set`, under what the grid changes.
        catalog: of components.
        over: of `--set`, over what the grid changes.

    Raises:
        RecipeError: holds every mistake of every combination, each once, with the combinations that it is in.
    """
    names = short_names(list(grid.parameters))
    made: list[Combination] = []
    complaints: dict[str, list[str]] = {}  # about values of the grid: an empty list, the place says it all
    for case, values in itertools.product(grid.cases, itertools.product(*grid.parameters.values())):
        choices = (*case.choices, *values)
        label = " ".join([*filter(None, [case.name]), *(f"{names[c.path]}={_shown(c.value)}" for c in values)])
        label = label or recipe.stem
        try:
            loaded = load_recipe(recipe, [*sets, *(choice.assignment for choice in choices), *over], catalog)
        except RecipeError as error:
            for problem in error.problems:
                if (placed := _at_its_place(problem, choices)) is not None:
                    complaints.setdefault(placed, [])
                else:
                    complaints.setdefault(problem, []).append(label)
        else:
            parameters = {choice.path: choice.value for choice in values if choice.path != SEED}
            made.append(Combination(case.name, parameters, loaded, label))
    first: dict[str, str] = {}
    for one in made:
        if (other := first.setdefault(one.recipe.digest, one.label)) != one.label:
            complaints.setdefault(f"{one.label} and {other} are the same recipe; remove one of them", [])
    if complaints:
        raise RecipeError([_with_labels(problem, labels, len(grid)) for problem, labels in complaints.items()])
    return made


def _at_its_place(problem: str, choices: Sequence[Choice]) -> str | None:
    """A complaint about a path or value of the grid, at its place; None for any other."""
    for choice in choices:
        if problem.startswith(prefix := f"--set {choice.path}: "):
            message = problem.removeprefix(prefix)
            return f"{choice.path_place if message.startswith('unknown ') else choice.place}: {message}"
    return None


def _with_labels(problem: str, labels: Sequence[str], total: int) -> str:
    if not labels or len(labels) == total:
        return problem
    more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
    return f"{problem} (with {labels[0]}{more})"


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """For each path, the shortest end of it that no other path has: `tau` for `negotiate_mask.tau`."""
    names = {}
    for path in paths:
        parts = path.split(".")
        ends = [".".join(parts[-length:]) for length in range(1, len(parts) + 1)]
        others = [f".{other}" for other in paths if other != path]
        names[path] = next((end for end in ends if not any(o.endswith(f".{end}") for o in others)), path)
    return names


def _shown(value: Any) -> str:
    """A value in a label or message: as short as it can be written."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
