"""What lies over a recipe file: the file it `extends`, and `--set path=value` of the command line."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import SECTION, Catalog, installed
from fedplug.recipe.parts import OF_DATA, SECTIONS, General, Use
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import Key, KeyPath, Marks, Position, Problem, Source, in_order

from fedplug_runs.shelf import located, origin_of, read
from fedplug_runs.yaml_source import read_text

Change = str | tuple[str, Any]
"""One value of a recipe: the text `a.b.0.c=value`, or the path `a.b.0.c` and the value."""


def extend(parent: Source, child: Source) -> Source:
    """The child's data over the parent's: mappings merge, everything else is replaced.

    A mapping whose `use` changes drops the parent's options, which belong to another component; the keys of `data` that
    belong to the recipe (`OF_DATA`) stay.
    """
    dropped = dict(parent.dropped)  # by what the parent says of what it extends itself
    data = _merge(parent.data, child.data, (), dropped)
    marks = {path: mark for path, mark in {**parent.marks, **child.marks}.items() if _has(data, path)}
    closed = parent.closed | child.closed
    return Source(child.origin, data, marks, parent.problems + child.problems, dropped, closed=closed)


def _merge(parent: Any, child: Any, path: KeyPath, dropped: dict[KeyPath, Mapping[str, Any]]) -> Any:
    if isinstance(parent, Mapping) and "use" in parent and isinstance(child, str):
        dropped[path] = parent
    if not isinstance(parent, Mapping) or not isinstance(child, Mapping):
        return child
    if "use" in child:
        parent = _under_another(parent, child["use"], path, dropped)
    merged = {
        key: _merge(value, child[key], (*path, key), dropped) if key in child else value
        for key, value in parent.items()
    }
    return merged | {key: value for key, value in child.items() if key not in parent}


def _under_another(
    before: Mapping[str, Any], use: Any, path: KeyPath, dropped: dict[KeyPath, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The part of a mapping that remains when its component becomes `use`; all of it where that is the same one."""
    if before.get("use", use) == use:
        return before
    dropped[path] = before
    return {key: value for key, value in before.items() if path == ("data",) and key in OF_DATA}


def dropped_options(source: Source, uses: Iterable[Use]) -> Iterator[str]:
    """A note on each component that another replaced, where both have an option that only the old one set.

    Somebody who names another trainer may expect it to keep the epochs and the batch size of the old one.

    Args:
        source: what `extend` and `override` gave.
        uses: the places of the resulting recipe.
    """
    for use in uses:
        before = source.dropped.get(use.path)
        if before is None:
            continue
        written, plain = _at(source.data, use.path), use.to_plain()
        written = written if isinstance(written, Mapping) else {}
        lost = [
            f"{key} is {plain[key]!r}, not {value!r}"
            for key, value in before.items()
            if key in type(use.options).model_fields and key not in written and plain.get(key) != value
        ]
        if lost:
            yield (
                f"{source.where(use.path)}: {use.use} does not take over the options of {before['use']}: "
                f"{', '.join(lost)}; set the ones that you need"
            )


def _has(data: Any, path: KeyPath) -> bool:
    try:
        _at(data, path)
    except (LookupError, TypeError):
        return False
    return True


def _at(data: Any, path: KeyPath) -> Any:
    for key in path:
        data = data[key]
    return data


def override(source: Source, assignments: Iterable[Change]) -> None:
    """Applies `--set a.b.0.c=value`, or a path and its value, in place, in order. Values in text are YAML; numbers in a
    path count list items from 0.

    `a.use=value` drops the options that the recipe gives the old component, as in `extend`. It keeps those that other
    assignments give.
    """
    given: set[KeyPath] = set()
    for assignment in assignments:
        if isinstance(assignment, str):
            dotted, equals, text = assignment.partition("=")
            origin = f"--set {dotted}"
            value = read_text(text, origin, in_file=False)
        else:
            origin, equals = assignment[0], "="
            dotted, value = origin, Source(origin, copy.deepcopy(assignment[1]))  # a later path may lead into the value
        source.problems.extend(value.problems)
        keys = tuple(dotted.split("."))
        if not equals or not all(keys):
            message: str | None = f"write path=value, not {assignment!r}; for instance --set rounds=5"
        elif keys[0] == "extends":
            message = "extends takes effect in a file only; write a recipe that says extends: and give that"
        else:
            message = None if value.problems else _assign(source, keys, value.data, origin, given)
        if message:
            source.problems.append(Problem(Position(origin), message))


def _assign(source: Source, keys: tuple[str, ...], value: Any, origin: str, given: set[KeyPath]) -> str | None:
    """Puts one value of `origin` in place and adds its path to `given`; returns the complaint if it cannot."""
    if not isinstance(source.data, dict):
        return None  # the file itself is unusable, which is reported already
    mark = Position(origin)
    here: Any = source.data
    outer: Any = None
    path: KeyPath = ()
    for depth, key in enumerate(keys):
        shown = ".".join(keys[:depth])
        step: Key = key
        if keys[depth:] == ("use",) and isinstance(here, str):  # `train: std.sgd` is short for a mapping
            outer[path[-1]] = here = {"use": here}
        if isinstance(here, list):
            if not key.isascii() or not key.isdigit() or len(key) > 9 or int(key) >= len(here):
                last = f"0 to {len(here) - 1}" if here else "none: it is empty"
                return f"{key!r} is not an item of the list {shown}; items are {last}"
            step = int(key)
        elif not isinstance(here, dict):
            kind = type(here).__name__  # and not the value, which may be from any file that the recipe extends
            return f"{shown} is a {kind}, not a mapping; set it as a whole, for instance --set '{shown}={{use: ...}}'"
        path = (*path, step)
        if depth == len(keys) - 1:
            if step == "use":
                _change_use(source, path[:-1], here, value, given)
            here[step] = value
        elif isinstance(here, dict) and here.get(key) is None:
            here[key] = {}
            source.marks[path] = Marks(mark, mark)
        outer, here = here, here[step]
    given.add(path)
    for old in [old for old in source.marks if old[: len(path)] == path]:
        del source.marks[old]
    source.marks[path] = Marks(mark, mark)
    return None


def _change_use(source: Source, path: KeyPath, here: dict[str, Any], use: Any, given: set[KeyPath]) -> None:
    """Drops from a mapping what belongs to its old component, unless an assignment gave it."""
    before = dict(here)
    kept = _under_another(before, use, path, source.dropped)
    kept = {key: value for key, value in before.items()
            if key in kept or any(each[: len(path) + 1] == (*path, key) for each in given)}  # fmt: skip
    here.clear()
    here.update(kept)
    source.marks = {at: mark for at, mark in source.marks.items() if at[: len(path)] != path or _has(source.data, at)}


def load_recipe(
    path: Path | str, sets: Sequence[Change] = (), catalog: Catalog | None = None
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
    return dataclasses.replace(finished(read_extended(file, sets), catalog), origin=origin_of(file))


def finished(source: Source, catalog: Catalog | None) -> Recipe:
    """The recipe, with notes on options that went with a component that another replaced."""
    recipe = Recipe.of(source, catalog)
    return dataclasses.replace(recipe, notes=(*dropped_options(source, recipe.uses), *recipe.notes))


def read_extended(path: Path, sets: Sequence[Change] = ()) -> Source:
    """A recipe file as it is over what it `extends`, which may extend another, and with changes; nothing of it runs.

    Raises:
        RecipeError: what it extends is no recipe, or cannot be read; without it nobody can say what is missing.
    """
    source = _over(read(path), (path.resolve(),))
    override(source, sets)
    return source


def _over(source: Source, files: tuple[Path, ...]) -> Source:
    """A source with what it extends below it; `files` are those that led here, itself the last."""
    if not isinstance(source.data, dict) or "extends" not in source.data:
        return source
    name = source.data["extends"]
    if not isinstance(name, str) or not name:
        source.complain(("extends",), f"extends must be the path or the name of a recipe, not {name!r}")
        raise RecipeError(in_order(source, source.problems))
    file = parent_of(source)
    if file.resolve() in files:
        circle = " extends ".join(each.name for each in (*files[files.index(file.resolve()) :], file))
        source.complain(("extends",), f"a recipe cannot extend itself: {circle}; leave one of these out")
        raise RecipeError(in_order(source, source.problems))
    parent = read(file)
    if not file.resolve().is_relative_to(files[0].parent) and not _is_recipe(parent.data):
        source.closed.add(parent.origin)
        parent.closed.add(parent.origin)
    if parent.data is None and len(parent.problems) == 1 and not parent.problems[0].position.line:
        # The file cannot be read at all: the place to look at is the line that names it.
        parent.problems = [Problem(source.where(("extends",)), f"{file}: {parent.problems[0].message}")]
    if not isinstance(parent.data, dict):
        source.problems += parent.problems
        if not source.problems:
            source.complain(("extends",), f"{name} is not a recipe: it must be a mapping of keys")
        raise RecipeError(in_order(source, source.problems))
    source = extend(_over(parent, (*files, file.resolve())), source)
    del source.data["extends"]
    return source


def _is_recipe(data: Any) -> bool:
    """Whether plain data is a part of a recipe at least: it has the keys of recipes alone."""
    known = {*General.model_fields, *SECTIONS, *installed(SECTION), "extends"}
    return isinstance(data, Mapping) and known.issuperset(data)


def parent_of(source: Source) -> Path:
    """The file that a source extends, by a path as seen from its folder or by the name of a shipped recipe."""
    return located(source.data["extends"], Path(source.origin).parent)
