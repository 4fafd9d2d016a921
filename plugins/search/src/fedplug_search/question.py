"""The question of a search: its space, constraints and objectives, from the command line and perhaps a file.

    over:                                  # paths of the recipe; ranges as text, or lists of values
      negotiate_mask.ratio: 0.05..0.5
      rounds: [10, 20]
    min: {accuracy: 0.9}
    max: {epsilon: 8, bytes: 100MB}
    objectives: [accuracy, bytes]          # default: accuracy and what the constraints name; figure_RMSE=min, =max

All mistakes are reported at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.component import Options
from fedplug.api.data import ACCURACY, Better, Figure
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import instantiate
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import Source, closest
from fedplug_lab.api import seed_problems
from fedplug_runs import shelf
from fedplug_runs.overlay import load_recipe
from pydantic import Field

from fedplug_search.limits import name_of
from fedplug_search.measures import DIRECTIONS, FIGURE, NAMES, Constraint, better_of, is_measure, measure
from fedplug_search.space import Dimension, Space, misfits, read_dimension

FALLBACK: Mapping[str, Better] = {"bytes": "lower"}
"""Objectives where constraints and flags name fewer than two: every protocol has them."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """The command line apart from the recipe and the settings.

    Attributes:
        over: `path=range`.
        least, most: `measure=bound`.
        objectives: names of measures, those of the constraints and accuracy if empty. Each is better in the way that is
            declared of it, unless `=min` or `=max` behind it says otherwise.
        sets: `path=value` for every trial.
        seeds: every trial is run with each; the recipe's own if empty.
        file: a YAML file that says more of the same.
        trials: how many in all.
        jobs: how many at a time.
        search_seed: of what is chosen.
        prune: a key of `PRUNE`.
        timeout: seconds after which no trial begins; None: no limit.
        dry_run: only checks, and says what would be searched.
    """

    over: Sequence[str] = ()
    least: Sequence[str] = ()
    most: Sequence[str] = ()
    objectives: Sequence[str] = ()
    sets: Sequence[str] = ()
    seeds: Sequence[int] = ()
    file: Path | None = None
    trials: int = 20
    jobs: int = 1
    search_seed: int = 0
    prune: str = "all"
    timeout: float | None = None
    dry_run: bool = False


PRUNE = {
    "all": "a trial ends when it is certain to miss a constraint, or when what leads, such as accuracy, is hopeless",
    "certain": "a trial ends when it is certain to miss a constraint",
    "none": "every trial runs to its end",
}
"""When trials end early."""


@dataclasses.dataclass(frozen=True)
class Question:
    """The question of a search.

    Attributes:
        recipe: the file that is varied.
        base: the recipe as it is without the search.
        sets: `path=value` for every trial.
        space: what may be chosen.
        constraints: what a protocol has to meet.
        objectives: names of measures and which way each is better, two or more; by the first the best is chosen.
        seeds: every trial is run with each.
    """

    recipe: Path
    base: Recipe
    sets: tuple[str, ...]
    space: Space
    constraints: tuple[Constraint, ...]
    objectives: Mapping[str, Better]
    seeds: tuple[int, ...]

    @property
    def shown(self) -> list[str]:
        """The measures of tables: objectives, and what the constraints name."""
        return list(dict.fromkeys([*self.objectives, *(constraint.name for constraint in self.constraints)]))

    def definition(self) -> dict[str, Any]:
        """What makes it this search and no other, as plain data."""
        return {
            "recipe": self.base.digest,
            "--over": self.space.plain(),
            "constraints": [str(constraint) for constraint in self.constraints],
            "objectives": self.weighed(),
            "seeds": list(self.seeds),
        }

    def weighed(self) -> list[str]:
        """The objectives as `--objective` takes them: `accuracy=max`, `bytes=min`."""
        words = {better: word for word, better in DIRECTIONS.items()}
        return [f"{name}={words[better]}" for name, better in self.objectives.items()]


def read_question(recipe: Path, asked: Asked, catalog: Catalog) -> Question:
    """Reads and checks all that a search is asked.

    Raises:
        RecipeError: holds every mistake, each with its place.
    """
    reader = _Reader(asked)
    try:
        base: Recipe | None = load_recipe(recipe, asked.sets, catalog)
    except RecipeError as error:
        base = None
        reader.problems += error.problems
    space = Space(reader.dimensions(base))
    constraints = reader.constraints()
    chosen = reader.objectives(constraints, base)
    reader.problems += seed_problems(asked.seeds, asked.sets)
    if base is not None:
        wrong = misfits(recipe, space, asked.sets, catalog)
        reader.problems += [f"{reader.over[path][0]}: {complaint}" for path, complaint in wrong]
    if reader.problems or base is None:
        raise RecipeError(list(dict.fromkeys(reader.problems)))
    return Question(recipe, base, tuple(asked.sets), space, constraints, chosen, tuple(asked.seeds) or (base.seed,))


class _Text(Options):
    """The file, as it is written."""

    over: dict[str, Any] = Field({}, description="ranges or lists by path: {rounds: 10..20}")
    min: dict[str, Any] = Field({}, description="bounds by measure: {accuracy: 0.9}")
    max: dict[str, Any] = Field({}, description="bounds by measure: {epsilon: 8}")
    objectives: list[str] = Field([], description="measures, such as [accuracy, bytes]")


class _Reader:
    """Brings flags and file together.

    Attributes:
        problems: what is wrong.
        over: by path, where a range was written, and the range.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        text, self.source = shelf.read_as(_Text, asked.file, "search") if asked.file else (None, Source("", {}))
        self.text: _Text = text or _Text()
        self.problems = list(map(str, self.source.problems))
        self.over = self.pairs("over", "--over", asked.over, "rounds: 10..20")

    def pairs(self, key: str, flag: str, given: Sequence[str], example: str) -> dict[str, tuple[str, Any]]:
        """Name -> (place, value), from a section of the file and from flags `NAME=VALUE`."""
        found: dict[str, tuple[str, Any]] = {}
        section: dict[str, Any] = getattr(self.text, key)
        for name, value in section.items():
            found[name] = (str(self.source.where((key, name))), value)
        for text in given:
            name, equals, value = text.partition("=")
            name = name.strip()
            if not equals or not name or not value.strip():
                self.problems.append(f"{flag} {text}: write {flag} {example.replace(': ', '=')}")
            elif name in found:
                first, here = found[name][0], f"{flag} {name}"
                also = "" if first == here else f", also at {first}"
                self.problems.append(f"{here}: it is given twice{also}; keep one of them")
            else:
                found[name] = (f"{flag} {name}", value)
        return found

    def dimensions(self, base: Recipe | None) -> dict[str, Dimension]:
        """What may be chosen, by path."""
        found: dict[str, Dimension] = {}
        fixed = [assignment.partition("=")[0] for assignment in self.asked.sets]
        for path, (place, value) in self.over.items():
            if not all(path.split(".")):
                remedy = "write for instance data.partition.alpha"
                self.problems.append(f"{place}: {path!r} is not a path into a recipe; {remedy}")
            elif path == "seed":
                self.problems.append(f"{place}: a seed is not searched, since luck is not a property of a protocol; "
                                     "--seeds 1 2 3 runs every trial with each")  # fmt: skip
            elif path in fixed:
                self.problems.append(f"{place}: {path} is given by --set as well; keep one of them")
            else:
                try:
                    found[path] = read_dimension(path, value, base)
                except ValueError as error:
                    self.problems.append(f"{place}: {error}")
        for path in found:
            if outer := next((other for other in found if path.startswith(f"{other}.")), None):
                problem = f"{path} lies inside {outer}, which is searched too; keep one of them"
                self.problems.append(f"{self.over[path][0]}: {problem}")
        if not self.over and not self.problems:
            self.problems.append("there is nothing to choose; write for instance --over rounds=10..40")
        return found

    def constraints(self) -> tuple[Constraint, ...]:
        """What a protocol has to meet."""
        found: dict[tuple[str, bool], Constraint] = {}
        for key, least, given in (("min", True, self.asked.least), ("max", False, self.asked.most)):
            for name, (place, value) in self.pairs(key, f"--{key}", given, "accuracy: 0.9").items():
                if not self._known(name, place):
                    continue
                try:
                    found[name, least] = Constraint(name, least, measure(name).read(str(value)))
                except ValueError as error:
                    self.problems.append(f"{place}: {error}")
        for (name, least), one in found.items():
            other = found.get((name, False))
            if least and other and one.bound > other.bound:
                shown = measure(name).show
                self.problems.append(f"--min {name}: {shown(one.bound)} is above --max {name}, {shown(other.bound)}")
        return tuple(found.values())

    def objectives(self, constraints: Sequence[Constraint], base: Recipe | None) -> dict[str, Better]:
        """By what protocols are compared, and which way each is better."""
        place, given = "--objective", list(self.asked.objectives)
        if not given and self.text.objectives:
            place, given = str(self.source.where(("objectives",))), self.text.objectives
        declared = _figures_of(base)
        if not given:
            wishes = {one.name: wish for one in constraints if (wish := _wish(one.name, constraints, declared))}
            leads = {name_of(leading_of(base)): leading_of(base).better}
            named: dict[str, Better] = {**leads, **wishes}
            return named if len(named) > 1 else {**leads, **FALLBACK}
        chosen: dict[str, Better] = {}
        for text in given:
            name, _, word = (part.strip() for part in text.partition("="))
            if not self._known(name, place):
                continue
            better = better_of(name, declared) or _side(name, constraints)
            if word or "=" in text:
                if word not in DIRECTIONS:
                    self.problems.append(f"{place} {text}: write {name}=min where less is better, or {name}=max")
                    continue
                better = DIRECTIONS[word]
            if better is not None:
                chosen[name] = better
            elif base is not None:
                judge = (base.task or base.model).use
                self.problems.append(
                    f"{place} {name}: {judge} does not declare whether more or less of it is better; write "
                    f"{name}=min or {name}=max{_declared(declared)}"
                )
        if len(chosen) == len(given) == 1:
            other = next(name for name in (name_of(leading_of(base)), *FALLBACK) if name not in chosen)
            remedy = f"add another, such as --objective {other}"
            self.problems.append(f"{place}: a search weighs two things or more against each other; {remedy}")
        return chosen

    def _known(self, name: str, place: str) -> bool:
        if is_measure(name):
            return True
        self.problems.append(f"{place}: there is no measure {name!r}; {closest(name, NAMES)}")
        return False


def _figures_of(base: Recipe | None) -> tuple[Figure, ...]:
    """What the recipe is judged by, as its task and its model declare it."""
    uses = [use for use in (base.task, base.model) if use is not None] if base is not None else []
    return tuple(figure for use in uses for figure in instantiate(use).judged_by)


def leading_of(base: Recipe | None) -> Figure:
    """The figure that leads: accuracy, where the recipe names no task."""
    return _figures_of(base)[0] if base is not None and base.task is not None else ACCURACY


def _side(name: str, constraints: Sequence[Constraint]) -> Better | None:
    """Which way a measure that is bounded on one side is better, by that bound; None without one, or with two."""
    sides: list[Better] = ["higher" if one.least else "lower" for one in constraints if one.name == name]
    return sides[0] if len(sides) == 1 else None


def _wish(name: str, constraints: Sequence[Constraint], declared: Sequence[Figure]) -> Better | None:
    """Which way a bounded measure is weighed; None for a figure that is bounded on its other side alone."""
    side = _side(name, constraints)
    better = better_of(name, declared) or side
    return better if side in (None, better) or not name.startswith(FIGURE) else None


def _declared(figures: Sequence[Figure]) -> str:
    names = ", ".join(f"{FIGURE}{figure.name} ({figure.better} is better)" for figure in figures)
    return f"; declared are {names}" if names else ""
