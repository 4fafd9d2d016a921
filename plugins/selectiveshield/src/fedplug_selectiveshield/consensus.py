"""SelectiveShield's negotiation: which scalars are encrypted, kept, or noised (paper, Sec. 4.2, Alg. 1, lines 7-11)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, Field, Plan, Plans, Reads, Reveals, at_client
from fedplug.api.blocks import ENCRYPTED, RETAINED
from fedplug.api.errors import ProtectionError
from fedplug.api.links import uploaded
from fedplug_std.replies import packed_problem, unpacked, valid, votes
from fedplug_std.scores import scorer_problems
from pydantic import Discriminator, Tag

if TYPE_CHECKING:
    from numpy.typing import NDArray

Threshold = Annotated[float, Field(ge=0, le=1)]
# Tested beforehand, so that a wrong number is not also reported as not being a list.
Thresholds = Annotated[
    Annotated[Threshold, Tag("one")] | Annotated[tuple[Threshold, ...], Tag("each")],
    Discriminator(lambda value: "each" if isinstance(value, (list, tuple)) else "one"),
]


class Consensus(fedplug.Negotiation):
    """Encrypt scalars that enough clients mark sensitive; each client keeps its other marked ones (Sec. 4.2).

    Client n marks the scalars whose score exceeds tau_n (eq. 14). Scalars that at least the share rho of the round's
    clients has marked are encrypted, the same positions at every client (eq. 16; `rho: 1` is the intersection, eq. 15).
    The other scalars that a client has marked stay with it (`retained`, eq. 17). All remaining scalars go to the zone
    `other_zone` (eq. 18).

    At least one client must have marked a scalar. Taken literally, eq. 16 would encrypt the whole model at rho = 0.
    """

    class Options(fedplug.Options):
        tau: Thresholds = Field(
            0.1,
            description="scores above it are sensitive; in [0, 1]; a list has one for each client",
            json_schema_extra={
                "remedy": "scores lie in [0, 1]: 1 marks nothing, 0 everything but each tensor's least score"
            },
        )
        rho: float = Field(
            0.5,
            gt=0,
            le=1,
            description="share of the clients that must mark a scalar for it to be encrypted; 1: all of them",
            json_schema_extra={
                "remedy": "it is the share of clients that must mark a scalar; to encrypt whatever any client has "
                "marked, write 1 / number of clients"
            },
        )
        by: str | None = Field(None, description="scorer whose scores decide; the recipe's first if unset")
        other_zone: str = Field(
            "noised", json_schema_extra={"formerly": "rest"},
            description="zone of the scalars that a client neither encrypts nor keeps",
        )  # fmt: skip

    options: Options

    @property
    def plans(self) -> Plans:
        """The retained zone differs from client to client, and so does the other zone. All zones follow from data."""
        own = frozenset({RETAINED, self.options.other_zone})
        return Plans(zones=own | {ENCRYPTED}, own=own)

    @property
    def reads(self) -> Reads:
        """Scores of scalars or of layers."""
        return Reads(by=self.options.by)

    def check(self, recipe: Any) -> list[str]:
        """Something must score the scalars, each client needs a tau, and the other scalars need a zone that is sent."""
        missing = "the consensus needs scores; add score_parameters: [{use: selectiveshield.fisher}]"
        complaints = scorer_problems(recipe, self.options.by, missing)
        if isinstance(self.options.tau, tuple) and len(self.options.tau) != recipe.clients:
            given = f"tau has {len(self.options.tau)} thresholds"
            complaints.append(f"{given}, but data.clients={recipe.clients}; write one for each, or a single number")
        if self.options.other_zone in (ENCRYPTED, RETAINED):
            rule = "has another meaning here; write other_zone: noised or other_zone: clear"
            complaints.append(f"other_zone: {self.options.other_zone} {rule}")
        return complaints

    def threshold(self, client_id: int) -> float:
        """tau_n."""
        tau = self.options.tau
        return tau[client_id] if isinstance(tau, tuple) else tau

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Alg. 1, lines 8-11: masks in, count, the encrypted zone out."""
        size, marks = facts.layout.size, cohort.ask(self.mark)  # runs at every client
        ballots = valid(cohort, marks, lambda ballot: packed_problem(ballot, size, "mask"))
        encrypted = votes(ballots.values(), size) >= votes_needed(self.options.rho, len(ballots))
        cohort.tell(self.adopt, np.packbits(encrypted))  # runs at every client before its next answer

    @at_client
    def mark(self, client: Client) -> NDArray[np.uint8]:
        """Eq. 14: M_n = {j : score_j > tau_n}, as a bitmap of P bits."""
        scores = client.scores_by(self.options.by)
        undefined = int(np.count_nonzero(np.isnan(scores)))
        if undefined:
            raise ProtectionError(
                f"{undefined} of {len(scores)} scores are NaN and exceed no threshold; the local training diverged: "
                "lower lr in train"
            )
        mask = client.facts.layout.per_scalar(scores > self.threshold(client.client_id))
        client.log[f"{self.name}.marked"] = float(mask.mean())
        bits = np.packbits(mask)
        client.cache[self.name] = client.facts.round, bits
        return bits

    @at_client
    def adopt(self, client: Client, encrypted: NDArray[np.uint8]) -> None:
        """Eqs. 16-18: the encrypted zone is the same at every client, the rest of M_n stays here, all else is sent.

        A client that was not in the round has marked nothing and sends nothing. It only needs to know the positions.
        """
        round, marked = client.cache.get(self.name, (-1, None))
        if round != client.facts.round:
            marked = np.zeros_like(encrypted)
        size = client.facts.layout.size
        masks = {
            ENCRYPTED: unpacked(encrypted, size),
            RETAINED: unpacked(marked & ~encrypted, size),
        }
        client.plan = Plan.of(client.facts, self.options.other_zone, **masks)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """What the negotiation and the uploads reveal, and to which party."""
        # They name every class that a client has (docs/papers/insiders.md), whatever is encrypted or noised.
        masks = "each client's, by name and in the clear, which tell the classes of its data, and what it retains"
        zone = "which scalars are encrypted follows from the clients' data"
        what = "which parameters each client calls sensitive"
        found = [
            Reveals(what, ("server",), asked=("mark",), voids=True, note=masks),
            Reveals("mask", ("server", "client"), note=zone),
        ]
        rest = uploaded(facts.steps(self.options.other_zone))
        if rest is None or not rest.covers_support:
            support = f"the positions of each client's {self.options.other_zone} upload leave out what it retains"
            found.append(Reveals("support of the retained zone", ("server",), voids=True, note=support))
        return found

    def describe(self) -> str:
        tau = self.options.tau
        above = f"{min(tau):g} to {max(tau):g}" if isinstance(tau, tuple) else f"{tau:g}"
        return (
            f"encrypted where {self.options.rho:.0%} of the clients score above {above}; retained where this client "
            f"does and too few others; the rest {self.options.other_zone}"
        )


def votes_needed(rho: float, num_clients: int) -> int:
    """The fewest clients that are a share of at least rho, and at least one: max(1, ceil(rho K))."""
    # The tiny subtrahend keeps products such as 0.55 * 20 from rising above the integer that they represent.
    return max(1, math.ceil(rho * num_clients - 1e-9))
