"""Encrypt scalars drawn at random: the control that every selection by importance must beat.

Plato's MaskCrypt has it as `random_mask` (TL-System/plato, examples/secure_aggregation/maskcrypt/maskcrypt_client.py,
where every client draws its own). FedML-HE's benchmark has it as its first mask (wzjin2017/fedml-he-benchmark,
masks.py).
"""

from __future__ import annotations

import fedplug
from fedplug import Facts, Field, Plan, Plans
from fedplug.api.blocks import CLEAR, ENCRYPTED
from fedplug_std.options import OtherZone
from fedplug_std.scores import count_of

from fedplug_baselines import masks


class RandomMask(fedplug.PublicPlan):
    """Encrypt a random share of the scalars: the control for every selection by importance.

    The mask follows from the recipe's seed, so it is public, depends on no data, and costs no message. With
    `per_round`, a scalar that is encrypted in one round goes out in the clear in another.
    """

    class Options(fedplug.Options):
        """How many scalars, and how often to redraw them."""

        ratio: float = Field(0.1, ge=0, le=1, description="share of the model that is encrypted")
        per_round: bool = Field(False, description="true: a new mask every round; false: one for the whole run")
        other_zone: OtherZone = CLEAR

    @property
    def plans(self) -> Plans:
        """A share is encrypted, the rest is not. The public seed decides, for any set of clients."""
        zones = masks.zones_of(self.options.ratio, self.options.other_zone)
        return Plans(zones=zones, fixed=not self.options.per_round)

    def plan(self, facts: Facts) -> Plan:
        """floor(ratio * P) distinct positions from the public seed."""
        purpose = ("round", facts.round) if self.options.per_round else ("run",)
        rng = fedplug.stream(facts.seed, self.name, *purpose)
        count = count_of(self.options.ratio, facts.layout.size)
        chosen = rng.choice(facts.layout.size, count, replace=False, shuffle=False)
        return Plan.of(facts, self.options.other_zone, **{ENCRYPTED: chosen})

    def describe(self) -> str:
        """One line for the plan of the run."""
        often = "anew each round" if self.options.per_round else "once"
        return f"{self.options.ratio:.1%} encrypted, drawn {often} from the seed; the rest {self.options.other_zone}"
