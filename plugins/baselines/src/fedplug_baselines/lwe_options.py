"""The public numbers of an LWE aggregation: its options, and what follows from them and the recipe."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedplug import Field
from fedplug_std.gaussian import NoiseOptions

from fedplug_baselines.lwe_shares import Sharing

if TYPE_CHECKING:
    from fedplug import Recipe


class LweOptions(NoiseOptions):
    """How much noise, how long the secret is, and how many clients open a sum."""

    noise_multiplier: float | None = Field(
        None, gt=0, lt=math.inf,
        description="standard deviation over clipping norm of the noise of `shared_by` clients together, in the "
        "first round; instead of epsilon and delta",
    )  # fmt: skip
    grid: float | None = Field(
        None, gt=0, lt=math.inf,
        description="value of an integer 1, a power of two; default: the finest with which no sum can wrap",
    )  # fmt: skip
    shared_by: int | None = Field(
        None, ge=1,
        description="number of clients whose noise together gives epsilon; default: one fewer than the smallest sum "
        "that is opened has, since a participant knows its own noise; 1: the noise of each client is enough by itself",
    )  # fmt: skip
    dimension: int = Field(710, ge=512, le=8192, description="n, the length of the LWE secret; the authors: 710")
    threshold: int | None = Field(
        None, ge=2,
        description="number of clients whose shares open a sum; default: more than half of them, so that no two sets "
        "of clients open sums that differ in one update",
    )  # fmt: skip
    packing: int = Field(
        1, ge=1,
        description="elements of the secret per polynomial: messages shrink by this factor, and threshold - packing "
        "clients together with the server still learn nothing about an upload",
    )  # fmt: skip

    def sharing(self, num_clients: int) -> Sharing:
        """How secrets are shared among the clients of the run.

        Raises:
            ProtectionError: there are too few clients for such a sharing.
        """
        return Sharing(num_clients, self.threshold or num_clients // 2 + 1, self.packing)

    def of_one(self, round: int, rounds: int, num_clients: int, min_clients: int) -> float:
        """Noise multiplier of one client: `shared_by` clients together have the multiplier of the options."""
        least = max(min_clients, self.sharing(num_clients).threshold)
        return self.multiplier(round, rounds) / math.sqrt(self.shared_by or max(1, least - 1))

    def problems(self, recipe: Recipe) -> list[str]:
        """Obstacles to opening the sum of the recipe's clients. Its sharing is known to work."""
        problems = []
        if recipe.min_clients < 2:
            problems.append("min_clients: 1 would open single updates; raise it to 2 or more")
        sharing = self.sharing(recipe.clients)
        some = "sampling" if recipe.sampling else "groups" if recipe.groups else ""
        if some and sharing.threshold > recipe.min_clients:
            problems.append(
                f"threshold={sharing.threshold} is more than the min_clients={recipe.min_clients} that a sum may have "
                f"with {some}, and only clients in the sum are asked for shares; lower threshold, or raise min_clients"
            )
        if self.shared_by is not None and self.shared_by >= recipe.clients:
            problems.append(
                f"shared_by={self.shared_by} must be below the number of clients, {recipe.clients}: a participant "
                "knows its own noise"
            )
        return problems
