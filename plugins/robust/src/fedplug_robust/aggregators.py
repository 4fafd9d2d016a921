"""Aggregators for rounds in which some clients lie: they compare single updates, and none of them is a sum."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

import fedplug
from fedplug import Combine, Facts, Field, Known, Look, Misplaced, Operations
from fedplug.api.errors import ProtectionError

from fedplug_robust.shares import note_shares

if TYPE_CHECKING:
    import numpy as np
    from fedplug import Block, Recipe
    from numpy.typing import NDArray

    from fedplug_robust.rules import Result


def require_comparable(aggregator: fedplug.Aggregator, known: Known, facts: Facts) -> None:
    """Refuses a zone in which the server cannot compare updates.

    Raises:
        Misplaced: its values are encrypted or masked, or clients choose their positions.
    """
    known.before("encryption", "it compares single updates, and sealed values open as sums; take the seal out")
    for part in facts.components.values():
        if isinstance(part, fedplug.Negotiation) and known.zone in part.plans.own:
            raise Misplaced(
                f"{aggregator.name} compares updates, and with {part.name} each client sends positions of its own in "
                f"zone {known.zone}; use a negotiation whose plan is the same for all, or std.mean"
            )


class _Bucketed(fedplug.Options):
    """What all have."""

    bucket: int = Field(
        1, ge=1, description="clients whose mean counts as one update, drawn anew in each round from the recipe's "
        "seed, which liars may know",
    )  # fmt: skip


class _AgainstLiars(_Bucketed):
    """Of rules that are told how many lie."""

    f: int = Field(ge=0, description="the most updates, or buckets, that may lie")


class Robust(fedplug.Aggregator):
    """Makes one update of single ones by a rule of `fedplug_robust.rules`, zone by zone.

    Every update counts alike, whatever the number of its examples: a client that lies would lie about that too. The
    rule needs values in the clear, so nothing may encrypt or mask them. Noise of the clients keeps its price, since the
    rule sees noised values alone, but no client gets credit for the noise of others. Without noise there is no
    guarantee, also not for noise on the result: one client may move it by any amount.
    """

    options: _Bucketed

    @property
    def least(self) -> int:
        """The fewest updates or buckets that the rule is for."""
        return 1

    @abc.abstractmethod
    def rule(self, updates: NDArray[np.float64]) -> Result:
        """One update (d,) of several (n, d), n at least `least`, and what each counts in it, (n,)."""

    def check(self, recipe: Recipe) -> list[str]:
        """Rounds have as many clients as the rule needs."""
        needed = (self.least - 1) * self.options.bucket + 1
        if recipe.min_clients >= needed:
            return []
        buckets = f", in buckets of {self.options.bucket}" if self.options.bucket > 1 else ""
        return [f"it needs {needed} clients{buckets}; write min_clients: {needed}, or a smaller f"]

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """No sum, so that others' noise earns no credit.

        Raises:
            Misplaced: the values are encrypted or masked, or clients choose their positions.
        """
        require_comparable(self, known, facts)
        shares: dict[int, float] = {}
        return (
            Combine(lambda blocks, weights, facts: self.combined(blocks, facts, shares)),
            Look(lambda block, server, facts: note_shares(self, server, shares)),
        )

    def combined(self, blocks: dict[int, Block], facts: Facts, shares: dict[int, float]) -> Block:
        """The rule on the values of one zone; puts what each client counts in it into `shares`.

        Raises:
            ProtectionError: clients send different positions, or too few take part.
        """
        import numpy as np  # here: checks of recipes do without

        from fedplug_robust import rules

        first, *others = (blocks[client_id] for client_id in sorted(blocks))  # in whatever order they arrived
        if not all(_lies_like(first, each) for each in others):
            raise ProtectionError(f"{self.name} compares updates, and these have different positions of {first.zone}")
        updates = np.array([each.plain() for each in (first, *others)], np.float64)
        order, size = np.arange(len(updates)), self.options.bucket
        if size > 1:
            order = facts.rng(self.name, first.zone).permutation(len(updates))
            updates = rules.buckets(updates, size, order)
        if len(updates) < self.least:
            raise ProtectionError(f"{self.name} needs {self.least} updates, and this round has {len(updates)}")
        update, counted = self.rule(updates)
        ids = sorted(blocks)
        members = np.bincount(np.arange(len(order)) // size)
        counted *= first.size / members
        shares |= {ids[each]: float(counted[place // size]) for place, each in enumerate(order)}
        return first.replace(values=update.astype(np.float32), divisor=1.0, contributors=len(blocks))

    def describe(self) -> str:
        """One line for the plan of the run."""
        given = ", ".join(f"{name} {value}" for name, value in self.options if not (name == "bucket" and value == 1))
        return given or "of single updates"


def _lies_like(one: Block, other: Block) -> bool:
    """Whether both have values at the same positions."""
    import numpy as np

    if one.positions is None or other.positions is None:
        return one.positions is other.positions
    return np.array_equal(one.positions, other.positions)


class Median(Robust):
    """Take the median of each coordinate over the clients, fewer than half of which may lie (Yin et al. 2018)."""

    class Options(_Bucketed):
        """Nothing else."""

    options: Options

    def rule(self, updates: NDArray[np.float64]) -> Result:
        """Definition 1."""
        from fedplug_robust import rules

        return rules.median(updates)


class TrimmedMean(Robust):
    """Take the mean of each coordinate without its f largest and f smallest values (Yin et al. 2018)."""

    class Options(_AgainstLiars):
        """How many may lie."""

    options: Options

    @property
    def least(self) -> int:
        """One is left."""
        return 2 * self.options.f + 1

    def rule(self, updates: NDArray[np.float64]) -> Result:
        """Definition 2."""
        from fedplug_robust import rules

        return rules.trimmed_mean(updates, self.options.f)


class Krum(Robust):
    """Take the update that is nearest to its n - f - 2 nearest others, or the mean of m such (Blanchard et al. 2017).

    `m: 1` is Krum, and more is multi-Krum. Each zone is judged alone: in two zones it may choose two clients.
    """

    class Options(_AgainstLiars):
        """And how many are chosen."""

        m: int = Field(1, ge=1, description="updates whose mean is taken; 1: Krum")

    options: Options

    @property
    def least(self) -> int:
        """n > 2f + 2, and as many as are chosen."""
        return max(2 * self.options.f + 3, self.options.m)

    def rule(self, updates: NDArray[np.float64]) -> Result:
        """Section 4."""
        from fedplug_robust import rules

        return rules.multi_krum(updates, self.options.f, self.options.m)


class Bulyan(Robust):
    """Choose n - 2f updates by Krum, then take for each coordinate the mean of those next to the median (El Mhamdi et
    al. 2018).
    """

    class Options(_AgainstLiars):
        """How many may lie."""

    options: Options

    @property
    def least(self) -> int:
        """n >= 4f + 3."""
        return 4 * self.options.f + 3

    def rule(self, updates: NDArray[np.float64]) -> Result:
        """Algorithm 2."""
        from fedplug_robust import rules

        return rules.bulyan(updates, self.options.f)


class GeometricMedian(Robust):
    """Take the point with the least sum of distances to the updates, of which fewer than half may lie (RFA, Pillutla et
    al. 2022).

    RFA computes it from weighted means, so that its authors run it under secure aggregation, in one masked sum an
    iteration. Here the server has the updates, and begins at their coordinate median: from their mean, where RFA
    begins, a few iterations do not come back if one liar sends 1e38.
    """

    class Options(_Bucketed):
        """Of the smoothed Weiszfeld algorithm."""

        nu: float = Field(1e-6, gt=0, allow_inf_nan=False, description="distances below count as this")
        iterations: int = Field(8, ge=1, le=1000, description="RFA has three")

    options: Options

    def rule(self, updates: NDArray[np.float64]) -> Result:
        """Algorithm 2."""
        from fedplug_robust import rules

        return rules.geometric_median(updates, self.options.nu, self.options.iterations)


class CentredClipping(Robust):
    """Clip what updates differ from a centre to a norm, and move the centre by the mean (Karimireddy et al. 2021).

    The centre is 0 at first, which is no change of the model. The paper begins at the aggregate of the round before.
    """

    class Options(_Bucketed):
        """The radius."""

        tau: float = Field(gt=0, allow_inf_nan=False, description="norm to which differences are clipped")
        iterations: int = Field(1, ge=1, le=1000, description="clips, each around the result of the one before")

    options: Options

    def rule(self, updates: NDArray[np.float64]) -> Result:
        """Algorithm 2."""
        from fedplug_robust import rules

        return rules.centred_clipping(updates, self.options.tau, self.options.iterations)


class NormBound(Robust):
    """Scale updates down to a norm, and take their mean (Sun et al. 2019): no lie counts more than that.

    The server does it, so it needs single updates. Under masks or encryption `std.clip` at the clients is all there is,
    and a liar leaves it out.
    """

    class Options(_Bucketed):
        """The bound."""

        norm: float | None = Field(None, gt=0, description="the largest L2 norm; null: the median of this round's")

    options: Options

    def rule(self, updates: NDArray[np.float64]) -> Result:
        """Section 3, norm thresholding of updates."""
        from fedplug_robust import rules

        return rules.norm_bound(updates, self.options.norm)
