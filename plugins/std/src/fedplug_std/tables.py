"""Tables of named columns: CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import fedplug
from fedplug import Dataset, Declares
from fedplug.api.errors import DataError

from fedplug_std.data_folder import located
from fedplug_std.options import TableOptions, TextTableOptions

if TYPE_CHECKING:
    from fedplug_std._columns import Rows
    from fedplug_std.options import RowOptions


class Table(fedplug.DataSource):
    """A table of named columns, from a CSV or a Parquet file: classification, regression, or several labels.

    `answer` is the column of the answers. The others, or those in `features`, are the model's unchanged inputs. Texts
    become numbers only through `categories` of the recipe, gaps only through `fill` or `missing_indicators`, and values
    are scaled only through `scale`. The test rows come from another file (`test_file`), from a column (`test_column`),
    or are a fraction of each class. Parquet needs `pip install pyarrow`, with which CSV is read faster.
    `fedplug data FILE` drafts a section. A large file is parsed once and kept in a cache of this user.
    """

    class Options(TableOptions):
        """The file, how it is written, the role of each column, and the test rows."""

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
        train, test, besides = _parts(self.options, root)
        return _drafted(self.options, train, test, besides)


class TextTable(fedplug.DataSource):
    """Texts with an answer each: a column of a CSV or a Parquet file, and its answers as in `std.table`.

    An example is the first bytes of a text in UTF-8, int64 (`length`,), with 0 after its end. Models that learn from
    bytes take them as they are. `features.ngrams`, `features.tfidf`, `features.word_vectors` and `features.huggingface`
    make numbers of them for a linear model.
    """

    class Options(TextTableOptions):
        """The file, how it is written, its columns, and the test rows."""

    @property
    def declares(self) -> Declares:
        """The bytes, and the task."""
        chosen = self.options
        outputs = len(chosen.classes) if chosen.predict == "classes" else len(chosen.answer)
        return Declares(shape=(chosen.length,), num_classes=outputs or None, task=chosen.task)

    def describe(self) -> str:
        """The file, the texts and the answers."""
        chosen = self.options
        return f"{' and '.join(chosen.answer)} of {chosen.text} in {chosen.file}, {chosen.length} bytes each"

    def check(self, recipe: Any) -> list[str]:
        """One column is read, so options for several have no use; all sites cut texts alike."""
        said = unread(self.options, "text")
        agreed = recipe.data.agreed
        if agreed is not None and agreed.shape != (self.options.length,):
            said.append(
                f"length={self.options.length}, but data.agreed.shape says {list(agreed.shape)}; write the same number"
            )
        return said

    def load(self, root: str | None) -> Dataset:
        """Reads the file.

        Raises:
            DataError: it is missing or damaged, or a column is; the message names it, the lines and a remedy.
            SetupError: it is Parquet, and pyarrow is not installed.
        """
        from fedplug_std import _columns

        train, test, _ = _parts(self.options, root)
        return _columns.texts(self.options, train, test)


_OF_COLUMNS = ("features", "leave_out", "categories", "scale", "missing_indicators")


def unread(options: RowOptions, naming: str, names: Sequence[str] = _OF_COLUMNS) -> list[str]:
    """What is said of options for several columns where `naming` is an option that names the only one."""
    fields, given = type(options).model_fields, options.model_dump()
    strange = [name for name in names if given[name] != fields[name].default]
    return [f"{name} is for tables, and {naming} names one column; leave one of them out" for name in strange]


def _parts(chosen: TableOptions, root: str | None) -> tuple[Rows, Rows | None, tuple[str, ...]]:
    """Rows for training, those for testing where they are apart, and the columns that say so."""
    import numpy as np

    from fedplug_std import _columns
    from fedplug_std._table_files import Reading, read

    rows = read(located(root, chosen.file), Reading.of(chosen))
    if chosen.test_file is not None:
        return rows, read(located(root, chosen.test_file), Reading.of(chosen)), ()
    if chosen.test_column is None:
        return rows, None, ()
    column = rows.column(chosen.test_column, "test_column")
    testing = column.texts() == chosen.test_value
    if not testing.any() or testing.all():
        raise DataError(
            f"{rows.place}: test_column {chosen.test_column} holds {chosen.test_value} in "
            f"{'all' if testing.any() else 'no'} rows; it holds {_columns.listed(sorted({*column.texts()}), 5)}. "
            "Give the value in test rows: test_value"
        )
    train, test = (rows.take(np.flatnonzero(which)) for which in (~testing, testing))
    return train, test, (chosen.test_column,)


def _drafted(options: TableOptions, train: Rows, test: Rows | None, besides: tuple[str, ...] = ()) -> Dataset:
    """The data set of these rows; to an error it adds a section of a recipe that reads them, as a note."""
    from fedplug_std import _columns

    try:
        return _columns.dataset(options, train, test, besides)
    except DataError as error:
        from fedplug_std.drafts import note

        if said := note(options, train, besides):
            error.add_note(said)
        raise


def rows_of(table: Table, root: str | None) -> Rows:
    """The rows of the file that a table names, with the columns that it leaves out. Raises as `Table.load`."""
    from fedplug_std import _columns
    from fedplug_std._table_files import Reading, read

    chosen: Any = table.options
    return _columns.prepared(chosen, read(located(root, chosen.file), Reading.of(chosen)))
