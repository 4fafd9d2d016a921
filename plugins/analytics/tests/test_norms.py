"""What one record adds to the sums is bounded as stated: noise for single records, and clips, are scaled to it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from analytics_toys import asked, records
from fedplug_analytics.statistic import Statistic
from fedplug_analytics.statistics import KINDS, Statistics
from hypothesis import given
from hypothesis import strategies as st

_GROUPS = {"column": "group", "values": (0, 1)}
ASKED: dict[str, Statistic] = {
    each.statistic: each for each in (
        asked("count"), asked("mean", column="x", bounds=(-1, 3)), asked("histogram", column="x", edges=(0, 1, 2)),
        asked("contingency", rows={"column": "x", "edges": (0, 1, 2)}, columns=_GROUPS),
        asked("quantiles", column="x", bounds=(-1, 3), bins=7),
        asked("t_test", column="x", bounds=(-1, 3), groups=_GROUPS),
        asked("kaplan_meier", time="x", event="event", times=(0, 1, 2), groups=_GROUPS),
    )
}  # fmt: skip
NUMBER = st.one_of(st.floats(-5, 5), st.just(math.nan), st.just(math.inf))
RECORD = st.tuples(NUMBER, st.sampled_from((0, 1, 2)), st.sampled_from((0, 1, 7)))


def sums_of(statistic: Statistic, rows: list[tuple[Any, ...]]) -> np.ndarray:
    x, group, event = np.array(rows, np.float64).reshape(-1, 3).T
    return statistic.sums(records(x=x, group=group, event=event))


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(RECORD, min_size=1, max_size=8), RECORD)
def test_a_record_adds_no_more_than_its_norm(kind: str, rows: list[tuple[Any, ...]], another: tuple[Any, ...]) -> None:
    """Gaps and infinite numbers too."""
    statistic = ASKED[kind]
    apart = sums_of(statistic, [*rows, another]) - sums_of(statistic, rows)
    assert apart.shape == (statistic.size,)
    assert np.isfinite(apart).all()
    for order in (1, 2):
        assert np.linalg.norm(apart, order) <= statistic.record_norm(order) * (1 + 1e-9)


def test_norms_of_several_statistics_add_up_as_those_of_vectors_do() -> None:
    part = Statistics(Statistics.Options(of=tuple(ASKED.values())))
    assert part.record_norm(1) == pytest.approx(sum(each.record_norm(1) for each in ASKED.values()))
    assert part.record_norm(2) ** 2 == pytest.approx(sum(each.record_norm(2) ** 2 for each in ASKED.values()))
    assert part.size == sum(each.size for each in ASKED.values())
