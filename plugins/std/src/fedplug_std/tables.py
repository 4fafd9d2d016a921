"""Tables of named columns: CSV and Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fedplug
from fedplug import Dataset, Declares
from fedplug.api.errors import DataError

from fedplug_std.options import TableOptions

if TYPE_CHECKING:
    from fedplug_std._columns import Rows


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
        import numpy as np

        from fedplug_std import _columns
        from fedplug_std import _dataset_files as files
        from fedplug_std._table_files import Reading, read

        chosen = self.options
        rows = read(files.located(root, chosen.file), Reading.of(chosen))
        if chosen.test_file is not None:
            test = read(files.located(root, chosen.test_file), Reading.of(chosen))
            return _drafted(chosen, rows, test)
        if chosen.test_column is None:
            return _drafted(chosen, rows, None)
        column = rows.column(chosen.test_column, "test_column")
        testing = column.texts() == chosen.test_value
        if not testing.any() or testing.all():
            raise DataError(
                f"{rows.place}: test_column {chosen.test_column} holds {chosen.test_value} in "
                f"{'all' if testing.any() else 'no'} rows; it holds {_columns.listed(sorted({*column.texts()}), 5)}. "
                "Give the value in test rows: test_value"
            )
        train, test = (rows.take(np.flatnonzero(which)) for which in (~testing, testing))
        return _drafted(chosen, train, test, (chosen.test_column,))


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
    from fedplug_std import _dataset_files as files
    from fedplug_std._table_files import Reading, read

    chosen: Any = table.options
    return _columns.prepared(chosen, read(files.located(root, chosen.file), Reading.of(chosen)))
