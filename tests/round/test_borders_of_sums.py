"""Sums, scores and plans are compared with what they must be, and the fault is laid at the right door."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from border_toys import BLOCK, LAYOUT, SEALED, VALUES, spoilt
from fedplug import (
    Adds,
    Known,
    Plan,
    Plans,
)
from fedplug.api.links import Link, Step
from fedplug.round.borders import plan_problem, scores_problem, sum_problem


def summed(total: Any, *values: Any) -> tuple[str, int | None]:
    known = Known(zone="noised", link="odd", layers=(6, 4))
    step = Step(Link("noised", "aggregate", "sum", None, "server"), known, (Adds(),), known.after((Adds(),)))
    blocks = {3 + i: BLOCK.replace(values=np.asarray(part, np.float32)) for i, part in enumerate(values or (VALUES,))}
    return sum_problem(total, blocks, dict.fromkeys(blocks, 1.0), step)


@pytest.mark.parametrize(
    ("total", "problem"),
    [
        (VALUES, "it gave an array float32[10]; it must give a Block"),
        (BLOCK.replace(zone="clear"), "it gave a block of zone clear"),
        (BLOCK.replace(values=VALUES.astype(np.float64)), "its values are float64[10]"),
        (BLOCK.replace(divisor="x"), "its divisor is 'x', which must be a number >= 0"),
        (BLOCK.replace(divisor=math.nan), "its divisor is nan, which must be a number >= 0"),
        (BLOCK.replace(contributors=-1), "its contributors is -1, which must be a whole number >= 0"),
        (BLOCK.replace(meta={"x": object()}), "its meta holds an object"),
        (BLOCK.replace(**SEALED), "it states that it leaves values plain, and gave a block closed by odd"),
        (BLOCK.replace(values=np.full(10, np.inf, np.float32)), "it made 10 of 10 values NaN or infinite of uploads"),
    ],
)
def test_a_sum_that_cannot_be_is_the_aggregators_fault(total: Any, problem: str) -> None:
    found, client_id = summed(total)
    assert found.startswith(problem)
    assert client_id is None


def test_a_sum_that_an_upload_spoilt_is_its_clients_fault() -> None:
    assert summed(spoilt(BLOCK), VALUES, VALUES * np.nan) == (
        "client 4 sent values that are NaN or infinite, which no sum survives", 4
    )  # fmt: skip
    assert summed(BLOCK.replace(values=VALUES * 2, divisor=2.0), VALUES, VALUES) == ("", None)


def test_a_sum_that_is_none_is_the_aggregators_fault() -> None:
    found, client_id = summed(BLOCK.replace(values=VALUES * 20), VALUES, VALUES)
    assert found.startswith("it states that it adds the weighted uploads up, and 2 of 10 values went elsewhere, up to ")
    assert client_id is None


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
        (Plan.single("noised", 10, ("noised",)), "its plan knows the zones noised; it must be made with ctx.zones:"),
        (Plan.single("clear", 10, ZONES), "its plan puts scalars into zone clear, which its `plans` do not"),
        (Plan.single("retained", 10, ZONES), "its plan puts scalars into zone retained, which its `plans` do not name"),
        (Plan.of("noised", 10, ZONES), "its plan does not share zone noised, and its `plans` do not say so"),
        (Plan.single("noised", 10, ZONES), ""),
    ],
    ids=range(7),
)
def test_a_plan_is_of_the_model_and_its_zones_are_stated(plan: Any, problem: str) -> None:
    found = plan_problem(plan, LAYOUT, ZONES, Plans(zones=frozenset({"noised"})))
    assert found.startswith(problem)
    assert bool(found) == bool(problem)
