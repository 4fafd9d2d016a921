"""An attack's requirements for a view, and the reasons why a view does not meet them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug_attacks.api.observation import ObservedUpdate, Seen

if TYPE_CHECKING:
    from fedplug.api.blocks import Layout

LAST_WEIGHT, LAST_BIAS, FIRST_WEIGHT, FIRST_BIAS = "last_weight", "last_bias", "first_weight", "first_bias"


def role(layout: Layout, name: str, num_classes: int = 0) -> str | None:
    """The parameter that plays a role in the model, by its shape and place; None where the model has none.

    Args:
        layout: of the model.
        name: `last_weight` (the last parameter, a matrix (num_classes, d)), `last_bias`; `first_weight` (the first
            parameter, a matrix (h, d)), `first_bias`. A bias is the vector of the same layer.
        num_classes: outputs of the model.
    """
    parameters = layout.parameters
    last = name.startswith("last")
    matrices = [p for p in (reversed(parameters) if last else parameters) if len(p.shape) != 1]
    weight = matrices[0] if matrices else None
    if weight is None or len(weight.shape) != 2 or (last and weight.shape[0] != num_classes):
        return None
    if name.endswith("weight"):
        return weight.name
    biases = (p.name for p in parameters if p.layer == weight.layer and p.shape == weight.shape[:1])
    return next(biases, None)


def takes_inputs(layout: Layout, shape: tuple[int, ...]) -> bool:
    """Whether the first layer is fully connected, with an input for each value of an example of this shape."""
    name = role(layout, FIRST_WEIGHT)
    return any(p.name == name and p.shape[1] == int(np.prod(shape)) for p in layout.parameters)


@dataclasses.dataclass(frozen=True)
class Needs:
    """An attack's requirements for a view. If they are not met, the attack does not run and reports why.

    Attributes:
        update: an observed update of a single client.
        model: the model that the update was made from.
        tensors: role or parameter name -> `any` (some of its entries visible) or `all`; the roles are `last_weight`,
            `last_bias`, `first_weight`, `first_bias`, and `model` (all parameters together).
        batch_size: the number of examples must be known, and lie in this range (least, most).
        loss: the loss that the update must descend; None: any.
        equal_classes: whether all classes must have the same weight in the loss; False: the attack handles weights.
        classification: one label an example (no segmentation).
        candidates: a membership challenge.
        public: public examples.
        told: something that the target sent in a negotiation, or that its uploads show in addition to values. The
            question is then about all of the target's data, even if a batch is probed, because negotiations use all of
            them.
        rounds: every round of the target that the adversary saw (`View.observations`), which takes a while with many
            messages. The attacked round may be the only one: no attack is refused for that.
        sums: an opened sum of several clients' updates is enough if no single one is visible.
    """

    update: bool = True
    model: bool = True
    tensors: tuple[tuple[str, str], ...] = ()
    batch_size: tuple[int, int] | None = None
    loss: str | None = "cross_entropy"
    equal_classes: bool = True
    classification: bool = True
    candidates: bool = False
    public: bool = False
    told: bool = False
    rounds: bool = False
    sums: bool = False

    def describe(self) -> str:
        """A readable line."""
        parts = [name for name in ("update", "model", "candidates", "public", "told", "rounds") if getattr(self, name)]
        parts += [f"{how} of {name}" for name, how in self.tensors]
        if self.batch_size:
            parts.append(f"batch size {self.batch_size[0]} to {self.batch_size[1]}")
        if self.loss:
            parts.append(f"loss {self.loss}")
        return ", ".join(part.replace("_", " ") for part in parts)

    def unmet(self, view: Any, public: Any = None) -> str:
        """Why the attack is not applicable to a `View`; empty if it is."""
        if self.model and (view.model is None or view.vector is None):
            return f"the model at that time is not known to the adversary {view.adversary}"
        if self.classification and view.segmentation:
            what = f"the task is {view.task}" if view.task else "the model labels pixels"
            return f"{what}, but the attack needs one label for each example"
        if self.candidates and view.candidates is None:
            return "there is no challenge of candidate examples for this target"
        if self.public and public is None:
            return "it needs public examples; write data: {public: 200, ...} in the recipe"
        if self.told and not view.told:
            return f"the adversary {view.adversary} reads nothing that this client sent in a negotiation"
        if not self.update:
            return ""
        if view.update is None:
            return f"the adversary {view.adversary} sees no update of this client"
        update, meaning = view.update, view.update.meaning
        if len(update.contributors) != 1 and not self.sums:
            return f"the visible part is a sum of {len(update.contributors)} updates, not a single one"
        if self.loss and meaning.loss != self.loss:
            return f"the update descends {meaning.loss}, but the attack is for {self.loss}"
        if self.loss and self.equal_classes and meaning.class_weights:
            return f"the update descends weighted {meaning.loss}, but the attack is for {self.loss}"
        if self.batch_size:
            least, most = self.batch_size
            if meaning.examples is None:
                return "the number of examples behind the update is not known to this adversary"
            if not least <= meaning.examples <= most:
                return f"{meaning.examples} examples are behind the update; the attack is for {least} to {most}"
        for name, how in self.tensors:
            if reason := _hidden(update, name, how, view.num_classes):
                return reason
        return ""


def _hidden(update: ObservedUpdate, name: str, how: str, num_classes: int) -> str:
    """Why a tensor is not as visible as it must be; empty if it is."""
    if name == "model":
        visible = update.visible
    else:
        roles = (LAST_WEIGHT, LAST_BIAS, FIRST_WEIGHT, FIRST_BIAS)
        parameter = role(update.layout, name, num_classes) if name in roles else name
        if parameter is None:
            return f"the model has no fully connected {name.replace('_', ' ')}"
        visible = update.tensor(parameter).visible
        name = f"{name} ({parameter})" if parameter != name else name
    if how == "all" and not visible.all():
        return f"{np.count_nonzero(~visible)} of {visible.size} entries of {name} are hidden"
    if not visible.any():
        seen = f"; {update.unplaced} values are seen, but their positions are unknown" if update.unplaced else ""
        if (update.states == Seen.SCRAMBLED).any():
            seen += "; no proof shows that the bytes sent instead hide them"
        return f"all {visible.size} entries of {name} are hidden{seen}"
    return ""
