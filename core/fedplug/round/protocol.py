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

from fedplug.api.context import Context
from fedplug.api.errors import OpenedBefore, ProtectionError, TooFewClients, of_component
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
from fedplug.api.operations import Noise
from fedplug.api.roles import Groups
from fedplug.api.typed import one_line
from fedplug.api.types import Layout
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.arrivals import Arrivals
from fedplug.round.base import make_context
from fedplug.round.delivering import Delivery
from fedplug.round.hosted import HostedServer
from fedplug.round.sampling import sample
from fedplug.round.server_model import ServerModel, wants_model
from fedplug.round.set_up import SetUp
from fedplug.round.skipping import Skips
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
    from fedplug.api.types import Block

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
        self.server, self.public = HostedServer(), public
        self.server_model = ServerModel(self.server, model if wants_model(composition) else None)
        self.context(-1)
        self.steps = Steps(recipe, composition)
        self.client_ids = list(range(recipe.data.clients))
        self.office = PostOffice(engine, wire, recipe.digest, self.client_ids, recipe.min_clients, events)
        self.key_server = KeyServerLine(self.office)
        self.skips = Skips(recipe, self.server, self.office)
        self.office.heard = self.skips.heard
        self.sums = Sums(recipe, composition, self.steps, self.office, self.key_server, events, self.skips)
        self.delivery = Delivery(self.sums, self.server_model)
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
        asked = cohort.client_ids
        if len(asked) < self.recipe.min_clients:
            drawn = f"{len(asked)} clients were drawn, min_clients is {self.recipe.min_clients}"
            self._skip(cohort, asked, drawn, clock)
            return
        self.events.tell(RoundStarted(round))
        try:
            self._plan(cohort, ctx, clock)
            charged = cohort.client_ids  # whoever is asked to upload pays, also if the upload is then lost
            arrivals, sums = self._collect(cohort, ctx, clock)
        except (TooFewClients, OpenedBefore) as error:
            why = one_line(str(error)) if isinstance(error, OpenedBefore) else self.skips.fell_short(error)
            self._note_uncovered(ctx)
            self.server_model.hide()
            self._skip(cohort, asked, why, clock)
            return
        arrived = arrivals.arrived
        contributors, exposed = self.delivery.of(cohort, asked, arrivals, sums, ctx, clock)
        self.server.cohort = None
        self._note_uncovered(ctx)
        shares = {client_id: self.server.remembered.weights[client_id] for client_id in sorted(arrived)}
        self.events.tell(Released(round, tuple(charged), shares, arrivals.sizes(), contributors, exposed))
        self.server_model.hide()
        self.skips.held(round)
        self.events.tell(
            RoundClosed(round, tuple(asked), tuple(sorted(arrived)), clock.seconds(), clock.own(), cohort.groups)
        )

    def _plan(self, cohort: Cohort, ctx: Context, clock: ServerClock) -> None:
        """The cohort trains and negotiates: every client that is left has a plan.

        Raises:
            TooFewClients: fewer than `min_clients` are left.
            OpenedBefore: it had a sum opened, and the party that opens it has opened another one in this round.
        """
        asked, groups = cohort.client_ids, cohort.groups
        if ctx.round:
            self._tell_evaluate(cohort)
        cohort.tell_now(self.steps.train)
        if self.composition.ballots(ctx):
            self.events.tell(Asking(ctx.round, tuple(asked), "ballots"))
        try:
            with clock("negotiate"):
                self.negotiate(cohort, ctx)
        finally:
            self._note_uncovered(ctx)  # now: the round may end before its uploads are entered
        for name, operations in self.composition.ballots(ctx):
            noises = [one for one in operations if isinstance(one, Noise) and one.trust == "central"]
            if noises and (ctx.round, name) not in self.server.released:
                raise ProtectionError(
                    f"component {name}: its ballots of round {ctx.round + 1} have noise that the server adds, and it "
                    "added none; use what ctx.party.release(self, name, values) gives"
                )
        self.events.tell(Negotiated(ctx.round, tuple(asked), groups))
        self.office.require(len(cohort))

    def _collect(
        self, cohort: Cohort, ctx: Context, clock: ServerClock
    ) -> tuple[Arrivals, dict[str, dict[str, Block]]]:
        """The cohort uploads: what arrived, and the sums of each group by zone, still closed.

        Raises:
            TooFewClients: fewer than `min_clients` uploads can be used. The server has seen those that came, so they
                are entered into the ledger all the same.
        """
        self.office.phase = "upload"
        groups, charged = cohort.groups, cohort.client_ids
        self.events.tell(Asking(ctx.round, tuple(charged), "upload"))
        asked_of = {group: cohort.group(group).client_ids for group in groups}
        arrivals = Arrivals(self.composition, self.office, self.rules, self.server_model, ctx, clock, asked_of)
        cohort.gather(self.steps.protect, arrivals.take, arrivals.done)
        self.events.tell(Uploaded(ctx.round, groups))
        for client_id, upload in sorted(arrivals.arrived.items()):
            if upload.unasked:
                also = f"the upload of client {client_id} holds {upload.unasked}"
                self.events.note(f"round {ctx.round + 1}: {also}; it is ignored")
        sizes = arrivals.sizes()  # of those too that turn out to be odd
        try:
            self.office.require(len(arrivals.arrived))
            sums = {group: arrivals.close(group) for group in groups}
            self.office.require(len(arrivals.arrived))
        except (TooFewClients, OpenedBefore):
            if any(sizes.values()):
                self.events.tell(Released(ctx.round, tuple(charged), {}, sizes, {}, True))
            raise
        finally:
            self.server.uploads = {}  # a link behind noise on the sum could put what it finds there over it
        return arrivals, sums

    def _note_uncovered(self, ctx: Context) -> None:
        for told in uncovered(self.composition, self.office, ctx):
            self.events.tell(told)

    def _skip(self, cohort: Cohort, asked: list[int], why: str, clock: ServerClock) -> None:
        """Ends a round without a sum: nothing is released, the model stays."""
        round = self.office.round
        self.events.note(f"round {round + 1}: {why}; it is skipped")
        self.events.tell(RoundClosed(round, tuple(asked), (), clock.seconds(), clock.own(), cohort.groups, why))

    def negotiate(self, cohort: Cohort, ctx: Context) -> None:
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
            except (TooFewClients, OpenedBefore) as error:
                if len(groups) == 1:
                    raise
                short = f"too few clients of group {name} are left to negotiate"
                for client_id in part.client_ids:
                    self.office.drop(client_id, short if isinstance(error, TooFewClients) else str(error))

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
