"""Fewer numbers of an example: random directions that everybody knows, or the principal ones of public data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import fedplug
import numpy as np
from fedplug import Field, stream
from fedplug.api.errors import DataError

from fedplug_features.base import Features, Function, Public, digest


class Projection(Features):
    """Random directions that everybody knows: a model has fewer weights, and lengths stay nearly as they are.

    By the Johnson-Lindenstrauss lemma, distances between examples change by a factor of 1 +- sqrt(8 ln n / size).
    """

    class Options(fedplug.Options):
        """How many."""

        size: int = Field(1000, ge=1, description="numbers of an example")
        seed: int = Field(0, ge=0, description="of the directions")

    options: Options

    def shape(self, of: tuple[int, ...]) -> tuple[int, ...]:
        """As many numbers as asked for."""
        if (given := int(np.prod(of))) < self.options.size:
            raise DataError(f"{self.name}: size={self.options.size} of {given} numbers is no fewer; lower size")
        return (self.options.size,)

    def function(self, of: tuple[int, ...], public: Public) -> Function:
        """The product with a matrix of independent normal numbers of variance 1 / size."""
        (size,) = self.shape(of)
        drawn = stream(self.options.seed, "features.projection").standard_normal((int(np.prod(of)), size), np.float32)
        drawn /= np.float32(np.sqrt(size))
        return lambda inputs: inputs.reshape(len(inputs), -1) @ drawn

    def describe(self) -> str:
        """A line for the plan of the run."""
        return f"{self.options.size} random directions ({self.follows_from_public()}) of {self._inside}"


class Whitening(Features):
    """The principal directions of public examples, each divided by its spread there (PCA whitening).

    Mean and directions follow from the data set `public` alone, of which no example may be a client's: that nobody
    checks but for equal inputs, where the recipe's section `public` names the same data set.
    """

    inner: ClassVar[Mapping[str, str]] = {"of": "dataset", "public": "dataset"}
    public: fedplug.DataSource

    class Options(fedplug.Options):
        """How many directions."""

        size: int = Field(ge=1, description="numbers of an example, those along which public examples differ most")
        least: float = Field(
            0.01, gt=0, description="added to each variance, as a share of the largest: weak directions stay weak"
        )

    options: Options

    @property
    def publics(self) -> Sequence[fedplug.DataSource]:
        """The one of which the directions are."""
        return (self.public,)

    def shape(self, of: tuple[int, ...]) -> tuple[int, ...]:
        """As many numbers as asked for."""
        if (given := int(np.prod(of))) < self.options.size:
            raise DataError(f"{self.name}: size={self.options.size} of {given} numbers is too many; lower size")
        return (self.options.size,)

    def follows_from(self, root: str | None) -> list[Any]:
        """Its options, and the public examples."""
        return [*super().follows_from(root), digest(self.public.load(root))]

    def function(self, of: tuple[int, ...], public: Public) -> Function:
        """Subtracts the mean of public examples and multiplies by a matrix.

        Raises:
            DataError: there are fewer public examples than directions, or they are of another shape.
        """
        (size,) = self.shape(of)
        known = public(self.public)
        rows = known.reshape(len(known), -1)
        if rows.shape[1] != int(np.prod(of)):
            raise DataError(
                f"{self.name}: examples of {self.public.name} have {rows.shape[1]} numbers, and those of "
                f"{self.of.name} {int(np.prod(of))}; choose a public data set of the same kind"
            )
        if len(rows) <= size:
            raise DataError(
                f"{self.name}: size={size} directions of {len(rows)} examples of {self.public.name}; lower size"
            )
        middle = rows.mean(0)
        covariance = np.cov(rows, rowvar=False, dtype=np.float64)
        variances, directions = np.linalg.eigh(covariance)
        chosen = slice(None, -size - 1, -1)
        scales = np.sqrt(variances[chosen].clip(0) + self.options.least * variances[-1])
        matrix = (directions[:, chosen] / scales).astype(np.float32)
        return lambda inputs: (inputs.reshape(len(inputs), -1) - middle) @ matrix

    def describe(self) -> str:
        """A line for the plan of the run."""
        return f"{self.options.size} principal directions ({self.follows_from_public()}) of {self._inside}"
