"""Tables of named columns: CSV files, read by Python itself, and Parquet files, read by pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import fedplug
from fedplug import Dataset, Declares, Field
from fedplug.api.errors import DataError, SetupError
from pydantic import model_validator

from fedplug_std.options import Names, RowOptions

if TYPE_CHECKING:
    from fedplug_std._columns import Rows

_KINDS = {"csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"), "parquet": (".parquet", ".pq")}
_GAPS = {"", "na", "n/a", "#n/a", "nan", "null", "none"}
"""Words for a missing value in a CSV file, in upper or lower case."""


class Table(fedplug.DataSource):
    """A table of named columns, from a CSV or a Parquet file: classification, regression, or several labels.

    `answer` is the column of the answers. The others, or those in `features`, are the model's unchanged inputs. Texts
    become numbers only through `categories` of the recipe, gaps are filled only through `fill`, and values are scaled
    only through `scale`. The test rows come from another file (`test_file`), from a column (`test_column`), or are a
    fraction of each class. Parquet needs `pip install pyarrow`; CSV needs nothing.
    """

    class Options(RowOptions):
        """The file, the role of each column, and the test rows."""

        file: str = Field(
            "data.csv",
            description="ends with .csv, .tsv, .parquet, .csv.gz or the like; absolute or inside the data folder; "
            "without a data folder, in the working directory",
        )
        answer: Names = Field(min_length=1, description="the column of the answers, or several of them")
        delimiter: str | None = Field(
            None,
            min_length=1,
            max_length=1,
            description="separator of the columns of a CSV file; null: a tab for .tsv, else a comma",
        )
        test_file: str | None = Field(None, description="file of the rows for testing, with the same columns")
        test_column: str | None = Field(
            None, description="column that marks the test rows; no model sees it"
        )
        test_value: str = Field("test", description="the value of test_column in a test row")

        @model_validator(mode="after")
        def _one_way_to_split(self) -> Self:
            if self.test_file is not None and self.test_column is not None:
                raise ValueError("test_file and test_column both select the test rows; leave one out")
            return self

    @property
    def declares(self) -> Declares:
        """The number of input columns and the task, if the recipe gives them."""
        from fedplug_std import _columns

        chosen = self.options
        outputs = len(chosen.classes) if chosen.predict == "classes" else len(chosen.answer)
        shape = (_columns.width(chosen),) if chosen.features else None
        return Declares(shape=shape, num_classes=outputs or None, task=chosen.task)

    def describe(self) -> str:
        """The file and the answers."""
        return f"{' and '.join(self.options.answer)} of {self.options.file}"

    def check(self, recipe: Any) -> list[str]:
        """With data at sites, the recipe names the columns, since no site sees another's file."""
        from fedplug_std import _columns

        return _columns.misfit(self.options, recipe.data.at, recipe.data.agreed)

    def load(self, root: str | None) -> Dataset:
        """Reads the file.

        Raises:
            DataError: it is missing or damaged, or a column is; the message names it, the lines and a remedy.
            SetupError: it is Parquet, and pyarrow is not installed.
        """
        import numpy as np

        from fedplug_std import _columns
        from fedplug_std import _dataset_files as files

        chosen = self.options
        rows = read(files.located(root, chosen.file), chosen.delimiter)
        if chosen.test_file is not None:
            test = read(files.located(root, chosen.test_file), chosen.delimiter)
            return _columns.dataset(chosen, rows, test)
        if chosen.test_column is None:
            return _columns.dataset(chosen, rows, None)
        column = rows.column(chosen.test_column, "test_column")
        testing = column.texts() == chosen.test_value
        if not testing.any() or testing.all():
            raise DataError(
                f"{rows.place}: test_column {chosen.test_column} holds {chosen.test_value} in "
                f"{'all' if testing.any() else 'no'} rows; it holds {_columns.listed(sorted({*column.texts()}), 5)}. "
                "Give the value in test rows: test_value"
            )
        train, test = (rows.take(np.flatnonzero(which)) for which in (~testing, testing))
        return _columns.dataset(chosen, train, test, (chosen.test_column,))


def rows_of(table: Table, root: str | None) -> Rows:
    """The rows of the file that a table names, with the columns that it leaves out. Raises as `read`."""
    from fedplug_std import _dataset_files as files

    chosen: Any = table.options
    return read(files.located(root, chosen.file), chosen.delimiter)


def read(path: Path, delimiter: str | None = None) -> Rows:
    """The rows of a file.

    Raises:
        DataError: it is missing, damaged, or of another format.
        SetupError: the library that reads it is not installed.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}; put it there, or name another with data: {{file: ...}}")
    name = path.name.lower()
    for kind, endings in _KINDS.items():
        if name.endswith(endings):
            return _csv(path, delimiter) if kind == "csv" else _parquet(path)
    known = ", ".join(ending for endings in _KINDS.values() for ending in endings)
    raise DataError(f"{path} has none of the endings {known}, which determine the format; rename it")


def _csv(path: Path, delimiter: str | None) -> Rows:
    import csv
    import gzip
    import zlib

    import numpy as np

    from fedplug_std._columns import Column, Rows

    between = delimiter or ("\t" if ".tsv" in path.suffixes else ",")
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=between, strict=True)
            titles = [title.strip() for title in next(lines, [])]
            rows, numbers = [], []
            for row in lines:
                if len(row) != len(titles):
                    if not row:
                        continue
                    raise DataError(
                        f"{path}, line {lines.line_num}: {len(row)} values, but the first line names {len(titles)} "
                        "columns; correct the line"
                    )
                rows.append(row)
                numbers.append(lines.line_num)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}; correct it, or write it again") from error
    if not titles or "" in titles:
        raise DataError(f"{path}: the first line must name every column, but it is {titles}; name them")
    if twice := sorted({title for title in titles if titles.count(title) > 1}):
        raise DataError(f"{path} has several columns named {twice[0]}; rename all but one")
    if len(titles) == 1 and (others := [sign for sign in ";\t|" if sign in titles[0] and sign != between]):
        raise DataError(f"{path} has one column, {titles[0]!r}; write delimiter: {others[0]!r}")
    columns = {}
    for title, values in zip(titles, zip(*rows, strict=True) if rows else [()] * len(titles), strict=True):
        gaps = np.array([value.strip().lower() in _GAPS for value in values], bool)
        columns[title] = Column(np.array(values, object), gaps)
    return Rows(columns, str(path), np.array(numbers, np.int64), "line")


def _parquet(path: Path) -> Rows:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise SetupError(
            f"pyarrow, which reads {path}, is not installed; pip install pyarrow, or write it as CSV"
        ) from error
    try:
        found = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read: {error}; correct it, or write it again") from error
    return of_arrow(found, str(path))


def of_arrow(table: Any, place: str) -> Rows:
    """The columns of an Arrow table that hold numbers, truths or texts; others become texts."""
    import numpy as np
    import pyarrow

    from fedplug_std._columns import Column, Rows

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
        elif pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind):
            values = np.asarray(column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False), np.float64)
        else:
            values = np.array([str(value) for value in column.to_pylist()], object)
        columns[name] = Column(values, gaps)
    return Rows(columns, place, np.arange(1, table.num_rows + 1))
