"""Named columns, from a table or a Hugging Face data set, as inputs and answers of a model.

Every column is read as the recipe declares it. Nothing is guessed, since a guess could differ for another file: texts
become numbers only through the recipe's categories, and gaps only through its fill values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug.api.data import Dataset, Examples
from fedplug.api.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_std.options import RowOptions

_FEW = 20
"""Up to this many different texts are listed as possible categories of a column."""
_TRUTH = {"true": 1.0, "false": 0.0}


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """One column.

    Attributes:
        values: (n,), numbers, or objects that are texts; the value in a gap means nothing.
        gaps: bool (n,), True where a value is missing.
    """

    values: NDArray[Any]
    gaps: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int64]) -> Column:
        """Some rows of it."""
        return Column(self.values[rows], self.gaps[rows])

    def texts(self) -> NDArray[Any]:
        """Its values as written, objects (n,): `1`, not `1.0`, if all are whole; a gap is empty."""
        values = self.values
        if values.dtype.kind == "f" and np.isfinite(values[~self.gaps]).all():
            whole = np.where(self.gaps, 0, values)
            values = (
                whole.astype(np.int64)
                if (whole == np.rint(whole)).all() and np.abs(whole).max(initial=0) < 2**53
                else values
            )
        return np.array(
            ["" if gap else str(value).strip() for value, gap in zip(values, self.gaps, strict=True)], object
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Columns of equal length by name, and their source, for messages.

    `numbers`, int64 (n,), counts the rows as a reader of the file does: lines of a CSV file, else rows from 1.
    """

    columns: dict[str, Column]
    place: str
    numbers: NDArray[np.int64]
    unit: Literal["line", "row"] = "row"

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return dataclasses.replace(self, columns=columns, numbers=self.numbers[rows])

    def column(self, name: str, why: str) -> Column:
        """The column of this name. Raises a DataError if there is none; `why` is the option that names it."""
        if name not in self.columns:
            raise DataError(
                f"{self.place} has no column {name}, which {why} names; it has {listed(self.columns)}. Add the column, "
                f"or change {why}"
            )
        return self.columns[name]

    def places(self, wrong: NDArray[np.bool_]) -> str:
        """The location of rows in words: their number, and the first of them."""
        rows = self.numbers[wrong].tolist()
        shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        return f"{len(rows)} {self.unit}{'s' if len(rows) > 1 else ''} ({shown})"


def listed(names: Any, most: int = 12) -> str:
    """A few names, in words."""
    given = [str(name) for name in names]
    more = f" and {len(given) - most} more" if len(given) > most else ""
    return (", ".join(given[:most]) or "none") + more


def used(options: RowOptions, rows: Rows, besides: Sequence[str] = ()) -> tuple[str, ...]:
    """The input columns of the model: those that are named, or all except the answer and `leave_out`."""
    if options.features:
        return options.features
    for name in (*options.answer, *options.leave_out):
        rows.column(name, "answer" if name in options.answer else "leave_out")
    away = {*options.answer, *options.leave_out, *besides}
    return tuple(name for name in rows.columns if name not in away)


def inputs(options: RowOptions, rows: Rows, names: Sequence[str]) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """The inputs of the model, float32 (n, columns), and the names of their columns.

    Raises:
        DataError: a column is missing, has gaps, holds texts without stated categories, or a value that is not a
            number.
    """
    for option in ("categories", "fill", "scale"):
        known = {*names, *(options.answer if option == "fill" else ())}
        if strange := [name for name in getattr(options, option) if name not in known]:
            raise DataError(
                f"{rows.place}: {option} names {listed(strange)}, which are not inputs of the model; its inputs are "
                f"{listed(names)}. Add it to features, or take it out of {option}"
            )
    _require_categories(options, rows, names)
    parts, titles = [], []
    for name in names:
        column = filled(rows, name, options.fill)
        if name in options.categories:
            stated = options.categories[name]
            parts.append(_one_hot(rows, name, column, stated))
            titles += [f"{name}={category}" for category in stated]
            continue
        numbers_ = numbers(rows, name, column)
        if name in options.scale:
            centre, spread = options.scale[name]
            numbers_ = (numbers_ - centre) / spread
        parts.append(numbers_[:, None])
        titles.append(name)
    if not parts:
        raise DataError(f"{rows.place} has no column except the answer and those left out; name some with features")
    return np.concatenate(parts, 1).astype(np.float32), tuple(titles)


def _require_categories(options: RowOptions, rows: Rows, names: Sequence[str]) -> None:
    """Refuses texts without categories, all columns at once, with a remedy."""
    few: dict[str, list[str]] = {}
    many: dict[str, int] = {}
    for name in names:
        column = rows.column(name, "features")
        if name in options.categories or not _is_text(column):
            continue
        found = sorted({*column.texts()[~column.gaps]} | ({str(options.fill[name])} if name in options.fill else set()))
        if len(found) > _FEW:
            many[name] = len(found)
        else:
            few[name] = found
    if not few and not many:
        return
    said = [f"{name} ({listed(found, 5)})" for name, found in few.items()]
    said += [f"{name} ({count} different ones)" for name, count in many.items()]
    remedy = []
    if few:
        lines = ", ".join(f"{name}: [{', '.join(map(_quoted, found))}]" for name, found in few.items())
        remedy.append(f"state their categories in the recipe, categories: {{{lines}}}")
    if many:
        remedy.append(f"leave out columns that are not categories, leave_out: [{', '.join(many)}]")
    raise DataError(f"{rows.place}: there are texts in the columns {'; '.join(said)}; {', and '.join(remedy)}")


def _quoted(text: str) -> str:
    import json

    return (
        text
        if text.isidentifier() and text.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
        else json.dumps(text)
    )


def _is_text(column: Column) -> bool:
    """Whether it holds texts that are neither numbers nor true and false."""
    if column.values.dtype.kind != "O":
        return False
    found = column.values[~column.gaps]
    if not len(found):
        return False
    read = [_number(text) for text in found[:50]]
    # A column of numbers with a typing error is not a category: the row is refused.
    return sum(number is None for number in read) > len(read) / 2


def _number(text: Any) -> float | None:
    said = str(text).strip()
    if said.lower() in _TRUTH:
        return _TRUTH[said.lower()]
    try:
        return float(said)
    except ValueError:
        return None


def filled(rows: Rows, name: str, fill: Mapping[str, float | str]) -> Column:
    """A column without gaps.

    Raises:
        DataError: it is missing, or has gaps without a stated value; the message names the rows.
    """
    column = rows.column(name, "features")
    if not column.gaps.any():
        return column
    if name not in fill:
        text = _is_text(column)
        raise DataError(
            f"{rows.place}: column {name} has no value in {rows.places(column.gaps)}; leave out these rows or the "
            f"column (leave_out: [{name}]), or state a value for them: fill: {{{name}: {'unknown' if text else 0}}}"
        )
    value = fill[name]
    values = column.values.astype(object if isinstance(value, str) or column.values.dtype.kind == "O" else np.float64)
    # The form in a file: a category called 3 is not 3.0.
    values[column.gaps] = f"{value:.15g}" if values.dtype.kind == "O" and isinstance(value, float) else value
    return Column(values, np.zeros_like(column.gaps))


def numbers(rows: Rows, name: str, column: Column) -> NDArray[np.float64]:
    """The numbers of a column without gaps, float64 (n,).

    Raises:
        DataError: a value is not a number, or not finite; the message names the place.
    """
    if column.values.dtype.kind == "O":
        try:
            found = column.values.astype(np.float64)
        except (ValueError, TypeError):
            read = [_number(text) for text in column.values]
            wrong = np.array([number is None for number in read])
            if wrong.any():
                first = column.values[int(wrong.argmax())]
                raise DataError(
                    f"{rows.place}: column {name} holds values that are not numbers in {rows.places(wrong)}, first "
                    f"{str(first)[:40]!r}; correct it, leave the column out (leave_out: [{name}]), or state its "
                    "categories"
                ) from None
            found = np.array(read, np.float64)
    else:
        found = column.values.astype(np.float64)
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(found.astype(np.float32))
    if wrong.any():
        raise DataError(
            f"{rows.place}: column {name} holds {found[int(wrong.argmax())]:g}, which is not a finite number, in "
            f"{rows.places(wrong)}; correct these rows, or leave them out"
        )
    return found


def _one_hot(rows: Rows, name: str, column: Column, stated: Sequence[str]) -> NDArray[np.float64]:
    texts = column.texts()
    found = np.stack([texts == category for category in stated], 1)
    wrong = np.logical_not(found.sum(axis=1))
    if wrong.any():
        others = sorted({*texts[wrong]})
        raise DataError(
            f"{rows.place}: column {name} holds {listed(others, 5)} in {rows.places(wrong)}, but categories.{name} has "
            f"{listed(stated)}; add the missing ones to the recipe, or correct the column"
        )
    return found.astype(np.float64)


@dataclasses.dataclass(frozen=True, eq=False)
class Answers:
    """The answer that the model must give for each row.

    Attributes:
        labels: int64 (n,), used by partitions.
        targets: (n, ...) if the answer is not the label.
        classes: names of the model's outputs.
        kinds: names of the labels, if they are not the classes.
    """

    labels: NDArray[np.int64]
    targets: NDArray[Any] | None
    classes: tuple[str, ...]
    kinds: tuple[str, ...] = ()


def classes_of(options: RowOptions, parts: Sequence[Rows]) -> tuple[str, ...]:
    """Names of a model's outputs: those in the recipe, or the different answers in order."""
    if options.predict != "classes":
        return options.answer
    if options.classes:
        return options.classes
    (name,) = options.answer
    texts = {text for rows in parts for text in filled(rows, name, options.fill).texts()}
    read = {text: _number(text) for text in texts}
    if all(number is not None for number in read.values()):
        fractions = [text for text, number in read.items() if number is not None and number != math.floor(number)]
        if fractions:
            raise DataError(
                f"{parts[0].place}: column {name} holds numbers such as {fractions[0]}, which are not classes; write "
                "predict: numbers for a regression, or name another answer"
            )
        return tuple(sorted(texts, key=lambda text: (read[text] or 0.0, text)))
    return tuple(sorted(texts))


def answers(options: RowOptions, rows: Rows, classes: tuple[str, ...]) -> Answers:
    """The answers.

    Raises:
        DataError: a column is missing, has gaps, or holds a value that is not an answer of the predicted kind.
    """
    from fedplug_std._dataset_files import fifths
    from fedplug_std.datasets import FIFTHS

    for name in options.answer:
        rows.column(name, "answer")
    if options.predict == "classes":
        return Answers(_places(options, rows, classes), None, classes)
    columns = [numbers(rows, name, filled(rows, name, options.fill)) for name in options.answer]
    found = np.stack(columns, 1)
    if options.predict == "numbers":
        targets = found.astype(np.float32)
        return Answers(fifths(targets), targets, classes, FIFTHS)
    for name, column in zip(options.answer, columns, strict=True):
        wrong = ~np.isin(column, (0, 1))
        if wrong.any():
            raise DataError(
                f"{rows.place}: column {name} is one of several labels and holds {column[int(wrong.argmax())]:g} in "
                f"{rows.places(wrong)}; each must be 0 or 1"
            )
    return Answers(np.zeros(len(rows), np.int64), found.astype(np.int64), classes, ("any of the labels",))


def _places(options: RowOptions, rows: Rows, classes: tuple[str, ...]) -> NDArray[np.int64]:
    """The place of each answer among the classes."""
    (name,) = options.answer
    texts = filled(rows, name, options.fill).texts()
    place = {text: number for number, text in enumerate(classes)}
    if {*texts} <= {*map(str, range(len(classes)))} and not {*texts} & {*classes}:
        place = {str(number): number for number in range(len(classes))}
    wrong = np.array([text not in place for text in texts], bool)
    if wrong.any():
        raise DataError(
            f"{rows.place}: column {name} holds {listed(sorted({*texts[wrong]}), 5)} in {rows.places(wrong)}, but the "
            f"classes are {listed(classes)} (or 0 to {len(classes) - 1}); state all of them: classes: [...]"
        )
    return np.array([place[text] for text in texts], np.int64)


def dataset(options: RowOptions, train: Rows, test: Rows | None, besides: Sequence[str] = ()) -> Dataset:
    """The data set of these rows; without rows for testing, a fraction of the others is set aside.

    Args:
        options: the role of each column, and the fraction to set aside.
        train, test: the rows.
        besides: columns that are neither inputs nor answers.

    Raises:
        DataError: names the file, column and row, the problem and the remedy.
    """
    from fedplug_std import _dataset_files as files

    for part in (train, test):
        if part is not None and not len(part):
            raise DataError(f"{part.place} has no rows; put examples there")
    names = used(options, train, besides)
    parts = [part for part in (train, test) if part is not None]
    classes = classes_of(options, parts)
    made = []
    for part in parts:
        given, titles = inputs(options, part, names)
        asked = answers(options, part, classes)
        made.append(Examples(given, asked.labels, asked.targets))
    first, second = files.two_parts(made, options, train.place)
    data = files.dataset(first, second, options, classes, kinds=asked.kinds)
    return dataclasses.replace(data, columns=titles)


def misfit(options: RowOptions, at: Literal["here", "sites"], agreed: Any) -> list[str]:
    """Facts about columns that a recipe must state if each site has a private file."""
    if at != "sites":
        return []
    said = []
    if not options.features:
        said.append(
            "with data at sites, name the columns, features: [...], so that every site uses the same ones in the same "
            "order"
        )
    elif agreed is not None and agreed.shape != (width(options),):
        said.append(
            f"features and categories make {width(options)} columns, but data.agreed.shape says {list(agreed.shape)}"
        )
    if agreed is not None and agreed.mean:
        said.append("columns of a table are scaled by data.scale; write mean: [] and std: [] in data.agreed")
    return said


def width(options: RowOptions) -> int:
    """The number of a model's inputs, if the features are named."""
    return sum(len(options.categories.get(name, ("",))) for name in options.features)
