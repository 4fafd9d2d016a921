"""Federated averaging with fedplug's local engine, in the clear or, with FEDPLUG_FULL=1, with vote, BFV and noise."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

import fedplug
from common import Meter


class Clock:
    """A display that shows nothing, and notes when a round is complete, after the evaluation of its model."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def round_done(self, row: Any) -> None:
        """fedplug calls this once a round."""
        self.meter.mark()

    def start(self, *_: Any) -> None:
        """Nothing, as for all other calls of a display."""

    phase = note = finish = interrupted = close = start


PROTECTED: dict[str, Any] = {
    "score_parameters": [{"use": "paraaegis.magnitude"}],
    "negotiate_mask": {"use": "paraaegis.vote", "ratio": 0.1},
    "protect": {
        "encrypted": [{"use": "std.bfv", "key_holder": "clients"}],
        "noised": [{"use": "std.clip", "norm": 0.1}, {"use": "std.gaussian", "epsilon": 1, "delta": 1e-5}],
    },
    "postprocess": {"encrypted": ["std.bfv"]},
}
CLEAR: dict[str, Any] = {"negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []}}


def main() -> None:
    """Runs the recipe that does the work; data, partition and evaluation are fedplug's own."""
    with open(os.environ["FEDPLUG_WORK"] + ".json") as file:
        settings = json.load(file)
    full = os.environ.get("FEDPLUG_FULL") == "1"
    recipe = {
        "name": "peers", "seed": 1, "rounds": settings["rounds"] + 2,
        "data": {**settings["data"], "clients": settings["clients"], "partition": {"use": "std.iid"}},
        "model": settings["model"],
        "train": {
            "use": "std.sgd", "epochs": settings["epochs"], "batch_size": settings["batch_size"], "lr": settings["lr"],
        },
        "aggregate": {"use": "std.mean"}, **(PROTECTED if full else CLEAR),
    }  # fmt: skip
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder:
        run = fedplug.run(recipe, output=folder, display=Clock(meter), muted=["lab.report"], trust=True)
        last = run.metrics[settings["rounds"] - 1]
        found = last.figures["tokens foreseen"] if last.accuracy is None else last.accuracy
    meter.marks.pop()  # after the last round no client trains
    meter.answer(found)


main()
