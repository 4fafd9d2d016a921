"""What each round's uploads cost: the bridge from a recipe's chains to the ledger.

Whoever is asked for an upload pays, also if the upload is lost, the round cut off, or the run ends in the middle of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fedplug.api.context import Server
from fedplug.api.errors import of_component
from fedplug.api.events import (
    Asking,
    Events,
    MessageUncovered,
    Released,
    RoundClosed,
    RoundStarted,
    SetUpDone,
    SumWithheld,
)  # fmt: skip
from fedplug.api.folded import released
from fedplug.api.known import Known
from fedplug.api.operations import Misplaced, Noise, Operations
from fedplug.api.releases import Release
from fedplug.api.role_records import Reveals
from fedplug.api.roles import Groups, Negotiation
from fedplug.privacy.ledger import NOTHING, Ledger
from fedplug.recipe.composition import Composition, amplified
from fedplug.recipe.curves import curve_problems, stated_in
from fedplug.recipe.recipe import Recipe

if TYPE_CHECKING:
    from fedplug.api.base import Component
    from fedplug.api.context import Context


class Charging:
    """Enters rounds into the ledger. The server remembers the last round's zone sizes, for rounds whose sizes nobody
    could tell.

    Attributes:
        owed: round and clients of uploads that were asked for and are not in the ledger yet.
    """

    def __init__(self, recipe: Recipe, composition: Composition, server: Server, ledger: Ledger, size: int) -> None:
        self.recipe, self.composition, self.server = recipe, composition, server
        self.ledger, self.size = ledger, size
        self.owed: tuple[int, list[int]] | None = None
        self._begun: int | None = None  # the round that has begun and has released nothing so far

    def subscribe(self, events: Events) -> None:
        """From here on, enters what happens into the ledger.

        Others may refuse what is about to be asked, and hear of that before it is charged. What was answered and
        released is entered before anybody can stop the run because of it.
        """
        events.subscribe(SetUpDone, self._joined, first=True)
        events.subscribe(RoundStarted, self._check)
        events.subscribe(Asking, self._asking)
        events.subscribe(Released, self._released, first=True)
        events.subscribe(RoundClosed, self._closed, first=True)
        events.subscribe(
            MessageUncovered, lambda event: self.ledger.message_uncovered(event.component, event.what), first=True
        )
        events.subscribe(SumWithheld, self._withheld, first=True)

    def _joined(self, event: SetUpDone) -> None:
        """Whatever a site lets others know is shown to the server, and only then."""
        if count := len(self.server.remembered.classes):
            note = f"how many training examples of each class there are, told by {count} of {self.recipe.clients} sites"
            self.ledger.reveals.append(Reveals("class counts", ("aggregator",), voids=True, note=note))

    def _withheld(self, event: SumWithheld) -> None:
        """Whoever says that it opened another sum before can be right of a round that was repeated, and of no other."""
        if event.round in self.server.remembered.repeated and event.zone in self.ledger.sealed:
            self.ledger.note_unopened(event.round, event.zone)

    def _asking(self, event: Asking) -> None:
        """Whoever is asked pays: for ballots at once, for an upload when its zones' sizes are known."""
        if event.what == "ballots":
            self.charge_ballots(event.round, event.clients)
        else:
            self.owed = event.round, list(event.clients)

    def _released(self, event: Released) -> None:
        """Enters into the ledger what each zone's chain released this round."""
        sent = {zone for zone, size in event.zone_sizes.items() if size}
        secret = not event.exposed and sent <= self.amplified(event.round)
        self.server.remembered.zone_sizes = dict(event.zone_sizes)
        self.server.remembered.secret_cohort = secret
        self.enter(self.ledger, event.round, event.charged, event.zone_sizes, secret,
                   contributors=event.contributors, weights=event.weights)  # fmt: skip
        self.owed = self._begun = None

    def _closed(self, event: RoundClosed) -> None:
        """Charges a round that was skipped after it had begun, as far as it is not in the ledger yet.

        That it was skipped is for everybody to see, and follows from who was in it and dropped out: the cohort is no
        secret any more, also where nobody was asked to upload yet.
        """
        begun, self._begun = self._begun, None
        if begun is None:
            return
        if self.owed is not None:
            self.server.remembered.secret_cohort = False
            self._charge_owed(self.ledger, *self.owed)
            self.owed = None
        elif self.amplified(begun):
            self.ledger.record(begun, charged=(), total=self.size)

    def _check(self, event: RoundStarted) -> None:
        """Checks that what a round is about to release costs what the ledger takes it for; before anybody is asked.

        Raises:
            Misplaced: a mechanism has another curve than before round 1.
        """
        ctx = self._at(event.round)
        stated = stated_in(ctx.steps(zone) for zone in self.composition.links)
        stated += [(f"the ballots of {name}", given) for name, given in self.composition.ballots(ctx)]
        for _, problem in curve_problems(stated, self.ledger.curves):
            raise Misplaced(f"round {event.round + 1}: {problem}")
        self._begun = event.round

    def charge_ballots(self, round: int, charged: Sequence[int], again: bool = False) -> None:
        """Enters what clients send with noise before their uploads; whoever is asked for it pays.

        Reproducible noise repeats the very same ballots, which cost nothing more where a round is run `again`.
        """
        ctx = self._at(round)
        asking = self.composition.ballots(ctx)
        releases = {f"ballots of {name}": releases_of(name, given) for name, given in asking}
        if releases and not (again and not _is_new(releases)):
            sizes = dict.fromkeys(releases, float(self.size))
            self.ledger.record(round, charged=charged, zone_sizes=sizes, total=self.size, releases=releases)

    def lost_round(self, round: int, charged: list[int]) -> None:
        """Charges a round that was cut off after uploads had been asked for, and is now repeated with other noise.

        Reproducible noise repeats the very same upload, which costs nothing more.
        """
        self.server.remembered.repeated = sorted({*self.server.remembered.repeated, round})
        releases = self.releases(round)
        if _is_new(releases) or self.accounts(round, charged):
            self._unseen(self.ledger, round, charged, releases)

    def ledger_at_failure(self) -> Ledger:
        """The ledger with the uploads that were asked for and not recorded any more, as a copy: a run that goes on
        from its checkpoint charges them itself.
        """
        if self.owed is None:
            return self.ledger
        ledger = self.ledger.copy(self.ledger.log)
        self._charge_owed(ledger, *self.owed)
        return ledger

    def _charge_owed(self, ledger: Ledger, round: int, charged: list[int]) -> None:
        """Charges uploads that were asked for; before any was, every zone of the recipe counts."""
        known = self.server.remembered.zone_sizes
        self._unseen(ledger, round, charged, self.releases(round) if known else self.recipe.protect)

    def _unseen(self, ledger: Ledger, round: int, charged: list[int], zones: Iterable[str]) -> None:
        """Charges uploads whose zone sizes nobody stated: they are those of the round before, except that those of
        `zones` that were empty there count as the whole model, since plans change.
        """
        remembered = self.server.remembered
        sizes = {zone: size for zone, size in remembered.zone_sizes.items() if size}
        secret = remembered.secret_cohort
        if secret is None:
            secret = set(self.recipe.protect) <= self.amplified(round)
        self.enter(ledger, round, charged, {**dict.fromkeys(zones, float(self.size)), **sizes}, secret)

    def enter(
        self, ledger: Ledger, round: int, charged: Sequence[int], sizes: Mapping[str, float], secret: bool = False, *,
        contributors: Mapping[str, int] = NOTHING, weights: Mapping[int, float] = NOTHING,
        accounts: Mapping[str, Mapping[int, Iterable[float]]] | None = None,
    ) -> None:  # fmt: skip
        """Enters what each zone's chain releases in a round; the rest as in `Ledger.record`.

        `accounts` are by default those that the clients told.
        """
        if accounts is None:
            accounts = self.accounts(round, self.server.remembered.accounts if secret else charged)
        freed = {zone: known.freed for zone, known in self._behind(round).items()}
        ledger.record(
            round, charged=charged, zone_sizes=sizes, total=self.size, releases=self.releases(round),
            contributors=contributors, weights=weights, secret_cohort=secret, accounts=accounts, freed=freed,
        )  # fmt: skip

    def accounts(self, round: int, charged: Iterable[int]) -> dict[str, dict[int, list[float]]]:
        """What a round releases of these clients at levels of which components keep account, by level and client."""
        by_level: dict[str, dict[int, list[float]]] = {}
        for client_id in charged:
            for level, releases in self.server.remembered.accounts.get(client_id, {}).items():
                by_level.setdefault(level, {})[client_id] = releases[round]
        return by_level

    def amplified(self, round: int) -> set[str]:
        """The zones whose noise is added to the sum of a Poisson sample, which hides who takes part."""
        return amplified(self.recipe.sampling, self._at(round))

    def releases(self, round: int) -> dict[str, list[Release]]:
        """The noises of each zone's links in a round that count, as the fold of their operations has them."""
        return {zone: list(known.releases) for zone, known in self._behind(round).items() if known.releases}

    def _behind(self, round: int) -> dict[str, Known]:
        ctx = self._at(round)
        behind = {zone: released(ctx.steps(zone)) for zone in self.composition.links}
        return {zone: known for zone, known in behind.items() if known is not None}

    def _at(self, round: int) -> Context:
        now = self.server.ctx
        return now if now.round == round else dataclasses.replace(now, round=round)


def believed(component: Component, ctx: Context) -> list[Reveals]:
    """What a component says that it shows, where replies are covered by epsilon only if it states a noise at all."""
    with of_component(component.name, "ballots"):
        ballots = isinstance(component, Groups | Negotiation) and any(
            component.ballots(round, dataclasses.replace(ctx, round=round)) for round in range(ctx.rounds)
        )
    noisy = ballots or any(
        step.link.name == component.name and step.has(Noise) for zone in ctx.links for step in ctx.steps(zone)
    )
    why = f"not covered by epsilon, as {component.name} says: it adds no noise in a link and has no ballots"
    return [
        shown if noisy or shown.covered_by != "epsilon" or not shown.asked
        else dataclasses.replace(shown, covered_by=None, note=f"{shown.note}; {why}" if shown.note else why)
        for shown in component.reveals(ctx)
    ]  # fmt: skip


def releases_of(name: str, operations: Operations) -> list[Release]:
    """What ballots cost each client that was asked for one; of operations as they are executed."""
    return list(Known(zone="ballots", link=name).after(*operations).releases)


def _is_new(releases: Mapping[str, list[Release]]) -> bool:
    """Whether the noise of a round that is run again is other noise than before."""
    return any(release.source != "reproducible" for chain in releases.values() for release in chain)
