"""The book of a ledger: what a run has released, what that cost each client, and what every kind of adversary may know.

Each round appends one entry to a log (`RoundEntry`): who was asked to upload, how large each zone was, and the noise
multipliers. Everything else follows from that log, so that a resumed run equals an uninterrupted one, and anybody can
check the printed epsilon; sums and facts (`so_far`) are kept up entry by entry, so that a round of a long run costs no
more than one of a short run. Gaussian releases compose exactly by adding up 1/multiplier^2
(`fedplug_ledger.accounting`). `views` turns the sums into epsilons and guarantees, `reporting` into a record.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from fedplug.api.blocks import RETAINED
from fedplug.api.known import Release
from fedplug.api.operations import Curve
from fedplug.api.roles import Accountant, AccountKeeper, Reveals
from fedplug.recipe.parts import Sampling

from fedplug_ledger.costs import SoFar, Spent, ZoneCost, entry_of, inverse_square
from fedplug_ledger.entries import RoundEntry, ZoneEntry
from fedplug_ledger.ledger_record import EncryptionReport

if TYPE_CHECKING:
    from numpy.typing import NDArray


NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclasses.dataclass(eq=False)
class Book:
    """What a run has released, and what that cost: the account from which `Ledger` states guarantees.

    Args:
        recipe_name, num_clients, rounds, min_clients, delta: of the recipe.
        sampling: of the recipe; None where all clients take part in every round.
        encryption: of each encrypted zone, who can decrypt, and whether the aggregation server sees what is decrypted.
        accountant: states epsilon of sampled releases, and of releases that are not Gaussian; None states it without
            credit for sampling, and by Renyi DP.
        words: the components that are not of fedplug itself, and who calls what public, on whose word every guarantee
            is.
        keepers: the components that keep an account of another level, by level.
        reveals: what is visible besides the releases.
        curves: costs of mechanisms that the core does not know, by name.
        seed: of the recipe, from which it follows whose turn it is.
        presence: the chance that a client which is drawn is there.
        colluders: how many clients may put their heads together, with the server or without it, in what is stated for
            views of clients.
    """

    recipe_name: str
    num_clients: int
    rounds: int
    min_clients: int
    delta: float
    sampling: Sampling | None = None
    encryption: Mapping[str, EncryptionReport] = dataclasses.field(default_factory=dict)
    accountant: Accountant | None = None
    words: Sequence[str] = ()
    keepers: Mapping[str, AccountKeeper] = dataclasses.field(default_factory=dict)
    reveals: list[Reveals] = dataclasses.field(default_factory=list)
    curves: dict[str, Curve] = dataclasses.field(default_factory=dict)
    seed: int = 0
    presence: float = 1.0
    colluders: int = 1

    def __post_init__(self) -> None:
        # Where the share of one client opens, every client holds a key, whatever it is called.
        self.key_holders = {
            zone: "clients" if closed.key_holder == "shares" and closed.opens_with < 2 else closed.key_holder
            for zone, closed in self.encryption.items()
        }
        self.sealed = frozenset(self.encryption)
        self.opened = frozenset(zone for zone, closed in self.encryption.items() if closed.sums_seen_by_server)
        self._reset()

    def _reset(self) -> None:
        self.log: list[RoundEntry] = []
        self.costs: dict[str, ZoneCost] = {}
        # Of each client: what other clients' noised uploads, computed from sums that hold its un-noised values, reveal.
        self.feedback = Spent.of(self.num_clients)
        self.so_far = SoFar()
        # By level and client, how often it has made which release; None: one of which nobody knows.
        self.accounts: dict[str, dict[int, Counter[tuple[float, ...] | None]]] = {level: {} for level in self.keepers}
        self._fed_back: NDArray[np.bool_] = np.zeros(self.num_clients, bool)
        # By zone with noise that is correlated over rounds, who was charged in which, and by which entry: of a repeated
        # one the last time.
        self._took_part: dict[str, dict[int, tuple[NDArray[np.bool_], float, int]]] = {}
        self.uncovered: list[str] = []
        self.unopened: list[list[Any]] = []  # [0-based round, zone]

    def record(
        self,
        round: int,
        *,
        charged: Iterable[int],
        total: int,
        zone_sizes: Mapping[str, float] = NOTHING,
        releases: Mapping[str, list[Release]] = NOTHING,
        contributors: Mapping[str, int] = NOTHING,
        weights: Mapping[int, float] = NOTHING,
        secret_cohort: bool = False,
        accounts: Mapping[str, Mapping[int, Iterable[float]]] = NOTHING,
        freed: Mapping[str, Iterable[str]] = NOTHING,
        closed: Iterable[str] = (),
        repeated: bool = False,
        resting: Iterable[int] = (),
        arrived: Mapping[int, float] = NOTHING,
        public: Iterable[str] = (),
    ) -> None:
        """Enters one round. A round that was repeated after an interruption is entered, and paid for, once a time.

        Args:
            round: 0-based; the log and people are shown `round + 1`.
            charged: the clients that were asked for an upload. They pay even if it was lost or left out afterwards.
            total: P.
            zone_sizes: mean number of scalars of each zone that was sent, over the clients.
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
            freed: for each zone, the links whose functions had data in hand behind the noise.
            closed: zones whose sums stayed closed, of those that only the shares of several clients open;
                `contributors` says for how many updates shares were asked for.
            repeated: the round was cut off, and all continue from before it.
            resting: clients that send noise alone, and pay for nothing.
            arrived: of a round that was skipped, the weights of the clients whose uploads came.
            public: zones that were sent, whose uploads no client's examples went into: they cost nothing.
        """
        shut, free = set(closed), set(public)
        paying = sorted({int(client_id) for client_id in charged} | {int(client_id) for client_id in weights})
        paying = sorted({*paying}.difference(resting))
        zones = {
            zone: entry_of(
                zone, size, releases.get(zone, []), self.curves, contributors.get(zone, 0), paying, weights,
                closed=zone in shut, repeated=repeated, arrived=arrived, colluders=self.colluders,
            )
            for zone, size in zone_sizes.items()
            if zone != RETAINED and size > 0 and zone not in free
        }
        for zone, entry in zones.items():
            entry.freed = list(freed.get(zone, ()))
        kept = {
            level: {int(client_id): list(map(float, release)) for client_id, release in by_client.items()}
            for level, by_client in accounts.items()
        }
        everyone = paying == list(range(self.num_clients))
        sent = sorted(zone for zone, size in zone_sizes.items() if zone in free and size > 0)
        whose: Any = "all" if everyone else paying
        self._enter(RoundEntry(round + 1, whose, int(total), zones, bool(secret_cohort), kept, sent))

    def message_uncovered(self, component: str, what: str) -> None:
        """Enters that the server was sent something that no operation and no statement of the component covers: `asks
        clients for counts, and says nowhere what the answers show`.
        """
        if (note := f"{component} {what}") not in self.uncovered:
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
        others = charged.sum() - charged
        fed_back = np.where(self._fed_back & (others > 0), np.maximum(others, 1), 0)
        visible = 0.0
        for zone, facts in entry.zones.items():
            moved = self._moved(zone, facts, entry.round, charged)
            self.costs.setdefault(zone, ZoneCost.zero(self.num_clients, self.colluders)).enter(facts, charged, moved)
            if facts.is_bare:
                self._fed_back |= charged & (zone in self.sealed)
            elif facts.closed or (zone in self.sealed and zone not in self.opened):
                continue
            elif facts.other:
                mechanism, multiplier = facts.other
                if fed_back.any():
                    self.feedback.count(mechanism, multiplier / 2, fed_back)
            else:
                self.feedback.concentrated |= facts.concentrated
                visible += math.inf if facts.by_clients else inverse_square(facts.local or 0.0)
        # Whatever another client computed from this client's un-noised values moves its clipped upload by up to twice
        # the clipping norm, once for each other upload; hence the 4.
        if visible > 0 and fed_back.any():
            self.feedback.gaussian += np.where(fed_back > 0, 4.0 * visible * np.maximum(fed_back, 1), 0.0)
        for level, kept in self.accounts.items():
            stated = entry.accounts.get(level, {})
            for client_id in map(int, np.flatnonzero(charged)):
                release = stated.get(client_id)
                kept.setdefault(client_id, Counter())[None if release is None else tuple(release)] += 1

    def _moved(
        self, zone: str, facts: ZoneEntry, round: int, charged: NDArray[np.bool_]
    ) -> NDArray[np.float64] | None:
        """By how many times its bound in this round each client moves what the fresh noise lies over, (K,): as noise
        is taken back, the updates of earlier rounds come back with it, which had the bounds of those. None where noise
        is independent.

        A round that was repeated goes on from the noise of those before it, as they were at the last time, and each
        time is a release with fresh noise.
        """
        if facts.takes_back is None:
            return None
        before = self._took_part.setdefault(zone, {})
        moved, bound, drawn = charged.astype(np.float64), facts.correlated_bound, self.so_far.drawn
        self.so_far.reach = max(self.so_far.reach, len(facts.takes_back))
        for lag, share in zip(range(1, round + 1), facts.takes_back, strict=False):
            if (there := before.get(round - lag)) is not None:
                who, then, number = there
                again = abs(share) * (1.0 if then == bound else then / bound if bound else math.inf)
                moved[who] += again
                drawn[number].append((facts.central or 0.0) / again if again else math.inf)
        before[round] = charged, bound, len(drawn) - 1
        return moved

    @property
    def noised(self) -> dict[str, ZoneCost]:
        """The cost of each zone that was released with noise."""
        return {zone: cost for zone, cost in self.costs.items() if cost.releases}

    @property
    def bare(self) -> list[str]:
        """Zones that were released without noise in some round."""
        return [zone for zone, cost in self.costs.items() if cost.bare]

    def slack_of(self, cost: ZoneCost) -> float:
        """What a zone's mechanisms take of delta. They state it for as many releases as rounds were planned; of more,
        such as those of repeated rounds, every further lot of so many, also a broken one, takes as much again.
        """
        return cost.slack * math.ceil(cost.releases / max(1, self.rounds))

    def priced(self, zones: Mapping[str, ZoneCost], price: Callable[[str, ZoneCost], NDArray[np.float64]]) -> Spent:
        """What zones have cost together, where `price` says which of their Gaussian costs counts."""
        parts = [
            Spent(price(zone, cost), cost.others, self.slack_of(cost), cost.concentrated)
            for zone, cost in zones.items()
        ]
        return Spent.of(self.num_clients, parts)

    def epsilons_of(self, spent: Spent) -> dict[str, float]:
        """Epsilon of the worst client by method, at `delta`; the first is the one to quote."""
        return spent.epsilons(self.delta, self.accountant, self.curves)

    def with_everybody(self) -> Self:
        """The same run as if every client had been asked in each round in which it could be: what does not follow from
        who was.
        """
        drawn, everybody = self.sampling, range(self.num_clients)

        def could(round: int) -> Any:
            return "all" if drawn is None or drawn.turns == 1 else drawn.cohort(self.seed, everybody, round - 1)

        return self.copy([dataclasses.replace(entry, charged=could(entry.round)) for entry in self.log])

    def copy(self, log: Iterable[RoundEntry]) -> Self:
        """The account of the same run with another log."""
        other = dataclasses.replace(self)
        other.restore(self.state(), log)
        return other

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs in addition to the log; plain data."""
        shown = [each.to_plain() for each in self.reveals]
        words = list(self.words)
        return {"uncovered": self.uncovered, "unopened": self.unopened, "reveals": shown, "words": words}

    def restore(self, state: Mapping[str, Any], log: Iterable[RoundEntry]) -> None:
        """Inverse of `state`, with the log until then. What was shown stays listed, and so does whose word it is on:
        another version may show less, and another engine, or listener, may go on.
        """
        self._reset()
        before = map(Reveals.from_plain, state["reveals"])
        self.reveals = [*self.reveals, *(shown for shown in before if shown not in self.reveals)]
        self.words = sorted({*self.words, *state.get("words", ())})  # a checkpoint of before 2026-11-29 has none
        self.uncovered = list(state["uncovered"])
        for entry in log:
            self._enter(entry)
        self.unopened = [list(place) for place in state["unopened"]]
