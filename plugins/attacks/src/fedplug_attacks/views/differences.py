"""The last unknown update in an opened sum: the sum minus the adversary's knowledge of all the others.

An adversary that reads the opened sum of a round and has all updates in it except one also has that one, whatever
sealed it. A colluding client knows its own updates; of the others it has those that it can read or open. The
subtraction works scalar by scalar: if positions differ between clients, a scalar that nobody else sent is the target's
alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from fedplug.api.blocks import RETAINED, Block, Plan
from fedplug.api.links import amplified
from fedplug.api.operations import Noise, Open, Scramble, Seal, WeightedSum
from fedplug.api.parties import Client, Server, client_address
from fedplug.mechanisms.execution import execute
from fedplug.round.set_up import weight_of
from fedplug.round.steps import Steps
from fedplug_runs.wire_record import Message

from fedplug_attacks.api.told import sizes_in, uploads_in
from fedplug_attacks.views.public_facts import Sent

if TYPE_CHECKING:
    from fedplug.api.blocks import Layout
    from fedplug.api.facts import Facts
    from fedplug.api.links import Step
    from fedplug.api.roles import Learns
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe
    from numpy.typing import NDArray

    from fedplug_attacks.views.adversaries import Insider

Vector: TypeAlias = "NDArray[np.float32]"


class Watches(Protocol):
    """An `Observer`, as far as differences need it."""

    recipe: Recipe
    composition: Composition
    layout: Layout

    def learns(self, facts: Facts) -> Learns | None:
        """See `Observer.learns`."""

    def opened(self, block: Block, facts: Facts, insiders: Sequence[Insider], sender: int = -1) -> Block | None:
        """See `Observer.opened`."""

    def sum_opened(self, zone: str, block: Block, client: Client, insiders: Sequence[Insider]) -> Block | None:
        """See `Observer.sum_opened`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Beyond:
    """Slow look-ups, made only if an opened sum may reveal an update.

    Attributes:
        later: gives the messages after a round, which contain its sums.
        updates: gives the updates (P,) before protection of clients on the adversary's side, without unavailable ones.
    """

    later: Callable[[], Sequence[Message]]
    updates: Callable[[Sequence[int]], Mapping[int, Vector]]


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
    """Subtracts known updates from the sums of one round.

    Attributes:
        observer: of the run.
        target: the client whose update is wanted.
        facts: of the round, with what the adversary knows that was published.
        read: the messages that the adversary read, up to that round.
        reads: whether it reads a message.
        insiders: the parties on its side.
        beyond: looks up later messages, and the own updates of its clients.
    """

    observer: Watches
    target: int
    facts: Facts
    read: Sequence[Message]
    reads: Callable[[Message], bool]
    insiders: Sequence[Insider]
    beyond: Beyond

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
            # The clients except one know their own weights, and from an opened sum the total.
            together = {float(b.divisor) for b in sums.values() if not isinstance(b.divisor, np.ndarray)} - {1.0}
            own = {c: i.party.weight for c, i in self._clients.items() if isinstance(i.party, Client)}
            rest = together.pop() - sum(own[c] for c in self._uploads) if len(together) == 1 else 0.0
            if not 0 < rest <= 1 + 1e-9:
                return None
            self._told_weights = {**own, self.target: rest}
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
        try:
            steps = self.facts.steps(zone)
        except Exception:  # it follows from what was published, and this adversary has not heard it
            return None
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
        if len(sizes) < len(everyone):
            return None
        most = max(sizes.values())
        return {client: weight_of(aggregator, size, most) for client, size in sizes.items()}

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


def _sent(observer: Watches, party: Client, plan: Plan, update: Vector, block: Block, facts: Facts) -> _Part | None:
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

