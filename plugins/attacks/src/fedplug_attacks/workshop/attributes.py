"""The attribute that a recipe requests: any column of the target's table, given to the model or not, or any label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.component import Options
from fedplug.api.errors import ViewError
from pydantic import Field, model_validator

from fedplug_attacks.api.view import Attribute

if TYPE_CHECKING:
    from fedplug.api.data import About, Examples, PublicData
    from numpy.typing import NDArray

LABEL = "label"
"""The name of an example's label, whatever its column."""


class Asked(Options):
    """An attribute of examples: the value of a column, or a label."""

    column: str = Field(
        min_length=1,
        description="a column of the table, even if the model does not receive it, or its number from 0 if columns "
        "have no names; or label; or one of several labels; or a privacy-sensitive field",
    )
    equals: str | float | None = Field(None, description="an example has the attribute if the column has this value")
    above: float | None = Field(
        None,
        allow_inf_nan=False,
        description="an example has the attribute if the column is above this, in the units of the data set; null, and "
        "equals null: above the median of the public examples, or the larger one of two values",
    )

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Asked:
        if self.equals is not None and self.above is not None:
            raise ValueError(f"equals={self.equals} and above={self.above} exclude each other; leave one out")
        return self


class Attributes:
    """Which examples have the attribute. Only the scorer uses it, because it reads the columns of private examples.

    Args:
        asked: the recipe's request.
        about: the data set.
        public: the public examples, or None.
        source: the component that loads the data, which may know columns that the model does not receive.
        root: folder of data sets, or None.

    Raises:
        ViewError: there is no such column or label, or it holds texts and no `equals` is given.
    """

    def __init__(self, asked: Asked, about: About, public: PublicData | None, source: Any, root: str | None) -> None:
        self.asked, self.about = asked, about
        self.above, self.equals = 0.5, "" if asked.equals is None else _said(asked.equals)
        self._read = self._reader(source, root)
        if self._of_numbers:
            self.above = self._least(public)
        said = f"{asked.column} is {self.equals}" if self.equals else f"{asked.column} above {self.above:.3g}"
        whether = np.zeros(0, bool) if public is None else self.of(public.examples)
        self.known = Attribute(said, whether)

    @property
    def public_share(self) -> float | None:
        """The share of the public examples that have it; None without any."""
        return float(self.known.public.mean()) if len(self.known.public) else None

    def of(self, examples: Examples) -> NDArray[np.bool_]:
        """Which examples have it; (n,)."""
        values = self._read(examples)
        if self._of_numbers and isinstance(self.asked.equals, float):
            return np.asarray(np.isclose(values, self.asked.equals), np.bool_)
        return np.asarray(values > self.above, np.bool_)

    def _least(self, public: PublicData | None) -> float:
        """The number above which an example has the attribute."""
        if self.asked.above is not None:
            return self.asked.above
        if public is None or self.asked.equals is not None:
            return 0.5
        values = self._read(public.examples)
        different = np.unique(values)
        return float(different.mean() if len(different) == 2 else np.median(values))

    def _reader(self, source: Any, root: str | None) -> Any:
        """The function from examples to numbers; 0 or 1 if `equals` is given."""
        asked, about = self.asked, self.about
        self._of_numbers, equals = False, self.equals
        one_hot = f"{asked.column}={equals}"
        if one_hot in about.columns or asked.column in about.columns:
            self._of_numbers = one_hot not in about.columns
            column = about.columns.index(asked.column if self._of_numbers else one_hot)
            return lambda examples: examples.inputs[:, column].astype(np.float64)
        if not about.columns and asked.column.isdecimal():  # a table whose columns have no names
            place, self._of_numbers = int(asked.column), True
            return lambda examples: _numbered(examples.inputs, place)
        if asked.column == LABEL and equals in about.label_names:
            place = about.label_names.index(equals)
            return lambda examples: (examples.labels == place).astype(np.float64)
        if asked.column in about.region_names:
            self.equals, place = "shown", about.region_names.index(asked.column) + 1
            return lambda examples: (examples.regions == place).any((1, 2)).astype(np.float64)
        if asked.column in about.classes and about.kinds:  # one of several labels, or a predicted number
            place, self._of_numbers, self.equals = about.classes.index(asked.column), True, ""
            return lambda examples: examples.targets[:, place].astype(np.float64)
        beyond = self._beside(source, root, equals)
        return lambda examples: np.array([beyond[key] for key in _keys(examples.inputs, examples.labels)])

    def _beside(self, source: Any, root: str | None, equals: str) -> dict[bytes, float]:
        """A column of the file that the model does not receive, found by the rest of each row.

        Rows that agree in all columns of the model are the same to it, and get the mean of their values.
        """
        from fedplug_std.tables import Table, rows_of

        name = self.asked.column
        given = ", ".join(self.about.columns[:12]) or ", ".join(self.about.label_names[:12])
        if not isinstance(source, Table):
            raise ViewError(
                f"truth: the data have no column {name!r} with {equals or 'numbers'}; they have {given}, and {LABEL}, "
                f"which equals one of {', '.join(self.about.label_names[:12])}"
            )
        options, rows = source.options, rows_of(source, root)
        texts = rows.column(name, "truth").texts()
        categories = dict(options.categories)
        if equals:
            if equals not in texts:
                raise ViewError(f"truth: column {name} never says {equals}; it says {', '.join(sorted({*texts})[:12])}")
            categories[name] = tuple(sorted({*texts}))
        update: dict[str, Any] = {
            "categories": categories, "leave_out": tuple(n for n in options.leave_out if n != name),
            "features": (*options.features, name) if options.features else (),
        }  # fmt: skip
        again = Table(options.model_copy(update=update)).load(root)
        places = [again.columns.index(column) for column in self.about.columns]
        wanted = again.columns.index(f"{name}={equals}" if equals else name)
        self._of_numbers = not equals
        found: dict[bytes, list[float]] = {}
        for part in (again.train, again.test):
            for key, value in zip(_keys(part.inputs[:, places], part.labels), part.inputs[:, wanted], strict=True):
                found.setdefault(key, []).append(float(value))
        return {key: float(np.mean(values)) for key, values in found.items()}


def _numbered(inputs: NDArray[Any], place: int) -> NDArray[np.float64]:
    """A column of a table by its number."""
    if inputs.ndim != 2 or inputs.dtype.kind != "f" or place >= inputs.shape[1]:
        raise ViewError(f"truth: there is no column {place} in examples of shape {inputs.shape[1:]}")
    return inputs[:, place].astype(np.float64)


def _said(value: str | float) -> str:
    """The form in a file: `1`, not `1.0`."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _keys(inputs: NDArray[np.float32], labels: NDArray[np.int64]) -> list[bytes]:
    return [
        np.ascontiguousarray(row, np.float32).tobytes() + int(label).to_bytes(8, "little", signed=True)
        for row, label in zip(inputs, labels, strict=True)
    ]
