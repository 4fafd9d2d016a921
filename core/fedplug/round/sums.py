"""The server's sums, when all uploads are in them: each is opened as far as the server may, and made a mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from fedplug.api.blocks import Block, fewest_in, in_float32, join_sums, other_size, share_divisors
from fedplug.api.cohort import KeyServerLine
from fedplug.api.errors import (
    ClientError,
    FedplugError,
    MessageError,
    OpenedBefore,
    PluginError,
    ProtectionError,
    Refusal,
    TooFewClients,
)
from fedplug.api.events import Asking, Events, SumWithheld, ZoneOpened
from fedplug.api.facts import Facts
from fedplug.api.links import amplified, seal_of
from fedplug.api.operations import Scramble, WeightedSum, Widen
from fedplug.api.parties import Server
from fedplug.api.records import one_line
from fedplug.api.reports import Reports
from fedplug.mechanisms.adding import add_up
from fedplug.mechanisms.closing import Closing
from fedplug.mechanisms.execution import execute
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import mean_problem
from fedplug.round.server_model import ServerModel
from fedplug.round.steps import Steps
from fedplug.round.uploads import Buffers, Shape, Upload, UploadRules, shapes_of, unlike
from fedplug.wire.post_office import PostOffice, ServerClock

_AT_ONCE = 1 << 24
"""Scalars of all the uploads of a piece together: 64 MiB of float32."""


MOST = 3
"""Rounds in a row that may fall short; the last of them ends the run, and so does a run's last that never had one."""


class Skips:
    """Decides what a round that falls short means for the run.

    Args:
        recipe: how many rounds there are; whether groups are formed.
        server: remembers how many rounds in a row fell short.
        office: knows who dropped out, and why.
    """

    def __init__(self, recipe: Recipe, server: Server, office: PostOffice) -> None:
        self.recipe, self.server, self.office = recipe, server, office
        self.last = -1  # the last round that fell short
        self._closed: dict[str, tuple[int, int, str]] = {}  # zone -> last round closed, how many in a row, why at first

    def fell_short(self, error: TooFewClients) -> str:
        """Counts a round that fell short, once; gives the reason without those of single clients.

        Raises:
            TooFewClients: waiting does not help: all clients failed alike, where no process was lost, the groups that
                round 1 forms are missing, or this is the last round in a row that may fall short.
        """
        memory, round = self.server.remembered, self.office.round
        # What is wrong with a recipe is wrong in every round; a lost process is started again.
        if self.office.all_failed_alike() and not self.office.lost:
            raise error
        if self.recipe.groups and not memory.groups:
            raise error
        if round != self.last:
            short, most = memory.short + 1, min(MOST, self.recipe.rounds)
            if short >= most:
                count = f" {short} rounds in a row had too few clients, so the run ends." if short > 1 else ""
                raise TooFewClients(f"{error}{count}") from error
            memory.short, self.last = short, round
        return one_line(str(error).removeprefix(f"round {round + 1}: ").partition(". Dropped out: ")[0], 300)

    def closed(self, zone: str, round: int, why: str) -> None:
        """Counts a round in which a zone's sum was not opened, though nobody opened another one before.

        Raises:
            ProtectionError: it is the last in a row that may be; with what the first of them said.
        """
        last, count, first = self._closed.get(zone, (-1, 0, why))
        if round == last:  # of another group
            return
        count, first = (count + 1, first) if round == last + 1 else (1, why)
        self._closed[zone] = round, count, first
        if count >= MOST:
            raise ProtectionError(
                f"zone {zone} did not open in {count} rounds in a row, and the run waits for no more. Round "
                f"{round + 2 - count}: {first}"
            )

    def heard(self, reports: Mapping[int, Reports]) -> None:
        """Takes what clients report of the sums that they were told: where none of them opens a zone, it is closed.

        Args:
            reports: with the answers to one question, by client.

        Raises:
            PluginError: an opener failed alike at all of them.
            ProtectionError: as `closed`.
        """
        if len(reports) < self.recipe.min_clients:  # says nothing about the others
            return
        first, *others = reports.values()
        for zone, why in first.unopened.items():
            if zone not in self.recipe.zones or not all(zone in each.unopened for each in others):
                continue
            if all(zone in each.failed for each in reports.values()):
                raise PluginError(f"{first.failed[zone]}; so it is at all clients, in every round: fix the component")
            if not any(zone in each.opened_before for each in reports.values()):
                self.closed(zone, self.office.round - 1, f"clients {why}")

    def held(self, round: int) -> None:
        """A round has ended; it ends the row of those before, unless some of its clients were missing."""
        if round != self.last:
            self.server.remembered.short = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Arrived:
    """What is kept of an upload once its blocks are added up.

    Attributes:
        sizes: scalars by zone; zones that are empty in its plan are missing.
        shapes: by zone, what must be alike at all clients.
        buffers: its batch-norm statistics; None where the recipe does not share them.
        unasked: what else it held, in words.
    """

    sizes: Mapping[str, int]
    shapes: Mapping[str, Shape]
    buffers: Buffers | None
    unasked: str


class Arrivals:
    """The uploads of one round.

    Args:
        composition: the server's own.
        office: drops clients whose upload cannot be used.
        rules: what the recipe says of uploads.
        server_model: shows a group's model while its uploads are added up.
        server: that adds.
        facts_of: the facts of a group.
        clock: told how long adding takes.
        groups: the clients that are asked, by group.
    """

    def __init__(
        self, composition: Composition, office: PostOffice, rules: UploadRules, server_model: ServerModel,
        server: Server, facts_of: Callable[[str], Facts], clock: ServerClock, groups: Mapping[str, list[int]],
    ) -> None:  # fmt: skip
        self.composition, self.office, self.rules, self.clock = composition, office, rules, clock
        self.server, self.server_model = server, server_model
        self.facts = {group: facts_of(group) for group in groups}
        self.together = not all(joins(composition, facts) for facts in self.facts.values())
        self.arrived: dict[int, Arrived] = {}
        self._sizes: dict[int, Mapping[str, int]] = {}  # of all that came, also of those left out: the server saw them
        self._groups = {name: _Group(name, ids, self) for name, ids in groups.items()}
        self._group_of = {client_id: group for group in self._groups.values() for client_id in group.asked}

    def take(self, client_id: int, reply: Any) -> None:
        """One client's reply as it arrived; who sends what cannot be used is dropped."""
        try:
            facts = self.facts[self._group_of[client_id].name]
            upload = self.rules.read(reply, self.server.weights[client_id], facts.fingerprint)
            if not self.together:
                _require_shared(upload)
        except MessageError as error:
            self.office.drop(client_id, f"its reply cannot be used: {error}")
            return
        sizes = {zone: block.size for zone, block in upload.blocks.items()}
        self._sizes[client_id] = sizes
        self.arrived[client_id] = Arrived(sizes, shapes_of(upload), upload.buffers, upload.unasked)
        if self.together:
            self.server.uploads[client_id] = dict(upload.blocks)
        self._group_of[client_id].take(client_id, upload)

    def done(self, client_id: int) -> None:
        """A client's reply was taken, or it gives none in this round; adds up what is complete now."""
        self._group_of[client_id].done(client_id)

    def close(self, group: str) -> dict[str, Block]:
        """The sums of a group by zone, when nobody will answer any more."""
        return self._groups[group].close()

    def sizes(self) -> dict[str, float]:
        """Scalars of each zone, mean over the uploads that came."""
        zones, count = self.composition.recipe.zones, max(1, len(self._sizes))
        return {zone: sum(sizes.get(zone, 0) for sizes in self._sizes.values()) / count for zone in zones}

    def leave_out(self, client_id: int, reason: str) -> None:
        """Drops a client whose upload cannot be summed with the others."""
        self.office.drop(client_id, reason)
        self.arrived.pop(client_id, None)

    def add(self, group: str, uploads: dict[int, Upload], most: float) -> dict[str, Block]:
        """Sums each zone of some uploads; a client whose upload spoils a sum is left out, here and of `uploads`.

        Args:
            group: of the clients.
            uploads: by client.
            most: the largest value with which no sum of the group leaves float32.
        """
        while True:
            sums: dict[str, Block] = {}
            self.server_model.show(group)
            try:
                with self.clock("aggregate"):
                    for zone in self.composition.recipe.zones:
                        blocks = {c: upload.blocks[zone] for c, upload in uploads.items() if zone in upload.blocks}
                        if blocks:
                            sums[zone] = self._add_zone(zone, blocks, most, self.facts[group])
                return sums
            except FedplugError as error:
                if error.client_id not in uploads:
                    raise
                self.leave_out(error.client_id, f"its upload cannot be summed: {error}")
                del uploads[error.client_id]

    def _add_zone(self, zone: str, blocks: dict[int, Block], most: float, facts: Facts) -> Block:
        """One zone's sum, as its aggregator gives it.

        Raises:
            ProtectionError: it cannot be one; blames the client whose upload spoilt it, if one did.
        """
        step = next(step for step in facts.steps(zone) if step.link.hook == "aggregate")
        total = add_up(step, blocks, dict(self.server.weights), self.server, facts)
        if total.values is not None and _largest(total) > most:
            spoilt = max(blocks, key=lambda client_id: _largest(blocks[client_id]))
            raise ProtectionError(
                f"client {spoilt} sent far too large values in the {zone} zone, which would spoil the mean: its "
                "training diverged, or its noise is too large; lower lr in train first"
            ).blame(spoilt)
        return total


@dataclasses.dataclass(eq=False)
class _Part:
    """The sums of those uploads of a group that have one shape, as far as they were added up.

    Attributes:
        clients: whose uploads they are.
        sums: by zone.
        problem: why they cannot be added up, though none of them alone is to blame.
    """

    clients: list[int]
    sums: dict[str, Block]
    problem: FedplugError | None = None


class _Group:
    """The uploads of one group: those that wait until their piece is complete, and the sums of the pieces before it."""

    def __init__(self, name: str, asked: list[int], round: Arrivals) -> None:
        self.name, self.asked, self.round = name, asked, round
        size = len(asked) if round.together else max(1, _AT_ONCE // max(1, round.facts[name].layout.size))
        pieces = [asked[start : start + size] for start in range(0, len(asked), max(1, size))]
        self._piece_of = {client_id: number for number, piece in enumerate(pieces) for client_id in piece}
        self._missing = [set(piece) for piece in pieces]
        self._here: list[dict[int, Upload]] = [{} for _ in pieces]
        self._added = 0  # pieces, from the first on
        self._parts: dict[Hashable, _Part] = {}

    def take(self, client_id: int, upload: Upload) -> None:
        self._here[self._piece_of[client_id]][client_id] = upload

    def done(self, client_id: int) -> None:
        """A client has answered, or will not; the first pieces are added up once this is true of all in them."""
        self._missing[self._piece_of[client_id]].discard(client_id)
        while not self.round.together and self._added < len(self._here) and not self._missing[self._added]:
            self._add_piece()

    def close(self) -> dict[str, Block]:
        """The sums by zone, without the uploads that are shaped otherwise than most."""
        if self.round.together:
            self._leave_out_odd()
        while self._added < len(self._here):
            self._add_piece()
        if not self.round.together:
            self._leave_out_odd()
        sums: dict[str, Block] = {}
        for part in sorted(self._parts.values(), key=lambda part: part.clients[0]):
            if part.problem is not None:
                raise part.problem
            for zone, block in part.sums.items():
                if zone in sums and sums[zone].size != block.size:
                    raise other_size(f"client {part.clients[0]}", block, sums[zone])
            self._join(sums, part.sums)
        return {zone: in_float32(block) for zone, block in sums.items()}

    def _leave_out_odd(self) -> None:
        arrived = self.round.arrived
        shapes = {client_id: arrived[client_id].shapes for client_id in self.asked if client_id in arrived}
        odd = unlike(shapes)
        for client_id, difference in odd.items():
            self.round.leave_out(client_id, f"its reply cannot be used: {difference}")
            self._here[self._piece_of[client_id]].pop(client_id, None)
        self._parts = {key: part for key, part in self._parts.items() if part.clients[0] not in odd}

    def _add_piece(self) -> None:
        """Adds up the next piece, uploads of different shapes apart: nobody knows yet which is that of most."""
        uploads, self._here[self._added] = self._here[self._added], {}
        self._added += 1
        alike: dict[Hashable, dict[int, Upload]] = {}
        for client_id in sorted(uploads):
            shapes = self.round.arrived[client_id].shapes
            shape: Hashable = None if self.round.together else tuple(sorted(shapes.items()))
            alike.setdefault(shape, {})[client_id] = uploads.pop(client_id)
        for shape, some in alike.items():
            part, sums = self._parts.get(shape, _Part([], {})), {}
            try:
                sums = self.round.add(self.name, some, float(np.finfo(np.float32).max) / len(self._here))
                part.clients += some
                some.clear()  # uploads may be large, and so is what joining takes
                self._join(part.sums, sums)
            except FedplugError as error:  # of a shape that may turn out to be that of a few
                part.clients += some
                part.problem = error
            if part.clients:
                self._parts[shape] = part

    def _join(self, sums: dict[str, Block], more: Mapping[str, Block]) -> None:
        """Adds sums of other clients to those by zone."""
        with self.round.clock("aggregate"):
            for zone, block in more.items():
                sums[zone] = self._both(sums[zone], block) if zone in sums else block

    def _both(self, one: Block, other: Block) -> Block:
        """The sum of two sums."""
        if one.sealed_by is None:
            return join_sums([one, other])
        return Closing.of(one.zone, self.round.facts[self.name]).join([one, other], self.round.server)


def joins(composition: Composition, facts: Facts) -> bool:
    """Whether sums of some clients of a group may be joined to that of all, in every zone."""
    wants, own = composition.aggregator.wants, composition.plans.own
    steps = [step for zone in composition.links for step in facts.steps(zone)]
    joining = not any(step.has(Widen, Scramble) for step in steps)  # positions are sent; the sum is closed again
    adding = all(
        isinstance(operation, WeightedSum) and operation.by is None
        for step in steps if step.link.hook == "aggregate" for operation in step.operations
    )  # fmt: skip
    return adding and not wants.positions and joining and not own & set(composition.links)


def _require_shared(upload: Upload) -> None:
    """Refuses positions of a client's own, where all have the same.

    Raises:
        MessageError: there are some; names the zone.
    """
    for zone, block in upload.blocks.items():
        if block.positions is not None:
            rule = "the zone lies in the same place at all clients"
            raise MessageError(f"its {zone} block has its own positions, and {rule}")


def _largest(block: Block) -> float:
    """The largest magnitude of a block's values; 0 of a sealed one."""
    if block.values is None or not block.size:
        return 0.0
    return float(max(block.values.max(), -block.values.min()))


class Sums:
    """Opens what `Arrivals` has added up.

    Args:
        recipe, composition: the server's own.
        server: the aggregation server.
        steps: what the key server is asked.
        office: says which round it is.
        key_server: the line to the key server.
        events: told of sums that are opened, left out or withheld.
        skips: counts rounds in which too few clients answer to open a sum.
    """

    def __init__(
        self, recipe: Recipe, composition: Composition, server: Server, steps: Steps, office: PostOffice,
        key_server: KeyServerLine, events: Events, skips: Skips,
    ) -> None:  # fmt: skip
        self.recipe, self.composition, self.server, self.steps = recipe, composition, server, steps
        self.office, self.key_server, self.events, self.skips = office, key_server, events, skips
        # Zones of this round whose sums the server may have had in hand, though they are not used.
        self._seen: set[str] = set()

    def skip(self, what: str, why: str) -> None:
        """Says that something is left out of this round, which continues without it."""
        least = self.recipe.min_clients
        self.events.note(f"round {self.office.round + 1}: {what} is skipped: {why}; min_clients is {least}")

    def _close(self, zone: str, why: Exception) -> None:
        """Says that a zone's sum was not opened, and whether one was in an earlier attempt at the round.

        Raises:
            ProtectionError: there were too many such rounds in a row.
        """
        self.events.note(f"round {self.office.round + 1}: zone {zone} is skipped: {why}")
        if isinstance(why, OpenedBefore):
            self.events.tell(SumWithheld(self.office.round, zone))
        elif not isinstance(why, TooFewClients):  # which are counted by themselves
            self.skips.closed(zone, self.office.round, str(why))

    def open(
        self,
        group: str,
        sums: dict[str, Block],
        senders: dict[str, list[int]],
        weights: dict[int, float],
        facts: Facts,
        clock: ServerClock,
        contributors: dict[str, int],
    ) -> dict[str, Block]:
        """Runs the postprocess links of the server and the key server on a group's sums; clients run the others.

        Sums are taken out of `sums`; those that must not be opened, or do not open, are left out. `contributors` learns
        the fewest behind any value of the others. Where clients encrypt positions that others send plain, the parts
        meet at the key server.
        """
        ready: dict[str, Block] = {}
        # Plain sums first: what is opened at the key server takes them along.
        for zone in sorted(sums, key=lambda zone: sums[zone].sealed_by is not None):
            block = sums.pop(zone)  # ciphertexts are large, and not needed once they are open
            plain = [z for z, other in ready.items() if other.positions is not None and other.values is not None]
            plain = plain if block.positions is not None else []
            fewest = fewest_in(block)
            found = self._open_zone(group, block, senders[zone], [ready[z] for z in plain], weights, facts, clock)
            del block
            if found is None and zone not in self._seen:
                continue
            contributors[zone] = min(contributors.get(zone, fewest), fewest)
            if found is None:
                continue
            ready[zone], met = found
            for other in plain if met else []:
                del ready[other]
        for zone, block in list(share_divisors(ready).items()):
            # Those at the same positions share a divisor that was just made; any other plain sum has its constant.
            if block.values is None or block.positions is not None:
                ready[zone] = block = self._constant(block, weights, facts)
            if block.values is not None:
                mean = block.mean()
                behind = (step for step in facts.steps(zone) if step.link.hook != "protect")
                last = [step for step in behind if step.link.site != "client"]
                if problem := mean_problem(mean, zone, last[-1] if last else None):
                    self._close(zone, ProtectionError(problem))
                    del ready[zone]
                    continue
                ready[zone] = block.replace(values=mean, divisor=1.0)
            self.events.tell(ZoneOpened(facts.round, group, ready[zone]))
        return ready

    def _constant(self, block: Block, weights: dict[int, float], facts: Facts) -> Block:
        """A sum of sampled clients that shows no link, and nobody else, how many took part.

        The weight of those who did would show who they are, and so would their number: the sum is divided by what their
        weight is on average (McMahan et al. 2018, the estimator f_f).
        """
        if resting := self.recipe.resting(facts.round):  # a constant as well: those who send noise alone weigh nothing
            return block.replace(divisor=sum(weight for c, weight in weights.items() if c not in resting))
        if block.zone not in amplified(self.recipe.sampling, facts):
            return block
        rate = self.recipe.sampling.rate if self.recipe.sampling else 1.0
        return block.replace(divisor=rate * sum(weights.values()), contributors=1)

    def _open_zone(
        self,
        group: str,
        block: Block,
        senders: list[int],
        plain: list[Block],
        weights: dict[int, float],
        facts: Facts,
        clock: ServerClock,
    ) -> tuple[Block, bool] | None:
        """One zone's sum as far as the server and the key server open it, and whether `plain` met it there.

        A plain sum of sampled clients has its constant divisor, once: a link behind it may have made it a mean.

        None if it is not used: it stays closed, or, where `_seen` names the zone, somebody has had it in hand.
        """
        self._seen.discard(block.zone)
        zone, met, least = block.zone, False, self.recipe.min_clients
        divided = block.values is not None
        if divided:
            block = self._constant(block, weights, facts)
        steps = facts.steps(zone)
        if block.sealed_by is not None and seal_of(steps) is not None and block.contributors < least:
            self.skip(f"zone {zone}", f"its sum holds {block.contributors} updates")
            return None
        closed = seal_of(steps)
        by_shares = closed is not None and closed[1].opened_by == "shares"
        with clock("aggregate"):
            for step in steps:
                if step.link.hook != "postprocess":
                    continue
                shares = by_shares and block.sealed_by is not None
                if shares and block.sealed_by == step.link.name:
                    self.office.phase = "open"
                    self.events.tell(Asking(facts.round, tuple(senders[: fewest_in(block)]), "opening"))
                if step.link.site != "key_server":
                    try:
                        if step.link.site == "client":
                            if block.sealed_by == step.link.name:
                                block = Closing.of(zone, facts).gather(block, senders, self.server)
                            break
                        if block.values is not None and not divided:  # a link before has opened it
                            block, divided = self._constant(block, weights, facts), True
                        block = execute(step, block, self.server, facts, senders=senders)
                    except ProtectionError as error:
                        if by_shares:  # enough shares may have come, and one of them, or an upload, be wrong
                            self._seen.add(zone)
                        self._close(zone, error)
                        return None
                    except TooFewClients as error:
                        if by_shares and not shares:  # a link behind the one that opened it
                            self._seen.add(zone)
                        refused = self.office.refused
                        why = self.office.refusal() if refused else TooFewClients(self.skips.fell_short(error))
                        self._close(zone, why)
                        return None
                    continue
                try:
                    if block.sealed_by == step.link.name:
                        block = Closing.of(zone, facts).gather(block, senders, self.server)
                    opened = self.key_server.ask(self.steps.open, step.link.name, block, plain, group, senders)
                except (Refusal, OpenedBefore) as error:
                    if isinstance(error, Refusal) and error.kind == PluginError.__name__:
                        raise PluginError(f"{error}; so it is in every round: fix the component") from error
                    self._close(zone, error)
                    return None
                if not isinstance(opened, Block) or opened.zone != zone or (not plain and opened.size != block.size):
                    self._close(zone, ClientError("the key server opened its sum as something else"))
                    return None
                block, met = opened, bool(plain)
        if block.values is not None and not divided:
            block = self._constant(block, weights, facts)
        return block, met
