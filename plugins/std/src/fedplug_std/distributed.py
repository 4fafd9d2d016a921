"""Gaussian noise that many clients share out among them: enough in their sum, and too little in any upload."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import fedplug
from fedplug import Context, Field, Known, Operations, hookimpl

from fedplug_std.gaussian import NoiseOptions, local_noise

if TYPE_CHECKING:
    from fedplug import Recipe


class DistributedGaussian(fedplug.Protector):
    """Add a share of Gaussian noise at each client, so that the sum of a round has what epsilon asks for.

    Each client adds noise of std norm * sigma / sqrt(shared_by), so that the noise of `shared_by` clients together has
    the multiplier sigma (Dwork et al., EUROCRYPT 2006, with Gaussian shares). Only the sum is private to that degree: a
    zone must be closed behind it so that nobody opens an upload, as `secagg.plus`, `baselines.lwe` and `std.bfv` do.
    Values and noise lie on a public grid; where the sum is taken in whole numbers, as there, it is a sum of those.
    """

    class Options(NoiseOptions):
        """How much noise, and how many clients make it."""

        colluders: int = Field(
            0, ge=0, description="clients whose noise does not count: they know it, and may tell the server"
        )
        shared_by: int | None = Field(
            None, ge=1,
            description="how many clients' noise together gives epsilon; default: one fewer than the smallest sum "
            "has (min_clients), since a client that took part knows its own noise, without the colluders",
        )  # fmt: skip

    name: str

    def __init__(self, options: Options) -> None:
        self.options: DistributedGaussian.Options = options

    def sharing(self, min_clients: int) -> int:
        """Among how many clients the noise is shared out."""
        return self.options.shared_by or max(1, min_clients - 1 - self.options.colluders)

    @hookimpl
    def protect(self, known: Known, ctx: Context) -> Operations:
        """One client's share of the noise.

        Raises:
            Misplaced: nothing bounds the values, there is noise already, or they are encrypted.
            ProtectionError: no such schedule exists.
        """
        shared_by = self.sharing(ctx.min_clients)
        note = f"the share of one client; {shared_by} together have noise multiplier "
        note += f"{self.options.multiplier(ctx.round, ctx.rounds):.4g}"
        return (local_noise(self.options, known, ctx, 1 / math.sqrt(shared_by), "distributed", note=note),)

    def check(self, recipe: Recipe) -> list[str]:
        """What stands against that many sharing it."""
        options = self.options
        counted = recipe.min_clients - options.colluders
        if options.shared_by is None and counted < 2:
            return [
                f"min_clients: {recipe.min_clients} leaves no client whose "
                "noise counts; raise min_clients, or lower colluders"
            ]
        if options.shared_by is not None and options.shared_by > counted:
            return [
                f"shared_by={options.shared_by} counts on more clients than the smallest sum has without colluders, "
                f"{counted}; raise min_clients, or lower shared_by"
            ]
        return []

    def describe(self) -> str:
        """One line for the plan of the run."""
        among = "the clients of a sum" if self.options.shared_by is None else f"{self.options.shared_by} clients"
        return f"Gaussian noise shared out among {among}, {self.options.words()}"
