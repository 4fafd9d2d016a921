"""Named columns, from a table or a Hugging Face data set, as inputs and answers of a model.

Every column is read as the recipe declares it. Nothing is guessed, since a guess could differ for another file: texts
become numbers only through the recipe's categories, and gaps only through its fill values or indicators.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug.api.data import Dataset, Examples
from fedplug.api.errors import DataError

from fedplug_std.options import MISSING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_std.options import RowOptions, TextTableOptions

FEW = 20
"""Up to this many different texts are listed as possible categories of a column."""
PLAIN = r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""A number as programs write it. A column with others, such as 007, keeps its texts: they may be codes."""
_PLAIN = re.compile(PLAIN)
_WHOLE = re.compile(r"-?[0-9]+")
EXACT = 2**53
"""Whole numbers below it are exact as float64."""
_SIMPLE = re.compile(r"/?[^\W\d](?:[\w./ -]*[\w./-])?")
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
_TRUTH = {"true": 1.0, "false": 0.0}
_DAY = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})")
_DATE = re.compile(rf"(?:{_DAY.pattern})(?:[ T]\d{{1,2}}:\d{{2}}.*)?|\d{{1,2}}:\d{{2}}(?::\d{{2}}(?:\.\d+)?)?")


@dataclasses.dataclass(frozen=True)
class Form:
    """How a file writes numbers: the sign before their fraction, and the one between thousands, if any."""

    decimal: str = "."
    thousands: str | None = None

    def plain(self, word: str) -> str:
        """A number as programs write it; what is none in this form, or has no such signs, is unchanged or `?`."""
        if self.decimal == "." and self.thousands is None:
            return word
        if self.thousands == " ":
            word = word.replace("\u00a0", " ").replace("\u202f", " ")
        whole, mark, rest = word.partition(self.decimal)
        if self.thousands is not None and self.thousands in whole:
            if not re.fullmatch(rf"[+-]?\d{{1,3}}(?:{re.escape(self.thousands)}\d{{3}})+", whole):
                return "?"
            whole = whole.replace(self.thousands, "")
        # A point where the fraction begins with a comma is a number of another form, or none.
        if self.decimal != "." and "." in whole + rest:
            return "?"
        return f"{whole}.{rest}" if mark else whole

    def number(self, word: str) -> float:
        """The number that a text is; NaN where it is none."""
        said = word.strip()
        if said.lower() in _TRUTH:
            return _TRUTH[said.lower()]
        said = self.plain(said)
        try:
            return math.nan if "_" in said else float(said)
        except ValueError:
            return math.nan


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """One column: of numbers, or of texts.

    Attributes:
        values: (n,), numbers, or places among `words`; the value in a gap means nothing.
        gaps: bool (n,), True where a value is missing.
        words: the different texts of a column of texts, without blanks around them; None: it has numbers.
        readings: float64 (words,), the number that each text is, NaN where it is none.
        absent: the different texts that lie in gaps, such as `NA`; without the empty one.
    """

    values: NDArray[Any]
    gaps: NDArray[np.bool_]
    words: tuple[str, ...] | None = None
    readings: NDArray[np.float64] | None = None
    absent: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, words: Sequence[str], places: NDArray[Any], gaps: frozenset[str] = frozenset(), form: Form | None = None
    ) -> Column:
        """A column of texts, which has numbers if all of them are plain numbers.

        Args:
            words: different texts.
            places: (n,), of each row's text among them.
            gaps: words for a missing value, in lower case.
            form: of numbers.
        """
        form = form or Form()
        stripped = [word.strip() for word in words]
        empty = np.array([word.lower() in gaps for word in stripped], bool)
        kept = list(dict.fromkeys(word for word, gap in zip(stripped, empty, strict=True) if not gap))
        at = {word: place for place, word in enumerate(kept)}
        moved = np.array([at.get(word, 0) for word in stripped], np.int64)
        absent = tuple(dict.fromkeys(word for word, gap in zip(stripped, empty, strict=True) if gap and word))
        missing = empty[places] if len(empty) else np.zeros(len(places), bool)
        found = _numbers(kept, form)
        if found is not None:
            found = found if len(found) else np.zeros(1)
            values = found[moved[places]] if len(moved) else np.zeros(len(places))
            values[missing] = 0
            return cls(values, missing, absent=absent)
        codes = moved[places].astype(np.int32)
        codes[missing] = 0
        return cls(codes, missing, tuple(kept), np.array([form.number(word) for word in kept], np.float64), absent)

    def take(self, rows: NDArray[Any]) -> Column:
        """Some rows of it."""
        return dataclasses.replace(self, values=self.values[rows], gaps=self.gaps[rows])

    def coded(self) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.float64]]:
        """The different values as texts, the place of each row's among them, int64 (n,), and the numbers they are.

        A whole number is `1`, not `1.0`, if all are whole. A gap has any place.
        """
        found, places = self._found()
        if self.words is not None:
            return tuple(self.words[place] for place in found), places, self._read(found)
        whole = found.dtype.kind == "f" and bool((found == np.rint(found)).all() and (np.abs(found) < EXACT).all())
        texts = tuple(str(value) for value in (found.astype(np.int64) if whole else found).tolist())
        return texts, places, self._read(found)

    def numbered(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """As `coded`, without the texts."""
        found, places = self._found()
        return places, self._read(found)

    def _found(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        found, places = np.unique(self.values, return_inverse=True)
        return found, places.reshape(-1)

    def _read(self, found: NDArray[Any]) -> NDArray[np.float64]:
        return found.astype(np.float64) if self.readings is None else self.readings[found]

    def texts(self) -> NDArray[Any]:
        """Its values as texts, objects (n,); a gap is empty."""
        words, places, _ = self.coded()
        found = np.array(words or ("",), object)[places] if len(places) else np.empty(0, object)
        found[self.gaps] = ""
        return found

    def different(self) -> dict[str, int]:
        """The different values that it has, in order, and in how many rows."""
        words, places, readings = self.coded()
        counts = np.bincount(places[~self.gaps], minlength=len(words))
        numbered, order = not np.isnan(readings[counts > 0]).any(), list(range(len(words)))
        if self.words is not None:  # numbers are in order
            order.sort(key=lambda k: (readings[k] if numbered else 0.0, words[k]))
        return {words[k]: int(counts[k]) for k in order if counts[k]}

    @property
    def is_text(self) -> bool:
        """Whether it holds texts that are neither numbers nor true and false.

        A column of numbers with a typing error is none: the row is refused.
        """
        if self.words is None:
            return False
        return float(np.isnan(self._reads()).mean()) > 0.5 if len(self) > self.gaps.sum() else False

    @property
    def is_date(self) -> bool:
        """Whether most of its texts are dates or times."""
        if not self.is_text:
            return False
        shown = [*self.different()][:50]
        return sum(_DATE.fullmatch(word) is not None for word in shown) > len(shown) / 2

    def _reads(self) -> NDArray[np.float64]:
        """The numbers of the rows that have a value; NaN for a text."""
        assert self.readings is not None
        found: NDArray[np.float64] = self.readings[self.values[~self.gaps]]
        return found

    def __len__(self) -> int:
        return len(self.gaps)


def _numbers(words: Sequence[str], form: Form) -> NDArray[Any] | None:
    """Plain numbers as int64 or float64, exactly as written; None where one is no number, or needs more digits."""
    plain = [form.plain(word) for word in words]
    if not all(map(_PLAIN.fullmatch, plain)):
        return None
    if all(map(_WHOLE.fullmatch, plain)):
        whole = [int(word) for word in plain]
        return np.array(whole, np.int64) if all(-(2**63) <= number < 2**63 for number in whole) else None
    found = np.array([float(word) for word in plain], np.float64)
    return found if bool((np.abs(found) < EXACT).all()) else None


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Columns of equal length by name, and their source, for messages.

    `numbers`, int64 (n,), counts the rows as a reader of the file does: lines of a CSV file, else rows from 1.
    `nameless` are columns that the file does not name.
    """

    columns: dict[str, Column]
    place: str
    numbers: NDArray[np.int64]
    unit: Literal["line", "row"] = "row"
    form: Form = Form()
    nameless: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: NDArray[Any]) -> Rows:
        """Some of the rows."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return dataclasses.replace(self, columns=columns, numbers=self.numbers[rows])

    def column(self, name: str, why: str) -> Column:
        """The column of this name. Raises a DataError if there is none; `why` is the option that names it."""
        self.require([name], why)
        return self.columns[name]

    def require(self, names: Sequence[str], why: str) -> None:
        """Refuses names that are no columns, all of them at once."""
        absent = [name for name in names if name not in self.columns]
        if not absent:
            return
        alike = {name.strip().casefold(): name for name in self.columns}
        meant = [alike[name.strip().casefold()] for name in absent if name.strip().casefold() in alike]
        titles = [*self.columns]
        values = sum(not math.isnan(self.form.number(title)) for title in titles)
        if meant:
            remedy = f"Write {listed(meant)}"
        elif values >= len(titles) / 4:
            remedy = "The first line seems to hold values: put a line with the names of the columns above it"
        else:
            remedy = f"Add the column{'s' if len(absent) > 1 else ''}, or change {why}"
        named = "column" if len(absent) == 1 else "columns"
        raise DataError(
            f"{self.place} has no {named} {listed(absent)}, which {why} names; it has {listed(titles)}. {remedy}"
        )

    def places(self, wrong: NDArray[np.bool_]) -> str:
        """The location of rows in words: their number, and the first of them."""
        rows = self.numbers[wrong].tolist()
        shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        return f"{len(rows)} {self.unit}{'s' if len(rows) > 1 else ''} ({shown})"


def listed(names: Any, most: int = 12) -> str:
    """A few names, in words; of signs that would break a line, their escapes."""
    given = [text if text.isprintable() else repr(text) for text in map(str, names)]
    more = f" and {len(given) - most} more" if len(given) > most else ""
    return (", ".join(given[:most]) or "none") + more


def flow(value: Any) -> str:
    """A value as YAML in one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{quoted(key)}: {flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def quoted(text: Any) -> str:
    """A text as YAML reads it: between quotes where it would be something else."""
    said = str(text)
    if _SIMPLE.fullmatch(said) and said.lower() not in _YAML_WORDS:
        return said
    return json.dumps(said, ensure_ascii=False)


def folded(word: str) -> str:
    """A text without what a typist changes: capitals, and blanks."""
    return " ".join(word.casefold().split())


def alike(words: Sequence[str], form: Form) -> list[list[str]]:
    """Different texts that look like one: by capitals or blanks, or since they are one number."""
    found: dict[Any, list[str]] = {}
    for word in words:
        number = form.number(word)
        # From 2^53 on, different numbers are one float.
        found.setdefault(number if abs(number) < EXACT else folded(word), []).append(word)
    return [group for group in found.values() if len(group) > 1]


def prepared(options: RowOptions, rows: Rows) -> Rows:
    """The rows with the texts that `replace` gives, without those in which a column of `drop_gaps` has no value.

    Raises:
        DataError: a column is missing, or no row is left.
    """
    rows.require([*options.replace], "replace")
    rows.require(options.drop_gaps, "drop_gaps")
    if options.replace:
        changed = {name: replaced(rows.columns[name], said, rows.form) for name, said in options.replace.items()}
        rows = dataclasses.replace(rows, columns=rows.columns | changed)
    if not len(rows):
        raise DataError(f"{rows.place} has no rows; put examples there")
    if options.drop_gaps:
        missing = np.any([rows.columns[name].gaps for name in options.drop_gaps], 0)
        if missing.all():
            raise DataError(
                f"{rows.place}: every row has a gap in {listed(options.drop_gaps)}, so drop_gaps leaves none; name "
                "fewer columns"
            )
        rows = rows.take(~missing)
    return rows


def replaced(column: Column, said: Mapping[str, str], form: Form) -> Column:
    """A column with other texts in place of some; an empty one makes a gap."""
    words, places, readings = column.coded()
    places = np.where(column.gaps, len(words), places)
    own = Form() if column.words is None else form
    texts: list[str] = []
    plain: list[str | None] = []
    for word, number in zip(words, readings, strict=True):
        key = stated_as(word, number, [*said], form)
        texts.append(word if key is None else said[key])
        # A recipe writes numbers as programs do, or as the file does.
        plain.append(_plain_number(texts[-1], (own,) if key is None else (Form(), form)))
    numbered = [each for each in plain if each is not None]
    if len(numbered) == len(plain):
        return Column.of([*numbered, ""], places, frozenset({""}))
    return Column.of([*texts, ""], places, frozenset({""}), own)


def _plain_number(text: str, forms: Sequence[Form]) -> str | None:
    """A number in one of the forms as programs write it, an empty text as it is; None for others."""
    if not text.strip():
        return ""
    return next((form.plain(text) for form in forms if _PLAIN.fullmatch(form.plain(text))), None)


def stated_as(word: str, number: float, stated: Sequence[str], form: Form) -> str | None:
    """Which of the stated texts a value is: the same one, or the same number; None: none of them."""
    if word in stated:
        return word
    if not abs(number) < EXACT:
        return None
    return next((each for each in stated if number in (form.number(each), Form().number(each))), None)


def used(options: RowOptions, rows: Rows, besides: Sequence[str] = ()) -> tuple[str, ...]:
    """The input columns of the model: those that are named, or all except the answer and `leave_out`."""
    rows.require(options.answer, "answer")
    if options.features:
        rows.require(options.features, "features")
        return options.features
    rows.require(options.leave_out, "leave_out")
    away = {*options.answer, *options.leave_out, *besides, options.user}
    return tuple(name for name in rows.columns if name not in away)


Report = Callable[[str], None]
"""Takes a problem of a column, as a clause; all of a file are reported together."""


def inputs(
    options: RowOptions, rows: Rows, names: Sequence[str], report: Report
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """The inputs of the model, float32 (n, columns), and the names of their columns.

    What is wrong is reported: an option names another column, or a column has gaps, holds texts without stated
    categories, or a value that is not a number. The inputs are then useless.

    Raises:
        DataError: no column is an input.
    """
    for option in ("categories", "fill", "scale", "missing_indicators"):
        known = {*names, *(options.answer if option == "fill" else ())}
        if strange := [name for name in getattr(options, option) if name not in known]:
            report(
                f"{option} names {listed(strange)}, which are not inputs of the model; its inputs are {listed(names)}. "
                f"Add it to features, or take it out of {option}"
            )
    if not names:
        raise DataError(f"{rows.place} has no column except the answer and those left out; name some with features")
    parts, titles = [], []
    for name in names:
        column = rows.columns[name]
        stated = options.categories.get(name)
        if name in rows.nameless and not options.features:
            shown = listed(column.different(), 3)
            report(f"{name} has no name in the first line (it holds {shown}); name it, or write leave_out: [{name}]")
            continue
        if stated is None and column.is_text:
            report(_uncategorised(name, column, options, rows.form))
            continue
        marked = name in options.missing_indicators
        missing = column.gaps
        if missing.any() and name in options.fill:
            column = _filled(column, options.fill[name], rows.form)
        if column.gaps.any() and not marked:
            report(gap_problem(rows, name, column))
            continue
        if stated is not None:
            parts.append(_one_hot(rows, name, column, stated, report))
            titles += [f"{name}={category}" for category in stated]
        else:
            numbers_ = numbers(rows, name, column, report)
            centre, spread = options.scale.get(name, (0.0, 1.0))
            # A gap with an indicator adds nothing: it is the centre.
            parts.append(np.where(column.gaps, 0.0, (numbers_ - centre) / spread)[:, None])
            titles.append(name)
        if marked:
            parts.append(missing.astype(np.float64)[:, None])
            titles.append(f"{name}={MISSING}")
    if not parts:
        return np.zeros((len(rows), 1), np.float32), ("",)
    return np.concatenate(parts, 1).astype(np.float32), tuple(titles)


def gap_problem(rows: Rows, name: str, column: Column, answer: bool = False) -> str:
    """What is wrong with gaps, and how a recipe may treat them. No value is suggested: that would be an invention."""
    if column.gaps.all():
        return f"column {name} has no value in any row; " + (
            "name another answer" if answer else f"leave it out (leave_out: [{name}])"
        )
    said = f"column {name} has no value in {rows.places(column.gaps)}; "
    if column.absent and column.words is not None:
        key = "classes" if answer else f"categories of {name}"
        said += f"{listed(column.absent)} counts as a gap; to keep it, name it among the {key}; or "
    if answer:
        return f"{said}leave these rows out (drop_gaps: [{name}]), or state their answer (fill)"
    return (
        f"{said}add an input that marks gaps (missing_indicators: [{name}]), state a value that you choose (fill), "
        f"leave these rows out (drop_gaps: [{name}]), or leave out the column (leave_out: [{name}])"
    )


def _uncategorised(name: str, column: Column, options: RowOptions, form: Form) -> str:
    """What is wrong with a column of texts without categories, and the remedy."""
    found = [*column.different()]
    if (other := form_of(found, FORMS)) is not None and other != form:
        return (
            f"column {name} has numbers in another form, such as {found[0]!r}; for {other.number(found[0]):.15g} write "
            f"{flow(form_options(other))[1:-1]}"
        )
    if len(found) == 1 and not column.gaps.any():
        return f"column {name} has one text, {listed(found)}, in all rows; leave it out (leave_out: [{name}])"
    if column.is_date:
        return (
            f"column {name} has dates or times, such as {listed(found[:1])}; leave it out (leave_out: [{name}]), or "
            "add a column with a number, such as days since a fixed day"
        )
    if len(found) > FEW:
        return (
            f"column {name} has {len(found)} different texts ({listed(found, 3)}); leave it out (leave_out: [{name}]), "
            "or state its categories"
        )
    if name in options.fill and column.gaps.any() and str(options.fill[name]) not in found:
        found.append(str(options.fill[name]))
    said = f"column {name} has texts ({listed(found, 5)}); state its categories: {{{quoted(name)}: {flow(found)}}}"
    if same := alike(found, form):
        said += f", or read those that look alike as one: replace: {flow({name: merging(same, column.different())})}"
    return said


def _filled(column: Column, value: float | str, form: Form) -> Column:
    """A column with this value in its gaps."""
    if column.words is None and not isinstance(value, str):
        whole = column.values.dtype.kind in "iu" and float(value).is_integer()
        values = column.values.astype(column.values.dtype if whole else np.float64)
        values[column.gaps] = int(value) if whole else value
        return Column(values, np.zeros_like(column.gaps))
    # The form in a file: a category called 3 is not 3.0.
    said = f"{value:.15g}" if isinstance(value, float) else str(value)
    words, places, readings = column.coded()
    known = stated_as(said, Form().number(said), [*words], form)
    at = words.index(known) if known is not None else len(words)
    rest = () if known is not None else (said,)
    again = np.append(readings, [Form().number(said)] * len(rest))
    return Column(np.where(column.gaps, at, places).astype(np.int32), np.zeros_like(column.gaps), words + rest, again)


def filled(rows: Rows, name: str, options: RowOptions) -> Column:
    """A column of answers without gaps.

    Raises:
        DataError: it is missing, or has gaps without a stated value; the message names the rows.
    """
    column = rows.column(name, "answer")
    if not column.gaps.any():
        return column
    if name not in options.fill:
        raise DataError(f"{rows.place}: {gap_problem(rows, name, column, answer=True)}")
    return _filled(column, options.fill[name], rows.form)


def numbers(rows: Rows, name: str, column: Column, report: Report) -> NDArray[np.float64]:
    """The numbers of a column, float64 (n,), 0 in a gap; reported where one is none, or not finite."""
    if column.words is None:
        found = column.values.astype(np.float64)
    else:
        assert column.readings is not None
        found = column.readings[column.values]
        wrong = np.isnan(found) & ~column.gaps
        if wrong.any():
            first = column.words[int(column.values[int(wrong.argmax())])]
            report(
                f"column {name} holds values that are not numbers in {rows.places(wrong)}, first {first[:40]!r}; "
                f"{_meant(first, rows.form, name)}"
            )
            return np.zeros(len(rows))
    found = np.where(column.gaps, 0.0, found)
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(found.astype(np.float32))
    if wrong.any():
        report(
            f"column {name} holds {found[int(wrong.argmax())]:g}, which is not a finite number, in "
            f"{rows.places(wrong)}; correct these rows, or make them gaps (replace)"
        )
        return np.zeros(len(rows))
    return found


FORMS = (Form(thousands=","), Form(","), Form(",", "."), Form(".", " "), Form(",", " "), Form(".", "'"))


def forms_of(word: str) -> list[Form]:
    """The forms in which a text is a number."""
    return [form for form in FORMS if not math.isnan(form.number(word))]


def form_of(words: Sequence[str], forms: Sequence[Form]) -> Form | None:
    """The first form in which nearly all texts are numbers; None: there is none."""
    return next((form for form in forms if sum(not math.isnan(form.number(word)) for word in words)
                 >= 0.9 * len(words)), None)  # fmt: skip


def form_options(form: Form) -> dict[str, str]:
    """The options that state a form."""
    said = {"decimal": form.decimal} if form.decimal != "." else {}
    return said | ({"thousands": form.thousands} if form.thousands else {})


def _meant(word: str, form: Form, name: str) -> str:
    """How to have a text read that is no number in a form."""
    found: dict[float, Form] = {}
    for each in forms_of(word):
        found.setdefault(each.number(word), each)
    if found:
        ways = [f"for {number:.15g} write {flow(form_options(each))[1:-1]}" for number, each in found.items()]
        return f"{', '.join(ways)}, or correct it"
    return (
        f"correct it, make it a gap (replace: {{{quoted(name)}: {{{quoted(word[:40])}: \"\"}}}}), leave the column out "
        f"(leave_out: [{quoted(name)}]), or state its categories"
    )


def _one_hot(rows: Rows, name: str, column: Column, stated: Sequence[str], report: Report) -> NDArray[np.float64]:
    """0 or 1 for each stated category, float64 (n, categories); all 0 in a gap."""
    words, places, readings = column.coded()
    known = [stated_as(word, number, stated, rows.form) for word, number in zip(words, readings, strict=True)]
    at = np.array([-1 if each is None else stated.index(each) for each in known], np.int64)[places]
    at[column.gaps] = -2
    wrong = at == -1
    if wrong.any():
        others = sorted({words[place] for place in np.unique(places[wrong])})
        report(
            f"column {name} holds {listed(others, 5)} in {rows.places(wrong)}, but categories.{name} has "
            f"{listed(stated)}; {_or_meant(name, others, stated)}add the missing ones to the recipe, or correct the "
            "column"
        )
    found: NDArray[np.float64] = (at[:, None] == np.arange(len(stated))).astype(np.float64)
    return found


def _or_meant(name: str, others: Sequence[str], stated: Sequence[str]) -> str:
    """Which stated texts others may be, as an option."""
    by = {folded(each): each for each in stated}
    meant = {other: by[folded(other)] for other in others if folded(other) in by}
    return f"write replace: {flow({name: meant})}, " if meant else ""


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
    """Names of a model's outputs: those in the recipe, or the different answers in order.

    Raises:
        DataError: answers are fractions, or two look like one.
    """
    if options.predict != "classes":
        return options.answer
    if options.classes:
        return options.classes
    (name,) = options.answer
    counts: dict[str, int] = {}
    for rows in parts:
        for text, count in filled(rows, name, options).different().items():
            counts[text] = counts.get(text, 0) + count
    form = parts[0].form
    read = {text: form.number(text) for text in counts}
    if not any(map(math.isnan, read.values())):
        fractions = [text for text, number in read.items() if number != math.floor(number)]
        if fractions:
            raise DataError(
                f"{parts[0].place}: column {name} holds numbers such as {fractions[0]}, which are not classes; write "
                "predict: numbers for a regression, or name another answer"
            )
    if same := alike([*counts], form):
        raise DataError(f"{parts[0].place}: {alike_problem(name, same, counts)}")
    if not any(map(math.isnan, read.values())):
        return tuple(sorted(counts, key=lambda text: (read[text], text)))
    return tuple(sorted(counts))


def alike_problem(name: str, same: Sequence[Sequence[str]], counts: Mapping[str, int]) -> str:
    """The question whether texts that look alike are one class, and how to answer it."""
    groups = [" and ".join(f"{word} ({counts[word]})" for word in group) for group in same]
    merged = merging(same, counts)
    return (
        f"column {name} holds {', '.join(groups)}, which look like one class; if so, write "
        f"replace: {flow({name: merged})}, and if not, classes: {flow([*counts])}"
    )


def merging(same: Sequence[Sequence[str]], counts: Mapping[str, int]) -> dict[str, str]:
    """Texts that look alike, each with the commonest of them."""
    said: dict[str, str] = {}
    for group in same:
        first = max(group, key=lambda word: counts[word])
        said |= {word: first for word in group if word != first}
    return said


def answers(options: RowOptions, rows: Rows, classes: tuple[str, ...]) -> Answers:
    """The answers.

    Raises:
        DataError: a column is missing, has gaps, or holds a value that is not an answer of the predicted kind.
    """
    from fedplug_std._dataset_files import fifths
    from fedplug_std.datasets import FIFTHS

    rows.require(options.answer, "answer")
    if options.predict == "classes":
        return Answers(_places(options, rows, classes), None, classes)
    said: list[str] = []
    columns = [numbers(rows, name, filled(rows, name, options), said.append) for name in options.answer]
    if said:
        raise DataError("\n".join(f"{rows.place}: {each}" for each in said))
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
    words, places, readings = filled(rows, name, options).coded()
    known = [stated_as(word, number, classes, rows.form) for word, number in zip(words, readings, strict=True)]
    numbered = [str(number) for number in range(len(classes))]
    at = [-1 if each is None else classes.index(each) for each in known]
    if {*words} <= {*numbered} and not any(each is not None for each in known):
        at = [numbered.index(word) for word in words]
    found = np.array(at, np.int64)[places] if at else np.zeros(len(rows), np.int64)
    wrong = found < 0
    if wrong.any():
        others = sorted({words[place] for place in np.unique(places[wrong])})
        raise DataError(
            f"{rows.place}: column {name} holds {listed(others, 5)} in {rows.places(wrong)}, but the "
            f"classes are {listed(classes)} (or 0 to {len(classes) - 1}); {_or_meant(name, others, classes)}state all "
            "of them: classes: [...]"
        )
    return found


def dataset(options: RowOptions, train: Rows, test: Rows | None, besides: Sequence[str] = ()) -> Dataset:
    """The data set of these rows; without rows for testing, a fraction of the others is set aside.

    Args:
        options: the role of each column, and the fraction to set aside.
        train, test: the rows.
        besides: columns that are neither inputs nor answers.

    Raises:
        DataError: names the file, all columns and rows that are wrong, the problems and the remedies.
    """
    from fedplug_std import _dataset_files as files

    parts = [prepared(options, part) for part in (train, test) if part is not None]
    names = used(options, parts[0], besides)
    for part in parts[1:]:
        part.require(options.answer, "answer")
        part.require(names, "features" if options.features else train.place)
    problems: list[tuple[Rows, str]] = []
    given = []
    for part in parts:
        given.append(inputs(options, part, names, lambda said, part=part: problems.append((part, said))))  # type: ignore[misc]
    asked: list[Answers] = []
    try:
        classes = classes_of(options, parts)
        asked = [answers(options, part, classes) for part in parts]
    except DataError as error:
        if not problems:
            raise
        problems.append((train, str(error).removeprefix(f"{train.place}: ")))
    if problems:
        raise DataError("\n".join(f"{rows.place}: {said}" for rows, said in problems))
    made = [
        Examples(array, its.labels, its.targets, users=users(options, part))
        for (array, _), its, part in zip(given, asked, parts, strict=True)
    ]
    first, second = files.two_parts(made, options, train.place)
    data = files.dataset(first, second, options, classes, kinds=asked[-1].kinds)
    return dataclasses.replace(data, columns=given[0][1])


def users(options: RowOptions, rows: Rows) -> NDArray[np.int64] | None:
    """A number for the user of each row, (n,); None where no column says it. A gap is refused."""
    if options.user is None:
        return None
    column = rows.column(options.user, "user")
    if column.gaps.any():
        raise DataError(
            f"{rows.place}: column {options.user} names no user in {rows.places(column.gaps)}; leave these rows out "
            f"(drop_gaps: [{options.user}])"
        )
    return column.coded()[1]


def texts(options: TextTableOptions, train: Rows, test: Rows | None) -> Dataset:
    """The data set of a column of texts, split as `dataset` splits rows.

    Raises:
        DataError: names the file, and the columns and rows that are wrong.
    """
    from fedplug_std import _dataset_files as files

    parts = [prepared(options, part) for part in (train, test) if part is not None]
    given = []
    for part in parts:
        column = part.column(options.text, "text")
        if column.gaps.any():
            said = f"; {listed(column.absent)} counts as a gap (gaps)" if column.absent else ""
            raise DataError(
                f"{part.place}: column {options.text} has no text in {part.places(column.gaps)}{said}; leave these "
                f"rows out (drop_gaps: [{options.text}])"
            )
        given.append(files.padded(column.texts().tolist(), options.length))
        part.require(options.answer, "answer")
    classes = classes_of(options, parts)
    asked = [answers(options, part, classes) for part in parts]
    made = [
        Examples(array, its.labels, its.targets, users=users(options, part))
        for array, its, part in zip(given, asked, parts, strict=True)
    ]
    first, second = files.two_parts(made, options, train.place)
    return files.dataset(first, second, options, classes, kinds=asked[-1].kinds)


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
        made = "features and categories" + (" and missing_indicators" if options.missing_indicators else "")
        said.append(f"{made} make {width(options)} columns, but data.agreed.shape says {list(agreed.shape)}")
    if agreed is not None and agreed.mean:
        said.append("columns of a table are scaled by data.scale; write mean: [] and std: [] in data.agreed")
    return said


def width(options: RowOptions) -> int:
    """The number of a model's inputs, if the features are named."""
    return sum(
        len(options.categories.get(name, ("",))) + (name in options.missing_indicators) for name in options.features
    )
