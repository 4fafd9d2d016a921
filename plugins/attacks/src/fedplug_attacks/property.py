"""Properties of a client's examples: the share with an attribute that the model need not be trained on."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Field, Finds, Measures, stream
from fedplug.api.errors import MetricError, ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, Truth, View
from fedplug_attacks._forms import Formed
from fedplug_attacks._public import sigma_of
from fedplug_attacks.membership import learns_of, trained

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Least number of shadow updates, whatever the time.
_FEWEST = 20
# Least number of public examples with the attribute, and of those without it.
_LEAST_EACH = 8
# Ridges that are tried, as shares of the mean of the Gram matrix's diagonal.
_RIDGES = np.logspace(-6, 2, 17)
# Shadow updates are uninformative if their error is not below that of the mean by this factor.
_TELLING = 0.9


class Property(Formed):
    """The share of a client's examples that have an attribute, from shadow updates of known shares.

    Ganju, Wang, Yang, Gunter and Borisov (CCS 2018) and Melis, Song, De Cristofaro and Shmatikov (IEEE S&P 2019, Sec.
    4.3): the attacker trains models, or takes gradients, on public examples with and without the property, and learns
    to tell them apart. Here each shadow update starts from the target's model and follows the target's trainer on the
    same number of public examples. The share of these with the attribute is drawn evenly from 0 to 1. Ridge regression
    on the visible entries, each in units of its spread over shadows and noise, predicts the share. The ridge and the
    accuracy are tested on shadows of public examples that were not used for the fit. The recipe names the attribute:
    `attack: {truth: {column: sex}}`. Naive: hidden entries of the target are 0.
    """

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), loss=None, equal_classes=False, classification=False, public=True),
        what=frozenset({"attribute"}), headline=("share_error", "low"), success=("share_error", "<=", 0.1),
    )  # fmt: skip

    class Options(Formed.Options):
        """How hidden entries are treated, and how many shadow updates are made."""

        shadow_updates: int = Field(200, ge=_FEWEST, le=10_000, description="number of shadow updates")
        seconds: float = Field(
            30.0, gt=0, description=f"seconds after which no shadow update starts; {_FEWEST} are always made"
        )

    def describe(self) -> str:
        """A line for the plan."""
        return f"the share of an attribute, by {self.options.shadow_updates} shadow updates ({self.options.form})"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Predicts the share; not applicable if no attribute is requested, or the training is unknown."""
        if reason := _unmet(view, attacker):
            raise ViewError(reason)
        assert view.attribute is not None
        updates, shares, halves = self._shadow_updates(view, attacker)
        visible, rng = view.observed.visible, stream(view.seed, "property", "noise")
        if self.options.form == "naive":
            target = view.observed.dense(0.0).astype(np.float64)
        else:
            target, updates = view.observed.values.astype(np.float64), updates[:, visible]
            updates = updates + rng.standard_normal(updates.shape) * sigma_of(view.observed)
        if view.observed.clips:  # their sizes are then uninformative
            target = target / (np.linalg.norm(target) or 1.0)
            updates = updates / np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), 1e-300)
        share, error, trivial = predicted(updates, shares, halves, target)
        unfit = ""
        if error > _TELLING * trivial:
            unfit = (
                f"shadow updates of known shares are told apart with an error of {error:.2f}, and the mean share has "
                f"{trivial:.2f}: the update does not show the attribute, or there are too few public examples"
            )
        metrics = {
            "share": float(np.clip(share, 0, 1)), "shadow_updates": float(len(shares)), "shadow_error": error,
            "shadow_error_of_mean": trivial,
        }  # fmt: skip
        return AttackReport(
            "finished", metrics, share=float(np.clip(share, 0, 1)), seed=view.seed, unfit=unfit,
            gradient_evaluations=len(shares) * int(view.observed.meaning.steps or 1),
        )  # fmt: skip

    def _shadow_updates(
        self, view: View, attacker: Attacker
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Updates (k, P) from the target's start on public examples, the share of these with the attribute, and the
        half of the public examples that they use."""
        assert view.attribute is not None
        assert attacker.facts.public is not None
        meaning, rng = view.observed.meaning, stream(view.seed, "property", "shadows")
        order = rng.permutation(len(view.attribute.public))
        having, lacking = (order[view.attribute.public[order] == whether] for whether in (True, False))
        size, started = int(meaning.examples or 1), time.monotonic()
        learns = dataclasses.replace(learns_of(meaning), epochs=meaning.epochs or 1)
        buffers = {name: values.copy() for name, values in view.model.get_buffers().items()}
        updates, shares = [], []
        for number in range(self.options.shadow_updates):
            if number >= _FEWEST and time.monotonic() - started > self.options.seconds:
                break
            count = int(rng.integers(size + 1))
            mine, others = having[number % 2 :: 2], lacking[number % 2 :: 2]
            rows = np.concatenate([_drawn(mine, count, rng), _drawn(others, size - count, rng)])
            view.model.set_vector(view.start)
            view.model.set_buffers(buffers)
            trained(view.model, (learns,), attacker.facts.public, rng.permutation(rows), number, attacker)
            updates.append(-meaning.sign * (view.model.get_vector().astype(np.float64) - view.start))
            shares.append(count / size)
            if number % 10 == 0:
                attacker.progress(number, self.options.shadow_updates, None)
        return np.array(updates), np.array(shares), np.arange(len(shares)) % 2 == 0


def _drawn(rows: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """This number of rows, each once if there are enough."""
    return rng.choice(rows, count, replace=count > len(rows))


def _unmet(view: View, attacker: Attacker) -> str:
    """Why the attack does not apply; empty if it does."""
    meaning = view.observed.meaning
    if view.attribute is None:
        return "no attribute is requested; write attack: {truth: {column: ...}} in the recipe"
    having = int(np.count_nonzero(view.attribute.public))
    lacking = len(view.attribute.public) - having
    if min(having, lacking) < _LEAST_EACH:
        return (
            f"{having} public examples have {view.attribute.name} and {lacking} do not; it takes {_LEAST_EACH} of each"
        )
    if meaning.examples is None or not meaning.lr:
        what = "learning rate" if not meaning.lr else "number of examples"
        return f"the {what} behind the update is not known to this adversary"
    task = attacker.facts.public.task if attacker.facts.public is not None else None
    descends = "cross_entropy" if task is None else task.descends
    if meaning.loss != descends:
        return f"the update descends {meaning.loss}, and shadow updates would descend {descends}"
    return ""


def predicted(
    updates: NDArray[np.float64], shares: NDArray[np.float64], halves: NDArray[np.bool_], target: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Ridge regression of shares on updates, in its dual form.

    One step on few rows is a mean of few gradients. A regression can memorise these rows and predict their share
    without error, but fail on other rows. So a fit on one half is tested on the other.

    Args:
        updates: (k, m) of the shadows.
        shares: (k,), of each.
        halves: bool (k,), of which half of the public examples each is made.
        target: (m,), of the target.

    Returns:
        The share of the target; the mean absolute error on the half that was not learnt from, with the best ridge; that
        of the mean share.
    """
    centre, spread = updates.mean(0), updates.std(0)
    spread = np.where(spread > 1e-9 * (spread.max(initial=0.0) or 1.0), spread, np.inf)
    rows, asked, mean = (updates - centre) / spread, (target - centre) / spread, float(shares.mean())
    gram, wanted = rows @ rows.T, shares - mean
    size = max(float(np.trace(gram)) / len(gram), 1e-300)

    def weights(which: NDArray[np.bool_], ridge: float) -> NDArray[np.float64]:
        found = np.zeros(len(gram))
        part = gram[np.ix_(which, which)]
        found[which] = np.linalg.solve(part + ridge * size * np.eye(len(part)), wanted[which])
        return found

    def error(ridge: float) -> float:
        missed = [(gram @ weights(which, ridge) - wanted)[~which] for which in (halves, ~halves)]
        return float(np.abs(np.concatenate(missed)).mean())

    best = min(_RIDGES, key=error)
    share = mean + float((rows @ asked) @ weights(np.ones(len(gram), bool), best))
    return share, error(best), float(np.abs(wanted).mean())


class AttributeShare(fedplug.Metric):
    """Absolute error of the estimated share of examples with an attribute."""

    measures = Measures(
        kind="attribute", better={"share_error": "low"},
        conventions="0 to 1: the absolute difference of the found and the true share of the target's examples; the "
        "trivial guess is the share among public examples",
        default=True,
    )  # fmt: skip

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`share_error`, and `true_share`.

        Raises:
            MetricError: no attribute was requested, or the attack found no share.
        """
        if truth.attribute is None or found.share is None:
            raise MetricError("attribute_share compares shares of an attribute, but there are none here")
        true = float(truth.attribute.mean())
        return {"share_error": abs(found.share - true), "true_share": true}
