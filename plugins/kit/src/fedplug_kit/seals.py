"""Checks of seals: what ciphertexts show, who can open them, and how often.

These checks cannot prove that a seal is an encryption. They find the traces of ordinary mistakes: plaintext, a mask
that is used twice, a key that follows from nothing secret, shares of which one is enough, a party that opens anything
on request. All checks use real parties in rounds that the kit steps through.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api import codec
from fedplug.api.blocks import Block, Plan
from fedplug.api.errors import FedplugError, cause_of
from fedplug.api.operations import Open, Scramble, Seal
from fedplug.mechanisms.execution import execute
from fedplug.round.steps import opened_once, unsealed

from fedplug_kit.functions import awkward, within
from fedplug_kit.world import prepares

if TYPE_CHECKING:
    from fedplug.api.known import Known
    from fedplug.api.links import Link, Step
    from fedplug.api.parties import Client
    from numpy.typing import NDArray

    from fedplug_kit.world import World

TRIALS = 8
"""Rounds of a recipe whose seals are tried: each trial has a separate round, since a sum is opened once a round."""
_ALIKE = 0.5
"""Share of a block that also occurs in another one, from which on the two count as alike."""


def seal_problems(name: str, stage: Callable[[], World]) -> Iterator[str]:
    """Yields all problems that these checks find.

    Args:
        name: name of the component.
        stage: makes parties with fresh keys that are ready for rounds 2 to `TRIALS`.
    """
    one = functools.cache(stage)
    try:
        closing = [step for step in one().steps(name, "protect") if step.has(Seal, Scramble)]
        for step in closing:
            yield from _Trials(one(), stage, step).problems()
    except FedplugError as error:
        yield f"component {name}: a trial of its seal fails: {error}"


@dataclasses.dataclass
class _Trials:
    """Trials of one link's seal."""

    world: World
    again: Callable[[], World]
    step: Step

    def __post_init__(self) -> None:
        number = next(i for i, one in enumerate(self.step.operations) if isinstance(one, Seal | Scramble))
        operation = self.step.operations[number]
        assert isinstance(operation, Seal | Scramble)
        self.operation = operation
        # The seal alone, since the noise below it must not count as hiding by the seal.
        states = self.step.states[number : number + 2]
        self.closing = dataclasses.replace(self.step, operations=(operation,), states=states)
        self.rounds = iter(range(1, TRIALS))
        self.name, self.zone = self.step.link.name, self.step.link.zone
        place = f"component {self.name}, hook protect, {type(operation).__name__}"
        self.place = f"{place} of zone {self.zone}"

    def problems(self) -> Iterator[str]:
        """The first problem; further ones often follow from it."""
        trials = [self._sums]
        if isinstance(self.operation, Seal):
            trials = [self._shown, self._sums, self._opened_by_few, self._opened_alone]
        if self.step.link.component.joins:
            trials.append(self._joined)
        for trial in trials:
            if found := next(trial(), ""):
                yield f"{self.place}: {found}"
                return

    # -- what a sealed block shows -------------------------------------------------------------------------------------

    def _shown(self) -> Iterator[str]:
        """Checks that zeros, and one vector sealed twice, at two clients and in two rounds give unrelated bytes."""
        zeros, values = self._values("zeros"), self._values("random values")
        quiet = within(values * np.float32(0.01), self._on_grid())
        first, second = next(self.rounds), next(self.rounds)
        self.world.enter(first)
        nothing, there = _bytes(self._sealed(0, zeros)), _bytes(self._sealed(1, values))
        loud, low = ([self._sealed(0, each) for _ in range(2)] for each in (values, quiet))
        self.world.enter(second)
        later = _bytes(self._sealed(0, values))
        one, twice = map(_bytes, loud)
        if _size(nothing) < 0.8 * _size(one):
            yield (
                f"zeros are sealed to bytes that compress to {_size(nothing)} of {len(nothing)}, other values to "
                f"{_size(one)}: the values show through the seal; encrypt, or add a mask that covers every value"
            )
        others = {
            "sealed once more by the same client": twice, "sealed by another client": there,
            "sealed in another round": later,
        }  # fmt: skip
        if prepares(self.step.link.component):  # a client uploads once a round, and has keys for that
            del others["sealed once more by the same client"]
        for what, other in others.items():
            if (alike := _shared(one, other)) > _ALIKE:
                yield (
                    f"one vector {what} gives {alike:.0%} of the same bytes, so the difference of two uploads shows "
                    "that of their values; draw a fresh mask or nonce for each upload, for example from os.urandom"
                )
        yield from self._shown_beside(loud, low)

    def _shown_beside(self, loud: list[Block], low: list[Block]) -> Iterator[str]:
        """Checks that neither sizes nor `meta` depend on the values."""
        of_loud, of_low = ([_facts(block) for block in blocks] for blocks in (loud, low))
        for what, told in of_loud[0].items():
            others = [facts.get(what) for facts in of_low]
            if told == of_loud[1].get(what) and others[0] == others[1] != told:
                yield (
                    f"{what} of the sealed block follows from the values: {told!r:.40} for some, {others[0]!r:.40} for "
                    "others, and anyone who sees the upload sees it; leave it out, or give all clients the same"
                )

    # -- who opens it, and the result ----------------------------------------------------------------------------------

    def _sums(self) -> Iterator[str]:
        """Checks that the declared parties open a sum, once in a round, and that it is the sum of the values."""
        round = next(self.rounds)
        self.world.enter(round)
        sealed = self._all_sealed()
        everybody, total = sorted(sealed), self._added(sealed)
        if isinstance(self.operation, Seal):
            yield from self._opened_by_others(total, everybody, round)
        yield from self._unequal(total, everybody, "uploads")
        fewer = everybody[:-1]
        second = self._added({client_id: sealed[client_id] for client_id in fewer})
        if isinstance(self.operation, Seal) and self._opens(second, fewer, asked=everybody):
            yield (
                f"a second sum of one round is opened, of {len(fewer)} of the {len(everybody)} clients of the first, "
                "and the difference of the two is a single update; let each client note each opening with "
                "client.openings.once(...), and refuse another sum of the same round"
            )

    def _opened_by_others(self, total: Block, senders: list[int], round: int) -> Iterator[str]:
        """Checks that neither the parties of another run nor the aggregation server alone open a sum."""
        other = self.again()
        other.enter(round)
        if self._opens(total, senders, world=other):
            yield (
                "another run of the same recipe opens its sums, so its key follows from nothing secret; draw it with "
                "fedplug.api.secrets.draw(), or derive it with client.secret(self)"
            )
        assert isinstance(self.operation, Seal)
        if self.operation.opened_by == "shares":
            return
        facts = dataclasses.replace(self.world.protocol.server.facts, known=self.closing.after)
        with contextlib.suppress(Exception):  # any error means that the server cannot open it
            if self._is_sum(self._component.open(total, facts), senders):
                yield (
                    f"the aggregation server opens it with what it holds, but only {self.operation.opened_by} are "
                    "declared to open it; give the key to nobody else"
                )

    def _unequal(self, total: Block, senders: list[int], what: str) -> Iterator[str]:
        given, why = self._opened(total, senders)
        if given is None:
            yield f"the sum of {len(senders)} {what} does not open: {why}"
        elif not self._is_sum(given, senders):
            yield (
                f"the sum of {len(senders)} {what} differs from that of the plain values by "
                f"{self._distance(given, senders):.3g}; its declared range and step allow "
                f"{self._room(len(senders)):.3g}"
            )

    def _joined(self) -> Iterator[str]:
        """Checks that the sum of two sums opens to the sum of all."""
        self.world.enter(next(self.rounds))
        sealed = self._all_sealed()
        ids = sorted(sealed)
        halves = [self._added({c: sealed[c] for c in part}) for part in (ids[: len(ids) // 2], ids[len(ids) // 2 :])]
        total = self._component.join_sums(halves, self.world.protocol.server.facts)
        yield from self._unequal(total, ids, "uploads, whose halves were added first,")

    def _opened_by_few(self) -> Iterator[str]:
        """Checks that fewer shares than declared do not open a sum."""
        if not isinstance(self.operation, Seal) or self.operation.opened_by != "shares":
            return
        self.world.enter(next(self.rounds))
        sealed = self._all_sealed()
        few = sorted(sealed)[: self.operation.opens_with - 1]
        if few and self._opens(self._added(sealed), sorted(sealed), asked=few):
            yield (
                f"the shares of {len(few)} clients open a sum, but it declares opens_with={self.operation.opens_with}; "
                "share the secret so that fewer shares reveal nothing (Shamir), or declare the number that is enough"
            )

    def _opened_alone(self) -> Iterator[str]:
        """Checks that a single update does not open."""
        self.world.enter(next(self.rounds))
        everybody = sorted(self.world.protocol.server.weights)
        first, least = everybody[0], self.world.protocol.recipe.min_clients
        alone = self._added({first: self._sealed(first, self._values("random values", first))})
        if least > 1 and self._opens(alone, [first], asked=everybody):
            yield (
                f"a sum of 1 update is opened, but min_clients is {least}; let every party with a key or a share "
                "refuse sums of fewer than facts.min_clients updates"
            )

    # -- how -----------------------------------------------------------------------------------------------------------

    @property
    def _component(self) -> Any:
        """The aggregation server's copy."""
        return self.world.protocol.composition.components[self.name]

    def _values(self, what: str, client_id: int = 0) -> NDArray[np.float32]:
        values = np.roll(awkward(self.world.protocol.layout.size)[what], client_id)
        return within(values, self._on_grid())

    def _on_grid(self) -> Known:
        """The facts known before the seal, for values on its grid, so that rounding does not matter."""
        known, step = self.closing.before, self.operation.step
        return dataclasses.replace(known, grid=step) if step > 0 and not known.grid else known

    def _sealed(self, client_id: int, values: NDArray[np.float32]) -> Block:
        client = self._client(self.world, client_id)
        held = client.plan
        client.plan = Plan.single(self.zone, len(values), client.facts.zones)
        block = Block(self.zone, len(values), values, divisor=client.weight)
        link = self._link(client, "protect")
        try:
            return execute(dataclasses.replace(self.closing, link=link), block, client, client.facts)
        finally:
            client.plan = held

    def _all_sealed(self) -> dict[int, Block]:
        ids = sorted(self.world.protocol.server.weights)
        return {client_id: self._sealed(client_id, self._values("random values", client_id)) for client_id in ids}

    def _added(self, sealed: Mapping[int, Block]) -> Block:
        total: Block = self._component.add_blocks(dict(sealed), self.world.protocol.server.facts)
        return total

    def _opens(
        self, total: Block, senders: list[int], *, world: World | None = None, asked: list[int] | None = None
    ) -> bool:
        given, _ = self._opened(total, senders, world=world, asked=asked)
        return given is not None and self._is_sum(given, senders)

    def _opened(
        self, total: Block, senders: list[int], *, world: World | None = None, asked: list[int] | None = None
    ) -> tuple[Block | None, str]:
        """The sum as opened at the declared place, or the reason why it does not open.

        Args:
            total: the sealed sum.
            senders: the clients whose updates are in it.
            world: the parties that open it.
            asked: the clients that can be asked; None: the senders.
        """
        world = world or self.world
        protocol = world.protocol
        server = protocol.server
        server.cohort = protocol.cohort(senders if asked is None else asked)
        protocol.office.dropped.clear()
        try:
            opening = next(s for s in world.steps(self.name, "postprocess") if s.link.zone == self.zone and s.has(Open))
            number = next(i for i, one in enumerate(opening.operations) if isinstance(one, Open))
            states = opening.states[number : number + 2]
            opening = dataclasses.replace(opening, operations=opening.operations[number : number + 1], states=states)
            if opening.link.site == "server":
                block = execute(opening, total, server, server.facts)
            elif opening.link.site == "key_server":
                block = protocol.key_server.ask(protocol.steps.open, self.name, total, [], "all", senders)
                client = self._client(world, senders[0])
                block = unsealed(block, client) if isinstance(block, Block) else block
            else:
                if isinstance(self.operation, Seal) and self.operation.opened_by == "shares":
                    total = self._component.gather(total, server.facts)
                client = self._client(world, senders[0])
                link = self._link(client, "postprocess")
                with opened_once(client, total, "all", senders):
                    block = execute(dataclasses.replace(opening, link=link), total, client, client.facts)
            block.plain()  # raises if it is sealed
            return block, ""
        except Exception as error:  # a wrong key may fail in any way
            return None, str(error) if isinstance(error, FedplugError) else cause_of(error)
        finally:
            server.cohort = None

    def _client(self, world: World, client_id: int) -> Client:
        return next(c for c in world.clients.clients.values() if c.client_id == client_id)

    def _link(self, client: Client, hook: str) -> Link:
        """This client's copy."""
        return next(one for one in client.facts.links[self.zone] if (one.name, one.hook) == (self.name, hook))

    def _is_sum(self, given: Block, senders: list[int]) -> bool:
        return self._distance(given, senders) <= self._room(len(senders))

    def _distance(self, given: Block, senders: list[int]) -> float:
        """Distance between an opened sum and the sum of the values that these clients sealed."""
        weights, limit = self.world.protocol.server.weights, self.operation.range
        expected = np.zeros(self.world.protocol.layout.size)
        for client_id in senders:
            values = self._values("random values", client_id) * np.float64(weights[client_id])
            expected += np.clip(values, -limit, limit) if limit == limit else values
        found = given.plain().astype(np.float64)
        return float(np.abs(found - expected).max(initial=0.0)) if found.shape == expected.shape else np.inf

    def _room(self, count: int) -> float:
        step = self.operation.step if self.operation.step == self.operation.step else 1e-3
        return count * step / 2 * (1 + 1e-6) + 1e-6 * count


def _bytes(block: Block) -> bytes:
    """All parts of a block that are visible in the upload."""
    return codec.encode([block.values, *block.ciphertexts, dict(block.meta)])


def _size(data: bytes) -> int:
    """Size of data after compression, in bytes."""
    return len(zlib.compress(data, level=1))


def _shared(one: bytes, other: bytes) -> float:
    """Share of the 8-byte words of one that also occur in the other; chance makes none."""
    words = np.frombuffer(one[: len(one) // 8 * 8], np.uint64)
    windows = [np.frombuffer(other[start : start + (len(other) - start) // 8 * 8], np.uint64) for start in range(8)]
    return float(np.isin(words, np.concatenate(windows)).mean()) if len(words) else 0.0


def _facts(block: Block) -> dict[str, Any]:
    """Numbers and words that accompany a sealed block, by their description."""
    found: dict[str, Any] = {"the number of ciphertexts": len(block.ciphertexts), "divisor": block.divisor}
    # Encodings may differ by some bytes from draw to draw; a leak of values differs by more.
    sizes = [len(data) for data in block.ciphertexts]
    found["the size of ciphertexts"] = round(float(np.log2(max(sum(sizes), 1))), 1)
    found.update(_leaves(dict(block.meta), "meta"))
    return found


def _leaves(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return {at: leaf for key, inner in value.items() for at, leaf in _leaves(inner, f"{path}[{key!r}]").items()}
    if isinstance(value, list | tuple):
        return dict(itertools.chain.from_iterable(_leaves(v, f"{path}[{i}]").items() for i, v in enumerate(value)))
    return {path: codec.encode(value) if isinstance(value, np.ndarray) else value}
