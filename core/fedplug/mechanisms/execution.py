"""Executes the operations of links, exactly as they were folded and priced (`fedplug.api.links`).

A plugin's functions are called here too. What they give is looked at as anything that comes from outside: its shape,
its type, and that its values are numbers. What they must not read they are not handed.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedplug.api import grids, norms
from fedplug.api.blocks import RETAINED, Block, unchangeable
from fedplug.api.errors import ProtectionError, of_component
from fedplug.api.facts import Facts
from fedplug.api.known import Known
from fedplug.api.links import Link, Step, ballot_states, grids_of_layers, settled
from fedplug.api.operations import (
    INTEGER,
    Buffered,
    Clip,
    Combine,
    Look,
    Map,
    Noise,
    Open,
    Operation,
    Operations,
    Post,
    Public,
    Rotate,
    Round,
    Scale,
    Scramble,
    Seal,
    Shift,
    WeightedSum,
    Widen,
)
from fedplug.api.parties import Client, Party, Server
from fedplug.mechanisms.closing import Closing
from fedplug.mechanisms.noise import add_correlated, add_laplace, add_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray


def called(link: Link, operation: Operation, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a plugin's function.

    Raises:
        PluginError: it fails; names the component, the hook and the operation.
    """
    with of_component(link.name, _place(link, operation)):
        return function(*arguments)


def _place(link: Link, operation: Operation) -> str:
    return f"hook {link.hook}, zone {link.zone}, {type(operation).__name__}"


def refusal(link: Link, operation: Operation, problem: str) -> ProtectionError:
    return ProtectionError(f"component {link.name}, {_place(link, operation)}: {problem}")


def not_finite(block: Block) -> int:
    """How many plain values of a block are NaN or infinite."""
    return 0 if block.values is None else int(np.count_nonzero(~np.isfinite(block.values)))


def float32(values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return cast("NDArray[np.float32]", values.astype(np.float32))


_MARGIN = 1 - 2.0**-23
"""Twice what rounding a value to float32 can add, so that the rounded values do not exceed the bound either."""
_MOST_DRAWS = 100
"""Of values rounded at random, before they are rounded toward zero."""
_LAST_DIGITS = 1 - 1e-9
"""What machines may differ in, of numbers that two of them compute."""


def execute(
    step: Step, block: Block, party: Party, facts: Facts, *, records: bool = False, rests: bool = False,
    senders: Sequence[int] = (),
) -> Block:  # fmt: skip
    """Does what a link does to a block; of an aggregator, what it does to the sum.

    Args:
        step: the link, with its operations and what is known before each.
        block: the block; left as it is.
        party: at which it runs.
        facts: the round.
        records: True where a component keeps an account of single records, so that examples are handed to no function
            that does not ask for them.
        rests: True of a client that sends noise alone, and pays nothing: no function of a plugin runs that could put
            something else into its zeros.
        senders: whose uploads are in a sum, for those who open it.

    Raises:
        ProtectionError: values that no clip can bound, or a function that gives what it must not.
        PluginError: a function fails.
    """
    if isinstance(party, Client):
        step = step.of(party.client_id, facts)
    for number, (operation, known) in enumerate(zip(step.operations, step.states, strict=False)):
        if not isinstance(operation, WeightedSum | Combine) and not (rests and _may_fill(operation, known)):
            at = _Execution(step.link, known, party, facts, records, number, senders=senders, rests=rests)
            block = at.run(operation, block)
    return block


def _may_fill(operation: Operation, known: Known) -> bool:
    """Whether it may make something else of zeros than the noise that the core adds. Behind noise a `Post` has nothing
    but that: it is handed no memory of the rounds in which the client took part.
    """
    return isinstance(operation, Map | Look | Shift) or (isinstance(operation, Post) and not known.releases)


_BALLOT = "count"
"""The stream of a ballot's reproducible noise; so the runs of before had it."""


def release(component: Any, operations: Operations, values: Any, party: Party, facts: Facts) -> NDArray[np.float32]:
    """Values with the noise of a ballot: a client's own, or at the server the sum of what clients have said.

    Args:
        component: whose ballot it is.
        operations: of its ballots in this round.
        values: float32 (n,); at the server such values by client.
        party: that releases them.
        facts: the round.

    Raises:
        ProtectionError: the ballot has no noise, or noise that another party adds.
    """
    link = Link("ballots", "protect", component.name, component, "server" if isinstance(party, Server) else "client")
    central = isinstance(party, Server)
    made, states = ballot_states(component.name, operations, facts)
    noises = [operation for operation in made if isinstance(operation, Noise)]
    if not noises or any((noise.trust == "central") != central for noise in noises):
        where = "to the sum, at the server" if central else "at the client"
        raise ProtectionError(
            f"component {component.name}: its ballots of round {facts.round + 1} have no noise that is added {where}; "
            "give it in ballots(), with trust='central' where the server adds it"
        )
    each = values if isinstance(values, Mapping) else {0: values}
    blocks = {c: Block("ballots", np.size(v), np.asarray(v, np.float32).reshape(-1)) for c, v in sorted(each.items())}
    ((size, _),) = Counter(one.size for one in blocks.values()).most_common(1) or [(0, 0)]
    for client_id, one in blocks.items():
        if one.size != size:  # numpy would repeat one value under so many independent noises
            what = f"component {component.name}: client {client_id} gave {one.size} values, and others {size}"
            raise ProtectionError(what).blame(client_id)

    def run(number: int, block: Block) -> Block:
        return _Execution(link, states[number], party, facts, False, number, purpose=_BALLOT).run(made[number], block)

    first, total = made.index(noises[0]), np.zeros(size)
    for number in range(first):
        blocks = {client_id: run(number, one) for client_id, one in blocks.items()}
    for one in blocks.values():
        total += one.plain()
    block = Block("ballots", size, total.astype(np.float32))
    for number in range(first, len(made)):
        block = run(number, block)
    return block.plain()


@dataclasses.dataclass(frozen=True)
class _Execution:
    """One operation at one place."""

    link: Link
    known: Known
    party: Party
    facts: Facts
    records: bool
    number: int
    purpose: str = ""
    senders: Sequence[int] = ()
    rests: bool = False

    def run(self, operation: Operation, block: Block) -> Block:
        match operation:
            case Clip():
                return block.replace(values=self._clipped(operation, block))
            case Scale(factor):
                return block.replace(values=float32(block.plain() * np.float64(factor)))
            case Round(step, beta=float()):
                return block.replace(values=self._rounded_at_random(operation, block))
            case Round(step, toward_zero):
                steps = block.plain().astype(np.float64) / step
                return block.replace(values=float32((np.trunc if toward_zero else np.rint)(steps) * step))
            case Rotate(back):
                return block.replace(values=self._rotated(back, block))
            case Shift(float() as factor):
                return block.replace(values=self._shifted(operation, factor, block))
            case Shift(by) if not isinstance(by, float):
                vector = called(self.link, operation, by, self._public(block))
                return block.replace(values=block.plain() + self._values(operation, vector, block))
            case Widen():
                return self._widened(block)
            case Noise():
                return block.replace(values=self._noised(operation, block))
            case Map():
                party: Party = self.party
                if self.records and not operation.examples and isinstance(party, Client):
                    party = party.without_examples()  # which an account of records would not cover
                given = called(self.link, operation, operation.function, block, party, self.facts)
                return block.replace(values=self._values(operation, given, block))
            case Post():
                return self._post(operation, block)
            case Look():
                seen = block if block.values is None else block.replace(values=unchangeable(block.values))
                called(self.link, operation, operation.function, seen, self.party, self.facts)
                return block
            case Seal() | Scramble():
                if not isinstance(self.party, Client):
                    raise refusal(self.link, operation, "only clients close their uploads")
                return Closing(self.link, operation, self.facts).close(block, self.party)
            case Open():
                return self._opened(operation, block)
        raise TypeError(f"{operation!r} is no operation on a block")

    # -- what the core does --------------------------------------------------------------------------------------------

    def _clipped(self, clip: Clip, block: Block) -> NDArray[np.float32]:
        values = block.plain()
        if norms.of_scalars(clip.bound):
            return self._cut_off(clip, block)
        if clip.per == "layer":
            return self._clipped_by_layer(clip, block)
        limit = max(norms.each(cast("norms.Size", clip.norm)))
        # In float64, because float32 squares overflow from 2e19 on; and not by BLAS, whose threads cost more than they
        # save at this size when several processes share the cores.
        if clip.order == 2:
            norm = math.sqrt(float(np.square(values, dtype=np.float64).sum()))
        elif clip.order == 1:
            norm = float(np.abs(values).sum(dtype=np.float64))
        else:
            norm = float(np.linalg.norm(values.astype(np.float64), clip.order))
        if not math.isfinite(norm):
            raise self._diverged(block)
        self._log_clipped(float(norm > limit))
        # The scale is of float64, where it cannot become denormal.
        return values if norm <= limit else float32(values * np.float64(limit / norm * _MARGIN))

    def _cut_off(self, clip: Clip, block: Block) -> NDArray[np.float32]:
        values, limits = block.plain(), np.asarray(clip.norm, np.float64)
        if not np.isfinite(values).all():
            raise self._diverged(block)
        if limits.ndim:
            limits = limits[self._layers(block)]
        most = np.minimum(limits, np.finfo(np.float32).max).astype(np.float32)
        most = np.where(most > limits, np.nextafter(most, np.float32(0)), most)  # rounding may have lifted it
        self._log_clipped(float(np.mean(np.abs(values) > most)) if values.size else 0.0)
        return np.clip(values, -most, most)

    def _clipped_by_layer(self, clip: Clip, block: Block) -> NDArray[np.float32]:
        values, layer = block.plain().astype(np.float64), self._layers(block)
        limits = np.broadcast_to(np.asarray(clip.norm, np.float64), (len(self.facts.layout.layers),))
        present, place = np.unique(layer, return_inverse=True)
        clips = limits[present]
        powers = np.square(values) if clip.order == 2 else np.abs(values) ** clip.order
        sums = np.bincount(place, powers, len(present))
        if not np.isfinite(sums).all():
            raise self._diverged(block)
        lengths = np.sqrt(sums) if clip.order == 2 else sums ** (1 / clip.order)
        longer, factors = lengths > clips, np.ones_like(lengths)
        factors[longer] = clips[longer] / lengths[longer] * _MARGIN
        return float32(values * factors[place])

    def _log_clipped(self, share: float) -> None:
        if not self.purpose:  # of updates alone: the clip of a ballot would take the place of theirs
            self.party.log[f"{self.link.name}.clipped"] = share

    def _diverged(self, block: Block) -> ProtectionError:
        whose = f"client {self.party.client_id}: the update" if isinstance(self.party, Client) else "the sum"
        return ProtectionError(
            f"{whose} of zone {block.zone} holds {int(np.count_nonzero(~np.isfinite(block.plain())))} NaN or infinite "
            f"values, which {self.link.name} cannot clip; training diverged: lower lr in train"
        )

    def _rounded_at_random(self, rounding: Round, block: Block) -> NDArray[np.float32]:
        """Each value to one of its two neighbours, with its mean; anew until the norm is what the fold says of it."""
        steps = block.plain().astype(np.float64) / rounding.step
        limit = self.known.after(rounding).norm()
        most = math.inf if limit is None else (limit / rounding.step) ** 2 * (1 - 2.0**-50)
        lower = np.floor(steps)
        up = steps - lower
        stream = self._stream("rounding")
        for _ in range(_MOST_DRAWS):
            drawn: NDArray[np.float64] = lower + (stream.random(len(steps)) < up)
            if not float(np.square(drawn).sum()) > most:
                break
        else:  # the chance is beta^100; toward zero no norm grows
            drawn = np.trunc(steps)
        return float32(drawn * rounding.step)

    def _rotated(self, back: bool, block: Block) -> NDArray[np.float32]:
        """Turned by signs of the round, which all parties draw alike; a little shorter, so that float32 lifts no norm.

        Raises:
            ProtectionError: values lie at positions of one client's own, or are divided one by one.
        """
        from fedplug.mechanisms.rotation import rotate

        if block.positions is not None or isinstance(block.divisor, np.ndarray):
            raise ProtectionError(
                f"zone {block.zone} has positions of a client's own, and {self.link.name} turns all values of all "
                "clients alike: let the negotiation share the zone"
            )
        values = block.plain().astype(np.float64)
        rotate(values, self.facts.public_rng("rotation", self.link.name, block.zone), back=back)
        if back:
            return float32(values)
        # Below the smallest normal number float32 rounds by more than the margin.
        return float32(np.where(np.abs(values) < 2 * np.finfo(np.float32).tiny, 0.0, values * _MARGIN))

    def _noised(self, noise: Noise, block: Block) -> NDArray[np.float32]:
        values = block.plain()
        if noise.sample is not None:
            drawn = called(self.link, noise, noise.sample, values, self._public(block), self._stream())
            return self._values(noise, drawn, block)
        if noise.size is not None:
            noise = self._sized(noise, noise.size, block)
        if noise.std is None or isinstance(noise.std, Mapping):
            raise refusal(self.link, noise, "it gives no std here, where the noise is to be added")
        if noise.std == 0:
            return values
        if noise.mechanism in INTEGER:
            from fedplug.mechanisms.integers import add_integers

            std, grid = cast("float", noise.std), noise.grid or 0.0
            return add_integers(values, std, grid, noise.mechanism, noise.source, self._stream())
        if noise.takes_back is not None:
            return self._noised_with_memory(noise, block)
        stream, add = self._stream(), add_laplace if noise.mechanism == "laplace" else add_noise
        if isinstance(noise.std, tuple):
            return self._noised_by_layer(noise, block, stream)
        # Where nothing bounds the values no guarantee follows, and the grid is as good as any.
        grid = noise.grid or grids.finest(float(np.abs(values).max(initial=0.0)), noise.std, noise.mechanism)
        return add(values, noise.std, grid, noise.source, stream)

    def _noised_with_memory(self, noise: Noise, block: Block) -> NDArray[np.float32]:
        """Values with noise that takes back some of that of earlier rounds, which this party remembers.

        A round that was skipped has left none: nothing was released of it, and nothing is taken back. What one round
        takes nothing back of, no later one can: it is forgotten.
        """
        # Of this operation alone: no function of a plugin is handed it.
        memory, takes_back = self._memory(), noise.takes_back or ()
        # By round, or by number of the buffer: noise, and behind it of how much of what each round drew it consists.
        kept: dict[int, NDArray[np.float64]] = memory.get("noise", {})
        round, values, rounds = self.facts.round, block.plain(), self.facts.rounds
        if (gap := round - memory.get("last", -1)) < 1:
            what = f"it has added noise in round {round + 1} already, and continues from one round to the next"
            raise refusal(self.link, noise, what)
        if other := next((size for each in kept.values() if (size := len(each) - rounds) != block.size), None):
            what = f"it noised {other} values before, and {block.size} now; the zone must hold the same in all rounds"
            raise refusal(self.link, noise, what)
        assert isinstance(noise.std, int | float)  # as `settled` has it
        back = np.zeros(block.size + rounds)
        buffers = takes_back.buffers if isinstance(takes_back, Buffered) else ()
        shares = [(number, share * decay ** (gap - 1)) for number, (share, decay) in enumerate(buffers)]
        for key, share in shares or ((round - lag, share) for lag, share in enumerate(takes_back, 1)):
            if (before := kept.get(key)) is not None:
                back += share * before
        taken, drawn = np.split(back, [block.size])
        drawn = noise.std * (np.arange(rounds) == round) - drawn
        spread = float(np.linalg.norm(drawn)) / noise.std
        if isinstance(self.party, Client) and spread > noise.spread / _LAST_DIGITS:  # what closes it must hold it
            what = f"its noise has {spread:.9g} times the std that is drawn, and it gives spread={noise.spread:.9g}"
            raise refusal(self.link, noise, what)
        grid = noise.grid or grids.finest(float(np.abs(values).max(initial=0.0)), noise.std)
        noised, added = add_correlated(values, noise.std, grid, noise.source, self._stream(), taken)
        of_round = np.concatenate([added, drawn])
        filled = {number: of_round + decay**gap * kept.get(number, 0.0) for number, (_, decay) in enumerate(buffers)}
        recent = {earlier: each for earlier, each in kept.items() if earlier >= round - len(takes_back)}
        memory["noise"], memory["last"] = filled or {**recent, round: of_round}, round
        return noised

    def _noised_by_layer(self, noise: Noise, block: Block, stream: np.random.Generator) -> NDArray[np.float32]:
        values, layer = block.plain(), self._layers(block)
        add = add_laplace if noise.mechanism == "laplace" else add_noise
        own, stds = grids_of_layers(noise, self.known), cast("tuple[float, ...]", noise.std)
        noised = np.empty_like(values)
        present, place = np.unique(layer, return_inverse=True)
        order = np.argsort(place, kind="stable")
        for number, where in zip(present, np.split(order, np.cumsum(np.bincount(place))[:-1]), strict=True):
            std, grid = stds[number], own[number]
            if not math.isfinite(std):
                raise refusal(self.link, noise, f"it gives no noise to layer {number}, which has values here")
            noised[where] = add(values[where], std, grid, noise.source, stream) if std else values[where]
        return noised

    def _sized(self, noise: Noise, size: Callable[..., Any], block: Block) -> Noise:
        """The noise with the size that this client works out, of what its function reads and nothing else.

        Raises:
            ProtectionError: it is no size, or costs more than is charged.
        """
        client = self.party
        if not isinstance(client, Client):
            raise refusal(self.link, noise, "only a client has what its size follows from")
        read: tuple[Any, ...] = (client.num_examples,)
        if noise.reads == "scores":
            read = client.scores_by(noise.scorer), self._present(block)
        given = called(self.link, noise, lambda *read: np.asarray(size(*read), np.float64), *read)
        layers = len(self.facts.layout.layers)
        if given.shape not in ((), (layers,)) or not (given >= 0).all():
            what = f"its size is {given.dtype}{list(given.shape)}; give one standard deviation, or one a layer"
            raise refusal(self.link, noise, f"{what}: floats [{layers}]")
        std = float(given) if not given.ndim else tuple(given.tolist())
        used = self.known.multiplier(dataclasses.replace(noise, std=std, size=None))
        if noise.at_least is None or used < noise.at_least * _LAST_DIGITS:
            raise refusal(
                self.link, noise,
                f"its noise has a multiplier of {used:.9g} at this client, and {noise.at_least or 0:.9g} is what is "
                "charged for; state in at_least the least of any client",
            )  # fmt: skip
        return settled(dataclasses.replace(noise, std=std, size=None, grid=noise.grid or None), self.known, self.facts)

    def _present(self, block: Block) -> NDArray[np.int64]:
        """The numbers of the layers with values in the zone, those among them that zeros replace."""
        client, layout = cast("Client", self.party), self.facts.layout
        assert client.plan is not None  # nobody is asked for an upload without one
        sent = [block.zone, RETAINED] if self.known.covers_support else [block.zone]
        where = np.concatenate([client.plan.positions(zone) for zone in sent])
        return np.unique(layout.per_scalar(np.arange(len(layout.layers)))[where])

    def _widened(self, block: Block) -> Block:
        plan = self.party.plan if isinstance(self.party, Client) else None
        if plan is None:
            raise ProtectionError(f"{self.link.name} covers what a client retains, and there is no plan here")
        values = np.zeros(plan.labels.size, np.float32)
        values[plan.positions(block.zone) if block.positions is None else block.positions] = block.plain()
        sent = np.isin(plan.labels, [plan.zones.index(block.zone), plan.zones.index(RETAINED)])
        positions = np.flatnonzero(sent).astype(np.uint32)
        return block.replace(size=len(positions), values=values[positions], positions=positions)

    # -- what a plugin's functions do ----------------------------------------------------------------------------------

    def _post(self, post: Post, block: Block) -> Block:
        if not self.known.summed:
            given = called(self.link, post, post.function, block.plain(), self._public(block))
            return block.replace(values=self._values(post, given, block))
        given = called(self.link, post, post.function, block.mean(), self._public(block))
        mean = self._values(post, given, block)
        if block.positions is None:
            return block.replace(values=mean, divisor=1.0)
        # Sums of other zones may lie at the same positions, and share the divisor.
        return block.replace(values=float32(mean * np.asarray(block.divisor, np.float64)))

    def _opened(self, opening: Open, block: Block) -> Block:
        assert self.known.closed is not None  # as its place was checked
        opened = Closing(self.link, self.known.closed, self.facts).open(block, self.senders, self.party)
        if wrong := not_finite(opened):
            problem = f"it made {wrong} of {opened.size} values that it opened NaN or infinite"
            raise refusal(self.link, opening, problem)
        return opened

    # -- what all of them need -----------------------------------------------------------------------------------------

    def _stream(self, *what: str) -> np.random.Generator:
        purpose = self.purpose or self.known.zone
        if isinstance(self.party, Client):
            return self.party.rng(self.link.component, purpose, *what)
        return self.facts.rng(self.link.name, purpose, *what)

    def _positions(self, block: Block) -> NDArray[np.uint32] | None:
        plan = self.party.plan if isinstance(self.party, Client) else self.facts.plan
        if block.positions is None and plan is not None and block.zone in plan.zones:  # a ballot is in none
            return plan.positions(block.zone)
        return block.positions

    def _layers(self, block: Block) -> NDArray[np.int64]:
        """The number of the layer that each value belongs to, (n,).

        Raises:
            ProtectionError: nobody can tell here.
        """
        where, layout = self._positions(block), self.facts.layout
        numbers = layout.per_scalar(np.arange(len(layout.layers)))
        if where is None and block.size == layout.size:
            return numbers
        if where is None or len(where) != block.size:
            raise ProtectionError(
                f"{self.link.name} works layer by layer, and where the {block.zone} values lie is not known here"
            )
        return cast("NDArray[np.int64]", numbers[where])

    def _start(self, block: Block) -> NDArray[np.float32] | None:
        """The global model of the round where the values lie, (n,); None where this party does not know it."""
        where, party = self._positions(block), self.party
        model = party.vector if isinstance(party, Client | Server) else None
        if model is None or block.size == self.facts.layout.size:
            return model
        return None if where is None else model[where]

    def _shifted(self, shift: Shift, factor: float, block: Block) -> NDArray[np.float32]:
        """Values and the global model, so many times.

        Raises:
            ProtectionError: the model is not known here, or float32 would round noise away next to it: a sum of such
                uploads would hide less of each than the noise in it.
        """
        start = self._start(block)
        if start is None:
            raise refusal(self.link, shift, "the global model at these values is not known here")
        values: NDArray[np.float32] = block.plain() + np.float32(factor) * start
        steps = [release.shifted_step for release in self.known.releases if release.trust != "central" and release.step]
        most = grids.STEPS * min(steps) if steps and not self.known.summed else math.inf
        if (largest := float(np.abs(values).max(initial=0.0))) > most:
            why = f"float32 holds values of up to {most:.3g} as finely as their noise asks, and one is {largest:.3g}"
            raise refusal(self.link, shift, f"{why}: the model has diverged; lower lr in train")
        return values

    def _public(self, block: Block) -> Public:
        where, start = self._positions(block), self._start(block)
        facts = self.facts
        return Public(
            zone=block.zone, round=facts.round, rounds=facts.rounds, layout=facts.layout, positions=where,
            start=start, memory={} if self.rests else self._memory(),
            stream=facts.public_rng(self.link.name, block.zone),
        )  # fmt: skip

    def _memory(self) -> dict[str, Any]:
        """Of this operation at this place, behind so many noises: what a function keeps of values before a noise is out
        of its reach, and of every other's, behind it.
        """
        link, known = self.link, self.known
        place = f"{link.hook} {link.zone} {self.number} {len(known.releases)}{' of a sum' if known.summed else ''}"
        kept: dict[str, Any] = self.party.state.setdefault(f"{link.name} {place}", {})
        return kept

    def _values(self, operation: Operation, given: Any, block: Block) -> NDArray[np.float32]:
        """The values that a function gave; nothing else of its result is used.

        Raises:
            ProtectionError: it is not as many numbers, or not numbers any more.
        """
        values = given.values if isinstance(given, Block) else given
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.shape != (block.size,):
            what = f"{values.dtype}{list(values.shape)}" if isinstance(values, np.ndarray) else type(given).__name__
            raise refusal(self.link, operation, f"it gave {what}; its function must give floats [{block.size}]")
        values = float32(values)  # a copy: the function may keep what it gave
        wrong = int(np.count_nonzero(~np.isfinite(values)))
        if wrong and (block.values is None or np.isfinite(block.values).all()):
            what = f"it made {wrong} finite values of {block.size} NaN or infinite, which cannot be used"
            raise refusal(self.link, operation, what)
        return values
