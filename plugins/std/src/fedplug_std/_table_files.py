"""Reads the files of tables: CSV by Python or, with equal results, by pyarrow; Parquet by pyarrow."""

from __future__ import annotations

import csv
import dataclasses
import functools
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import DataError, SetupError

from fedplug_std import _table_cache
from fedplug_std._columns import EXACT, PLAIN, Column, Form, Rows, listed
from fedplug_std.options import GAPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_std.options import TableOptions

_KINDS = {"csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"), "parquet": (".parquet", ".pq")}
SIGNS = ";\t|,"
"""Separators of columns that are looked for where a file seems to have one column."""
SEPARATOR = re.compile(r"sep=(.)(?:\r\n|\r|\n)")
"""A first line by which Excel tells itself the separator."""
_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_EXCEL = {
    b"PK\x03\x04": "is an Excel workbook or another archive",
    b"\xd0\xcf\x11\xe0": "is a workbook of an old Excel",
}
_AS_CSV = "save its sheet as CSV UTF-8, or convert it: pandas.read_excel(...).to_csv(FILE, index=False)"


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a file is written."""

    delimiter: str | None = None
    form: Form = dataclasses.field(default_factory=Form)
    encoding: str = "utf-8"
    gaps: frozenset[str] = frozenset(word.lower() for word in GAPS)

    @classmethod
    def of(cls, options: TableOptions) -> Reading:
        """Of a recipe: a word that it names as a category, a class or a test value is no gap."""
        named = {word.strip().lower() for words in (*options.categories.values(), options.classes) for word in words}
        gaps = {word.strip().lower() for word in options.gaps} - named - {options.test_value.strip().lower()}
        form = Form(options.decimal, options.thousands)
        return cls(options.delimiter, form, options.encoding, frozenset(gaps | {""}))

    def plain(self) -> list[Any]:
        """The same as JSON takes it."""
        return [self.delimiter, dataclasses.astuple(self.form), self.encoding, sorted(self.gaps)]

    def separator(self, path: Path) -> str:
        """The separator of the columns of a CSV file."""
        return self.delimiter or ("\t" if ".tsv" in map(str.lower, path.suffixes) else ",")


def read(path: Path, reading: Reading) -> Rows:
    """The rows of a file, from the cache where they are there.

    Raises:
        DataError: it is missing, damaged, or of another format.
        SetupError: the library that reads it is not installed.
    """
    kind = kind_of(path)
    try:
        return _table_cache.kept(path, reading.plain(), lambda content: _parsed(path, kind, content, reading))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _parsed(path: Path, kind: str, content: bytes, reading: Reading) -> Rows:
    return _without_empty(csv_rows(path, content, reading) if kind == "csv" else _parquet(path, content, reading))


def kind_of(path: Path) -> str:
    """`csv` or `parquet`, by the name of a file that is there.

    Raises:
        DataError: it is missing, or its name ends otherwise.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it with data: {{file: ...}}")
    if not path.is_file():
        raise DataError(f"there is no file {path}; put it there, or name another with data: {{file: ...}}")
    name = path.name.lower()
    for kind, endings in _KINDS.items():
        if name.endswith(endings):
            return kind
    if name.endswith((".xlsx", ".xls", ".xlsm", ".ods")):
        raise DataError(f"{path} is a workbook, which fedplug does not read; {_AS_CSV}")
    known = ", ".join(ending for endings in _KINDS.values() for ending in endings)
    raise DataError(f"{path} has none of the endings {known}, which determine the format; rename it")


def _without_empty(rows: Rows) -> Rows:
    """The rows without those in which no column has a value."""
    if not rows.columns or not len(rows):
        return rows
    empty = np.ones(len(rows), bool)
    for column in rows.columns.values():
        empty &= column.gaps
        if not empty.any():
            return rows
    return rows.take(~empty)


def csv_rows(path: Path, content: bytes, reading: Reading, fast: bool = True) -> Rows:
    """The rows of a CSV file, lines in which nothing is written included.

    Args:
        path: for messages, and to find out the separator.
        content: of the file.
        reading: how it is written.
        fast: whether pyarrow may parse it, with the same result.

    Raises:
        DataError: it is no table; the message names the line and a remedy.
    """
    text = text_of(path, content, reading.encoding)
    between, skipped = reading.separator(path), 0
    if told := SEPARATOR.match(text):
        between, skipped, text = reading.delimiter or told[1], 1, text[told.end() :]
    found = _by_arrow(text, between, reading, skipped) if fast else None
    titles, columns, numbers = found or _by_python(path, text, between, reading, skipped)
    nameless = [k for k, title in enumerate(titles) if not title]
    names = [title or f"column {k}" for k, title in enumerate(titles, 1)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path} has several columns named {listed(twice)}; rename all but one of each")
    # A separator at the end of each line makes a column in which nothing is written.
    kept = {name: column for k, (name, column) in enumerate(zip(names, columns, strict=True))
            if k not in nameless or not column.gaps.all()}  # fmt: skip
    unnamed = tuple(names[k] for k in nameless if names[k] in kept)
    return Rows(kept, str(path), numbers, "line", reading.form, unnamed)


def text_of(path: Path, content: bytes, encoding: str) -> str:
    """The text of a file, whose first bytes may tell its encoding.

    Raises:
        DataError: it is packed and damaged, no text, or of another encoding.
    """
    if path.suffix.lower() == ".gz" or content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be read: {error}; correct it, or write it again") from error
    for mark, what in _EXCEL.items():
        if content.startswith(mark):
            raise DataError(f"{path} {what}, and no CSV file; {_AS_CSV}")
    if content[:4] == b"PAR1":
        raise DataError(f"{path} is a Parquet file; rename it to end with .parquet")
    encoding = next((known for mark, known in _MARKS if content.startswith(mark)), encoding)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(_undecoded(path, content, encoding, error)) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        wide = "; it may be UTF-16: write encoding: utf-16-le" if text.count("\0") > len(text) / 4 else ""
        raise DataError(f"{path}, line {line}: a byte of value 0, which no text has{wide or '; remove it'}")
    if not text.strip():
        raise DataError(f"{path} is empty; the first line must name every column")
    return text


def _undecoded(path: Path, content: bytes, encoding: str, error: UnicodeDecodeError) -> str:
    """What to do about a text of another encoding, with the line as it may be meant."""
    start = content.rfind(b"\n", 0, error.start) + 1
    line = content[start : content.find(b"\n", error.start) % (len(content) + 1)]
    number = content.count(b"\n", 0, error.start) + 1
    place = f"{path}, line {number}, is not {encoding} ({error.reason})"
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig"):
        return f"{place}; write another encoding, or save the file as UTF-8"
    shown = repr(line.decode("cp1252", "replace").strip()[:60])
    return f"{place}; if it reads {shown}, write encoding: cp1252, else save the file as UTF-8"


def _by_python(
    path: Path, text: str, between: str, reading: Reading, skipped: int
) -> tuple[list[str], list[Column], NDArray[np.int64]]:
    """Titles, columns, and the line of each row."""
    titles: list[str] = []
    rows: list[list[str]] = []
    numbers: list[int] = []
    ragged: list[tuple[int, int]] = []
    lines = csv.reader(
        io.StringIO(text, newline=""), delimiter=between, strict=True, skipinitialspace=not between.isspace()
    )
    try:
        for row in lines:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if not titles:
                titles = [title.strip() for title in row]
                _require_columns(path, titles, between, text)
                continue
            if len(row) > len(titles) and not any(map(str.strip, row[len(titles) :])):
                row = row[: len(titles)]
            if len(row) != len(titles):
                ragged.append((lines.line_num + skipped, len(row)))
            rows.append(row)
            numbers.append(lines.line_num + skipped)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {lines.line_num + skipped}, cannot be read: {error}; correct it, or write it again"
        ) from error
    if ragged:
        raise DataError(_uneven(path, ragged, len(titles)))
    return titles, [_coded(values, reading) for values in _columns_of(rows, len(titles))], np.array(numbers, np.int64)


def _columns_of(rows: Sequence[Sequence[str]], count: int) -> Iterator[Sequence[str]]:
    return zip(*rows, strict=True) if rows else itertools.repeat((), count)


def _coded(values: Sequence[str], reading: Reading) -> Column:
    """A column of texts, as `Column.of` makes it; plain numbers take a shorter way to the same."""
    if (plain := _plain(values, reading)) is not None:
        return plain
    places: dict[str, int] = {}
    codes = np.fromiter((places.setdefault(value, len(places)) for value in values), np.int64, len(values))
    return Column.of([*places], codes, reading.gaps, reading.form)


def _plain(values: Sequence[str], reading: Reading) -> Column | None:
    if reading.form != Form() or not values:
        return None
    text = "\n".join(values) + "\n"
    if text.count("\n") != len(values) or not _plain_or(reading.gaps).fullmatch(text):
        return None
    gaps = np.array([value.lower() in reading.gaps for value in values], bool)
    if gaps.all():
        return None
    given = ["0" if gap else value for value, gap in zip(values, gaps, strict=True)] if gaps.any() else values
    found: NDArray[Any]
    try:
        found = np.array([*map(int, given)], np.int64)
    except OverflowError:
        return None
    except ValueError:
        found = np.array([*map(float, given)], np.float64)
    return Column(found, gaps) if found.dtype.kind == "i" or _is_exact(found) else None


@functools.cache
def _plain_or(gaps: frozenset[str]) -> re.Pattern[str]:
    """Lines of plain numbers and of words for gaps."""
    return re.compile(rf"(?:(?:{PLAIN}|(?i:{'|'.join(map(re.escape, sorted(gaps)))}))\n)*+")


def _is_exact(found: NDArray[Any]) -> bool:
    return bool((np.abs(found) < EXACT).all())


def _require_columns(path: Path, titles: Sequence[str], between: str, text: str) -> None:
    """Refuses a first line that another separator divides."""
    if len(titles) > 1:
        return
    # With one column and another separator in it, the recipe names the wrong one.
    found = {sign: titles[0].count(sign) for sign in SIGNS if sign in titles[0] and sign != between}
    if not found:
        return
    sign = max(found, key=lambda each: found[each])
    ends = rf"[{re.escape(sign)}\r\n]"
    commas = sign != "," and re.search(rf"{ends}\s*-?\d+,\d+\s*(?:{ends}|$)", text)
    more = " and decimal: ','" if commas else ""
    raise DataError(f"{path} has one column, {titles[0]!r}; write delimiter: {sign!r}{more}")


def _uneven(path: Path, ragged: Sequence[tuple[int, int]], count: int) -> str:
    line, width = ragged[0]
    said = f"{path}, line {line}: {width} value{'s' * (width != 1)}, but the first line names {count} columns; correct "
    if len(ragged) == 1:
        return f"{said}the line"
    others = ", ".join(str(number) for number, _ in ragged[1:6]) + (", ..." if len(ragged) > 6 else "")
    return f"{said}it and {len(ragged) - 1} more such lines ({others})"


def _by_arrow(
    text: str, between: str, reading: Reading, skipped: int
) -> tuple[list[str], list[Column], NDArray[np.int64]] | None:
    """The same by pyarrow, several times as fast; None where it is not installed, or might read the text otherwise."""
    try:
        import pyarrow
        import pyarrow.csv
    except ImportError:
        return None
    head, _, body = text.partition("\n")
    if not head.strip() or not body or len(between.encode()) > 1:
        return None
    data = body.encode()
    lines = _lines(data, between)
    if lines is None or ('"' in head and not _well_quoted(np.frombuffer(head.encode(), np.uint8), between)):
        return None
    if "\r" in head[:-1]:
        return None
    titles = [title.strip() for title in next(csv.reader([head], delimiter=between, skipinitialspace=True))]
    names = [str(number) for number in range(len(titles))]
    if len(names) == 1:
        return None
    try:
        table = pyarrow.csv.read_csv(
            pyarrow.py_buffer(data),
            pyarrow.csv.ReadOptions(column_names=names, block_size=1 << 24),
            pyarrow.csv.ParseOptions(delimiter=between),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.large_string()), strings_can_be_null=False
            ),
        )
    except pyarrow.ArrowException:
        return None
    if table.num_rows != len(lines):
        return None
    return titles, [_of_strings(column, reading) for column in table.columns], lines + 2 + skipped


def _lines(data: bytes, between: str) -> NDArray[np.int64] | None:
    """The lines that are not empty, int64, counted from 0; None where quotes or ends of lines are unusual."""
    signs = np.frombuffer(data, np.uint8)
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return None
    if b'"' in data and not _well_quoted(signs, between):
        return None
    ends = np.flatnonzero(signs == ord("\n"))
    starts = np.append(0, ends + 1)
    stops = np.append(ends, len(signs))
    lengths = stops - starts
    if b"\r" in data:
        lengths -= (stops > starts) & (signs[np.maximum(stops - 1, 0)] == ord("\r"))
    return np.flatnonzero(lengths).astype(np.int64)


def _well_quoted(signs: NDArray[np.uint8], between: str) -> bool:
    """Whether each value between quotes begins and ends next to a separator or an end of line, and has none in it."""
    at = np.flatnonzero(signs == ord('"'))
    if len(at) % 2:
        return False
    around = np.isin(np.arange(256), [ord(between), ord("\n"), ord("\r")])
    framed = np.concatenate([[ord("\n")], signs, [ord("\n")]])
    opening, closing = at[::2], at[1::2]
    if not (around[framed[opening]].all() and around[framed[closing + 2]].all()):
        return False
    ends = np.flatnonzero(signs == ord("\n"))
    return bool((np.searchsorted(ends, opening) == np.searchsorted(ends, closing)).all())


def _of_strings(column: Any, reading: Reading) -> Column:
    """A column of texts, as `Column.of` makes it; plain numbers take a shorter way to the same."""
    import pyarrow
    import pyarrow.compute as compute

    texts = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    if isinstance(texts, pyarrow.ChunkedArray):  # of older releases, where there are no rows
        texts = pyarrow.array([], pyarrow.large_string())
    if reading.form == Form() and not any(map(re.compile(PLAIN).fullmatch, reading.gaps)):
        plain = compute.match_substring_regex(texts, f"^(?:{PLAIN})$")
        is_plain = np.asarray(plain.to_numpy(zero_copy_only=False), bool)
        others = compute.unique(texts.filter(compute.invert(plain))).to_pylist() if is_plain.any() else [None]
        if all(word is not None and word.strip().lower() in reading.gaps for word in others):
            found = _cast(compute.if_else(plain, texts, "0") if others else texts)
            if found is not None:
                return Column(found, ~is_plain)
    coded = texts.dictionary_encode()
    places = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
    return Column.of(coded.dictionary.to_pylist(), places, reading.gaps, reading.form)


def _cast(texts: Any) -> NDArray[Any] | None:
    """Plain numbers as int64 or float64; None where one has more digits than these."""
    import pyarrow

    try:
        return np.array(texts.cast(pyarrow.int64()).to_numpy(zero_copy_only=False), np.int64)
    except pyarrow.ArrowInvalid:
        pass
    try:
        found = np.array(texts.cast(pyarrow.float64()).to_numpy(zero_copy_only=False), np.float64)
    except pyarrow.ArrowInvalid:
        return None
    return found if _is_exact(found) else None


def _parquet(path: Path, content: bytes, reading: Reading) -> Rows:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise SetupError(
            f"pyarrow, which reads {path}, is not installed; pip install pyarrow, or write it as CSV"
        ) from error
    try:
        found = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read: {error}; correct it, or write it again") from error
    if twice := sorted({name for name in found.column_names if found.column_names.count(name) > 1}):
        raise DataError(f"{path} has several columns named {listed(twice)}; rename all but one of each")
    return of_arrow(found, str(path), reading)


def of_arrow(table: Any, place: str, reading: Reading | None = None) -> Rows:
    """The columns of an Arrow table that hold numbers, truths or texts; others become texts.

    Args:
        table: of pyarrow.
        place: its source, for messages.
        reading: words for a missing value; None: only a null is a gap.
    """
    import pyarrow

    reading = reading or Reading(gaps=frozenset())
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        kind = column.type
        if pyarrow.types.is_dictionary(kind):
            column = column.dictionary_decode()
            kind = column.type
        gaps = np.asarray(
            column.is_null(nan_is_null=pyarrow.types.is_floating(kind)).to_numpy(zero_copy_only=False), bool
        )
        if pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind):
            values = np.asarray(
                column.fill_null(0 if pyarrow.types.is_integer(kind) else False).to_numpy(zero_copy_only=False)
            )
            columns[name] = Column(values, gaps)
        elif pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind):
            values = np.asarray(column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False), np.float64)
            columns[name] = Column(np.where(gaps, 0.0, values), gaps)
        else:
            texts = ["" if gap else str(value) for value, gap in zip(column.to_pylist(), gaps, strict=True)]
            made = _coded(texts, reading)
            columns[name] = dataclasses.replace(made, gaps=made.gaps | gaps)
    return Rows(columns, place, np.arange(1, table.num_rows + 1))
