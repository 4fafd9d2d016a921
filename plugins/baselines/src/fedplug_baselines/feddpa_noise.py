"""FedDPA's noise as in its authors' code, with an account that does not hold."""

from __future__ import annotations

import functools
import math
import warnings
from typing import TYPE_CHECKING

import fedplug
from fedplug import Facts, Field, Known, Misplaced, Operations, Trainer
from fedplug.api.errors import ProtectionError
from fedplug_std.gaussian import Gaussian, local_noise
from fedplug_std.options import ExactSource

from fedplug_baselines.feddpa import FedDpa

if TYPE_CHECKING:
    from fedplug import Recipe


class FedDpaNoise(fedplug.Protector):
    """Add the noise of FedDPA's code, whose claimed epsilon does not hold (as published).

    Yang, Huang and Ye, NeurIPS 2023, code xiyuanyang45/DynamicPFL, `utils.py` and `ours.py`. The code takes sigma from
    Opacus as if there were one DP-SGD step per batch, on Poisson batches of B of all clients' n examples together:
    q = B / n and T E n / B steps. But no gradient gets noise. Each client's clipped update gets N(0, C^2 sigma^2 / K)
    once a round, so one upload has the multiplier sigma / sqrt(K). Neither q nor the number of steps has a meaning,
    because the clip bounds the whole contribution of a client. (The code also counts E epochs where training takes
    2 E.)

    The ledger states the epsilon of this noise. With 60,000 examples, 20 clients, 10 rounds, 5 epochs and batches of
    32, the claim of epsilon 1 (delta 1e-5) gives sigma = 0.97, and a client's uploads cost epsilon 167. Use
    `std.gaussian` instead.
    """

    class Options(fedplug.Options):
        epsilon: float = Field(1.0, gt=0, allow_inf_nan=False, description="privacy loss that the code claims")
        delta: float = Field(0.1, gt=0, lt=1, description="failure probability of the claim; the code's default")
        examples: int = Field(ge=1, description="n, training examples of all clients together")
        epochs: int = Field(2, ge=1, description="E of the claim; must be that of the trainer")
        batch_size: int = Field(16, ge=1, description="B of the claim; must be that of the trainer")
        source: ExactSource = "secure"

    def check(self, recipe: Recipe) -> list[str]:
        """A batch is smaller than the whole of the examples."""
        if self.options.batch_size < self.options.examples:
            return []
        return [
            f"batch_size={self.options.batch_size} must be below examples={self.options.examples}, which counts those "
            "of all clients together"
        ]

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Noise of the size that is really added, independent of the claim.

        Raises:
            Misplaced: nothing bounds the values, there is noise already, they are encrypted, or the claim is about
                another training.
            ProtectionError: no noise exists for the claim.
        """
        self._compare(facts)
        multiplier = self.multiplier(facts.rounds, facts.num_clients)
        options = Gaussian.Options(noise_multiplier=multiplier, source=self.options.source)
        note = f"its code claims epsilon={self.options.epsilon:g} at delta={self.options.delta:g}"
        return (local_noise(options, known, facts, as_published=True, note=note),)

    def _compare(self, facts: Facts) -> None:
        """The batches of the claim are those of the training. Of FedDPA's epochs the code counts half.

        Raises:
            Misplaced: they are not.
        """
        trainer = next((part for part in facts.components.values() if isinstance(part, Trainer)), None)
        learns = trainer.learns(facts) if trainer else None
        if learns is None:
            return
        epochs = trainer.options.epochs if isinstance(trainer, FedDpa) else learns.epochs
        claimed = {"epochs": (self.options.epochs, epochs), "batch_size": (self.options.batch_size, learns.batch_size)}
        for name, (given, used) in claimed.items():
            if used is not None and used != given:
                raise Misplaced(f"{self.name}: {name}={given} of the claim must be that of train, {used}")

    def multiplier(self, rounds: int, num_clients: int) -> float:
        """The noise multiplier of one upload that is really added, over the clipping norm: sigma / sqrt(K)."""
        options = self.options
        sigma = claimed_multiplier(
            options.epsilon, options.delta, options.examples, rounds, options.epochs, options.batch_size
        )
        return sigma / math.sqrt(num_clients)

    def describe(self) -> str:
        """One line for the plan of the run."""
        claim = f"epsilon {self.options.epsilon:g}, delta {self.options.delta:g}"
        std = "Gaussian noise of std C sigma / sqrt(K) at the client (as published)"
        return f"{std}: claims {claim}, which does not hold"


@functools.cache
def claimed_multiplier(epsilon: float, delta: float, examples: int, rounds: int, epochs: int, batch_size: int) -> float:
    """sigma of the code: Opacus' RDP accountant with q = B / n and T E n / B steps.

    Raises:
        ProtectionError: Opacus finds none.
    """
    from opacus.accountants.utils import get_noise_multiplier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warns that the best order is the last
        try:
            found = get_noise_multiplier(
                target_epsilon=epsilon, target_delta=delta, sample_rate=batch_size / examples,
                steps=rounds * epochs * examples / batch_size, accountant="rdp",
            )  # fmt: skip
        except (ValueError, RuntimeError) as error:
            raise ProtectionError(f"Opacus finds no noise for the claim of epsilon={epsilon:g}: {error}") from error
    return float(found)
