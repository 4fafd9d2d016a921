"""DP-FedAvg with a clip that follows the clients' update norms: central noise, clipping at their median.

Geyer, Klein and Nabi, "Differentially Private Federated Learning: A Client Level Perspective" (2017, arXiv:1712.07557),
Algorithm 1: S is the median of the norms of a round's updates, and noise of std sigma S is added to the clipped sum.
The paper releases the median itself without noise, which its account leaves out. The default is the estimate of
Andrew, Thakkar, McMahan and Ramaswamy, "Differentially Private Learning with Adaptive Clipping" (NeurIPS 2021,
arXiv:1905.03871), Algorithm 1: a noised count of the clients within the norm moves it towards the quantile, round by
round. Both follow public descriptions; we did not have the full papers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import (
    Block,
    Client,
    Clip,
    Cohort,
    Facts,
    Field,
    Known,
    Map,
    Noise,
    Operations,
    Reveals,
    at_client,
)  # fmt: skip
from fedplug.api.errors import ProtectionError
from fedplug.api.operations import Party
from fedplug_std.options import Source
from fedplug_std.single_zone import SingleZone

if TYPE_CHECKING:
    from fedplug import Recipe
    from numpy.typing import NDArray

EXACT = (
    "the clip is the median of the clients' norms, which follows from their data and is released without noise; "
    "write estimate: noised"
)


class AdaptiveClip(SingleZone, fedplug.Ballots, fedplug.Protector, fedplug.Opener):
    """Clip each update at the clients' median norm, and add noise to the sum at a trusted server (Geyer et al. 2017).

    `estimate: noised` keeps a norm that all parties know. In each round every client says whether its update is within
    it, and the server moves the norm by exp(-rate * (share within - quantile)), after noise on that count (Andrew et
    al. 2021). `noise_multiplier` is the total of a round: `count_share` of its cost pays for the count, the rest for
    the sum. So a run costs the same as with a fixed norm.

    `estimate: exact` is the exact median of the round's norms (as published). Clients send their norms to the server,
    and all parties learn the median. It follows from the data, so no guarantee is stated.
    """

    site = "server"

    class Options(fedplug.Options):
        """How the norm is found, and how much noise is added."""

        noise_multiplier: float = Field(
            gt=0, allow_inf_nan=False,
            description="of a whole round: standard deviation over the norm, if nothing were spent on the count",
        )  # fmt: skip
        initial_norm: float = Field(
            0.1, gt=0, allow_inf_nan=False, description="norm of the first round, in units of the update; public"
        )
        estimate: Literal["noised", "exact"] = Field(
            "noised",
            description="noised: from a noised count of those within the norm; exact: the median itself (as "
            "published), which earns no guarantee",
        )
        quantile: float = Field(0.5, gt=0, lt=1, description="share of the clients to be within the norm; 0.5: median")
        rate: float = Field(0.2, gt=0, le=1, description="how fast the norm moves; noised only")
        count_share: float = Field(
            0.1, gt=0, lt=1,
            description="share of a round's 1 / noise_multiplier^2 that pays for the count; noised only",
        )  # fmt: skip
        zone: str = Field("noised", description="the zone that holds every scalar")
        source: Source = "secure"

    options: Options

    @property
    def is_noised(self) -> bool:
        """Whether the norm follows from noised counts alone."""
        return self.options.estimate == "noised"

    def check(self, recipe: Recipe) -> list[str]:
        """It must be in all three places. Every client answers, so no sampling is secret. There is one norm."""
        zone, found = self.options.zone, []
        for place, chains in (("protect", recipe.protect), ("postprocess", recipe.postprocess)):
            if self.name not in [use.name for use in chains.get(zone, ())]:
                found.append(f"it negotiates, clips and adds the noise; write {self.name} in {place}.{zone} too")
        if recipe.negotiate_mask.name != self.name:
            found.append(f"clients learn the norm in the negotiation; write negotiate_mask: {{use: {self.name}, ...}}")
        if recipe.groups is not None:
            found.append("it keeps one norm for all clients; remove groups")
        if recipe.sampling is not None and recipe.sampling.scheme == "poisson":
            found.append(
                "the replies to the question about the norm show who takes part, so sampling would earn no credit; "
                "remove sampling, or clip at a fixed norm: std.clip and std.central_gaussian"
            )
        return found

    # -- the norm ------------------------------------------------------------------------------------------------------

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """The clients get this round's norm. They send back the count, or their norms."""
        log = cohort.server.log
        if self.is_noised:
            memory = cohort.server.memory(self)
            norm = float(memory.get("next", self.options.initial_norm))
            cohort.publish(self, {"norm": norm}, covered_by="epsilon")
            within = self._answers(cohort, cohort.ask(self.is_within))
            # 1/2 is subtracted from each answer, so that one client moves the count by 1/2 compared with none.
            centred = {client_id: np.array([answer - 0.5], np.float32) for client_id, answer in within.items()}
            count = cohort.server.release(self, centred)
            # The share of a noised count can be any number. Clamping it costs nothing and keeps one step small.
            share = min(1.0, max(0.0, 0.5 + float(count.sum()) / max(1, len(within))))
            memory["next"] = norm * math.exp(-self.options.rate * (share - self.options.quantile))
            log[f"{self.name}.share_within"] = share
        else:
            lengths = [*self._answers(cohort, cohort.ask(self.length)).values()]
            middle = float(np.quantile(lengths, self.options.quantile)) if lengths else 0.0
            # Where half the clients have an update of 0, the norm stays: there is no clip to 0.
            norm = middle or self._norm(facts)
            cohort.publish(self, {"norm": norm})
        log[f"{self.name}.norm"] = norm

    def _answers(self, cohort: Cohort, replies: dict[int, Any]) -> dict[int, float]:
        """The valid replies, by client. A client that sent another reply is left out of the round."""
        found = {}
        for client_id, reply in replies.items():
            if self.is_noised:
                fits, rule = isinstance(reply, bool), "true or false"
            else:
                fits = isinstance(reply, float) and math.isfinite(reply) and reply >= 0
                rule = "a finite number >= 0"
            if fits:
                found[client_id] = float(reply)
            else:
                cohort.drop(client_id, f"its answer about its norm is {reply!r:.40}, which must be {rule}")
        return found

    def _sum_multiplier(self) -> float:
        share = self.options.count_share if self.is_noised else 0.0
        return self.options.noise_multiplier / math.sqrt(1 - share)

    @at_client
    def is_within(self, client: Client) -> bool:
        """Where the count has noise: whether this client's update is within the norm that it was told."""
        return norm_of(client.update, client) <= self._norm(client.facts)

    @at_client
    def length(self, client: Client) -> float:
        """Where there is no noise: the norm of this client's update."""
        return norm_of(client.update, client)

    def _norm(self, facts: Facts) -> float:
        """The norm of the round; before it is known the last one, and before a run the first."""
        return float(facts.of(self).get("norm", self.options.initial_norm))

    # -- the clip ------------------------------------------------------------------------------------------------------

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A clip to the round's norm. An exact median follows from the data, so that clip earns no guarantee.

        Raises:
            Misplaced: noise, a clip or an encryption comes before it.
        """
        for what in ("noise", "clip", "encryption"):
            known.before(what, f"it clips the update as it is; put {self.name} first")
        return (Clip(self._norm(facts)),) if self.is_noised else (Map(self.clipped),)

    def clipped(self, block: Block, client: Client, facts: Facts) -> NDArray[np.float32]:
        """The values scaled down to the exact median where they exceed it, (n,).

        Raises:
            ProtectionError: the update is not finite.
        """
        values, limit = block.plain(), self._norm(facts)
        norm = norm_of(values, client)
        client.log[f"{self.name}.clipped"] = float(norm > limit)
        return values if norm <= limit else (values * np.float64(limit / norm)).astype(np.float32)

    # -- the noise -----------------------------------------------------------------------------------------------------

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """Noise on the sum, scaled to the round's norm."""
        std, note = self._sum_multiplier() * self._norm(facts), "" if self.is_noised else f"as published: {EXACT}"
        return (Noise.gaussian(std, source=self.options.source, as_published=not self.is_noised, note=note),)

    # -- its cost and what it reveals ----------------------------------------------------------------------------------

    def ballots(self, facts: Facts) -> Operations:
        """The noised count: each client's answer is half a client from the middle."""
        if not self.is_noised:
            return ()
        note = "noised count of the clients within the norm, by the server, which sees each answer"
        std = self.options.noise_multiplier / math.sqrt(self.options.count_share) / 2
        return (Clip(0.5), Noise.gaussian(std, trust="central", source=self.options.source, note=note))

    def reveals(self, facts: Facts) -> list[Reveals]:
        """What the server reads from each client, and what all parties learn."""
        everybody: tuple[Party, ...] = ("server", "client", "released_model")
        if self.is_noised:
            asked, told = "by name, without noise; the server is trusted with the updates too", "from noised counts"
            return [
                Reveals("whether a client's update is within the norm", ("server",), asked=("is_within",),
                        note=asked),
                Reveals("clipping norm", everybody, covered_by="epsilon", note=told),
            ]  # fmt: skip
        return [
            Reveals("norms of the clients' updates", ("server",), asked=("length",), voids=True, note="bare"),
            Reveals("median of the clients' norms", everybody, voids=True, note=EXACT),
        ]

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        how = "the clients' median norm, as it is (as published)"
        if self.is_noised:
            how = f"a noised quantile {options.quantile:g} of the clients' norms, from {options.initial_norm:g} on"
        return f"clip to {how}; noise multiplier {options.noise_multiplier:g} at the server, {options.source} source"


def norm_of(values: NDArray[np.float32] | None, client: Client) -> float:
    """L2 norm of a client's values, in float64.

    Raises:
        ProtectionError: there are no values, or they are not finite.
    """
    if values is None:
        raise ProtectionError(f"client {client.client_id} has no update in this round from which to take a norm")
    norm = math.sqrt(float(np.square(values, dtype=np.float64).sum()))
    if not math.isfinite(norm):
        raise ProtectionError(
            f"client {client.client_id}: its update holds NaN or infinite values, which cannot be clipped; its "
            "training diverged: lower lr in train"
        )
    return norm
