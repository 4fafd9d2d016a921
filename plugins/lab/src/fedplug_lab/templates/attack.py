"""Sketch: an attack."""

from __future__ import annotations

from typing import Literal, Self

import fedplug
import numpy as np
from fedplug import Facts, Field, Finds
from fedplug_attacks import AttackReport, Needs, View
from fedplug_attacks.api.needs import LAST_BIAS, role


class Thing(fedplug.Attack):
    """Guess how often each class was in a batch, from the gradient of the last layer's bias."""

    class Options(fedplug.Options):
        form: Literal["adaptive", "naive"] = Field("adaptive", description="naive: a hidden entry is taken for 0")

    finds = Finds(
        needs=Needs(tensors=((LAST_BIAS, "any"),), batch_size=(1, 1000)),
        what=frozenset({"labels"}),
        headline=("ln_acc", "high"),
        success=("ln_acc", ">=", 0.95),
    )

    @property
    def form(self) -> Literal["adaptive", "naive"]:
        return self.options.form  # type: ignore[no-any-return]

    def in_form(self, form: Literal["adaptive", "naive"]) -> Self:
        return type(self)(self.options.model_copy(update={"form": form}))

    def attack(self, view: View, facts: Facts) -> AttackReport:
        """An untrained model gives every class 1/K, so the count of class i is about B (1/K - g_i)."""
        assert view.update is not None, "finds.needs asks for a tensor of it"
        gradient, classes = view.update.as_gradient(), view.num_classes
        name, batch = role(gradient.layout, LAST_BIAS, classes), gradient.meaning.examples
        assert name is not None, "finds.needs asks for it"
        assert batch is not None, "finds.needs asks for its size"
        bias = gradient.tensor(name)
        # What is hidden counts for nothing: NaN becomes the share that every class has. The naive form takes g_i = 0.
        known = np.nan_to_num(bias.dense(np.nan if self.form == "adaptive" else 0.0))
        return AttackReport("finished", counts=np.round(batch * (1 / classes - known)).clip(0), seed=view.seed)
