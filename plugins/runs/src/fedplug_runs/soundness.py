"""What is wrong with examples, and what is odd about them, in words that name the column: asked before the first round.

The core asks each module that a plugin offers as `fedplug.examine`.

Its text may hold numbers of the data, so it stays with the party that has the data: with data at sites, at the site.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import About, Examples

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDE = 10.0
"""The root of the mean square of a column, above which it looks as if nobody had scaled it."""
_SHOWN = 3


def problem(examples: Examples, about: About) -> str:
    """Why nobody can learn from these examples, and the remedy; empty where nothing is wrong."""
    return _none(examples) or _no_number(examples, about) or _no_label(examples, about)


def doubts(examples: Examples, about: About, scales: bool = False) -> list[str]:
    """What is odd about the columns of a table, though a model can be trained on it.

    Args:
        examples: those for training.
        about: names the columns.
        scales: whether the data set has an option `scale`, by which a recipe scales a column.
    """
    table = _table(examples)
    if table is None or len(table) < 2:
        return []
    low, high = table.min(0), table.max(0)
    # Of texts that the recipe lists, a site may have none: their column is 0 throughout, and that is no slip.
    absent = [low_ == 0 and "=" in name for low_, name in zip(low, _names(table, about), strict=True)]
    constant = [k for k in np.flatnonzero(low == high).tolist() if not absent[k]]
    found = []
    if constant:
        named = ", ".join(f"{_name(about, k)} ({low[k]:g})" for k in constant[:_SHOWN])
        found.append(
            f"{_columns(len(constant))} the same in all {len(table)} training examples: {named}{_more(constant)}; a "
            "model learns nothing from that, leave it out"
        )
    if about.mean:
        return found
    wide = np.sqrt(np.square(table, dtype=np.float64).mean(0))
    large = [k for k in np.argsort(-wide, kind="stable").tolist() if wide[k] > _WIDE]
    if large:
        named = ", ".join(f"{_name(about, k)} from {low[k]:g} to {high[k]:g}" for k in large[:_SHOWN])
        option = f"scale: {{{_name(about, large[0]).split()[-1]}: [CENTRE, SPREAD]}} in data does it, by public numbers"
        found.append(
            f"{_columns(len(large))} not scaled: {named}{_more(large)}; training may diverge. Bring every column to "
            f"about -1 to 1: {option if scales else 'subtract and divide by public numbers before they are given'}"
        )
    return found


def ranges(examples: Examples, about: About) -> str:
    """The ranges of the inputs and of the answers, to find out why training diverged."""
    said = []
    table = _table(examples)
    if about.mean or table is None or not table.size:
        inputs = examples.inputs
        if inputs.size:
            standardised = " before they are standardised" if about.mean else ""
            said.append(f"inputs go from {inputs.min():g} to {inputs.max():g}{standardised}")
    else:
        widest = int(np.abs(table).max(0).argmax())
        column = table[:, widest]
        said.append(
            f"the widest column of the inputs, {_name(about, widest)}, goes from {column.min():g} to {column.max():g}"
        )
    targets = examples.targets
    if targets is not None and targets.dtype.kind == "f" and targets.size:
        said.append(f"answers go from {targets.min():g} to {targets.max():g}")
    return ", and ".join(said)


def _none(examples: Examples) -> str:
    return "" if len(examples) else "there are none; leave some examples for it"


def _no_number(examples: Examples, about: About) -> str:
    """Where an example contains a value that is not a number."""
    for what, array in (("inputs", examples.inputs), ("answers", examples.targets)):
        if array is None or array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        wrong = ~np.isfinite(array).reshape(len(array), -1)
        rows = np.flatnonzero(wrong.any(1))
        example, *place = np.argwhere(~np.isfinite(array))[0].tolist()
        names = about.columns if what == "inputs" else about.classes
        if len(place) == 1:
            named = names[place[0]] if len(names) == array.shape[1] else place[0]
            where = f"column {named}"
        else:
            where = f"position {place}"
        shown = ", ".join(map(str, rows[:5].tolist())) + (", ..." if len(rows) > 5 else "")
        return (
            f"{what} of {len(rows)} examples contain values that are not numbers, the first "
            f"{array[(example, *place)]} in {where} of example {example} (counted from 0; all: {shown}); leave such "
            "examples out, or fill in a number"
        )
    return ""


def _no_label(examples: Examples, about: About) -> str:
    """Labels that have no name."""
    labels, names = examples.labels, about.label_names
    wrong = (labels < 0) | (labels >= len(names))
    if not wrong.any():
        return ""
    return (
        f"labels of {int(wrong.sum())} examples are none of the {len(names)} that have a name, 0 to {len(names) - 1}: "
        f"the first is {labels[int(wrong.argmax())]}, of example {int(wrong.argmax())} (counted from 0); name all "
        "classes, or correct the labels"
    )


def _table(examples: Examples) -> NDArray[Any] | None:
    """The inputs, where each is a row of numbers."""
    inputs = examples.inputs
    return inputs if inputs.ndim == 2 and inputs.dtype.kind == "f" else None


def _name(about: About, column: int) -> str:
    return about.columns[column] if column < len(about.columns) else f"column {column}"


def _names(table: NDArray[Any], about: About) -> Iterator[str]:
    return (_name(about, column) for column in range(table.shape[1]))


def _columns(count: int) -> str:
    return "1 column of the inputs is" if count == 1 else f"{count} columns of the inputs are"


def _more(found: list[int]) -> str:
    return f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
