"""LUS: leave out the update values that matter least, so that the clip scales the others down less.

Cheng et al., "Differentially Private Federated Learning with Local Regularization and Sparsification" (CVPR 2022,
arXiv:2203.03106), local update sparsification. We did not have the full text. Public code agrees on a share of each
tensor that is zeroed before the clip. It disagrees on two points, which are options here. One is the effect of a value:
the first-order cost |gradient * update|, or its magnitude as in FL-boop-blip/DPFed, utils_general.py. The other is
whether zeroed values get noise (DPFed: no). Left out: the paper's accountant for sampled users under a trusted server.
Use `sampling: {scheme: poisson}` with `std.central_gaussian` and `std.pld` for that view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import fedplug
import numpy as np
from fedplug import AccountKeeper, Field, Map, Reveals
from fedplug.api.errors import ProtectionError
from fedplug_std.per_sample import mean_gradient
from fedplug_std.scores import count_of

if TYPE_CHECKING:
    from fedplug import Block, Client, Facts, Known, Layout, Operations, Recipe
    from numpy.typing import NDArray


class Lus(fedplug.Protector):
    """Zero the share of each tensor's update that matters least to the local model (LUS).

    The cost of zeroing a value is |gradient * update|, the first-order change of the client's loss at its local model.
    In each tensor, the floor(sparsity * n) of its n values in the zone with the least cost become 0. `std.clip` and the
    noise follow.

    The choice of values depends on the data. With noise on everything, the default, the guarantee covers that choice.
    `noise: kept` is the form as published: name the component once more after the noise, and it takes the noise off the
    zeroed values again. Then every party can read their positions, which follow from the data and which no noise
    covers. So the noise counts for nothing, and the ledger promises nothing.
    """

    class Options(fedplug.Options):
        """How much to zero, and by which measure."""

        sparsity: float = Field(0.5, ge=0, lt=1, description="share of each tensor's values that is zeroed")
        by: Literal["utility", "magnitude"] = Field(
            "utility", description="cost of zeroing a value: utility |gradient * update|, magnitude |update|"
        )
        noise: Literal["all", "kept"] = Field(
            "all",
            description="all: zeroed values get noise too; kept: they do not (as published), which shows them, so "
            "that the noise counts for nothing",
        )

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """The values that matter least become zero, and with `noise: kept` once more after the noise.

        The choice follows from the data, so a clip must come after it, and noise before it counts for nothing.

        Raises:
            Misplaced: it comes after an encryption, or after noise that it must not change.
        """
        known.before("encryption", f"ciphertexts cannot be sparsified; put {self.name} before the encryption")
        if self.options.noise == "all":
            known.before("noise", f"zeroing noised values shows what is zeroed; put {self.name} before the noise")
        return (Map(self.zeroed, examples=self.options.by == "utility"),) if self.options.sparsity else ()

    def check(self, recipe: Recipe) -> list[str]:
        """With `noise: kept`, it must be both before and after the noise."""
        if self.options.noise == "all":
            return []
        chains = [[use.name for use in chain] for chain in recipe.protect.values()]
        wrong = [c for c in chains if self.name in c and (c.count(self.name) != 2 or c[-1] != self.name)]
        remedy = f"write {self.name} once more at the end of the chain, by its name"
        return [f"with noise: kept it takes the noise off again; {remedy}"] if wrong else []

    def zeroed(self, block: Block, client: Client, facts: Facts) -> NDArray[np.float32]:
        """The values with zeros where they matter least, (n,). At its second place in a chain, the same zeros.

        Raises:
            ProtectionError: a cost is NaN.
        """
        place = f"{self.name} {facts.round} {block.zone}"
        keep = client.cache.pop(place, None)  # left by the first place in the chain for the second
        if keep is None:
            assert client.plan is not None  # nobody is asked for an upload without one
            where = client.plan.positions(block.zone)
            keep = kept(self.costs(block, client, where), tensors(facts.layout)[where], self.options.sparsity)
            client.log[f"{self.name}.zeroed"] = float(np.mean(~keep)) if len(keep) else 0.0
            if self.options.noise == "kept":
                client.cache[place] = keep
        return np.where(keep, block.plain(), np.float32(0))

    def costs(self, block: Block, client: Client, where: NDArray[np.uint32]) -> NDArray[np.float32]:
        """The cost of zeroing each of the zone's values, (n,)."""
        sizes = np.abs(block.plain())
        if self.options.by == "utility":
            gradient = mean_gradient(client.model, client.data.train, client.data, vector=client.local)
            sizes = sizes * np.abs(gradient[where])
        if np.isnan(sizes).any():
            raise ProtectionError(
                f"client {client.client_id}: updates or gradients of zone {block.zone} are NaN and cannot be ranked; "
                "its training diverged: lower lr in train"
            )
        return sizes

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Positions of the zeroed values, where they get no noise; gradients of records that a trainer protects."""
        found: list[Reveals] = []
        if not self.options.sparsity:
            return found
        keepers = (part for part in facts.components.values() if isinstance(part, AccountKeeper))
        if self.options.by == "utility" and any(keeper.account.level == "record" for keeper in keepers):
            note = (
                "which values are zeroed follows from gradients of the records themselves, which the epsilon of a "
                "record does not cover; by: magnitude goes by the trained update alone"
            )
            found.append(Reveals("zeroed values", ("server", "released_model"), note=note))
        if self.options.noise == "kept":
            note = (
                "which values are zeroed follows from the client's data, and zeros without noise show it, in an upload "
                "and, where all clients agree, in scalars of the model that do not move; no epsilon covers that"
            )
            found.append(Reveals("support of the update", ("server", "released_model"), note=note))
        return found

    def describe(self) -> str:
        """One line for the plan of the run."""
        noise = "noise on all values" if self.options.noise == "all" else "no noise on zeroed values (as published)"
        return f"{self.options.sparsity:.0%} of each tensor zeroed, least {self.options.by} first; {noise}"


def tensors(layout: Layout) -> NDArray[np.intp]:
    """Number of the tensor that each scalar belongs to, (P,)."""
    return np.repeat(np.arange(len(layout.parameters)), [parameter.size for parameter in layout.parameters])


def kept(costs: NDArray[np.float32], groups: NDArray[np.intp], sparsity: float) -> NDArray[np.bool_]:
    """Which values survive: in each group of n, all but the floor(sparsity * n) of least cost. Ties: the first survive.

    Args:
        costs: (n,), no NaN.
        groups: (n,), the tensor of each value.
        sparsity: share that is zeroed, in [0, 1).
    """
    order = np.lexsort((-costs, groups))  # by tensor, then from the highest cost down; stable
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    allowed = np.array([count - count_of(sparsity, count) for count in counts], np.int64)
    rank = np.arange(len(costs)) - np.repeat(starts, counts)
    mask = np.zeros(len(costs), np.bool_)
    mask[order] = rank < np.repeat(allowed, counts)
    return mask
