"""The known facts about one client's values at one place of a zone's chain, and those behind an operation.

`Known.after` folds an operation (`fedplug.api.operations`) into what was known before it: from what the core does
follows what is known behind it, and from what a plugin's function does no guarantee follows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from fedplug.api import grids, norms
from fedplug.api.norms import Bound
from fedplug.api.operations import (
    GAUSSIAN,
    INTEGER,
    Clip,
    Combine,
    Look,
    Map,
    Misplaced,
    Noise,
    NoiseTerms,
    Open,
    Operation,
    Post,
    Rotate,
    Round,
    Scale,
    Scramble,
    Seal,
    Shift,
    WeightedSum,
    Widen,
)
from fedplug.api.records import Number, Text, shared


class Release(NoiseTerms):
    """One noise of a zone's chain as the ledger enters it: what it costs each client in one round.

    Attributes:
        noise_multiplier: of Gaussian noise its standard deviation over the L2 sensitivity (zero-out), of Laplace noise
            its scale over the L1 sensitivity, of a pure mechanism 1 / epsilon. 0 where no bound was known.
        clipping_norm: the sensitivity; NaN where it is not one number.
        range, step: what the values can hold and how they are rounded from this noise on, of one client's weighted
            values.
        uncredited: why the noise of others earns no credit, apart from what `range` and `step` say; empty if it may.
        size: the most scalars of one client that carry it, of noise in whole numbers, whose `step` is its grid.
        link: who added it.
        words: the components on whose word it has this price: a sampler's, where the core did not draw it, and those
            whose functions ran behind it.
    """

    noise_multiplier: Number
    clipping_norm: Number
    _: dataclasses.KW_ONLY
    uncredited: Text = ""
    range: Number = math.inf
    step: Number = 0.0
    size: Number = 0.0
    link: Text = ""
    words: list[Text] = dataclasses.field(default_factory=list)

    @property
    def shifted_step(self) -> float:
        """The largest step to which values with this noise may be rounded when a public vector is added."""
        return max(grids.COARSER * self.step, self.noise_multiplier * self.clipping_norm * 2.0**-16)


@dataclasses.dataclass(frozen=True)
class Clipped:
    """A public bound that a client's values were scaled down to, for their readers.

    Attributes:
        link: who clipped.
        bound: to what.
        noised: True where noise was added afterwards, so that the length of what is seen says nothing.
        factor: the public number that values had been multiplied by when they were clipped.
    """

    link: str
    bound: Bound
    noised: bool = False
    factor: float = 1.0


_LOOSE = "what the sum is divided by may follow from values, which no noise on it hides; add the noise at the clients"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """The known facts about one client's values of a zone, or about a sum, at one place of its chain.

    Attributes:
        zone: the zone.
        link: the link that is about to run; for messages.
        layers: scalars of each layer of the model; empty while no model is known.
        bounds: those that hold.
        grid: values are multiples of it; 0 unknown.
        releases: noises that count.
        scales: standard deviation of each noise that one client's values carry, one number or one a layer; None where
            unknown.
        clips: what values were scaled down to, whether or not the bound still holds.
        factor: the public number that values were multiplied by.
        closed: what closes the values now; None while they are plain.
        closer: the link that does.
        weighted: True once the client's weight is in.
        summed: True behind the aggregator.
        covers_support: True where positions do not show what clients keep.
        uncredited: why the noise of others earns no credit.
        freed: links whose functions had a party in hand behind noise, so that no guarantee holds behind them.
        loose: True of a sum that is divided, or comes with, what may follow from values without noise: noise on it is
            measured by nothing, whatever bounds it.
        beneath: bounds of what one client's data contributes to values that carry its noise: by so much, and the grid
            of the noise, values differ from those of a client with other data and the same noise.
        lost: why no bound holds any more, after a function of a plugin.
        rotated: the links that turned the values, the last one last.
        at_client: True where a client has the sum in hand, and its data with it.
        own: where operations name clients, what is known of each of these, and under None of all others; what is known
            here holds of everybody.
    """

    zone: str
    link: str = ""
    layers: tuple[int, ...] = ()
    bounds: tuple[Bound, ...] = ()
    grid: float = 0.0
    releases: tuple[Release, ...] = ()
    scales: tuple[float | tuple[float, ...] | None, ...] = ()
    clips: tuple[Clipped, ...] = ()
    factor: float = 1.0
    closed: Seal | Scramble | None = None
    closer: str = ""
    weighted: bool = False
    summed: bool = False
    covers_support: bool = False
    uncredited: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()
    loose: bool = False
    beneath: tuple[Bound, ...] = ()
    lost: str = ""
    rotated: tuple[str, ...] = ()
    at_client: bool = False
    own: Mapping[int | None, Known] = dataclasses.field(default_factory=dict)

    def of(self, client_id: int) -> Known:
        """What is known of one client's values."""
        return self.own.get(client_id, self.own.get(None, self))

    @property
    def size(self) -> int:
        """The most scalars that the zone can have; 0 while no model is known."""
        return sum(self.layers)

    def norm(self, order: float = 2) -> float | None:
        """The largest norm of one client's values that the bounds leave; None where none bounds it."""
        lengths = [value for bound in self.bounds if (value := norms.implied(bound, order, self.layers)) is not None]
        return min(lengths, default=None)

    def layer_norms(self, order: float = 2) -> tuple[float, ...] | None:
        """The largest norm of each layer's values; None where nothing bounds layers one by one."""
        for bound in self.bounds:
            if bound.per == "layer" and bound.order == order:
                return norms.of_layers(bound, self.layers)
        return None

    def sensitivity(self, order: float = 2) -> float | None:
        """By how much one client's data moves the values, in a norm: what central noise is measured by.

        Noise that is independent of the data does not raise it, although it ends the bounds of the values.
        """
        if self.loose:
            return None
        lengths = [value for bound in self.beneath if (value := norms.implied(bound, order, self.layers)) is not None]
        norm = self.norm(order)
        return norm if norm is not None else min(lengths, default=None)

    # -- order rules, for links to ask for -----------------------------------------------------------------------------

    def before(self, what: Literal["noise", "encryption", "clip"], remedy: str) -> None:
        """Asks that a link come before any noise, encryption or clip.

        Raises:
            Misplaced: it does not.
        """
        there = {"noise": self.releases, "encryption": self.closed, "clip": self.bounds}
        if what not in there:
            raise ValueError(f"known.before({what!r}, ...): it must be one of {', '.join(map(repr, there))}")
        if there[what]:
            raise Misplaced(f"{self.link} must not come after {what} in the chain of zone {self.zone}; {remedy}")

    def need_norm(self, remedy: str, order: float = 2, *, central: bool = False) -> float:
        """The bound of the norm that a link needs.

        Args:
            remedy: how to get one, as half a sentence.
            order: 2 or 1.
            central: for noise on a sum, which is measured by what one client's data contributes beneath other noise.

        Raises:
            Misplaced: nothing bounds it.
        """
        length = self.sensitivity(order) if central else self.norm(order)
        if length is None:
            because = ""
            if noises := [release.link for release in self.releases if release.trust != "central"]:
                because = f" (behind the noise of {noises[-1]} no bound holds)"
            raise Misplaced(
                f"{self.link} needs a bound of the L{order:g} norm earlier in the chain of zone {self.zone}{because}; "
                f"{self.lost or (_LOOSE if self.loose else remedy)}"
            )
        return length

    # -- the fold ------------------------------------------------------------------------------------------------------

    def after(self, *operations: Operation) -> Known:
        """The known facts behind these operations."""
        known = self
        for operation in operations:
            own = known._own_behind(operation)
            known = known._apply(operation, own)
            known = dataclasses.replace(known, own=own) if own or known.own else known
        return known

    def _own_behind(self, operation: Operation) -> dict[int | None, Known]:
        """What is known of clients that operations name, behind this one."""
        named = operation.clients if isinstance(operation, Clip | Noise) else frozenset[int]()
        if self.summed or not (self.own or named):
            return {}
        before: dict[int | None, Known] = {None: self, **self.own}
        before |= {c: self.of(c) for c in named if c not in self.own}
        return {
            c: known.after(operation.of(c) if isinstance(operation, Clip | Noise) else operation)
            for c, known in before.items()
        }

    def _apply(self, operation: Operation, own: Mapping[int | None, Known]) -> Known:
        replace = dataclasses.replace
        match operation:
            case Clip():
                return self._bounded(operation.bound)
            case Scale(factor):
                size = abs(factor)
                exact = size == 0 or 2.0**-60 <= size <= 2.0**60  # beyond, float32 may hold neither values nor a grid
                scaled = self if exact else self._altered()
                scaled = scaled._off_grid(math.frexp(size)[0] not in (0.0, 0.5))
                bounds, beneath = (
                    tuple(filter(norms.held, (norms.stretched(b, size) for b in each if exact)))
                    for each in (self.bounds, self.beneath)
                )
                return replace(
                    scaled, bounds=bounds, beneath=beneath, grid=self.grid * size,
                    scales=tuple(None if s is None else norms.times(s, size) for s in self.scales),
                    factor=self.factor * factor,
                    releases=tuple(
                        replace(
                            r, step=r.step * size, range=r.range * size if size else math.inf,
                            clipping_norm=r.clipping_norm * size,
                        ) for r in scaled.releases
                    ),
                )  # fmt: skip
            case Shift(by):
                # Next to large numbers float32 moves values by more than bounds say: none is left for noise to come.
                lost = f"{self.link} adds a public vector, next to which float32 rounds; put a clip behind it"
                if isinstance(by, float):
                    shifted = self._off_grid(True)
                    return replace(shifted, grid=0.0, bounds=(), beneath=(), lost=lost, releases=tuple(
                        r if self.summed or r.mechanism in INTEGER else replace(r, step=r.shifted_step)
                        for r in shifted.releases
                    ))  # fmt: skip
                # Of a sum without noise nobody can say that the vector does not follow from it.
                shifted = replace(self._altered()._on_the_word(), loose=self.loose or self.summed)
                return replace(shifted, grid=0.0, bounds=(), beneath=(), lost=lost)
            case Round(step, toward_zero, beta):
                return self._rounded(step, toward_zero) if beta is None else self._rounded_at_random(step, beta)
            case Rotate(back):
                return self._rotated(back)
            case Widen():
                return replace(self, covers_support=True)
            case Noise():
                return self._noised(operation, own)
            case Map():
                return self._freed()
            case Post():
                lost = f"{self.link} computes values by a function; put a clip behind it"
                return replace(self._altered()._on_the_word(), grid=0.0, bounds=(), beneath=(), lost=lost)
            case Look():
                return self
            case Seal() | Scramble():
                held = self._rounded(operation.step) if operation.step > 0 else self
                if math.isnan(operation.range) or math.isnan(operation.step):
                    lost = f"{self.link} does not say what values it holds"
                    free = held._uncredited(f"{lost}, so others' noise earns no credit")
                    held = replace(free, bounds=(), beneath=(), grid=0.0, lost=f"{lost} and how it rounds them")
                return replace(
                    held._saturated(operation.range), weighted=self.weighted or isinstance(operation, Seal),
                    closed=operation, closer=self.link,
                )  # fmt: skip
            case Open():
                return replace(self, closed=None, closer="")
            case WeightedSum():
                grid = self.grid if self.closed or self.weighted else 0.0
                summed = replace(self, summed=True, grid=grid)
                if operation.by is None:
                    return summed
                alone = f"by the weights of {self.link}, one client's noise may be almost all that a sum has"
                lost = f"the weights of {self.link} follow from single clients' values; add the noise at the clients"
                weighed = summed._uncredited(alone)._on_the_word()
                return replace(weighed, grid=0.0, bounds=(), beneath=(), loose=True, lost=lost)
            case Combine():
                why = f"{self.link} does not add the uploads up"
                lost = f"{why}; add the noise at the clients"
                combined = self._uncredited(f"{why}, so others' noise earns no credit")._on_the_word()
                return replace(combined, summed=True, grid=0.0, bounds=(), beneath=(), loose=True, lost=lost)
        raise TypeError(f"{self.link} gives {operation!r}, which is no operation; see fedplug.api.operations")

    def _uncredited(self, why: str) -> Known:
        """The noise of other clients hides less of one of them than its size says."""
        return dataclasses.replace(
            self, uncredited=(*self.uncredited, why),
            releases=tuple(dataclasses.replace(r, uncredited=r.uncredited or why) for r in self.releases),
        )  # fmt: skip

    def _on_the_word(self) -> Known:
        """Behind a function of this link that the core calls, and cannot look into: noise before it keeps its price as
        long as the function goes by what it is handed.
        """
        return dataclasses.replace(self, releases=tuple(
            r if self.link in r.words else dataclasses.replace(r, words=[*r.words, self.link]) for r in self.releases
        ))  # fmt: skip

    def _freed(self) -> Known:
        """Behind a function that has a party in hand.

        Before any noise it has its price: no bound. Behind noise it may put what the party has over it, and then the
        noise counts for nothing; at a server local noise stays, since a server has noised uploads alone. A client has
        its data.
        """
        lost = f"{self.link} changes values freely, with the data in hand; put a clip behind it"
        beyond = self.summed and not self.at_client
        kept = [i for i, release in enumerate(self.releases) if beyond and release.trust != "central"]
        freed = len(kept) < len(self.releases)
        why = f"{self.link} changes values behind the noise, so others' noise earns no credit"
        free = self._uncredited(why) if self.releases or self.summed else self
        return dataclasses.replace(
            free, bounds=(), beneath=(), grid=0.0, factor=1.0, clips=(), loose=self.loose or self.summed, lost=lost,
            releases=tuple(free.releases[i] for i in kept), scales=tuple(self.scales[i] for i in kept),
            freed=(*self.freed, self.link) if freed else self.freed,
        )  # fmt: skip

    def _bounded(self, bound: Bound) -> Known:
        """Behind a clip. Only scaling down keeps other bounds, and a clip of one client's values does no more.

        Two sums that were clipped lie at most twice as far apart as each is long, whatever they were before.

        Raises:
            Misplaced: it has norms for another number of layers than the model.
        """
        norm = bound.norm
        if isinstance(norm, tuple) and self.layers and len(norm) != len(self.layers):
            raise Misplaced(
                f"{self.link} clips to norms of {len(norm)} layers, and the model has {len(self.layers)}; give one a "
                "layer, or one number for all of them"
            )
        clips = (*self.clips, Clipped(self.link, bound, factor=self.factor))
        if self.summed:
            apart = (norms.stretched(bound, 2.0),)
            return dataclasses.replace(self, bounds=(), beneath=apart, clips=clips, grid=0.0, lost="")
        others = tuple(b for b in self.bounds if (b.order, b.per) != (bound.order, bound.per))
        most = max(norms.each(bound.norm), default=0.0)
        known = self._saturated(most) if norms.of_scalars(bound) else self._altered()
        beneath = norms.behind_clip(self.beneath, bound, self.layers)
        bounds = tuple(filter(norms.held, (*others, bound)))
        return dataclasses.replace(known, bounds=bounds, beneath=beneath, clips=clips, grid=0.0, lost="")

    def _saturated(self, most: float) -> Known:
        """Values beyond a magnitude are cut off there: noise that reaches it hides less of other clients' values."""
        return dataclasses.replace(
            self, releases=tuple(dataclasses.replace(r, range=min(r.range, most)) for r in self.releases)
        )

    def _altered(self) -> Known:
        """Uploads change behind their noise: their sum is then no sum of the noises that lie on it."""
        if self.summed or not self.releases:
            return self
        return self._uncredited(f"{self.link} changes values behind the noise, so others' noise earns no credit")

    def _rounded(self, step: float, toward_zero: bool = False) -> Known:
        if self.summed:  # two sums go to multiples that lie apart as they did, and by up to a step more
            apart = norms.apart(self.bounds or self.beneath, step, self.layers)
            return dataclasses.replace(self, bounds=(), beneath=apart, grid=step)
        bounds = self.bounds
        if not toward_zero:
            bounds = tuple(norms.widened(bound, step / 2, self.layers) for bound in self.bounds)
        # Rounding changes no whole number whose grid is a multiple of the step.
        whole = [release.step for release in self.releases if release.mechanism in INTEGER]
        off = not all(grid >= step and (grid / step).is_integer() for grid in whole)
        known = self._off_grid(off)
        releases = tuple(
            r if r.mechanism in INTEGER else dataclasses.replace(r, step=max(r.step, step)) for r in known.releases
        )
        beneath = norms.apart(self.beneath, step, self.layers)
        return dataclasses.replace(self, bounds=bounds, beneath=beneath, grid=step, releases=releases)

    def _rounded_at_random(self, step: float, beta: float) -> Known:
        """Behind rounding whose draws are repeated until the L2 norm is as small as it says."""
        if self.summed or self.releases:  # each value moves by less than a step, two of them apart by less than two
            return self._rounded(2 * step)._on_grid(step)
        length = self.norm()
        others = tuple(norms.widened(b, step, self.layers, doubled=False) for b in self.bounds if b.order != 2)
        whole = () if length is None else (Bound(norms.rounded(length, step, self.size, beta)),)
        return dataclasses.replace(self, bounds=(*others, *whole), grid=step)

    def _on_grid(self, step: float) -> Known:
        return dataclasses.replace(self, grid=step)

    def _rotated(self, back: bool) -> Known:
        """Behind a rotation, which keeps L2 norms of all values together, and no other."""
        if self.summed:
            apart = self.sensitivity()
            kept = () if apart is None else (Bound(apart),)
            left = self.rotated[:-1] if back else self.rotated
            return dataclasses.replace(self, bounds=(), beneath=kept, grid=0.0, rotated=left)
        length, under = self.norm(), self.sensitivity()
        turned = self._altered()
        return dataclasses.replace(
            turned, bounds=() if length is None else (Bound(length),), grid=0.0, rotated=(*self.rotated, self.link),
            beneath=() if under is None or not self.beneath else (Bound(under),),
        )  # fmt: skip

    def _off_grid(self, off: bool) -> Known:
        """Values have left the grid that noise in whole numbers lies on, so that their sum is none of whole numbers."""
        if not off or self.summed:
            return self
        why = f"{self.link} takes values off the grid of the noise, so others' noise earns no credit"
        return dataclasses.replace(self, releases=tuple(
            dataclasses.replace(r, uncredited=r.uncredited or why) if r.mechanism in INTEGER else r
            for r in self.releases
        ))  # fmt: skip

    def multiplier(self, noise: Noise) -> float:
        """Noise over what bounds one client's values here: the size that is used, over the bound that is enforced.

        0 where nothing bounds them, or nobody says how large the noise is. Where the size is a client's to work out, or
        the mechanism a plugin's, what it states.
        """
        norm = self.sensitivity(noise.order) if noise.trust == "central" else self.norm(noise.order)
        if norm is None:
            return 0.0
        if noise.std is None or isinstance(noise.std, Mapping):
            return noise.at_least or 0.0
        if math.isinf(norm) and not self.size:  # nobody can say how many values a bound of each is for
            return math.nan
        return norms.multiplier(noise.std, norm, self.layer_norms(noise.order), noise.order)

    def _noised(self, noise: Noise, own: Mapping[int | None, Known]) -> Known:
        norm = self.sensitivity(noise.order) if noise.trust == "central" else self.norm(noise.order)
        multiplier, grid, scale = self.multiplier(noise), noise.grid or 0.0, noise.std
        if isinstance(scale, Mapping):  # the one with the least noise for its bound
            releases = [known.releases[-1] for known in own.values()]
            multiplier, scale = min(r.noise_multiplier for r in releases), None
            grid = min(r.step for r in releases)
        why = self.uncredited[0] if self.uncredited else ""
        in_steps = noise.mechanism in INTEGER
        if noise.sample is not None:
            why = why or f"the draws of {self.link} do not add up as the noise of the core does"
        elif noise.mechanism in GAUSSIAN and not isinstance(scale, int | float):
            why = why or "each client's noise has different sizes, so others' noise earns no credit"
        release = Release(
            noise_multiplier=float(multiplier), clipping_norm=math.nan if norm is None else norm, uncredited=why,
            step=grid, size=float(self.size) if in_steps else 0.0, link=self.link,
            words=[] if noise.sample is None else [self.link], **shared(noise, NoiseTerms),
        )  # fmt: skip
        # Without noise, values and bounds stay as they were; noise that is worth nothing still moves them.
        silent = noise.std == 0
        clips = self.clips if silent else tuple(dataclasses.replace(clip, noised=True) for clip in self.clips)
        moved = norms.apart(self.bounds or self.beneath, max(grid, noise.coarsest), self.layers)
        beneath = moved if noise.sample is None else ()
        return dataclasses.replace(
            self, releases=(*self.releases, release), scales=(*self.scales, scale), clips=clips,
            bounds=self.bounds if silent else (), grid=self.grid if silent else grid,
            beneath=self.beneath if silent else beneath,
        )  # fmt: skip
