"""Scores, plans and means are validated, and the right component is blamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from border_toys import LAYOUT, VALUES
from fedplug import Known, Plan, Plans
from fedplug.api.links import Link, Step
from fedplug.round.base import mean_problem, plan_problem, scores_problem


def test_a_mean_of_numbers_passes_and_another_names_who_made_it() -> None:
    assert mean_problem(VALUES, "noised", None) == ""
    known = Known(zone="noised")
    step = Step(Link("noised", "postprocess", "odd", None, "server"), (), (known, known))
    found = mean_problem(np.where(VALUES > 3, np.nan, VALUES), "noised", step)
    assert found.startswith("the mean of zone noised behind odd (postprocess) has 1 of 10 values NaN or infinite")
    assert mean_problem(np.full(10, np.inf), "noised", None).startswith("the mean of zone noised has 10 of 10 values")


@pytest.mark.parametrize(
    ("scores", "per", "problem"),
    [
        (np.zeros(9, np.float32), "scalar", "it gave float32[9]; it must give floats [10], one score a scalar"),
        (np.zeros(10, np.float32), "layer", "it gave float32[10]; it must give floats [2], one score a layer"),
        (np.zeros((10, 1)), "scalar", "it gave float64[10, 1]; it must give floats [10]"),
        (np.zeros(10, np.int64), "scalar", "it gave int64[10]; it must give floats [10]"),
        ([0.0] * 10, "scalar", "it gave list; it must give floats [10]"),
        (np.zeros(10), "scalar", ""),
        (np.zeros(2), "layer", ""),
    ],
)
def test_scores_are_one_a_scalar_or_one_a_layer(scores: Any, per: str, problem: str) -> None:
    assert scores_problem(scores, LAYOUT, per).startswith(problem)
    assert bool(scores_problem(scores, LAYOUT, per)) == bool(problem)


ZONES = ("encrypted", "noised", "clear", "retained")


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"noised": 10}, "it set a dict as the client's plan; it must be a fedplug.Plan"),
        (Plan.single("noised", 9, ZONES), "its plan labels 9 scalars, but the model has 10"),
        (Plan.single("noised", 10, ("noised",)), "its plan knows the zones noised; it must be made with facts.zones:"),
        (Plan.single("clear", 10, ZONES), "its plan puts scalars into zone clear, which its `plans` do not"),
        (Plan.single("retained", 10, ZONES), "its plan puts scalars into zone retained, which its `plans` do not name"),
        (Plan.single("noised", 10, ZONES), ""),
    ],
    ids=range(6),
)
def test_a_plan_is_of_the_model_and_its_zones_are_stated(plan: Any, problem: str) -> None:
    found = plan_problem(plan, LAYOUT, ZONES, Plans(zones=frozenset({"noised"})))
    assert found.startswith(problem)
    assert bool(found) == bool(problem)
