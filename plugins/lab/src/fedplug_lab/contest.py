"""The subject of a comparison: recipes named at the command line, or a comparison file, a YAML file with a question.

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
set. Everything is checked before anything runs, and all mistakes are reported at once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.source import KeyPath, Source, closest
from fedplug_runs import shelf
from fedplug_runs.shelf import located

from fedplug_lab.grid import SEED, Case, Choice, Combination, Grid, combinations

KEYS = ("question", "baseline", "seeds", "set", "recipes", "cases")
_ENTRY = ("recipe", "name", "set")
_CASE = ("name", "set")


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

    def by_case(self) -> list[Contest]:
        """A separate comparison for each case, with a title `comparison/case`; itself where there are no cases."""
        return [
            dataclasses.replace(
                self, title=f"{self.title}/{case.name}", cases=(),
                entries=tuple(dataclasses.replace(e, choices=(*e.choices, *case.choices)) for e in self.entries),
            )
            for case in self.cases
        ] or [self]  # fmt: skip


def is_comparison(path: Path) -> bool:
    """Whether a file is a comparison, and no recipe."""
    data = shelf.read(path).data
    return isinstance(data, Mapping) and bool({"recipes", "question"} & data.keys())


def of_recipes(recipes: Sequence[Path]) -> Contest:
    """The comparison of recipes as they are."""
    title = "-".join(dict.fromkeys(path.stem for path in recipes))[:60]
    return Contest(title, "", "", (), tuple(Entry(path) for path in recipes))


def read_contest(path: Path) -> Contest:
    """Reads a comparison file.

    Raises:
        RecipeError: holds every mistake, as `file:line:column: message`.
    """
    source = shelf.read(path)
    source.problems = [p._replace(message=p.message.replace("the recipe", "the comparison")) for p in source.problems]
    contest = _Reader(source, path).read()
    if source.problems:
        raise RecipeError([str(problem) for problem in source.problems])
    return contest


def runs_of(contest: Contest, sets: Sequence[str], catalog: Catalog) -> list[list[Combination]]:
    """The runs of a comparison, for each case: each recipe with each seed. `case` of a run is the name of its recipe.

    Raises:
        RecipeError: holds every mistake of every recipe, each once; or two go by one name, or are the same.
    """
    found: list[list[Combination]] = []
    problems: dict[str, None] = {}
    seen: dict[str, str] = {}
    for one in contest.by_case():
        try:
            found.append(_runs_of_case(one, sets, catalog))
        except RecipeError as error:
            problems |= dict.fromkeys(error.problems)
            continue
        for run in found[-1]:
            if other := seen.get(run.recipe.digest):
                problems[f"{run.label} and {other} are the same recipe; remove one of them"] = None
        seen |= {run.recipe.digest: run.label for run in found[-1]}
    if problems:
        raise RecipeError([*problems])
    return found


def _runs_of_case(contest: Contest, sets: Sequence[str], catalog: Catalog) -> list[Combination]:
    made: list[Combination] = []
    complaints: dict[str, list[str]] = {}
    _, _, before = contest.title.partition("/")
    seeds = {SEED: tuple(Choice(SEED, seed, "--seeds", "--seeds") for seed in contest.seeds)} if contest.seeds else {}
    names: dict[str, Path] = {}
    for entry in contest.entries:
        shown = entry.name or entry.recipe.stem
        try:
            found = combinations(entry.recipe, Grid((Case("", entry.choices),), seeds), (), catalog, over=sets)
        except RecipeError as error:
            for problem in error.problems:
                complaints.setdefault(problem, []).append(shown)
            continue
        name = entry.name or found[0].recipe.name
        if name in names:
            remedy = "give one of them another name, in the recipe or in a comparison file"
            complaints[f"{names[name]} and {entry.recipe} both go by the name {name!r}; {remedy}"] = []
        names.setdefault(name, entry.recipe)
        made += [
            dataclasses.replace(one, case=name, label=f"{before}{': ' if before else ''}{name} seed={one.recipe.seed}")
            for one in found
        ]  # fmt: skip
    first: dict[str, str] = {}
    for one in made:
        if (other := first.setdefault(one.recipe.digest, one.case)) != one.case:
            complaints[f"{one.case} and {other} are the same recipe; remove one of them"] = []
    if complaints:
        raise RecipeError([_with_names(problem, shown, len(contest.entries)) for problem, shown in complaints.items()])
    return made


def _with_names(problem: str, names: Sequence[str], total: int) -> str:
    """What is wrong with --set names no file, and may be wrong for some recipes alone."""
    return f"{problem} (with {', '.join(names)})" if problem.startswith("--set") and len(names) < total else problem


class _Reader:
    """One pass over the data of a comparison file; complaints go to the source."""

    def __init__(self, source: Source, path: Path) -> None:
        self.source, self.path = source, path

    def read(self) -> Contest:
        data = self.source.data
        if not isinstance(data, Mapping):
            if not self.source.problems:
                self.source.complain((), "a comparison is a mapping with a list of recipes")
            return Contest(self.path.stem, "", "", (), ())
        for key in data:
            if key not in KEYS:
                self.source.complain((key,), f"unknown key {key!r}; {closest(str(key), KEYS)}", key=True)
        shared = self.choices(data.get("set"), ("set",))
        entries = self.entries(data.get("recipes"), shared)
        return Contest(
            self.path.stem, self.text(data, "question"), self.text(data, "baseline"), self.seeds(data), entries,
            self.cases(data.get("cases", [])),
        )  # fmt: skip

    def text(self, data: Mapping[str, Any], key: str) -> str:
        found = data.get(key, "")
        if not isinstance(found, str):
            self.source.complain((key,), f"{key} must be text, not {found!r}")
            return ""
        return found

    def seeds(self, data: Mapping[str, Any]) -> tuple[int, ...]:
        found = data.get("seeds", [])
        if not isinstance(found, list) or any(type(seed) is not int or seed < 0 for seed in found):
            self.source.complain(("seeds",), f"seeds={found!r} must be a list of whole numbers >= 0, such as [1, 2]")
            return ()
        if len({*found}) < len(found):
            self.source.complain(("seeds",), "a seed is given twice; it would run twice alike")
        return tuple(found)

    def entries(self, data: Any, shared: tuple[Choice, ...]) -> tuple[Entry, ...]:
        if not isinstance(data, list) or len(data) < 2:
            self.source.complain(("recipes",), "recipes must be a list of two or more, such as [fedavg.yaml, fas.yaml]")
            return ()
        return tuple(found for i, one in enumerate(data) if (found := self.entry(one, ("recipes", i), shared)))

    def entry(self, data: Any, at: KeyPath, shared: tuple[Choice, ...]) -> Entry | None:
        data = {"recipe": data} if isinstance(data, str) else data
        if not isinstance(data, Mapping) or not isinstance(data.get("recipe"), str):
            self.source.complain(at, "an entry is a path, or {recipe: path, name: text, set: {path: value}}")
            return None
        for key in data:
            if key not in _ENTRY:
                self.source.complain((*at, key), f"unknown key {key!r}; {closest(str(key), _ENTRY)}", key=True)
        name = data.get("name", "")
        if not isinstance(name, str):
            self.source.complain((*at, "name"), f"name must be text, not {name!r}")
            name = ""
        file = located(data["recipe"], self.path.parent)
        if not file.is_file():
            where = "paths are from the comparison's folder, and fedplug recipes lists names"
            self.source.complain((*at, "recipe"), f"there is no recipe {file}; {where}")
        return Entry(file, name, (*shared, *self.choices(data.get("set"), (*at, "set"))))

    def cases(self, data: Any) -> tuple[Case, ...]:
        if not isinstance(data, list):
            self.source.complain(("cases",), "cases must be a list, such as [{name: iid, set: {path: value}}]")
            return ()
        found: dict[str, Case] = {}
        for i, one in enumerate(data):
            at: KeyPath = ("cases", i)
            if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
                self.source.complain(at, "a case is {name: text, set: {path: value}}")
                continue
            for key in one:
                if key not in _CASE:
                    self.source.complain((*at, key), f"unknown key {key!r}; {closest(str(key), _CASE)}", key=True)
            name = one["name"]
            if not re.fullmatch(r"\w[\w.-]*", name):
                message = f"the case {name!r} names a folder too; it may have letters, digits, '_', '.' and '-'"
                self.source.complain((*at, "name"), message)
            elif name in found:
                self.source.complain((*at, "name"), f"the case {name!r} is there already; give it another name")
            found[name] = Case(name, self.choices(one.get("set"), (*at, "set")))
        return tuple(found.values())

    def choices(self, data: Any, at: KeyPath) -> tuple[Choice, ...]:
        if data is None:
            return ()
        if not isinstance(data, Mapping):
            self.source.complain(at, f"set must map paths to values, such as {{rounds: 5}}, not {data!r}")
            return ()
        if SEED in data:
            self.source.complain((*at, SEED), "the seeds of a comparison are the list `seeds`", key=True)
        where = self.source.where
        return tuple(
            Choice(path, value, str(where((*at, path))), str(where((*at, path), key=True)))
            for path, value in data.items()
        )
