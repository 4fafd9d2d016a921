"""Checks of seals: what ciphertexts show, who can open them, how often, and what comes out.

These checks cannot prove that a seal is an encryption. They find the traces of ordinary mistakes: plaintext, a mask
that is used twice, a key that follows from nothing secret, shares of which one is enough, a party that opens anything
on request. All checks use real parties in rounds that the kit steps through.

`Sealing` alone knows how components seal; the trials know what must hold of that.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api import codec
from fedplug.api.blocks import Block, Plan
from fedplug.api.errors import FedplugError, cause_of
from fedplug.api.operations import Open, Scramble, Seal
from fedplug.mechanisms.closing import Closing
from fedplug.mechanisms.execution import execute
from fedplug.round.steps import opened_once, unsealed

from fedplug_kit.functions import awkward, within
from fedplug_kit.leaves import all_told, leaves
from fedplug_kit.world import prepares

if TYPE_CHECKING:
    from fedplug.api.links import Step
    from fedplug.api.operations import Operation
    from numpy.typing import NDArray

    from fedplug_kit.world import World

TRIALS = 8
"""Rounds of a recipe whose seals are tried: each trial has a separate round, since a sum is opened once a round."""
_ALIKE = 0.05
"""Share of a block that also occurs in another one, from which on the two count as alike; ciphertexts share headers."""
_FULL = 0.8
"""Share of their length to which sealed zeros must not compress. Masks, Paillier, LWE and BFV give 1, CKKS 0.995, and
residues modulo a prime of 54 bits in words of 64 would give about 0.85; masks of half a word's bits give 0.5."""
_BARE = 4
"""Bytes in a row that are the same whenever zeros are sealed, and not for other values, from which on they count as
bare: those of a short word. Single ones are so by chance, such as control bits, or sizes of compressed ciphertexts."""
_RANDOM, _ENDS = "random values", "values at both ends of its range"


def seal_problems(name: str, stage: Callable[[], World]) -> Iterator[str]:
    """Yields all problems that these checks find.

    Args:
        name: name of the component.
        stage: makes parties with fresh keys that are ready for rounds 2 to `TRIALS`.
    """
    one = functools.cache(stage)
    try:
        for step in one().steps(name, "protect"):
            if step.has(Seal, Scramble):
                yield from _Trials(name, step.link.zone, one(), stage).problems()
    except FedplugError as error:
        yield f"component {name}: a trial of its seal fails: {error}"


def pad_problems(name: str, world: World) -> Iterator[str]:
    """Whether one mask hides two zones of a round.

    Args:
        name: name of the component.
        world: parties that are ready for round 2 of a recipe in which the component seals two zones.
    """
    world.enter(1)
    zones = [step.link.zone for step in world.steps(name, "protect") if step.has(Seal, Scramble)]
    sealings = [Sealing(world, name, zone) for zone in zones]
    one, other = (each.seen(each.sealed(0, each.values(_RANDOM))) for each in sealings)
    if sealings[0].hides and (alike := max(map(_shared, one, other))) > _ALIKE:
        yield (
            f"component {name}, hook protect: one vector sealed in zones {' and '.join(zones)} of a round gives "
            f"{alike:.0%} of the same bytes, so the difference of the two uploads shows that of their values; draw a "
            "fresh nonce for each upload, or derive each mask from words.zone too"
        )


class Sealing:
    """One component's seal of a zone, at the parties of one run."""

    def __init__(self, world: World, name: str, zone: str) -> None:
        self.world, self.name, self.zone = world, name, zone
        self.closing = self._only("protect", Seal, Scramble)
        operation = self.closing.operations[0]
        assert isinstance(operation, Seal | Scramble)
        self.operation, self.component = operation, self.closing.link.component
        self.hides = isinstance(operation, Seal) or operation.hides == "values"
        self.size = world.protocol.layout.size
        # Unequal, whatever the recipe weighs by: who multiplies a weight in once more then opens another sum.
        self.weights = {c: 1 / (2 + number) for number, c in enumerate(sorted(world.protocol.server.weights))}
        world.protocol.server.remembered.weights = self.weights
        for client_id, weight in self.weights.items():
            world.client(client_id).remembered.weight = weight

    def _only(self, hook: str, *kinds: type) -> Step:
        """The link with this operation alone: the noise below a seal must not count as hiding by it."""
        step = next(s for s in self.world.steps(self.name, hook) if s.link.zone == self.zone and s.has(*kinds))
        number = next(i for i, one in enumerate(step.operations) if isinstance(one, kinds))
        operations: tuple[Operation, ...] = step.operations[number : number + 1]
        return dataclasses.replace(step, operations=operations, states=step.states[number : number + 2])

    def values(self, what: str, client_id: int = 0, scale: float = 1.0) -> NDArray[np.float32]:
        """Values of a client that the zone may have, on the seal's grid, so that rounding does not matter."""
        known, step = self.closing.before, self.operation.step
        known = dataclasses.replace(known, grid=step) if step > 0 and not known.grid else known
        # Just within the range once the weight is multiplied in: some numbers refuse what is beyond.
        ends = np.where(np.arange(self.size) % 16 < 8, 1, -1) * (1 - 1e-6) / self.weights[client_id]
        given = self.operation.range * ends if what == _ENDS else awkward(self.size)[what]
        return within((np.roll(given, client_id) * scale).astype(np.float32), known)

    def sealed(self, client_id: int, values: NDArray[np.float32]) -> Block:
        """A client's upload of these values."""
        client = self.world.client(client_id)
        held, client.plan = client.plan, Plan.single(self.zone, self.size, client.facts.zones)
        try:
            return execute(self.closing, Block(self.zone, self.size, values), client, client.facts)
        finally:
            client.plan = held

    def seen(self, upload: Block) -> tuple[bytes, bytes]:
        """Everything in an upload that a reader sees, and its parts alone."""
        return codec.encode([*upload.ciphertexts, dict(upload.meta)]), b"".join(upload.ciphertexts)

    def tells_key(self) -> bool:
        """Whether an upload holds what its client has derived for it, or all keys that it had before."""
        client, keys = self.world.client(0), set()
        derived, before = client.secret, copy.deepcopy(client.memory(self.component))

        def noted(*purpose: Any) -> bytes:
            keys.add(key := derived(*purpose))
            return key

        vars(client)["secret"] = noted
        try:
            seen = self.seen(self.sealed(0, self.values(_RANDOM)))[0]
        finally:
            del vars(client)["secret"]
        # Where clients share a secret, or the key server opens, what they have in their memory may be no secret at all.
        alone = isinstance(self.operation, Seal) and self.operation.opened_by != "key_server"
        own = alone and not self.component.cohort_secret
        return any(key in seen for key in keys) or (own and all_told(before, seen))

    def beside(self, upload: Block) -> dict[str, Any]:
        """Numbers and words that accompany a sealed block, by their description."""
        # Encodings may differ by some bytes from draw to draw; a leak of values differs by more.
        size = round(float(np.log2(max(sum(map(len, upload.ciphertexts)), 1))), 1)
        found = {"the number of parts": len(upload.ciphertexts), "the size of parts": size}
        return {**found, **leaves(upload.meta.get("letters", {}), "letters")}

    def added(self, uploads: Mapping[int, Block]) -> Block:
        """Their sum, sealed."""
        return self._closing.add(dict(uploads), self.weights, self.world.protocol.server)

    def joined(self, totals: Sequence[Block]) -> Block:
        """The sum of sums."""
        return self._closing.join(totals, self.world.protocol.server)

    def opened(self, total: Block, senders: list[int], asked: list[int] | None = None) -> NDArray[np.float64]:
        """The mean as it is opened at the declared place, (P,).

        Args:
            total: the sealed sum.
            senders: the clients whose updates are in it.
            asked: the clients that can be asked; None: the senders.

        Raises:
            FedplugError: it does not open.
        """
        protocol, server = self.world.protocol, self.world.protocol.server
        server.cohort = protocol.cohort(senders if asked is None else asked)
        protocol.office.dropped.clear()
        opening, client = self._only("postprocess", Open), self.world.client(senders[0])
        try:
            if opening.link.site == "server":
                block = execute(opening, total, server, server.facts, senders=senders)
                return np.asarray(block.mean(), np.float64)
            total = self._closing.gather(total, senders, server)
            if opening.link.site == "key_server":
                given = protocol.key_server.ask(protocol.steps.open, self.name, total, [], "all", senders)
                return np.asarray(unsealed(given, client).mean(), np.float64)
            with opened_once(client, total, "all", senders):
                return np.asarray(execute(opening, total, client, client.facts, senders=senders).mean(), np.float64)
        except FedplugError:
            raise
        except Exception as error:  # a wrong key may fail in any way
            raise FedplugError(cause_of(error)) from error
        finally:
            server.cohort = None

    def opened_by_server(self, total: Block, senders: list[int]) -> NDArray[np.float64]:
        """The mean as the aggregation server opens it with what it holds."""
        return np.asarray(self._closing.open(total, senders, self.world.protocol.server).mean(), np.float64)

    @property
    def _closing(self) -> Closing:
        return Closing.of(self.zone, self.world.protocol.server.facts)


class _Trials:
    """Trials of a seal, at the parties that seal, and at those of another run of the same recipe."""

    def __init__(self, name: str, zone: str, world: World, stage: Callable[[], World]) -> None:
        self.here, self.again = Sealing(world, name, zone), functools.cache(lambda: Sealing(stage(), name, zone))
        self.operation = self.here.operation
        self.everybody, self.filled = sorted(self.here.weights), _RANDOM
        self.rounds = iter(range(1, TRIALS))

    def problems(self) -> Iterator[str]:
        """The first problem; further ones often follow from it."""
        trials = [self._shown, self._sums] if self.here.hides else [self._sums]
        if isinstance(self.operation, Seal):
            trials += [self._joined, self._full]
            trials += [self._opened_by_few, self._opened_alone] if self.operation.opened_by == "shares" else []
        for trial in trials:
            self.here.world.enter(round := next(self.rounds))
            if found := next(trial(round), ""):
                kind = type(self.operation).__name__
                yield f"component {self.here.name}, hook protect, {kind} of zone {self.here.zone}: {found}"
                return

    # -- what a sealed block shows -------------------------------------------------------------------------------------

    def _shown(self, round: int) -> Iterator[str]:
        """Zeros, and one vector sealed twice, at two clients, in two rounds and in two runs, give unrelated bytes."""
        here, other = self.here, self.again()
        values = here.values(_RANDOM)
        # First of all, as in the other run, in case masks are drawn one after the other.
        loud, low = ([here.sealed(0, here.values(_RANDOM, scale=s)) for _ in range(2)] for s in (1.0, 0.01))
        nothing = [here.seen(here.sealed(0, here.values("zeros")))[0]]
        one = here.seen(loud[0])
        if _size(nothing[0]) < _FULL * max(_size(one[0]), len(nothing[0])):
            yield (
                f"zeros are sealed to bytes that compress to {_size(nothing[0])} of {len(nothing[0])}, other values to "
                f"{_size(one[0])}: values show through the seal; encrypt, or add a mask that covers every bit of every "
                "word"
            )
        others = {"by another client": here.seen(here.sealed(1, values))}
        if prepares(here.component):  # which gives keys for one upload; a run that was cut off repeats its round
            here.world.enter(round)
            others["in the same round, begun anew"] = here.seen(here.sealed(0, values))
        else:
            others["once more by the same client"] = here.seen(loud[1])
        other.world.enter(round)
        others["in another run"] = other.seen(other.sealed(0, values))
        nothing += [here.seen(here.sealed(each, here.values("zeros")))[0] for each in self.everybody[1:]]
        here.world.enter(next(self.rounds))
        others["in another round"] = here.seen(here.sealed(0, values))
        nothing += [here.seen(here.sealed(each, here.values("zeros")))[0] for each in self.everybody]
        for what, other_one in others.items():
            if (alike := max(map(_shared, one, other_one))) > _ALIKE:
                yield (
                    f"one vector sealed {what} gives {alike:.0%} of the same bytes, so the difference of two uploads "
                    "shows that of their values, or a mask follows from nothing secret; draw a fresh mask or nonce for "
                    "each upload, for example from os.urandom"
                )
        against = [here.seen(here.sealed(0, sign * values))[0] for sign in (1, -1)]
        if (bare := _bare(nothing, against)) >= _BARE:
            yield (
                f"up to {bare} bytes in a row are the same in each of {len(nothing)} seals of zeros, by "
                f"{len(self.everybody)} clients in two rounds, and differ for other values: some words, or some bits "
                "of them, are bare; add a mask that covers every bit of every word, also of the last ones"
            )
        if here.tells_key():
            yield (
                "an upload holds what client.secret(...) has given, or all keys in the client's memory(self), so the "
                "server has them; send a nonce that is drawn for the upload, and derive the key from it"
            )
        beside, quiet = ([here.beside(upload) for upload in uploads] for uploads in (loud, low))
        for what, told in beside[0].items():
            less = [each.get(what) for each in quiet]
            if told == beside[1].get(what) and less[0] == less[1] != told:
                yield (
                    f"{what} of the sealed block follows from the values: {told!r:.40} for some, {less[0]!r:.40} for "
                    "others, and anyone who sees the upload sees it; leave it out, or give all clients the same"
                )

    # -- who opens it, and the result ----------------------------------------------------------------------------------

    def _sums(self, round: int) -> Iterator[str]:
        """The declared parties open a sum, once in a round, and its mean is that of the values."""
        uploads = self._uploads()
        total, fewer = self.here.added(uploads), self.everybody[:-1]
        if self.here.hides:
            yield from self._opened_by_others(total, round)
        yield from self._unequal(total, "uploads")
        part = self.here.added({c: uploads[c] for c in fewer})
        if isinstance(self.operation, Seal) and self._opens(part, fewer, self.everybody):
            yield (
                f"a second sum of one round is opened, of {len(fewer)} of the {len(self.everybody)} clients of the "
                "first, and the difference of the two is a single update; let each client note each opening with "
                "client.openings.once(...), and refuse another sum of the same round"
            )

    def _opened_by_others(self, total: Block, round: int) -> Iterator[str]:
        """Neither the parties of another run nor the aggregation server alone open a sum."""
        other = self.again()
        other.world.enter(round)
        if self._opens(total, self.everybody, at=other):
            yield (
                "another run of the same recipe opens its sums, so its key follows from nothing secret; draw it with "
                "fedplug.api.secrets.draw(), or derive it with client.secret(self)"
            )
        opened_by = self.operation.opened_by if isinstance(self.operation, Seal) else "shares"
        try:
            mean = self.here.opened_by_server(total, self.everybody) if opened_by != "shares" else np.zeros(0)
        except Exception:  # any error means that the server cannot open it
            return
        if self._is_mean(mean, self.everybody):
            yield (
                f"the aggregation server opens it with what it holds, but only {opened_by} are declared to open it; "
                "give the key to nobody else"
            )

    def _unequal(self, total: Block, what: str) -> Iterator[str]:
        count = len(self.everybody)
        try:
            mean = self.here.opened(total, self.everybody)
        except FedplugError as error:
            yield f"the sum of {count} {what} does not open: {error}"
            return
        if not self._is_mean(mean, self.everybody):
            yield (
                f"the mean of {count} {what} differs from that of the plain values by "
                f"{self._distance(mean, self.everybody):.3g}; its declared range and step allow "
                f"{self._room(self.everybody):.3g}. Seal the words as they come: they hold the client's weight, and "
                "are rounded; add them in numbers that hold the sum of all clients; open the sum, undivided"
            )

    def _full(self, round: int) -> Iterator[str]:
        """Sums of words as large as the declared range allows."""
        if not np.isfinite(self.operation.range):
            return
        self.filled = _ENDS
        yield from self._unequal(self.here.added(self._uploads()), f"uploads of {_ENDS}")
        self.filled = _RANDOM

    def _joined(self, round: int) -> Iterator[str]:
        """The sum of two sums opens to the mean of all."""
        uploads, half = self._uploads(), len(self.everybody) // 2
        halves = [self.here.added({c: uploads[c] for c in part})
                  for part in (self.everybody[:half], self.everybody[half:])]  # fmt: skip
        yield from self._unequal(self.here.joined(halves), "uploads, whose halves were added first,")

    def _opened_by_few(self, round: int) -> Iterator[str]:
        """Fewer shares than declared do not open a sum."""
        assert isinstance(self.operation, Seal)
        few = self.everybody[: self.operation.opens_with - 1]
        if few and self._opens(self.here.added(self._uploads()), self.everybody, few):
            yield (
                f"the shares of {len(few)} clients open a sum, but it declares opens_with={self.operation.opens_with}; "
                "share the secret so that fewer shares reveal nothing (Shamir), or declare the number that is enough"
            )

    def _opened_alone(self, round: int) -> Iterator[str]:
        """Shares do not open a single update: the core asks for none, but a server may ask clients all the same."""
        first, least = self.everybody[0], self.here.world.protocol.recipe.min_clients
        alone = self.here.added({first: self.here.sealed(first, self.here.values(_RANDOM, first))})
        try:
            mean = self.here.opened(alone.replace(contributors=least), [first], self.everybody)  # as a server lies
        except FedplugError:
            return
        if least > 1 and self._is_mean(mean, [first]):
            yield (
                f"the shares of {len(self.everybody)} clients open a single update, but min_clients is {least}; let "
                "every party with a share refuse sums of fewer than facts.min_clients updates"
            )

    # -- how -----------------------------------------------------------------------------------------------------------

    def _uploads(self) -> dict[int, Block]:
        here = self.here
        return {each: here.sealed(each, here.values(self.filled, each)) for each in here.weights}

    def _opens(
        self, total: Block, senders: list[int], asked: list[int] | None = None, at: Sealing | None = None
    ) -> bool:
        try:
            return self._is_mean((at or self.here).opened(total, senders, asked), senders)
        except FedplugError:
            return False

    def _is_mean(self, mean: NDArray[np.float64], senders: list[int]) -> bool:
        return self._distance(mean, senders) <= self._room(senders)

    def _distance(self, mean: NDArray[np.float64], senders: list[int]) -> float:
        """Largest difference between an opened mean and the weighted mean of the values that these clients sealed."""
        expected = self._expected(senders)
        return float(np.abs(mean - expected).max(initial=0.0)) if mean.shape == expected.shape else np.inf

    def _expected(self, senders: list[int]) -> NDArray[np.float64]:
        limit, total = self.operation.range, np.zeros(self.here.size)
        for client_id in senders:
            values = self.here.values(self.filled, client_id) * np.float64(self.here.weights[client_id])
            total += np.clip(values, -limit, limit) if limit == limit else values
        return total / sum(self.here.weights[client_id] for client_id in senders)

    def _room(self, senders: list[int]) -> float:
        step = self.operation.step if self.operation.step == self.operation.step else 1e-3
        rounded = len(senders) * (step / 2 + 1e-6) / sum(self.here.weights[client_id] for client_id in senders)
        return rounded + 1e-6 * float(np.abs(self._expected(senders)).max(initial=0.0))  # a mean is in float32


def _size(data: bytes) -> int:
    """Size of data after compression, in bytes."""
    return len(zlib.compress(data, level=1))


def _bare(zeros: list[bytes], others: list[bytes]) -> int:
    """How many bytes in a row, at most, are the same in all of the first, and another one in any of the others."""
    least = min(map(len, [*zeros, *others]))
    same, other = (np.stack([np.frombuffer(each[:least], np.uint8) for each in given]) for given in (zeros, others))
    bare = (same == same[0]).all(0) & (other != same[0]).any(0)
    return int(np.diff(np.flatnonzero(np.r_[True, ~bare, True])).max() - 1)


def _shared(one: bytes, other: bytes) -> float:
    """Share of the 8-byte words of one that also occur in the other; chance makes none."""
    words = np.sort(np.frombuffer(one[: len(one) // 8 * 8], np.uint64))
    windows = [np.frombuffer(other[start : start + (len(other) - start) // 8 * 8], np.uint64) for start in range(8)]
    there = np.sort(np.concatenate(windows))  # `np.isin` takes forty times as long
    return float((np.searchsorted(there, words, "right") > np.searchsorted(there, words)).mean()) if len(words) else 0.0
