"""What a log of releases costs each client, toward each party who looks."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from fedplug.api.errors import PluginError, of_component
from fedplug.api.known import Release
from fedplug.api.operations import GAUSSIAN, INTEGER, OF_EPSILON, Curve, IntegerNoise
from fedplug.api.roles import Accountant

from fedplug_ledger.accounting import composed_epsilon, epsilon_with_slack, gaussian_epsilon, gaussian_rdp_epsilon
from fedplug_ledger.entries import RoundEntry, ZoneEntry
from fedplug_ledger.integers import sum_multiplier

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_COMPOSED = 100.0
"""Epsilon by Renyi DP up to which an accountant is asked for a smaller one."""


@dataclasses.dataclass(eq=False)
class Spent:
    """The cost of all releases so far, for each of K clients.

    Attributes:
        gaussian: sum of 1/multiplier^2 of Gaussian releases, (K,); see `accounting.effective_multiplier`.
        others: number of other releases, (K,), by (mechanism, noise multiplier); see `fedplug.api.known.Release`.
        slack: what mechanisms take of delta themselves, over the whole run; see `fedplug.api.operations.Noise`.
        concentrated: some of `gaussian` is of releases with the Renyi DP of Gaussian ones, and nothing else of theirs.
    """

    gaussian: NDArray[np.float64]
    others: dict[tuple[str, float], NDArray[np.int64]] = dataclasses.field(default_factory=dict)
    slack: float = 0.0
    concentrated: bool = False

    @classmethod
    def of(cls, num_clients: int, parts: Iterable[Spent] = ()) -> Spent:
        """All parts together; without any, nothing."""
        total = cls(np.zeros(num_clients))
        for part in parts:
            total.gaussian = total.gaussian + part.gaussian
            total.slack += part.slack
            total.concentrated |= part.concentrated
            for (mechanism, multiplier), counts in part.others.items():
                total.count(mechanism, multiplier, counts)
        return total

    @classmethod
    def of_one(
        cls, gaussian: float, others: Iterable[tuple[str, float, int]], slack: float, concentrated: bool
    ) -> Spent:  # fmt: skip
        """What one client has spent, of numbers that somebody kept: mechanism, multiplier and number of the others."""
        counts = {(mechanism, multiplier): np.array([count]) for mechanism, multiplier, count in others}
        return cls(np.array([gaussian]), counts, slack, concentrated)

    def count(self, mechanism: str, multiplier: float, counts: NDArray[np.int64]) -> None:
        """Adds releases that are not Gaussian."""
        self.others[mechanism, multiplier] = self.others.get((mechanism, multiplier), 0) + counts

    def doubled(self) -> Spent:
        """The cost under twice the sensitivity: from zero-out to replace-one adjacency."""
        others = {(name, multiplier / 2): n for (name, multiplier), n in self.others.items()}
        return Spent(4 * self.gaussian, others, self.slack, self.concentrated)

    def same(self, other: Spent) -> bool:
        """Whether everybody has spent the same in both."""
        return (
            self.slack == other.slack
            and self.concentrated == other.concentrated
            and np.array_equal(self.gaussian, other.gaussian)
            and self.others.keys() == other.others.keys()
            and all(np.array_equal(counts, other.others[kind]) for kind, counts in self.others.items())
        )

    def any(self) -> bool:
        """Whether anybody has spent anything."""
        return bool(self.gaussian.any()) or any(counts.any() for counts in self.others.values())

    def epsilons(
        self, delta: float, accountant: Accountant | None, curves: Mapping[str, Curve] = MappingProxyType({})
    ) -> dict[str, float]:
        """Epsilon of the worst client by method, the headline first, at the delta that is left for it.

        Gaussian releases alone: `epsilon_exact` and its RDP bound. With noise in whole numbers: `epsilon_rdp`. With
        others: `epsilon_pld` where the accountant composes them, and `epsilon_rdp`, which is the plain sum of epsilons
        where that is less.
        """
        kinds = [kind for kind, counts in self.others.items() if counts.any()]
        spent = np.stack([self.gaussian, *(self.others[kind] for kind in kinds)], axis=1)
        # Clients that took part in the same rounds have spent the same: each distinct history is composed once.
        histories = np.unique(spent, axis=0) if kinds else [spent.max(axis=0, initial=0.0)]
        each = [self._of_one(history, kinds, delta, accountant, curves) for history in histories]
        return {method: max(one[method] for one in each) for method in each[0] if all(method in one for one in each)}

    def _of_one(
        self,
        history: NDArray[np.float64],
        kinds: list[tuple[str, float]],
        delta: float,
        accountant: Accountant | None,
        curves: Mapping[str, Curve],
    ) -> dict[str, float]:
        cost = float(history[0])
        multiplier = math.inf if cost == 0 else 1 / math.sqrt(cost)
        others = [(name, m, int(n)) for (name, m), n in zip(kinds, history[1:], strict=True) if n]
        methods: dict[str, Callable[[float], float]] = {
            "epsilon_exact": lambda left: gaussian_epsilon(multiplier, left),
            "epsilon_rdp": lambda left: gaussian_rdp_epsilon(multiplier, left),
        }
        if kinds or self.concentrated:
            methods = {"epsilon_rdp": lambda left: composed_epsilon(cost, others, left, curves, self.concentrated)}
        stated = {method: epsilon_with_slack(epsilon, delta, self.slack) for method, epsilon in methods.items()}
        by_renyi = self.concentrated or any(name in curves for name, _, _ in others)
        if accountant is None or not kinds or self.slack or by_renyi:
            return stated
        # A distribution of losses in the hundreds takes gigabytes, and such an epsilon needs no second digit.
        if not stated["epsilon_rdp"] <= _LARGEST_COMPOSED:
            return stated
        releases = [(name, multiplier, 1.0, count) for name, multiplier, count in others]
        releases += [("gaussian", multiplier, 1.0, 1)] if cost > 0 else []
        tight = composed_by(accountant, releases, delta, "zero_out")
        if tight is None:
            return stated
        method, value = next(iter(tight.items()))  # the headline; both are bounds, so the lower one holds
        return {f"epsilon_{method}": min(value, stated["epsilon_rdp"]), **stated}


def composed_by(
    accountant: Accountant, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str
) -> dict[str, float] | None:
    """What an accountant states of releases; None where it does not know one of the mechanisms.

    Raises:
        PluginError: it fails, or states no epsilon.
    """
    with of_component(accountant.name, "compose"):
        stated = accountant.compose(releases, delta, adjacency)
    return None if stated is None else checked_epsilons(accountant.name, "compose", stated)


def checked_epsilons(component: str, member: str, stated: Mapping[str, float]) -> dict[str, float]:
    """What a component states by method, where each is an epsilon.

    Raises:
        PluginError: there is none, or one is negative or no number.
    """
    given: Any = stated  # by code that nobody has checked
    if not isinstance(given, Mapping) or not given:
        raise PluginError(f"component {component}, {member}: {given!r:.60} must be epsilons by method")
    for method, value in given.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value) >= 0:
            raise PluginError(
                f"component {component}, {member}: epsilon by {method} is {value!r:.60}; it must be >= 0, or infinite "
                "where there is no guarantee"
            )
    return {str(method): float(value) for method, value in given.items()}


@dataclasses.dataclass(eq=False)
class ZoneCost:
    """The cost of one zone to each of K clients: sums of 1/multiplier^2 over rounds, zero-out adjacency.

    Attributes:
        own: toward observers of the client's own upload; infinite after a round with central noise alone.
        total: toward observers of the sums only.
        below: toward observers of the sums before noise is added to these; the same as `total` where none is.
        peer: toward other clients, as many as the ledger covers, who subtract their own uploads from the sums.
        pooled: toward the server with these, where shares open sums: as `peer`, with the sums for whose shares
            clients were asked and which stayed closed, since a client may have kept its share from the server.
        others: how often each client made a release that is not Gaussian, by (mechanism, noise multiplier); toward
            everybody, since the noise of other clients earns no credit there.
        slack: what mechanisms take of delta for the planned rounds, the largest of any round; see `fedplug.Noise`.
        releases: in how many rounds noise was added.
        bare: in how many rounds the zone was released without noise.
        central: in how many rounds the noise was added to the sum only.
        correlated: in how many rounds noise took back some of that of earlier rounds.
        shares: of such noise that clients add, what its releases cost by the noise of one client, (K,).
        together: the weights of the clients whose noise is in all of those sums, by client; None before the first.
        rate, peer_rate: how much of `shares` counts toward those who see the sums, and toward `colluders` others.
        beneath: in how many rounds noise was added to the sum on top of that of the uploads.
        concentrated: whether any noise was in whole numbers.
        largest: largest mean size of a round, in scalars.
    """

    own: NDArray[np.float64]
    total: NDArray[np.float64]
    below: NDArray[np.float64]
    peer: NDArray[np.float64]
    pooled: NDArray[np.float64]
    others: dict[tuple[str, float], NDArray[np.int64]] = dataclasses.field(default_factory=dict)
    slack: float = 0.0
    releases: int = 0
    bare: int = 0
    central: int = 0
    correlated: int = 0
    beneath: int = 0
    concentrated: bool = False
    largest: float = 0.0
    shares: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    together: dict[int, float] | None = None
    rate: float = 0.0
    peer_rate: float = 0.0
    colluders: int = 1

    @classmethod
    def zero(cls, num_clients: int, colluders: int = 1) -> ZoneCost:
        own, total, below, peer, pooled, shares = (np.zeros(num_clients) for _ in range(6))
        return cls(own, total, below, peer, pooled, shares=shares, colluders=colluders)

    def enter(self, facts: ZoneEntry, charged: NDArray[np.bool_], moved: NDArray[np.float64] | None = None) -> None:
        """Adds what a round released of the zone, for the clients that were charged.

        With noise that is correlated over rounds `moved` says by how many times its bound each client, charged now or
        earlier, moves what the fresh noise lies over, (K,).
        """
        self.largest, self.slack = max(self.largest, facts.size), max(self.slack, facts.slack)
        if facts.is_bare:
            self.bare += 1
            return
        self.releases += 1
        self.concentrated |= facts.concentrated
        if facts.other:
            self.others.setdefault(facts.other, np.zeros(len(charged), np.int64))[charged] += 1
            return
        local, central = facts.local or 0.0, facts.central or 0.0
        if moved is not None and facts.by_clients:
            self._enter_shares(facts, moved)
            return
        in_sum, for_peers = local * (facts.sum_factor or 1.0), local * (facts.peer_factor or 1.0)
        self.central += facts.local is None
        self.beneath += facts.local is not None and facts.central is not None
        self.own[charged] += inverse_square(local)
        if facts.closed:
            if facts.peer_factor is not None:
                self.pooled[charged] += inverse_square(for_peers)
            return
        if moved is not None:
            # By the noise of the server alone: that of the uploads lies over the updates of one round, and which of two
            # accounts is less must not be chosen anew each round.
            self.correlated += 1
            self.below[charged] += inverse_square(in_sum)
            for cost in (self.total, self.peer, self.pooled):
                cost += times_square(inverse_square(central), moved)
            return
        # Local and central noise add up in the sum; the larger of the two alone is a bound.
        self.total[charged] += inverse_square(max(in_sum, central))
        self.below[charged] += inverse_square(in_sum)
        self.peer[charged] += inverse_square(max(for_peers, central))
        self.pooled[charged] += inverse_square(max(for_peers, central))

    def _enter_shares(self, facts: ZoneEntry, moved: NDArray[np.float64]) -> None:
        """Adds a release whose noise clients have added, correlated over rounds.

        The noise of the clients that are in all sums is that of one party with so much more of it. That of others is
        taken to be known, in all rounds: it is taken back where it was not added, or stays where it was. So whenever
        one of them drops out, all that was released before costs more as well.
        """
        self.correlated += 1
        new = times_square(inverse_square(facts.local or 0.0), moved)
        self.own += new
        if facts.senders is None:
            return
        before = facts.senders if self.together is None else self.together
        self.together = {c: weight for c, weight in facts.senders.items() if c in before}
        squares = sorted(weight * weight for weight in self.together.values())
        others = squares[: max(0, len(squares) - self.colluders)]
        # No client is heavier than 1, so that nobody's values are moved by more than the bound.
        rate, peer_rate = (1 / max(1.0, math.fsum(each)) for each in (squares, others))
        if facts.uncredited:
            rate = peer_rate = 1.0
        rate, peer_rate = max(rate, self.rate), max(peer_rate, self.peer_rate)
        for costs, now, then in (
            ((self.total, self.below), rate, self.rate), ((self.peer, self.pooled), peer_rate, self.peer_rate)
        ):  # fmt: skip
            for cost in costs:
                if now > then:
                    cost += self.shares * (now - then)
                cost += new * now
        self.rate, self.peer_rate, self.shares = rate, peer_rate, self.shares + new


def times_square(cost: float, moved: NDArray[np.float64]) -> NDArray[np.float64]:
    """A cost times the squares of what each client moved, (K,); nothing for those who moved nothing."""
    each = np.zeros_like(moved)
    some = ~(moved <= 0)  # what is not a number costs all
    each[some] = cost * np.square(moved[some])
    return np.nan_to_num(each, nan=math.inf, posinf=math.inf)


def inverse_square(multiplier: float) -> float:
    """1/multiplier^2; infinite where there is no noise."""
    return math.inf if multiplier < 1e-150 else (1 / multiplier) ** 2  # so that it never overflows


@dataclasses.dataclass(eq=False)
class SoFar:
    """Facts about a log of which guarantees depend, and which no sum of costs holds.

    Attributes:
        drawn: for each entry, the multipliers of the noise at the server over what was learnt in that round: of its
            own release, and of later ones that take back its noise.
        reach: how many rounds back noise at the server takes some back.
        freed: `link in zone`, of links that state no effect where no noise is known either; in that order too.
        single: zones of which some release was that of one upload, and not of a sum.
        scored: zones whose noise has sizes that follow from scores of a model.
        reproducible: whether any noise follows from the recipe's seed.
        exposed: whether any round showed who took part.
        distributed: whether any noise was shared out among the clients of a sum.
        executed: whether any noise rests on nobody's word.
        words: the components on whose word any noise rests.
    """

    drawn: list[list[float]] = dataclasses.field(default_factory=list)
    reach: int = 0
    freed: dict[str, None] = dataclasses.field(default_factory=dict)
    single: set[str] = dataclasses.field(default_factory=set)
    scored: set[str] = dataclasses.field(default_factory=set)
    reproducible: bool = False
    exposed: bool = False
    distributed: bool = False
    executed: bool = False
    words: set[str] = dataclasses.field(default_factory=set)

    def enter(self, entry: RoundEntry) -> None:
        """Adds what one entry of the log says."""
        self.exposed |= not entry.secret_cohort
        open_ = [facts for facts in entry.zones.values() if not facts.closed]
        self.drawn.append([facts.central for facts in open_ if facts.central is not None])
        for zone, facts in entry.zones.items():
            if not (facts.local or facts.central or facts.other):
                self.freed |= dict.fromkeys(f"{link} in zone {zone}" for link in facts.freed)
            for release in facts.releases:
                self.reproducible |= release.source == "reproducible"
                self.distributed |= release.trust == "distributed"
                self.executed |= not release.words
                self.words.update(release.words)
                if release.trust != "distributed":
                    self.single.add(zone)
                if release.scored:
                    self.scored.add(zone)


_TAILS = 9.0
"""Standard deviations of noise that an encryption must hold before the noise of others counts. A sample lies beyond
with probability 2e-19, so that even 1e10 of them (coordinates x clients x rounds) reach there with 2e-9: far below any
delta."""

_STEPS_PER_STD = 4.0
"""Grid steps in a standard deviation from which on a sum of rounded values is as private as the sum of the exact ones.

Rounding adds a periodic function of the value. Given the exact sum of two clients, the place of one of their values in
its period is uniform but for a factor of exp(-pi^2 s^2), s the standard deviation over the period, and more clients
make it no less uniform. So a sum of rounded values is the exact sum with noise on top that tells nothing, but for that
factor at each scalar. Ties go to even numbers, which is a period of two steps where values were rounded to a finer grid
before: s = 2 here, and 10 exp(-pi^2 2^2) = 7e-17. Two steps, as was asked for before, are enough without ties alone."""


def entry_of(
    zone: str, size: float, noises: list[Release], curves: Iterable[str], count: int, charged: list[int],
    weights: Mapping[int, float], closed: bool = False, repeated: bool = False,
    arrived: Mapping[int, float] = MappingProxyType({}), colluders: int = 1,
) -> ZoneEntry:  # fmt: skip
    """What a zone of this size released: which of its chain's noises count, and what others' noise adds to them.

    `curves` names the mechanisms whose cost somebody states; `count`, `charged` and `weights` are of the cohort, see
    `noise_of_others`. Of a sum that stayed `closed` the count is that of the clients for whose shares somebody was
    asked; 0 where nobody was, so that nobody has anything of it. `repeated` of a round that was cut off, and from
    before which all go on; `arrived` are the weights of the clients whose uploads came, in a round that was skipped.
    This many `colluders` know their own noise.
    """
    why = uncredited(zone, noises, min(weights.values(), default=1.0))
    steps = next((release for release in noises if release.mechanism in INTEGER), None)
    if why:
        alone, others = 1.0, 1.0
    elif steps is not None:
        alone, others = (credit_in_steps(steps, max(1, n)) for n in (count, count - colluders))
    else:
        alone, others = noise_of_others(count, charged, weights, colluders)
    by_clients = any(noise.takes_back is not None and noise.trust != "central" for noise in noises)
    senders: dict[int, float] | None = None
    if by_clients and not (closed and repeated):
        # Who has arrived has added its noise, whether or not the sum was opened; in one that was all have to be.
        unopened = closed or not count
        known = (weights or arrived) if unopened else weights if count == len(weights) else {}
        senders = {int(c): float(weight) for c, weight in known.items()}
    return ZoneEntry(
        size=float(size),
        releases=list(noises),
        local=strongest(release for release in noises if release.trust != "central"),
        central=strongest(release for release in noises if release.trust == "central"),
        other=strongest_other(noises, curves),
        sum_factor=None if closed else alone,
        peer_factor=None if closed and not count else others,
        uncredited=why,
        slack=max((release.slack for release in noises), default=0.0),
        closed=closed,
        senders=senders,
    )


def strongest_other(releases: Iterable[Release], curves: Iterable[str]) -> tuple[str, float] | None:
    """The largest multiplier of local noise that is not Gaussian, with its mechanism.

    None where Gaussian noise in the same chain is accounted for instead: either alone is a bound.
    """
    noises = list(releases)
    if any(r.mechanism in (*GAUSSIAN, *INTEGER) and r.noise_multiplier > 0 for r in noises):
        return None
    known = {*OF_EPSILON, *curves}
    others = [r for r in noises if r.mechanism in known and r.trust != "central" and r.noise_multiplier > 0]
    if not others:
        return None
    strongest = max(others, key=lambda release: release.noise_multiplier)
    return strongest.mechanism, float(strongest.noise_multiplier)


def uncredited(zone: str, releases: list[Release], lightest: float) -> str:
    """Why a zone's sums get no credit for the noise of other clients; empty if they do, or need none.

    The sum of several clients' noise hides one of them as far as it is really in the sum: values that saturated, or
    were rounded to a grid that is coarse relative to the noise of one, carry less of it than its size says.
    """
    local = [release for release in releases if release.trust != "central" and release.noise_multiplier > 0]
    if why := next((release.uncredited for release in releases if release.uncredited), ""):
        return f"zone {zone}: {why}"
    local = [release for release in local if release.mechanism in (*GAUSSIAN, *INTEGER)]
    if not local:
        return ""
    in_steps = any(release.mechanism in INTEGER for release in local)
    if in_steps and len(local) > 1:
        return f"zone {zone}: noise in whole numbers and other noise lie on each other; others' noise earns no credit"
    if in_steps and lightest != 1:
        return (
            f"zone {zone}: clients of unequal weights take values off the grid of the noise; others' noise earns "
            "credit where all weigh 1, as with weighting: uniform"
        )
    largest, step = min(release.range for release in local), max(release.step for release in local)
    std = math.hypot(*(release.clipping_norm * release.noise_multiplier * release.spread for release in local))
    needed = max(release.clipping_norm for release in local) + _TAILS * std
    if not math.isfinite(needed):  # NaN where no bound is one number
        if math.isinf(largest) and step == 0:
            return ""
        return f"zone {zone}: the noise names no single clipping norm, so others' noise earns no credit"
    if largest < needed:
        return (
            f"zone {zone}: the encryption saturates at {largest:g}, and saturated noise hides less; others' noise "
            f"earns credit from range: {math.ceil(needed)} on"
        )
    if not in_steps and _STEPS_PER_STD * step > lightest * std:
        return (
            f"zone {zone}: values are rounded to {step:.2g}, too coarse for noise of {lightest * std:.3g}; "
            "others' noise earns no credit"
        )
    return ""


def strongest(releases: Iterable[Release]) -> float | None:
    """The largest multiplier: noise that a link adds after another is post-processing of the other and cannot harm.

    None where there is no release. A mechanism that nothing here accounts for counts as no noise.
    """
    return max((multiplier_of(release) for release in releases), default=None)


def multiplier_of(release: Release) -> float:
    """The multiplier of Gaussian noise that costs as much as one upload with this noise, or more."""
    if release.mechanism in INTEGER and release.noise_multiplier > 0:
        return _in_steps(release, 1)
    return release.noise_multiplier if release.mechanism in GAUSSIAN else 0.0


def credit_in_steps(release: Release, count: int) -> float:
    """How much larger the multiplier is in a sum of so many uploads with noise in whole numbers; 1 at least, since a
    sum is computed from them.
    """
    return max(1.0, _in_steps(release, count) / _in_steps(release, 1)) if release.noise_multiplier > 0 else 1.0


def _in_steps(release: Release, count: int) -> float:
    norm = release.clipping_norm / release.step
    std, mechanism = norm * release.noise_multiplier, cast("IntegerNoise", release.mechanism)
    return sum_multiplier(mechanism, std, norm, release.size, count) if math.isfinite(norm) else 0.0


def noise_of_others(
    count: int, charged: list[int], weights: Mapping[int, float], colluders: int = 1
) -> tuple[float, float]:
    """How much larger the multiplier of local noise is in a weighted sum: for outsiders, and for other contributors.

    sqrt(sum of w^2) / max w over the contributors: sqrt(m) for m equal weights. So many other contributors who put
    their heads together know their own noise. Never below 1, since the sum is computed from the upload. The maximum
    goes over all charged clients and the sum over the `count` smallest weights, so that a client that drops out never
    lowers the cost.
    """
    squares = sorted(weight * weight for weight in weights.values())[:count]
    heaviest = max((weights.get(client_id, 1.0) for client_id in charged), default=1.0)
    total, without_largest = math.fsum(squares), math.fsum(squares[: max(0, len(squares) - colluders)])
    return max(1.0, math.sqrt(total) / heaviest), max(1.0, math.sqrt(without_largest) / heaviest)
