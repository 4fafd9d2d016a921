"""FedML's `GlobalDP`: the server clips the clients' models, and adds noise to their mean.

Source: FedML 0.9.6, fedml/core/dp/frames/{cdp,base_dp_solution}.py, fedml/core/dp/mechanisms/{gaussian,laplace}.py and
fedml/core/alg_frame/server_aggregator.py.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Clip, Facts, Field, Known, Map, Noise, Operations, Post, Reveals, Shift
from fedplug.api.grids import finest
from fedplug.mechanisms.noise import add_laplace, add_noise
from fedplug_std.options import Positive

from fedplug_deployed.clips import NO_CIPHERTEXTS, length
from fedplug_deployed.fixed_clipping import is_uniform
from fedplug_deployed.output_perturbation import FedmlLocalDp
from fedplug_deployed.tensors import in_zone

if TYPE_CHECKING:
    from fedplug import Block, Public, Recipe, Server
    from numpy.typing import NDArray


class FedmlGlobalDp(fedplug.Protector, fedplug.Opener):
    """Clip clients' models at the server, and add noise to their mean, as FedML's `GlobalDP` does.

    As FedML 0.9.6 does it: with `max_grad_norm`, each client's whole model, not its update, is scaled to that L2 norm,
    once for each of its tensors. The noise is that of `deployed.fedml_local_dp`, on the mean: it is scaled to
    `sensitivity`, which is 1 unless given and has nothing to do with the clip or the number of clients. Name it in
    `protect` and in `postprocess`.

    FedML weights clients by their numbers of examples, and what one of them moves then follows from data. No bound of a
    clipped model is left behind the subtraction of the global one. So the ledger states no guarantee. With `std.clip`
    before it, `weighting: uniform` and no `max_grad_norm`, it states what the noise over that clip costs. FedML states
    epsilon for a round.

    In FedML 0.9.6 `enable_rdp_accountant` ends in a TypeError. Its `NbAFL_DP` and `DP_Clip` clip nothing and add no
    noise: its trainer asks for `ldp` alone, and its server for `cdp` alone.
    """

    site = "server"

    class Options(FedmlLocalDp.Options):
        """The arguments of FedML, under its names."""

        max_grad_norm: Positive | None = Field(
            None, description="L2 norm to which the server scales each model; null: it does not"
        )

    options: Options

    def check(self, recipe: Recipe) -> list[str]:
        """It is in both places."""
        return [
            f"it clips and adds the noise; write {self.name} in {place} too"
            for place, chains in (("protect", recipe.protect), ("postprocess", recipe.postprocess))
            if self.name not in [use.name for chain in chains.values() for use in chain]
        ]

    @property
    def scale(self) -> float:
        """Standard deviation of Gaussian noise, or b of Laplace noise, on the mean, in units of the model."""
        return FedmlLocalDp(self.options).scale

    def protect(self, known: Known, facts: Facts) -> Operations:
        """The clip of the model, which is sent as a difference.

        Raises:
            Misplaced: the values are encrypted.
        """
        known.before("encryption", NO_CIPHERTEXTS.format(name=self.name))
        norm = self.options.max_grad_norm
        if norm is None:
            return ()
        return Shift.model(1), Post(functools.partial(_clipped, norm)), Clip(norm), Shift.model(-1)

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """Noise on the sum: what FedML adds to the mean, times the clients of the round.

        Raises:
            Misplaced: the sum is encrypted.
        """
        known.before("encryption", f"it is encrypted at the server, where {self.name} adds noise")
        options, laplace = self.options, self.options.mechanism_type == "laplace"
        if not is_uniform(facts):
            return (Map(functools.partial(_noised_mean, self.scale, laplace, options.source, self.name)),)
        made, note = Noise.laplace if laplace else Noise.gaussian, FedmlLocalDp(options).claim
        return (made(self.scale * facts.num_clients, source=options.source, as_published=True, note=note),)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """The full model of each client, which the server clips."""
        return [Reveals("updates before the clip", ("server",), note="the server clips them, and sees each in full")]

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        clip = "no clip" if options.max_grad_norm is None else f"models clipped to L2 norm {options.max_grad_norm:g}"
        noise = f"{options.mechanism_type} noise of scale {self.scale:.4g} on the mean"
        return f"{clip}; {noise}; {FedmlLocalDp(options).claim}"


def _clipped(norm: float, values: NDArray[np.float32], public: Public) -> NDArray[np.float32]:
    """The model, (n,), scaled as `BaseDPFrame.global_clip` does: as often as it has tensors."""
    places = [where for _, where in in_zone(public, len(values))]
    for _ in places:
        found = np.float32(length([values[where] for where in places]))
        values = values * min(np.float32(1), np.float32(norm) / (found + np.float32(1e-6)))
    return values


def _noised_mean(
    scale: float, laplace: bool, source: str, name: str, block: Block, server: Server, facts: Facts
) -> NDArray[np.float32]:
    """The sum whose mean has the noise: the core divides it."""
    mean = block.mean()
    grid = finest(float(np.abs(mean).max(initial=0.0)), scale)
    noised = (add_laplace if laplace else add_noise)(mean, scale, grid, source, facts.rng(name, block.zone))
    return (noised * np.asarray(block.divisor, np.float64)).astype(np.float32)
