"""A malicious server fishes for one class: the gradient of a batch becomes that of the examples of this class."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

import fedplug
import numpy as np
from fedplug import Field, Finds
from fedplug.api.errors import ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, ObservedUpdate, Plants, Seen, View
from fedplug_attacks._forms import OnView
from fedplug_attacks.api.needs import LAST_BIAS, LAST_WEIGHT, role, takes_inputs
from fedplug_attacks.api.planting import parameter, to_target

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Fishing(OnView, Plants):
    """One example out of a batch, by its class (Wen et al. 2022, Fishing for User Data, Sec. 3.1).

    `plant`: in the last layer the weights of all classes but c become 0, and their biases `alpha`. The features of an
    example of another class then get the gradient W_c p_c, with p_c about e^-alpha, and those of class c W_c (p_c - 1):
    all layers but the last have the gradient of the examples of class c. `attack`: if the batch has one example of
    class c, that is the gradient of a single example. `attacks.linear_leak` reads it off a fully connected first layer,
    and `attacks.inverting` searches for it elsewhere. Of the last layer only row c is used.

    Under a sum, `handed: target` gives all others zeros, so that the sum is the target's update (`to_target`).

    It needs a class that the batch has once: `label`. `attacks.negotiation` and `attacks.labels` find the classes of a
    client.
    """

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), batch_size=(1, 65536), sums=True),
        what=frozenset({"images"}), headline=("mse", "low"), success=("mse", "<=", 1e-2),
    )  # fmt: skip

    class Options(fedplug.Options):
        """The class and the clients to fish for, and the search."""

        label: int = Field(0, ge=0, description="c, the class of the example")
        alpha: float = Field(12.0, gt=0, description="how certain the planted model is that no example is of class c")
        handed: Literal["all", "target"] = Field(
            "all", description="clients that receive the planted model; target: all others receive zeros, against sums"
        )
        iterations: int = Field(600, ge=1, description="Adam steps of the search if the first layer is not fully "
                                                       "connected")
        tv: float = Field(0.01, ge=0, description="weight of total variation in that search")

    def __init__(self, options: Options) -> None:
        self.options, self.for_each_target = options, options.handed == "target"

    def plant(self, view: View, attacker: Attacker) -> NDArray[np.float32] | dict[int, NDArray[np.float32]]:
        """The honest model with another last layer.

        Raises:
            ViewError: its last layer is not fully connected with a bias, or has no such class.
        """
        planted, layout = view.start.copy(), attacker.facts.layout
        weight, bias = role(layout, LAST_WEIGHT, view.num_classes), role(layout, LAST_BIAS, view.num_classes)
        if weight is None or bias is None:
            raise ViewError("the last layer is not fully connected with a bias")
        if self.options.label >= view.num_classes:
            raise ViewError(f"label: {self.options.label}: there are {view.num_classes} classes, from 0")
        rows, shift = parameter(planted, layout, weight), parameter(planted, layout, bias)
        kept = rows[self.options.label].copy()
        rows[:], shift[:] = 0.0, self.options.alpha
        rows[self.options.label], shift[self.options.label] = kept, 0.0
        if self.for_each_target and view.target is not None:
            return to_target(planted, view.target, attacker)
        return planted

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Inverts the remaining gradient as that of one example."""
        weight, bias = (role(attacker.facts.layout, name, view.num_classes) for name in (LAST_WEIGHT, LAST_BIAS))
        if weight is None:
            raise ViewError("the last layer is not fully connected")
        update = _of_one(view.observed, [weight, *([bias] if bias else [])], self.options.label)
        caught = dataclasses.replace(view, update=update)
        report: AttackReport = self._inner(view, attacker).attack(view=caught, attacker=attacker)
        return dataclasses.replace(report, labels=None)

    def _inner(self, view: View, attacker: Attacker) -> fedplug.Attack:
        from fedplug_attacks.linear_leak import LinearLeak
        from fedplug_attacks.matching import InvertingGradients

        if takes_inputs(attacker.facts.layout, view.shape):
            return LinearLeak(LinearLeak.Options())
        options = InvertingGradients.Options(iterations=self.options.iterations, tv=self.options.tv)
        return InvertingGradients(options)


def _of_one(update: ObservedUpdate, last: list[str], label: int) -> ObservedUpdate:
    """The update as that of one example; in the last layer only the row of its class is visible."""
    kept = np.ones(update.layout.size, bool)
    for each in update.layout.parameters:
        if each.name in last:
            kept[each.slice].reshape(each.shape)[np.arange(each.shape[0]) != label] = False
    visible, meaning = kept[update.visible], dataclasses.replace(update.meaning, examples=1)
    return dataclasses.replace(
        update, states=np.where(kept, update.states, np.uint8(Seen.ABSENT)), values=update.values[visible],
        sigma=update.sigma[visible], meaning=meaning,
    )  # fmt: skip
