"""An attack as a third party would write it: every round, a sum less a coalition's updates, and the labels of others.

It imports nothing but what the docs name. The images come from the first layers of all rounds, the classes from
`attacks.labels` asked in each round, and a client whom the server could ask whether it likes the answer is not needed.
"""

from __future__ import annotations

import dataclasses

import fedplug
import numpy as np
from fedplug import Field, Finds
from fedplug_attacks import Attacker, AttackReport, Needs, View, each_round, stacked
from fedplug_attacks.labels import Labels
from fedplug_attacks.linear_leak import LinearLeak


class Sixty(fedplug.Attack):
    """Average the classes that each round tells, and read the images off the first layers of all rounds."""

    finds = Finds(
        needs=Needs(tensors=(("first_weight", "any"), ("last_weight", "any")), batch_size=(1, 64), rounds=True),
        what=frozenset({"images", "labels"}), headline=("mse", "low"), success=("mse", "<=", 1e-3),
    )  # fmt: skip

    class Options(fedplug.Options):
        """How much of the past is used."""

        most: int = Field(20, ge=1, description="rounds")

    def __init__(self, options: Options) -> None:
        self.options = options

    def describe(self) -> str:
        """One line for the plan."""
        return f"the first layers and the labels of up to {self.options.most} rounds"

    def attack(self, view: View, attacker: Attacker) -> AttackReport:
        """Asks each round for the classes, and all of them together for the images."""
        rounds = each_round(view, self.options.most)
        labels = Labels(Labels.Options())
        told = [labels.attack(one, attacker).counts for one in rounds]
        counts = [np.asarray(each, np.float64) for each in told if each is not None]
        report = LinearLeak(LinearLeak.Options()).attack(stacked(view, self.options.most), attacker)
        assert view.update is not None
        metrics = {
            **report.metrics, "rounds": float(len(rounds)), "by_subtraction": float(len(view.update.subtracted)),
            "colluders_heard": float(sum(bool(view.told_by(client)) for client in range(1, 4))),
        }  # fmt: skip
        return dataclasses.replace(report, metrics=metrics, counts=np.mean(counts, axis=0) if counts else None)
