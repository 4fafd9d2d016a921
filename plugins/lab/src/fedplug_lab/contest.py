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
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from fedplug.api.component import Options
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.source import in_order
from fedplug_runs import shelf
from fedplug_runs.shelf import located
from pydantic import AfterValidator, BeforeValidator, Field

from fedplug_lab.grid import (
    SEED,
    Case,
    Cases,
    CaseText,
    Choice,
    Combination,
    Try,
    Values,
    alike,
    cases_of,
    choices_of,
    distinct,
    loaded,
    seed_choices,
)


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
