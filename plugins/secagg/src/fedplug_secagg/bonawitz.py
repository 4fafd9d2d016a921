"""SecAgg (Bonawitz et al., CCS 2017): every client exchanges masks with every other one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedplug import Field
from fedplug.api.errors import ProtectionError

from fedplug_secagg.graph import Parameters
from fedplug_secagg.masked import Masked, MaskOptions

if TYPE_CHECKING:
    from fedplug import Context, Recipe


class Bonawitz(Masked):
    """Mask updates so that they cancel in the sum; nobody holds a key, and clients that drop out do no harm (SecAgg).

    Every client exchanges masks and shares with all others: O(n) work a client, O(n^2) at the server. The shares of
    `threshold` clients take the masks of a sum off. Holds against an honest-but-curious server with fewer clients.
    """

    class Options(MaskOptions):
        """Options of `secagg.bonawitz`."""

        threshold: int | None = Field(
            None, ge=2,
            description="t, how many clients' shares open; default: more than half of the clients",
        )  # fmt: skip

    options: Options

    def parameters(self, clients: int) -> Parameters:
        """The complete graph, and the threshold of the recipe.

        Raises:
            ProtectionError: there is no such sharing.
        """
        threshold = self.options.threshold or clients // 2 + 1
        if not 2 <= threshold < clients:
            raise ProtectionError(
                f"threshold={threshold} must be at least 2 and below the number of clients, {clients}: every client "
                "deals a share to each of the others"
            )
        return Parameters(clients, clients - 1, threshold, -math.inf, -math.inf)

    def check(self, recipe: Recipe) -> list[str]:
        """What stands against it; with groups, a group that may be too small for its shares to be opened."""
        found, threshold = super().check(recipe), self.options.threshold
        if recipe.groups is not None and threshold is not None and threshold >= recipe.min_clients:
            found.append(
                f"threshold: {threshold} opens no sum of a group of min_clients: {recipe.min_clients}, whose members "
                f"have {recipe.min_clients - 1} others each; lower threshold to {recipe.min_clients - 1} or less, or "
                "raise min_clients, and the size of the groups with it"
            )
        return found

    def stated(self, ctx: Context) -> int:
        """That of the recipe, or more than half of the smallest cohort that a round may have."""
        return self.options.threshold or super().stated(ctx)

    def scheme(self, clients: int) -> str:
        """Its parameters in a line."""
        threshold = self.parameters(clients).threshold
        return f"masks modulo 2^{self.options.bits} between all {clients} clients; shares of {threshold} open a sum"

    def describe(self) -> str:
        """One line for the plan of a run."""
        opens = (
            "more than half of the clients" if self.options.threshold is None else f"{self.options.threshold} clients"
        )
        return f"SecAgg: masks between all clients, modulo 2^{self.options.bits}; shares of {opens} open a sum"
