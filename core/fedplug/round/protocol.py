"""A protocol: one loop over the hooks.

    round:  tell train                      at every client of the cohort: train, score
            groups                          at the server, where the recipe forms groups with a model each
            negotiate_mask, per group       at the server, driving the clients; every client has a plan
            ask protect                     at every client: cut the update into zones, protect each
            aggregate, per group and zone   at the server, which holds no secret key
            postprocess                     at the key server or the server; at each client with the next message
            tell adopt                      at every client: move the global model, and merge a model of its own
            tell evaluate                   travels with the next round's first message, as does adopt

What the server knows of the model is what came in messages; accuracy is counted by the clients. What happens is told as
events (`fedplug.api.events`): the ledger, the metrics, checkpoints and the console listen, and none is named here.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from fedplug.api.blocks import fewest_in, share_divisors
from fedplug.api.context import Context, Server, stream, watch_streams
from fedplug.api.errors import (
    ClientError,
    FedplugError,
    MessageError,
    OpenedBefore,
    ProtectionError,
    Refusal,
    TooFewClients,
    of_component,
)  # fmt: skip
from fedplug.api.events import (
    Asking,
    Events,
    MessageUncovered,
    ModelDelivered,
    Negotiated,
    Released,
    RoundClosed,
    RoundStarted,
    SetUpDone,
    SumWithheld,
    Uploaded,
    ZoneOpened,
)  # fmt: skip
from fedplug.api.links import amplified, locked, seal_of, stated_bounds
from fedplug.api.party_memory import ServerMemory
from fedplug.api.roles import Groups, RecordTrainer, Sealer
from fedplug.api.types import Block, Layout
from fedplug.api.views import Wire
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round import borders
from fedplug.round.buffers import mean_of_buffers
from fedplug.round.known_model import KnownModel, wants_model
from fedplug.round.parties import make_context
from fedplug.round.steps import Steps, weight_of
from fedplug.round.uploads import Upload, UploadRules, read_dealt, read_fingerprint, read_hello, unlike
from fedplug.wire.cohort import Cohort, KeyServerLine, PostOffice, Transport
from fedplug.wire.server_clock import ServerClock

if TYPE_CHECKING:
    from fedplug.api.model import Model
    from fedplug.api.types import PublicData

T = TypeVar("T")


class Protocol:
    """Runs a recipe on an engine.

    Args:
        recipe, composition: the server's own copies.
        engine: runs the other parties.
        layout: of the model, which is public.
        wire: records messages.
        events: told of everything that happens.
        model: of the recipe, which is public; the server keeps it where a component has `needs_model_at_server`.
        public: the examples that everybody has.
    """

    def __init__(
        self,
        recipe: Recipe,
        composition: Composition,
        engine: Transport,
        layout: Layout,
        wire: Wire,
        events: Events,
        model: Model,
        public: PublicData | None = None,
    ) -> None:
        self.recipe, self.composition, self.engine = recipe, composition, engine
        self.layout, self.wire, self.events = layout, wire, events
        self.server, self.public = Server(), public
        self.known = KnownModel(self.server, model if wants_model(composition) else None)
        self.context(-1)
        self.steps = Steps(recipe, composition)
        self.client_ids = list(range(recipe.data.clients))
        self.office = PostOffice(engine, wire, recipe.digest, self.client_ids, recipe.min_clients, events)
        self.key_server = KeyServerLine(self.office)
        self.rules = UploadRules(recipe, composition, layout.size, model.get_buffers())

    def run(self, first_round: int = 0) -> None:
        """Runs the rounds from `first_round` on, and the end of the run. `setup` must have been done."""
        for round in range(first_round, self.recipe.rounds):
            self.round(round)
        self.finish()

    # -- before round 1 ------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Clients join, agree on the cohort secret if a component needs one, and components make their keys."""
        self.begin(-1, "setup")
        everyone, ctx = self.cohort(self.client_ids), self.context(-1)
        aggregator, components = self.composition.aggregator, self.composition.components.values()
        wants_size = aggregator.wants.num_examples
        wants_secret = any(component.cohort_secret for component in components)
        wants_answers = any(locked(ctx.steps(zone)) for zone in self.composition.links)
        wants_key = wants_secret or wants_answers
        wants_records = isinstance(self.composition.trainer, RecordTrainer)
        weights = dict.fromkeys(self.client_ids, 1.0)
        records: dict[int, list[list[float]]] = {}
        if wants_size or wants_key or wants_records:
            told = self.recipe.rounds if wants_records else None
            hellos = self._usable(
                everyone.ask(self.steps.join, wants_key, wants_size, wants_records),
                lambda _, hello: read_hello(hello, wants_key, wants_size, told),
            )
            self._require_all(hellos)
            records = {c: hello.records for c, hello in hellos.items() if hello.records is not None}
            if wants_size:
                sizes = {c: hello.num_examples for c, hello in hellos.items() if hello.num_examples is not None}
                most = max(sizes.values())
                weights = {client_id: weight_of(aggregator, size, most) for client_id, size in sizes.items()}
                everyone.tell(self.steps.take_weight, most)
            keys = {c: hello.public_key for c, hello in hellos.items() if hello.public_key is not None}
            if wants_answers:
                answer_keys = self.key_server.ask(self.steps.deal_answer_key, keys)
                everyone.tell_each(self.steps.take_answer_key, read_dealt(answer_keys, self.client_ids, "answer key"))
            if wants_secret:
                copies = everyone.only(self.client_ids[:1]).ask(self.steps.deal, keys)
                dealt = self._usable(copies, lambda _, sealed: read_dealt(sealed, self.client_ids))
                self._require_all(dealt, self.client_ids[:1])
                everyone.tell_each(self.steps.take_secret, dealt[self.client_ids[0]])
        self.server.remembered = ServerMemory(weights=weights, records=records)
        # Keys first: others may want something encrypted in their own set-up.
        for component in sorted(components, key=lambda component: not isinstance(component, Sealer)):
            try:
                with of_component(component.name, "setup"):
                    component.setup(everyone, self.key_server, ctx)
            except TooFewClients as error:
                raise TooFewClients(f"{error}. Dropped out: {self.office.reasons()}") from error
        self._require_all(everyone.ask(self.steps.ready))  # delivers what was told, so that set-up errors show here
        self.events.tell(SetUpDone())

    def _require_all(self, replies: dict[int, Any], expected: list[int] | None = None) -> None:
        missing = sorted(set(expected or self.client_ids) - set(replies))
        if missing:
            reasons = "; ".join(f"client {c}: {self.office.dropped.get(c, 'no answer')}" for c in missing)
            raise TooFewClients(f"set-up needs every client once; missing: {reasons}")

    def _usable(self, replies: Mapping[int, Any], read: Callable[[int, Any], T]) -> dict[int, T]:
        """The replies as records. Drops the clients whose reply cannot be read.

        Args:
            replies: by client.
            read: makes a record of a client's reply; raises MessageError if it cannot.
        """
        records: dict[int, T] = {}
        for client_id, reply in replies.items():
            try:
                records[client_id] = read(client_id, reply)
            except MessageError as error:
                self.office.drop(client_id, f"its reply cannot be used: {error}")
        return records

    # -- a round -------------------------------------------------------------------------------------------------------

    def round(self, round: int) -> None:
        """One round of the protocol."""
        clock = ServerClock(self.office, self.key_server)
        self.begin(round, "negotiate")
        ctx = self.context(round)
        cohort = self.cohort(self._sample(round))
        asked, groups = cohort.client_ids, cohort.groups
        if len(asked) < self.recipe.min_clients:
            self._skip(round, asked, clock)
            return
        self.events.tell(RoundStarted(round))
        if round:
            self._tell_evaluate(cohort)
        cohort.tell_now(self.steps.train)

        if self.composition.ballots(ctx):
            self.events.tell(Asking(round, tuple(asked), "ballots"))
        try:
            with clock("negotiate"):
                self._negotiate(cohort, ctx)
        finally:
            self._note_uncovered(ctx)  # now: the round may end before its uploads are entered
        self.events.tell(Negotiated(round, tuple(asked), groups))
        self.office.require(len(cohort))
        self.office.phase = "upload"
        charged = cohort.client_ids  # whoever is asked to upload pays, also if the upload is then lost
        self.events.tell(Asking(round, tuple(charged), "upload"))
        sent = cohort.ask(self.steps.protect)
        self.events.tell(Uploaded(round, groups))

        weights = self.server.remembered.weights
        contributors: dict[str, int] = {}
        # Groups, positions, batch-norm statistics, and plans that follow from data or from who takes part: all of them
        # show who takes part, whatever noise the values have.
        shares_buffers = self.recipe.buffers == "mean"
        exposed = shares_buffers or not self.composition.negotiation.plans.public
        members = {group: cohort.group(group) for group in cohort.groups}
        stated = {zone: stated_bounds(ctx.steps(zone)) for zone in self.composition.links}
        uploads = self._usable(sent, lambda client_id, upload: self.rules.read(upload, weights[client_id], stated))
        for client_id, upload in uploads.items():
            if upload.unasked:
                also = f"the upload of client {client_id} holds {upload.unasked}"
                self.events.note(f"round {round + 1}: {also}; it is ignored")
        self.server.uploads = {client_id: dict(upload.blocks) for client_id, upload in uploads.items()}
        sums = {}
        for group, part in members.items():
            self.known.show(group)
            sums[group] = self._sum(part.client_ids, uploads, weights, ctx, clock)
        self.office.require(len(uploads))
        for group, part in members.items():
            replies = {client_id: uploads[client_id] for client_id in part.client_ids if client_id in uploads}
            if len(replies) < self.recipe.min_clients:
                if set(part.groups[group]) & set(asked):
                    self._note_skipped(f"the sum of group {group}", f"{len(replies)} clients sent an update")
                continue
            self.server.cohort = part.only(sorted(replies))
            senders = {zone: [c for c, upload in replies.items() if zone in upload.blocks] for zone in sums[group]}
            opened = self._open(group, sums[group], senders, weights, ctx, clock, contributors)
            self.known.move(group, opened)
            exposed |= len(cohort.groups) > 1 or any(block.positions is not None for block in opened.values())
            if opened:
                buffers = None
                if shares_buffers:
                    theirs = {c: upload.buffers for c, upload in replies.items() if upload.buffers is not None}
                    buffers = mean_of_buffers(theirs, weights)
                # A client that opens a sum with its own key remembers whose uploads are in it.
                sealed = {zone for zone, block in opened.items() if block.sealed_by not in (None, Steps.name)}
                part.tell(self.steps.adopt, opened, buffers, group, {zone: senders[zone] for zone in sorted(sealed)})
        self.server.uploads, self.server.cohort = {}, None
        self._note_uncovered(ctx)
        sizes = {
            zone: sum(upload.blocks[zone].size for upload in uploads.values() if zone in upload.blocks) / len(uploads)
            for zone in self.recipe.zones
        }
        shares = {client_id: weights[client_id] for client_id in uploads}
        self.events.tell(Released(round, tuple(charged), shares, sizes, contributors, exposed))
        self.known.hide()
        self.events.tell(RoundClosed(round, tuple(asked), tuple(sorted(uploads)), clock.seconds(), clock.own()))

    def _note_uncovered(self, ctx: Context) -> None:
        """Tells what components had clients answer and say nowhere that it shows anything."""
        for name, method in sorted(self.office.told):
            component = self.composition.components.get(name)
            if component is not None and not any(method in shown.asked for shown in component.reveals(ctx)):
                self.events.tell(MessageUncovered(name, method))

    def _skip(self, round: int, asked: list[int], clock: ServerClock) -> None:
        """A round whose sample is too small for a sum: nobody is asked, nothing is released, the model stays."""
        least = self.recipe.min_clients
        self.events.note(f"round {round + 1}: {len(asked)} clients were drawn, min_clients is {least}; it is skipped")
        self.events.tell(RoundClosed(round, tuple(asked), (), clock.seconds(), clock.own()))

    def _note_skipped(self, what: str, why: str) -> None:
        """Says that something is left out of this round, which goes on without it."""
        least = self.recipe.min_clients
        self.events.note(f"round {self.office.round + 1}: {what} is skipped: {why}; min_clients is {least}")

    def _note_closed(self, zone: str, why: Exception, opened_before: bool) -> None:
        """Says that a zone's sum was not opened, and whether one was in an earlier attempt at the round."""
        self.events.note(f"round {self.office.round + 1}: zone {zone} is skipped: {why}")
        if opened_before:
            self.events.tell(SumWithheld(self.office.round, zone))

    def _sum(
        self,
        client_ids: list[int],
        uploads: dict[int, Upload],
        weights: dict[int, float],
        ctx: Context,
        clock: ServerClock,
    ) -> dict[str, Block]:
        """Sums each zone of a group; a client whose upload spoils a sum is dropped, and taken out of `uploads`."""
        mine = {client_id: uploads[client_id] for client_id in client_ids if client_id in uploads}

        def leave_out(client_id: int, reason: str) -> None:
            self.office.drop(client_id, reason)
            del mine[client_id], uploads[client_id]

        while True:
            for client_id, difference in unlike(mine, self.recipe.zones).items():
                leave_out(client_id, f"its reply cannot be used: {difference}")
            sums: dict[str, Block] = {}
            try:
                with clock("aggregate"):
                    for zone in self.recipe.zones:
                        blocks = {c: upload.blocks[zone] for c, upload in mine.items() if zone in upload.blocks}
                        if blocks:
                            step = next(step for step in ctx.steps(zone) if step.link.hook == "aggregate")
                            known = dataclasses.replace(ctx, known=step.before)
                            arguments = {"blocks": blocks, "weights": weights, "ctx": known}
                            with watch_streams() as drawn:
                                total = self.composition.one("aggregate", step.link.name, **arguments)
                            problem, spoilt = borders.sum_problem(total, blocks, weights, step)
                            problem = problem or (borders.seed_problem(step) if drawn() else "")
                            if spoilt is not None:
                                raise ProtectionError(problem).blame(spoilt)
                            if problem:
                                at = f"component {step.link.name}, hook aggregate, zone {zone}"
                                raise ProtectionError(f"{at}: {problem}")
                            sums[zone] = total
                return sums
            except FedplugError as error:
                if error.client_id not in mine:
                    raise
                leave_out(error.client_id, f"its upload cannot be summed: {error}")

    def _negotiate(self, cohort: Cohort, ctx: Context) -> None:
        """Forms groups, where the recipe says so, and has each negotiate its plans.

        A group that loses too many clients meanwhile is left out of this round; the others go on.
        """
        if self.recipe.groups:
            former = self.composition.part(self.recipe.groups.name, Groups)
            with of_component(former.name, "form_groups"):
                former.form_groups(cohort, ctx)
        groups = [name for name in cohort.groups if cohort.group(name).client_ids]
        for name in groups:
            part = cohort.group(name)
            try:
                self.composition.one("negotiate_mask", self.recipe.negotiate_mask.name, cohort=part, ctx=ctx)
            except TooFewClients:
                if len(groups) == 1:
                    raise
                for client_id in part.client_ids:
                    self.office.drop(client_id, f"too few clients of group {name} are left to negotiate")

    def _open(
        self,
        group: str,
        sums: dict[str, Block],
        senders: dict[str, list[int]],
        weights: dict[int, float],
        ctx: Context,
        clock: ServerClock,
        contributors: dict[str, int],
    ) -> dict[str, Block]:
        """Runs the postprocess links of the server and the key server on a group's sums; clients run the others.

        Zones whose sum must not be opened, or does not open, are left out. `contributors` learns the fewest behind any
        value of the others. Where clients encrypt positions that others send plain, the parts meet at the key server.
        """
        ready: dict[str, Block] = {}
        # Plain sums first: what is opened at the key server takes them along.
        for zone, block in sorted(sums.items(), key=lambda item: item[1].sealed_by is not None):
            plain = [z for z, other in ready.items() if other.positions is not None and other.values is not None]
            plain = plain if block.positions is not None else []
            found = self._open_zone(group, block, senders[zone], [ready[z] for z in plain], ctx, clock)
            if found is None:
                continue
            fewest = fewest_in(block)
            contributors[zone] = min(contributors.get(zone, fewest), fewest)
            ready[zone], met = found
            for other in plain if met else []:
                del ready[other]
        for zone, block in list(share_divisors(ready).items()):
            if zone in amplified(self.recipe.sampling, ctx):
                # The weight of the clients that took part would show who they are, and so would their number: the sum
                # is divided by what their weight is on average (McMahan et al. 2018, the estimator f_f).
                rate = self.recipe.sampling.rate if self.recipe.sampling else 1.0
                block = block.replace(divisor=rate * sum(weights.values()), contributors=1)
            ready[zone] = block
            if block.values is not None:
                mean = block.mean()
                last = [step for step in ctx.steps(zone) if step.link.hook != "protect" and step.link.site != "client"]
                if problem := borders.mean_problem(mean, zone, last[-1] if last else None):
                    self._note_closed(zone, ProtectionError(problem), False)
                    del ready[zone]
                    continue
                ready[zone] = block.replace(values=mean, divisor=1.0)
            self.events.tell(ZoneOpened(ctx.round, group, ready[zone]))
        return ready

    def _open_zone(
        self, group: str, block: Block, senders: list[int], plain: list[Block], ctx: Context, clock: ServerClock
    ) -> tuple[Block, bool] | None:
        """One zone's sum as far as the server and the key server open it, and whether `plain` met it there.

        None if it stays closed.
        """
        zone, met, least = block.zone, False, self.recipe.min_clients
        steps = ctx.steps(zone)
        if block.sealed_by is not None and seal_of(steps) is not None and block.contributors < least:
            self._note_skipped(f"zone {zone}", f"its sum holds {block.contributors} updates")
            return None
        with clock("aggregate"):
            for step in steps:
                if step.link.hook != "postprocess":
                    continue
                if step.link.site == "client":
                    break
                if step.link.site == "server":
                    try:
                        block = borders.run(self.composition, step, block, ctx)
                    except ProtectionError as error:
                        self._note_closed(zone, error, isinstance(error, OpenedBefore))
                        return None
                    continue
                try:
                    opened = self.key_server.ask(self.steps.open, step.link.name, block, plain, group, senders)
                except Refusal as error:
                    self._note_closed(zone, error, error.kind == OpenedBefore.__name__)
                    return None
                if not isinstance(opened, Block) or opened.zone != zone or (not plain and opened.size != block.size):
                    self._note_closed(zone, ClientError("the key server opened its sum as something else"), False)
                    return None
                block, met = opened, bool(plain)
        return block, met

    def probe(self, round: int) -> dict[int, Any]:
        """A round as far as its uploads, which nobody sums; for parties that were taken back to a checkpoint.

        Returns:
            What the server would have received, by client.
        """
        self.begin(round, "negotiate")
        ctx, cohort = self.context(round), self.cohort(self.client_ids)
        cohort.tell_now(self.steps.train)
        self._negotiate(cohort, ctx)
        self.office.phase = "upload"
        return cohort.ask(self.steps.protect)

    # -- after the last round ------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Delivers the last aggregate to every client and hears how the final model does."""
        clock = ServerClock(self.office, self.key_server)
        self.begin(self.recipe.rounds, "finish")
        everyone = self.cohort(self.client_ids)
        self._tell_evaluate(everyone)
        digests = self._usable(everyone.ask(self.steps.fingerprint), lambda _, digest: read_fingerprint(digest))
        for group, ids in everyone.groups.items():
            if len({digests[c] for c in ids if c in digests}) > 1:
                self.events.note(f"the clients of group {group} ended with different models")
        self.events.tell(ModelDelivered(everyone.groups, clock.seconds(), clock.own()))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def begin(self, round: int, phase: str) -> None:
        """Whatever is said from here on belongs to this round and phase."""
        self.office.begin_round(round)
        self.office.phase = phase

    def cohort(self, client_ids: list[int]) -> Cohort:
        """These clients, as a cohort whose tells reach everybody."""
        return Cohort(self.office, self.server, client_ids, self.client_ids, self.key_server)

    def context(self, round: int) -> Context:
        """The server's context of a round, which it is in from here on."""
        ctx = make_context(self.recipe, self.composition, self.layout, round, self.server, self.public)
        self.server.ctx = ctx
        return ctx

    def _sample(self, round: int) -> list[int]:
        """The clients of this round: all, each with probability `rate` (poisson), or a fixed share (fixed)."""
        sampling = self.recipe.sampling
        if sampling is None:
            return self.client_ids
        # Amplification needs a cohort that nobody can predict, so the system's randomness is the default.
        secure = sampling.source == "secure"
        rng = random.SystemRandom() if secure else stream(self.recipe.seed, "cohort", round)
        coins = {client_id: rng.random() for client_id in self.client_ids}
        if sampling.scheme == "poisson":
            return [client_id for client_id, coin in coins.items() if coin < sampling.rate]
        count = max(1, int(sampling.rate * len(self.client_ids) + 0.5))
        return sorted(sorted(coins, key=coins.__getitem__)[:count])

    def _tell_evaluate(self, cohort: Cohort) -> None:
        for group in cohort.groups:
            members = cohort.group(group)
            members.tell_now(self.steps.evaluate, members.client_ids)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything the server needs to go on after a restart; plain data, without any key that opens ciphertexts."""
        return {"server": self.server.to_plain(), "office": self.office.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`; raises one error or another where it is not what `state` gives."""
        self.server.restore(state["server"])
        self.office.restore(state["office"])
