"""Alt-FL: rounds take turns, in how they are protected and in whether clients train on their own examples at all.

Wang, Chiasserini and Schiller, Integrating homomorphic encryption and synthetic data in FL for privacy and learning
quality, IEEE LANMAN 2025 (arXiv:2603.02969), and Balancing privacy-quality-efficiency in federated learning through
round-based interleaving of protection techniques (arXiv:2603.05158).
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import fedplug
import numpy as np
from fedplug import Client, Examples, Facts, Field, Learns, Plans
from fedplug_std.training import Sgd

SYNTHETIC = "synthetic"
"""The zone of rounds in which nobody trains on its own examples."""


class Alternating(Sgd, fedplug.PublicPlan):
    """Let rounds take turns: round t sends the whole model in zone `cycle[t mod len(cycle)]` (Alt-FL).

    In a round of zone `synthetic` clients train on synthetic examples, of which each has a share, and not on their own;
    such a round needs no protection and costs nothing. In all other rounds they train on their own examples, and the
    links of the round's zone protect them. The interleaving ratio rho is the share of `synthetic` in the cycle:

        SI/DP   [noised, synthetic]      noise in the rounds on authentic data, nothing in those on synthetic data
        SI/HE   [encrypted, synthetic]   encryption in the former
        PI      [noised, encrypted]      authentic data in all rounds, protected by noise and by encryption in turn

    Use it under `train`, with the options, and by name under `negotiate_mask`. The synthetic examples are the public
    ones of the recipe (`data.public`, or the section `public`).
    """

    class Options(Sgd.Options):
        cycle: tuple[str, ...] = Field(
            ("noised", SYNTHETIC), min_length=1, description="zones of the rounds, which take turns in this order"
        )
        init_syn_rounds: int = Field(0, ge=0, description="rounds at the beginning that are all synthetic")

    options: Options

    def zone(self, round: int) -> str:
        """The zone of a round, 0-based."""
        options = self.options
        return SYNTHETIC if round < options.init_syn_rounds else options.cycle[round % len(options.cycle)]

    @property
    def plans(self) -> Plans:
        """The whole model in one zone a round."""
        first = [SYNTHETIC] * bool(self.options.init_syn_rounds)
        return Plans(zones=frozenset([*self.options.cycle, *first]), fixed=len({*self.options.cycle, *first}) == 1)

    def plan(self, facts: Facts) -> str:
        """The zone of this round."""
        return self.zone(facts.round)

    def reads_examples(self, facts: Facts) -> bool:
        """Not in synthetic rounds."""
        return self.zone(facts.round) != SYNTHETIC

    def learns(self, facts: Facts) -> Learns | None:
        """As `std.sgd`; an update of a synthetic round does not follow from anybody's data."""
        return super().learns(facts) if self.reads_examples(facts) else None

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Trains on the client's own examples, or on its share of the synthetic ones."""
        if self.reads_examples(facts):
            return super().train(client, facts)
        assert facts.public is not None  # see `check`
        other = copy.copy(client)
        own = share(facts.public.examples, client.client_id, facts.num_clients)
        other.data = dataclasses.replace(client.data, train=own)
        return super().train(other, facts)

    def check(self, recipe: Any) -> list[str]:
        """Synthetic rounds need examples, and the component has to be in both places."""
        if recipe.train.name != self.name:
            return [f"{self.name} says what clients train on, too; write train: {{use: {self.name}}}"]
        if SYNTHETIC in self.plans.zones and recipe.public is None and not recipe.data.public:
            return [f"{SYNTHETIC} rounds need public examples; set some aside: data: {{public: 500, ...}}"]
        return []

    def describe(self) -> str:
        """One line for the plan of the run."""
        first = self.options.init_syn_rounds
        return f"rounds in turn {', '.join(self.options.cycle)}" + (f", the first {first} {SYNTHETIC}" if first else "")


def share(examples: Examples, client_id: int, num_clients: int) -> Examples:
    """The client's share of the synthetic examples: every K-th; of fewer than K, one that others have too."""
    return examples.take(np.arange(client_id % len(examples), len(examples), num_clients))
