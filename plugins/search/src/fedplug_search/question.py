"""The question of a search: its space, constraints and objectives, from the command line and perhaps a file.

    over:                                  # paths of the recipe; ranges as text, or lists of values
      negotiate_mask.ratio: 0.05..0.5      # a range; whole numbers where the option takes whole numbers
      train.lr: 1e-3..1e-1:log             # powers of ten are equally likely
      train.epochs: 10..40:step=10         # 10, 20, 30, 40
      rounds: [10, 20]                     # one of these; values of any kind, lists of components too
    min: {accuracy: 0.9}
    max: {epsilon: 8, bytes: 100MB}
    objectives: [accuracy, bytes]          # default: accuracy and what the constraints name; figure_RMSE=min, =max
    private: geometric                     # a private choice: how the number of trials is drawn

All mistakes are reported at once, before anything runs.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedplug.api.component import Options
from fedplug.api.data import ACCURACY, Better, Figure
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import instantiate
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import Source, closest
from fedplug_lab.api import assignment, distinct, seed_problems, short_names, shown
from fedplug_runs import shelf, yaml_source
from fedplug_runs.by_class import AUC, BALANCED, is_by_class
from fedplug_runs.overlay import load_recipe
from pydantic import Field

from fedplug_search.laws import Law
from fedplug_search.limits import name_of
from fedplug_search.measures import DIRECTIONS, FIGURE, NAMES, Constraint, better_of, is_measure, measure

if TYPE_CHECKING:
    from fedplug.api.roles import ModelSource, Task
    from optuna.distributions import BaseDistribution


Param = float | int | str
"""What Optuna keeps of a value: itself in a range, its text in a list."""
Params = Mapping[str, Param]

_NUMBER = r"[-+]?(?:\d+\.\d+|\d+|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*((?::[^:]*)*)")
_MANY = 50  # combinations that are tried before a value is refused
_MOST_PRICED = 1_000  # settings of a private choice: each may be drawn, so each is priced before the first trial
_DIGITS = 4  # of a number in a range: more would say nothing, and recipes are read


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    whole: bool = False
    log: bool = False
    step: float | None = None

    def distribution(self) -> BaseDistribution:
        """For Optuna."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def listed(self) -> list[Param] | None:
        """All of them, where they can be counted."""
        step = self.step or (1.0 if self.whole else None)
        if step is None or self.log:
            return None
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        return [self.value(self.low + number * step) for number in range(count)]

    def at(self, share: float) -> Param:
        """What lies at a share of the range, 0 to 1."""
        if listed := self.listed():
            return listed[int(share * len(listed))]
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        found = low + share * (high - low)
        return self.value(math.exp(found) if self.log else found)  # type: ignore[no-any-return]

    def value(self, param: Param) -> Any:
        """What the recipe gets: a few digits, and never outside."""
        number = float(param)
        if self.whole:
            return round(number)
        return min(max(float(f"{number:.{_DIGITS}g}"), self.low), self.high)

    def shown(self, value: Any) -> str:
        """A value in a label."""
        return short(value)

    def probes(self) -> list[Any]:
        """The ends."""
        return list(dict.fromkeys([self.value(self.low), self.value(self.high)]))

    def __str__(self) -> str:
        number = "{:.0f}" if self.whole else "{:g}"
        more = ":log" if self.log else f":step={self.step:g}" if self.step else ""
        return f"{number.format(self.low)}..{number.format(self.high)}{more}"


@dataclasses.dataclass(frozen=True)
class Choices:
    """One of several values of any kind."""

    values: tuple[Any, ...]

    def distribution(self) -> BaseDistribution:
        """For Optuna, which is given their texts."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(tuple(self._by_text))

    @property
    def _by_text(self) -> dict[str, Any]:
        return {json.dumps(value): value for value in self.values}

    def listed(self) -> list[Param] | None:
        """The texts of all."""
        return list(self._by_text)

    def at(self, share: float) -> Param:
        """What lies at a share of the list, 0 to 1."""
        return list(self._by_text)[int(share * len(self.values))]

    def value(self, param: Param) -> Any:
        """What the recipe gets."""
        return self._by_text[str(param)]

    def shown(self, value: Any) -> str:
        """A value in a label; of a long one its place, since others may begin alike."""
        text = short(value)
        return f"choice{self.values.index(value) + 1}" if text.endswith("...") else text

    def probes(self) -> list[Any]:
        """All of them."""
        return list(self.values)

    def __str__(self) -> str:
        texts = [self.shown(value) for value in self.values]
        whole = [f"{text}: {json.dumps(value)}" if text != short(value) else text
                 for text, value in zip(texts, self.values, strict=True)]  # fmt: skip
        return f"[{', '.join(whole)}]"


Dimension = Range | Choices


@dataclasses.dataclass(frozen=True)
class Space:
    """The dimensions of a search, by path, in the order in which they were written."""

    dimensions: Mapping[str, Dimension]

    def size(self) -> int | None:
        """How many combinations there are; None where they cannot be counted."""
        listed = [dimension.listed() for dimension in self.dimensions.values()]
        return math.prod(len(values) for values in listed if values) if all(listed) else None

    def combinations(self) -> Iterator[Params]:
        """All of them, the last dimension changing fastest; only where they can be counted."""
        listed = [dimension.listed() or [] for dimension in self.dimensions.values()]
        for values in itertools.product(*listed):
            yield dict(zip(self.dimensions, values, strict=True))

    def distributions(self) -> dict[str, BaseDistribution]:
        """For Optuna."""
        return {path: dimension.distribution() for path, dimension in self.dimensions.items()}

    def key(self, params: Params) -> str:
        """The same for the same values."""
        return json.dumps(self.values(params), sort_keys=True)

    def values(self, params: Params) -> dict[str, Any]:
        """What the recipe gets at each path."""
        return {path: dimension.value(params[path]) for path, dimension in self.dimensions.items()}

    def label(self, values: Mapping[str, Any]) -> str:
        """`ratio=0.3 rounds=10`."""
        names = short_names(list(self.dimensions))
        return " ".join(f"{names[path]}={text}" for path, text in self.shown(values).items())

    def shown(self, values: Mapping[str, Any]) -> dict[str, str]:
        """The values as short texts, by path."""
        return {path: self.dimensions[path].shown(value) for path, value in values.items()}

    def plain(self) -> dict[str, Any]:
        """As it was written, for the record."""
        return {path: list(found.values) if isinstance(found, Choices) else str(found)
                for path, found in self.dimensions.items()}  # fmt: skip


def assignments(values: Mapping[str, Any]) -> list[str]:
    """As `--set` takes them."""
    return [assignment(path, value) for path, value in values.items()]


def short(value: Any) -> str:
    """A value in a label: as short as it can be written."""
    return f"{value:g}" if isinstance(value, float) else shown(value)


def read_dimension(path: str, given: Any, recipe: Recipe | None) -> Dimension:
    """One dimension, from its text or from a list.

    Args:
        path: into the recipe.
        given: `0.05..0.5`, `1e-3..1e-1:log`, a list, or the text of one.
        recipe: as it is without the search, which says whether the option takes whole numbers.

    Raises:
        ValueError: says what is wrong, and what to write.
    """
    if isinstance(given, str):
        if found := _RANGE.fullmatch(given):
            return _range(path, found, recipe)
        source = yaml_source.read_text(given, path, in_file=False)
        if ".." in given and not isinstance(source.data, list):
            raise ValueError(f"{given} is not a range; write for instance 0.05..0.5, 1e-3..1e-1:log or 10..40:step=10")
        if source.problems:
            raise ValueError(source.problems[0].message)
        given = source.data
    if not isinstance(given, list):
        raise ValueError(f"{short(given)} is one value; write a range such as 0.05..0.5, a list such as [10, 20], "
                         f"or --set {path}={short(given)}")  # fmt: skip
    if len(given) < 2:
        raise ValueError("there is nothing to choose; give two values or more, or a range such as 0.05..0.5")
    return Choices(tuple(distinct(given)))


def _range(path: str, found: re.Match[str], recipe: Recipe | None) -> Range:
    low, high = float(found[1]), float(found[2])
    if low > high:
        raise ValueError(f"{found[1]} is above {found[2]}; write {found[2]}..{found[1]}")
    if low == high:
        raise ValueError(f"there is nothing to choose from {found[1]} to {found[2]}; write --set {path}={found[1]}")
    log, step = False, None
    for word in filter(None, found[3].split(":")):
        name, _, text = word.strip().partition("=")
        if name == "log" and not text:
            log = True
        elif name == "step" and re.fullmatch(_NUMBER, text) and float(text) > 0:
            step = float(text)
        else:
            raise ValueError(f"{word.strip()!r} is neither log nor step=NUMBER, with a number > 0")
    if log and (step is not None or low <= 0):
        raise ValueError("a range on a log scale begins above 0 and has no step")
    integers = all(re.fullmatch(r"[-+]?\d+", text) for text in (found[1], found[2]))
    there = _at(recipe.to_plain(), path) if recipe else None
    whole = isinstance(there, int) if isinstance(there, int | float) and not isinstance(there, bool) else integers
    if whole and not (integers and (step is None or step == int(step))):
        raise ValueError(f"{path} takes whole numbers; write for instance {math.ceil(low)}..{math.ceil(high)}")
    if step is not None:
        high = low + math.floor((high - low) / step + 1e-9) * step  # Optuna warns of a last step that ends elsewhere
        if high == low:
            raise ValueError(f"the step {step:g} is longer than the range; there is nothing to choose")
    return Range(low, high, whole, log, step)


def _at(data: Any, path: str) -> Any:
    """The value at a path; None where there is none."""
    for key in path.split("."):
        try:
            data = data[int(key)] if isinstance(data, list) else data[key]
        except (LookupError, TypeError, ValueError):
            return None
    return data


def misfits(recipe: Path, space: Space, sets: Sequence[str], catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Paths, and what is wrong with values of the space by themselves: unknown options, wrong types, values out of
    bounds.

    A value that some combination accepts is left to the trials, which note the combinations that are refused.
    """
    for path, dimension in space.dimensions.items():
        for value in dimension.probes():
            others = [
                [(other, probe) for probe in [None, *space.dimensions[other].probes()]]
                for other in space.dimensions
                if other != path
            ]
            complaints: list[str] = []
            for combination in itertools.islice(itertools.product(*others), _MANY):
                changed = {other: probe for other, probe in combination if probe is not None}
                complaints = _complaints(recipe, [*sets, *assignments({**changed, path: value})], path, catalog)
                if not complaints or any(complaint.startswith("unknown ") for complaint in complaints):
                    break
            yield from ((path, complaint) for complaint in complaints)


def _complaints(recipe: Path, sets: Sequence[str], path: str, catalog: Catalog) -> list[str]:
    """What a recipe says against the value that was set at a path, and nothing else."""
    try:
        load_recipe(recipe, sets, catalog)
    except RecipeError as error:
        prefix = f"--set {path}: "
        return [problem.removeprefix(prefix) for problem in error.problems if problem.startswith(prefix)]
    return []


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
        jobs: how many at a time; None: as many as this machine has cores and memory for.
        search_seed: of what is chosen.
        prune: a key of `PRUNE`.
        timeout: seconds after which no trial begins; None: no limit.
        dry_run: only checks, and says what would be searched.
        private: the law of the number of trials, of which `trials` is then the mean; empty: there are `trials`.
    """

    over: Sequence[str] = ()
    least: Sequence[str] = ()
    most: Sequence[str] = ()
    objectives: Sequence[str] = ()
    sets: Sequence[str] = ()
    seeds: Sequence[int] = ()
    file: Path | None = None
    trials: int = 20
    jobs: int | None = 1
    search_seed: int = 0
    prune: str = "all"
    timeout: float | None = None
    dry_run: bool = False
    private: str = ""


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
        objectives: names of measures and which way each is better; by the first the best is chosen.
        seeds: every trial is run with each.
        private: the law by which the number of trials is drawn; None: it is given.
    """

    recipe: Path
    base: Recipe
    sets: tuple[str, ...]
    space: Space
    constraints: tuple[Constraint, ...]
    objectives: Mapping[str, Better]
    seeds: tuple[int, ...]
    private: Law | None = None

    @property
    def shown(self) -> list[str]:
        """The measures of tables: objectives, and what the constraints name."""
        return list(dict.fromkeys([*self.objectives, *(constraint.name for constraint in self.constraints)]))

    def changes(self, values: Mapping[str, Any], seed: int) -> list[str]:
        """What makes the recipe of a trial of the one that is varied, as `--set` takes it."""
        return [*self.sets, *assignments(values), f"seed={seed}"]

    def definition(self) -> dict[str, Any]:
        """What makes it this search and no other, as plain data."""
        return {
            "recipe": self.base.digest,
            "--over": self.space.plain(),
            "constraints": [str(constraint) for constraint in self.constraints],
            "objectives": self.weighed(),
            "seeds": list(self.seeds),
            **({"--private": str(self.private)} if self.private else {}),
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
    law = reader.law(space, constraints, chosen, base)
    reader.problems += seed_problems(asked.seeds, asked.sets)
    if base is not None:
        wrong = misfits(recipe, space, asked.sets, catalog)
        reader.problems += [f"{reader.over[path][0]}: {complaint}" for path, complaint in wrong]
    if reader.problems or base is None:
        raise RecipeError(list(dict.fromkeys(reader.problems)))
    seeds = tuple(asked.seeds) or (base.seed,)
    return Question(recipe, base, tuple(asked.sets), space, constraints, chosen, seeds, law)


class _Text(Options):
    """The file, as it is written."""

    over: dict[str, Any] = Field({}, description="ranges or lists by path: {rounds: 10..20}")
    min: dict[str, Any] = Field({}, description="bounds by measure: {accuracy: 0.9}")
    max: dict[str, Any] = Field({}, description="bounds by measure: {epsilon: 8}")
    objectives: list[str] = Field([], description="measures, such as [accuracy, bytes]")
    private: str = Field("", description="the law of the number of trials: geometric, logarithmic, poisson, or an eta")


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
            if self.asked.private or self.text.private:
                return leads
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
        return chosen

    def law(
        self, space: Space, constraints: Sequence[Constraint], chosen: Mapping[str, Better], base: Recipe | None
    ) -> Law | None:
        """By which the number of trials is drawn, where the choice is to be private, which allows no other look at
        trials than by the figure that leads.
        """
        asked, text = self.asked, self.asked.private or self.text.private
        if not text:
            return None
        place, leads = "--private", name_of(leading_of(base))
        try:
            law = Law.read(text, asked.trials)
        except ValueError as error:
            self.problems.append(f"{place}: {error}")
            return None
        size = space.size()
        others = [one.name for one in constraints if one.name != leads]
        for wrong, problem in {
            "a range that can be counted, such as :step=, or a list": space.dimensions and size is None,
            f"at most {_MOST_PRICED} combinations, each of which is priced": (size or 0) > _MOST_PRICED,
            f"one objective, {leads}": asked.objectives and [*chosen] != [leads],
            f"no constraint but on {leads}: noise covers that alone": bool(others),
            "one seed": len(asked.seeds) > 1,
            "no --timeout, which would end it by how long trials take": asked.timeout is not None,
            "no --search-seed: what is drawn must be foreseen by nobody": asked.search_seed != 0,
        }.items():
            if problem:
                self.problems.append(f"{place}: a private choice takes {wrong}")
        return law

    def _known(self, name: str, place: str) -> bool:
        if is_measure(name):
            return True
        self.problems.append(f"{place}: there is no measure {name!r}; {closest(name, NAMES)}")
        return False


def _figures_of(base: Recipe | None) -> tuple[Figure, ...]:
    """What the recipe is judged by, as its task and its model declare it."""
    if base is None:
        return ()
    task = None if base.task is None else cast("Task", instantiate(base.task))
    said = [*(task.judged_by if task else ()), *cast("ModelSource", instantiate(base.model)).judged_by]
    if is_by_class(task):
        said += [figure for figure in (BALANCED, AUC) if figure.name not in {each.name for each in said}]
    return tuple(said)


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
