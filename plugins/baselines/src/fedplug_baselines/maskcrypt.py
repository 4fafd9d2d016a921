"""MaskCrypt's consensus: clients propose what to encrypt, most urgent first, and the server interleaves their lists.

Hu and Li, "MaskCrypt: Federated Learning With Selective Homomorphic Encryption" (IEEE TDSC 2024,
doi:10.1109/TDSC.2024.3392424); code of the authors: TL-System/plato,
examples/secure_aggregation/maskcrypt/maskcrypt_server.py (`_mask_consensus`) and maskcrypt_client.py (`_compute_mask`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, Field, Reveals, at_client
from fedplug.api.blocks import CLEAR
from fedplug_std.options import OtherZone
from fedplug_std.replies import unpacked, valid
from fedplug_std.scores import count_of, highest, scorer_problems

from fedplug_baselines import masks

if TYPE_CHECKING:
    from fedplug import Recipe
    from numpy.typing import NDArray


class MaskCrypt(masks.ScoredShare):
    """Encrypt what the clients propose in turn, most urgent first (MaskCrypt's mask consensus).

    Each client lists the share `ratio` of the model with its highest scores, in that order. The server interleaves the
    lists (first of each client, second of each, and so on) and keeps the first `ratio` P distinct indices. The authors'
    code keeps all distinct indices, up to K times as many: `union`.
    """

    class Options(fedplug.Options):
        """How much to encrypt, by which scores, and where the other scalars go."""

        ratio: float = Field(0.1, ge=0, le=1, description="rho, the share of the model that each client proposes")
        union: bool = Field(
            False,
            description="encrypt every index that any client proposes, as the authors' code does; false: the first "
            "ratio * P distinct ones of the interleaved lists, so that the share is exact",
        )
        order: Literal["highest", "lowest"] = Field(
            "highest",
            description="which scores are proposed first; lowest: the control that encrypts what matters least "
            "(SenseCrypt, Fig. 18)",
        )
        by: str | None = Field(None, description="scorer that orders the proposals; the recipe's first if unset")
        other_zone: OtherZone = CLEAR

    def check(self, recipe: Recipe) -> list[str]:
        """Something must score the scalars."""
        remedy = "the mask follows from scores; add score_parameters: [{use: baselines.maskcrypt_priority}]"
        return scorer_problems(recipe, self.options.by, remedy)

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Proposals in, interleaved, mask out."""
        size = facts.layout.size
        count = count_of(self.options.ratio, size)
        if count in (0, size):  # nothing to choose
            cohort.tell(self.adopt, np.packbits(np.full(size, count > 0)))
            return
        replies = cohort.ask(self.propose)  # runs at every client
        proposals = valid(cohort, replies, lambda proposal: proposal_problem(proposal, size, count))
        distinct = interleave(list(proposals.values()))  # runs here, at the server
        mask = np.zeros(size, np.bool_)
        mask[distinct if self.options.union else distinct[:count]] = True
        cohort.tell(self.adopt, np.packbits(mask))

    @at_client
    def propose(self, client: Client) -> NDArray[np.uint32]:
        """This client's mask proposal: floor(ratio * P) indices, best score first; ties: the lowest index first."""
        scores = masks.per_scalar(client, self.options.by)
        if self.options.order == "lowest":
            scores = -scores
        chosen = highest(scores, count_of(self.options.ratio, len(scores)))
        return chosen[np.argsort(-scores[chosen], kind="stable")].astype(np.uint32)

    @at_client
    def adopt(self, client: Client, mask: NDArray[np.uint8]) -> None:
        """Sets the plan, the same at every client: the mask is encrypted, gathered in the order of positions."""
        masks.adopt(client, unpacked(mask, client.facts.layout.size), self.options.other_zone)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """What the proposals reveal, and to which party."""
        if len(self.plans.zones) == 1:  # nothing to choose, so no client is asked
            return []
        ordered = (
            "each client's list of its most urgent indices, in order and in the clear; it tells classes of its data"
        )
        return [
            Reveals("mask proposals", ("server",), asked=("propose",), voids=True, note=ordered),
            Reveals("mask", ("server", "client"), note="it follows from the proposals"),
        ]

    def describe(self) -> str:
        """One line for the plan of the run."""
        kept = "all of it" if self.options.union else "as much of the interleaved lists"
        proposed = f"{self.options.ratio:.1%}" + (" of the lowest scores" if self.options.order == "lowest" else "")
        return f"each proposes {proposed}, {kept} is encrypted; the rest {self.options.other_zone}"


def interleave(proposals: list[NDArray[Any]]) -> NDArray[np.int64]:
    """The distinct indices of several lists, in the order: first of each list, second of each, and so on.

    Args:
        proposals: lists without repetitions, by client in ascending order; they may differ in length, and be empty.

    Returns:
        Each index once, at its first occurrence; int64.
    """
    if not proposals:
        return np.empty(0, np.int64)
    ranks = np.concatenate([np.arange(len(proposal)) for proposal in proposals])
    # By rank. The sort is stable, so indices of equal rank stay in the order of the clients.
    everyone = np.concatenate(proposals).astype(np.int64)[np.argsort(ranks, kind="stable")]
    _, first = np.unique(everyone, return_index=True)
    return everyone[np.sort(first)]


def proposal_problem(proposal: Any, size: int, count: int) -> str:
    """Why a client's proposal is not valid; empty if it is."""
    if not (isinstance(proposal, np.ndarray) and proposal.dtype == np.uint32 and proposal.ndim == 1):
        return "its mask proposal is not a list of uint32 indices"
    if len(proposal) != count:
        return f"its mask proposal has {len(proposal)} indices, must be {count}: ratio * P"
    if count and int(proposal.max()) >= size:
        return f"its mask proposal holds index {int(proposal.max())} of {size} scalars"
    if len(np.unique(proposal)) != count:
        return "its mask proposal holds an index twice"
    return ""
