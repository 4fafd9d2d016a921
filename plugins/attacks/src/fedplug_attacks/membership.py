"""Membership inference: which candidates a client trained on, by how sure a model is of them.

Two attacks, neither of which trains a model. `loss` ranks candidates by the loss alone (Yeom et al. 2018).
`likelihood_ratio` follows Carlini et al. 2022 as far as that goes without shadow models:

* as there, the statistic is the logit-scaled confidence phi = log p_y - log(1 - p_y), which is close to normal
  for each example;
* as in their offline attack, only the distribution of non-members is fitted, a normal one, and a candidate
  looks like a member by how far above its mean it is, in standard deviations;
* not as there, the mean is not that of shadow models trained without this very example. It is made of what is at hand:
  phi of the same example under the model that the client started from (calibration by difficulty, Watson et al. 2022),
  and the mean over public examples of the same class, which are known non-members (a population attack in the words of
  Ye et al. 2022). The variance is one for all, as theirs is where there are few shadow models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Context, Examples, Field, Finds, hookimpl
from pydantic import model_validator

from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.observation import ObservedUpdate
from fedplug_attacks.api.report import DIVERGED, FINISHED, NOT_APPLICABLE, AttackReport
from fedplug_attacks.api.view import Attacker, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH, _BATCH_VALUES = 1024, 1 << 21
"""Examples at once, and input values in them: activations of a deep network stay below 1 GiB."""
_LEAN = 4
"""Public examples a class must have for its mean to count as much as the mean of all classes."""


class Membership(fedplug.Attack):
    """Rank candidates by how much more certain a model is of them than of examples it never saw, or by its loss.

    The model is in evaluation mode, as whoever uses it has it. What is attacked is one of three: the `released` model
    that everybody gets; the `personal` one of the target; or the target's `local` model, which is the released one
    moved by what is visible of the target's update. Hidden entries stay where the released model has them, since that
    is the best that is known of them: so there is one form of this attack, not an adaptive and a naive one.
    """

    name: str

    class Options(fedplug.Options):
        """The statistic, the model it is taken from, and what it is compared with."""

        method: Literal["likelihood_ratio", "loss"] = Field(
            "likelihood_ratio", description="confidence relative to non-members, or the loss alone (Yeom et al. 2018)"
        )
        model: Literal["auto", "personal", "local", "released"] = Field(
            "auto",
            description="that is attacked: the target's own, the one its visible update leads to, or the released one; "
            "auto: the first of these that the adversary has",
        )
        reference: Literal["auto", "public", "released", "both"] = Field(
            "auto",
            description="of the likelihood ratio: public examples of the same class, the same example under the "
            "released model, or both; auto: all that there is, and without any the confidence alone",
        )

        @model_validator(mode="after")
        def _no_model_is_its_own_reference(self) -> Membership.Options:
            itself = self.model == "released" and self.reference in ("released", "both")
            if itself and self.method == "likelihood_ratio":
                raise ValueError(
                    f"model: released cannot be compared with itself (reference: {self.reference}); write reference: "
                    "public, or method: loss"
                )
            return self

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def finds(self) -> Finds:
        """Members, from candidates and a model; of an update something visible where the local model is attacked."""
        local = self.options.model == "local"
        public = self.options.method == "likelihood_ratio" and self.options.reference in ("public", "both")
        needs = Needs(
            update=local, tensors=(("model", "any"),) if local else (), loss=None, candidates=True, public=public
        )
        return Finds(
            needs=needs, what=frozenset({"members"}), headline=("membership_auc", "high"),
            success=("membership_auc", ">=", 0.6),
        )  # fmt: skip

    def describe(self) -> str:
        """One line for the plan."""
        model = {"auto": "the closest model to the target's", "local": "the target's local model"}.get(
            self.options.model, f"the {self.options.model} model"
        )
        if self.options.method == "loss":
            return f"membership by the loss under {model}"
        return f"membership by the likelihood ratio under {model}, reference: {self.options.reference}"

    @hookimpl
    def attack(self, view: View, ctx: Context) -> AttackReport:
        """A score for each candidate, higher for those that look like members.

        The metrics name the model that was attacked by the mean loss of the candidates under it, such as
        `loss_under_local`; of a local model they also state the `visible_share` of the update. `public_examples` is how
        many of them were the reference.
        """
        which = self._which(view)
        if which == "personal" and view.personal is None:
            reason = f"the adversary {view.adversary} has no model of the target's own"
            return AttackReport(NOT_APPLICABLE, reason=reason)
        ratio, reference = self.options.method == "likelihood_ratio", self.options.reference
        from_released = ratio and which != "released" and reference != "public"
        from_public = ratio and ctx.public is not None and reference != "released"
        if ratio and which == "released" and reference in ("released", "both"):
            reason = "the released model is the closest to the target's that is known, and cannot be its own reference"
            return AttackReport(NOT_APPLICABLE, reason=reason)
        assert isinstance(ctx.party, Attacker)
        assert view.vector is not None
        assert view.candidates is not None
        sets = [view.candidates] + ([ctx.public.examples] if from_public and ctx.public else [])
        models = {which: self._vector(which, view)} | ({"released": view.vector} if from_released else {})
        total, done = len(models) * sum(map(len, sets)), 0
        seen: dict[str, list[Confidence]] = {}
        for name, vector in models.items():
            seen[name] = []
            for examples in sets:
                seen[name].append(_confidence(view, vector, examples, _after(done, total, ctx.party.progress)))
                done += len(examples)
        for name, found in seen.items():
            if lost := sum(int(np.count_nonzero(~np.isfinite(one.loss + one.log_odds))) for one in found):
                return AttackReport(
                    DIVERGED, reason=f"the loss of {lost} examples under the {name} model is not a finite number"
                )
        metrics = {f"loss_under_{name}": float(np.mean(found[0].loss)) for name, found in seen.items() if len(sets[0])}
        metrics["public_examples"] = float(sum(map(len, sets[1:])))
        if which == "local" and view.update is not None:
            metrics["visible_share"] = float(np.mean(view.update.visible))
        members = -seen[which][0].loss
        if ratio:
            statistics = [one.log_odds for one in seen[which]]
            if from_released:
                statistics = [ours - one.log_odds for ours, one in zip(statistics, seen["released"], strict=True)]
            members = statistics[0]
            if from_public:
                members = above_non_members(members, sets[0].labels, statistics[1], sets[1].labels, view.num_classes)
        return AttackReport(FINISHED, metrics, members=members, seed=view.seed)

    def _which(self, view: View) -> str:
        """The model that is attacked: `personal`, `local` or `released`."""
        if self.options.model != "auto":
            return str(self.options.model)
        if view.personal is not None:
            return "personal"
        update = view.update
        return "local" if update is not None and len(update.contributors) == 1 and len(update.values) else "released"

    def _vector(self, which: str, view: View) -> NDArray[np.float32]:
        if which == "local":
            assert view.vector is not None
            assert view.update is not None
            return local_model(view.vector, view.update)
        vector = view.personal if which == "personal" else view.vector
        assert vector is not None
        return vector


@dataclasses.dataclass(frozen=True, eq=False)
class Confidence:
    """What a model says of examples.

    Attributes:
        loss: float64 (n,), cross entropy in nats.
        log_odds: float64 (n,), log p_y - log(1 - p_y) of the right class y.
    """

    loss: NDArray[np.float64]
    log_odds: NDArray[np.float64]


def local_model(vector: NDArray[np.float32], update: ObservedUpdate) -> NDArray[np.float32]:
    """The released model moved by what is visible of an update; hidden entries stay.

    Noised values are taken as they are: to shrink them by Wiener's filter, tensor by tensor, changed the area under the
    ROC curve by less than 0.03 either way, and lowered it more often.
    """
    # Of a gradient, whose sign is 1, a step against it.
    return vector - np.float32(update.meaning.sign) * update.dense(0.0)


def above_non_members(candidates: NDArray[np.float64], classes: NDArray[np.int64], public: NDArray[np.float64],
                      public_classes: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:  # fmt: skip
    """How far each candidate's statistic is above that of non-members of its class, in standard deviations.

    The mean of a class leans on the mean of all classes as if `_LEAN` more examples had that one.

    Args:
        candidates: (m,), of the candidates, and their `classes`.
        public: (n,), n >= 1, of known non-members, and their `public_classes`.
        num_classes: K.
    """
    counts = np.bincount(public_classes, minlength=num_classes)
    sums = np.bincount(public_classes, public, minlength=num_classes)
    means = (sums + _LEAN * np.mean(public)) / (counts + _LEAN)
    spread = float(np.std(public - means[public_classes]))
    return (candidates - means[classes]) / (spread or 1.0)


def _confidence(
    view: View, vector: NDArray[np.float32], examples: Examples, progress: Callable[[int, float], Any]
) -> Confidence:
    """What the model with these parameters says of examples, in evaluation mode; the view's model is left as it was.

    Calls `progress(examples done, mean loss of the last batch)`.
    """
    import torch
    from fedplug_std.torch_model import as_tensor, to_tensor, use_one_thread

    use_one_thread()
    model, module = view.model, view.model.module
    was, was_training = model.get_vector(), module.training
    step = max(1, min(_BATCH, _BATCH_VALUES // max(1, int(np.prod(examples.inputs.shape[1:])))))
    found = Confidence(np.empty(len(examples)), np.empty(len(examples)))
    model.set_vector(vector)
    module.eval()
    try:
        with torch.no_grad():
            for start in range(0, len(examples), step):
                part = slice(start, start + step)
                inputs = to_tensor(examples.inputs[part], view.mean, view.std, model.device)
                right = as_tensor(examples.labels[part]).to(model.device)[:, None]
                logits = module(inputs).double()
                of_right = logits.gather(1, right)[:, 0]
                # log p_y - log sum of the others' p: subtracting 1 - p_y would lose all digits of a confident answer.
                others = logits.scatter(1, right, -torch.inf).logsumexp(1)
                found.loss[part] = (logits.logsumexp(1) - of_right).cpu().numpy()
                found.log_odds[part] = (of_right - others).cpu().numpy()
                progress(min(start + step, len(examples)), float(found.loss[part].mean()))
    finally:
        model.set_vector(was)
        module.train(was_training)
    return found


def _after(before: int, total: int, progress: Callable[[int, int, float | None], None]) -> Callable[[int, float], None]:
    """Progress of one part of the work, after `before` examples of `total`."""
    return lambda done, loss: progress(before + done, total, loss)
