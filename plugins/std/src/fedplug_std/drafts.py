"""What is in a table, and a section `data` of a recipe that reads it.

A recipe reads columns only as it says, and this module drafts what it says. A draft tells of the file: its categories,
classes and ranges. It is for the owner of the table, who decides what to publish.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import DataError

from fedplug_std import _columns
from fedplug_std._columns import FEW, Column, Form, Rows, flow, listed

if TYPE_CHECKING:
    from fedplug_std.options import RowOptions, TableOptions

_ID = re.compile(
    r"(?:^|[\W_])(?:ids?|nr|no|num|number|key|uuid|guid|mrn|index|unnamed.*|column \d+)$|^(?:case|patient)", re.I
)
_ANSWER = re.compile(
    r"(?:outcome|label|target|class|answer|diagnosis|y|result|status|died|death|event|response)s?", re.I
)
_CODE = re.compile(r"[+-]?0[0-9]+|[+-]?[0-9]{16,}")
"""Digits that are no number: 007 is not 7, and a number of so many digits is not kept exactly."""
_CODES = 10**5
"""From here on, whole numbers that are all different are ids and no measurements."""
_TYPING_ERRORS = 5
"""Up to this many different texts in a column of numbers become gaps in a draft."""
_MANY_CLASSES = 100
_RARE = 0.1


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnFacts:
    """What is in a column.

    Attributes:
        name: of the column.
        kind: `numbers`, `whole numbers`, `truths`, `categories`, `texts`, `codes`, `dates`, `ids`, `constant`, `empty`,
            or `numbers and texts`.
        gaps: number of rows without a value.
        different: number of different values.
        low, high: of its numbers; None where it has none.
        counts: rows by value, where the values are few.
    """

    name: str
    kind: str
    gaps: int
    different: int
    low: float | None
    high: float | None
    counts: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        found = {"name": self.name, "type": self.kind, "gaps": self.gaps, "different": self.different,
                 "low": self.low, "high": self.high, "classes": dict(self.counts) or None}  # fmt: skip
        return {key: value for key, value in found.items() if value is not None}

    def values(self) -> str:
        """Its values in a few words."""
        if self.counts:
            return ", ".join(f"{listed([value])} {count}" for value, count in [*self.counts.items()][:6]) + (
                f" and {len(self.counts) - 6} more" if len(self.counts) > 6 else ""
            )
        return f"{self.low:g} to {self.high:g}" if self.low is not None else ""


def facts_of(rows: Rows, name: str) -> ColumnFacts:
    """What is in a column."""
    column = rows.columns[name]
    places, readings = column.numbered()
    there = np.flatnonzero(np.bincount(places[~column.gaps], minlength=len(readings)))
    read = readings[there]
    finite = read[np.isfinite(read)]
    kind = _kind(name, column, len(there), readings[there])
    few = kind in ("categories", "truths", "constant") or (len(there) <= FEW and kind in ("codes", "whole numbers"))
    numbered = kind in ("numbers", "whole numbers", "numbers and texts", "ids", "codes") and len(finite) > 0
    return ColumnFacts(
        name, kind, int(column.gaps.sum()), len(there), float(finite.min()) if numbered else None,
        float(finite.max()) if numbered else None, column.different() if few else {},
    )  # fmt: skip


def _kind(name: str, column: Column, different: int, readings: Any) -> str:
    count = len(column) - int(column.gaps.sum())
    if not count:
        return "empty"
    if different == 1 and count == len(column):
        return "constant"
    all_differ = different == count >= FEW
    if column.is_text:
        return "dates" if column.is_date else "categories" if different <= FEW else "ids" if all_differ else "texts"
    if column.words is not None and np.isnan(readings).any():
        return "numbers and texts"
    words = [] if column.words is None else [*column.different()]
    if column.values.dtype.kind == "b" or (words and {*map(str.lower, words)} <= {"true", "false"}):
        return "truths"
    if any(map(_CODE.fullmatch, words)):
        return "ids" if all_differ else "codes"
    if column.values.dtype.kind in "iu" or bool((readings == np.rint(readings)).all()):
        running = count > 1 and bool((np.diff(column.values[~column.gaps]) == 1).all())
        is_id = all_differ and (running or readings.min() >= _CODES or _ID.search(name))
        return "ids" if is_id else "whole numbers"
    return "numbers"


def likely_answer(rows: Rows) -> str:
    """The column that is probably the answer: one with such a name, or the last with few values. It is a guess.

    Raises:
        DataError: none is.
    """
    names = [*rows.columns]
    if named := [name for name in names if _ANSWER.fullmatch(name.strip())]:
        return named[-1]
    for name in reversed(names):
        found = facts_of(rows, name)
        if found.kind in ("categories", "truths") or (found.kind in ("whole numbers", "codes") and found.counts):
            return name
    raise DataError(f"{rows.place}: no column looks like an answer; name it with --answer, one of {listed(names)}")


def draft(
    rows: Rows, options: Mapping[str, Any], base: RowOptions | None = None, besides: Sequence[str] = ()
) -> dict[str, Any]:
    """The options of `std.table` that read these rows; other columns than inputs are left out.

    Args:
        rows: of the file.
        options: `file`, `answer`, and how the file is written.
        base: decisions that stay; None: there are none.
        besides: columns that are neither inputs nor answers.
    """
    made = _Draft(rows, dict(options), base)
    answer: Sequence[str] = [options["answer"]] if isinstance(options["answer"], str) else options["answer"]
    for name in answer:
        made.take_answer(name)
    features = base.features if base is not None else ()
    for name in features or rows.columns:
        if name in answer or name in besides or name not in rows.columns:
            continue
        if base is not None and name == base.user:
            made.dropped += [name] if rows.columns[name].gaps.any() and name not in made.dropped else []
            continue
        made.take_input(name)
    return made.options(features)


class _Draft:
    """The options that grow column by column."""

    def __init__(self, rows: Rows, options: dict[str, Any], base: RowOptions | None) -> None:
        self.rows, self.given, self.base = rows, options, base
        kept = base is not None
        self.leave_out: list[str] = [*base.leave_out] if base is not None and kept else []
        self.categories: dict[str, Any] = {name: [*said] for name, said in base.categories.items()} if base else {}
        self.fill: dict[str, Any] = dict(base.fill) if base else {}
        self.marked: list[str] = [*base.missing_indicators] if base else []
        self.dropped: list[str] = [*base.drop_gaps] if base else []
        self.replace: dict[str, dict[str, str]] = {n: dict(said) for n, said in base.replace.items()} if base else {}
        self.scale: dict[str, Any] = {name: [*said] for name, said in base.scale.items()} if base else {}

    def take_answer(self, name: str) -> None:
        """A column of answers: a row without one is left out, and texts that look alike are one class."""
        column = self._changed(name)
        predict = self.given.get("predict", "classes")
        if predict == "classes":
            if not self.given.get("classes"):
                self._merge(name, column)
        elif column.words is not None:
            self._without_errors(name, column)
        if self._changed(name).gaps.any() and name not in (*self.fill, *self.dropped):
            self.dropped.append(name)

    def take_input(self, name: str) -> None:
        """A column that may be an input."""
        if name in self.leave_out:
            return
        if name in self.rows.nameless and not (self.base is not None and self.base.features):
            self._leave(name)
            return
        column = self._changed(name)
        kind = facts_of(dataclasses.replace(self.rows, columns={name: column}), name).kind
        if name in self.categories and kind != "empty":
            self._state(name, column)
        elif kind in ("empty", "constant", "dates", "texts", "ids"):
            self._leave(name)
            return
        elif kind == "categories" or (kind == "codes" and len(column.different()) <= FEW):
            self.categories[name] = []
            self._state(name, column)
        elif kind == "codes":
            self._leave(name)
            return
        else:
            if not self._without_errors(name, column):
                self._leave(name)
                return
            column = self._changed(name)
            if math.isnan(self.rows.form.number(str(self.fill.get(name, 0)))):
                self.fill.pop(name)
            if name not in self.scale and (scale := rough_scale(column)):
                self.scale[name] = scale
        if self._changed(name).gaps.any() and name not in (*self.fill, *self.marked, *self.dropped):
            self.marked.append(name)

    def _changed(self, name: str) -> Column:
        column = self.rows.columns[name]
        said = self.replace.get(name)
        return _columns.replaced(column, said, self.rows.form) if said else column

    def _leave(self, name: str) -> None:
        self.leave_out.append(name)
        for each in (self.fill, self.scale, self.categories, self.replace):
            each.pop(name, None)
        if name in self.marked:
            self.marked.remove(name)

    def _merge(self, name: str, column: Column) -> None:
        """Reads texts that look alike as the commonest of them."""
        counts = column.different()
        if same := _columns.alike([*counts], self.rows.form):
            self.replace[name] = self.replace.get(name, {}) | _columns.merging(same, counts)

    def _state(self, name: str, column: Column) -> None:
        """States all categories of a column, those that the recipe has first."""
        stated = self.categories[name]
        by = {_columns.folded(each): each for each in stated}
        words, _, readings = column.coded()
        there = column.different()
        meant = {}
        for word, number in zip(words, readings, strict=True):
            if word not in there or _columns.stated_as(word, number, stated, self.rows.form) is not None:
                continue
            if _columns.folded(word) in by:
                meant[word] = by[_columns.folded(word)]
        if meant:
            self.replace[name] = self.replace.get(name, {}) | meant
        else:
            self._merge(name, column)
        for word in self._changed(name).different():
            if _columns.stated_as(word, self.rows.form.number(word), stated, self.rows.form) is None:
                stated.append(word)
        if isinstance(filling := self.fill.get(name), str | float | int) and str(filling) not in stated:
            self.fill.pop(name)

    def _without_errors(self, name: str, column: Column) -> bool:
        """Whether a column has numbers, once a few texts and infinite numbers are gaps."""
        largest = float(np.finfo(np.float32).max)
        if column.words is None and bool((np.abs(column.values[~column.gaps].astype(np.float64)) <= largest).all()):
            return True
        words, _, readings = column.coded()
        there = column.different()
        wrong = [
            word for word, number in zip(words, readings, strict=True) if word in there and not abs(number) <= largest
        ]  # fmt: skip
        if len(wrong) > _TYPING_ERRORS:
            return False
        if wrong:
            self.replace[name] = self.replace.get(name, {}) | dict.fromkeys(wrong, "")
        changed = self._changed(name)
        return changed.words is None or not np.isnan(changed.coded()[2][changed.coded()[1]][~changed.gaps]).any()

    def options(self, features: Sequence[str]) -> dict[str, Any]:
        """The options, without those that are empty."""
        found = dict(self.given)
        if features:
            found["features"] = [name for name in features if name not in self.leave_out]
            self.leave_out = [name for name in self.leave_out if name not in features]
        found |= {
            "leave_out": self.leave_out, "replace": self.replace, "drop_gaps": self.dropped,
            "categories": self.categories, "fill": self.fill, "missing_indicators": self.marked, "scale": self.scale,
        }  # fmt: skip
        if self.base is not None:
            fields = type(self.base).model_fields
            for name in ("user", "test_file", "test_column", "test_value", "test_fraction", "split_seed", "train_size",
                         "test_size"):  # fmt: skip
                value = getattr(self.base, name, None)
                if name in fields and value != fields[name].default:
                    found[name] = value
        return {name: value for name, value in found.items() if value not in ([], {}, None, ())}


def rough_scale(column: Column) -> list[float] | None:
    """Round numbers that bring a column to about -1 to 1: a centre, and a spread of one digit; None: it is there."""
    values = column.values if column.words is None else column.coded()[2][column.coded()[1]]
    found = np.asarray(values, np.float64)[~column.gaps]
    found = found[np.isfinite(found)]
    if not len(found) or bool((np.abs(found) <= 3).all()):
        return None
    low, middle, high = np.quantile(found, (0.05, 0.5, 0.95))
    half = (high - low) / 2 or float(found.max() - found.min()) / 2 or abs(middle)
    unit = 10.0 ** math.floor(math.log10(half))
    spread = max(1, round(half / unit)) * unit
    return [_round(round(middle / unit) * unit), _round(spread)]


def _round(number: float) -> float:
    short = float(f"{number:.6g}")
    return int(short) if short.is_integer() else short


def lines_of(section: Mapping[str, Any], clients: str = "") -> Iterator[str]:
    """A section `data` as YAML.

    Args:
        section: what follows `use: std.table`.
        clients: a comment for the line with the number of clients.
    """
    yield "data:"
    yield "  use: std.table"
    for name, value in section.items():
        yield f"  {name}: {flow(value)}{f'  # {clients}' if name == 'clients' and clients else ''}"


def note(options: TableOptions, rows: Rows, besides: Sequence[str]) -> str:
    """A section that reads rows which a recipe reads wrongly, for its author; empty where none is found."""
    given = {"file": options.file, **written(options), "answer": _one(options.answer)}
    if options.predict != "classes":
        given["predict"] = options.predict
    if options.classes:
        given["classes"] = [*options.classes]
    if any(name not in rows.columns for name in (*options.answer, *options.replace, *options.drop_gaps)):
        return ""
    absent = [name for name in rows.columns if name not in (*options.answer, *options.features, *options.leave_out)]
    if options.features and any(name not in rows.columns for name in options.features) and not absent:
        return ""
    known = {*rows.columns} - {*options.answer}
    kept = {name: {key: value for key, value in getattr(options, name).items() if key in known}
            for name in ("categories", "scale", "replace")}  # fmt: skip
    kept["replace"] |= {name: said for name, said in options.replace.items() if name in options.answer}
    update: dict[str, Any] = {
        **kept,
        "leave_out": tuple(name for name in options.leave_out if name in rows.columns),
        "features": tuple(name for name in options.features if name in rows.columns),
        "fill": {key: value for key, value in options.fill.items() if key in rows.columns},
        "missing_indicators": tuple(name for name in options.missing_indicators if name in known),
    }
    has_points = any(column.values.dtype.kind == "f" and not column.gaps.all() for column in rows.columns.values())
    if rows.form == Form() and not has_points and (form := _form(rows, options.delimiter or ",")) != Form():
        rows, given = _reformed(rows, form), given | _columns.form_options(form)
    section = draft(rows, given, options.model_copy(update=update), besides)
    none_left = options.features and "features" not in section
    if none_left or not inputs_of(rows, section, (*options.answer, *besides)):
        return ""
    told = [f"  {each}" for each in choices(rows, section, options.answer[0], [*options.scale])]
    told += lines_of(section | {"clients": 3, "partition": {"use": "std.iid"}}, "as in your recipe, and partition too")
    return "\n".join([f"A section that reads this file; {PUBLISHES}:", *told])


PUBLISHES = (
    "everybody who reads the recipe sees the categories, classes and scales, which are drafted from the file, so put "
    "public knowledge in their place"
)


def written(options: TableOptions) -> dict[str, Any]:
    """How a file is written, where that is not the default."""
    fields = type(options).model_fields
    names = ("delimiter", "decimal", "thousands", "encoding", "gaps")
    found = {name: getattr(options, name) for name in names if name in fields}
    return {
        name: [*value] if isinstance(value, tuple) else value
        for name, value in found.items() if value != fields[name].default
    }  # fmt: skip


def inputs_of(rows: Rows, section: Mapping[str, Any], others: Sequence[str]) -> list[str]:
    """The columns that are inputs by a draft; `others` are answers, or neither."""
    away = {*section.get("leave_out", ()), section.get("user"), *others}
    return [name for name in section.get("features") or rows.columns if name not in away]


def _reformed(rows: Rows, form: Form) -> Rows:
    """The rows with numbers read in another form."""
    columns = {
        name: column if column.words is None else Column.of(
            [*column.words, ""], np.where(column.gaps, len(column.words), column.values), frozenset({""}), form
        )
        for name, column in rows.columns.items()
    }  # fmt: skip
    return dataclasses.replace(rows, columns=columns, form=form)


def _one(names: Sequence[str]) -> Any:
    return names[0] if len(names) == 1 else [*names]


@dataclasses.dataclass(frozen=True, eq=False)
class Described:
    """A file, its columns, and a draft.

    Attributes:
        file: as the user named it.
        rows: of it.
        columns: what is in each.
        answer: the column of the answers.
        predict: `classes` or `numbers`.
        section: options of `std.table`.
        remarks: what the owner should decide.
    """

    file: str
    rows: Rows
    columns: Sequence[ColumnFacts]
    answer: str
    predict: str
    section: Mapping[str, Any]
    remarks: Sequence[str]

    def classes(self) -> dict[str, int]:
        """Rows by class, the commonest first; empty for a regression. A draft merges what looks like one class."""
        if self.predict != "classes":
            return {}
        column = self.rows.columns[self.answer]
        if said := self.section.get("replace", {}).get(self.answer):
            column = _columns.replaced(column, said, self.rows.form)
        counts = column.different()
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def at_sites(self) -> dict[str, Any]:
        """The section for sites that each have such a file: with the columns, their number, and the classes."""
        features = inputs_of(self.rows, self.section, (self.answer,))
        categories, marked = self.section.get("categories", {}), self.section.get("missing_indicators", ())
        width = sum(len(categories.get(name, ("",))) + (name in marked) for name in features)
        column = self.rows.columns[self.answer]
        if said := self.section.get("replace", {}).get(self.answer):
            column = _columns.replaced(column, said, self.rows.form)
        classes = [*column.different()] if self.predict == "classes" else [self.answer]
        agreed = {"shape": [width], "classes": classes, "mean": [], "std": []}
        kept = {name: value for name, value in self.section.items() if name != "leave_out"}
        return {**kept, "features": features, "at": "sites", "clients": 3, "partition": None, "agreed": agreed}

    def here(self) -> dict[str, Any]:
        """The section for one file that is split among clients."""
        return {**self.section, "clients": 3, "partition": {"use": "std.iid"}}

    def as_dict(self, sites: bool = False) -> dict[str, Any]:
        """As JSON has it."""
        classes = self.classes()
        answer: dict[str, Any] = {"column": self.answer, "predict": self.predict}
        if classes:
            first = next(iter(classes))
            answer |= {"classes": classes, "commonest": first, "share": classes[first] / sum(classes.values())}
        return {
            "file": self.file, "rows": len(self.rows), "columns": [each.as_dict() for each in self.columns],
            "answer": answer, "remarks": [*self.remarks],
            "data": {"use": "std.table", **(self.at_sites() if sites else self.here())},
        }  # fmt: skip


def described(path: Path, file: str, answer: str | None = None, predict: str | None = None) -> Described:
    """Looks at a file, and drafts a section for it.

    Args:
        path: of the file.
        file: what the draft names.
        answer: the column of the answers; None: a guess, which a remark says.
        predict: `classes` or `numbers`; None: by the values.

    Raises:
        DataError: it is no table, or has no such column.
        SetupError: the library that reads it is not installed.
    """
    from fedplug_std import _table_files as files

    kind = files.kind_of(path)
    options: dict[str, Any] = {}
    reading = files.Reading()
    if kind == "csv":
        reading, options = sniffed(path)
    rows = files.read(path, reading)
    if not len(rows):
        raise DataError(f"{rows.place} has no rows; put examples there")
    remarks = []
    if answer is None:
        answer = likely_answer(rows)
        remarks.append(f"answer: {answer} is a guess; name another with --answer")
    rows.require([answer], "--answer")
    column = rows.columns[answer]
    if predict is None:
        found = column.coded()[2]
        numbered = not np.isnan(found).any() and column.words is None and (
            len(column.different()) > FEW or bool((found != np.rint(found)).any())
        )
        predict = "numbers" if numbered else "classes"
    given = {"file": file, **options, "answer": answer} | ({"predict": predict} if predict != "classes" else {})
    section = draft(rows, given)
    columns = [facts_of(rows, name) for name in rows.columns]
    made = Described(file, rows, columns, answer, predict, section, remarks)
    if "thousands" in options or "decimal" in options:
        said = {name: value for name, value in options.items() if name in ("thousands", "decimal")}
        remarks.append(f"{flow(said)[1:-1]} follows from the numbers; check it")
    if sum(not math.isnan(rows.form.number(name)) for name in rows.columns) > len(rows.columns) / 3:
        remarks.append("the first line seems to hold values; if so, put a line with the names of the columns above it")
    remarks += [*choices(rows, section, answer), *_of_classes(made)]
    return made


def choices(rows: Rows, section: Mapping[str, Any], answer: str, scaled: Sequence[str] = ()) -> Iterator[str]:
    """What a draft decides, for somebody who may decide otherwise, a sentence each.

    Args:
        rows, section: of the draft.
        answer: the column of the answers.
        scaled: columns that a recipe scaled before.
    """
    by = {name: facts_of(rows, name) for name in rows.columns}
    if unnamed := [name for name in section.get("leave_out", ()) if name in rows.nameless]:
        yield f"{listed(unnamed)}: left out, since the first line does not name it"
    for kind, why in (
        ("ids", "an id tells rows apart and nothing else"), ("dates", "dates are no numbers"),
        ("texts", "these are no categories"), ("codes", "these are no measurements"),
        ("constant", "a model learns nothing from it"), ("empty", "it has no value"),
    ):  # fmt: skip
        names = [name for name in section.get("leave_out", ()) if by[name].kind == kind and name not in unnamed]
        if names:
            yield f"{listed(names)}: left out, since {why}"
    for name, said in section.get("replace", {}).items():
        if merged := [f"{word} is read as {other}" for word, other in said.items() if other]:
            yield f"{name}: {', '.join(merged)}; take it out of replace if they differ"
        if gone := [word for word, other in said.items() if not other]:
            yield f"{name}: {listed(gone)} is no number, and becomes a gap; correct the file if it is one"
    if marked := section.get("missing_indicators"):
        yield f"{listed(marked)}: a gap gets no invented value but an input of its absence; fill states a value instead"
    if section.get("drop_gaps"):
        count = int(np.any([rows.columns[name].gaps for name in section["drop_gaps"]], 0).sum())
        if count:
            without = f"{count} rows have no value there, and are" if count > 1 else "1 row has no value there, and is"
            said = dict.fromkeys(word for name in section["drop_gaps"] for word in rows.columns[name].absent)
            other = f" ({listed(said)} counts as a gap; to keep it, name it among the classes)" if said else ""
            yield f"{listed(section['drop_gaps'])}: {without} left out{other}"
    if wide := [by[name] for name in section.get("scale", ()) if name not in scaled]:
        shown = ", ".join(f"{each.name} ({each.values()})" for each in wide[:4] if not each.counts)
        more = " and others" if len(wide) > 4 else ""
        yield f"{shown or listed(each.name for each in wide)}{more}: not scaled; scale brings it to about -1 to 1"
    numbers = [name for name in section.get("scale", ()) if by[name].counts and by[name].different > 2]
    if numbers:
        yield f"{listed(numbers)}: few different numbers; if they are codes, state them as categories"


def _of_classes(made: Described) -> Iterator[str]:
    if not inputs_of(made.rows, made.section, (made.answer,)):
        yield "no column is left as an input; take one out of leave_out, or name another answer"
    classes = made.classes()
    if len(classes) == 1:
        yield f"{made.answer} has one class, {listed(classes)}; a model needs two: name another answer"
    elif len(classes) > _MANY_CLASSES:
        yield f"{made.answer} has {len(classes)} classes; is it the answer?"
    elif classes and min(classes.values()) < _RARE * sum(classes.values()):
        rare = [name for name, count in classes.items() if count < _RARE * sum(classes.values())]
        yield (
            f"{listed(rare, 4)} in less than a tenth of the rows: compare models by balanced accuracy, since a model "
            "that never finds a rare class may still look accurate"
        )


def sniffed(path: Path) -> tuple[Any, dict[str, Any]]:
    """How a CSV file seems to be written, and the options that say so.

    Raises:
        DataError: it is no text.
    """
    from fedplug_std import _table_files as files

    content = path.read_bytes()
    options: dict[str, Any] = {}
    reading = files.Reading()
    try:
        text = files.text_of(path, content, "utf-8")
    except DataError:
        text = files.text_of(path, content, "cp1252")
        options["encoding"] = "cp1252"
        reading = dataclasses.replace(reading, encoding="cp1252")
    usual = reading.separator(path)
    between = _separator(text, usual)
    if between != usual:
        options["delimiter"] = between
        reading = dataclasses.replace(reading, delimiter=between)
    form = _form(files.csv_rows(path, content, reading), between)
    if form != Form():
        options |= _columns.form_options(form)
        reading = dataclasses.replace(reading, form=form)
    return reading, options


def _separator(text: str, usual: str) -> str:
    """The sign that divides the first lines into most columns, as many in each."""
    import csv
    import io

    from fedplug_std._table_files import SEPARATOR, SIGNS

    if SEPARATOR.match(text):
        return usual  # the file says it
    best, most = usual, 1
    for sign in (usual, *(sign for sign in SIGNS if sign != usual)):
        try:
            lines = csv.reader(io.StringIO(text, newline=""), delimiter=sign)
            rows = [*itertools.islice(lines, 50)]
        except csv.Error:
            continue
        widths = [len(row) for row in rows if row]
        same = sum(width == widths[0] for width in widths)
        if widths[0] > most and same > 0.8 * len(widths):
            best, most = sign, widths[0]
    return best


def _form(rows: Rows, between: str) -> Form:
    """The form in which most texts are numbers that would be none; plain where that is so of no column."""
    best, most = Form(), 0
    forms = sorted(_columns.FORMS, key=lambda form: (form.decimal == ",") != (between == ";"))
    for form in forms:
        if any(_contradicts(column, form) for column in rows.columns.values()):
            continue
        gained = 0
        for column in rows.columns.values():
            if column.words is None or column.readings is None or not np.isnan(column.readings).any():
                continue
            read = [not math.isnan(form.number(word)) for word in column.words]
            if sum(read) >= 0.9 * len(read):
                gained += sum(read) - int((~np.isnan(column.readings)).sum())
        if gained > most:
            best, most = form, gained
    return best


def _contradicts(column: Column, form: Form) -> bool:
    """Whether a column has numbers that are none in this form."""
    if column.words is not None and column.readings is not None:
        pairs = zip(column.words, column.readings, strict=True)
        return any(not math.isnan(number) and math.isnan(form.number(word)) for word, number in pairs)
    if column.values.dtype.kind != "f" or form.decimal == "." or column.gaps.all():
        return False
    # 1.234 may be 1234, but 1.2 is not.
    hundreds, thousands = (column.values[~column.gaps] * factor for factor in (100, 1000))
    of_three = np.abs(thousands - np.rint(thousands)) < 1e-6
    fewer = np.abs(hundreds - np.rint(hundreds)) < 1e-6
    return form.thousands != "." or not bool(of_three.all()) or bool(fewer.all())
