"""Fewer numbers of an example: random directions that everybody knows, or the principal ones of public data."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Field, stream
from fedplug.api.errors import DataError

from fedplug_features.base import LENGTH, Features, Fitted, Function, Public, to_length

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Directions(Features):
    """How far an example goes along some directions: its product with a matrix."""

    class Options(fedplug.Options):
        """How many, and how long an example is then."""

        size: int = Field(1000, ge=1, description="numbers of an example")
        length: float | None = Field(None, gt=0, allow_inf_nan=False, description=LENGTH)

    options: Options

    def shape(self, of: tuple[int, ...]) -> tuple[int, ...]:
        """As many numbers as asked for."""
        if (given := int(np.prod(of))) < self.options.size:
            raise DataError(f"{self.name}: size={self.options.size} of {given} numbers is too many; lower size")
        return (self.options.size,)

    def function(self, of: tuple[int, ...], public: Public, root: str | None) -> Function:
        """The product, and the length."""
        import torch
        from fedplug_std.torch_model import use_one_thread

        self.shape(of)
        directions, origin = self.directions(int(np.prod(of)), public)
        matrix, length = torch.from_numpy(directions), self.options.length
        use_one_thread()  # a product of a few rows by several threads takes ten times as long where others work

        def along(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
            found: NDArray[np.float32] = (torch.from_numpy(inputs.reshape(len(inputs), -1) - origin) @ matrix).numpy()
            return found if length is None else to_length(found, length)

        return along

    @abc.abstractmethod
    def directions(self, count: int, public: Public) -> tuple[NDArray[np.float32], NDArray[np.float32] | float]:
        """The directions, (count, size), and from where they lead: (count,), or a number."""


class Projection(Directions):
    """Random directions that everybody knows: a model has fewer weights, and lengths stay nearly as they are.

    By the Johnson-Lindenstrauss lemma, distances between examples change by a factor of 1 +- sqrt(8 ln n / size).
    """

    class Options(Directions.Options):
        """Which directions."""

        seed: int = Field(0, ge=0, description="of the directions")

    options: Options

    def directions(self, count: int, public: Public) -> tuple[NDArray[np.float32], float]:
        """Independent normal numbers of variance 1 / size."""
        size = self.options.size
        drawn = stream(self.options.seed, "features.projection").standard_normal((count, size), np.float32)
        return drawn / np.float32(np.sqrt(size)), 0.0

    def describe(self) -> str:
        """A line for the plan of the run."""
        return f"{self.options.size} random directions ({self.follows_from_public()}) of {self._inside}"


class Whitening(Fitted, Directions):
    """The principal directions of public examples, each divided by its spread there (PCA whitening).

    Mean and directions follow from the data set `fitted_on` alone, of which no example may be a client's: that nobody
    checks but for equal inputs, where the recipe's section `public` names the same data set.
    """

    class Options(Fitted.Options, Directions.Options):
        """How strongly, and from how many."""

        least: float = Field(
            0.01, gt=0, description="added to each variance, as a share of the largest: weak directions stay weak"
        )
        examples: int = Field(10000, ge=2, description="public examples that directions follow from, the first so many")

    options: Options

    def directions(self, count: int, public: Public) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Those along which public examples differ most, from their mean.

        Raises:
            DataError: there are fewer public examples than directions, or they are of another shape.
        """
        size, least = self.options.size, self.options.least
        known = public[0](self.options.examples)
        rows = known.reshape(len(known), -1)
        if rows.shape[1] != count:
            raise DataError(
                f"{self.name}: examples of {self.fitted_on.name} have {rows.shape[1]} numbers, and those of "
                f"{self.of.name} {count}; choose a public data set of the same kind"
            )
        if len(rows) <= size:
            raise DataError(
                f"{self.name}: size={size} directions of {len(rows)} examples of {self.fitted_on.name}; lower size"
            )
        variances, axes = np.linalg.eigh(np.cov(rows, rowvar=False, dtype=np.float64))
        chosen = slice(None, -size - 1, -1)
        scales = np.sqrt(variances[chosen].clip(0) + least * variances[-1])
        return (axes[:, chosen] / scales).astype(np.float32), rows.mean(0)

    def describe(self) -> str:
        """A line for the plan of the run."""
        return f"{self.options.size} principal directions ({self.follows_from_public()}) of {self._inside}"
