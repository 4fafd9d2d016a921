"""What is known of one client's values at one place of a zone's chain, and what follows behind a link.

`Known.after` folds what a link states (`fedplug.api.effects`) into what was known before it. A link that states nothing
voids every bound and every credit: what is not stated is not promised.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from fedplug.api import norms
from fedplug.api.checked import shared
from fedplug.api.effects import (
    GAUSSIAN,
    Adds,
    Bound,
    Changes,
    CoversSupport,
    Effect,
    Effects,
    Misplaced,
    Noise,
    NoiseTerms,
    Opens,
    Rounding,
    Scales,
    Scramble,
    Seal,
    Shifts,
    Uncredited,
)
from fedplug.api.releases import Clip, Release

_LOOSE = "what the sum is divided by may follow from values, which no noise on it hides; add the noise at the clients"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of one client's values of a zone, or of a sum, at one place of its chain.

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
        sealed: what closes the values now, the outermost last.
        sealers: the links that did, likewise.
        weighted: True once the client's weight is in.
        summed: True behind the aggregator.
        covers_support: True where positions do not show what clients keep.
        uncredited: why the noise of others earns no credit.
        unstated: links that state no effect.
        loose: True of a sum that is divided, or comes with, what may follow from values without noise: noise on it is
            measured by nothing, whatever bounds it.
        beneath: bounds of what one client's data contributes to values that carry its noise: by so much, and the grid
            of the noise, values differ from those of a client with other data and the same noise.
        lost: why no bound holds any more, where a link states it.
    """

    zone: str
    link: str = ""
    layers: tuple[int, ...] = ()
    bounds: tuple[Bound, ...] = ()
    grid: float = 0.0
    releases: tuple[Release, ...] = ()
    scales: tuple[float | tuple[float, ...] | None, ...] = ()
    clips: tuple[Clip, ...] = ()
    factor: float = 1.0
    sealed: tuple[Seal | Scramble, ...] = ()
    sealers: tuple[str, ...] = ()
    weighted: bool = False
    summed: bool = False
    covers_support: bool = False
    uncredited: tuple[str, ...] = ()
    unstated: tuple[str, ...] = ()
    loose: bool = False
    beneath: tuple[Bound, ...] = ()
    lost: str = ""

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

    # -- order rules, for links to state -------------------------------------------------------------------------------

    def before(self, what: Literal["noise", "encryption", "clip"], remedy: str) -> None:
        """States that a link must come before any noise, encryption or clip.

        Raises:
            Misplaced: it does not.
        """
        there = {"noise": self.releases, "encryption": self.sealed, "clip": self.bounds}[what]
        if there:
            raise Misplaced(f"{self.link} must not come after {what} in the chain of zone {self.zone}; {remedy}")

    def need_norm(self, remedy: str, order: float = 2, *, central: bool = False) -> float:
        """States that a link needs a bound of the norm; gives it.

        Args:
            remedy: how to get one, as half a sentence.
            order: 2 or 1.
            central: for noise on a sum, which is measured by what one client's data contributes beneath other noise.

        Raises:
            Misplaced: nothing bounds it.
        """
        length = self.sensitivity(order) if central else self.norm(order)
        if length is None:
            because = "".join(f" ({name} states no effect, so bounds do not hold behind it)" for name in self.unstated)
            if noises := [release.link for release in self.releases if release.trust != "central"]:
                because += f" (behind the noise of {noises[-1]} no bound holds)"
            raise Misplaced(
                f"{self.link} needs a bound of the L{order:g} norm earlier in the chain of zone {self.zone}{because}; "
                f"{self.lost or (_LOOSE if self.loose else remedy)}"
            )
        return length

    # -- the fold ------------------------------------------------------------------------------------------------------

    def after(self, effects: Effects) -> Known:
        """What is known behind a link with these effects."""
        known = self
        for effect in effects:
            known = known._apply(effect)
        return known

    def voided(self, *, at_client: bool) -> Known:
        """What is known behind a link that states nothing.

        Args:
            at_client: it has the client's data in hand, so noise added before it may have been undone. At a server,
                local noise stays: whatever a server does with noised uploads costs no more.
        """
        why = f"{self.link} states no effect, so nothing is promised behind it"
        kept = [] if at_client else [i for i, release in enumerate(self.releases) if release.trust == "local"]
        return dataclasses.replace(
            self, bounds=(), grid=0.0, releases=tuple(self.releases[i] for i in kept),
            scales=tuple(self.scales[i] for i in kept) if self.scales else (), factor=1.0, sealed=(), sealers=(),
            beneath=(), loose=self.loose or not at_client,
            uncredited=(*self.uncredited, why), unstated=(*self.unstated, self.link),
        )  # fmt: skip

    def _apply(self, effect: Effect) -> Known:
        replace = dataclasses.replace
        match effect:
            case Bound():
                return self._bounded(effect)
            case Scales(factor):
                size = abs(factor)
                return replace(
                    self, bounds=tuple(norms.stretched(b, size) for b in self.bounds), grid=self.grid * size,
                    beneath=tuple(norms.stretched(b, size) for b in self.beneath),
                    scales=tuple(None if s is None else norms.times(s, size) for s in self.scales),
                    factor=self.factor * factor,
                    releases=tuple(replace(r, step=r.step * size, range=r.range * size) for r in self.releases),
                )  # fmt: skip
            case Shifts():
                # Without noise beneath, the sum of the shifts would show how many took part; and whether what was
                # added to a sum was a public number, nobody can see.
                beneath = (self.bounds or self.beneath) if self.releases and not self.summed else ()
                return replace(self, grid=0.0, bounds=(), beneath=beneath)
            case Rounding(step):
                return self._rounded(step)
            case Changes(effect_on_norms, why):
                # That no norm grows says nothing of how far two sums come apart, which is what counts behind a sum.
                kept = effect_on_norms == "kept" and not self.summed
                return replace(
                    self._altered(), grid=0.0, bounds=self.bounds if kept else (), beneath=(),
                    lost=self.lost if kept else why or self.lost,
                )  # fmt: skip
            case CoversSupport():
                return replace(self, covers_support=True)
            case Uncredited(why):
                return replace(
                    self, uncredited=(*self.uncredited, why),
                    releases=tuple(replace(r, uncredited=r.uncredited or why) for r in self.releases),
                )  # fmt: skip
            case Noise():
                return self._noised(effect)
            case Seal() | Scramble():
                held = self._rounded(effect.step) if effect.step > 0 else self
                if math.isnan(effect.range) or math.isnan(effect.step):
                    why = f"{self.link} does not say what values it holds, so others' noise earns no credit"
                    held = replace(held._apply(Uncredited(why)), bounds=(), grid=0.0)
                return replace(
                    held._saturated(effect.range), weighted=self.weighted or isinstance(effect, Seal),
                    sealed=(*self.sealed, effect), sealers=(*self.sealers, self.link),
                )  # fmt: skip
            case Opens():
                return replace(self, sealed=self.sealed[:-1], sealers=self.sealers[:-1])
            case Adds():
                grid = self.grid if self.sealed or self.weighted else 0.0
                return replace(self, summed=True, grid=grid)
        raise TypeError(f"{self.link} states {effect!r}, which is not an effect; see fedplug.api.effects")

    def _bounded(self, bound: Bound) -> Known:
        """Behind a clip. Only scaling down keeps other bounds, and a clip of one client's values does no more.

        Two sums that were clipped lie at most twice as far apart as each is long, whatever they were before.

        Raises:
            Misplaced: it has norms for another number of layers than the model.
        """
        if isinstance(bound.norm, tuple) and self.layers and len(bound.norm) != len(self.layers):
            raise Misplaced(
                f"{self.link} states norms of {len(bound.norm)} layers, and the model has {len(self.layers)}; give one "
                "a layer, or one number for all of them"
            )
        clips = (*self.clips, Clip(self.link, bound, factor=self.factor))
        if self.summed:
            apart = (norms.stretched(bound, 2.0),)
            return dataclasses.replace(self, bounds=(), beneath=apart, clips=clips, grid=0.0, lost="")
        others = tuple(b for b in self.bounds if (b.order, b.per) != (bound.order, bound.per))
        most = max(norms.each(bound.norm), default=0.0)
        known = self._saturated(most) if norms.of_scalars(bound) else self._altered()
        beneath = norms.behind_clip(self.beneath, bound, self.layers)
        return dataclasses.replace(known, bounds=(*others, bound), beneath=beneath, clips=clips, grid=0.0, lost="")

    def _saturated(self, most: float) -> Known:
        """Values beyond a magnitude are cut off there: noise that reaches it hides less of other clients' values."""
        return dataclasses.replace(
            self, releases=tuple(dataclasses.replace(r, range=min(r.range, most)) for r in self.releases)
        )

    def _altered(self) -> Known:
        """Uploads change behind their noise: their sum is then no sum of the noises that lie on it."""
        if self.summed or not self.releases:
            return self
        return self._apply(Uncredited(f"{self.link} changes values behind the noise, so others' noise earns no credit"))

    def _rounded(self, step: float) -> Known:
        if self.summed:  # two sums go to multiples that lie apart as they did, and by up to a step more
            apart = norms.apart(self.bounds or self.beneath, step, self.layers)
            return dataclasses.replace(self, bounds=(), beneath=apart, grid=step)
        bounds = tuple(norms.widened(bound, step / 2, self.layers) for bound in self.bounds)
        releases = tuple(dataclasses.replace(r, step=max(r.step, step)) for r in self.releases)
        beneath = norms.apart(self.beneath, step, self.layers)
        return dataclasses.replace(self, bounds=bounds, beneath=beneath, grid=step, releases=releases)

    def _noised(self, noise: Noise) -> Known:
        order = 1 if noise.mechanism == "laplace" else 2
        norm = self.sensitivity(order) if noise.trust == "central" else self.norm(order)
        multiplier = noise.multiplier
        sized = noise.scale is not None and noise.mechanism in (*GAUSSIAN, "laplace")
        if sized or multiplier is None:
            # What is stated of noise whose size is stated holds only as far as that size bears it out.
            weaker = norms.multiplier(noise.scale, norm, self.layer_norms(order), order)
            multiplier = weaker if multiplier is None else min(multiplier, weaker)
        why = self.uncredited[0] if self.uncredited else ""
        if noise.mechanism in GAUSSIAN and not isinstance(noise.scale, int | float):
            why = why or "each client's noise has sizes of its own, so others' noise earns no credit"
        release = Release(
            noise_multiplier=float(multiplier), clipping_norm=math.nan if norm is None else norm, uncredited=why,
            step=noise.grid, link=self.link, **shared(noise, NoiseTerms),
        )  # fmt: skip
        # Whoever adds no noise leaves values and bounds as they were; noise that is worth nothing still moves them.
        silent = noise.scale == 0 or (noise.scale is None and noise.multiplier == 0)
        clips = self.clips if silent else tuple(dataclasses.replace(clip, noised=True) for clip in self.clips)
        return dataclasses.replace(
            self, releases=(*self.releases, release), scales=(*self.scales, noise.scale), clips=clips,
            bounds=self.bounds if silent else (), grid=self.grid if silent else noise.grid,
            beneath=self.beneath if silent else norms.apart(self.bounds or self.beneath, noise.grid, self.layers),
        )  # fmt: skip
