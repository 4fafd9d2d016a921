"""Sketch: an attack."""

import fedplug
import numpy as np
from fedplug import Finds
from fedplug_attacks import Attacker, AttackReport, Needs, View
from fedplug_attacks.api.needs import LAST_BIAS, role


class Thing(fedplug.Attack):
    """Guess how often each class was in a batch, from the gradient of the last layer's bias."""

    finds = Finds(
        needs=Needs(tensors=((LAST_BIAS, "any"),), batch_size=(1, 1000)), what=frozenset({"labels"}),
        headline=("ln_acc", "high"), success=("ln_acc", ">=", 0.95),
    )  # fmt: skip

    def attack(self, view: View, attacker: Attacker) -> AttackReport:
        """An untrained model gives every class 1/K, so the count of class i is about B (1/K - g_i)."""
        assert view.update is not None, "finds.needs asks for a tensor of it"
        gradient = view.update.as_gradient()
        name, batch = role(gradient.layout, LAST_BIAS, view.num_classes), gradient.meaning.examples or 0
        assert name is not None, "finds.needs asks for it"
        share = 1 / view.num_classes - gradient.tensor(name).dense(0.0)  # what is hidden counts as 0
        return AttackReport("finished", counts=np.round(batch * share).clip(0), seed=view.seed)
