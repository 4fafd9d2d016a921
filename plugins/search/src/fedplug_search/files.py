"""The output of a search for programs: all trials as CSV and JSON, and recipes of the front that run as they are."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import RecipeError
from fedplug.api.records import json_ready
from fedplug.recipe.catalog import Catalog
from fedplug_runs import shelf, yaml_source
from fedplug_runs.files import private_folder, write_text
from fedplug_runs.overlay import load_recipe, parent_of, read_extended
from fedplug_runs.own_files import keep
from fedplug_runs.shelf import name_of

from fedplug_search.answer import Answer
from fedplug_search.measures import MEASURES, in_words
from fedplug_search.space import assignments

BEST, FRONT = "best.yaml", "front"


def write_tables(answer: Answer) -> None:
    """Writes `trials.csv`, a line for each trial, and `trials.json`, with all that is known."""
    paths = list(answer.question.space.dimensions)
    stated = dict.fromkeys(name for told in answer.told.values() for name in told.numbers)
    measures = sorted(stated, key=[*MEASURES, *stated].index)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "status", "front", *paths, *measures, "reason", "runs"])
    for number, told in answer.told.items():
        values = answer.values[number]
        shown = [value if isinstance(value, int | float | str) else json.dumps(value) for value in values.values()]
        numbers = [told.numbers.get(name, "") for name in measures]
        place = answer.front.index(number) + 1 if number in answer.front else ""
        runs = " ".join(made.folder for made in told.runs)
        writer.writerow([number + 1, told.status, place, *shown, *numbers, told.reason, runs])
    write_text(answer.folder / "trials.csv", text.getvalue())
    question, price = answer.question, answer.price
    plain = {
        **question.definition(),
        **answer.facts,
        "front": [number + 1 for number in answer.front],
        "together": dataclasses.asdict(price),
        "trials": [
            {"trial": number + 1, "values": dict(answer.values[number]), **told.to_plain()}
            for number, told in answer.told.items()
        ],
    }
    write_text(answer.folder / "trials.json", json.dumps(json_ready(plain), indent=2) + "\n")


def write_recipes(answer: Answer, catalog: Catalog) -> list[Path]:
    """Writes `best.yaml`, the trial of the front that is best in the first objective; of several on the front, each as
    `front/1.yaml` and so on. What an earlier call wrote is removed.

    Returns:
        The files of the front, in its order.
    """
    (answer.folder / BEST).unlink(missing_ok=True)
    shutil.rmtree(answer.folder / FRONT, ignore_errors=True)
    if not answer.front:
        return []
    best = _write_recipe(answer, answer.front[0], answer.folder / BEST, catalog)
    if len(answer.front) == 1:
        return [best]
    private_folder(answer.folder / FRONT)
    return [
        _write_recipe(answer, number, answer.folder / FRONT / f"{place}.yaml", catalog)
        for place, number in enumerate(answer.front, 1)
    ]


def _write_recipe(answer: Answer, number: int, file: Path, catalog: Catalog) -> Path:
    question = answer.question
    seed = question.seeds[0]
    sets = [*question.sets, *assignments(answer.values[number]), f"seed={seed}"]
    recipe = load_recipe(question.recipe, sets, catalog)
    head = _head(answer, number)
    keep(recipe.own_files, file.parent)
    write_text(file, head + yaml_source.dump(_child(question.recipe, sets, file.parent)))
    try:
        if load_recipe(file, (), catalog).digest == recipe.digest:
            return file
    except RecipeError:
        pass
    # What was chosen cannot be written as a change of the base, such as an option that is left out: all of it then.
    write_text(file, head + yaml_source.dump(recipe.to_plain()))
    return file


def _head(answer: Answer, number: int) -> str:
    """The comment: the source of the recipe, how it was found, and what its epsilon does not say."""
    told, question = answer.told[number], answer.question
    numbers = in_words({name: told.numbers.get(name) for name in question.shown})
    seeds = f"seed {question.seeds[0]}" if len(question.seeds) == 1 else f"seeds {', '.join(map(str, question.seeds))}"
    asked = ", ".join(map(str, question.constraints)) or "none"
    lines = [
        f"Trial {number + 1} of {len(answer.told)} of a search in {question.recipe.name} ({seeds}): {numbers}.",
        f"Chosen: {answer.question.space.label(answer.values[number])}. Constraints: {asked}.",
        f"On the front by {', '.join(question.weighed())}: no other trial that meets the constraints beats it.",
        "The numbers are those of its runs. Choosing it from many on the same data is another release,",
        "which its epsilon does not count: search.html in the folder of the search says more.",
    ]
    if answer.facts.get("command"):
        lines.insert(1, f"Search: {answer.facts['command']}")
    return "".join(f"# {line}\n" for line in lines)


def _child(recipe: Path, sets: list[str], folder: Path) -> dict[str, Any]:
    """A recipe that extends the one that was varied, or what that one extends itself, with what differs."""
    source = shelf.read(recipe)
    parent = parent_of(source) if isinstance(source.data, dict) and "extends" in source.data else recipe
    source = read_extended(recipe, sets)
    data = read_extended(parent).data  # anew: what is set changes what was read
    return {"extends": name_of(parent) or _relative(parent, folder), **_differing(data, source.data)}


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _differing(base: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe that extends the base has to say to become the changed one."""
    found: dict[str, Any] = {}
    for key, value in changed.items():
        before = base.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping) and value.get("use") == before.get("use"):
            if inside := _differing(before, value):
                found[key] = inside
        elif key not in base or before != value:
            found[key] = value
    return found

