"""Survival from counts of events and of censored records on a public grid of times: Kaplan-Meier, and log-rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug import Field

from fedplug_analytics.cells import OneCell
from fedplug_analytics.statistic import Axis, Column, Edges, Estimate, Records, Released, as_held, counted

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KaplanMeier(OneCell):
    """Survival curves (Kaplan & Meier 1958), and the log-rank test between groups (Mantel 1966).

    A record counts once: as an event or as censored, at the first time of the grid that is not before its own. A record
    beyond the grid is at risk at all its times. Numbers at risk are sums of those counts from the end, so the norm of a
    record is 1 however long the grid is. Times that lie on the grid give the same curve as without one. With
    `small_cells` a curve ends where fewer are at risk, and the test where they are in one of the groups. Before that
    each step of a curve shows its number of events, however small.

    Intervals are of log(-log S): Greenwood's variance, and that of the noise. Before the first event they begin at the
    survival that leaves so many without one (Clopper & Pearson 1934). The test compares observed events with
    expected ones in each group; its covariance is the hypergeometric one, and that of the noise.
    """

    statistic: Literal["kaplan_meier"]
    time: Column
    event: Column = Field(description="the column that is 1 where the event happened, and 0 where it was not seen")
    times: Edges = Field(min_length=1, max_length=1_000, description="the grid of times, rising")
    groups: Axis | None = Field(None, description="a curve for each group, and the log-rank test; null: one curve")

    def model_post_init(self, context: Any) -> None:
        """Raises ValueError where there is one group alone."""
        if self.groups is not None and len(self.groups.names) < 2:
            raise ValueError("groups has 1 cell; name two values or more, or leave groups out")

    @property
    def title(self) -> str:
        """Of the columns."""
        by = "" if self.groups is None else f" by {self.groups.column}"
        return f"survival by {self.time}{by}"

    @property
    def _names(self) -> list[str]:
        return ["all"] if self.groups is None else self.groups.names

    @property
    def size(self) -> int:
        """For each group: events and censored at each time, and those beyond."""
        return len(self._names) * (2 * len(self.times) + 1)

    def sums(self, records: Records) -> NDArray[np.float64]:
        """The counts, group by group."""
        time, event = records.column(self.time), records.column(self.event)
        count, grid = len(self._names), len(self.times)
        group = np.zeros(len(records), np.int64) if self.groups is None else self.groups.cells(records)
        place = np.searchsorted(as_held(self.times), time, side="left")
        place = np.where(place == grid, 2 * grid, np.where(event == 1, place, grid + place))
        known = (group >= 0) & ~np.isnan(time) & ((event == 0) | (event == 1))
        return counted(np.where(known, group * (2 * grid + 1) + place, -1), count * (2 * grid + 1))

    def answer(self, released: Released) -> Iterator[Estimate]:
        """Survival at each time, the median, and the log-rank test where there are groups."""
        for name, one in zip(self._names, released.split(len(self._names)), strict=True):
            yield from self._curve(one, "" if self.groups is None else f" where {self.groups.column} is {name}")
        if self.groups is not None:
            yield from self._test(released)

    def _curve(self, released: Released, where: str) -> Iterator[Estimate]:
        events, at_risk = _counts(released.sums)
        # From the first time on at which too few are at risk, as far as the noise shows, there is no curve.
        good = (at_risk >= max(1, released.small_cells)) & (events < at_risk)
        last = int(np.argmin(good)) if not good.all() else len(good)
        ended = bool(last < len(good) and at_risk[last] >= max(1, released.small_cells) and not released.noise.any())
        logs = _log_survival(released.sums)[:last]
        greenwood = np.cumsum(np.maximum(events, 0)[:last] / (at_risk * (at_risk - events))[:last])
        noise = released.spread(lambda sums: _log_survival(sums)[..., :last]) if last else np.empty(0)
        found = [
            _survival(released, f"S({time:g}){where}", *numbers)
            for time, *numbers in zip(self.times, logs, greenwood, noise, at_risk, strict=False)
        ]
        if ended:  # all that were left had the event
            found.append(Estimate(f"S({self.times[last]:g}){where}", 0.0, note="nobody is left"))
        yield from found
        for time in self.times[len(found) :]:
            few = max(1, released.small_cells)
            yield Estimate(f"S({time:g}){where}", note=f"fewer than {few} at risk, as far as the noise shows")
        ends = (_median(self.times, [getattr(each, end) for each in found]) for end in ("value", "low", "high"))
        value, low, high = ends
        unseen = "" if value is not None else "the curve does not fall to one half"
        yield Estimate(f"median of {self.time}{where}", value, low, high, unseen)

    def _test(self, released: Released) -> Iterator[Estimate]:
        """Z' V^+ Z of the groups' observed less expected events, with one degree of freedom fewer than groups."""
        from scipy import stats

        groups = len(self._names)
        each = [_counts(one) for one in np.split(released.sums, groups)]
        if why := released.too_few(*(at_risk[0] for _, at_risk in each), least=1):
            yield Estimate("log-rank", note=f"a group is {why}")
            return
        events, at_risk = (np.array(part) for part in zip(*each, strict=True))  # (groups, times)
        last = _steps(at_risk.sum(0))
        if released.small_cells:  # later ones are hidden in one of the curves
            last = min(last, _steps(at_risk.min(0) >= released.small_cells))
        d, n = np.maximum(events.sum(0)[:last], 0), at_risk.sum(0)[:last]
        shares = at_risk[:, :last] / n
        # Where one is at risk, there is no variance.
        scale = d * (n - d) / np.where(n > 1, n - 1, np.inf)
        covariance = np.diag(shares @ scale) - (shares * scale) @ shares.T
        apart = _apart(released.sums, groups, last)
        covariance = covariance + released.covariance(lambda sums: _apart(sums, groups, last))
        found = float(apart @ np.linalg.pinv(covariance, rcond=1e-9, hermitian=True) @ apart)
        yield Estimate("log-rank", found)
        yield Estimate("degrees of freedom", groups - 1)
        yield Estimate("p-value", float(stats.chi2(groups - 1).sf(found)))

    def figures(self, sums: NDArray[np.float64]) -> Mapping[str, float]:
        """Survival at the last time, by group."""
        last = {}
        for name, one in zip(self._names, np.split(sums, len(self._names)), strict=True):
            events, at_risk = _counts(one)
            if np.all((at_risk > 0) & (events < at_risk)):
                where = "" if self.groups is None else f" where {self.groups.column} is {name}"
                last[f"S({self.times[-1]:g}){where}"] = float(np.exp(_log_survival(one)[-1]))
        return last


# -- parts -------------------------------------------------------------------------------------------------------------


def _counts(sums: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Events at each time, and how many are at risk there, (..., times) each."""
    grid = (sums.shape[-1] - 1) // 2
    events, censored, beyond = sums[..., :grid], sums[..., grid : 2 * grid], sums[..., 2 * grid :]
    leaving = (events + censored)[..., ::-1]
    return events, np.cumsum(leaving, -1)[..., ::-1] + beyond


def _log_survival(sums: NDArray[Any]) -> NDArray[Any]:
    """log S at each time, (..., times): the sum of log(1 - d / r)."""
    events, at_risk = _counts(sums)
    with np.errstate(divide="ignore", invalid="ignore"):  # behind the end of the curve
        return np.cumsum(np.log(1 - events / at_risk), -1)


def _survival(
    released: Released, name: str, log: float, greenwood: float, noise: float, at_risk: float
) -> Estimate:  # fmt: skip
    """S at a time, with its interval; that of log S where the noise is most of it."""
    value, reach = min(math.exp(log), 1.0), released.quantile() * math.sqrt(greenwood + noise)
    if log >= 0:  # no event, as far as the noise shows
        least = ((1 - released.confidence) / 2) ** (1 / at_risk)
        return Estimate(name, value, least * math.exp(-reach), value)
    if noise > greenwood:  # log(-log S) says nothing
        return Estimate(name, value, min(math.exp(log - reach), 1.0), min(math.exp(log + reach), 1.0))
    # Close to 1, one end of the interval is 0: the exponent may exceed what a float holds.
    low, high = (math.exp(log * math.exp(min(side * reach / -log, 700.0))) for side in (1, -1))
    return Estimate(name, value, low, high)


def _median(times: tuple[float, ...], curve: list[Any]) -> float | None:
    """The first time at which a curve is at one half or lower; None where it is at none."""
    return next((time for time, at in zip(times, curve, strict=False) if at is not None and at <= 0.5), None)


def _steps(at_risk: NDArray[Any]) -> int:
    """At how many times, from the first on, somebody is at risk."""
    return int(np.argmin(at_risk > 0)) if not (at_risk > 0).all() else len(at_risk)


def _apart(sums: NDArray[Any], groups: int, last: int) -> NDArray[Any]:
    """For each group, the events seen less those expected if all groups were alike, (..., groups)."""
    each = [_counts(one) for one in np.split(sums, groups, axis=-1)]
    all_events, everybody = (np.sum(part, 0)[..., :last] for part in zip(*each, strict=True))
    return np.stack(
        [
            (events[..., :last] - all_events * at_risk[..., :last] / everybody).sum(-1) for events, at_risk in each
        ], -1,
    )  # fmt: skip
