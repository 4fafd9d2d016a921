"""The output of a search: all trials as CSV and JSON, recipes of the front that run as they are, and the page."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import RecipeError
from fedplug.api.records import json_ready
from fedplug.recipe.catalog import Catalog
from fedplug_lab.api import (
    MUTED,
    Chart,
    Panel,
    Point,
    Scale,
    again,
    bullets,
    colour_of,
    csv_text,
    draw_front,
    figures,
    front_panels,
    height_axis,
    report_link,
    table,
    text,
    write_page,
)
from fedplug_runs import shelf, units, yaml_source
from fedplug_runs.files import private_folder, write_text
from fedplug_runs.overlay import load_recipe, parent_of, read_extended
from fedplug_runs.own_files import keep
from fedplug_runs.shelf import name_of

from fedplug_search.answer import MET, MISSED, PRUNED, Answer, Told
from fedplug_search.measures import MEASURES, in_words, measure

BEST, FRONT = "best.yaml", "front"


def write_tables(answer: Answer) -> None:
    """Writes `trials.csv`, a line for each trial, and `trials.json`, with all that is known."""
    stated = dict.fromkeys(name for told in answer.told.values() for name in told.numbers)
    measures = sorted(stated, key=[*MEASURES, *stated].index)
    rows = [
        {
            "trial": number + 1, "status": told.status,
            "front": answer.front.index(number) + 1 if number in answer.front else "",
            **{path: value if isinstance(value, int | float | str) else json.dumps(value)
               for path, value in answer.values[number].items()},
            **{name: told.numbers.get(name, "") for name in measures},
            "reason": told.reason, "runs": " ".join(made.folder for made in told.runs),
        }
        for number, told in answer.told.items()
    ]  # fmt: skip
    columns = ["trial", "status", "front", *answer.question.space.dimensions, *measures, "reason", "runs"]
    write_text(answer.folder / "trials.csv", csv_text(columns, rows))
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
    sets = question.changes(answer.values[number], question.seeds[0])
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
    named = name_of(parent) or Path(os.path.relpath(parent, folder)).as_posix()
    return {"extends": named, **_differing(data, source.data)}


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


_FRONT, _MET, _MISSED = colour_of(0), colour_of(2), "#b6bcc6"


def write_search_page(answer: Answer) -> Path:
    """Writes `search.html`, whole or not at all; gives its path."""
    question, counts = answer.question, answer.counts
    how = ", ".join(f"{count} {status}" for status, count in counts.items())
    seeds = ", ".join(map(str, question.seeds))
    byline = f'<p class="byline">{len(answer.told)} trials · {text(how)} · seeds {seeds}</p>'
    sections = [
        ("front", "Pareto front", _front(answer)),
        ("figures", "Figures", figures([chart] if (chart := _chart(answer)) else [])),
        ("privacy", "Privacy, word for word", _verdicts(answer)),
        ("trials", "Trials", _trials(answer)),
        ("how", "How it was searched", _how(answer)),
    ]
    return write_page(
        answer.folder / "search.html", "search", question.base.name, byline, [_found(answer), _price(answer)], sections
    )


def _found(answer: Answer) -> str:
    asked = ", ".join(map(str, answer.question.constraints)) or "no constraint"
    lines = [answer.headline(), *([] if answer.front else answer.shortfall())]
    if not answer.facts["complete"]:
        lines.append("The search was interrupted. The same command continues it.")
    body = "".join(f"<p>{text(line)}</p>" for line in lines)
    return f'<div class="verdict"><h2>Asked: {text(asked)}</h2>{body}</div>'


def _price(answer: Answer) -> str:
    said = [*(f"Not comparable: {line}" for line in answer.unlike), *filter(None, [answer.luck()]), *answer.privacy()]
    return f'<div class="banner"><strong>A search has its own price.</strong>{bullets([*map(text, said)])}</div>'


def _front(answer: Answer) -> str:
    body = []
    for place, number in enumerate(answer.front, 1):
        file = BEST if len(answer.front) == 1 else f"{FRONT}/{place}.yaml"
        body.append([str(number + 1), *map(text, answer.cells(number)), f'<a href="{file}">{file}</a>'])
    first = next(iter(answer.question.objectives))
    caption = (
        "Trials that meet all constraints and that no other such trial beats, the best in "
        f"{first} first. Means over seeds; of epsilons the largest. {BEST} is the first."
    )
    header = ["trial", *answer.question.shown, *answer.question.space.dimensions, "recipe"]
    return table(caption, header, body, numeric=1)


def _trials(answer: Answer) -> str:
    body = []
    for number, told in answer.told.items():
        links = [report_link(answer.folder / made.folder, answer.folder, f"{made.seed} ({made.rounds})")
                 for made in told.runs]  # fmt: skip
        status = f"<strong>{told.status}</strong>" if number in answer.front else text(told.status)
        cells = map(text, answer.cells(number))
        body.append([str(number + 1), status, *cells, text(told.reason), "<br>".join(links)])
    header = ["trial", "outcome", *answer.question.shown, *answer.question.space.dimensions, "why", "seed (rounds)"]
    caption = (
        "Every trial. A pruned trial has the numbers of the rounds that it ran. A refused trial has a recipe that "
        "fedplug check refuses. Neither counts as a result."
    )
    return table(caption, header, body)


def _verdicts(answer: Answer) -> str:
    body = [
        [text(answer.name(number)), "<br>".join(map(text, answer.told[number].verdicts)) or units.NOTHING]
        for number in answer.front
    ]
    return table("Verdicts of the trials on the front.", ["trial", "verdict"], body)


def _how(answer: Answer) -> str:
    facts, question = answer.facts, answer.question
    body = [["recipe", f"<code>{text(question.recipe)}</code>, digest <code>{question.base.digest[:12]}</code>"]]
    body += [[text(path), text(found)] for path, found in question.space.dimensions.items()]
    body += [["objectives", text(", ".join(question.weighed()))]]
    body += [[text(key), text(value)] for key, value in facts.items() if key not in ("command", "complete")]
    return table("The same command gives the same search.", ["", ""], body) + again(facts["command"])


# ---- the picture


def _chart(answer: Answer) -> Chart | None:
    """The first objective over each other one; what does not count in grey."""
    better, (up, *across) = answer.question.objectives, answer.question.objectives
    ended = {number: told for number, told in answer.told.items() if told.status in (MET, MISSED)}
    drawn = {number: told for number, told in ended.items() if told.number(up) is not None}
    shown = [name for name in across if any(told.number(name) is not None for told in drawn.values())]
    if not shown:
        return None
    drawing = front_panels(len(shown))
    for panel, name in zip(drawing.panels, shown, strict=True):
        _draw(panel, answer, drawn, name, up)
    legend = [
        ("on the front", _FRONT, "area"),
        ("meets the constraints", _MET, "area"),
        ("misses one", _MISSED, "area"),
        ("pruned, after its last round", MUTED, "cross"),
        ("bound", MUTED, "dash"),
        ("front", MUTED, "line"),
    ]
    sides = ["up" if better[up] == "higher" else "down", *dict.fromkeys(
        "to the right" if better[name] == "higher" else "to the left" for name in shown)]  # fmt: skip
    best = ", ".join(answer.name(number) for number in answer.front) or "none"
    alt = f"On the front: {best}."
    lacking = len(ended) - len(drawn)
    note = (f"Better is {' and '.join(sides)}. A number names a trial of the front. A strip holds trials without the "
            f"number of that axis{f'; {lacking} without {up} are not drawn' if lacking else ''}.")  # fmt: skip
    return drawing.chart("front", "What it costs", alt, legend, note, wide=True)


def _draw(panel: Panel, answer: Answer, drawn: Mapping[int, Told], name: str, up: str) -> None:
    kind = measure(name).kind
    scale, unit = {"bytes": (1e-6, " (MB)"), "seconds": (1.0, " (s)")}.get(kind, (1.0, ""))
    looks = {MISSED: (_MISSED, 6.0), MET: (_MET, 7.0), "front": (_FRONT, 9.0)}
    # What lies on top is drawn last.
    order = sorted(drawn, key=lambda n: ("front" if n in answer.front else drawn[n].status) == "front")
    points = []
    for number in order:
        told, on = drawn[number], number in answer.front
        x, y = told.number(name), told.number(up)
        colour, size = looks["front" if on else told.status]
        if y is not None:
            points.append(Point(str(number + 1) if on else "", None if x is None else x * scale, y, colour,
                                counts=on, size=size))  # fmt: skip
    stopped = [x * scale for told in answer.told.values() if told.status == PRUNED and (x := told.number(name))]
    bounds = [one.bound * scale for one in answer.question.constraints if one.name == name]
    panel.y = height_axis(points)
    levels = [one.bound for one in answer.question.constraints if one.name == up]
    panel.y.include(levels)
    missing = "no guarantee" if name.startswith("epsilon") else "no number"
    better = answer.question.objectives
    draw_front(panel, points, Scale(f"{name}{unit}", better[name], missing), Scale(up, better[up]), [*stopped, *bounds])
    if stopped:
        panel.crosses(stopped, MUTED)
    for bound in bounds:
        panel.upright(bound, MUTED)
    for level in levels:
        panel.line([*panel.x.ends()], [level] * 2, MUTED, 1.4, True)
