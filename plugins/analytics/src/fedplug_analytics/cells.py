"""Statistics from how many records lie in each cell: histograms, contingency tables with a test, and quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug import Field

from fedplug_analytics.statistic import Axis, Bounds, Column, Estimate, Records, Released, Statistic, counted, rising

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MOST_PAIRS = 1_000
"""Cells of a table of two columns: the covariance of its test has the square of that."""


class OneCell(Statistic):
    """A statistic of which each record is counted in one cell at most: both norms of a record are 1."""

    def record_norm(self, order: float) -> float:
        """A record adds 1 to one cell."""
        return 1.0


class Histogram(Axis, OneCell):
    """How many records lie between edges of a column, or have each of its values, and their share of all counted.

    The intervals of counts are those of the noise. The intervals of shares are for other records of the same kind too:
    Wilson's (1927), with the variance of the noise added.
    """

    statistic: Literal["histogram"]

    @property
    def title(self) -> str:
        """Of the column."""
        return f"records by {self.column}"

    @property
    def size(self) -> int:
        """One a cell."""
        return len(self.names)

    def sums(self, records: Records) -> NDArray[np.float64]:
        """The counts."""
        return counted(self.cells(records), self.size)

    def answer(self, released: Released) -> Iterator[Estimate]:
        """Count and share of each cell; without those of small cells, and of one more where a total would show it."""
        counts, total = released.sums, float(released.sums.sum())
        small = hidden(counts[None], released.small_cells)[0]
        yield from _cell_counts(self.names, counts, small, released)
        if total < 1:
            return
        shares = counts / total
        # Of C_i / N with the derivatives (1 - p_i) / N by C_i and -p_i / N by the others.
        spread = (released.noise * (1 - 2 * shares) + shares**2 * released.noise.sum()) / total**2
        for name, share, noise, hide in zip(self.names, shares, spread, small, strict=True):
            if not hide:
                inside = min(max(float(share), 0.0), 1.0)
                yield Estimate(f"share of {name}", inside, *score_interval(inside, total, noise, released.quantile()))

    def figures(self, sums: NDArray[np.float64]) -> Mapping[str, float]:
        """The shares."""
        total = sums.sum()
        shares = zip(self.names, sums / total, strict=True) if total > 0 else ()
        return {f"share of {self.column} {name}": float(share) for name, share in shares}


class Contingency(OneCell):
    """How many records have each pair of values of two columns, and whether the columns are independent.

    The test compares d = N_ij - N_i. N_.j / N with its covariance under independence, by Wald's statistic: that of the
    records, and that of the noise, which the derivative (I - p_r 1^T) x (I - p_c 1^T) carries to d (compare Kifer &
    Rogers, AISTATS 2017). Without noise it is Pearson's chi-square.
    """

    statistic: Literal["contingency"]
    rows: Axis = Field(description="the cells of one column")
    columns: Axis = Field(description="the cells of the other")

    @property
    def title(self) -> str:
        """Of both columns."""
        return f"records by {self.rows.column} and {self.columns.column}"

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.rows.names), len(self.columns.names)

    @property
    def size(self) -> int:
        """One a pair."""
        return math.prod(self._shape)

    def sums(self, records: Records) -> NDArray[np.float64]:
        """The counts, row by row."""
        row, column = self.rows.cells(records), self.columns.cells(records)
        return counted(np.where((row < 0) | (column < 0), -1, row * self._shape[1] + column), self.size)

    def answer(self, released: Released) -> Iterator[Estimate]:
        """The counts, chi-square, its degrees of freedom and the p-value."""
        from scipy import stats

        table = released.sums.reshape(self._shape)
        hide = hidden(table, released.small_cells)
        names = [
            f"{self.rows.column} {row}, {self.columns.column} {column}"
            for row in self.rows.names for column in self.columns.names
        ]  # fmt: skip
        yield from _cell_counts(names, released.sums, hide.reshape(-1), released)
        rows, columns = table.sum(1), table.sum(0)
        if why := released.too_few(*rows, *columns, least=1):
            yield Estimate("chi-square", note=f"a row or a column is {why}")
            return
        if hide.any():  # it is one more equation for hidden cells, of which two often leave one
            yield Estimate("chi-square", note="hidden, as it may show hidden cells; use wider cells")
            return
        freedom = (self._shape[0] - 1) * (self._shape[1] - 1)
        found = chi_square(table, released.noise)
        yield Estimate("chi-square", found)
        yield Estimate("degrees of freedom", freedom)
        yield Estimate("p-value", float(stats.chi2(freedom).sf(found)))

    def model_post_init(self, context: Any) -> None:
        """Raises ValueError where one of the columns has a single cell."""
        if min(self._shape) < 2:
            raise ValueError("rows and columns need two cells or more each; for one column use histogram")
        if self.size > _MOST_PAIRS:
            rows, columns = self._shape
            raise ValueError(f"{rows} x {columns} cells are {self.size}, at most {_MOST_PAIRS}; use wider intervals")


class Quantiles(OneCell):
    """Quantiles of a column, from a histogram with many equal intervals between public bounds.

    A quantile is where the cumulative count reaches its share, on a line within an interval. Its own interval inverts
    that of the share (Woodruff 1952), and ends at edges, so that it includes what the intervals of the histogram hide.
    With `small_cells` there is no quantile with fewer records on one side, or between it and the one before.
    """

    statistic: Literal["quantiles"]
    column: Column
    bounds: Bounds = Field(description="smallest and largest value of the column; a value beyond counts as the nearer")
    bins: int = Field(100, ge=2, le=10_000, description="number of equal intervals")
    at: tuple[float, ...] = Field((0.25, 0.5, 0.75), min_length=1, description="shares, above 0 and below 1")

    def model_post_init(self, context: Any) -> None:
        """Raises ValueError where a share is no share."""
        if wrong := [share for share in self.at if not 0 < share < 1]:
            raise ValueError(f"at holds {wrong[0]:g}, which must be above 0 and below 1")
        try:
            rising(tuple(self._edges))
        except ValueError as error:
            raise ValueError(f"bins={self.bins} are narrower than float32 rounds; use fewer of them") from error

    @property
    def title(self) -> str:
        """Of the column."""
        return f"quantiles of {self.column}"

    @property
    def size(self) -> int:
        """One a bin."""
        return self.bins

    @property
    def _edges(self) -> NDArray[np.float64]:
        return np.linspace(*self.bounds, self.bins + 1)

    def sums(self, records: Records) -> NDArray[np.float64]:
        """The counts of the histogram."""
        return counted(Axis(column=self.column, edges=tuple(self._edges)).cells(records), self.bins)

    def answer(self, released: Released) -> Iterator[Estimate]:
        """Each quantile with its interval."""
        total = float(released.sums.sum())
        if why := released.too_few(total):
            yield Estimate(f"quantiles of {self.column}", note=why)
            return
        few, shown = released.small_cells, 0.0
        for share in sorted(self.at):
            name = f"quantile {share:g} of {self.column}"
            if few and min(share - shown, 1 - share) * total < few:
                yield Estimate(name, note=f"fewer than {few} records on one side, or from the quantile before")
                continue
            low, high = (self._reached(released, share, side * released.quantile()) for side in (-1, 1))
            value, shown = self._inverse(released.sums, share, few), share
            yield Estimate(name, value, min(low, value), max(high, value))

    def _reached(self, released: Released, share: float, deviations: float) -> float:
        """The outer edge of the first or last bin at which the share may be reached: N F(x) - q N, of which sampling
        and noise are known, is within so many of its deviations of 0. Noise makes it fall too: none in between counts.
        """
        total = float(released.sums.sum())
        above = np.concatenate([[0.0], np.cumsum(released.sums)]) - share * total
        below = np.concatenate([[0.0], np.cumsum(released.noise)])
        noise = below * (1 - share) ** 2 + (below[-1] - below) * share**2
        reach = np.sqrt(share * (1 - share) * total + noise)
        if deviations < 0:
            within = np.flatnonzero(above - deviations * reach >= 0)
            return float(self._edges[max(within[0] - 1, 0) if within.size else 0])
        within = np.flatnonzero(above - deviations * reach <= 0)
        return float(self._edges[min(within[-1] + 1, self.bins) if within.size else -1])

    def _inverse(self, counts: NDArray[np.float64], share: float, few: float = 0) -> float:
        """Where the cumulative count, made to rise, reaches a share of the total. In a bin of fewer records than `few`
        the middle, since another place would show how many there are.
        """
        reached = np.maximum.accumulate(np.concatenate([[0.0], np.cumsum(counts)]))
        wanted = share * counts.sum()
        place = min(max(int(np.searchsorted(reached, wanted)), 1), self.bins)
        before, after = reached[place - 1], reached[place]
        within = (wanted - before) / (after - before) if after > before else 0.0
        within = 0.5 if after - before < few else within
        return float(self._edges[place - 1] + min(within, 1.0) * (self._edges[place] - self._edges[place - 1]))

    def figures(self, sums: NDArray[np.float64]) -> Mapping[str, float]:
        """The quantiles."""
        if sums.sum() <= 0:
            return {}
        return {f"quantile {share:g} of {self.column}": self._inverse(sums, share) for share in self.at}


# -- parts -------------------------------------------------------------------------------------------------------------


def _cell_counts(
    names: list[str], counts: NDArray[np.float64], small: NDArray[np.bool_], released: Released
) -> Iterator[Estimate]:
    for name, count, noise, hide in zip(names, counts, released.noise, small, strict=True):
        if hide:
            few = released.small_cells
            yield Estimate(name, note=f"hidden: it, or a cell that it would show, has fewer than {few}")
        else:
            yield released.estimate(name, float(count), noise=float(noise), within=(0, math.inf))


def hidden(table: NDArray[np.float64], small_cells: int) -> NDArray[np.bool_]:
    """Which cells of a table (rows, columns) are hidden: those below `small_cells`, and others, the smallest first,
    until the totals of lines show neither one of them nor a sum of so few.

    Totals of rows and columns determine a cell exactly if its leverage in the lines of the hidden ones is 1.
    """
    hide = table < small_cells if small_cells else np.zeros(table.shape, np.bool_)
    rows, columns = np.indices(table.shape)
    each = [rows == row for row in range(len(table))] if table.shape[1] > 1 else []
    each += [columns == column for column in range(table.shape[1])] if len(table) > 1 else []
    while hide.any() and not hide.all():
        shows = [line for line in each if (line & hide).any() and not hide[line].all()]
        weak = next((line for line in shows if table[line & hide].sum() < small_cells), None)
        if weak is None:
            through = np.array([line[hide] for line in each], np.float64)
            leverage = np.sum(np.linalg.pinv(through).T * through, 0)
            known = np.argwhere(hide)[leverage > 1 - 1e-6]
            crossing = (((rows == row) | (columns == column)) & ~hide for row, column in known)
            weak = next((cells for cells in crossing if cells.any()), None)
        if weak is None:
            break
        hide[np.unravel_index(np.argmin(np.where(weak & ~hide, table, np.inf)), table.shape)] = True
    return hide


def score_interval(share: float, total: float, noise: float, deviations: float) -> tuple[float, float]:
    """The shares p from which this one is at most so many deviations away: the square of those is p (1 - p) / N, and
    the variance of the noise. Without noise it is Wilson's interval, which is wide also where no record was seen.
    """
    square = deviations**2
    leading, middle = 1 + square / total, share + square / (2 * total)
    reach = math.sqrt(middle**2 - leading * (share**2 - square * noise))
    return max(0.0, (middle - reach) / leading), min(1.0, (middle + reach) / leading)


def chi_square(table: NDArray[np.float64], noise: NDArray[np.float64]) -> float:
    """Wald's statistic of independence of a table of counts, with the variance of the noise on each, (cells,)."""
    total = float(table.sum())
    rows, columns = table.sum(1) / total, table.sum(0) / total
    apart = (table - total * np.outer(rows, columns)).reshape(-1)
    of_records = total * np.kron(_multinomial(rows), _multinomial(columns))
    carried = np.kron(_centred(rows), _centred(columns))
    covariance = of_records + carried @ (noise[:, None] * carried.T)
    return float(apart @ np.linalg.pinv(covariance, hermitian=True) @ apart)


def _multinomial(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.diag(shares) - np.outer(shares, shares)


def _centred(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.eye(len(shares)) - np.outer(shares, np.ones(len(shares)))
