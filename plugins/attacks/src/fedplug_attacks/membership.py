"""Membership inference: which candidates a client trained on, by a model's confidence in them.

Five statistics. phi = log p_y - log(1 - p_y) is the logit-scaled confidence in the right class y, which is close to
normal for each example.

* `lira`: offline, with shadow models (Carlini et al. 2022): the excess of phi under the target over its mean under
  shadow models that were trained without the example, in standard deviations. No shadow model saw any candidate: all
  are trained on public examples.
* `rmia`: the ratio p_y / p(y) of the probability under the target and under the average model (Zarifzadeh et al. 2024),
  offline: p(y) = ((1 + a) p_out + 1 - a) / 2, where p_out is the mean over the shadow models. Their score is the share
  of population examples z whose ratio is lower by a factor gamma. With one gamma for all, this share grows with the
  ratio: candidates are in the same order, and the ratio has no ties where no z is left.
  With `online: true` the adversary of both is stronger: it knows the candidates before the attack, and each shadow
  model trains on a random half of them, too. A candidate is then compared with the models that saw it and with those
  that did not: lira by the ratio of two normal densities, rmia with p(y) as the mean over all of them.
* `gradient`: the weight of each candidate's gradient in an update, estimated for all candidates together and whitened
  by the gradients of public examples: see `weights_in`.
* `likelihood_ratio`: without shadow models. As in `lira`, a candidate's score is the distance of its phi above the mean
  of non-members. The mean uses the available data: phi of the same example under the model that the client started from
  (calibration by difficulty, Watson et al. 2022), and the mean over public examples of the same class, which are known
  non-members (a population attack in the words of Ye et al. 2022). All candidates share one variance.
* `loss`: the loss alone (Yeom et al. 2018).
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Client, Examples, Field, Finds, Learns
from fedplug.api.data import ClientData
from fedplug.api.errors import ViewError
from fedplug.api.streams import stream
from pydantic import model_validator

from fedplug_attacks import Attacker, AttackReport, Meaning, Needs, ObservedUpdate, View
from fedplug_attacks._forms import OnView
from fedplug_attacks._public import sigma_of

if TYPE_CHECKING:
    import torch
    from fedplug.api.data import PublicData
    from numpy.typing import NDArray

_BATCH, _BATCH_VALUES = 1024, 1 << 21
"""Examples at once, and input values in them, so that activations of a deep network stay below 1 GiB."""
_LEAN = 4
"""Number of public examples at which the mean of a class counts as much as the mean of all classes."""
_BY_SHADOWS = ("rmia", "lira")
_FEWEST_PUBLIC = 8
"""Public examples below which no shadow model learns anything."""
_FEWEST = 4
"""Shadow models that are trained, however long it takes."""
_OFFLINE = 0.0
"""The parameter a of the offline `rmia`. Between 0 and 0.3 it made no difference on Fashion-MNIST. With 1, which uses
the shadow models directly, the attack found a third less at 1% FPR."""
_REST, _RIDGE = 0.1, 1e-3
"""Share of the covariance of public gradients in the unexplained part of `gradient`, and share of their mean variance
in every direction in addition."""
_GRADIENT_BYTES = 1 << 29
"""Largest size of the gradients of single examples; for larger models some entries are drawn."""


class Membership(OnView):
    """Rank candidates by a model's confidence in them, relative to examples that it never saw, or by its loss.

    The model is in evaluation mode, as in use. The attack targets one of three models: the `released` model that
    everybody gets, the target's `personal` one, or the target's `local` model, which is the released one moved by the
    visible part of the target's update. Hidden entries keep the released model's values, which are the best estimate.
    So this attack has one form, not an adaptive and a naive one.
    """

    class Options(fedplug.Options):
        """The statistic, its model, and its reference."""

        method: Literal["auto", "rmia", "lira", "gradient", "likelihood_ratio", "loss"] = Field(
            "auto",
            description="rmia and lira: confidence relative to shadow models trained on public examples; gradient: the "
            "weight of a candidate's gradient in the update; likelihood_ratio: confidence relative to non-members, "
            "without shadow models; loss: the loss alone (Yeom et al. 2018); auto: gradient for an update of one step, "
            "else rmia, where there are public examples and the trainer says how it trains; else, or with a reference, "
            "likelihood_ratio",
        )
        shadow_models: int = Field(16, ge=2, le=1024, description="number of shadow models of rmia and lira")
        online: bool = Field(
            False,
            description="a stronger adversary, who knows the candidates before the attack, and trains each shadow "
            "model on a random half of them as well (rmia and lira)",
        )
        seconds: float = Field(
            60.0, gt=0, description="seconds after which no further shadow model is started; four are always trained"
        )
        model: Literal["auto", "personal", "local", "released"] = Field(
            "auto",
            description="the attacked model: the target's own, the one that its visible update leads to, or the "
            "released one; auto: the first of these that the adversary has",
        )
        reference: Literal["auto", "public", "released", "both"] = Field(
            "auto",
            description="reference of the likelihood ratio: public examples of the same class, the same example under "
            "the released model, or both; auto: all that are available, or the confidence alone",
        )

        @model_validator(mode="after")
        def _no_model_is_its_own_reference(self) -> Membership.Options:
            itself = self.model == "released" and self.reference in ("released", "both")
            if itself and self.asked == "likelihood_ratio":
                raise ValueError(
                    f"model: released cannot be compared with itself (reference: {self.reference}); write reference: "
                    "public, or method: loss"
                )
            return self

        @model_validator(mode="after")
        def _shadows_with_and_without(self) -> Membership.Options:
            if self.online and (self.method not in ("auto", *_BY_SHADOWS) or self.reference != "auto"):
                raise ValueError(
                    f"online: true is for shadow models, but method is {self.method} and reference {self.reference}; "
                    "write method: rmia or method: lira, and no reference"
                )
            if self.online and self.shadow_models < 4:
                raise ValueError(
                    f"online: true needs two shadow models with each candidate and two without, and shadow_models is "
                    f"{self.shadow_models}; write 4 or more"
                )
            return self

        @property
        def asked(self) -> str:
            """The method; a reference implies the likelihood ratio if none is named."""
            return "likelihood_ratio" if self.method == "auto" and self.reference != "auto" else self.method

    @property
    def finds(self) -> Finds:
        """Finds members, from candidates and a model; the `local` model also needs a visible part of the update."""
        options = self.options
        needs = _needs(options.asked, options.model, options.reference)
        return Finds(
            needs=needs, what=frozenset({"members"}), headline=("membership_auc", "high"),
            success=("membership_auc", ">=", 0.6),
        )  # fmt: skip

    def describe(self) -> str:
        """One line for the plan."""
        options = self.options
        model = {"auto": "the closest model to the target's", "local": "the target's local model"}.get(
            options.model, f"the {options.model} model"
        )
        shadows = f"{options.shadow_models} shadow models trained on public examples"
        if options.online:
            shadows += " and on half of the candidates each (a stronger adversary, who knows them before)"
        return {
            "auto": f"membership under {model}, by {shadows}" + " if there are public examples" * (not options.online),
            "rmia": f"membership by the ratio to the average of {shadows}, under {model}",
            "lira": f"membership by the likelihood ratio to {shadows}, under {model}",
            "gradient": "membership by the weight of each candidate's whitened gradient in the update",
            "likelihood_ratio": f"membership by the likelihood ratio under {model}, reference: {options.reference}",
            "loss": f"membership by the loss under {model}",
        }[options.asked]

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """A score for each candidate, higher for those that look like members.

        The metrics name the attacked model in the mean loss of the candidates under it, such as `loss_under_local`. For
        a local model they also give the `visible_share` of the update. `public_examples` is the number of reference
        examples, and `shadow_models` the number of trained models.
        """
        assert view.candidates is not None
        which = self._which(view)
        if which == "personal" and view.personal is None:
            raise ViewError(f"the adversary {view.adversary} has no personal model of the target")
        method = self._method(which, view, attacker)
        if method == "gradient":
            return self._by_gradients(view, attacker)
        return self._by_confidence(method, which, view, attacker)

    def _method(self, which: str, view: View, attacker: Attacker) -> str:
        """The method, `auto` resolved.

        Raises:
            ViewError: it does not apply here.
        """
        method: str = self.options.asked
        if method not in ("auto", *_BY_SHADOWS):
            return method
        public = attacker.facts.public
        unknown = "there are no public examples" if public is None else self._schooling(which, view).unknown
        if not unknown and public is not None and len(public.examples) < _FEWEST_PUBLIC:
            unknown = f"{len(public.examples)} public examples are too few to train shadow models on"
        if method != "auto" or self.options.online:
            if unknown:
                raise ViewError(unknown)
            return "rmia" if method == "auto" else method
        meaning = view.update.meaning if which == "local" and view.update is not None else None
        one_step = meaning is not None and meaning.steps == 1 and bool(meaning.lr)
        if one_step and not _needs("gradient", "local", "auto").unmet(view, public):
            return "gradient"
        return "likelihood_ratio" if unknown else "rmia"

    def _by_confidence(self, method: str, which: str, view: View, attacker: Attacker) -> AttackReport:
        """By the confidence of the target in the candidates, relative to that of a reference if the method has one."""
        assert view.candidates is not None
        public, reference, ratio = attacker.facts.public, self.options.reference, method == "likelihood_ratio"
        from_released = ratio and which != "released" and reference != "public"
        from_public = ratio and public is not None and reference != "released"
        if ratio and which == "released" and reference in ("released", "both"):
            reason = "the released model is the closest known one to the target's, and cannot be its own reference"
            raise ViewError(reason)
        models = {which: [Shadow(self._vector(which, view))]}
        if from_released:
            models["released"] = [Shadow(self._vector("released", view))]
        if method in _BY_SHADOWS:
            models["shadow"] = self._shadows(which, view, attacker)
        sets = [view.candidates] + ([public.examples] if from_public and public else [])
        total, done = sum(map(len, models.values())) * sum(map(len, sets)), 0

        def progress(examples: int, loss: float) -> None:
            nonlocal done
            done += examples
            if "shadow" not in models:  # training them is what takes time
                attacker.progress(done, total, loss)

        seen = {
            name: [[_confidence(view, one, examples, progress) for one in alike] for examples in sets]
            for name, alike in models.items()
        }
        for name, found in seen.items():
            if reason := _lost([one for alike in found for one in alike], name):
                return AttackReport("diverged", reason=reason)
        metrics = self._metrics(which, view, seen[which][0][0])
        metrics["public_examples"] = float(sum(map(len, sets[1:])))
        if from_released and len(sets[0]):
            metrics["loss_under_released"] = float(np.mean(seen["released"][0][0].loss))
        ours = [each[0] for each in seen[which]]
        if method in _BY_SHADOWS:
            assert public is not None
            metrics |= {"shadow_models": float(len(models["shadow"])), "public_examples": float(len(public.examples))}
            attacker.progress(1, 1, None)
            held = np.stack([one.held for one in models["shadow"]]) if self.options.online else None
            theirs = seen["shadow"][0]
            if method == "lira":
                members = gaussian_scores(ours[0].log_odds, np.stack([one.log_odds for one in theirs]), held)
            else:
                members = ratios(-ours[0].loss, np.stack([-one.loss for one in theirs]), held)
            return AttackReport("finished", metrics, members=members, seed=attacker.facts.seed)
        members = -ours[0].loss
        if ratio:
            statistics = [one.log_odds for one in ours]
            if from_released:
                statistics = [mine - one[0].log_odds for mine, one in zip(statistics, seen["released"], strict=True)]
            members = statistics[0]
            if from_public:
                members = above_non_members(members, sets[0].labels, statistics[1], sets[1].labels, view.num_classes)
        return AttackReport("finished", metrics, members=members, seed=view.seed)

    def _shadows(self, which: str, view: View, attacker: Attacker) -> list[Shadow]:
        """Models trained like the one that is attacked, on public examples and maybe on candidates."""
        assert attacker.facts.public is not None
        return shadows(
            copy.deepcopy(view.model), self._schooling(which, view), attacker.facts.public, attacker,
            self.options.shadow_models, self.options.seconds, view.candidates if self.options.online else None,
        )  # fmt: skip

    def _by_gradients(self, view: View, attacker: Attacker) -> AttackReport:
        """By the weight of each candidate in the gradient estimated from the visible part of the update."""
        import torch
        from fedplug_std.per_sample import per_sample_gradients

        assert view.candidates is not None
        public = attacker.facts.public
        assert public is not None
        found = view.observed.as_gradient(view.vector)
        where = np.flatnonzero(found.visible)
        count, total = len(public.examples), len(public.examples) + len(view.candidates)
        most = max(1, _GRADIENT_BYTES // (4 * total))
        part = np.arange(len(where))
        if len(where) > most:
            part = np.sort(stream(view.seed, "entries").permutation(len(where))[:most])
        entries, done, rows = torch.from_numpy(where[part]), 0, list[torch.Tensor]()
        for examples in (public.examples, view.candidates):
            data = ClientData(examples, examples, examples, **public.about)
            for chunk in per_sample_gradients(view.model, examples, data, vector=view.vector):
                rows.append(chunk.detach().cpu()[:, entries])
                done += len(chunk)
                attacker.progress(done, total, None)
        gradients = torch.cat(rows)
        assert found.meaning.examples is not None
        members = weights_in(
            torch.from_numpy(found.values[part]), gradients[count:], gradients[:count], found.meaning.examples,
            float(np.mean(sigma_of(found)[part] ** 2)), shortened=found.meaning.clip_norm is not None,
        )  # fmt: skip
        metrics = {"public_examples": float(count), "visible_share": float(np.mean(found.visible))}
        return AttackReport("finished", metrics, members=members, seed=view.seed, gradient_evaluations=total)

    def _metrics(self, which: str, view: View, found: Confidence) -> dict[str, float]:
        metrics = {f"loss_under_{which}": float(np.mean(found.loss))} if len(found.loss) else {}
        if which == "local" and view.update is not None:
            metrics["visible_share"] = float(np.mean(view.update.visible))
        return metrics

    def _schooling(self, which: str, view: View) -> Schooling:
        """How the model that is attacked was trained, as far as this adversary can know."""
        if which == "released":
            return Schooling(view.start, ()) if view.initial is None else Schooling(view.initial, view.learns)
        if which == "personal" or view.update is None:
            return Schooling(view.start, view.learns[-1:])
        told = view.update.meaning
        return Schooling(view.start, (learns_of(told),), told.examples)

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
            return local_model(view.start, view.observed)
        vector = view.personal if which == "personal" else view.start
        assert vector is not None
        return vector


def _needs(method: str, model: str, reference: str) -> Needs:
    """The needs of a method; `auto` uses what is available."""
    gradient = method == "gradient"
    local = model == "local" or gradient
    compared = method == "likelihood_ratio" and reference in ("public", "both")
    return Needs(
        update=local, tensors=(("model", "any"),) if local else (), loss="cross_entropy" if gradient else None,
        batch_size=(1, 1 << 31) if gradient else None, candidates=True,
        public=compared or gradient or method in _BY_SHADOWS,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Confidence:
    """A model's confidence in examples.

    Attributes:
        loss: float64 (n,), cross entropy in nats.
        log_odds: float64 (n,), log p_y - log(1 - p_y) of the right class y.
    """

    loss: NDArray[np.float64]
    log_odds: NDArray[np.float64]


def local_model(vector: NDArray[np.float32], update: ObservedUpdate) -> NDArray[np.float32]:
    """The released model moved by the visible part of an update; hidden entries stay.

    Noised values are used directly. Shrinking them by Wiener's filter, tensor by tensor, changed the area under the ROC
    curve by less than 0.03 either way, and lowered it more often.
    """
    # Of a gradient, whose sign is 1, a step against it.
    return vector - np.float32(update.meaning.sign) * update.dense(0.0)


def gaussian_scores(
    target: NDArray[np.float64], shadows: NDArray[np.float64], held: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Distance of each phi above its normal distribution under models that did not see the example; (m,).

    Higher means that fewer such models would be so confident: 1 - Pr[N(mu_out, sigma_out^2) > phi] grows with (phi -
    mu_out) / sigma_out, which is given because it does not saturate (Carlini et al. 2022, the offline attack). The
    variance of an example is halfway between its own and the mean of all: with few shadow models its own variance alone
    is too noisy (the paper uses one variance for all below 64). With models that saw the example, it is the log ratio
    of the normal densities of phi under these and under the others (their Alg. 1, the online attack).

    Args:
        target: (m,), phi under the target.
        shadows: (S, m), phi under each shadow model.
        held: (S, m), which models saw which example, each at least two and not all but one; None: none of them.
    """
    below, spread = _normal(shadows, None if held is None else ~held)
    distance: NDArray[np.float64] = (target - below) / spread
    if held is None:
        return distance
    above, wide = _normal(shadows, held)
    ratio: NDArray[np.float64] = (distance**2 - ((target - above) / wide) ** 2) / 2 + np.log(spread / wide)
    return ratio


def _normal(
    values: NDArray[np.float64], where: NDArray[np.bool_] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of some values of each column, (m,); no deviation is 0."""
    chosen = np.ones(values.shape, np.bool_) if where is None else where
    variance = np.var(values, axis=0, ddof=1, where=chosen)
    spread = np.sqrt((variance + np.mean(variance)) / 2)
    return np.mean(values, axis=0, where=chosen), np.where(spread > 0, spread, 1.0)


def ratios(
    target: NDArray[np.float64], shadows: NDArray[np.float64], held: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """log (p_y / p(y)): the log ratio of each label's probability under the target and under the average model; (m,).

    Args:
        target: (m,), log p_y under the target.
        shadows: (S, m), the same under each shadow model.
        held: (S, m), which models saw which example: their mean and that of the others then count alike; None: none of
            them, and p(y) is estimated from the others.
    """
    likely = np.exp(shadows)
    if held is None:
        average = ((1 + _OFFLINE) * np.mean(likely, axis=0) + 1 - _OFFLINE) / 2
    else:
        average = (np.mean(likely, axis=0, where=held) + np.mean(likely, axis=0, where=~held)) / 2
    ratio: NDArray[np.float64] = target - np.log(average)
    return ratio


def weights_in(mean: torch.Tensor, candidates: torch.Tensor, public: torch.Tensor, examples: int, variance: float = 0.0,
               shortened: bool = False) -> NDArray[np.float64]:  # fmt: skip
    """The expected weight of each candidate's gradient in a mean of gradients, times the examples; (m,).

    The mean u of n gradients is sum_i w_i g_i + e. A candidate has the weight 1/n or 0, each as likely; e are examples
    that are not candidates, noise, and later steps. The best linear estimate of w is

        w_0 + (4 n^2 I + G V^-1 G^T)^-1 G V^-1 (u - G^T w_0 - (1 - sum w_0) mu),   w_0 = 1 / max(2n, m),

    mu and C being mean and covariance of the public gradients and V = `_REST` C / n + r I: directions common to all
    examples are whitened, and common parts of candidates are shared among them. With separate whitened cosines the area
    under the curve was at most 0.82, where this estimate had 1 (digits, a batch of 100, an untrained perceptron). By
    the matrix inversion lemma only systems of as many equations as examples are solved, whatever P.

    Args:
        mean: float32 (P,), u.
        candidates: float32 (m, P), G.
        public: float32 (k, P).
        examples: n, behind the mean.
        variance: of the noise on each entry of the mean.
        shortened: True if a clip may have made the mean smaller; the factor is then estimated.
    """
    import torch

    of_all = public.mean(0)
    rows = (public - of_all) / math.sqrt(len(public))
    gram, rest = (rows @ rows.T).double(), _REST / examples
    ridge = (rest * _RIDGE * float(gram.diagonal().sum()) / min(rows.shape) + variance) or 1.0
    across = (candidates @ rows.T).double()
    inner = torch.linalg.inv(gram + ridge / rest * torch.eye(len(rows), dtype=torch.float64))
    own = ((candidates @ candidates.T).double() - across @ inner @ across.T) / ridge

    def seen(vector: torch.Tensor) -> torch.Tensor:
        inside: torch.Tensor = (candidates @ vector).double() - across @ inner @ (rows @ vector).double()
        return inside / ridge

    before = 1 / max(2 * examples, len(candidates))
    expected = before * candidates.sum(0) + (1 - before * len(candidates)) * of_all
    if shortened:
        mean = mean * float(seen(expected).sum() / seen(mean).sum().clamp_min(1e-30))
    spread = 4 * examples**2 * torch.eye(len(candidates), dtype=torch.float64)
    moved = torch.linalg.solve(spread + own, seen(mean - expected))
    weights: NDArray[np.float64] = (examples * (before + moved)).numpy()
    return weights


def above_non_members(candidates: NDArray[np.float64], classes: NDArray[np.int64], public: NDArray[np.float64],
                      public_classes: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:  # fmt: skip
    """Distance of each candidate's statistic above that of non-members of its class, in standard deviations.

    The mean of a class is shrunk toward the mean of all classes, which counts like `_LEAN` further examples.

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
    view: View, under: Shadow, examples: Examples, progress: Callable[[int, float], Any]
) -> Confidence:
    """The confidence of a model in evaluation mode. The view's model does not change.

    Calls `progress(examples of a batch, their mean loss)`.
    """
    import torch
    from fedplug_std.per_sample import evaluation_mode
    from fedplug_std.torch_model import as_tensor, to_tensor, use_one_thread

    use_one_thread()
    model, module = view.model, view.model.module
    was = model.get_vector()
    step = max(1, min(_BATCH, _BATCH_VALUES // max(1, int(np.prod(examples.inputs.shape[1:])))))
    found = Confidence(np.empty(len(examples)), np.empty(len(examples)))
    had = {name: values.copy() for name, values in model.get_buffers().items()} if under.buffers else {}
    model.set_vector(under.vector)
    model.set_buffers(dict(under.buffers or had))
    try:
        with evaluation_mode(model), torch.no_grad():
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
                progress(len(right), float(found.loss[part].mean()))
    finally:
        model.set_vector(was)
        model.set_buffers(had)
    return found


def _lost(found: Sequence[Confidence], name: str) -> str:
    """Which losses are not finite, as a sentence; empty if all are."""
    lost = sum(int(np.count_nonzero(~np.isfinite(one.loss + one.log_odds))) for one in found)
    return f"the loss of {lost} examples under the {name} model is not a finite number" if lost else ""


@dataclasses.dataclass(frozen=True, eq=False)
class Shadow:
    """A model that candidates are put through.

    Shadow models are trained like the target, but on public examples: by `std.sgd` with the settings that the target's
    trainer states, from the same start, on half of the public examples or fewer, drawn at random. No private example
    reaches any of them, so they show a model's predictions for unseen examples (Carlini et al. 2022, the offline
    attack). An adversary who knows the candidates of a membership challenge gives each shadow model half of them as
    well (the online attack): pairs of models share them out, so that every candidate is in half of the models.

    Attributes:
        vector: float32 (P,).
        buffers: its batch-norm statistics, by name; empty: those of the view's model.
        held: bool (m,), the candidates that a shadow model was trained on; all False in the offline attack.
    """

    vector: NDArray[np.float32]
    buffers: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    held: NDArray[np.bool_] = dataclasses.field(default_factory=lambda: np.zeros(0, np.bool_))


@dataclasses.dataclass(frozen=True, eq=False)
class Schooling:
    """How a target was trained, as far as it is public.

    Attributes:
        start: float32 (P,), the model that training began with.
        rounds: what each round of training was; momentum starts from zero in each.
        size: number of examples that it trained on, if known and available; None: unknown.
    """

    start: NDArray[np.float32]
    rounds: tuple[Learns, ...]
    size: int | None = None

    @property
    def unknown(self) -> str:
        """Why no shadow can be trained like this; empty if it can."""
        if not self.rounds:
            return "the trainer does not say how it trains"
        for each in self.rounds:
            if each.descends != "cross_entropy":
                return f"the trainer descends {each.descends}, but shadow models would descend the cross entropy"
            if not each.lr or not each.epochs:
                return f"the trainer does not say {'its learning rate' if not each.lr else 'how many epochs it trains'}"
        return ""


def joined(first: Examples, second: Examples) -> Examples:
    """Both, one after the other; inputs of two types are compared as numbers from 0 to 1."""
    inputs = [each.inputs for each in (first, second)]
    if inputs[0].dtype != inputs[1].dtype:
        inputs = [each.astype(np.float32) / (255 if each.dtype == np.uint8 else 1) for each in inputs]
    return Examples(np.concatenate(inputs), np.concatenate([first.labels, second.labels]))


def learns_of(meaning: Meaning) -> Learns:
    """The training behind an update, as far as it is public."""
    return Learns(
        descends=meaning.loss, lr=meaning.lr, batch_size=meaning.batch_size, epochs=meaning.epochs,
        momentum=meaning.momentum, weight_decay=meaning.weight_decay, class_weights=meaning.class_weights,
    )  # fmt: skip


def shadows(model: Any, schooling: Schooling, public: PublicData, attacker: Attacker, count: int, seconds: float,
            candidates: Examples | None = None) -> list[Shadow]:  # fmt: skip
    """Shadow models, from the party's cache if an earlier target was trained alike.

    Args:
        model: the attacker's own `TorchModel`; it holds other weights and buffers afterwards.
        schooling: how the target was trained; nothing of it is unknown.
        public: what they are trained on.
        attacker: with the public facts, and a cache; told how many are trained.
        count: how many.
        seconds: after this time no further one is started; a few are always trained.
        candidates: m examples of a challenge, half of which each model is trained on; None: none of them.
    """
    pool, challenged = public, 0 if candidates is None else len(candidates)
    if candidates is not None:
        pool = dataclasses.replace(public, examples=joined(public.examples, candidates))
    known = len(public.examples)
    size = known // 2
    if schooling.size:  # half of the candidates take the places of as many public examples
        size = max(1, min(schooling.size - challenged // 2, size))
    digest = hashlib.sha256(schooling.start.tobytes())
    buffers = {name: values.copy() for name, values in model.get_buffers().items()}
    for part in (*buffers.values(), pool.examples.inputs, pool.examples.labels):
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(repr((schooling.rounds, size, count, challenged, attacker.facts.seed)).encode())
    kept: dict[str, list[Shadow]] = attacker.cache.setdefault("attacks.membership shadows", {})
    key = digest.hexdigest()
    if key not in kept:
        kept.clear()  # models of another round, whose attacks are finished
        started, kept[key] = time.monotonic(), []
        for number in range(count):
            if number >= _FEWEST and time.monotonic() - started > seconds:
                break
            rng = stream(attacker.facts.seed, "shadow", number)
            rows = np.sort(rng.permutation(known)[:size])
            shared = stream(attacker.facts.seed, "shadow candidates", number // 2).permutation(challenged)
            held = np.isin(np.arange(challenged), shared[number % 2 :: 2])
            rows = np.concatenate([rows, known + np.flatnonzero(held)])
            model.set_vector(schooling.start)
            model.set_buffers(buffers)
            trained(model, schooling.rounds, pool, rows, number, attacker)
            after = {name: values.copy() for name, values in model.get_buffers().items()}
            kept[key].append(Shadow(model.get_vector().copy(), after, held))
            attacker.progress(number + 1, count + 1, None)
    return kept[key]


def trained(model: Any, rounds: Sequence[Learns], public: PublicData, rows: NDArray[np.int64], number: int,
            attacker: Attacker) -> None:  # fmt: skip
    """Trains the model in place on public examples.

    Args:
        model: the attacker's own `TorchModel`.
        rounds: how each round trains, with a learning rate and a number of epochs.
        public: source of the examples.
        rows: indices of the examples; one may occur twice.
        number: of the shadow, for the order in which it sees them.
        attacker: with the public facts, and a cache.
    """
    from fedplug_std.training import Sgd

    own = public.examples.take(rows)
    client = Client(client_id=number, model=model, data=ClientData(own, own, own, **public.about))
    done = 0
    for alike, group in itertools.groupby(rounds):
        # Without momentum a new round resets nothing, so one long round is the same.
        times = len(list(group))
        together = 1 if alike.momentum else times
        assert alike.epochs is not None
        trainer = Sgd(Sgd.Options(
            epochs=alike.epochs * together, batch_size=min(alike.batch_size or len(own), len(own)), lr=alike.lr,
            momentum=alike.momentum, weight_decay=alike.weight_decay, class_weights=alike.class_weights,
        ))  # fmt: skip
        trainer.name = "shadow"
        for _ in range(times // together):
            client.facts = attacker.facts.at(done)
            trainer.train(client, client.facts)
            done += 1
