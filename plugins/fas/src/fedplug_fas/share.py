"""FAS's choice: a fixed share of the scalars, the same in every round (FAS, Section 4.1; Alg. 1, lines 11-13)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Field, Plan, Plans
from fedplug.api.blocks import ENCRYPTED, NOISED, RETAINED
from fedplug_std.options import OtherZone
from fedplug_std.scores import count_of
from pydantic import field_validator

if TYPE_CHECKING:
    from fedplug import Facts
    from numpy.typing import NDArray


class Share(fedplug.PublicPlan):
    """Encrypt a fixed share of the scalars, chosen once without looking at any data; the rest is noised (FAS).

    floor(ratio * P) of the P scalars are `encrypted`, at the same positions in every round and at every client, so that
    sums line up. `uniform` draws them from the recipe's seed, as Section 4.1 says ("uniformly"). `prefix` takes the
    first ones, as Algorithms 1 and 3 do, which leaves a classifier's last layer, and with it the labels, unencrypted.
    The mask is public and depends on no data, so it costs no message, no pretraining and no epsilon.
    """

    class Options(fedplug.Options):
        """How many scalars, and which."""

        ratio: float = Field(0.1, ge=0, le=1, description="share of the scalars that is encrypted, as a fraction")
        order: Literal["uniform", "prefix"] = Field(
            "uniform",
            description="uniform: drawn from the seed, once for the run; prefix: the first scalars of the model, as in "
            "the paper's Algorithm 1",
        )
        other_zone: OtherZone = NOISED

        @field_validator("ratio", mode="before")
        @classmethod
        def _shares_are_fractions(cls, value: Any) -> Any:
            text = str(value).strip()
            try:
                number = float(text.removesuffix("%"))
            except ValueError:
                return value  # pydantic says that this is not a number
            if math.isfinite(number) and (number > 1 or text.endswith("%")):
                remedy = f"; for {number:g}% write {number / 100:g}" if number <= 100 else "; 1 encrypts everything"
                raise ValueError(f"ratio={text}: a share is a fraction from 0 to 1{remedy}")
            return value

        @field_validator("other_zone")
        @classmethod
        def _rest_is_sent(cls, value: str) -> str:
            if value in (ENCRYPTED, RETAINED):
                raise ValueError(f"other_zone={value} must be a separate zone that is sent, such as {NOISED}")
            return value

    options: Options

    @property
    def plans(self) -> Plans:
        """Both zones, from the seed or the order alone. With ratio 0 or 1 one is empty, and a recipe may name both."""
        return Plans(zones=frozenset({ENCRYPTED, self.options.other_zone}), fixed=True)

    def plan(self, facts: Facts) -> Plan:
        """The same in every round (Algorithm 1, lines 11-13)."""
        count = count_of(self.options.ratio, facts.layout.size)
        if self.options.order == "prefix":
            chosen: NDArray[Any] = np.arange(count)
        else:
            rng = fedplug.stream(facts.seed, self.name, "mask")
            chosen = rng.choice(facts.layout.size, count, replace=False, shuffle=False)
        return Plan.of(facts, self.options.other_zone, **{ENCRYPTED: chosen})

    def describe(self) -> str:
        """One line for the plan of the run."""
        which = "drawn once from the seed" if self.options.order == "uniform" else "the first ones (as published)"
        return f"{self.options.ratio:.1%} encrypted, {which}; the rest {self.options.other_zone}"
