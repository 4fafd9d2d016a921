"""Data sets and features that tests make without a recipe."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
from fedplug import Dataset, Examples
from fedplug_std.datasets import Digits


class Toy(fedplug.DataSource):
    """Examples as they are."""

    def __init__(self, train: Any, test: Any = None, **about: Any) -> None:
        super().__init__(None)
        self.name = "toy"
        self.given = train, train[:2] if test is None else test
        self.about = {"classes": ("a", "b"), "mean": (), "std": (), **about}

    def load(self, root: str | None) -> Dataset:
        parts = (Examples(inputs, np.zeros(len(inputs), np.int64)) for inputs in self.given)
        return Dataset(*parts, **self.about)


def made(kind: Any, of: Any, name: str = "made", **options: Any) -> Any:
    public = options.pop("public", None)
    feature = kind(kind.Options(**options))
    feature.name, feature.of = name, of
    if public is not None:
        feature.fitted_on = public
    return feature


def made_digits(**options: Any) -> Digits:
    digits = Digits(Digits.Options(**options))
    digits.name = "std.digits"
    return digits


def texts(*given: str, length: int = 40) -> Toy:
    """Texts as data sets have them."""
    rows = np.zeros((len(given), length), np.int64)
    for row, text in zip(rows, given, strict=True):
        row[: len(text.encode())] = np.frombuffer(text.encode(), np.uint8)
    return Toy(rows)
