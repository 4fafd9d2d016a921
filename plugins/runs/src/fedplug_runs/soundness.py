"""What is wrong with examples, and what is odd about them, in words that name the column: asked before the first round.

The core asks each module that a plugin offers as `fedplug.examine`.

Its text may hold numbers of the data, so it stays with the party that has the data: with data at sites, at the site.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import About, Examples

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDE = 10.0
"""The root of the mean square of a column, above which it looks as if nobody had scaled it."""
_SHOWN = 3
_MANY = 1000
"""Classes, beyond which labels are tokens or ids, and nobody expects an example of each."""
_TRAINING = "training"
_NEARLY = 0.01
"""How far rounding and scaling bring pixels beyond 0 to 1."""
_BLACK = 1 / 15
"""Share of white below which all pixels are as good as black: of 12 bits in 16, the brightest is a sixteenth."""


def problem(parts: Mapping[str, Examples], about: About) -> str:
    """Why nobody can learn from these examples, and the remedy; empty where nothing is wrong.

    Args:
        parts: training, test and public examples, by these names; those that may be absent are left out.
        about: of all of them.

    Returns:
        A sentence that begins with the name of the part.
    """
    for name, part in parts.items():
        looks = [_none, _other_type, _no_number, _no_pixels, _no_label]
        looks += [_one_class, _dark] if name == _TRAINING else [_dark]  # the parts may come in other units
        if wrong := next(filter(None, (look(part, about) for look in looks)), ""):
            return f"{name} examples: {wrong}"
    return _unlike(parts) or _shared(parts, about)


def doubts(parts: Mapping[str, Examples], about: About, scales: bool = False) -> list[str]:
    """What is odd about examples, though a model can be trained on them; nothing where the task is not to train one.

    Args:
        parts: as in `problem`.
        about: names the columns.
        scales: whether the data set has an option `scale`, by which a recipe scales a column.
    """
    if _TRAINING not in parts or (about.task is not None and not about.task.descends):
        return []
    examples = parts[_TRAINING]
    held_out = [] if parts.get("test") else ["no examples are held out, so that this site judges no model"]
    return [*held_out, *_absent(parts, about), *_of_columns(examples, about, scales)]


def _of_columns(examples: Examples, about: About, scales: bool) -> list[str]:
    """What is odd about the columns of a table."""
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


def _none(examples: Examples, about: About) -> str:
    return "" if len(examples) else "there are none; leave some examples for it"


def _other_type(examples: Examples, about: About) -> str:
    """Arrays that hold something other than numbers."""
    for what, array, kinds in (
        ("inputs", examples.inputs, "fiub"), ("labels", examples.labels, "iu"), ("answers", examples.targets, "fiub"),
    ):  # fmt: skip
        if array is not None and (array.dtype.kind not in kinds or (what == "labels" and array.ndim != 1)):
            needed = "one whole number an example, (n,)" if what == "labels" else "numbers"
            return f"{what} are {array.dtype} {array.shape}, and must be {needed}; convert them"
    return ""


def _are_images(examples: Examples, about: About) -> bool:
    """Whether inputs are standardised as pixels; a table that is has numbers in its own units."""
    return bool(about.mean) and examples.inputs.ndim > 2


def _no_pixels(examples: Examples, about: About) -> str:
    """Images whose values mean something other than what a model is told."""
    inputs = examples.inputs
    if not _are_images(examples, about):
        return ""
    if len(about.mean) not in (1, inputs.shape[1]):
        return f"images have {inputs.shape[1]} channels, and mean has {len(about.mean)} values; give one a channel"
    low, high = inputs.min(), inputs.max()
    if inputs.dtype == np.uint8 or (inputs.dtype.kind == "f" and low >= -_NEARLY and high <= 1 + _NEARLY):
        return ""
    place = int((inputs if high > 1 else -inputs).reshape(len(inputs), -1).max(1).argmax())
    divisor = next((str(most) for most in (255, 4095, 65535) if 1 < high <= most), "the value of white")
    remedy = f"divide them by {divisor}, as float32" if low >= 0 else "bring them to 0 to 1, as float32"
    return (
        f"images are {inputs.dtype} from {low:g} to {high:g} ({high if high > 1 else low:g} in example {place}, "
        f"counted from 0), but must be uint8 from 0 to 255 or floats from 0 to 1; {remedy}. What is no image, or is "
        "scaled already, goes as inputs: train_inputs, test_inputs"
    )


def _dark(examples: Examples, about: About) -> str:
    """Images of which next to nothing would be left."""
    inputs = examples.inputs
    if not _are_images(examples, about) or inputs.min() == inputs.max():
        return ""
    white, high = (255 if inputs.dtype == np.uint8 else 1), inputs.max()
    if high > white * _BLACK:
        return ""
    return (
        f"the brightest pixel of all {len(inputs)} images is {high:g} of {white} ({high / white:.1%}), so that they "
        "are as good as black; divide by the value of white in them, not by the largest of their type. For files of 12 "
        "bits in 16 write pixel_range: [0, 4095] in data"
    )


def _one_class(examples: Examples, about: About) -> str:
    other = about.task is not None and about.task.name != "std.classification"
    if len(about.classes) > 1 or other or (examples.targets is not None and examples.targets.dtype.kind == "f"):
        return ""
    return (
        f"there is one class, {', '.join(about.classes)}, so that nothing is to be told apart; name all classes, or a "
        "task in which one output makes sense (task: std.regression)"
    )


def _unlike(parts: Mapping[str, Examples]) -> str:
    """Parts that no model takes both of."""
    (first, train), *others = parts.items()
    for name, part in others:
        for what, one, other in (("inputs", train.inputs, part.inputs), ("answers", train.targets, part.targets)):
            if (one is None) != (other is None):
                return f"{first} examples and {name} examples differ: only one of them has targets; give both"
            if one is not None and other is not None and one.shape[1:] != other.shape[1:]:
                return (
                    f"{name} examples: {what} have the shape {list(other.shape[1:])}, and those of {first} examples "
                    f"{list(one.shape[1:])}; bring all to one shape"
                )
    return ""


def _shared(parts: Mapping[str, Examples], about: About) -> str:
    """Public examples that are private ones: what follows from those costs somebody, and nobody would pay."""
    if not {_TRAINING, "public"} <= {*parts}:
        return ""
    ours, theirs = _comparable(parts[_TRAINING].inputs, parts["public"].inputs, bool(about.mean))
    known = {row.tobytes() for row in theirs}
    if not (shared := sum(row.tobytes() in known for row in ours)):
        return ""
    return (
        f"{shared} training examples are among the public ones, which everybody has; choose another public data set, "
        "or set examples aside: data: {public: 32, ...}"
    )


def _comparable(one: NDArray[Any], other: NDArray[Any], pixels: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs so that equal values have equal bytes, whatever type each source gave."""
    if one.dtype == other.dtype:
        return one, other
    if pixels and np.uint8 in (one.dtype, other.dtype):  # 0 to 255 and 0 to 1, as fine as the coarser of both
        whole = [each if each.dtype == np.uint8 else np.rint(each * 255).astype(np.uint8) for each in (one, other)]
        return whole[0], whole[1]
    kind = np.float32 if "f" in (one.dtype.kind, other.dtype.kind) else np.int64
    return one.astype(kind), other.astype(kind)


def _absent(parts: Mapping[str, Examples], about: About) -> Iterator[str]:
    """Classes without an example, where labels are classes."""
    if about.task is not None and about.kinds:
        return
    for name, part in parts.items():
        absent = sorted({*range(len(about.label_names))} - {*np.unique(part.labels).tolist()})
        if absent and len(absent) < len(about.label_names) <= _MANY and name in (_TRAINING, "test"):
            named = ", ".join(about.label_names[k] for k in absent[:_SHOWN]) + _more(absent)
            why = "a model learns nothing of it here" if name == _TRAINING else "no model is judged by it here"
            yield f"no {name} example has the class {named}, so that {why}"


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
    found = np.unique(labels)
    shown = ", ".join(f"'{label}'" for label in found[:_SHOWN].tolist()) + (", ..." if len(found) > _SHOWN else "")
    whole = found[0] == 1 and found[-1] == len(names)
    remedy = "subtract 1" if whole else "correct the labels, or name all classes in their order"
    return (
        f"labels of {int(wrong.sum())} examples are none of the {len(names)} that have a name, 0 to {len(names) - 1}: "
        f"the first is {labels[int(wrong.argmax())]}, of example {int(wrong.argmax())} (counted from 0). Labels count "
        f"from 0: {remedy}; where numbers are the names, all of them are the classes: [{shown}]"
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
