"""Inverting gradients: inputs whose gradient points the same way as the observed one, and that are smooth."""

from __future__ import annotations

import functools
from typing import Annotated, Literal

from fedplug import Field, Finds

from fedplug_attacks import Attacker, AttackReport, Needs, View
from fedplug_attacks._forms import Formed, SearchOptions
from fedplug_attacks.labels import likely_labels

TvWeight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class InvertingGradients(Formed):
    """Inverting gradients (Geiping et al. 2020, eq. 4): one minus the cosine of the gradients, plus total variation.

    Adam on the sign of the objective's gradient, the learning rate cut to a tenth at 3/8, 5/8 and 7/8 of the
    iterations, pixels kept in their valid range. The cosine is taken over visible entries only (`form: adaptive`).

    The weight of the total variation decides how good images become, and the best one differs from model to model. With
    several weights in `tv` all are tried, with each restart. The answer is the trial with the smallest distance of
    gradients. An attacker cannot choose better, because it does not know the truth. A larger weight worsens the match,
    so this favours smaller weights.

    Labels are found first, as in the paper. For one example they come from the last layer as in `attacks.idlg`, and
    every possible class is tried if the label is ambiguous. For a batch they come from `attacks.labels`: the likely
    counts are tried (`labels`) for an eighth of the iterations (at least 50), and the best match decides.

    With a prior (`prior`) the search is different: it finds the most probable images given the observation, its noise,
    and a Gaussian distribution of images, with mean and covariance from public examples (`_priors`). If noise leaves
    much open, the answer is the mean over the possible images: without any information the mean image. Total variation,
    `init` and `lr` are not used then.

    For an update of several steps, the steps are repeated on candidates, with the batches that fit best.
    """

    class Options(SearchOptions):
        """How long it searches, and how smooth images are."""

        iterations: int = Field(2400, ge=1, description="Adam steps of each trial")
        restarts: int = Field(1, ge=1, description="random starts for each weight in tv")
        tv: TvWeight | Annotated[tuple[TvWeight, ...], Field(min_length=1)] = Field(
            0.01, description="weight of the total variation (mean over pixels); a list: try each"
        )
        lr: float = Field(0.1, gt=0, allow_inf_nan=False, description="learning rate, in standardised units")
        labels: int = Field(
            8, ge=1, description="number of label counts of a batch to try, if the last layer does not settle them"
        )
        prior: Literal["auto", "gaussian", "none"] = Field(
            "auto",
            description="gaussian: the most probable images given the noise and the public examples, or a spectrum of "
            "photographs without any; none: the paper's cosine and total variation; auto: gaussian where there are "
            "public examples, or if noise is more than a tenth of the observation",
        )
        at_once: int | None = Field(
            None, ge=1, description="number of trials computed together; null: as many as fit into about a gigabyte"
        )

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), batch_size=(1, 256)),
        what=frozenset({"images", "labels"}), headline=("mse", "low"), success=("mse", "<=", 1e-2),
    )  # fmt: skip

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of the total variation that are tried."""
        given = self.options.tv
        return given if isinstance(given, tuple) else (given,)

    def describe(self) -> str:
        """One line for the plan."""
        chosen = self.options
        trials = len(self.weights) * chosen.restarts
        return f"inverting gradients, {chosen.form}: {trials} trials of {chosen.iterations} Adam steps, tv {chosen.tv}"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Searches for the examples behind the update, given their labels."""
        from fedplug import stream

        from fedplug_attacks._descent import Matching, matched, stepped
        from fedplug_attacks._matching import Matcher
        from fedplug_attacks._priors import chosen, most_probable

        options, public = self.options, attacker.facts.public
        matcher = Matcher.of(view, options.form, attacker)
        labels = likely_labels(matcher, public, options.labels)
        prior = chosen(options.prior, matcher, public, auto=("noise", "public"))
        if prior is not None:
            return most_probable(
                matcher, attacker, prior, labels, options.iterations, options.restarts, options.at_once
            )
        seeds = [stream(view.seed, "attacks.inverting", number) for number in range(options.restarts)]
        starts = [matcher.start(seed, options.init, public) for seed in seeds]
        rates = functools.partial(stepped, options.lr)
        matching = Matching("cosine", rates, self.weights, signed=True, at_once=options.at_once)
        record, weight = matched(
            matcher, attacker, matching, starts, labels, options.iterations, screened=matcher.batch > 1
        )
        return record.report(tv=weight)
