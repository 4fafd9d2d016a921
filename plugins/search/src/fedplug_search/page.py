"""The page of a search: the front, the picture of what it costs, every trial with its outcome, and privacy."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedplug_lab.api import (
    MUTED,
    WIDE,
    Chart,
    Drawing,
    Panel,
    Point,
    Scale,
    colour_of,
    draw_front,
    figures,
    height_axis,
    table,
    text,
    write_page,
)
from fedplug_runs import units

from fedplug_search.answer import Answer
from fedplug_search.files import BEST, FRONT
from fedplug_search.measures import measure
from fedplug_search.trial import MET, MISSED, PRUNED, Told

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
    items = "".join(f"<li>{text(line)}</li>" for line in said)
    head = "<strong>A search has its own price.</strong>"
    return f'<div class="banner">{head}<ul class="warnings">{items}</ul></div>'


def _cells(answer: Answer, told: Told) -> list[str]:
    found = []
    for name in answer.question.shown:
        cell = text(measure(name).show(told.numbers.get(name)))
        if name == "epsilon" and told.prices:
            cell += f' <span class="note">({text(told.prices)})</span>'
        found.append(cell)
    return found


def _front(answer: Answer) -> str:
    body = []
    for place, number in enumerate(answer.front, 1):
        file = BEST if len(answer.front) == 1 else f"{FRONT}/{place}.yaml"
        values = [text(value) for value in answer.question.space.shown(answer.values[number]).values()]
        link = f'<a href="{file}">{file}</a>'
        body.append([str(number + 1), *_cells(answer, answer.told[number]), *values, link])
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
        links = []
        for made in told.runs:
            report = answer.folder / made.folder / "report.html"
            name = text(f"{made.seed} ({made.rounds})")
            there = text(os.path.relpath(report, answer.folder))
            links.append(f'<a href="{there}">{name}</a>' if report.is_file() else name)
        values = [text(value) for value in answer.question.space.shown(answer.values[number]).values()]
        status = f"<strong>{told.status}</strong>" if number in answer.front else text(told.status)
        body.append([str(number + 1), status, *_cells(answer, told), *values, text(told.reason), "<br>".join(links)])
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
    again = f"<h3>Do it again</h3><pre><code>{text(facts['command'])}</code></pre>" if facts["command"] else ""
    return table("The same command gives the same search.", ["", ""], body) + again


# ---- the picture


def _chart(answer: Answer) -> Chart | None:
    """The first objective over each other one; what does not count in grey."""
    better, (up, *across) = answer.question.objectives, answer.question.objectives
    ended = {number: told for number, told in answer.told.items() if told.status in (MET, MISSED)}
    drawn = {number: told for number, told in ended.items() if told.number(up) is not None}
    shown = [name for name in across if any(told.number(name) is not None for told in drawn.values())]
    if not shown:
        return None
    drawing = Drawing(
        WIDE, 3.2 * math.ceil(len(shown) / 2), len(shown), 2 if len(shown) > 1 else 1, shared=False
    )  # fmt: skip
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


def rows_of(answer: Answer) -> Sequence[Sequence[str]]:
    """The front as texts, for a terminal."""
    found = []
    for number in answer.front:
        told = answer.told[number]
        numbers = [measure(name).show(told.numbers.get(name)) for name in answer.question.shown]
        if told.prices and "epsilon" in answer.question.shown:
            numbers[answer.question.shown.index("epsilon")] += f" ({told.prices})"
        found.append([str(number + 1), *numbers, *answer.question.space.shown(answer.values[number]).values()])
    return found
