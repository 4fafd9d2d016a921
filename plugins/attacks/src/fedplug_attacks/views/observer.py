"""An adversary's reading of the recorded messages: the target's update entry by entry, and the model it started from.

Only messages that the adversary could read and open count. The positions of a block's values follow from the block,
from the plan of a client on the adversary's side, or from clear messages to the target: everybody can run the public
algorithm of the negotiation on these, without any secret. Values without known positions stay absent.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from fedplug.api import codec
from fedplug.api.blocks import RETAINED, Block, Layout, Plan
from fedplug.api.component import remote_method
from fedplug.api.errors import PluginError, of_component
from fedplug.api.facts import Facts, Snapshots, in_force, published_to
from fedplug.api.links import amplified
from fedplug.api.operations import Noise, Open, Scramble, Seal, WeightedSum
from fedplug.api.parties import KEY_SERVER, SERVER, Client, KeyServer, Server, client_address
from fedplug.api.roles import Closer, Negotiation, Sealer
from fedplug.mechanisms.closing import Closing
from fedplug.mechanisms.execution import execute
from fedplug.round.base import facts_of
from fedplug.round.set_up import weight_of
from fedplug.round.steps import Steps, unsealed
from fedplug_runs.wire_record import Message

from fedplug_attacks import Meaning, ObservedUpdate, Seen
from fedplug_attacks.api.observation import Clipped
from fedplug_attacks.api.told import Told, groups_seen, memberships, sizes_in, tellings, uploads_in
from fedplug_attacks.views import public_facts
from fedplug_attacks.views.adversaries import Adversary, Insider
from fedplug_attacks.views.public_facts import Sent

if TYPE_CHECKING:
    from fedplug.api.data import Model, PublicData
    from fedplug.api.links import Step
    from fedplug.api.roles import Learns
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe
    from fedplug_runs.wire_record import Asked
    from numpy.typing import NDArray

Vector: TypeAlias = "NDArray[np.float32]"

_FACTS = 8
"""Facts that an observer keeps: those of a few rounds."""


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """An adversary's knowledge of one target in one round.

    Attributes:
        messages: the messages that it could read.
        update: the target's, or the sum that a key server opened; None if it saw none.
        vector: the global model it was made from; None if the adversary cannot know it.
        personal: the target's personal model; None if the adversary has none.
        buffers: batch-norm statistics that travelled with the model; empty where they stay at the clients.
        heard: messages of all clients other than updates.
        all_examples: whether the update was certainly made from all the examples of the target.
    """

    messages: tuple[Message, ...]
    update: ObservedUpdate | None = None
    vector: Vector | None = None
    personal: Vector | None = None
    buffers: dict[str, Any] = dataclasses.field(default_factory=dict)
    heard: tuple[Told, ...] = ()
    all_examples: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Begun:
    """What a reader of all messages to a client knew when the messages that are there begin.

    Attributes:
        vector: float32 (P,), the global model; None if it could not read the sums before.
        published: what components had published.
    """

    vector: Vector | None
    published: Snapshots

    @classmethod
    def of(
        cls, client: Client, round: int, composition: Composition, layout: Layout, public: PublicData | None
    ) -> Begun:
        """What was known before the messages with which a round (0-based) begins; they bring the last sum.

        Args:
            client: the receiver, as it was saved before that round.
            round: 0-based.
            composition, layout, public: of the run.
        """

        def readable(earlier: int) -> bool:
            facts = facts_of(composition, layout, earlier, public)
            each = [public_facts.steps_of(zone, facts) for zone in facts.links]
            return None not in each and not any(
                step.link.hook == "postprocess" and step.link.site == "client" for steps in each for step in steps or ()
            )

        known = all(map(readable, range(round - 1)))
        return cls(client.vector if known else None, client.remembered.published)


@dataclasses.dataclass(frozen=True, eq=False)
class Beyond:
    """Slow look-ups, made only if an opened sum may reveal an update.

    Attributes:
        later: gives the messages after a round, which contain its sums.
        updates: gives the updates (P,) before protection of clients on the adversary's side, without unavailable ones.
    """

    later: Callable[[], Sequence[Message]]
    updates: Callable[[Sequence[int]], Mapping[int, Vector]]


class Observer:
    """Reads recorded messages as an adversary would.

    Args:
        recipe, composition: public; the adversary's own copies.
        layout: of the model.
        initial: float32 (P,), the public initial weights.
        public: examples that everybody has.
        model: for operations that follow from the model of a round, such as noise by public scores; left as it is.
        begun: gives what was known before the messages of a round (0-based) to a client; None for messages that reach
            back to the first round.
    """

    def __init__(
        self, recipe: Recipe, composition: Composition, layout: Layout, initial: Vector, public: PublicData | None,
        model: Model | None = None, begun: Callable[[int, int], Begun | None] | None = None,
    ) -> None:  # fmt: skip
        self._begun = begun
        self.recipe, self.composition, self.layout = recipe, composition, layout
        self.initial, self.public, self.model = initial, public, model
        self._tellings: weakref.WeakKeyDictionary[Message, list[Told]] = weakref.WeakKeyDictionary()
        self._facts: dict[tuple[int, bytes], Facts] = {}

    def facts(self, round: int, published: Snapshots | None = None) -> Facts:
        """The public facts of a round.

        Args:
            round: 0-based.
            published: what the adversary knows that components have published.
        """
        told = in_force(published or {}, round)
        key = round, codec.encode({name: dict(values) for name, values in told.items()}) if told else b""
        if key not in self._facts:
            if len(self._facts) >= _FACTS:
                del self._facts[next(iter(self._facts))]
            self._facts[key] = facts_of(self.composition, self.layout, round, self.public, published)
        return self._facts[key]

    def known(
        self,
        adversary: Adversary,
        target: int,
        round: int,
        messages: Sequence[Message],
        folder: Path | None,
        batch_size: int | None = None,
        beyond: Beyond | None = None,
    ) -> Known:
        """The adversary's knowledge of the target in a round.

        Args:
            adversary: the adversary.
            target: the attacked client.
            round: 0-based.
            messages: everything recorded up to that round.
            folder: folder in which every party saved its state in that round; None if nobody did.
            batch_size: of a probe; None for an update of the run itself.
            beyond: looks up opened sums, and the updates of colluding clients; None: nothing is subtracted from sums.

        Raises:
            CheckpointError: the state of a party on the adversary's side cannot be read.
        """
        read, insiders, told, facts = self._followed(adversary, target, round, messages, folder)
        inside = next((insider for insider in insiders if insider.vector is not None), None)
        like = _Likeness(read, inside.party, target, round) if inside else None
        # Without reading messages to the target, an adversary knows only the public model of the first round.
        hears = adversary.reads(Message(SERVER, client_address(target), round, "negotiate", b"", 0, {}))
        vector = told.vector if hears or not round else None
        if inside and like and like.trained and (like.adopted or not hears):
            vector = inside.vector
        upload = next(
            (m for m in read if (m.round, m.phase, m.sender) == (round, "upload", client_address(target))), None
        )
        answered = upload.answered() if upload else None
        blocks = answered.blocks if answered else None
        update: ObservedUpdate | None
        differences = None
        if beyond is not None and insiders:
            told_weights = functools.partial(adversary.told_weights, target, folder)
            differences = Differences(self, target, facts, read, adversary.reads, insiders, beyond, told_weights)
            blocks = differences.unread() if blocks is None else blocks
        if blocks is not None:
            plan = facts.plan or told.plan
            if inside and inside.plan is not None and like and like.trained and like.negotiated:
                plan = inside.plan
            meaning = self.meaning(facts, _examples(read, target), batch_size)
            update = self._update(facts, (target,), list(blocks.values()), plan, insiders, meaning, vector, differences)
        else:
            update = self._sum(round, read, insiders, batch_size)
        whole = batch_size is None and public_facts.of_all_examples(self.learns(facts), _examples(read, target))
        heard = self._heard(round, read, insiders, told.published)
        return Known(read, update, vector, None, told.buffers, heard, whole)

    def opened_sum(
        self, adversary: Adversary, target: int, round: int, messages: Sequence[Message], folder: Path | None,
        batch_size: int | None, beyond: Beyond,
    ) -> ObservedUpdate | None:  # fmt: skip
        """The mean of a round as the adversary sees it opened, as one update of all; None where it sees none."""
        read, insiders, told, facts = self._followed(adversary, target, round, messages, folder)
        sums = Differences(self, target, facts, read, adversary.reads, insiders, beyond, dict).opened_sums
        if not sums:
            return None
        count = max(block.contributors for block in sums.values())
        meaning = self.meaning(facts, None, None if batch_size is None else batch_size * count)
        return self._update(facts, (-1,) * count, list(sums.values()), facts.plan or told.plan, insiders, meaning)

    def _followed(
        self, adversary: Adversary, target: int, round: int, messages: Sequence[Message], folder: Path | None
    ) -> tuple[tuple[Message, ...], list[Insider], Bystander, Facts]:
        """What an adversary read up to a round, its parties, what the target was told, and the facts that it knows."""
        read = tuple(message for message in messages if adversary.reads(message))
        insiders = adversary.insiders(folder)
        told = Bystander(self, target, insiders, self._begun and self._begun(round, target))
        told.follow(_calls(read, client_address(target)), round)
        return read, insiders, told, self.facts(round, told.published)

    def meaning(self, facts: Facts, examples: int | None, batch_size: int | None) -> Meaning:
        """The meaning of an update's numbers, as far as the trainer declares it.

        Args:
            facts: of the round.
            examples: how many the target has, where a message told; None if not.
            batch_size: of a probe, which makes one step.
        """
        return public_facts.meaning(self.learns(facts), examples, batch_size)

    def learns(self, facts: Facts) -> Learns | None:
        """The trainer's declaration for a round."""
        return self.composition.trainer.learns(facts)

    # -- other messages -----------------------------------------------------------------------------------------

    def _heard(
        self, round: int, read: Sequence[Message], insiders: Sequence[Insider], published: Snapshots
    ) -> tuple[Told, ...]:
        """All clients' messages in negotiations, facts other than values from their uploads, and their groups."""
        said = tellings(read, self._tellings)
        told = [self._readable(each, self.facts(each.round, published), insiders) for each in said]
        if self.recipe.groups:
            servers = [insider.party for insider in insiders if isinstance(insider.party, Server)]
            groups = servers[0].groups.values() if servers else ()
            clients = {each.client_id for each in told}
            told += memberships(self.recipe.groups.name, round, groups or groups_seen(read, clients))
        return tuple(told)

    def _readable(self, told: Told, facts: Facts, insiders: Sequence[Insider]) -> Told:
        """A reply as opened with a secret of the clients on the adversary's side; unplaced if none of them opens it."""
        component = self.composition.components.get(told.component)
        if told.zone or component is None or not component.cohort_secret:
            return told
        for insider in insiders:
            if isinstance(insider.party, Client) and isinstance(component, Negotiation):
                try:
                    insider.party.facts = facts
                    value = component.open_reply(insider.party, told.method, told.asked, told.value)
                except Exception:  # another secret, or damaged: it stays sealed
                    continue
                return told if value is None else dataclasses.replace(told, value=value)
        return dataclasses.replace(told, placed=False)

    # -- an update, entry by entry -------------------------------------------------------------------------------------

    def _update(
        self,
        facts: Facts,
        contributors: tuple[int, ...],
        blocks: Sequence[Block],
        plan: Plan | None,
        insiders: Sequence[Insider],
        meaning: Meaning,
        vector: Vector | None = None,
        differences: Differences | None = None,
    ) -> ObservedUpdate:
        states = np.full(self.layout.size, Seen.ABSENT, np.uint8)
        dense, sigma = np.zeros((2, self.layout.size), np.float32)
        unplaced: list[Seen | None] = []  # for each block with unknown positions, its state if it is sealed
        clips: list[Clipped] = []
        subtracted: list[str] = []
        lost, grid = 0, 0.0
        learns, server = self.learns(facts), Server(model=self.model, vector=vector)
        alone = contributors[0] if contributors[0] >= 0 else None
        for block in blocks:
            opened = block if block.values is not None else self.opened(block, facts, insiders, contributors[0])
            where, sent = self._place(block, plan), Sent.of(block.zone, facts, learns, alone, server)
            taken_off = differences.of(block) if opened is None and differences and where is not None else None
            if taken_off is not None:
                opened = taken_off.block
                subtracted.append(block.zone)
            if where is None:
                unplaced.append(sent.closed if opened is None else None)
                lost += 0 if opened is None else block.size
            elif opened is None:
                states[where] = sent.closed
            else:
                std = sent.sigma(self.layout)[where]
                if len(contributors) > 1 and std.any():  # the noise of a sum depends on its contributors
                    std = np.where(std == 0, std, np.float32(np.nan))
                values = (_unweighted(opened) / np.float32(sent.factor)).astype(np.float32)
                values = sent.turned_back(values, facts)
                told = np.full(block.size, True)
                if taken_off is not None:
                    std, told = np.hypot(std, taken_off.off / sent.factor).astype(np.float32), ~np.isnan(values)
                states[where] = np.where(told, np.where(std == 0, Seen.CLEAR, Seen.NOISED), sent.closed)
                dense[where], sigma[where] = values, std
                if len(contributors) == 1:
                    clips += sent.clipped(self.layout, np.arange(self.layout.size)[where], values)
                times = 1 / _divisor(opened) if opened.weighted else taken_off.rounding if taken_off else 1.0
                grid = max(grid, sent.grid * times)
        rest = states == Seen.ABSENT
        keeps = RETAINED in self.composition.plans.zones
        if keeps and not unplaced:
            states[rest] = Seen.RETAINED
        elif not keeps and unplaced and None not in unplaced:  # the rest can only be the sealed values
            states[rest] = Seen.SCRAMBLED if Seen.SCRAMBLED in unplaced else Seen.ENCRYPTED
        visible = np.isin(states, (Seen.CLEAR, Seen.NOISED))
        least = min((clip.least for clip in clips), default=None)
        meaning = dataclasses.replace(meaning, clip_norm=least, grid=grid)
        return ObservedUpdate(
            facts.round, contributors, self.layout, states, dense[visible], sigma[visible], meaning, lost, tuple(clips),
            tuple(subtracted),
        )  # fmt: skip

    def _place(self, block: Block, plan: Plan | None) -> Any:
        """The positions of a block's values in the model; None if they cannot be known."""
        if block.positions is not None:
            return block.positions
        if block.size == self.layout.size:
            return slice(None)
        if plan is None or block.zone not in plan.zones or block.zone in self.composition.plans.own:
            return None
        where = plan.positions(block.zone)
        return where if len(where) == block.size else None

    def opened(self, block: Block, facts: Facts, insiders: Sequence[Insider], sender: int = -1) -> Block | None:
        """The block as opened with a key on the adversary's side; None if no key fits.

        Args:
            block: an upload, or a sum.
            facts: of the round.
            insiders: the parties whose keys are tried.
            sender: the client of an upload; -1 for a sum.
        """
        parties = [insider.party for insider in insiders]
        facts = dataclasses.replace(facts, min_clients=1)  # honest parties open no sum of fewer updates
        for party in parties:
            party.facts = facts
        if sender >= 0:
            found = self._closing(block.zone, facts) if insiders else None
            if found is None or _says_nothing_of_shares(found, parties):
                return None
            with of_component(found.name, "open_upload"):
                return found.open_upload(block, sender, parties)
        for party in parties:
            try:
                opened = block if block.sealed_by != Steps.name else unsealed(block, party)
                for step in _opening(block.zone, facts):
                    # A reply of the key server to the clients alone is clear once its lock is open.
                    if isinstance(step.link.component, Closer) and opened.values is None:
                        opened = execute(step, opened, party, facts)
            except Exception:  # another key, or none: it stays sealed
                continue
            if opened.values is not None:
                return opened
        return None

    def _closing(self, zone: str, facts: Facts) -> Closing | None:
        """What closes a zone; None where nothing does, or that follows from facts that were not heard."""
        try:
            return Closing.of(zone, facts)
        except Exception:  # a plugin's operations may fail in any way without what it has published
            return None

    def sum_opened(self, zone: str, block: Block, client: Client, insiders: Sequence[Insider]) -> Block | None:
        """A sum as its receiver opens it: by public steps, or with a key on the adversary's side; None if it cannot."""
        try:
            opened = block
            for step in _opening(zone, client.facts):
                if step.link.site == "client":
                    opened = execute(step, opened, client, client.facts)
            if opened.values is not None:
                return opened
        except Exception:  # it is sealed, and the receiver's key is needed
            pass
        return self.opened(block, client.facts, insiders) if block.values is None else None

    def _sum(
        self, round: int, read: Sequence[Message], insiders: Sequence[Insider], batch_size: int | None
    ) -> ObservedUpdate | None:
        """The sums that the key server was asked to open in a round, as one observed update; None if there are none."""
        blocks: dict[str, Block] = {}
        groups: list[str] = []
        for message in read:
            if message.round == round and message.receiver == KEY_SERVER:
                for call in message.asked():
                    if (call.component, call.method) == (Steps.name, "open"):
                        for block in (call.payload[1], *call.payload[2]):  # of several groups, the first
                            blocks.setdefault(block.zone, block)
                        groups.append(call.payload[3])
        holders = [insider.party for insider in insiders if isinstance(insider.party, Server | KeyServer)]
        if not blocks or not holders:
            return None
        facts = self.facts(round, published_to(holders[0].remembered.published, groups[0]))
        count = max(block.contributors for block in blocks.values())
        meaning = self.meaning(facts, None, batch_size)
        return self._update(facts, (-1,) * count, list(blocks.values()), facts.plan, insiders, meaning)


class Bystander:
    """The consequences of the calls to a client, for an adversary that read them and has no secret of the clients.

    Runs the negotiation's own methods at a client that has no data, no scores and no secret; if they need one of these
    they fail, and the plan is unknown.

    Attributes:
        plan: the client's plan of the last round that was followed; None where it cannot be known.
        vector: its global model; None once an unreadable sum, or one with unknown positions, has moved it.
        buffers: the last batch-norm statistics that it received.
        published: what components have published to it, by round; also as parties on the adversary's side remember it.
    """

    def __init__(
        self, observer: Observer, client_id: int, insiders: Sequence[Insider] = (), begun: Begun | None = None
    ) -> None:
        self._insiders = insiders
        self._observer, self._client = observer, Client(client_id=client_id)
        self.vector: Vector | None = observer.initial if begun is None else begun.vector
        self.buffers: dict[str, Any] = {}
        remembered = _remembered(client_id, insiders, grouped=observer.recipe.groups is not None)
        self.published = remembered or (begun.published if begun else {})
        self._done: set[int] = set()

    @property
    def plan(self) -> Plan | None:
        return self._client.plan

    def follow(self, calls: Iterator[Asked], round: int) -> None:
        """Follows the calls up to a round."""
        recipe = self._observer.recipe
        for call in calls:
            if call.round > round or (call.sequence and call.sequence in self._done):
                continue
            self._done.add(call.sequence)
            facts = self._client.facts = self._observer.facts(call.round, self.published)
            if (call.component, call.method) == (Steps.name, "hear"):
                name, values = call.payload
                told = {**in_force(self.published, call.round), name: values}
                self.published = {**self.published, call.round: told}
            elif (call.component, call.method) == (Steps.name, "train"):
                self._client.plan = facts.plan
            elif (call.component, call.method) == (Steps.name, "adopt"):
                self._client.plan = facts.plan or self._client.plan
                self._adopt(*call.payload[:2])  # the rest names the contributors
            elif call.component == recipe.negotiate_mask.name:
                method = remote_method(self._observer.composition.components[call.component], call.method, "client")
                if method is None:
                    continue
                try:
                    method(self._client, *call.payload)
                except Exception:  # it needs facts that only the client has
                    continue

    def _adopt(self, blocks: dict[str, Block], buffers: dict[str, Any] | None) -> None:
        observer = self._observer
        self.buffers = buffers or self.buffers
        moved = None if self.vector is None else self.vector.copy()
        for zone, block in blocks.items():
            where = observer._place(block, self.plan)
            opened = observer.sum_opened(zone, block, self._client, self._insiders)
            if moved is None or where is None or opened is None:
                moved = None
                break
            moved[where] += opened.mean()
        self.vector = moved


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """A client's values in a zone: values (n,) in units of the upload, and the standard deviation (n,) of their error;
    positions (n,), or None if all clients have the same.
    """

    values: NDArray[np.float64]
    off: NDArray[np.float64]
    positions: NDArray[Any] | None


@dataclasses.dataclass(frozen=True, eq=False)
class TakenOff:
    """A zone of an upload, as an opened sum minus all others shows it.

    Attributes:
        block: the block with the sealed values, in units of the upload and without weight; NaN where another client's
            value is unknown.
        off: float64 (n,), the standard deviation of their error, without the target's own noise and rounding.
        rounding: rounding error as a multiple of that of one value of a client with weight 1.
    """

    block: Block
    off: NDArray[np.float64]
    rounding: float


@dataclasses.dataclass(eq=False)
class Differences:
    """Subtracts known updates from the sums of one round: what is left is the last unknown update.

    An adversary that reads the opened sum of a round and has all updates in it except one also has that one, whatever
    sealed it. A colluding client knows its own updates; of the others it has those that it can read or open. The
    subtraction works scalar by scalar: if positions differ between clients, a scalar that nobody else sent is the
    target's alone.

    Attributes:
        observer: of the run.
        target: the client whose update is wanted.
        facts: of the round, with what the adversary knows that was published.
        read: the messages that the adversary read, up to that round.
        reads: whether it reads a message.
        insiders: the parties on its side.
        beyond: looks up later messages, and the own updates of its clients.
        told: gives the weights of clients, where those follow from what the adversary read before round 1.
    """

    observer: Observer
    target: int
    facts: Facts
    read: Sequence[Message]
    reads: Callable[[Message], bool]
    insiders: Sequence[Insider]
    beyond: Beyond
    told: Callable[[], Mapping[int, float]]

    def __post_init__(self) -> None:
        self._clients = {i.party.client_id: i for i in self.insiders if isinstance(i.party, Client)}
        self._parts: dict[tuple[int, str], _Part | None] = {}
        self._told_weights: Mapping[int, float] | None = None

    def unread(self) -> Mapping[str, Block] | None:
        """The form of an unread upload of the target, by zone, if all the others are on the adversary's side.

        None if that is not so, or if the zones differ between clients.
        """
        everyone = set(range(self.observer.recipe.data.clients))
        if self.target in self._uploads or everyone - {*self._clients, self.target}:
            return None
        sums = self.opened_sums
        if not sums or any(b.positions is not None or b.contributors != len(self._uploads) + 1 for b in sums.values()):
            return None
        if self._weights() is None:
            return None
        self._uploads[self.target] = {zone: Block(zone, block.size) for zone, block in sums.items()}
        return self._uploads[self.target]

    def of(self, block: Block) -> TakenOff | None:
        """A zone of the target's upload as the opened sum shows it; None if it does not.

        Args:
            block: the sealed block of the upload.
        """
        others = sorted(self._uploads.keys() - {self.target})
        zone, weights, steps = block.zone, self._weights(), self._steps(block.zone)
        if weights is None or steps is None or any(c not in weights for c in (*others, self.target)):
            return None
        if not self._may_tell(block, others):
            return None  # before any look-up
        total = self.opened_sums.get(zone)
        own_places = block.positions is not None
        if total is None or (total.positions is not None) != own_places:
            return None
        if not own_places and total.size != block.size:
            return None
        # An upload that arrived and was left out of the sum would be subtracted all the same. With sampled clients no
        # sum shows how many are in it.
        if not own_places and total.contributors != len(others) + 1 and not self._hides_who(zone):
            return None
        size = self.observer.layout.size if own_places else block.size
        where: Any = block.positions if own_places else slice(None)
        at: Any = total.positions if own_places else slice(None)
        # Zones without a separate sum joined this one at the party that opened it.
        met = {zone} | (self._scattered() - self._adopted.keys() if own_places else set())
        rest, off, divisor = np.zeros((3, size))
        known = np.zeros(size, bool)
        known[at] = True
        for client in (*others, self.target):
            for name, sent in self._uploads[client].items():
                # A scalar is divided by the weight of all clients that sent it, in any of their zones.
                if (sent.positions is None if own_places else name != zone):
                    continue
                place: Any = sent.positions if own_places else slice(None)
                divisor[place] += weights[client]
                if client == self.target or name not in met:
                    continue
                part = self._part(client, name)
                if part is None:
                    known[place] = False
                else:
                    rest[place] += weights[client] * part.values
                    off[place] += np.square(weights[client] * part.off)
        mean = np.zeros(size)
        mean[at] = total.mean()
        divisor = self._divisor(zone, steps, divisor, sum(weights[c] for c in (*others, self.target)), weights)
        own = weights[self.target]
        values = ((mean * divisor - rest) / own)[where]
        values[~known[where]] = np.nan
        if np.isnan(values).all():
            return None
        error = np.sqrt(off + _central(steps) ** 2)[where] / own
        found = Block(zone, block.size, values.astype(np.float32), block.positions)
        return TakenOff(found, error, math.sqrt(len(others) + 1) / own)

    def _hides_who(self, zone: str) -> bool:
        """Whether a sum of sampled clients is divided by their expected weight."""
        return zone in amplified(self.observer.recipe.sampling, self.facts)

    def _divisor(
        self, zone: str, steps: Sequence[Step], sent: NDArray[np.float64], total: float, weights: Mapping[int, float]
    ) -> Any:
        """The divisor of the sum of a zone: (n,), or one number.

        Args:
            zone: the zone.
            steps: its links.
            sent: (n,), the weight of the clients that sent each scalar.
            total: the weight of all clients that sent anything.
            weights: of all clients.
        """
        sampling = self.observer.recipe.sampling
        if sampling is not None and self._hides_who(zone):
            return sampling.rate * sum(weights.values())
        rule = next(o for step in steps for o in step.operations if isinstance(o, WeightedSum))
        return (total if rule.divided_by == "all" else sent) / rule.rate

    # -- what the adversary has ----------------------------------------------------------------------------------------

    @functools.cached_property
    def _uploads(self) -> dict[int, Mapping[str, Block]]:
        """The uploads of the round that were read, by client; decoded if a zone of the target stays sealed."""
        return {client: blocks for _, client, blocks in uploads_in(self.read, self.facts.round)}

    def _scattered(self) -> set[str]:
        """The zones whose positions differ between clients."""
        blocks = (each for blocks in self._uploads.values() for each in blocks.values())
        return {block.zone for block in blocks if block.positions is not None}

    def _steps(self, zone: str) -> Sequence[Step] | None:
        """The links of a zone; None if its sum cannot be taken apart here.

        This is so if groups have separate sums, or if some clients send noise alone.
        """
        recipe = self.observer.recipe
        if recipe.groups is not None or recipe.resting(self.facts.round):
            return None
        steps = public_facts.steps_of(zone, self.facts) or []
        behind = [o for step in steps if step.link.hook != "protect" for o in step.operations]
        adds = [o for o in behind if isinstance(o, WeightedSum)]
        plain = all(isinstance(o, WeightedSum | Open | Noise) for o in behind)
        return steps if plain and len(adds) == 1 and adds[0].by is None else None

    def _weights(self) -> Mapping[int, float] | None:
        """The weights of all clients; None where the adversary cannot know them."""
        if self._told_weights is not None:
            return self._told_weights
        for insider in self.insiders:
            if isinstance(insider.party, Server) and insider.party.weights:
                return insider.party.weights
        recipe, aggregator = self.observer.recipe, self.observer.composition.aggregator
        everyone = range(recipe.data.clients)
        if not aggregator.wants.num_examples:
            return dict.fromkeys(everyone, 1.0)
        sizes = sizes_in(self.read)
        if len(sizes) < len(everyone):  # they were not recorded
            self._told_weights = self.told() or self._weights_by_sum()
            return self._told_weights
        most = max(sizes.values())
        return {client: weight_of(aggregator, size, most) for client, size in sizes.items()}

    def _weights_by_sum(self) -> Mapping[int, float] | None:
        """The weights of the adversary's clients, which know their own, and of the target: their total is in a sum.

        None where others sent an upload, or sums tell no total.
        """
        own = {c: i.party.weight for c, i in self._clients.items() if isinstance(i.party, Client)}
        others = self._uploads.keys() - {self.target}
        if others - own.keys() or any(map(self._hides_who, self.opened_sums)):
            return None
        sums = self.opened_sums.values()
        together = {float(b.divisor) for b in sums if not isinstance(b.divisor, np.ndarray)} - {1.0}
        rest = together.pop() - sum(own[c] for c in others) if len(together) == 1 else 0.0
        return {**own, self.target: rest} if 0 < rest <= 1 + 1e-9 else None

    def _may_tell(self, block: Block, others: Sequence[int]) -> bool:
        """Whether some scalar of a zone has no values of others, or only values that the adversary may know."""
        unknown = [self._uploads[c][block.zone] for c in others if not self._may_know(c, block.zone)]
        if not unknown:
            return True
        if block.positions is None or any(each.positions is None for each in unknown):
            return False
        covered = np.zeros(self.observer.layout.size, bool)
        for each in unknown:
            covered[each.positions] = True
        return not bool(covered[block.positions].all())

    def _may_know(self, client: int, zone: str) -> bool:
        """Whether it may know a client's values in a zone: a key that opens others' values would open the target's."""
        block = self._uploads[client].get(zone)
        return client in self._clients or block is None or block.values is not None

    def _part(self, client: int, zone: str) -> _Part | None:
        if (client, zone) not in self._parts:
            block = self._uploads[client][zone]
            found = self._opened(block, client)
            self._parts[client, zone] = self._own_part(client, block) if found is None else found
        return self._parts[client, zone]

    def _opened(self, block: Block, client: int) -> _Part | None:
        """A client's values as read or opened: with their noise, so that they are off by rounding alone."""
        opened = block if block.values is not None else None
        if opened is None and self.insiders:
            opened = self.observer.opened(block, self.facts, self.insiders, client)
        if opened is None:
            return None
        values = opened.plain().astype(np.float64) / (opened.divisor if opened.weighted else 1.0)
        return _Part(values, np.zeros(block.size), block.positions)

    def _own_part(self, client: int, block: Block) -> _Part | None:
        """The values of a client on the adversary's side, from its update and its plan."""
        insider = self._clients.get(client)
        if insider is None or insider.plan is None:
            return None
        update = self._own.get(client)
        if update is None:
            return None
        assert isinstance(insider.party, Client)
        return _sent(self.observer, insider.party, insider.plan, update, block, self.facts)

    @functools.cached_property
    def _own(self) -> Mapping[int, Vector]:
        """The updates of the clients on the adversary's side, before protection."""
        return self.beyond.updates(sorted(self._clients))

    @functools.cached_property
    def _adopted(self) -> Mapping[str, Block]:
        """The sums of the round by zone, as clients were told them; none if the adversary read no such message."""
        later = [message for message in self.beyond.later() if self.reads(message)]
        for receiver in [client_address(self.target), *map(client_address, self._clients)]:
            for message in later:
                if message.receiver != receiver:
                    continue
                for call in message.asked():
                    if (call.component, call.method, call.round) == (Steps.name, "adopt", self.facts.round):
                        adopted: Mapping[str, Block] = call.payload[0]
                        return adopted
        return {}

    @functools.cached_property
    def opened_sums(self) -> Mapping[str, Block]:
        """The means of the round by zone, as far as the adversary can open the messages to clients."""
        client = Client(client_id=self.target, facts=self.facts)
        opened = {
            zone: self.observer.sum_opened(zone, block, client, self.insiders) for zone, block in self._adopted.items()
        }
        return {zone: block for zone, block in opened.items() if block is not None}


def _sent(observer: Observer, party: Client, plan: Plan, update: Vector, block: Block, facts: Facts) -> _Part | None:
    """A client's values in a zone before the seal: its update after all earlier links.

    Noise that cannot be drawn again is left out. Its owner would know it; here it counts as an error.
    """
    zone = block.zone
    if zone == RETAINED or zone not in plan.zones:
        return None
    where = plan.positions(zone)
    if len(where) != block.size:
        return None
    party.facts, own = facts, observer.composition.plans.own
    made = Block(zone, len(where), update[where], where if zone in own else None, divisor=party.weight)
    variance = np.zeros(len(where))
    try:
        steps = facts.steps(zone)
        for step in steps:
            if step.link.hook != "protect" or step.has(Seal, Scramble):
                break
            kept = [number for number, one in enumerate(step.operations) if not _is_lost(one)]
            if len(kept) < len(step.operations):
                sent = Sent.of(zone, facts, observer.learns(facts), party.client_id)
                variance = np.square(sent.sigma(observer.layout)[where] * abs(sent.factor), dtype=np.float64)
            part = dataclasses.replace(
                step, operations=tuple(step.operations[n] for n in kept),
                states=(*(step.states[n] for n in kept), step.states[-1]),
            )  # fmt: skip
            made = execute(part, made, party, facts)
    except Exception:  # its effect follows from the client's data or memory
        return None
    return _Part(made.plain().astype(np.float64), np.sqrt(variance), block.positions)


def _central(steps: Sequence[Step]) -> float:
    """Standard deviation of the noise on a sum; NaN if it is not stated."""
    behind = [o for step in steps if step.link.hook == "postprocess" for o in step.operations if isinstance(o, Noise)]
    sizes = [math.nan if not isinstance(one.std, float | int | tuple) else float(np.max(one.std)) for one in behind]
    return math.hypot(*sizes)


def _is_lost(operation: Any) -> bool:
    """Whether an operation draws numbers that cannot be drawn again."""
    return isinstance(operation, Noise) and operation.source != "reproducible"


class _Likeness:
    """The state that a client on the adversary's side shares with the target, as far as messages show it.

    Attributes:
        trained: whether it took part in the round; else its plan and its model are from an earlier one.
        adopted: whether both received the same sums before, so that they hold the same global model.
        negotiated: whether the round's negotiation sent both the same, so that they share a plan; groups negotiate
            separately.
    """

    def __init__(self, messages: Sequence[Message], insider: Any, target: int, round: int) -> None:
        self.trained = insider.remembered.trained == round
        told = []
        for client_id in (insider.client_id, target):
            calls = list(_calls(messages, client_address(client_id)))
            adopts = [call for call in calls if (call.component, call.method) == (Steps.name, "adopt")]
            asked = [call for call in calls if call.component != Steps.name and call.round == round]
            adopted = {call.sequence for call in adopts if call.round < round}
            told.append((adopted, {call.sequence for call in asked} - {0}, [call.body for call in asked]))
        (adopted, lasting, negotiated), (their_adopted, their_lasting, their_negotiated) = told
        self.adopted = adopted == their_adopted
        self.negotiated = bool(lasting & their_lasting) or negotiated == their_negotiated


def _remembered(target: int, insiders: Sequence[Insider], grouped: bool) -> Snapshots:
    """What components have published to a client, as far as the parties on the adversary's side remember it.

    Args:
        target: the client.
        insiders: those parties.
        grouped: whether clients of another group may have been told something else.
    """
    parties = [insider.party for insider in insiders]
    for party in parties:
        if isinstance(party, Server):
            group = next((name for name, ids in party.groups.items() if target in ids), "all")
            return published_to(party.remembered.published, group)
    told = [party.remembered.published for party in parties if isinstance(party, Client) and not grouped]
    return max(told, key=lambda rounds: max(rounds, default=-2), default={})


def _says_nothing_of_shares(closing: Closing, parties: Sequence[Any]) -> bool:
    """Whether a seal that clients' shares open leaves `open_upload` at its default, by which parties try one by one.

    Raises:
        PluginError: it does, and clients are among the parties. The default does not hide an upload from them.
    """
    component, seal = closing.component, closing.operation
    if not isinstance(component, Sealer) or not isinstance(seal, Seal) or seal.opened_by != "shares":
        return False
    if type(component).open_upload is not Sealer.open_upload:
        return False
    if any(isinstance(party, Client) for party in parties):
        raise PluginError(
            f"{component.name} does not declare how clients with pooled shares open an upload, so it is unknown "
            "whether the upload is hidden from them; override open_upload(upload, parties, facts)"
        )
    return True


def _opening(zone: str, facts: Facts) -> list[Step]:
    """The links after the aggregation of a zone; none if their effect follows from facts that were not heard."""
    return [step for step in public_facts.steps_of(zone, facts) or () if step.link.hook == "postprocess"]


def _calls(messages: Sequence[Message], receiver: str) -> Iterator[Asked]:
    for message in messages:
        if message.receiver == receiver:
            yield from message.asked()


def _examples(messages: Sequence[Message], target: int) -> int | None:
    """How many examples the target has, if it sent that before round 1."""
    return sizes_in(message for message in messages if message.sender == client_address(target)).get(target)


def _unweighted(block: Block) -> Vector:
    """A client's values without its weight."""
    if not block.weighted:
        return block.plain()
    return np.divide(block.plain(), block.divisor, dtype=np.float32, casting="unsafe")


def _divisor(block: Block) -> float:
    """The smallest weight in a block, for the coarsest grid."""
    return float(np.min(block.divisor))

