"""Flower's strategies of central differential privacy with a fixed clip.

Source: flwr 1.42.0, flwr/serverapp/strategy/dp_fixed_clipping.py (`DifferentialPrivacyClientSideFixedClipping` with
the mod `fixedclipping_mod`, and `DifferentialPrivacyServerSideFixedClipping`) and
flwr/supercore/differential_privacy.py, after McMahan et al. (ICLR 2018, arXiv:1710.06963).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import fedplug
import numpy as np
from fedplug import Facts, Field, Known, Map, Noise, Operations, Reveals
from fedplug.api.grids import finest
from fedplug.mechanisms.noise import add_noise
from fedplug_std.options import Positive, Source

from fedplug_deployed.clips import NO_CIPHERTEXTS, flat_clip

if TYPE_CHECKING:
    from fedplug import Block, Recipe, Server
    from numpy.typing import NDArray


_ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(11, 64), 128, 256, 512, 1024)


class FixedClipping(fedplug.Protector, fedplug.Opener):
    """Clip updates to a fixed norm, and add Gaussian noise to their mean at the server, as Flower's strategies do.

    As flwr 1.42.0 does it: a clip to `clipping_norm`, bit for bit, and noise of the standard deviation
    noise_multiplier * clipping_norm / num_sampled_clients on the mean. Name it in `protect` and in `postprocess`. It is
    the mechanism of `std.clip` and `std.central_gaussian` but for `num_sampled_clients`, which is an argument in
    Flower: if it names more clients than take part, the noise is too small by their quotient. Flower warns in its log.
    The ledger goes by the clients of the recipe.

    Flower's FedAvg weights clients by their numbers of examples unless told otherwise. One with many examples then
    moves the mean by more than clipping_norm / num_sampled_clients, and by how much follows from the clients' data. So
    the noise has a price with `weighting: uniform` alone, which Flower's accountant asks for too. With
    `weighting: examples` it is added as Flower adds it, and the ledger states no guarantee. Where clients fail,
    Flower's noise stays as it is while the mean is over fewer. Here, with uniform weights, it is scaled to the sum, and
    suffices.

    Flower's `RdpAccountant` composes this noise by Renyi DP, without credit for sampling. The ledger composes it
    exactly, and states less. With `target_delta` the ledger's entries say what Flower's accountant states.

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
        target_delta: float | None = Field(
            None, gt=0, lt=1, description="that of Flower's accountant, to say what it states; null: it is not used"
        )
        source: Source = "secure"

    options: Options

    def check(self, recipe: Recipe) -> list[str]:
        """It is in both places. Flower's number of clients is for rounds of all."""
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
        std = options.noise_multiplier * options.clipping_norm
        if not is_uniform(facts):
            return on_the_mean(std / (options.num_sampled_clients or facts.num_clients), options.source, self.name)
        larger = std * excess(options.num_sampled_clients, facts)
        return (Noise.gaussian(larger, source=options.source, note=self._stated(facts.rounds)),)

    def _stated(self, rounds: int) -> str:
        """What Flower's accountant states after all rounds, in words; empty where it is not used."""
        options = self.options
        if options.target_delta is None or not options.noise_multiplier:
            return ""
        epsilon = stated_epsilon(options.noise_multiplier, rounds, options.target_delta)
        return f"Flower's accountant states epsilon {epsilon:.4g} at delta {options.target_delta:g}"

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


def stated_epsilon(noise_multiplier: float, releases: int, delta: float) -> float:
    """What Flower's `RdpAccountant` states of clients that are added or removed, without amplification: Renyi DP at the
    default orders of dp-accounting 0.6.0.
    """
    from fedplug_ledger.accounting import rdp_to_epsilon

    each = (rdp_to_epsilon(order, releases * order / (2 * noise_multiplier**2), delta) for order in _ORDERS)
    return max(0.0, min(each))


def complaints(name: str, num_sampled_clients: int | None, recipe: Recipe) -> list[str]:
    """What a recipe lacks for noise that Flower adds to a mean."""
    found = []
    for place, chains in (("protect", recipe.protect), ("postprocess", recipe.postprocess)):
        if name not in [use.name for chain in chains.values() for use in chain]:
            found.append(f"it clips and adds the noise; write {name} in {place} too")
    if recipe.sampling is not None and num_sampled_clients is not None:
        found.append(
            f"num_sampled_clients={num_sampled_clients} is for rounds of all clients; with sampling, leave it out: the "
            "noise is then scaled to the clients that are drawn"
        )
    return found


def is_uniform(facts: Facts) -> bool:
    """Whether the recipe's mean gives all clients the same weight."""
    means = (part for part in facts.components.values() if isinstance(part, fedplug.Aggregator))
    return all(getattr(part.options, "weighting", "uniform") == "uniform" for part in means)


def on_the_mean(std: float, source: str, name: str) -> Operations:
    """Noise on the mean, as it is after division by weights that follow from data: it has no price.

    Args:
        std: standard deviation, in units of the update.
        source: where it comes from.
        name: of the component, for reproducible noise.
    """
    return (Map(functools.partial(_noised_mean, std, source, name)),) if std else ()


def _noised_mean(
    std: float, source: str, name: str, block: Block, server: Server, facts: Facts
) -> NDArray[np.float32]:
    """The sum whose mean has the noise: the core divides it."""
    mean = block.mean()
    grid = finest(float(np.abs(mean).max(initial=0.0)), std)
    noised = add_noise(mean, std, grid, source, facts.rng(name, block.zone))
    return (noised * np.asarray(block.divisor, np.float64)).astype(np.float32)


def excess(num_sampled_clients: int | None, facts: Facts) -> float:
    """The clients of a round over the number that Flower is told."""
    return 1.0 if num_sampled_clients is None else facts.num_clients / num_sampled_clients
