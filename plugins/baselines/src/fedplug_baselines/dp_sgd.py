"""DP-SGD at the clients: clipping and noise in every step protect single training records (Abadi et al.)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import fedplug
import numpy as np
from fedplug import Account, Field, Learns
from fedplug.api.errors import SetupError
from fedplug.api.grids import finest
from fedplug.api.records import MOST_EXAMPLES
from fedplug.mechanisms.noise import add_noise
from fedplug_std.options import Calibrated
from fedplug_std.scores import require_finite
from pydantic import model_validator

from fedplug_baselines.dp_sgd_accounting import (
    SampledSteps,
    noise_multiplier_for,
    record_epsilons,
    sampling_rate,
    steps_of_a_round,
)  # fmt: skip
from fedplug_baselines.dp_sgd_gradients import gradients_apart
from fedplug_baselines.uniform import uniform_source

if TYPE_CHECKING:
    import torch
    from fedplug import Client, ClientData, Examples, Facts
    from fedplug.api.data import Judge
    from fedplug_std.torch_model import TorchModel
    from numpy.typing import NDArray

    from fedplug_baselines.dp_sgd_gradients import Apart, Gradients

_GRADIENT_BYTES = 32 << 20
"""Memory for the gradients of single examples. A larger batch is processed in parts."""


class StepOptions(Calibrated):
    """Options of training in steps that each clip gradients of single examples and add noise to their sum."""

    epochs: int = Field(1, ge=1, description="E of a round: a step for each batch that fits into the examples, E times")
    lr: float = Field(0.1, gt=0, allow_inf_nan=False, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="share of the previous step that is kept")
    clipping_norm: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="largest L2 norm of one example's gradient"
    )
    epsilon: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="privacy loss of a unit in all rounds together; with delta"
    )
    noise_multiplier: float | None = Field(
        None, ge=0, allow_inf_nan=False,
        description="standard deviation of a step's noise over clipping norm; instead of epsilon and delta",
    )  # fmt: skip
    source: Literal["secure", "reproducible"] = Field(
        "secure",
        description="of noise and batches: ChaCha20 keyed by the system; or the recipe's seed: no protection",
    )


class DpSgd(fedplug.Trainer, fedplug.AccountKeeper):
    """Train with DP-SGD: Poisson batches, clipped gradients of single examples, noise in every step.

    Abadi et al., Deep learning with differential privacy, CCS 2016, Alg. 1. The unit of protection is one training
    record of one client, not the client. A batch holds each of the n examples with probability q = B / n; E epochs are
    E ceil(n / B) steps. Opacus gives the accountants, and the gradients of single examples where it is right for the
    model; `torch.func`, or a pass for each example, gives the others (`dp_sgd_gradients`). With `epsilon` and `delta`
    each client finds its own noise for all rounds of the recipe from its own n. The ledger states the steps taken.

    Neither the noise nor the members of a batch may be known to any party. Both come from a stream that the operating
    system keys, unless the source is `reproducible`. n is public. Models with batch norm are refused.
    """

    class Options(StepOptions):
        """With the size of a batch, and the accountant that finds the noise."""

        batch_size: int = Field(32, ge=1, description="B, expected examples in a batch; all where a client has fewer")
        calibration: Literal["rdp", "prv"] = Field(
            "rdp",
            description="accountant that finds the noise for epsilon; prv needs less noise, and seconds to find it",
        )

        @model_validator(mode="after")
        def _calibrates_what_it_is_told(self) -> Self:
            if self.epsilon is None and self.calibration == "prv":
                raise ValueError("calibration: prv has no effect on a given noise_multiplier; leave it out")
            return self

    # -- description ---------------------------------------------------------------------------------------------------

    def learns(self, facts: Facts) -> Learns:
        """Sums of clipped gradients of each example, with noise that each client calibrates for itself.

        Clipped gradients are those of a mean that weights some examples less. An attack can still look for them.
        """
        options = self.options
        return Learns(
            descends=facts.descends, lr=options.lr, batch_size=options.batch_size, epochs=options.epochs,
            momentum=options.momentum, noise=0.0 if options.noise_multiplier == 0 else None,
            repeats=options.source == "reproducible",
        )  # fmt: skip

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self:
        """One step on a batch of all examples, with the noise of a step of the round."""
        sigma = self.round_release(client, facts)[0]
        once: dict[str, Any] = {"epochs": 1, "batch_size": batch_size, "momentum": 0.0}
        # Not the noise that would be calibrated for one batch alone.
        once |= {"noise_multiplier": sigma, "epsilon": None, "delta": None, "calibration": "rdp"}
        return self.varied(options=self.options.model_copy(update=once))

    # -- the algorithm -------------------------------------------------------------------------------------------------

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Alg. 1 on the client's model, in place.

        Returns:
            `loss`: mean loss over the batches of the last epoch, in nats, without noise; 0 if they were all empty.

        Raises:
            SetupError: the model is not a torch model, or mixes the examples of a batch.
            ProtectionError: training diverged, or no noise exists for the epsilon.
        """
        import torch
        from fedplug_std import progress
        from fedplug_std.torch_model import TorchModel, seeded, use_one_thread
        from torch.optim.sgd import sgd

        options, model = self.options, client.model
        if not isinstance(model, TorchModel):
            raise SetupError(f"{self.name} trains torch models, not {type(model).__name__}; choose another trainer")
        use_one_thread()
        sigma, rate, steps = self.round_release(client, facts)[:3]
        coins = uniform_source(options.source, client.rng(self, "batches"))
        examples = self.examples(client)
        parameters: list[torch.Tensor] = list(model.parameters)
        velocities: list[torch.Tensor | None] = [None] * len(parameters)
        expected = rate * len(examples)
        loss, seen = 0.0, 0
        draws = seeded(int(client.rng(self, "dropout").integers(2**63)), model.device)
        with draws, self._apart(model, client.data) as apart:
            for step in range(steps):
                if step % (steps // options.epochs) == 0:  # an epoch begins
                    loss, seen = 0.0, 0
                batch = np.flatnonzero(coins.random(len(examples)) < rate)  # L_t, each with probability q
                with apart.step() as gradients_of:
                    total, batch_loss = self._clipped_sum(client, gradients_of, examples.take(batch))
                noised = self._noised(total, sigma, client, step) / np.float32(expected)  # g~_t: by L, not by |L_t|
                gradients = _like(noised, model)
                with torch.no_grad():
                    sgd(
                        parameters, gradients, velocities, lr=options.lr, momentum=options.momentum, weight_decay=0.0,
                        dampening=0.0, nesterov=False, maximize=False, foreach=True,
                    )  # fmt: skip
                loss, seen = loss + batch_loss, seen + len(batch)
                progress.step(client.client_id, facts.round, step + 1, steps)
        return {"loss": loss / max(1, seen)}

    def examples(self, client: Client) -> Examples:
        """What batches are drawn from in a round: all of the client's training examples."""
        return client.data.train

    def _apart(self, model: TorchModel, data: ClientData) -> contextlib.AbstractContextManager[Apart]:
        """What gives the gradients of single examples."""
        from fedplug_std.tasks import cross_entropies

        def losses(outputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
            return self._losses_apart(data.task, outputs, answers) if data.task else cross_entropies(outputs, answers)

        tokens = len(data.classes) if data.train.inputs.dtype.kind == "i" else 0
        return gradients_apart(model, losses, data.shape, tokens)

    def _clipped_sum(
        self, client: Client, gradients_of: Gradients, batch: Examples
    ) -> tuple[NDArray[np.float32], float]:
        """Sum over the batch of g / max(1, |g| / C), (P,), and the sum of its losses."""
        import torch
        from fedplug_std.torch_model import as_tensor, to_tensor

        model: Any = client.model
        data, bound = client.data, self.options.clipping_norm
        total = torch.zeros(model.layout.size, dtype=torch.float32, device=model.device)
        loss, part = 0.0, max(1, _GRADIENT_BYTES // (4 * model.layout.size))
        for start in range(0, len(batch), part):
            some = batch.take(slice(start, start + part))
            answers = as_tensor(some.answers).to(model.device)
            gradients, each = gradients_of(to_tensor(some.inputs, data.mean, data.std, model.device), answers)
            norms = torch.linalg.vector_norm(torch.stack([_norms(each) for each in gradients], 1), dim=1)
            # One part in 2^22 less: more than rounding to float32 can add.
            factors = (bound / norms.clamp(min=bound) * (1 - 2.0**-22)).to(torch.float32)
            total += torch.cat([factors @ each for each in gradients])
            loss += float(each.sum())
        found: NDArray[np.float32] = total.cpu().numpy()
        require_finite(found, client, "values of the clipped gradients", "lower lr, or use less noise")
        return found, loss

    def _losses_apart(self, task: Judge, outputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        """The loss of each example, (n,), computed by a function that gets only that example.

        Raises:
            SetupError: the task's losses depend on the size of a batch, or on a value of another example.
        """
        from torch.func import vmap

        try:
            each = vmap(lambda output, answer: task.losses(output[None], answer[None])[0])
            found: torch.Tensor = each(outputs, answers)
        except RuntimeError as error:
            raise SetupError(
                f"{self.name} needs the loss of each example alone, and {task.name} does not give it ({error}); write "
                "losses with operations of torch on whole tensors, or choose another trainer"
            ) from error
        return found

    def _noised(self, total: NDArray[np.float32], sigma: float, client: Client, step: int) -> NDArray[np.float32]:
        """The sum plus N(0, sigma^2 C^2 I), on a grid that does not depend on the batch."""
        if sigma == 0:
            return total
        std = sigma * self.options.clipping_norm
        grid = finest(self.options.clipping_norm * client.num_examples, std)
        return add_noise(total, std, grid, self.options.source, client.rng(self, "noise", step))

    # -- the account ---------------------------------------------------------------------------------------------------

    account = Account(
        level="record",
        release=SampledSteps,
        unit="one training example of a client, added or removed",
        trust="local: the noise is added at the client, during training",
        covers="the update of every round, for every party; not scores, ballots, batch-norm statistics or metrics",
    )

    def round_release(self, client: Client, facts: Facts) -> SampledSteps:
        """The noisy steps of one round of this client.

        Raises:
            ProtectionError: no noise exists for the epsilon.
        """
        options, count = self.options, client.num_examples
        rate = sampling_rate(count, options.batch_size)
        steps = steps_of_a_round(count, options.batch_size, options.epochs)
        sigma = options.noise_multiplier
        if sigma is None:  # validation leaves neither epsilon nor delta None here
            epsilon, delta = options.epsilon or math.nan, options.delta or math.nan
            sigma = noise_multiplier_for(epsilon, delta, rate, facts.rounds * steps, options.calibration)
        return SampledSteps(sigma, rate, steps)

    def release_problem(self, release: SampledSteps) -> str:
        """Rate and steps must be those of some number of examples, and the noise that of the recipe, if it gives one.
        """
        options, (multiplier, rate, steps) = self.options, release
        if options.noise_multiplier is not None and multiplier != options.noise_multiplier:
            return f"noise_multiplier={multiplier:g} must be {options.noise_multiplier:g}, as the recipe says"
        count = options.batch_size / rate if rate > 0 else math.inf
        if rate <= 1 and count <= MOST_EXAMPLES:
            count = round(count)
            fewest = steps_of_a_round(count, options.batch_size, options.epochs)
            if sampling_rate(count, options.batch_size) == rate and steps == fewest:
                return ""
        return (
            f"{steps:g} steps at sampling_rate={rate:g} must be those of {options.epochs} epochs of batches of "
            f"{options.batch_size} over some number of examples, {MOST_EXAMPLES} at most"
        )

    def units(self, release: SampledSteps) -> float:
        """The number of examples, which follows from the rate; at a rate of 1 there are `batch_size` at most."""
        return float(round(self.options.batch_size / release.sampling_rate)) if release.sampling_rate > 0 else math.inf

    def epsilon_of(self, releases: Sequence[SampledSteps], delta: float) -> dict[str, float]:
        """Epsilon of one record, by `epsilon_pld` and `epsilon_rdp`: see `dp_sgd_accounting.record_epsilons`.

        Noise of a reproducible source protects nobody: epsilon is infinite.
        """
        if self.options.source == "reproducible" and releases:
            return {"epsilon_pld": math.inf, "epsilon_rdp": math.inf}
        return record_epsilons(releases, delta)

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        return (
            f"DP-SGD, record level: {options.amount}, gradients clipped to {options.clipping_norm:g}, {options.source} "
            f"source; {options.epochs} epochs of batches of {options.batch_size}, lr {options.lr:g}"
        )


# -- parts -------------------------------------------------------------------------------------------------------------


def _norms(gradients: torch.Tensor) -> torch.Tensor:
    """The L2 norm of each row, (n,), added up in float64. Row by row is nine times as fast as `dim=1` here."""
    import torch

    return torch.stack([torch.linalg.vector_norm(row, dtype=torch.float64) for row in gradients])


def _like(vector: NDArray[np.float32], model: TorchModel) -> list[torch.Tensor]:
    """The vector cut into tensors of the parameters' shapes."""
    from fedplug_std.torch_model import as_tensor

    flat = as_tensor(vector).to(model.device)
    return [flat[place.slice].view(place.shape) for place in model.layout.parameters]
