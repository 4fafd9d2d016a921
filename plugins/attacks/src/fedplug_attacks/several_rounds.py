"""Attacks one batch that a client trained on in many rounds, with the information of all rounds together."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Literal

import numpy as np
from fedplug import Field, Finds, stream
from fedplug.api.errors import ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, View, each_round, of_the_same, stacked
from fedplug_attacks._forms import Formed
from fedplug_attacks.api.several import coverage
from fedplug_attacks.labels import likely_labels

if TYPE_CHECKING:
    pass

# Number of rounds on which the exact attack on a batch is tried first.
_FEW = 5


class Rounds(Formed):
    """Inputs from all rounds that trained on them, as masks move and noise is drawn afresh.

    If the first layer is fully connected, its gradients of all rounds are those of one wide layer, which the linear
    leak (one example) or the exact attack on batches (`attacks.exact_batch`) inverts. Else, and for a batch with noise,
    the attack searches for inputs whose gradients match those of all rounds, each at its own model: one minus their
    common cosine, plus total variation, as in `attacks.inverting`.

    Rounds count if they certainly use the same examples: those of a probe with `rounds`, or of clients that train on
    all their data. With one round it is an attack like the others. In its report, `rounds` is their number, and
    `coverage` the share of the entries that they show together.
    """

    finds = Finds(
        needs=Needs(model=False, tensors=(("model", "any"),), batch_size=(1, 256), loss=None, rounds=True),
        what=frozenset({"images"}), headline=("mse", "low"), success=("mse", "<=", 1e-3),
    )  # fmt: skip

    class Options(Formed.Options):
        """The rounds to use, and the method."""

        method: Literal["layer", "search"] | None = Field(
            None, description="layer: from the first layer; search: match gradients; null: the first that applies"
        )
        most: int = Field(20, ge=1, le=1000, description="largest number of rounds, evenly spaced")
        iterations: int = Field(600, ge=1, description="Adam steps of a search")
        tv: float = Field(0.01, ge=0, allow_inf_nan=False, description="weight of the total variation in a search")
        lr: float = Field(0.1, gt=0, allow_inf_nan=False, description="learning rate of a search, standardised units")

    def describe(self) -> str:
        """A line for the plan."""
        return f"up to {self.options.most} rounds of the same examples at once ({self.options.form})"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Uses the visible entries of all rounds."""
        method, report, reason = self.options.method, None, ""
        try:
            report = None if method == "search" else self._by_layer(view, attacker, method == "layer")
        except ViewError as error:
            if method is not None:
                raise
            reason = f"{error}; nor does a search: "
        if report is None:
            try:
                report = self._by_search(view, attacker)
            except ViewError as error:
                raise ViewError(f"{reason}{error}") from error
        most = self.options.most
        told = {"rounds": float(max(1, len(of_the_same(view, most)))), "coverage": coverage(view, most)}
        return dataclasses.replace(report, metrics={**report.metrics, **told})

    def _by_layer(self, view: View, attacker: Attacker, wanted: bool) -> AttackReport | None:
        """From the first layer of all rounds; None where a search does better."""
        from fedplug_attacks.linear_leak import LinearLeak

        wide = stacked(view, self.options.most)
        noisy = bool((np.nan_to_num(wide.observed.sigma, nan=1.0) > 0).any())
        single, adaptive = view.observed.meaning.examples == 1, self.options.form == "adaptive"
        if noisy and not single and not wanted:
            return None
        leak = LinearLeak(LinearLeak.Options(form=self.options.form))
        if noisy and single and adaptive:
            report = LinearLeak(LinearLeak.Options(prior="gaussian")).learn(wide, attacker)
            hidden = "noise alone would explain the common direction of the first layer's rows"
            return dataclasses.replace(report, unfit="" if report.metrics.get("alignment", 1.0) else hidden)
        if single or noisy:
            return leak.learn(wide, attacker)
        return self._by_rank(view, attacker) or leak.learn(wide, attacker)

    def _by_rank(self, view: View, attacker: Attacker) -> AttackReport | None:
        """The exact attack on a batch, with the first round alone, with few, and with all; None if it never applies.

        A trained model hardly moves for examples that it knows, so an early round may show a batch better than all
        together, and a search in few rows is fast. The best answer is the one with most certain images.
        """
        from fedplug_attacks.exact_batch import ExactBatch

        exact, best = ExactBatch(ExactBatch.Options(form=self.options.form)), None
        places = of_the_same(view, self.options.most)
        few = of_the_same(view, min(_FEW, self.options.most))
        for chosen in dict.fromkeys((tuple(places[:1]), tuple(few), tuple(places))):
            some = dataclasses.replace(view, observations=[view.observations[place] for place in chosen])
            try:  # of one round the model is known, which confirms images one by one
                report = exact.learn(each_round(some)[0] if len(chosen) == 1 else stacked(some), attacker)
            except ViewError:
                continue
            if report.status != "finished":
                continue
            if best is None or report.metrics["exact"] >= best.metrics["exact"]:
                best = report
            if not report.unfit:
                break
        return best

    def _by_search(self, view: View, attacker: Attacker) -> AttackReport:
        from fedplug_attacks._matching import SeveralRounds
        from fedplug_attacks._search import Matching, stepped

        options = self.options
        views = [one for one in each_round(view, options.most) if one.model is not None]
        lacks = Needs().unmet(views[-1] if views else view)
        if len(view.shape) != 3:
            lacks = "a search is for images, but the inputs are not images"
        if lacks:
            raise ViewError(lacks)
        matcher = SeveralRounds(views, options.form, view.observed.meaning.examples or 1, attacker.device)
        start = matcher.start(stream(view.seed, "attacks.rounds"), "normal", attacker.facts.public)
        rates = functools.partial(stepped, options.lr)
        matching = Matching(matcher, attacker, "cosine", rates=rates, tv=(options.tv,), signed=True)
        labels = likely_labels(matcher, attacker.facts.public, 1)
        return matching.run([start], labels, options.iterations).report()
