"""LLG: the labels of a batch from the sign and size of the last layer's gradient."""

from __future__ import annotations

import fedplug
import numpy as np
from fedplug import Finds
from fedplug.api.errors import ViewError
from fedplug_attacks import Attacker, AttackReport, Needs, View


class Llg(fedplug.Attack):
    """Label leakage from gradients (Wainakh et al. 2022, User-level label leakage from gradients, Alg. 1).

    Behind ReLU or sigmoid, an example changes the sum of row i of the last layer's gradient only a little unless i is
    its class, and then by about m < 0. So each row with a negative sum is in the batch, and m follows from their mean.
    The labels that are left go to the lowest row, to which -m is added each time. A row that is partly hidden counts as
    the mean of its visible entries, and one that is wholly hidden is never chosen.
    """

    finds = Finds(
        needs=Needs(model=False, tensors=(("last_weight", "any"),), batch_size=(1, 10_000)), what=frozenset({"labels"}),
        headline=("ln_acc", "high"), success=("ln_acc", ">=", 0.95),
    )  # fmt: skip

    def describe(self) -> str:
        """A line for the plan."""
        return "labels from the signs of the last layer's rows (LLG)"

    def attack(self, view: View, attacker: Attacker) -> AttackReport:
        """Names as many labels as there are examples; not applicable if the update is no gradient of known size."""
        try:
            gradient = view.observed.as_gradient()
        except ViewError as error:
            return AttackReport("not_applicable", reason=str(error))
        size, classes = int(gradient.meaning.examples or 1), view.num_classes
        name = next(p.name for p in reversed(gradient.layout.parameters) if len(p.shape) == 2)
        rows = gradient.tensor(name)
        shown = rows.visible.sum(1)
        sums = rows.dense(0.0).sum(1, dtype=np.float64) / np.maximum(shown, 1)
        sums = np.where(shown > 0, sums, np.inf)
        if np.isnan(sums).any() or np.isneginf(sums).any():
            return AttackReport("diverged", reason="the last layer's gradient holds values that are not finite")
        there = np.flatnonzero(sums < 0)
        impact = float(sums[there].sum()) * (1 + 1 / classes) / size
        labels = there[np.argsort(sums[there], kind="stable")][:size].tolist()
        sums[labels] -= impact
        while len(labels) < size:
            lowest = int(np.argmin(sums))
            labels.append(lowest)
            # Without a negative row nothing is known of m, and each class gets its turn.
            sums[lowest] -= impact or -1.0
        attacker.progress(1, 1, None)
        return AttackReport("finished", labels=np.sort(labels), counts=np.bincount(labels, minlength=classes))
