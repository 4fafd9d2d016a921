"""Noise on what a client sends, scaled to a number that no clip of the update stands behind.

Sources: APPFL 1.12.0, appfl/privacy/dp.py and appfl/algorithm/trainer/vanilla_trainer.py. FedML 0.9.6,
fedml/core/dp/frames/ldp.py and fedml/core/dp/mechanisms/{gaussian,laplace}.py. Fed-BioMed 6.4.1,
fedbiomed/common/privacy/_dp_controller.py.
"""

from __future__ import annotations

import abc
import math
from typing import Literal

import fedplug
from fedplug import Facts, Field, Known, Noise, Operations
from fedplug_std.options import Positive, Source
from pydantic import model_validator

Mechanism = Literal["laplace", "gaussian"]


class _Perturbation(fedplug.Protector):
    """Noise of a stated size on each value, whatever the values are."""

    @property
    @abc.abstractmethod
    def scale(self) -> float:
        """Standard deviation of Gaussian noise, or b of Laplace noise, in units of the update."""

    @property
    @abc.abstractmethod
    def mechanism(self) -> Mechanism:
        """Which noise."""

    @property
    @abc.abstractmethod
    def claim(self) -> str:
        """What the original says of it."""

    @property
    @abc.abstractmethod
    def source(self) -> Literal["secure", "reproducible"]:
        """Where the noise comes from."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        """The noise; its price follows from a clip before it, and without one there is none.

        Raises:
            Misplaced: there is noise already, or the values are encrypted.
        """
        known.before("noise", "this zone has noise already; keep one noise component in the chain")
        known.before("encryption", "noise is added to plain values; put it before the encryption")
        made = Noise.laplace if self.mechanism == "laplace" else Noise.gaussian
        return (made(self.scale, source=self.source, as_published=True, note=self.claim),)

    def describe(self) -> str:
        """One line for the plan of the run."""
        size = f"scale {self.scale:.4g}" if self.mechanism == "laplace" else f"std {self.scale:.4g}"
        return f"{self.mechanism.capitalize()} noise of {size} at the client; {self.claim}"


class AppflOutputPerturbation(_Perturbation):
    """Add the noise of APPFL's trainer to an update: scaled to one step, on an update of many.

    As APPFL 1.12.0 does it: Laplace noise of scale s / epsilon, or Gaussian noise of standard deviation
    s sqrt(2 ln(1.25 / delta)) / epsilon with delta 1e-5, for s = 2 clip_value lr. That is how far one step may move a
    model whose gradient is clipped to `clip_value`, in the norm of the clip. A round has many steps, and momentum adds
    to them. Laplace noise needs a bound of the L1 norm, whatever norm that clip has. Nothing clips the update.

    So the ledger states no guarantee. With `std.clip` or `std.clip_l1` before it, the ledger states what the noise over
    that clip costs. APPFL calls epsilon the privacy budget, in each round.
    """

    class Options(fedplug.Options):
        """The arguments of APPFL's trainer, under its names."""

        dp_mechanism: Mechanism = Field("laplace", description="which noise")
        epsilon: Positive = Field(1.0, description="what APPFL calls the privacy budget, in each round")
        clip_value: Positive = Field(1.0, description="norm to which the training clips the gradient of a batch")
        lr: Positive = Field(0.01, description="learning rate of the training")
        source: Source = "secure"

    options: Options

    @property
    def scale(self) -> float:
        """As in the class."""
        sensitivity = 2.0 * self.options.clip_value * self.options.lr
        factor = 1.0 if self.mechanism == "laplace" else math.sqrt(2 * math.log(1.25 / 1e-5))
        return sensitivity * factor / self.options.epsilon

    @property
    def mechanism(self) -> Mechanism:
        """That of the options."""
        return self.options.dp_mechanism

    @property
    def claim(self) -> str:
        """The budget, and what it is for."""
        return f"APPFL claims epsilon {self.options.epsilon:g} a round, by the sensitivity of one step"

    @property
    def source(self) -> Literal["secure", "reproducible"]:
        """That of the options."""
        return self.options.source


class FedmlLocalDp(_Perturbation):
    """Add the noise of FedML's `LocalDP` to an update, whose sensitivity is an argument.

    As FedML 0.9.6 does it: Laplace noise of scale sensitivity / (epsilon - ln(1 - delta)), or Gaussian noise of
    standard deviation sensitivity sqrt(2 ln(1.25 / delta)) / epsilon for epsilon up to 1. The sensitivity is 1 unless
    given, and no clip bounds what is sent: `max_grad_norm` is for another frame. So the ledger states no guarantee, or,
    with a clip before it, what the noise over that clip costs. FedML states epsilon for a round.
    """

    class Options(fedplug.Options):
        """The arguments of FedML, under its names."""

        mechanism_type: Mechanism = Field("gaussian", description="which noise")
        epsilon: Positive = Field(description="what FedML states for a round; at most 1 for Gaussian noise")
        delta: float = Field(ge=0, lt=1, description="failure probability of that; above 0 for Gaussian noise")
        sensitivity: Positive = Field(1.0, description="what the noise is scaled to, in units of the update")
        source: Source = "secure"

        @model_validator(mode="after")
        def _is_fedmls(self) -> FedmlLocalDp.Options:
            if self.mechanism_type == "gaussian" and (self.epsilon > 1 or self.delta == 0):
                raise ValueError(
                    f"epsilon={self.epsilon:g} and delta={self.delta:g}: FedML refuses Gaussian noise with epsilon "
                    "above 1 or delta 0; change them, or write mechanism_type: laplace"
                )
            return self

    options: Options

    @property
    def scale(self) -> float:
        """As in the class."""
        options = self.options
        if self.mechanism == "laplace":
            return options.sensitivity / (options.epsilon - math.log(1 - options.delta))
        return math.sqrt(2 * math.log(1.25 / options.delta)) * options.sensitivity / options.epsilon

    @property
    def mechanism(self) -> Mechanism:
        """That of the options."""
        return self.options.mechanism_type

    @property
    def claim(self) -> str:
        """What it states, and for what."""
        options = self.options
        stated = f"FedML claims epsilon {options.epsilon:g} at delta {options.delta:g} for a round"
        return f"{stated}, by a sensitivity of {options.sensitivity:g} that it does not enforce"

    @property
    def source(self) -> Literal["secure", "reproducible"]:
        """That of the options."""
        return self.options.source


class FedbiomedCentralDp(_Perturbation):
    """Add the noise of Fed-BioMed's central differential privacy, once, at each node.

    As Fed-BioMed 6.4.1 does it: the training clips the gradient of each example to `clip`, and what the node sends gets
    Gaussian noise of standard deviation sigma * clip. That is the noise of one gradient, on an update of many steps of
    batches, which no clip bounds. It is called central, and added by the nodes. Fed-BioMed states no epsilon, and the
    ledger no guarantee; with `std.clip` before it, the ledger states what the noise over that clip costs.

    Its local form is DP-SGD by Opacus: `baselines.dp_sgd`.
    """

    class Options(fedplug.Options):
        """The arguments of Fed-BioMed, under its names."""

        sigma: Positive = Field(description="noise multiplier, over clip")
        clip: Positive = Field(description="L2 norm to which the training clips the gradient of an example")
        source: Source = "secure"

    options: Options

    @property
    def scale(self) -> float:
        """As in the class."""
        return self.options.sigma * self.options.clip

    @property
    def mechanism(self) -> Mechanism:
        """Gaussian."""
        return "gaussian"

    @property
    def claim(self) -> str:
        """What it is called."""
        return "Fed-BioMed calls it central differential privacy, by the clip of one gradient"

    @property
    def source(self) -> Literal["secure", "reproducible"]:
        """That of the options."""
        return self.options.source
