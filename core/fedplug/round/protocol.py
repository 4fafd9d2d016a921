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
from typing import TYPE_CHECKING, Any, TypeVar

from fedplug.api.context import Context, Server
from fedplug.api.errors import (
    TooFewClients,
    of_component,
)  # fmt: skip
from fedplug.api.events import (
    Asking,
    Events,
    ModelDelivered,
    Negotiated,
    Released,
    RoundClosed,
    RoundStarted,
    SetUpDone,
    Uploaded,
)  # fmt: skip
from fedplug.api.roles import Groups
from fedplug.api.types import Layout
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.arrivals import Arrivals
from fedplug.round.buffers import mean_of_buffers
from fedplug.round.contexts import make_context
from fedplug.round.sampling import sample
from fedplug.round.server_model import ServerModel, wants_model
from fedplug.round.set_up import SetUp
from fedplug.round.steps import Steps
from fedplug.round.sums import Sums
from fedplug.round.uncovered import uncovered
from fedplug.round.uploads import UploadRules, read_fingerprint
from fedplug.wire.cohort import Cohort
from fedplug.wire.key_server_line import KeyServerLine
from fedplug.wire.post_office import PostOffice, Transport
from fedplug.wire.record import Wire
from fedplug.wire.server_clock import ServerClock

if TYPE_CHECKING:
    from fedplug.api.data import PublicData
    from fedplug.api.model import Model

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
        wire: Wire,
        events: Events,
        model: Model,
        public: PublicData | None = None,
    ) -> None:
        self.recipe, self.composition, self.engine = recipe, composition, engine
        self.layout, self.wire, self.events = layout, wire, events
        self.server, self.public = Server(), public
        self.server_model = ServerModel(self.server, model if wants_model(composition) else None)
        self.context(-1)
        self.steps = Steps(recipe, composition)
        self.client_ids = list(range(recipe.data.clients))
        self.office = PostOffice(engine, wire, recipe.digest, self.client_ids, recipe.min_clients, events)
        self.key_server = KeyServerLine(self.office)
        self.sums = Sums(recipe, composition, self.steps, self.office, self.key_server, events)
        self.rules = UploadRules(recipe, composition, layout.size, model.get_buffers())

    def run(self, first_round: int = 0) -> None:
        """Runs the rounds from `first_round` on, and the end of the run. `setup` must have been done."""
        for round in range(first_round, self.recipe.rounds):
            self.round(round)
        self.finish()

    def setup(self) -> None:
        """What happens once, before round 1; see `SetUp`."""
        self.begin(-1, "setup")
        ctx = self.context(-1)
        SetUp(self.composition, self.steps, self.office, self.key_server).run(self.cohort(self.client_ids), ctx)
        # Now: the checkpoint of the set-up must hold it, since whoever goes on from there does not ask again.
        self._note_uncovered(dataclasses.replace(ctx, round=0))
        self.events.tell(SetUpDone())

    # -- a round -------------------------------------------------------------------------------------------------------

    def round(self, round: int) -> None:
        """One round of the protocol."""
        clock = ServerClock(self.office, self.key_server)
        self.begin(round, "negotiate")
        ctx = self.context(round)
        cohort = self.cohort(sample(self.recipe, self.client_ids, round))
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
        members = {group: cohort.group(group) for group in cohort.groups}
        asked_of = {group: part.client_ids for group, part in members.items()}
        arrivals = Arrivals(self.composition, self.office, self.rules, self.server_model, ctx, clock, asked_of)
        cohort.gather(self.steps.protect, arrivals.take, arrivals.done)
        self.events.tell(Uploaded(round, groups))

        weights, arrived = self.server.remembered.weights, arrivals.arrived
        contributors: dict[str, int] = {}
        # Groups, positions, batch-norm statistics, and plans that follow from data or from who takes part: all of them
        # show who takes part, whatever noise the values have.
        shares_buffers = self.recipe.buffers == "mean"
        exposed = shares_buffers or not self.composition.negotiation.plans.public
        for client_id, upload in sorted(arrived.items()):
            if upload.unasked:
                also = f"the upload of client {client_id} holds {upload.unasked}"
                self.events.note(f"round {round + 1}: {also}; it is ignored")
        sums = {group: arrivals.close(group) for group in members}
        self.office.require(len(arrived))
        for group, part in members.items():
            replies = {client_id: arrived[client_id] for client_id in part.client_ids if client_id in arrived}
            if len(replies) < self.recipe.min_clients:
                if set(part.groups[group]) & set(asked):
                    self.sums.skip(f"the sum of group {group}", f"{len(replies)} clients sent an update")
                continue
            self.server.cohort = part.only(sorted(replies))
            self.server_model.show(group)
            senders = {zone: [c for c, upload in replies.items() if zone in upload.sizes] for zone in sums[group]}
            opened = self.sums.open(group, sums[group], senders, weights, ctx, clock, contributors)
            self.server_model.move(group, opened)
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
            zone: sum(upload.sizes.get(zone, 0) for upload in arrived.values()) / len(arrived)
            for zone in self.recipe.zones
        }
        shares = {client_id: weights[client_id] for client_id in sorted(arrived)}
        self.events.tell(Released(round, tuple(charged), shares, sizes, contributors, exposed))
        self.server_model.hide()
        self.events.tell(RoundClosed(round, tuple(asked), tuple(sorted(arrived)), clock.seconds(), clock.own()))

    def _note_uncovered(self, ctx: Context) -> None:
        for told in uncovered(self.composition, self.office, ctx):
            self.events.tell(told)

    def _skip(self, round: int, asked: list[int], clock: ServerClock) -> None:
        """A round whose sample is too small for a sum: nobody is asked, nothing is released, the model stays."""
        least = self.recipe.min_clients
        self.events.note(f"round {round + 1}: {len(asked)} clients were drawn, min_clients is {least}; it is skipped")
        self.events.tell(RoundClosed(round, tuple(asked), (), clock.seconds(), clock.own()))

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
        digests = self.office.usable(everyone.ask(self.steps.fingerprint), lambda _, digest: read_fingerprint(digest))
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
