"""Attacks that match gradients: DLG, iDLG, inverting gradients and GradInversion are settings of one search."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from fedplug import Field, Finds

from fedplug_attacks import Attacker, AttackReport, Needs, View
from fedplug_attacks._forms import Formed, SearchOptions
from fedplug_attacks.labels import MOST_LABELS, likely_labels, single_label

if TYPE_CHECKING:
    import torch
    from fedplug import PublicData

    from fedplug_attacks._matching import Matcher
    from fedplug_attacks._priors import Penalty

# Public batches that show the usual distance of statistics from the running ones.
_BATCHES = 8


class Dlg(Formed):
    """Deep leakage from gradients (Zhu et al. 2019, Alg. 1): inputs and label logits, optimised together.

    Minimises the sum of squared differences between the gradient of dummy examples and the observed one, with L-BFGS.
    Departures from the paper: the sum is relative to the observed gradient's squared norm, so that one tolerance fits
    all. It covers visible entries only, weighted by their noise if it differs (`form: adaptive`). There are a line
    search and restarts, and the restart with the lowest loss is the answer. The best match of a noisy gradient is an
    image of noise. The answer is then the most probable image given a prior, as in `attacks.inverting` (`prior`), with
    likely labels instead of logits.

    The model must be twice differentiable: sigmoid or tanh, strides or average pooling. For an update of several steps,
    all steps are repeated on the dummy examples in one graph. An unknown order of batches is searched between outer
    steps. Gradients of candidates are clipped like updates, layer by layer if the clip has one norm a layer. A search
    whose loss is close to 0 ends once it gains little, and is the last.
    """

    class Options(SearchOptions):
        """How long and how often it searches."""

        iterations: int = Field(300, ge=1, description="outer steps of a search, each of up to 20 L-BFGS iterations")
        restarts: int = Field(5, ge=1, description="largest number of searches, each from another random start")
        line_search: Literal["strong_wolfe", "none"] = Field(
            "strong_wolfe",
            description="none: fixed steps of size lr, as first published; fails on about a third of images",
        )
        lr: float = Field(1.0, gt=0, allow_inf_nan=False, description="step size of L-BFGS")
        tolerance: float = Field(
            1e-10, ge=0, description="a loss that ends the attack: squared distance over the gradient's squared norm"
        )
        prior: Literal["auto", "gaussian", "none"] = Field(
            "auto",
            description="gaussian: the most probable images given the noise and the public examples (without any, a "
            "spectrum of photographs) instead of the search; none: no prior; auto: gaussian if noise is more than a "
            "tenth of the observation",
        )
        precision: Literal["double", "single"] = Field(
            "double",
            description="floating point numbers of the search; double lets L-BFGS continue where single stalls",
        )

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), batch_size=(1, 32), equal_classes=False),
        what=frozenset({"images", "labels"}), headline=("mse", "low"), success=("mse", "<=", 1e-3),
    )  # fmt: skip
    paper: ClassVar[str] = "DLG"

    def describe(self) -> str:
        """One line for the plan."""
        chosen = self.options
        return f"{self.paper}, {chosen.form}: up to {chosen.restarts} searches of {chosen.iterations} L-BFGS steps"

    def _labels(self, matcher: Matcher) -> tuple[int, ...]:
        """Labels that each search gives all examples, in turn; none: labels are optimised, too."""
        return ()

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Searches for the examples behind the update."""
        from fedplug_attacks._matching import Matcher
        from fedplug_attacks._priors import chosen
        from fedplug_attacks._search import MostProbable, QuasiNewton

        options, public = self.options, attacker.facts.public
        matcher = Matcher.of(view, options.form, attacker, options.precision == "double")
        prior = chosen(options.prior, matcher, public, auto=("noise",))
        if prior is not None:
            labels = likely_labels(matcher, public, MOST_LABELS)
            return MostProbable(matcher, attacker, prior=prior).found(labels, options.iterations)
        search = QuasiNewton(
            matcher, attacker, init=options.init, lr=options.lr, line_search=options.line_search == "strong_wolfe",
            tolerance=options.tolerance,
        )  # fmt: skip
        return search.run(options.restarts, self._labels(matcher), options.iterations).report()


class Idlg(Dlg):
    """Improved DLG (Zhao et al. 2020, Alg. 1) for a single example: the label from the last layer, then the input.

    The label is the class whose row of the last layer's gradient has a different sign from the others; for a partly
    hidden row, its visible entries decide. If the label is ambiguous, each possible class gets a search, most plausible
    first, and the lowest loss decides. With more than 16 of them the label is optimised as in DLG. The input is found
    as in `attacks.dlg`.
    """

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), batch_size=(1, 1), equal_classes=False),
        what=frozenset({"images", "labels"}), headline=("mse", "low"), success=("mse", "<=", 1e-4),
    )  # fmt: skip
    paper: ClassVar[str] = "iDLG"

    def _labels(self, matcher: Matcher) -> tuple[int, ...]:
        """Those that the last layer leaves open; none if they are too many to try."""
        classes = single_label(matcher.update, matcher.view.num_classes, matcher.form)
        return classes if len(classes) <= MOST_LABELS else ()


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
        from fedplug_attacks._matching import Matcher
        from fedplug_attacks._priors import chosen
        from fedplug_attacks._search import Matching, MostProbable, stepped

        options, public = self.options, attacker.facts.public
        matcher = Matcher.of(view, options.form, attacker)
        labels = likely_labels(matcher, public, options.labels)
        prior = chosen(options.prior, matcher, public, auto=("noise", "public"))
        if prior is not None:
            search = MostProbable(matcher, attacker, prior=prior, at_once=options.at_once)
            return search.found(labels, options.iterations, options.restarts)
        matching = Matching(
            matcher, attacker, "cosine", rates=functools.partial(stepped, options.lr), tv=self.weights, signed=True,
            at_once=options.at_once,
        )  # fmt: skip
        starts = matcher.starts("attacks.inverting", options.restarts, options.init, public)
        matching.run(starts, labels, options.iterations, screened=len(starts) if matcher.batch > 1 else 0)
        return matching.report(tv=self.weights[matching.trial // len(starts) % len(self.weights)])


class GradInversion(Formed):
    """GradInversion (Yin et al. 2021, eq. 2, 7-11), reduced: the distance of gradients plus penalties on the images.

    Descends with Adam, from several seeds at once,

        |g - g*| / |g*| + tv TV(x) + l2 |x| + bn R_BN(x) + group |x - mean over the seeds|

    where R_BN is the distance of the batch's mean and variance at each batch norm layer from the model's running ones,
    which come with the model; without batch norm it is left out. The answer is the seed with the smallest distance of
    gradients, since the truth is not known here.

    Departures from the paper: the gradient is one vector and its distance relative, where the paper adds up layers;
    norms of images are means over pixels, so that weights fit all sizes; no pretrained network, no random noise in the
    steps, and group consistency without registering the images.

    Labels are those of `attacks.inverting`, not those of the paper (eq. 5), which assumes that no class occurs twice.
    The search with a prior (`prior`) is also that of `attacks.inverting`, with half of (R_BN / its mean over public
    batches)^2 added for each of the statistics. For an update of several steps, the steps are repeated on candidates.
    Gradients of candidates are clipped like updates.
    """

    class Options(SearchOptions):
        """How long it searches, and the weights of the penalties."""

        iterations: int = Field(2000, ge=1, description="Adam steps")
        restarts: int = Field(4, ge=1, description="seeds, which descend together")
        lr: float = Field(0.1, gt=0, allow_inf_nan=False, description="first learning rate; falls to 0 along a cosine")
        tv: float = Field(0.01, ge=0, allow_inf_nan=False, description="weight of the total variation")
        l2: float = Field(1e-4, ge=0, allow_inf_nan=False, description="weight of the root mean square of the inputs")
        bn: float = Field(0.03, ge=0, allow_inf_nan=False, description="weight of the batch-norm statistics")
        group: float = Field(
            0.0, ge=0, allow_inf_nan=False, description="weight of the distance to the mean over the seeds; 0: without"
        )
        labels: int = Field(
            8, ge=1, description="number of label counts of a batch to try, if the last layer does not settle them"
        )
        prior: Literal["auto", "gaussian", "none"] = Field(
            "auto",
            description="gaussian: the most probable images given the noise and the public examples, or a spectrum of "
            "photographs without any; none: the penalties above; auto: gaussian where there are public examples",
        )

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), batch_size=(1, 256)),
        what=frozenset({"images", "labels"}), headline=("mse", "low"), success=("mse", "<=", 1e-2),
    )  # fmt: skip

    def describe(self) -> str:
        """One line for the plan."""
        chosen = self.options
        return f"GradInversion, {chosen.form}: {chosen.restarts} seeds, {chosen.iterations} Adam steps"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Searches for the examples behind the update, given their labels."""
        from fedplug_attacks._matching import Matcher
        from fedplug_attacks._priors import chosen
        from fedplug_attacks._search import Matching, MostProbable, cosine

        options, public = self.options, attacker.facts.public
        matcher = Matcher.of(view, options.form, attacker)
        labels = likely_labels(matcher, public, options.labels)
        prior = chosen(options.prior, matcher, public, auto=("public",))
        if prior is not None:
            penalty = _statistics(matcher, public if options.bn else None)
            search = MostProbable(matcher, attacker, prior=prior, penalty=penalty)
            return search.found(labels, options.iterations, options.restarts)

        def penalties(inputs: torch.Tensor, statistics: torch.Tensor) -> Iterator[torch.Tensor]:
            yield options.bn * statistics
            yield options.l2 * _root_mean_square(inputs)
            if options.group:
                yield options.group * _root_mean_square(inputs - inputs.detach().mean(0, keepdim=True))

        matching = Matching(
            matcher, attacker, "distance", rates=functools.partial(cosine, options.lr), tv=(options.tv,),
            penalties=penalties,
            # The mean over the seeds needs them all at once.
            at_once=len(labels) * options.restarts if options.group else None,
        )  # fmt: skip
        starts = matcher.starts("attacks.gradinversion", options.restarts, options.init, public)
        return matching.run(starts, labels, options.iterations, screened=len(starts)).report()


def _statistics(matcher: Matcher, public: PublicData | None) -> Penalty:
    """The cost of a distance from the running statistics, in nats; 0 without batch norm or public examples."""
    import torch
    from fedplug_std.torch_model import to_tensor

    count = 0 if public is None else min(len(public.examples.inputs) // matcher.batch, _BATCHES)
    if public is None or not count or not matcher.normalised:
        return torch.zeros_like
    inputs, labels = public.examples.inputs, public.examples.labels
    batches = to_tensor(inputs[: count * matcher.batch], matcher.view.mean, matcher.view.std)
    batches = batches.to(matcher.device, matcher.dtype).reshape(count, matcher.batch, *matcher.view.shape)
    known = matcher.one_hot(labels[: count * matcher.batch].reshape(count, -1).tolist())
    usual = torch.stack([matcher.gradients(batches[n][None], known[n][None])[1][0] for n in range(count)]).mean()
    return lambda distance: 0.5 * matcher.normalised * (distance / usual).square()


def _root_mean_square(inputs: torch.Tensor) -> torch.Tensor:
    """Of each trial; (T, ...) to (T,)."""
    return inputs.square().flatten(1).mean(1).clamp_min(1e-24).sqrt()
