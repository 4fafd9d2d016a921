"""Flower's strategies of central differential privacy with a clip that follows the clients' norms.

Source: flwr 1.42.0, flwr/serverapp/strategy/dp_adaptive_clipping.py
(`DifferentialPrivacyClientSideAdaptiveClipping` with the mod `adaptiveclipping_mod`, and
`DifferentialPrivacyServerSideAdaptiveClipping`) and flwr/supercore/differential_privacy.py, after Andrew, Thakkar,
McMahan and Ramaswamy, "Differentially Private Learning with Adaptive Clipping" (NeurIPS 2021, arXiv:1905.03871).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import fedplug
import numpy as np
from fedplug import Client, Clip, Cohort, Facts, Field, Known, Noise, Operations, Reveals, at_client
from fedplug.api.errors import ProtectionError
from fedplug.api.operations import Party
from fedplug_std.options import Positive, Source
from fedplug_std.single_zone import SingleZone

from fedplug_deployed.clips import NO_CIPHERTEXTS, flat_clip, scaling
from fedplug_deployed.fixed_clipping import complaints, excess, is_uniform, on_the_mean

if TYPE_CHECKING:
    from fedplug import Recipe


class AdaptiveClipping(SingleZone, fedplug.Ballots, fedplug.Protector, fedplug.Opener):
    """Clip to a norm that moves with the share of clipped clients, and noise the mean, as Flower's strategies do.

    As flwr 1.42.0 does it. Each client says whether the clip shortened its update, the server adds noise to the count,
    and the norm is multiplied by exp(-clip_norm_lr * (share - target_clipped_quantile)). Two things differ from the
    algorithm of Andrew et al.:

    * Their share counts the clients within the norm, Flower's those beyond it, in the same formula. So where most are
      clipped the norm falls, and where few are it grows: it moves away from the quantile, and does not return.
    * The noise on the mean is scaled to the next norm, after the update was clipped to the present one. Where the norm
      falls, there is less noise than the multiplier says, by up to exp(-clip_norm_lr / 2) with the default quantile.

    The ledger states what the noise of each round over its clip costs, with the count, if all clients weigh the same
    (`deployed.fixed_clipping` says why). Nobody knows it before the run, so a site that asks beforehand is told of no
    guarantee. `baselines.adaptive_clip` does what the paper says. Name this component in
    `negotiate_mask`, `protect` and `postprocess`.

    With `clips: server`, Flower's server clips, counts, and sees each update at its full length.
    """

    site = "server"

    class Options(fedplug.Options):
        """The arguments of Flower's strategies, under their names."""

        noise_multiplier: Positive = Field(description="of a whole round, the count included")
        num_sampled_clients: int | None = Field(
            None, ge=1, description="clients of a round, as Flower is told; null: as many as take part"
        )
        initial_clipping_norm: Positive = Field(0.1, description="L2 norm of the first round")
        target_clipped_quantile: float = Field(0.5, ge=0, le=1, description="share that the norm is compared with")
        clip_norm_lr: Positive = Field(0.2, description="how fast the norm moves")
        clipped_count_stddev: Positive | None = Field(
            None, description="standard deviation of the noise on the count; null: a twentieth of the clients"
        )
        clips: Literal["client", "server"] = Field(
            "client", description="who clips: the client side with adaptiveclipping_mod, or the server side"
        )
        zone: str = Field("noised", description="the zone that holds every scalar")
        source: Source = "secure"

        def count_std(self, clients: int) -> float:
            """Standard deviation of the noise on the count, of a round of so many clients."""
            return self.clipped_count_stddev or (self.num_sampled_clients or clients) / 20

        def mean_multiplier(self, clients: int) -> float:
            """The noise multiplier of the mean: what the count leaves of the round's.

            Raises:
                ProtectionError: the count takes all of it.
            """
            count = self.count_std(clients)
            if self.noise_multiplier >= 2 * count:
                raise ProtectionError(
                    f"noise_multiplier={self.noise_multiplier:g} must be below 2 clipped_count_stddev, {2 * count:g}: "
                    "the count takes all of it; raise clipped_count_stddev, or lower noise_multiplier"
                )
            return float((self.noise_multiplier**-2 - (2 * count) ** -2) ** -0.5)

    options: Options

    def check(self, recipe: Recipe) -> list[str]:
        """It is in all three places, in rounds of all clients, with one norm and a multiplier that can be."""
        found = complaints(self.name, None, recipe)
        if recipe.negotiate_mask.name != self.name:
            found.append(f"clients learn the norm in the negotiation; write negotiate_mask: {{use: {self.name}, ...}}")
        if recipe.groups is not None:
            found.append("it keeps one norm for all clients; remove groups")
        if recipe.sampling is not None:
            found.append("the noise of its count is for rounds of all clients; remove sampling")
        if (clients := recipe.clients) is not None:
            try:
                self.options.mean_multiplier(clients)
            except ProtectionError as error:
                found.append(str(error))
        return found

    # -- the norm ------------------------------------------------------------------------------------------------------

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """The clients get this round's norm and send back whether it clips them; the count gives the next norm."""
        memory, options = cohort.server.memory(self), self.options
        norm = float(memory.get("next", options.initial_clipping_norm))
        cohort.publish(self, {"norm": norm, "next": norm}, covered_by="epsilon")
        answers = self._answers(cohort)
        # 1/2 is subtracted from each answer, so that one client moves the count by 1/2 compared with none.
        centred = {client_id: np.array([answer - 0.5], np.float32) for client_id, answer in answers.items()}
        share = 0.5 + float(cohort.server.release(self, centred).sum()) / max(1, len(answers))
        memory["next"] = norm * math.exp(-options.clip_norm_lr * (share - options.target_clipped_quantile))
        cohort.publish(self, {"norm": norm, "next": memory["next"]}, covered_by="epsilon")
        cohort.server.log[f"{self.name}.norm"] = norm

    def _answers(self, cohort: Cohort) -> dict[int, bool]:
        """The valid replies, by client. A client that sent another reply is left out of the round."""
        found = {}
        for client_id, reply in cohort.ask(self.is_clipped).items():
            if isinstance(reply, bool):
                found[client_id] = reply
            else:
                cohort.drop(client_id, f"its answer about its norm is {reply!r:.40}, which must be true or false")
        return found

    @at_client
    def is_clipped(self, client: Client) -> bool:
        """Whether the norm of the round shortens this client's update: Flower's norm bit.

        Raises:
            ProtectionError: there is no update, or it is not finite.
        """
        update, layout = client.update, client.facts.layout
        if update is None or not np.isfinite(update).all():
            what = "has no update" if update is None else "has an update with NaN or infinite values"
            raise ProtectionError(f"client {client.client_id} {what}, which has no norm; lower lr in train")
        tensors = [update[parameter.slice] for parameter in layout.parameters]
        return scaling(tensors, self._told(client.facts, "norm")) < 1

    def _told(self, facts: Facts, name: str) -> float:
        """A norm of the round; before a run the first."""
        return float(facts.of(self).get(name, self.options.initial_clipping_norm))

    # -- the clip and the noise ----------------------------------------------------------------------------------------

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A clip to the round's norm.

        Raises:
            Misplaced: noise, a clip or an encryption comes before it, so that Flower would count other norms.
        """
        for what in ("noise", "clip"):
            known.before(what, f"it counts updates as they are; put {self.name} first")
        known.before("encryption", NO_CIPHERTEXTS.format(name=self.name))
        return flat_clip(self._told(facts, "norm"))

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """Noise on the sum, which Flower scales to the next norm. Before that is known the noise has no price: nobody
        can say beforehand how far the norm will fall, and with it the noise.
        """
        options = self.options
        note = "as Flower does it, the noise is scaled to the norm of the next round"
        std = options.mean_multiplier(facts.num_clients) * self._told(facts, "next")
        if not is_uniform(facts) or "next" not in facts.of(self):
            return on_the_mean(std / (options.num_sampled_clients or facts.num_clients), options.source, self.name)
        std *= excess(options.num_sampled_clients, facts)
        return (Noise.gaussian(std, source=options.source, as_published=True, note=note),)

    # -- its cost and what it reveals ----------------------------------------------------------------------------------

    def ballots(self, facts: Facts) -> Operations:
        """The noised count: each client's answer is half a client from the middle."""
        note = "noised count of the clipped clients, by the server, which sees each answer"
        std = self.options.count_std(facts.num_clients)
        return (Clip(0.5), Noise.gaussian(std, trust="central", source=self.options.source, note=note))

    def reveals(self, facts: Facts) -> list[Reveals]:
        """What the server reads from each client, and what all parties learn."""
        everybody: tuple[Party, ...] = ("server", "client", "released_model")
        by_name = "by name, without noise; the server is trusted with the updates too"
        found = [
            Reveals("whether a client's update is clipped", ("server",), asked=("is_clipped",), note=by_name),
            Reveals("clipping norm", everybody, covered_by="epsilon", note="from noised counts"),
        ]
        if self.options.clips == "server":
            note = "the server clips them, and sees each at its full length"
            found.append(Reveals("updates before the clip", ("server",), note=note))
        return found

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        norm = f"clip to a norm from {options.initial_clipping_norm:g} on, which moves away from the clients' quantile"
        return f"{norm} (as in Flower); noise multiplier {options.noise_multiplier:g} at the server"
