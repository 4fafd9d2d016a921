"""The space of a search: ranges and lists of values for paths of a recipe, read and checked before anything runs.

    negotiate_mask.ratio=0.05..0.5        a range; whole numbers where the option takes whole numbers
    train.lr=1e-3..1e-1:log               powers of ten are equally likely
    rounds=10..40:step=10                 10, 20, 30, 40
    rounds=[10, 20]                       one of these; values of any kind, lists of components too
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_lab.api import short_names
from fedplug_runs import yaml_source
from fedplug_runs.overlay import load_recipe

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Param = float | int | str
"""What Optuna keeps of a value: itself in a range, its text in a list."""
Params = Mapping[str, Param]

_NUMBER = r"[-+]?(?:\d+\.\d+|\d+|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*((?::[^:]*)*)")
_END = "...\n"  # what YAML writes behind a scalar
_MANY = 50  # combinations that are tried before a value is refused
_DIGITS = 4  # of a number in a range: more would say nothing, and recipes are read


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    path: str
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
            return [self.value(self.low)] if self.low == self.high else None
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        return [self.value(self.low + number * step) for number in range(count)]

    def at(self, share: float) -> Param:
        """What lies at a share of the range, 0 to 1."""
        if listed := self.listed():
            return listed[int(share * len(listed))]
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        found = low + share * (high - low)
        return self.kept(math.exp(found) if self.log else found)

    def value(self, param: Param) -> Any:
        """What the recipe gets: a few digits, and never outside."""
        number = float(param)
        if self.whole:
            return round(number)
        return min(max(float(f"{number:.{_DIGITS}g}"), self.low), self.high)

    def kept(self, param: Param) -> Param:
        """What Optuna is to keep: what the recipe gets."""
        return self.value(param)  # type: ignore[no-any-return]

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

    path: str
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

    def kept(self, param: Param) -> Param:
        """What Optuna is to keep: the text."""
        return param

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
    return [f"{path}={yaml_source.dump(value).removesuffix(_END).strip()}" for path, value in values.items()]


def short(value: Any) -> str:
    """A value in a label: as short as it can be written."""
    if isinstance(value, float):
        return f"{value:g}"
    found = value if isinstance(value, str) else json.dumps(value)
    return found if len(found) <= 40 else f"{found[:37]}..."


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
    texts = [json.dumps(value) for value in given]
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        raise ValueError(f"{twice} is given twice; remove one of them")
    return Choices(path, tuple(given))


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
    return Range(path, low, high, whole, log, step)


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
