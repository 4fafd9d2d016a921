"""The privacy ledger: what a run has released, what that cost each client, and what every kind of adversary may know.

Each round appends one entry to a log (`ledger_log`): who was asked to upload, how large each zone was, and the noise
multipliers. Everything else follows from that log, so that a resumed run equals an uninterrupted one, and anybody can
check the printed epsilon; sums and facts (`so_far`) are kept up entry by entry, so that a round of a long run costs no
more than one of a short run. Gaussian releases compose exactly by adding up 1/multiplier^2
(`fedplug.privacy.accounting`). `ledger_epsilons` and `ledger_views` turn the sums into epsilons and guarantees,
`ledger_report` into a record and one verdict line.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.effects import Curve, Reveals
from fedplug.api.releases import Release
from fedplug.api.types import RETAINED
from fedplug.privacy.credit import noise_of_others, strongest, strongest_other, uncredited
from fedplug.privacy.ledger_log import RoundEntry, ZoneEntry
from fedplug.privacy.so_far import SoFar
from fedplug.privacy.spent import Spent, ZoneCost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.outer_roles import Accountant
    from fedplug.api.roles import AccountKeeper
    from fedplug.privacy.ledger_record import LedgerReport


@dataclasses.dataclass(eq=False)
class Ledger:
    """The privacy account of one run.

    Args:
        recipe_name: for the record.
        num_clients: K.
        rounds: T, as planned.
        min_clients: the fewest updates that a sum may hold.
        delta: failure probability for which epsilon is stated.
        sampling: `{"scheme": "all" | "poisson" | "fixed", "rate": q, "source": "secure" | "reproducible"}`; `rate`
            defaults to 1, `source` to secure.
        key_holders: for each encrypted zone, who can decrypt: `clients`, `key_server`, or `shares`, which many clients
            would have to put together.
        schemes: for each encrypted zone, its component and parameters, for the record.
        published: encrypted zones whose decrypted sums pass through the aggregation server. By default those that
            the key server opens, since it answers the aggregation server.
        accountant: states epsilon of sampled releases, and of releases that are not Gaussian; None states it without
            credit for sampling, and by Renyi DP.
        keepers: the components that keep an account of a level of their own, by level.
        reveals: what is visible besides the releases.
        curves: costs of mechanisms that the core does not know, by name.
        cautions: further warnings, about the recipe.
        presence: the chance that a client which is drawn is there.
    """

    recipe_name: str
    num_clients: int
    rounds: int
    min_clients: int
    delta: float
    sampling: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"scheme": "all"})
    key_holders: Mapping[str, str] = dataclasses.field(default_factory=dict)
    schemes: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    published: Iterable[str] | None = None
    accountant: Accountant | None = None
    keepers: Mapping[str, AccountKeeper] = dataclasses.field(default_factory=dict)
    reveals: list[Reveals] = dataclasses.field(default_factory=list)
    curves: dict[str, Curve] = dataclasses.field(default_factory=dict)
    cautions: list[str] = dataclasses.field(default_factory=list)
    presence: float = 1.0

    def __post_init__(self) -> None:
        if self.sampling.get("scheme") not in ("all", "poisson", "fixed"):
            raise ValueError(f"sampling scheme {self.sampling.get('scheme')!r} must be all, poisson or fixed")
        if unknown := set(self.key_holders.values()) - {"clients", "key_server", "shares"}:
            raise ValueError(f"key holder {unknown.pop()!r} must be clients, key_server or shares")
        self.sealed = frozenset(self.key_holders)
        by_server = (zone for zone, holder in self.key_holders.items() if holder == "key_server")
        self.opened = frozenset(by_server if self.published is None else self.published)
        self._reset()

    def _reset(self) -> None:
        self.log: list[RoundEntry] = []
        self.costs: dict[str, ZoneCost] = {}
        # Of each client: what other clients' noised uploads, computed from sums that hold its un-noised values, reveal.
        self.feedback = Spent(np.zeros(self.num_clients))
        self.so_far = SoFar()
        # By level and client, how often it has made which release; None: one of which nobody knows.
        self.accounts: dict[str, dict[int, Counter[tuple[float, ...] | None]]] = {level: {} for level in self.keepers}
        self._fed_back: NDArray[np.bool_] = np.zeros(self.num_clients, bool)
        self.uncovered: list[str] = []
        self.unopened: list[list[Any]] = []  # [0-based round, zone]

    # -- writing -------------------------------------------------------------------------------------------------------

    def record(
        self,
        round: int,
        *,
        charged: Iterable[int],
        zone_sizes: Mapping[str, float],
        total: int,
        releases: Mapping[str, list[Release]],
        contributors: Mapping[str, int],
        weights: Mapping[int, float],
        secret_cohort: bool = False,
        accounts: Mapping[str, Mapping[int, Iterable[float]]] | None = None,
        unstated: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        """Enters one round. A round that was repeated after an interruption is entered, and paid for, once a time.

        Args:
            round: 0-based; the log and people are shown `round + 1`.
            charged: the clients that were asked for an upload. They pay even if it was lost or left out afterwards.
            zone_sizes: mean number of scalars of each zone that was sent, over the clients.
            total: P.
            releases: for each zone, what the components of its chain say of this round. A zone that was sent and is
                not named here counts as released without noise.
            contributors: for each zone, how many uploads its sum holds; with several groups or plans that differ, the
                fewest behind any released value. A zone not named here gets no credit for the noise of others.
            weights: of the clients whose uploads arrived, in (0, 1]; a charged client that is missing counts as 1.
            secret_cohort: nothing but the noised sums, divided by a constant, depended on who took part. Sampling
                earns credit only then.
            accounts: by level and client, what this round releases at levels of which components keep account. Clients
                tell it for all rounds before round 1, so that every charged client is there; where the cohort is
                secret, everybody.
            unstated: for each zone, the links that state no effect.
        """
        paying = sorted({int(client_id) for client_id in charged} | {int(client_id) for client_id in weights})
        zones = {}
        for zone, size in zone_sizes.items():
            if zone == RETAINED or not size > 0:
                continue
            found = releases.get(zone, [])
            alone, others = noise_of_others(contributors.get(zone, 0), paying, weights)
            why = uncredited(zone, found, min(weights.values(), default=1.0))
            if why:
                alone = others = 1.0
            zones[zone] = ZoneEntry(
                size=float(size),
                releases=list(found),
                local=strongest(release for release in found if release.trust != "central"),
                central=strongest(release for release in found if release.trust == "central"),
                other=strongest_other(found, self.curves),
                sum_factor=alone,
                peer_factor=others,
                uncredited=why,
                slack=max((release.slack for release in found), default=0.0),
                unstated=list((unstated or {}).get(zone, ())),
            )
        kept = {
            level: {int(client_id): list(map(float, release)) for client_id, release in by_client.items()}
            for level, by_client in (accounts or {}).items()
        }
        everyone = paying == list(range(self.num_clients))
        self._enter(RoundEntry(round + 1, "all" if everyone else paying, int(total), zones, bool(secret_cohort), kept))

    def message_uncovered(self, component: str, what: str) -> None:
        """Enters that the server was sent something that no effect and no statement of the component covers.

        Args:
            component: that asked for it.
            what: `asks clients for counts, and says nowhere what the answers show`.
        """
        note = f"{component} {what}"
        if note not in self.uncovered:
            self.uncovered.append(note)

    def note_unopened(self, round: int, zone: str) -> None:
        """Keeps that a repeated round (0-based) went on without this zone: a sum of it had been opened before."""
        if [round, zone] not in self.unopened:
            self.unopened.append([round, zone])

    def _enter(self, entry: RoundEntry) -> None:
        """Appends an entry of the log and adds its cost to the running sums."""
        self.log.append(entry)
        self.so_far.enter(entry)
        charged = np.zeros(self.num_clients, bool)
        charged[slice(None) if entry.charged == "all" else entry.charged] = True
        visible, un_noised_feedback = 0.0, False
        for zone, facts in entry.zones.items():
            cost = self.costs.setdefault(zone, ZoneCost.zero(self.num_clients))
            cost.largest = max(cost.largest, facts.size)
            cost.slack = max(cost.slack, facts.slack)
            if facts.other:
                mechanism, multiplier = facts.other
                self._enter_other(cost, mechanism, multiplier, charged, zone not in self.sealed or zone in self.opened)
                continue
            if facts.is_bare:
                cost.bare += 1
                un_noised_feedback |= zone in self.sealed
                continue
            local, central = facts.local or 0.0, facts.central or 0.0
            in_sum, for_peers = local * (facts.sum_factor or 1.0), local * (facts.peer_factor or 1.0)
            cost.releases += 1
            cost.central += facts.local is None
            cost.beneath += facts.local is not None and facts.central is not None
            # Local and central noise add up in the sum; the larger of the two alone is a bound.
            cost.own[charged] += _inverse_square(local)
            cost.total[charged] += _inverse_square(max(in_sum, central))
            cost.below[charged] += _inverse_square(in_sum)
            cost.peer[charged] += _inverse_square(max(for_peers, central))
            if zone not in self.sealed or zone in self.opened:
                visible += _inverse_square(local)
        # Whatever another client computed from this client's un-noised values moves its clipped upload by up to twice
        # the clipping norm, once for each other upload; hence the 4.
        others = charged.sum() - charged
        if visible > 0:
            self.feedback.gaussian += np.where(
                self._fed_back & (others > 0), 4.0 * visible * np.maximum(others, 1), 0.0
            )
        if un_noised_feedback:
            self._fed_back |= charged
        for level, kept in self.accounts.items():
            stated = entry.accounts.get(level, {})
            for client_id in map(int, np.flatnonzero(charged)):
                release = stated.get(client_id)
                kept.setdefault(client_id, Counter())[None if release is None else tuple(release)] += 1

    def _enter_other(
        self, cost: ZoneCost, mechanism: str, multiplier: float, charged: NDArray[np.bool_], visible: bool
    ) -> None:
        """Counts one release that is not Gaussian for each charged client."""
        cost.releases += 1
        cost.others.setdefault((mechanism, multiplier), np.zeros(self.num_clients, np.int64))[charged] += 1
        others = charged.sum() - charged
        if visible and self._fed_back.any():
            counts = np.where(self._fed_back & (others > 0), np.maximum(others, 1), 0)
            self.feedback.count(mechanism, multiplier / 2, counts)

    # -- reading -------------------------------------------------------------------------------------------------------

    def epsilon(self) -> float | None:
        """Epsilon so far of the zones with noise: worst client, zero-out, at `delta`; None if no zone had noise.

        Toward whoever sees the client's uploads where noise is local; toward whoever sees the released sums where it is
        central, with the credit for sampling that `accountant` grants.
        """
        from fedplug.privacy.ledger_epsilons import headline

        return headline(self)

    def priced_part(self) -> str:
        """Which zones `epsilon` prices, where other things were released beside them; empty where it is everything."""
        from fedplug.privacy.ledger_views import priced_part

        return priced_part(self)

    def level_epsilons(self) -> dict[str, float]:
        """Epsilon so far, at the worst client, of each level of which a component keeps account."""
        from fedplug.privacy.ledger_epsilons import levels

        return {level: next(iter(stated.values())) for level, stated in levels(self).items()}

    def report(self) -> LedgerReport:
        """The whole account, as `ledger.json` has it."""
        from fedplug.privacy.ledger_report import report

        return report(self)

    def with_everybody(self) -> Ledger:
        """The same run as if every client had been asked in each of its rounds: what does not follow from who was."""
        other = dataclasses.replace(self)
        other.restore(self.state(), [dataclasses.replace(entry, charged="all") for entry in self.log])
        return other

    def verdict(self) -> str:
        """One line that says what is protected, toward whom, and what is not."""
        from fedplug.privacy.ledger_report import verdict

        return verdict(self)

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs beside the log; plain data."""
        shown = [{**dataclasses.asdict(each), "to": list(each.to), "asked": list(each.asked)} for each in self.reveals]
        return {"uncovered": self.uncovered, "unopened": self.unopened, "reveals": shown}

    def restore(self, state: Mapping[str, Any], log: Iterable[RoundEntry]) -> None:
        """Inverse of `state`, with the log until then. What was shown stays listed: another version may show less."""
        self._reset()
        plain = ({**each, "to": tuple(each["to"]), "asked": tuple(each["asked"])} for each in state["reveals"])
        before = [Reveals(**each) for each in plain]
        self.reveals = [*self.reveals, *(shown for shown in before if shown not in self.reveals)]
        self.uncovered = list(state["uncovered"])
        for entry in log:
            self._enter(entry)
        self.unopened = [list(place) for place in state["unopened"]]


def _inverse_square(multiplier: float) -> float:
    """1/multiplier^2; infinite where there is no noise."""
    return math.inf if multiplier < 1e-150 else 1 / multiplier**2
