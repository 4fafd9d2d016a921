"""GradInversion, reduced: gradient matching with priors on images and on batch-norm statistics."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from fedplug import Field, Finds

from fedplug_attacks import Attacker, AttackReport, Needs, View
from fedplug_attacks._forms import Formed, SearchOptions
from fedplug_attacks.labels import likely_labels

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
        from fedplug import stream

        from fedplug_attacks._descent import Matching, cosine, matched
        from fedplug_attacks._matching import Matcher
        from fedplug_attacks._priors import chosen, most_probable

        options, public = self.options, attacker.facts.public
        matcher = Matcher.of(view, options.form, attacker)
        labels = likely_labels(matcher, public, options.labels)
        prior = chosen(options.prior, matcher, public, auto=("public",))
        if prior is not None:
            penalty = _statistics(matcher, public) if options.bn else None
            return most_probable(
                matcher, attacker, prior, labels, options.iterations, options.restarts, penalty=penalty
            )

        def penalties(inputs: torch.Tensor, statistics: torch.Tensor) -> Iterator[torch.Tensor]:
            yield options.bn * statistics
            yield options.l2 * _root_mean_square(inputs)
            if options.group:
                yield options.group * _root_mean_square(inputs - inputs.detach().mean(0, keepdim=True))

        seeds = [stream(view.seed, "attacks.gradinversion", number) for number in range(options.restarts)]
        starts = [matcher.start(seed, options.init, public) for seed in seeds]
        # The mean over the seeds needs them all at once.
        at_once = len(labels) * len(starts) if options.group else None
        rates = functools.partial(cosine, options.lr)
        matching = Matching("distance", rates, (options.tv,), penalties, at_once=at_once)
        record, _ = matched(matcher, attacker, matching, starts, labels, options.iterations, screened=True)
        return record.report()


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
