"""NVFlare's filter of statistics: it leaves out what NVFlare leaves out, and nothing follows from that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import RecipeError
from fedplug_analytics.answering import Answers
from fedplug_analytics.cells import Histogram
from fedplug_analytics.moments import Mean
from fedplug_analytics.statistic import Statistic
from fedplug_deployed.statistics_privacy import StatisticsPrivacy
from fedplug_runs.overlay import load_recipe

CASES = json.loads(Path(__file__).with_name("nvflare_statistics.json").read_text())
"""Made by benchmarks/peer_programs/nvflare_statistics.py, which names the version."""
RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['min_count']}-{case['max_bins_percent']}")
def test_what_is_sent_and_the_means_of_it_are_those_of_nvflare(case: dict[str, Any]) -> None:
    options = {key: case[key] for key in ("min_count", "max_bins_percent")}
    component = StatisticsPrivacy(StatisticsPrivacy.Options(**options))
    totals: dict[str, Any] = {name: np.zeros(2) for name in case["clients"][0]}
    for client in case["clients"]:
        for name, given in client.items():
            edges = tuple(map(float, range(given["cells"] + 1)))
            statistics: list[Statistic] = [
                Mean(statistic="mean", column=name, bounds=(-1, 1)),
                Histogram(statistic="histogram", column=name, edges=edges),
            ]
            counts = np.zeros(given["cells"])
            counts[0] = given["count"]
            values = np.concatenate([[given["count"], given["sum"], 1.0], counts]).astype(np.float64)
            sent = component.cleansed(values, statistics)
            assert sent[0] == given["count"]  # always
            assert bool(sent[2]) == ("sum" in given["sent"])
            assert bool(sent[3:].any()) == ("histogram" in given["sent"])
            assert {*sent} <= {*values, 0.0}
            totals[name] += sent[:2]
    for name, mean in case["means"].items():  # of columns that any client sent
        assert totals[name][1] / totals[name][0] == pytest.approx(mean, abs=1e-6)


def test_a_run_counts_records_whose_sums_were_left_out_and_says_so(tmp_path: Path) -> None:
    found = {}
    for min_count in (0, 10):  # 29 clients have ten records and 7 have nine
        recipe = load_recipe(RECIPES / "deployed/statistics-privacy.yaml", [f"train.min_count={min_count}"])
        ran = fedplug.run(recipe, output=tmp_path, muted=["lab.report"], quiet=True)
        found[min_count] = answers = Answers.among(ran.metrics)
        assert answers is not None
        assert "records still count" in answers.notes[0]
        assert all(line.state != "guaranteed" for line in ran.ledger.verdict.lines)
    every, left = ({each.name: each.value for one in found[at].answers for each in one.estimates} for at in (0, 10))
    assert every["records with bmi"] == left["records with bmi"] == 353
    middle = 30.0
    assert abs(every["mean of bmi"] - middle) > abs(left["mean of bmi"] - middle) > 0
    assert left["15 to 85"] == 290


def test_what_the_filter_does_not_know_is_refused() -> None:
    with pytest.raises(RecipeError, match="it knows count, mean and histogram; remove quantiles, t_test"):
        load_recipe(RECIPES / "statistics/statistics.yaml", ["train=deployed.statistics_privacy"])
