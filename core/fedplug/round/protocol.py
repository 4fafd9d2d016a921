"""A protocol: one loop over the hooks.

    round:  tell train                      at every client of the cohort: train, score
            groups                          at the server, where the recipe forms groups with a model each
            negotiate_mask, per group       at the server, driving the clients; every client has a plan
            prepare, per group              at the server: what uploads need in addition to a plan, such as fresh keys
            ask protect                     at every client: cut the update into zones, protect each
            aggregate, per group and zone   at the server, which holds no secret key
            postprocess                     at the key server or the server; at each client with the next message
            tell adopt                      at every client: move the global model, and merge the personal model
            tell evaluate                   travels with the next round's first message, as does adopt

What the server knows of the model is what came in messages; accuracy is counted by the clients. What happens is told as
events (`fedplug.api.events`): the ledger, the metrics, checkpoints and the console listen, and none is named here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from fedplug.api import codec
from fedplug.api.blocks import Block, Layout
from fedplug.api.cohort import Cohort
from fedplug.api.component import remote_method
from fedplug.api.data import Model, PublicData
from fedplug.api.errors import OpenedBefore, ProtectionError, TooFewClients, of_component
from fedplug.api.events import (
    Asking,
    Events,
    MessageUncovered,
    ModelDelivered,
    Negotiated,
    Published,
    Released,
    RoundClosed,
    RoundStarted,
    SetUpDone,
    Uploaded,
    Watcher,
)
from fedplug.api.facts import Facts, published_to, with_published
from fedplug.api.links import ballots_of, correlated
from fedplug.api.operations import Cover, Noise
from fedplug.api.records import one_line
from fedplug.api.roles import Ballots, Component, Groups, Negotiation, stated_reveals
from fedplug.api.streams import stream
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug.round.hosted import HostedServer
from fedplug.round.server_model import ServerModel, wants_model
from fedplug.round.set_up import SetUp
from fedplug.round.steps import Steps, needs_key_server
from fedplug.round.sums import Arrivals, Skips, Sums
from fedplug.round.uploads import UploadRules, mean_of_buffers, read_fingerprint
from fedplug.wire.post_office import KeyServerCalls, PostOffice, ServerClock, Transport


def sample(recipe: Recipe, client_ids: Sequence[int], round: int) -> list[int]:
    """The clients of a round: all, each by its coin (poisson), a fixed share (fixed), or in turn (cyclic).

    Where the rest sends noise in the rounds of others, all are in every round; see `Recipe.resting`.
    """
    sampling = recipe.sampling
    if sampling is None:
        return list(client_ids)
    if sampling.scheme == "cyclic":
        return list(client_ids) if sampling.resting == "noise" else sampling.cohort(recipe.seed, client_ids, round)
    # Amplification needs a cohort that nobody can predict, so the system's randomness is the default.
    secure = sampling.source == "secure"
    rng = random.SystemRandom() if secure else stream(recipe.seed, "cohort", round)
    coins = {client_id: rng.random() for client_id in client_ids}
    if sampling.scheme == "poisson":
        return [c for c in sampling.cohort(recipe.seed, client_ids, round) if coins[c] < sampling.coin]
    count = max(1, int(sampling.rate * len(client_ids) + 0.5))
    return sorted(sorted(coins, key=coins.__getitem__)[:count])


def uncovered(composition: Composition, office: PostOffice, facts: Facts) -> Iterator[MessageUncovered]:
    """Questions of components whose answers none of them says anything about, or that are not paid for."""
    for name, method in sorted(office.told):
        component = facts.components.get(name) or composition.components.get(name)  # an extension is in no facts
        if component is not None and not any(method in shown.asked for shown in stated_reveals(component, facts)):
            whom = "clients" if remote_method(component, method, "client") else "the key server"
            yield MessageUncovered(name, method, f"asks {whom} for {method}, and says nowhere what the answers show")
    for name, method in _unpaid(composition, office, facts):
        what = f"has clients answer {method} more often in a round than its ballots are charged"
        yield MessageUncovered(name, method, what)


def _unpaid(composition: Composition, office: PostOffice, facts: Facts) -> Iterator[tuple[str, str]]:
    """Ballots of which a client gave more in this round than the ledger enters: one where noise is stated."""
    for (name, method), most in office.most_answers().items():
        if not isinstance(composition.components.get(name), Ballots | Negotiation | Groups):
            continue
        shown = stated_reveals(facts.component(name), facts)
        paid = any(each.covered_by == "epsilon" and method in each.asked for each in shown)
        if paid and most > bool(ballots_of(name, facts)):
            yield name, method


class Delivery:
    """Hands out what the clients of a round sent together.

    Args:
        sums: opens them.
        server_model: moves with what the server can read of them.
    """

    def __init__(self, sums: Sums, server_model: ServerModel) -> None:
        self.sums, self.server_model = sums, server_model
        self.recipe, self.composition = sums.recipe, sums.composition

    def of(
        self, cohort: Cohort, asked: list[int], arrivals: Arrivals, sums: dict[str, dict[str, Block]],
        clock: ServerClock,
    ) -> tuple[dict[str, int], bool]:  # fmt: skip
        """Opens each group's sums and has its clients adopt them.

        Returns:
            For each zone that was opened, the fewest clients behind any value; whether something other than the values
            shows who took part.
        """
        server, arrived = arrivals.server, arrivals.arrived
        weights = server.remembered.weights
        contributors: dict[str, int] = {}
        # Groups, positions, batch-norm statistics, and plans that follow from data or from who takes part: all of them
        # show who takes part, whatever noise the values have.
        shares_buffers = self.recipe.buffers == "mean"
        exposed = shares_buffers
        for group, part in ((group, cohort.group(group)) for group in sums):
            replies = {client_id: arrived[client_id] for client_id in part.client_ids if client_id in arrived}
            if len(replies) < self.recipe.min_clients:
                if set(part.groups[group]) & set(asked):
                    self.sums.skip(f"the sum of group {group}", f"clients that sent an update: {len(replies)}")
                continue
            server.cohort, facts = part.only(sorted(replies)), arrivals.facts[group]
            exposed |= facts.plan is None
            self.server_model.show(group)
            senders = {zone: [c for c, upload in replies.items() if zone in upload.sizes] for zone in sums[group]}
            # Nothing was sent: each client has kept all of its update, and makes its own model of that.
            kept = not sums[group]
            opened = self.sums.open(group, sums[group], senders, weights, facts, clock, contributors)
            self.server_model.move(group, opened)
            exposed |= len(cohort.groups) > 1 or any(block.positions is not None for block in opened.values())
            if opened or kept:
                buffers = None
                if shares_buffers:
                    theirs = {c: upload.buffers for c, upload in replies.items() if upload.buffers is not None}
                    buffers = mean_of_buffers(theirs, weights)
                # A client that opens a sum with its own key remembers whose uploads are in it.
                sealed = {zone for zone, block in opened.items() if block.sealed_by not in (None, Steps.name)}
                behind = {zone: senders[zone] for zone in sorted(sealed)}
                part.tell(self.sums.steps.adopt, opened, buffers, group, behind)
        # What a component does with answers of those who take part may follow from who they are.
        exposed |= bool(self.sums.office.answered() & self.composition.components.keys())
        # Who was in the round decides, too, whether enough of them helped to open a sum.
        return contributors, exposed or self.sums.skips.last == self.sums.office.round


T = TypeVar("T")


class Protocol:
    """Runs a recipe on an engine.

    Args:
        recipe, composition: the server's own copies.
        engine: runs the other parties.
        layout: of the model, which is public.
        wire: records messages.
        events: told of everything that happens.
        model: of the recipe, which is public; the server keeps a copy where a component needs one.
        public: the examples that everybody has.
    """

    def __init__(
        self,
        recipe: Recipe,
        composition: Composition,
        engine: Transport,
        layout: Layout,
        wire: Watcher,
        events: Events,
        model: Model,
        public: PublicData | None = None,
    ) -> None:
        self.recipe, self.composition, self.engine = recipe, composition, engine
        self.layout, self.wire, self.events = layout, wire, events
        self.server, self.public = HostedServer(), public
        self.server_model = ServerModel(self.server, model if wants_model(composition) else None)
        self.steps = Steps(recipe, composition)
        self.client_ids = list(range(recipe.data.clients))
        self.office = PostOffice(engine, wire, recipe.digest, self.client_ids, recipe.min_clients, events)
        self._facts: dict[str, Facts] = {}
        self._published = -1  # the last round in which something was published that no epsilon covers
        self.facts(-1)
        self.key_server = KeyServerCalls(self.office)
        self.skips = Skips(recipe, self.server, self.office)
        self.office.heard = self.skips.heard
        self.sums = Sums(recipe, composition, self.server, self.steps, self.office, self.key_server, events, self.skips)
        self.delivery = Delivery(self.sums, self.server_model)
        self.rules = UploadRules(recipe, composition, layout.size, model.get_buffers())

    def run(self, first_round: int = 0) -> None:
        """Runs the rounds from `first_round` on, and the end of the run. `setup` must have been done."""
        for round in range(first_round, self.recipe.rounds):
            self.round(round)
        self.finish()

    def setup(self) -> None:
        """What happens once, before round 1; see `SetUp`."""
        self._attach()
        self.begin(-1, "setup")
        facts = self.facts(-1)
        SetUp(self.composition, self.steps, self.office, self.key_server).run(self.cohort(self.client_ids), facts)
        # Now: the checkpoint of the set-up must hold it, since a resumed run does not ask again.
        self._note_uncovered(self.facts(-1).at(0))
        self.events.tell(SetUpDone())

    # -- a round -------------------------------------------------------------------------------------------------------

    def round(self, round: int) -> None:
        """One round of the protocol."""
        clock = ServerClock(self.office, self.key_server)
        self.begin(round, "negotiate")
        facts = self.facts(round)
        cohort = self.cohort(sample(self.recipe, self.client_ids, round))
        asked = cohort.client_ids
        if len(asked) < self.recipe.min_clients:
            drawn = f"clients drawn: {len(asked)}, min_clients is {self.recipe.min_clients}"
            self._skip(cohort, asked, drawn, clock)
            return
        self.events.tell(RoundStarted(round))
        try:
            self._plan(cohort, facts, clock)
            charged = cohort.client_ids  # clients that are asked to upload pay, also if the upload is then lost
            arrivals, sums = self._collect(cohort, facts, clock)
        except (TooFewClients, OpenedBefore) as error:
            why = one_line(str(error)) if isinstance(error, OpenedBefore) else self.skips.fell_short(error)
            self._note_uncovered(facts)
            self.server_model.hide()
            self._skip(cohort, asked, why, clock)
            return
        arrived = arrivals.arrived
        contributors, exposed = self.delivery.of(cohort, asked, arrivals, sums, clock)
        exposed |= self._published == round
        self.server.cohort = None
        self._note_uncovered(facts)
        shares = {client_id: self.server.remembered.weights[client_id] for client_id in sorted(arrived)}
        self.events.tell(Released(round, tuple(charged), shares, arrivals.sizes(), contributors, exposed))
        self.server_model.hide()
        self.skips.held(round)
        self.events.tell(
            RoundClosed(round, tuple(asked), tuple(sorted(arrived)), clock.seconds(), clock.own(), cohort.groups)
        )

    def _plan(self, cohort: Cohort, facts: Facts, clock: ServerClock) -> None:
        """The cohort trains and negotiates: every client that is left has a plan.

        Raises:
            TooFewClients: fewer than `min_clients` are left.
            OpenedBefore: it had a sum opened, and the party that opens it has opened another one in this round.
        """
        asked, groups = cohort.client_ids, cohort.groups
        if facts.round:
            self._tell_evaluate(cohort)
        cohort.tell_now(self.steps.train)
        if self.composition.ballots(facts):
            self.events.tell(Asking(facts.round, tuple(asked), "ballots"))
            self.server.balloting = frozenset(asked)
        try:
            with clock("negotiate"):
                self.negotiate(cohort, facts)
        finally:
            self.server.balloting = frozenset()
            self._note_uncovered(facts)  # now: the round may end before its uploads are entered
        for name, operations in self.composition.ballots(facts):
            noises = [one for one in operations if isinstance(one, Noise) and one.trust == "central"]
            if noises and not self.server.released.get((facts.round, name)):
                raise ProtectionError(
                    f"component {name}: its ballots of round {facts.round + 1} have noise that the server adds, and it "
                    "added none; use what cohort.server.release(self, values) gives"
                )
        self.events.tell(Negotiated(facts.round, tuple(asked), groups))
        self.office.require(len(cohort))

    def _collect(
        self, cohort: Cohort, facts: Facts, clock: ServerClock
    ) -> tuple[Arrivals, dict[str, dict[str, Block]]]:
        """The cohort uploads: what arrived, and the sums of each group by zone, still closed.

        Raises:
            TooFewClients: fewer than `min_clients` uploads can be used. The server has seen those that came, so they
                are entered into the ledger all the same.
        """
        self.office.phase = "upload"
        groups, charged = cohort.groups, cohort.client_ids
        self.events.tell(Asking(facts.round, tuple(charged), "upload"))
        asked_of = {group: cohort.group(group).client_ids for group in groups}
        noised, goes_on = self.server.remembered.noised, bool(correlated(self.facts(facts.round), "client"))
        if goes_on:
            cohort.tell_each_now(self.steps.goes_on, {c: noised[c] for c in charged if c in noised})
        arrivals = Arrivals(
            self.composition, self.office, self.rules, self.server_model, self.server,
            lambda group: self.facts(facts.round, group), clock, asked_of,
        )  # fmt: skip
        cohort.gather(self.steps.protect, arrivals.take, arrivals.done)
        noised |= dict.fromkeys(arrivals.arrived, facts.round) if goes_on else {}
        self.events.tell(Uploaded(facts.round, groups))
        for client_id, upload in sorted(arrivals.arrived.items()):
            if upload.unasked:
                also = f"the upload of client {client_id} holds {upload.unasked}"
                self.events.note(f"round {facts.round + 1}: {also}; it is ignored")
        sizes = arrivals.sizes()  # of those too that turn out to be odd
        try:
            self.office.require(len(arrivals.arrived))
            sums = {group: arrivals.close(group) for group in groups}
            self.office.require(len(arrivals.arrived))
        except (TooFewClients, OpenedBefore):
            if any(sizes.values()):
                self.events.tell(Released(facts.round, tuple(charged), {}, sizes, {}, True))
            raise
        finally:
            self.server.uploads = {}  # a link behind noise on the sum could put what it finds there over it
        return arrivals, sums

    def _note_uncovered(self, facts: Facts) -> None:
        for told in uncovered(self.composition, self.office, facts):
            self.events.tell(told)

    def _skip(self, cohort: Cohort, asked: list[int], why: str, clock: ServerClock) -> None:
        """Ends a round without a sum: nothing is released, the model stays."""
        round = self.office.round
        self.events.note(f"round {round + 1}: {why}; it is skipped")
        self.events.tell(RoundClosed(round, tuple(asked), (), clock.seconds(), clock.own(), cohort.groups, why))

    def negotiate(self, cohort: Cohort, facts: Facts) -> None:
        """Forms groups, where the recipe says so, and has each negotiate its plans and prepare its uploads.

        A group that loses too many clients meanwhile is left out of this round; the others continue.
        """
        if self.recipe.groups:
            former = self.composition.part(self.recipe.groups.name, Groups)
            with of_component(former.name, "form_groups"):
                former.form_groups(cohort.of(former), facts)
            self.forget_facts()
        groups = [name for name in cohort.groups if cohort.group(name).client_ids]
        for name in groups:
            part = cohort.group(name)
            facts = self.facts(facts.round, name)
            try:
                negotiation = self.composition.negotiation
                own = part.of(negotiation)
                self.composition.one("negotiate_mask", negotiation.name, cohort=own, facts=facts)
                for component in self.composition.components.values():
                    with of_component(component.name, "prepare"):
                        component.prepare(part.of(component), self.facts(facts.round, name))
            except (TooFewClients, OpenedBefore) as error:
                if len(groups) == 1:
                    raise
                short = f"too few clients of group {name} are left: " if isinstance(error, TooFewClients) else ""
                for client_id in part.client_ids:
                    self.office.drop(client_id, f"{short}{error}")

    # -- after the last round ------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Delivers the last aggregate to every client and hears how the final model does."""
        clock = ServerClock(self.office, self.key_server)
        self.begin(self.recipe.rounds, "finish")
        everyone = self.cohort(self.client_ids)
        self._tell_evaluate(everyone)
        digests = self.office.usable(everyone.ask(self.steps.fingerprint), lambda _, digest: read_fingerprint(digest))
        for group, ids in everyone.groups.items():
            if len({digests[c] for c in ids if c in digests}) > 1:
                self.events.note(f"the clients of group {group} ended with different models")
        self.events.tell(ModelDelivered(everyone.groups, clock.seconds(), clock.own()))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def begin(self, round: int, phase: str) -> None:
        """Messages from here on belong to this round and phase."""
        self.office.begin_round(round)
        self.office.phase = phase

    def _attach(self) -> None:
        """Those who subscribed before, such as the ledger, hear of everything before the sections of the recipe do."""
        for section in self.recipe.sections.values():
            section.attach(self)

    def cohort(self, client_ids: list[int]) -> Cohort:
        """These clients, as a cohort whose tells reach everybody."""
        return Cohort(self.office, self.server, client_ids, self.client_ids, self.key_server, self.publish)

    def facts(self, round: int, group: str = "all") -> Facts:
        """The facts of a round for a group, which the server goes by from here on."""
        known = self._facts.get(group)
        if known is None or known.round != round:
            published = published_to(self.server.remembered.published, group)
            known = self._facts[group] = facts_of(self.composition, self.layout, round, self.public, published)
        self.server.facts = known
        return known

    def publish(self, cohort: Cohort, component: Component, values: Mapping[str, Any], covered_by: Any) -> None:
        """Makes values of a component public facts for the groups of a cohort; see `Cohort.publish`.

        Raises:
            ValueError: another component was handed the cohort, or nothing pays in that word. Or it is a part of a
                group: facts are the same for all of it. Or uploads are on their way: they go by what was public before.
        """
        if self.office.phase in ("upload", "open"):
            raise ValueError(
                f"{component.name} publishes after uploads were asked for, which go, and are priced, by what was known "
                "before; publish in setup, form_groups, negotiate_mask or prepare"
            )
        if component.name != cohort.owner:
            raise ValueError(f"{component.name} publishes by a cohort that {cohort.owner or 'nobody'} was handed")
        if covered_by not in (None, *get_args(Cover)):
            covers = ", ".join(map(repr, get_args(Cover)))
            raise ValueError(f"{component.name}: publish(covered_by={covered_by!r:.60}); it must be None, {covers}")
        values = codec.decode(codec.encode(dict(values)))  # as the clients get them, so that all have the same
        memory, round, reached = self.server.remembered, self.office.round, cohort.reach
        groups = [group for group, ids in cohort.groups.items() if reached.issuperset(ids)]
        if len(reached) != sum(len(cohort.groups[group]) for group in groups):
            raise ValueError(f"{component.name} publishes to a part of a group; use the cohort that it is handed")
        for group in groups:
            before = published_to(memory.published, group)
            memory.published[group] = with_published(before, round, component.name, values)
        cohort.tell(self.steps.hear, component.name, values)
        if needs_key_server(self.composition):
            self.key_server.ask(self.steps.hear_all, groups, component.name, values)
        self.forget_facts()
        self.facts(round, groups[0])
        if covered_by != "epsilon":  # it may tell who takes part
            self._published = round
        self.events.tell(Published(round, tuple(groups), component.name, values, covered_by))

    def forget_facts(self) -> None:
        """What is public has changed."""
        self._facts.clear()

    def _tell_evaluate(self, cohort: Cohort) -> None:
        judge = self.steps.evaluation
        for members in map(cohort.group, cohort.groups) if judge else ():
            members.tell_now(self.steps.evaluate, judge.packed(members.client_ids))

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything the server needs after a restart; plain data, without any key that opens ciphertexts."""
        return {"server": self.server.to_plain(), "office": self.office.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`; raises one error or another where it is not what `state` gives."""
        self._attach()
        self.server.restore(state["server"])
        self.office.restore(state["office"])
