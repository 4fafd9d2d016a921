"""GradInversion, reduced: gradient matching with priors on images and on batch-norm statistics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from fedplug import Field, Finds

from fedplug_attacks._forms import Formed
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import Attacker, View

if TYPE_CHECKING:
    import torch
    from fedplug import PublicData

    from fedplug_attacks._matching import Matcher
    from fedplug_attacks._priors import Penalty

# Public batches that show the usual distance of statistics from the running ones.
_BATCHES = 8


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

    class Options(Formed.Options):
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
        init: Literal["normal", "uniform", "public_mean"] = Field(
            "normal",
            description="where a seed starts: normal (noise around the mean pixel), uniform (random pixels), "
            "public_mean (mean of the public examples and a little noise; without public examples like normal)",
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

    def attack(self, view: View, attacker: Attacker) -> AttackReport:
        """Searches for the examples behind the update, given their labels."""
        import torch
        from fedplug import stream
        from fedplug.api.errors import ViewError

        from fedplug_attacks import _priors
        from fedplug_attacks._descent import descend, screening, total_variation
        from fedplug_attacks._matching import Matcher, Record
        from fedplug_attacks.labels import likely_labels

        options = self.options
        assert view.update is not None  # the core has checked what the attack needs
        batch = view.update.meaning.examples or 1
        try:
            matcher = Matcher(view, options.form, batch, attacker.device)
        except ViewError as error:
            return AttackReport("not_applicable", reason=str(error))

        candidates = likely_labels(matcher, attacker.facts.public, options.labels)
        prior = None if options.prior == "auto" and attacker.facts.public is None else (
            _priors.chosen(options.prior, matcher, attacker.facts.public)
        )
        if prior is not None:
            record = Record(matcher, attacker)
            penalty = _statistics(matcher, attacker.facts.public) if options.bn else None
            told = _priors.attack(
                matcher, record, prior, candidates, options.iterations, options.restarts, None, penalty
            )
            return record.report(view.seed, information=told)
        seeds = [stream(view.seed, "attacks.gradinversion", number) for number in range(options.restarts)]

        def objective(candidates: torch.Tensor, known: torch.Tensor, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
            gradients, statistics = matcher.gradients(candidates, known)
            distance = matcher.squared(gradients).clamp_min(1e-24).sqrt()
            value = distance + options.tv * total_variation(candidates) + options.bn * statistics
            value = value + options.l2 * _root_mean_square(candidates)
            if options.group:
                apart = candidates - candidates.detach().mean(0, keepdim=True)
                value = value + options.group * _root_mean_square(apart)
            return value, distance

        def search(record: Record, tried: list[list[int]], steps: int) -> list[int]:
            """Gives the labels of the trial that comes nearest."""
            trials = [(seed, each) for each in tried for seed in range(options.restarts)]
            inputs = torch.stack([starts[seed] for seed, _ in trials])
            rates = [options.lr * (1 + math.cos(math.pi * step / steps)) / 2 for step in range(steps)]
            # The mean over the seeds needs them all at once.
            together = len(trials) if options.group else None
            labels = [each for _, each in trials]
            return labels[descend(matcher, record, inputs, labels, objective, rates, False, together)[0]]

        starts = [matcher.start(seed, options.init, attacker.facts.public) for seed in seeds]
        labels = candidates[0]
        if len(candidates) > 1:
            tried = Record(matcher, attacker, measure="distance")
            labels = search(tried, candidates, screening(options.iterations))
        record = Record(matcher, attacker, measure="distance")
        search(record, [labels], options.iterations)
        return record.report(view.seed)


def _statistics(matcher: Matcher, public: PublicData | None) -> Penalty | None:
    """The cost of a distance from the running statistics, in nats; None without batch norm or public examples."""
    import torch
    from fedplug_std.torch_model import to_tensor

    if public is None or matcher.normalised == 0:
        return None
    inputs, labels = public.examples.inputs, public.examples.labels
    count = min(len(inputs) // matcher.batch, _BATCHES)
    if not count:
        return None
    batches = to_tensor(inputs[: count * matcher.batch], matcher.view.mean, matcher.view.std)
    batches = batches.to(matcher.device, matcher.dtype).reshape(count, matcher.batch, *matcher.view.shape)
    known = matcher.one_hot(labels[: count * matcher.batch].reshape(count, -1).tolist())
    usual = torch.stack([matcher.gradients(batches[n][None], known[n][None])[1][0] for n in range(count)]).mean()
    return lambda distance: 0.5 * matcher.normalised * (distance / usual).square()


def _root_mean_square(inputs: torch.Tensor) -> torch.Tensor:
    """Of each trial; (T, ...) to (T,)."""
    return inputs.square().flatten(1).mean(1).clamp_min(1e-24).sqrt()
