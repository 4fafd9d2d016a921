"""The cost of each round's uploads: the bridge from a recipe's chains to the ledger.

A client that is asked for an upload pays, also if the upload is lost, the round cut off, or the run ends in its middle.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedplug.api import codec
from fedplug.api.blocks import RETAINED, Layout
from fedplug.api.errors import of_component
from fedplug.api.events import (
    Asking,
    Events,
    MessageUncovered,
    Published,
    Released,
    RoundClosed,
    RoundStarted,
    SetUpDone,
    SumWithheld,
)
from fedplug.api.facts import Facts, in_force, published_to
from fedplug.api.known import Known, Release
from fedplug.api.links import Step, amplified, ballots_of, correlated, locked, released, remembered, seal_of, settled
from fedplug.api.operations import Map, Misplaced, Noise, Operations, Party, Post, WeightedSum
from fedplug.api.parties import Server
from fedplug.api.roles import MASKS, Accountant, Ballots, Component, Reveals, Sealer, Trainer, stated_reveals
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of

from fedplug_ledger import wording
from fedplug_ledger.book import NOTHING
from fedplug_ledger.curves import curve_problems, curves_of, stated_in
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.ledger_record import EncryptionReport
from fedplug_ledger.public_sizes import sized_in_public

_MACHINES = 1 - 1e-3
"""Scores that two machines work out differ by rounding, and the cost that follows from them by less than this."""


def ledger_of(recipe: Recipe, composition: Composition, layout: Layout) -> Ledger:
    """An empty ledger that knows who holds keys, who gets sums, and what is visible besides.

    Raises:
        Misplaced: the place of a link is wrong, or it states a cost that another has under the same name.
    """
    facts = facts_of(composition, layout, 0)
    steps = {zone: facts.steps(zone) for zone in composition.links}
    stated = stated_in(steps.values())
    curves = curves_of(stated)
    for _, problem in curve_problems(stated, curves):
        raise Misplaced(problem)
    # Who rests adds noise to a sum, and no update.
    turns = recipe.sampling.turns if recipe.sampling and recipe.sampling.resting == "noise" else 1
    book = recipe.accountant.name if recipe.accountant else ""
    return Ledger(
        recipe_name=recipe.name,
        num_clients=recipe.data.clients,
        rounds=recipe.rounds,
        min_clients=min(recipe.min_clients, recipe.data.clients // turns),
        delta=recipe.delta,
        sampling=recipe.sampling,
        encryption=sealed(recipe, steps, facts),
        accountant=composition.part(book, Accountant) if book else None,
        words=_words(composition),
        keepers=composition.keepers,
        reveals=reveals_of(recipe, composition, facts),
        curves=curves,
        seed=recipe.seed,
        presence=math.prod(section.presence for section in recipe.sections.values()),
        colluders=max([1, *(noise.colluders for noise in _noises(steps.values()))]),
    )


def sealed(recipe: Recipe, steps: Mapping[str, Sequence[Step]], facts: Facts) -> dict[str, EncryptionReport]:
    """Who opens each zone's sum, and who gets it, in the round of `facts`.

    Raises:
        Misplaced: an encryption states shares of more clients than there are.
    """
    seen = {link.zone for links in facts.links.values() for link in links
            if link.hook == "postprocess" and link.site != "client"}  # fmt: skip
    reports = {}
    closed = {zone: found for zone, chain in steps.items() if (found := seal_of(chain)) is not None}
    for zone, (name, seal) in closed.items():
        if seal.opens_with > recipe.data.clients:
            raise Misplaced(
                f"{name} says that the shares of {seal.opens_with} clients open zone {zone}, and there are "
                f"{recipe.data.clients}; state in Seal(opens_with=...) how many really do"
            )
        by_server = zone in seen and not locked(steps[zone])
        reports[zone] = EncryptionReport(seal.opened_by, by_server, name, seal.scheme, seal.opens_with)
    return reports


def _words(composition: Composition) -> list[str]:
    """All code in a run that is not of fedplug itself: every guarantee is on its word. Any component may ask clients
    questions, a data set may hold one person's records twice, and a model may mix the examples of a batch. And the word
    of who calls something public, in `calls_public` of a component: had it followed from clients, nobody would pay.
    """
    others = (name for name in composition.components if not composition.shipped(name))
    public = (each for part in composition.components.values() for each in getattr(part, "calls_public", ()))
    return sorted({*others, *composition.strangers, *(f"the recipe, which calls {each} public" for each in public)})


def _noises(chains: Iterable[Iterable[Step]]) -> Iterator[Noise]:
    for chain in chains:
        for step in chain:
            yield from (operation for operation in step.operations if isinstance(operation, Noise))


def reveals_of(recipe: Recipe, composition: Composition, facts: Facts) -> list[Reveals]:
    """What components and sections of the recipe say that they show, and what the protocol itself shows."""
    parts = {**composition.components, **facts.components}  # extensions are in no facts, and may ask all the same
    channels = [shown for component in parts.values() for shown in believed(component, facts)]
    channels += [*_plans(composition, facts), *_masks(composition, facts)]
    if composition.aggregator.wants.num_examples:
        channels.append(Reveals("number of examples", ("server", "client"), note=wording.OF_NUMBERS))
    note = f"{wording.OF_METRICS}{wording.OF_FINE_TUNING if recipe.fine_tune else ''}"
    channels.append(Reveals("client metrics", ("server",), note=note))
    channels += [*_divisors(composition, facts), *_senders(composition, facts), *_examples(composition, facts)]
    channels += [shown for section in recipe.sections.values() for shown in section.reveals(recipe)]
    if recipe.buffers == "mean":
        everybody: tuple[Party, ...] = ("server", "client", "released_model")
        # Attacks recover images from them however much noise the update has (docs/edges/attacks.md).
        channels.append(Reveals("batch-norm statistics", everybody, voids=True, note=wording.OF_BUFFERS))
    return channels


def _plans(composition: Composition, facts: Facts) -> list[Reveals]:
    """Plans that do not follow from public facts alone, where the component does not say who sees them.

    Only a statement that is called a mask (`fedplug.api.roles.MASKS`) speaks for plans. One zone holds everything, so
    its plans say nothing. A plan that all clients share may be hidden from the server; positions of a client's own are
    sent to it.
    """
    negotiation = composition.negotiation
    plans = negotiation.plans
    if facts.plans_are_public or len(plans.zones) < 2:
        return []
    named = {party for shown in stated_reveals(negotiation, facts) if shown.what in MASKS for party in shown.to}
    if named & {"server", "released_model"} or (named and not plans.own):
        return []
    note = f"{wording.OF_PLANS}; {negotiation.name} does not say who sees it"
    return [Reveals("plans of clients", ("server", "client"), note=note)]


def _masks(composition: Composition, facts: Facts) -> list[Reveals]:
    """What sums with unlike noise show of which scalar is in which zone, where that follows from clients' data."""
    if facts.plans_are_public:
        return []
    noise: dict[Any, list[str]] = {}
    for zone in facts.links:
        known = released(facts.steps(zone))
        if known is None or not known.releases:
            return []  # its sum has no noise, which is said elsewhere
        noise.setdefault(_look(zone, known), []).append(zone)
    if len(noise) < 2:
        return []
    zones = " and ".join(zone for alike in noise.values() for zone in alike[:1])
    note = f"sums of the {zones} zones carry unlike noise, which tells which scalar is in which; no epsilon covers that"
    return [Reveals("mask", ("key_holder", "client", "released_model"), note=note)]


def _look(zone: str, known: Known) -> tuple[Any, ...]:
    """What a noised sum shows of its noise. A size that nobody knows is like no other."""
    kinds = [(one.mechanism, one.trust, one.source, one.step, one.range, *one.words) for one in known.releases]
    sizes = [zone if size is None else size for size in known.scales]
    return (*kinds, *sizes, known.grid, known.factor)


def _divisors(composition: Composition, facts: Facts) -> list[Reveals]:
    """What closed sums show in addition to their values where clients chose the positions: their divisors.

    Each party that opens such a sum or hands it on gets the total weight of the clients behind each position. The
    aggregation server, which sees the masks themselves, divides the sums that it can read before it hands them on.
    """
    to: dict[Party, list[str]] = {}
    for zone in sorted(composition.plans.own & facts.links.keys()):
        steps = facts.steps(zone)
        if seal := seal_of(steps):
            by_clients = seal[1].opened_by != "key_server"
            for party in ("client",) if by_clients else ("key_holder", "client") if locked(steps) else ("key_holder",):
                to.setdefault(party, []).append(zone)  # type: ignore[arg-type]
    if not to:
        return []
    zones = " and ".join(dict.fromkeys(zone for named in to.values() for zone in named))
    return [Reveals("divisors of positions", tuple(to), note=wording.OF_DIVISORS.format(zones=zones))]


def _senders(composition: Composition, facts: Facts) -> list[Reveals]:
    """What noised means show in addition to their values where clients chose the positions: how many sent each.

    A sum on a public grid, divided by a number of clients, gives that number away to the bit. It is public where every
    sum is divided by all clients, or where clients cover what they keep and share all other positions.
    """
    plans = composition.plans
    to: tuple[Party, ...] = ("key_holder", "client", "released_model")
    found = []
    for zone in sorted(plans.own & facts.links.keys()) if not facts.plans_are_public else ():
        steps = facts.steps(zone)
        known = released(steps)
        adds = [one for step in steps for one in step.operations if isinstance(one, WeightedSum)]
        constant = all(one.divided_by == "all" and one.by is None for one in adds) and bool(adds)
        covered = known is not None and known.covers_support and plans.own <= {zone, RETAINED}
        if known is None or not known.releases or constant or covered:
            continue
        note = wording.OF_SENDERS.format(zone=zone)
        found.append(Reveals("how many clients sent each parameter", to, voids=True, note=note))
    return found


def _examples(composition: Composition, facts: Facts) -> list[Reveals]:
    """What links take from single examples that no account of records covers."""
    everybody: tuple[Party, ...] = ("server", "client", "released_model")
    takers = {
        step.link.name for zone in facts.links for step in facts.steps(zone) for one in step.operations
        if isinstance(one, Map) and one.examples
    } if composition.keepers else set()  # fmt: skip
    shown = [f"what {name} takes from examples" for name in sorted(takers)]
    return [Reveals(what, everybody, voids=True, note=wording.OF_EXAMPLES) for what in shown]


class Charging:
    """Enters rounds into the ledger. The server remembers the last round's zone sizes, for rounds whose sizes nobody
    could tell.

    Attributes:
        owed: round and clients of uploads that were asked for and are not in the ledger yet.
    """

    def __init__(self, recipe: Recipe, composition: Composition, server: Server, ledger: Ledger, size: int) -> None:
        self.recipe, self.composition, self.server = recipe, composition, server
        self.ledger, self.size = ledger, size
        self.sealed = dict(ledger.encryption)
        self.owed: tuple[int, list[int]] | None = None
        self._begun: int | None = None  # the round that has begun and has released nothing so far
        self._opening = 0  # the fewest updates in a sum for which shares were asked for in this round

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
        events.subscribe(Published, self._published, first=True)

    def _joined(self, event: SetUpDone) -> None:
        """Whatever a site lets others know is shown to the server, and only then."""
        if count := len(self.server.remembered.classes):
            self.ledger.reveals.append(class_counts_of(count, self.recipe.clients))

    def _state(self, round: int) -> None:
        """Enters what components say of this round that they show."""
        for group, _ in self._told_alike(range(self.recipe.data.clients)):
            for shown in reveals_of(self.recipe, self.composition, self._at(round, group)):
                self._show(shown)

    def _show(self, shown: Reveals) -> None:
        if shown not in self.ledger.reveals:
            self.ledger.reveals.append(shown)

    def _published(self, event: Published) -> None:
        """What nothing pays for ends the guarantee of everybody who learns it: operations may follow from it. Nor does
        an epsilon pay for what a component publishes that adds no noise.
        """
        facts = self._at(event.round)
        paid = event.covered_by != "epsilon" or _pays(facts.component(event.component), facts)
        if event.covered_by is None or not paid:
            everybody: tuple[Party, ...] = ("server", "key_holder", "client", "released_model")
            shown = Reveals(f"what {event.component} publishes", everybody, voids=True, note=wording.OF_PUBLISHED)
            self._show(shown)

    def _withheld(self, event: SumWithheld) -> None:
        """A party that says that it opened another sum before can be right of a repeated round, and of no other."""
        if event.round in self.server.remembered.repeated and event.zone in self.ledger.sealed:
            self.ledger.note_unopened(event.round, event.zone)

    def _asking(self, event: Asking) -> None:
        """Clients that are asked pay: for ballots at once, for an upload when its zones' sizes are known."""
        self._state(event.round)
        if event.what == "ballots":
            self.charge_ballots(event.round, event.clients)
        elif event.what == "opening":
            self._opening = min(len(event.clients), self._opening or len(event.clients))
        else:
            self._opening = 0
            self.owed = event.round, list(event.clients)

    def _released(self, event: Released) -> None:
        """Enters into the ledger what each zone's chain released this round."""
        sent = {zone for zone, size in event.zone_sizes.items() if size}
        secret = not event.exposed and sent <= self.amplified(event.round)
        self.server.remembered.zone_sizes = dict(event.zone_sizes)
        self.server.remembered.secret_cohort = secret
        shared = self._shared & sent
        closed = shared - event.contributors.keys()
        # Of several groups one may have opened its sum, and another been asked for shares in vain.
        few = self._opening
        asked = {zone: min(event.contributors.get(zone, few), few) for zone in shared} if few else {}
        self.enter(self.ledger, event.round, event.charged, event.zone_sizes, secret, closed=closed,
                   contributors={**event.contributors, **asked}, weights=event.weights)  # fmt: skip
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
        facts = self._at(event.round)
        stated = stated_in(facts.steps(zone) for zone in self.composition.links)
        stated += [(f"the ballots of {name}", given) for name, given in self.composition.ballots(facts)]
        for _, problem in curve_problems(stated, self.ledger.curves):
            raise Misplaced(f"round {event.round + 1}: {problem}")
        if sealed(self.recipe, {zone: facts.steps(zone) for zone in self.composition.links}, facts) != self.sealed:
            raise Misplaced(f"round {event.round + 1}: a zone is closed on other terms than before round 1")
        self._state(event.round)  # the round may end before anybody is asked for what costs
        self._begun = event.round

    def charge_ballots(self, round: int, charged: Sequence[int], again: bool = False) -> None:
        """Enters what clients send with noise before their uploads; those that are asked for it pay.

        Reproducible noise repeats the very same ballots, which cost nothing more where a round is run `again`.
        """
        facts = self._at(round)
        asking = self.composition.ballots(facts)
        releases = {f"ballots of {name}": releases_of(name, given) for name, given in asking}
        if releases and not (again and not _is_new(releases)):
            sizes = dict.fromkeys(releases, float(self.size))
            self.ledger.record(round, charged=charged, zone_sizes=sizes, total=self.size, releases=releases)

    @property
    def _shared(self) -> set[str]:
        """The zones whose sums only the shares of several clients open."""
        return {zone for zone, holder in self.ledger.key_holders.items() if holder == "shares"}

    def public(self) -> str:
        """What has been published, and to which groups, in hex; empty where nothing has since the set-up."""
        memory = self.server.remembered
        since = any(round >= 0 for told in memory.published.values() for round in told)
        return codec.encode([memory.groups, memory.published]).hex() if since else ""

    def lost_round(
        self, round: int, charged: list[int], opening: int = 0, last: bool = True, public: str = ""
    ) -> None:
        """Charges a round that was cut off after uploads had been asked for, and is now repeated with other noise.

        Reproducible noise repeats the very same upload, which costs nothing more. A sum that only shares open was not
        opened before somebody was asked for them.

        Args:
            round: 0-based.
            charged: who was asked to upload.
            opening: the fewest updates in a sum for which shares were asked for; 0 where nobody was.
            last: whether no later round was cut off with it.
            public: as `public` gave it when the uploads were asked for: they went by that.
        """
        memory = self.server.remembered
        memory.repeated = sorted({*memory.repeated, round})
        now = memory.groups, memory.published
        if public:
            memory.groups, memory.published = codec.decode_saved(bytes.fromhex(public))
        releases = self.releases(round, next(iter(memory.groups), "all"))
        if _is_new(releases) or self.accounts(round, charged):
            self._unseen(self.ledger, round, charged, releases, opening, repeated=last)
        memory.groups, memory.published = now

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
        self._unseen(ledger, round, charged, self.releases(round) if known else self.recipe.protect, self._opening)

    def _unseen(
        self, ledger: Ledger, round: int, charged: list[int], zones: Iterable[str], opening: int, repeated: bool = False
    ) -> None:
        """Charges uploads whose zone sizes nobody stated: they are those of the round before, except that those of
        `zones` that were empty there count as the whole model, since plans change.
        """
        remembered = self.server.remembered
        sizes = {zone: size for zone, size in remembered.zone_sizes.items() if size}
        secret = remembered.secret_cohort
        if secret is None:
            secret = set(self.recipe.protect) <= self.amplified(round)
        sizes = {**dict.fromkeys(zones, float(self.size)), **sizes}
        shared = self._shared & sizes.keys()
        theirs = {c: remembered.weights.get(c, 1.0) for c in charged} if opening else NOTHING
        self.enter(
            ledger, round, charged, sizes, secret, closed=() if opening else shared,
            contributors=dict.fromkeys(shared, opening), weights=theirs, repeated=repeated,
        )  # fmt: skip

    def enter(
        self, ledger: Ledger, round: int, charged: Sequence[int], sizes: Mapping[str, float], secret: bool = False, *,
        contributors: Mapping[str, int] = NOTHING, weights: Mapping[int, float] = NOTHING,
        accounts: Mapping[str, Mapping[int, Iterable[float]]] | None = None, closed: Iterable[str] = (),
        repeated: bool = False,
    ) -> None:  # fmt: skip
        """Enters what each zone's chain releases in a round; the rest as in `Ledger.record`.

        `accounts` are by default those that the clients told.
        """
        if accounts is None:
            accounts = self.accounts(round, self.server.remembered.accounts if secret else charged)
        for group, some in self._told_alike(charged):
            freed = {zone: known.freed for zone, known in self._behind(round, group).items()}
            resting = self.recipe.resting(round)
            if remembered(self._at(round, group)):  # clients that took part before may be in what is released now
                some, resting = range(ledger.num_clients), frozenset()
            ledger.record(
                round, charged=some, zone_sizes=sizes, total=self.size, releases=self.releases(round, group),
                contributors=contributors, weights={c: weights[c] for c in some if c in weights},
                secret_cohort=secret, accounts=accounts, freed=freed, closed=closed, repeated=repeated,
                resting=resting, arrived=self._arrived(round), public=self._public(round, group),
            )  # fmt: skip

    def _public(self, round: int, group: str) -> frozenset[str]:
        """The zones whose uploads of a round are public: nobody's examples were read in training, the server may know
        the model that updates follow from, and no link adds what follows from data, or from values of other rounds.
        """
        facts = self._at(round, group)
        trainer: Trainer = facts.component(self.recipe.train.name)
        with of_component(trainer.name, "reads_examples"):
            if trainer.reads_examples(facts):
                return frozenset()
        steps = {zone: facts.steps(zone) for zone in facts.links}
        hidden = any(not closed.sums_seen_by_server for closed in self.ledger.encryption.values())
        merged = any(step.link.site == "client" and step.link.hook == "postprocess" and step.has(Map)
                     for chain in steps.values() for step in chain)  # fmt: skip
        if hidden or merged:
            return frozenset()
        alone = {zone for zone, chain in steps.items() if not any(
            isinstance(one, Map | Post) or (isinstance(one, Noise) and (one.sample or one.size))
            for step in chain if step.link.hook == "protect" for one in step.operations
        )}  # fmt: skip
        return frozenset(alone - remembered(facts) - correlated(facts, "client", "server", "key_server"))

    def _told_alike(self, charged: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
        """The clients of a round by what has been published to them: one of their groups, and who they are."""
        memory = self.server.remembered
        told: dict[bytes, list[str]] = {}
        for group in memory.groups:
            told.setdefault(codec.encode(published_to(memory.published, group)), []).append(group)
        if len(told) < 2:
            yield next(iter(memory.groups), "all"), charged
            return
        for groups in told.values():
            members = {client_id for group in groups for client_id in memory.groups[group]}
            if some := [client_id for client_id in charged if client_id in members]:
                yield groups[0], some

    def _arrived(self, round: int) -> dict[int, float]:
        """The weights of the clients whose uploads came in a round, where noise continues from round to round."""
        remembered = self.server.remembered
        return {c: remembered.weights.get(c, 1.0) for c, last in remembered.noised.items() if last == round}

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

    def releases(self, round: int, group: str = "all") -> dict[str, list[Release]]:
        """The noises of each zone's links in a round that count, as the fold of their operations has them."""
        behind = self._behind(round, group)
        return {zone: self._exact(zone, known, round, group) for zone, known in behind.items() if known.releases}

    def _exact(self, zone: str, known: Known, round: int, group: str) -> list[Release]:
        """The same, where the size of noise follows from public scores, with what these make of it in this round."""
        releases, facts = list(known.releases), self._at(round, group)
        for step in facts.steps(zone):
            for operation, before in zip(step.operations, step.states, strict=False):
                if not isinstance(operation, Noise) or operation.size is None:
                    continue
                sized = sized_in_public(operation, before, self.server, facts)
                if sized is None:
                    continue
                number, least = len(before.releases), operation.at_least or 0.0
                now = before.after(settled(sized, before, facts)).releases[-1]
                exact, note = now.noise_multiplier * _MACHINES, operation.note
                if exact > least:
                    note = "; ".join(filter(None, [note, f"{wording.AFTERWARDS}: a multiplier of {least:.4g}"]))
                releases[number] = dataclasses.replace(
                    releases[number], noise_multiplier=max(least, exact), step=now.step, note=note,
                )
        return releases

    def _behind(self, round: int, group: str = "all") -> dict[str, Known]:
        facts = self._at(round, group)
        behind = {zone: released(facts.steps(zone)) for zone in self.composition.links}
        return {zone: known for zone, known in behind.items() if known is not None}

    def _at(self, round: int, group: str = "all") -> Facts:
        now, published = self.server.facts, published_to(self.server.remembered.published, group)
        told = in_force(published, round)
        if now.round == round and (now.published is told or not (now.published or told)):
            return now
        return dataclasses.replace(now, round=round, published=told)


def class_counts_of(count: int, clients: int) -> Reveals:
    """What the server is shown by so many sites that let it know how many examples of each class they have."""
    note = wording.OF_CLASSES.format(count=count, clients=clients)
    return Reveals("class counts", ("server",), voids=True, note=note)


def believed(component: Component, facts: Facts) -> list[Reveals]:
    """What a component says that it shows, where epsilon covers no reply that `_pays` does not."""
    why = f"not covered by epsilon, as {component.name} says: its replies are no ballots with noise"
    return [
        shown if shown.covered_by != "epsilon" or not shown.asked or _pays(component, facts)
        else dataclasses.replace(shown, covered_by=None, note=f"{shown.note}; {why}" if shown.note else why)
        for shown in stated_reveals(component, facts)
    ]  # fmt: skip


def _pays(component: Any, facts: Facts) -> bool:
    """Whether epsilon covers what a component shows besides uploads: the core looks at what ballots with noise are
    made of; a sealer that adds noise is believed where its seal is.
    """
    if not isinstance(component, Ballots):
        steps = (step for zone in facts.links for step in facts.steps(zone) if step.link.name == component.name)
        return isinstance(component, Sealer) and any(step.has(Noise) for step in steps)
    key = f"ballots of {component.name} in some round"  # they follow from options and the round
    if key not in facts._memo:
        facts._memo[key] = any(ballots_of(component.name, facts.at(round)) for round in range(facts.rounds))
    return bool(facts._memo[key])


def releases_of(name: str, operations: Operations) -> list[Release]:
    """What ballots cost each client that was asked for one; of operations as they are executed."""
    return list(Known(zone="ballots", link=name).after(*operations).releases)


def _is_new(releases: Mapping[str, list[Release]]) -> bool:
    """Whether the noise of a round that is run again is other noise than before."""
    return any(release.source != "reproducible" for chain in releases.values() for release in chain)
