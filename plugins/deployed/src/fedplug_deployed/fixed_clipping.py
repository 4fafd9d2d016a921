"""Flower's strategies of central differential privacy with a fixed clip.

Source: flwr 1.42.0, flwr/serverapp/strategy/dp_fixed_clipping.py (`DifferentialPrivacyClientSideFixedClipping` with
the mod `fixedclipping_mod`, and `DifferentialPrivacyServerSideFixedClipping`) and
flwr/supercore/differential_privacy.py, after McMahan et al. (ICLR 2018, arXiv:1710.06963).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import fedplug
from fedplug import Facts, Field, Known, Noise, Operations, Reveals
from fedplug_std.options import Positive, Source

from fedplug_deployed.clips import NO_CIPHERTEXTS, flat_clip

if TYPE_CHECKING:
    from fedplug import Recipe


class FixedClipping(fedplug.Protector, fedplug.Opener):
    """Clip updates to a fixed norm, and add Gaussian noise to their mean at the server, as Flower's strategies do.

    As flwr 1.42.0 does it: a clip to `clipping_norm`, bit for bit, and noise of the standard deviation
    noise_multiplier * clipping_norm / num_sampled_clients on the mean. Name it in `protect` and in `postprocess`. It is
    the mechanism of `std.clip` and `std.central_gaussian` but for `num_sampled_clients`, which is an argument in
    Flower: if it names more clients than take part, the noise is too small by their quotient. Flower warns in its log.
    The ledger goes by the clients of the recipe.

    Flower's FedAvg weights clients by their numbers of examples unless told otherwise, and one with many examples then
    moves the mean by more than clipping_norm / num_sampled_clients. No noise of that size has a price then, so the
    component asks for `weighting: uniform`, as Flower's own accountant does. Where clients fail, Flower's noise stays
    as it is while the mean is over fewer; here it is scaled to the sum, and suffices.

    Flower's accountant composes this noise by Renyi DP, without credit for sampling. The ledger composes it exactly,
    and states less.

    With `clips: server`, Flower's server clips, and sees each update at its full length. What it releases is the same.
    """

    site = "server"

    class Options(fedplug.Options):
        """The arguments of Flower's strategies, under their names."""

        noise_multiplier: float = Field(ge=0, allow_inf_nan=False, description="0: no noise, so no guarantee")
        clipping_norm: Positive = Field(description="L2 norm to which each update is clipped")
        num_sampled_clients: int | None = Field(
            None, ge=1, description="clients of a round, as Flower is told; null: as many as take part"
        )
        clips: Literal["client", "server"] = Field(
            "client", description="who clips: the client side with fixedclipping_mod, or the server side"
        )
        source: Source = "secure"

    options: Options

    def check(self, recipe: Recipe) -> list[str]:
        """It is in both places. Clients count alike. Flower's number of clients is for rounds of all."""
        return complaints(self.name, self.options.num_sampled_clients, recipe)

    def protect(self, known: Known, facts: Facts) -> Operations:
        """The clip.

        Raises:
            Misplaced: the values are encrypted.
        """
        known.before("encryption", NO_CIPHERTEXTS.format(name=self.name))
        return flat_clip(self.options.clipping_norm)

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """Noise on the sum: what Flower adds to the mean, times the clients of the round.

        Raises:
            Misplaced: the sum is encrypted, or the clip is not before it.
        """
        known.before("encryption", f"it is encrypted at the server, where {self.name} adds noise")
        known.need_norm(f"its noise is scaled to the clip; write {self.name} in protect.{known.zone} too", central=True)
        options = self.options
        std = options.noise_multiplier * options.clipping_norm * excess(options.num_sampled_clients, facts)
        return (Noise.gaussian(std, source=options.source),)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """The full update, where the server clips it."""
        if self.options.clips == "client":
            return []
        note = "the server clips them, and sees each at its full length"
        return [Reveals("updates before the clip", ("server",), note=note)]

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        clip = f"clip to L2 norm {options.clipping_norm:g} at the {options.clips}"
        return f"{clip}; noise multiplier {options.noise_multiplier:g} at the server, {options.source} source"


def complaints(name: str, num_sampled_clients: int | None, recipe: Recipe) -> list[str]:
    """What a recipe lacks for noise that Flower adds to a mean."""
    found = []
    for place, chains in (("protect", recipe.protect), ("postprocess", recipe.postprocess)):
        if name not in [use.name for chain in chains.values() for use in chain]:
            found.append(f"it clips and adds the noise; write {name} in {place} too")
    weighting = getattr(recipe.aggregate.options, "weighting", "uniform")
    if weighting != "uniform":
        found.append(
            f"with weighting: {weighting} one client may count for more than its share of the mean, which the noise is "
            "scaled to; write aggregate: {use: std.mean, weighting: uniform}"
        )
    if recipe.sampling is not None and num_sampled_clients is not None:
        found.append(
            f"num_sampled_clients={num_sampled_clients} is for rounds of all clients; with sampling, leave it out: the "
            "noise is then scaled to the clients that are drawn"
        )
    return found


def excess(num_sampled_clients: int | None, facts: Facts) -> float:
    """The clients of a round over the number that Flower is told."""
    return 1.0 if num_sampled_clients is None else facts.num_clients / num_sampled_clients
