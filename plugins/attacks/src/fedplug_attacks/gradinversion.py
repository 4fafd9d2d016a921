"""GradInversion, reduced: gradient matching helped by what is known of images and of batch-norm statistics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import fedplug
from fedplug import Field, Finds, hookimpl

from fedplug_attacks._forms import Formed
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import View

if TYPE_CHECKING:
    import torch
    from fedplug import Context


class GradInversion(Formed):
    """GradInversion (Yin et al. 2021, eq. 2, 7-11), reduced: the distance of gradients plus penalties on the images.

    Descends with Adam, from several seeds at once,

        |g - g*| / |g*| + tv TV(x) + l2 |x| + bn R_BN(x) + group |x - mean over the seeds|

    where R_BN is how far the batch's mean and variance at each batch norm layer are from the model's running ones,
    which everybody has who has the model; it is left out where there are none. The answer is the seed with the smallest
    distance of gradients: the truth is not known here.

    Departures from the paper: the gradient is one vector and its distance relative, where the paper adds up layers;
    norms of images are means over pixels, so that weights fit all sizes; no pretrained network, no random noise in the
    steps, and group consistency without registering the images.

    Labels are the classes whose rows of the last layer's gradient have the lowest minimum (eq. 5), which assumes that
    no class is there twice. The steps behind an update of several are taken again on candidates. Gradients of
    candidates are clipped as updates are.
    """

    class Options(fedplug.Options):
        """How long it searches, and the weights of the penalties."""

        form: Literal["adaptive", "naive"] = Field(
            "adaptive", description="adaptive: match visible entries only; naive: take hidden entries for 0"
        )
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
            "public_mean (mean of the public examples and a little noise; without public examples as normal)",
        )

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), batch_size=(1, 256)),
        what=frozenset({"images", "labels"}), headline=("mse", "low"), success=("mse", "<=", 1e-2),
    )  # fmt: skip

    def __init__(self, options: Options) -> None:
        self.options = options

    def describe(self) -> str:
        """One line for the plan."""
        chosen = self.options
        return f"GradInversion, {chosen.form}: {chosen.restarts} seeds, {chosen.iterations} Adam steps"

    @hookimpl
    def attack(self, view: View, ctx: Context) -> AttackReport:
        """Searches for the examples behind the update, given their labels."""
        import torch
        from fedplug import stream
        from fedplug.api.errors import ViewError

        from fedplug_attacks._descent import descend, total_variation
        from fedplug_attacks._last_layer import distinct_labels
        from fedplug_attacks._matching import Matcher, Record

        options = self.options
        assert view.update is not None  # the core has checked what the attack needs
        batch = view.update.meaning.examples or 1
        try:
            matcher = Matcher(view, options.form, batch, ctx.party.device)  # type: ignore[attr-defined]
        except ViewError as error:
            return AttackReport("not_applicable", reason=str(error))

        labels = distinct_labels(matcher.update, batch, view.num_classes, options.form)
        seeds = [stream(view.seed, "attacks.gradinversion", number) for number in range(options.restarts)]
        inputs = torch.stack([matcher.start(seed, options.init, ctx.public) for seed in seeds])

        def objective(candidates: torch.Tensor, known: torch.Tensor, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
            gradients, statistics = matcher.gradients(candidates, known)
            distance = matcher.squared(gradients).clamp_min(1e-24).sqrt()
            value = distance + options.tv * total_variation(candidates) + options.bn * statistics
            value = value + options.l2 * _root_mean_square(candidates)
            if options.group:
                apart = candidates - candidates.detach().mean(0, keepdim=True)
                value = value + options.group * _root_mean_square(apart)
            return value, distance

        steps = options.iterations
        rates = [options.lr * (1 + math.cos(math.pi * step / steps)) / 2 for step in range(steps)]
        record = Record(matcher, ctx, measure="distance")
        # The mean over the seeds needs them all at once.
        together = options.restarts if options.group else None
        descend(matcher, record, inputs, [labels] * options.restarts, objective, rates, False, together)
        return record.report(view.seed)


def _root_mean_square(inputs: torch.Tensor) -> torch.Tensor:
    """Of each trial; (T, ...) to (T,)."""
    return inputs.square().flatten(1).mean(1).clamp_min(1e-24).sqrt()
