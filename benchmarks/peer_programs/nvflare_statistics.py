"""What NVFlare's own filters leave of some statistics: the values that plugins/deployed/tests compares with.

In an environment of its own, whose pins clash with those of fedplug:

    pip install nvflare==2.9.0
    python benchmarks/peer_programs/nvflare_statistics.py plugins/deployed/tests/nvflare_statistics.json
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from nvflare.app_common.abstract.statistics_spec import Bin, Histogram, HistogramType
from nvflare.app_common.statistics.histogram_bins_cleanser import HistogramBinsCleanser
from nvflare.app_common.statistics.min_count_cleanser import MinCountCleanser
from nvflare.app_common.statistics.numeric_stats import get_global_stats

SETTINGS = [(10, 10), (0, 10), (10, 100), (25, 40), (5, 0)]
CLIENTS, FEATURES = 4, 12


def main(path: str) -> None:
    """Writes the file: for each setting what each client has and sends, and the mean over all."""
    draw, cases = random.Random(7), []
    for min_count, max_bins_percent in SETTINGS:
        clients, sent = [], {}
        for client in range(CLIENTS):
            given = {
                f"f{number}": {
                    "count": draw.choice([3, 9, 10, 11, 24, 40, 60]), "sum": float(draw.randrange(-20, 20)),
                    "cells": draw.choice([1, 2, 4, 5, 6, 25]),
                } for number in range(FEATURES)
            }  # fmt: skip
            statistics: dict[str, Any] = {
                "count": {"all": {name: each["count"] for name, each in given.items()}},
                "failure_count": {"all": dict.fromkeys(given, 0)},
                "sum": {"all": {name: each["sum"] for name, each in given.items()}},
                "mean": {"all": {name: each["sum"] / each["count"] for name, each in given.items()}},
                "histogram": {"all": {
                    name: Histogram(HistogramType.STANDARD, [Bin(i, i + 1, 1) for i in range(each["cells"])])
                    for name, each in given.items()
                }},
            }  # fmt: skip
            for cleanser in (MinCountCleanser(min_count), HistogramBinsCleanser(max_bins_percent)):
                statistics, _ = cleanser.apply(statistics, f"site-{client}")
            for name, each in given.items():
                each["sent"] = [key for key in ("count", "sum", "histogram") if name in statistics[key]["all"]]
            clients.append(given)
            sent[f"site-{client}"] = statistics
        kinds = ("count", "failure_count", "sum", "mean")
        first = {kind: {site: each[kind] for site, each in sent.items()} for kind in kinds}
        means = get_global_stats({}, first, "fed_stats_1st_statistics", {}, 9)["mean"]["all"]
        cases.append({
            "min_count": min_count, "max_bins_percent": max_bins_percent, "clients": clients, "means": means,
        })  # fmt: skip
    Path(path).write_text(json.dumps(cases))


main(sys.argv[1])
