"""LDP-Fed: condensed local differential privacy randomises every value, and the layers take turns.

Truex et al., "LDP-Fed: Federated Learning with Local Differential Privacy" (EdgeSys 2020, arXiv:2006.03637), in its
version CLDP-Fed. We did not have the full text. We recovered the method from its abstract, from public notes on it and
from the paper on the mechanism (arXiv:1905.06361): clip to [-c, c], 10^rho steps per unit, the exponential mechanism,
the selection of k clients (here the recipe's `sampling: {scheme: fixed}`), parameter cycling. We left out what could
not be recovered: how the authors turn an epsilon into alpha and divide alpha among parameters and rounds, alphas that
differ between participants, and the shuffling of uploads through anonymous channels.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Literal

import fedplug
import numpy as np
from fedplug import (
    Clip,
    Cohort,
    Facts,
    Field,
    Known,
    Layout,
    Noise,
    Operations,
    Plan,
    Plans,
)  # fmt: skip
from fedplug.api.blocks import NOISED, RETAINED
from fedplug.api.errors import SetupError
from pydantic import field_validator, model_validator

from fedplug_baselines.ldp_fed_mechanism import (
    LARGEST,
    alpha_for,
    cost_of,
    perturb,
    zero_out_epsilon,
)
from fedplug_baselines.uniform import uniform_source

if TYPE_CHECKING:
    from fedplug import KeyServerLine, Public
    from numpy.typing import NDArray


class LdpFed(fedplug.Protector):
    """Replace each value by a random one near it, by alpha-condensed local differential privacy (LDP-Fed).

    Clip to [-bound, bound], round to multiples of 10^-precision, and draw y with probability proportional to
    exp(-alpha |v - y| / 2) among those multiples. The results are biased a little towards 0, as the universe is
    bounded.

    alpha is a metric privacy: it says how well values that are one step apart can be told apart. It is not an epsilon
    of local differential privacy, by which two clients may differ arbitrarily. That epsilon is larger by a factor of
    about bound * 10^precision / 2 for each value sent. Give `epsilon` to have alpha follow from a budget in that
    strict sense. The ledger states it in any case.

    The epsilons of all values add up, to a sum that leaves next to nothing of a model. With `delta`, the values are
    accounted for as the Gaussian release that reveals as much as all of them together (Gaussian differential privacy;
    `gaussian_cost`). For the many values of a model that is far less. Another system's (epsilon, delta) is then met by
    the same kind of account.
    """

    class Options(fedplug.Options):
        """The universe of values, and how random they become."""

        bound: float = Field(gt=0, allow_inf_nan=False, description="c: values are clipped to [-c, c]")
        precision: int = Field(3, ge=0, le=12, description="rho: number of decimal digits; 10^rho steps per unit")
        alpha: float | None = Field(
            None, gt=0, allow_inf_nan=False,
            description="as in the paper: privacy parameter of one value per step of the universe",
        )  # fmt: skip
        epsilon: float | None = Field(
            None, gt=0, allow_inf_nan=False,
            description="instead of alpha: privacy loss of a client over all rounds, every value counted (zero-out)",
        )  # fmt: skip
        delta: float | None = Field(
            None, gt=0, lt=1,
            description="failure probability at which all values are accounted for together, for the least epsilon; "
            "without it, their epsilons add up",
        )  # fmt: skip
        source: Literal["secure", "reproducible"] = Field(
            "secure",
            description="secure: ChaCha20 keyed by the system; reproducible: from the recipe's seed, which protects "
            "nobody",
        )

        @property
        def largest(self) -> int:
            """m: the universe is -m to m, in steps of 10^-precision."""
            # The tiny addend keeps products such as 0.29 * 100 from falling below the integer that they mean.
            return math.floor(float(self.bound * 10**self.precision) * (1 + 1e-12))

        @model_validator(mode="after")
        def _has_values_to_choose_from(self) -> LdpFed.Options:
            if not 1 <= self.largest <= LARGEST:
                raise ValueError(
                    f"bound={self.bound:g} and precision={self.precision} give {self.largest} steps on either side of "
                    "0; it must be 1 to 2^52: change precision"
                )
            if (self.alpha is None) == (self.epsilon is None):
                given = "neither" if self.alpha is None else "both"
                raise ValueError(f"{given} of alpha and epsilon given; write one of them")
            return self

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Each value is clipped and redrawn on its grid. The cost covers all values that a client sends in the round.

        Raises:
            Misplaced: there is noise already, or the values are encrypted.
        """
        known.before("noise", "this zone has noise already; keep one noise component in the chain")
        known.before("encryption", f"values are randomised before they are encrypted; put {self.name} first")
        options, values, alpha = self.options, values_sent(facts.round, facts), self.alpha(facts)
        total, mu = cost_of(alpha, all_values(facts), options.largest, options.delta)
        counted = max(values, 1)  # while no model is known, there is one value to speak of
        epsilon = counted * zero_out_epsilon(alpha, options.largest)
        note = (
            f"the paper would quote alpha {alpha:.3g}, which is for values that are 1e-{options.precision} apart; the "
            f"epsilons of all {values} values that a client sends in a round add up to {epsilon:.3g}"
        )
        if mu:
            note += (
                f"; together, those of all rounds cost {total:.3g} at delta {options.delta:g}: a round's values reveal "
                "no more than the Gaussian release that is shown here, whose size is not that of the noise"
            )
        note += "; the proof leaves out the rounding inside the sampler"
        if options.source == "reproducible":
            note += "; any party that knows the seed can draw the same values"
        return (
            Clip(options.bound, order=math.inf, per="scalar"),
            # The move of a value depends on its distance from the ends of the universe, so there is no single scale.
            Noise.own(
                "gaussian" if mu else "pure", functools.partial(self.drawn, alpha), order=math.inf,
                multiplier=1 / (mu * math.sqrt(counted)) if mu else 1 / epsilon, grid=10.0**-options.precision,
                source=options.source, as_published=options.epsilon is None, note=note,
                calibrated_delta=None if options.epsilon is None else options.delta,
            ),
        )  # fmt: skip

    def drawn(
        self, alpha: float, values: NDArray[np.float32], public: Public, stream: np.random.Generator
    ) -> NDArray[np.float32]:
        """Each clipped value rounded to the universe and redrawn, (n,)."""
        options = self.options
        steps = np.rint(values.astype(np.float64) * 10.0**options.precision)
        steps = np.clip(steps, -options.largest, options.largest).astype(np.int64)
        found = perturb(steps, options.largest, alpha, uniform_source(options.source, stream))
        return (found / 10.0**options.precision).astype(np.float32)

    def alpha(self, facts: Facts) -> float:
        """alpha of each value: as given, or such that all values of all rounds together cost `epsilon`."""
        options = self.options
        if options.epsilon is None:
            return options.alpha or math.nan  # validation leaves neither None nor 0 here
        return alpha_for(options.epsilon, all_values(facts), options.largest, options.delta)

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        budget = f"alpha {options.alpha:g} a step" if options.epsilon is None else f"epsilon {options.epsilon:g} in all"
        budget += f", delta {options.delta:g}" if options.delta else ""
        return f"values in ±{options.bound:g}, {options.precision} decimals, drawn anew with {budget}"


class LdpFedCycle(fedplug.PublicPlan):
    """Let the layers take turns: each round uploads some of them and the others stay at the clients (LDP-Fed).

    Parameter cycling. A client trains the whole model in every round and sends the update of the layers whose turn it
    is. Its progress in the other layers is lost. So a layer pays once a cycle, and the budget lasts longer.
    """

    class Options(fedplug.Options):
        """Whose turn it is."""

        layers_per_round: int = Field(1, ge=1, description="how many layers are uploaded in a round")
        order: Literal["forward", "backward"] | tuple[int, ...] = Field(
            "forward", description="the cycle: from the input on, from the output on, or layer numbers from 0"
        )
        zone: str = Field(NOISED, description="zone of the layers that are uploaded")

        @field_validator("zone")
        @classmethod
        def _is_sent(cls, value: str) -> str:
            if value == RETAINED:
                raise ValueError("zone retained is never sent; name the zone of the layers that are uploaded")
            return value

        @field_validator("order")
        @classmethod
        def _is_a_cycle(cls, value: str | tuple[int, ...]) -> str | tuple[int, ...]:
            if not isinstance(value, str) and (not value or min(value) < 0 or len(set(value)) < len(value)):
                raise ValueError(f"order={list(value)} must be layer numbers from 0, each at most once")
            return value

    options: Options

    @property
    def plans(self) -> Plans:
        """The layers of the round in one zone, the others retained. Only the round number decides."""
        return Plans(zones=frozenset({self.options.zone, RETAINED}))

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """Checks that the model has the layers.

        Raises:
            SetupError: the cycle names more layers, or other layers, than the model has.
        """
        self.turn(0, facts.layout)

    def plan(self, facts: Facts) -> Plan:
        """The layers whose turn it is by the number of the round."""
        uploaded = np.zeros(facts.layout.size, np.bool_)
        for part in self.turn(facts.round, facts.layout):
            uploaded[part] = True
        return Plan.of(facts, RETAINED, **{self.options.zone: uploaded})

    def turn(self, round: int, layout: Layout) -> list[slice]:
        """The slices of the flat vector that a round uploads.

        Raises:
            SetupError: the cycle names more layers, or other layers, than the model has.
        """
        layers, options = list(layout.layer_slices().values()), self.options
        numbers: list[int] = list(range(len(layers)))
        if options.order == "backward":
            numbers.reverse()
        elif not isinstance(options.order, str):
            numbers = list(options.order)
        if max(numbers, default=0) >= len(layers) or options.layers_per_round > len(numbers):
            raise SetupError(
                f"{self.name} lets {options.layers_per_round} of the layers {numbers} take turns, but the model has "
                f"layers 0 to {len(layers) - 1}: {', '.join(layout.layers)}; lower layers_per_round, or change order"
            )
        first = round * options.layers_per_round
        chosen = [numbers[(first + i) % len(numbers)] for i in range(options.layers_per_round)]
        return [part for number in chosen for part in layers[number]]

    def values_sent(self, round: int, layout: Layout) -> int:
        """Number of scalars that this round uploads."""
        return sum(part.stop - part.start for part in self.turn(round, layout))

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        order = options.order if isinstance(options.order, str) else f"in the order {list(options.order)}"
        return f"{options.layers_per_round} of the layers a round, {order}; nothing of the others is sent"


def values_sent(round: int, facts: Facts) -> int:
    """Number of scalars that a client sends in a round: those whose turn it is, or at most the whole model.

    0 while no model is known.
    """
    if not facts.layout.size:
        return 0
    for component in facts.components.values():
        if isinstance(component, LdpFedCycle):
            return component.values_sent(round, facts.layout)
    return facts.layout.size


def all_values(facts: Facts) -> int:
    """Number of scalars that a client sends if it takes part in every round, at least 1."""
    return max(1, sum(values_sent(round, facts) for round in range(facts.rounds)))
