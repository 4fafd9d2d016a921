"""What a link says it does to a zone's values: a small vocabulary of typed facts, and what follows from them.

Each link of a zone's chain (`fedplug.api.links`) states its effects as a function of what is `Known` before it. Order
rules, sensitivities, the releases of the ledger, credit for the noise of other clients, what an encryption can hold and
what an attacker may know all follow from folding these statements over the links. A link that states nothing voids
every bound and every credit: what nobody said is not promised.

Norms and scales are in units of the update, before the client's weight, which lies in (0, 1] and shortens only.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from fedplug.api.checked import Checked, at_least
from fedplug.api.errors import FedplugError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Party = Literal["aggregator", "key_holder", "client", "client_and_aggregator", "released_model"]
"""Who sees something, in the words of the ledger's views."""
GAUSSIAN = ("gaussian", "discrete_gaussian")


class Misplaced(FedplugError):
    """A link cannot stand where it stands; the message says why and what to do. Raised by `effects`."""


class Curve(Protocol):
    """The cost of a mechanism of a plugin's own, as the ledger composes it."""

    def rdp(self, orders: NDArray[np.float64], multiplier: float) -> NDArray[np.float64]:
        """Renyi DP of one release at several orders > 1.

        Args:
            orders: the Renyi orders.
            multiplier: scale of the noise over the sensitivity; half of it under replace-one adjacency.
        """
        ...


# -- the vocabulary ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bound(Checked):
    """From here on, one client's values are at most this long, whatever they were (a clip).

    Attributes:
        norm: the largest norm; one for each layer of the model where it is `per="layer"`.
        order: 2 or 1, of the norm; infinity for magnitudes.
        per: of the whole zone (`update`), of each layer's values in it, or of each scalar.
    """

    norm: float | tuple[float, ...] = at_least(0)
    order: float = at_least(1, 2)
    per: Literal["update", "layer", "scalar"] = "update"


@dataclasses.dataclass(frozen=True)
class Scales(Checked):
    """Values are multiplied by a public number."""

    factor: float = at_least(-math.inf)


@dataclasses.dataclass(frozen=True)
class Shifts:
    """To every value a public number is added, so that two clients' values lie apart as they did."""


@dataclasses.dataclass(frozen=True)
class Rounding(Checked):
    """Every value goes to the nearest multiple of a step.

    It moves by at most step/2, and at most doubles, since what is shorter than step/2 becomes 0. So a norm over n
    scalars grows by at most step/2 * n^(1/order), and at most doubles.
    """

    step: float = at_least(0)


@dataclasses.dataclass(frozen=True)
class Changes(Checked):
    """Values change, as a function of the block, of public facts and (before any noise) of the client alone.

    Attributes:
        norms: `kept` where no norm can grow; `lost` where nothing is known of them afterwards.
        why: where they are lost, the reason and what to do, for whoever needs a norm afterwards.
    """

    norms: Literal["kept", "lost"] = "lost"
    why: str = ""


@dataclasses.dataclass(frozen=True)
class CoversSupport:
    """The block is widened by zeros over what the client keeps to itself, so that its positions no longer show that."""


@dataclasses.dataclass(frozen=True)
class Uncredited:
    """The noise of other clients hides less of one of them than its size says; `why` is a sentence."""

    why: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise(Checked):
    """Random noise, independent for each scalar, or another mechanism with a known cost.

    Attributes:
        mechanism: `gaussian`, `discrete_gaussian`, `laplace`; `pure` (any other with an epsilon and no delta, which
            replacing a client by another instead of zero at most doubles); or a name of the plugin's own, with a curve.
        scale: standard deviation (of Laplace noise: its b), one number or one for each layer; None where it differs
            between clients or cannot be said.
        multiplier: scale over sensitivity; of a pure mechanism 1 / epsilon. None: the scale over the bound that is
            known here. To be given where the scale is not. Of Gaussian and Laplace noise whose scale is stated, no more
            is believed than that scale over that bound.
        trust: `local` (added before upload), `central` (added to the sum by a trusted party), or `distributed` (local,
            but calibrated for the sum).
        source: `secure`, `exact`, or `reproducible` (from the recipe's seed, which protects nobody).
        grid: results are multiples of it; 0: of nothing coarser than float32.
        slack: the share of delta that the mechanism itself takes for the whole run: delta grows by (1 + e^epsilon)
            times this.
        calibrated_delta: the delta that an epsilon among the options is meant for; None without one.
        scored: True where the scale follows from scores of a model, so that it tells of whatever moved that model.
        literal: True where the paper's own formula is used although it does not give what it claims.
        note: one sentence for the ledger; may be empty.
        curve: the cost of a mechanism that the core does not know.
    """

    mechanism: str
    scale: float | tuple[float, ...] | None = at_least(0, None)
    multiplier: float | None = at_least(0, None, nan=True)
    trust: Literal["local", "central", "distributed"] = "local"
    source: Literal["secure", "exact", "reproducible"] = "secure"
    grid: float = at_least(0, 0.0)
    slack: float = at_least(0, 0.0)
    calibrated_delta: float | None = None
    scored: bool = False
    literal: bool = False
    note: str = ""
    curve: Curve | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seal(Checked):
    """The client's weight is multiplied in, and values become ciphertexts that can be added and not read.

    Attributes:
        scheme: its parameters in a line, for the record.
        opened_by: `clients` or `key_server`, who hold a key; `shares`, which many clients would have to put together.
        answers: whom the key server tells what it opened: the aggregation `server`, or the `clients` alone.
        range: largest magnitude of a weighted value; larger ones saturate. Infinity: none does; NaN: unknown.
        step: distance of neighbouring values; values are rounded to it. 0: none is; NaN: unknown.
        position_block: how many consecutive global positions share a ciphertext where clients have masks of their own;
            0 where they must share the mask.
    """

    scheme: str
    opened_by: Literal["clients", "key_server", "shares"]
    range: float = at_least(0, nan=True)
    step: float = at_least(0, nan=True)
    answers: Literal["server", "clients"] = "server"
    position_block: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scramble(Checked):
    """Values become bytes that parties with a key turn back; no encryption whose sums stay closed to a server.

    Attributes:
        known_to: who holds the key.
        hides: `values` from everybody else; `nothing proved` where no argument says so.
        range, step: as in `Seal`.
    """

    known_to: tuple[Party, ...]
    hides: Literal["values", "nothing proved"]
    range: float = at_least(0, nan=True)
    step: float = at_least(0, nan=True)


@dataclasses.dataclass(frozen=True)
class Opens:
    """Undoes the last seal or scramble of the zone: the sum is plain where this link runs."""


@dataclasses.dataclass(frozen=True)
class Adds:
    """The weighted sum of the clients' blocks, weights in (0, 1] that do not follow from the blocks themselves."""


Effect = (
    Bound | Scales | Shifts | Rounding | Changes | CoversSupport | Uncredited | Noise | Seal | Scramble | Opens | Adds
)
Effects = tuple[Effect, ...]
"""In the order in which they happen. Empty: the values leave as they came."""


@dataclasses.dataclass(frozen=True)
class Reveals(Checked):
    """Something that follows from clients' data and is visible to somebody beside the protected values.

    Attributes:
        what: for instance `mask`, `vote histogram`, `num_examples`.
        to: who sees it, in the words of the ledger's views.
        covered_by: what pays for it: `epsilon` (a noise in the ledger, such as the negotiation's own), or `nothing to
            pay` where it does not follow from anybody's data, with the note saying why; None: nothing does.
        asked: names of the methods, of clients or of the key server, whose replies carry it to the server. A reply
            that no statement names makes the guarantee of whoever reads it `none`.
        voids: True where it gives so much away that no epsilon can stand beside it: the guarantee of those who see it
            is `none`.
        note: one sentence.
    """

    what: str
    to: tuple[Party, ...]
    _: dataclasses.KW_ONLY
    covered_by: Literal["epsilon", "nothing to pay"] | None = None
    asked: tuple[str, ...] = ()
    voids: bool = False
    note: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learns:
    """How an update follows from data: what the trainer says of itself, for whoever reads updates.

    Attributes:
        descends: what the steps descend; `cross_entropy` where updates are sums of gradients of its mean over a batch,
            else in words, and attacks that need that loss do not apply.
        lr: learning rate of the round; None where there is no such number.
        batch_size: examples of a step; None: all.
        epochs: times through the examples; None where a round is not counted so.
        one_step: True where a round is one step on one batch.
        momentum, weight_decay: of the optimiser.
        class_weights: of the loss, one a class; None: all alike.
        training_mode: False where gradients are computed in evaluation mode.
        noise: standard deviation of what the trainer adds to an update; None: unknown, 0: nothing.
        repeats: whether the same update can be made again from the same model and data.
    """

    descends: str = "cross_entropy"
    lr: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    one_step: bool = False
    momentum: float = 0.0
    weight_decay: float = 0.0
    class_weights: tuple[float, ...] | None = None
    training_mode: bool = True
    noise: float | None = 0.0
    repeats: bool = True


# -- what follows ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Release:
    """One noise of a zone's chain as the ledger enters it: what it costs each client in one round.

    Attributes:
        mechanism, trust, source, slack, calibrated_delta, scored, literal, note: as in `Noise`.
        noise_multiplier: of Gaussian noise its standard deviation over the L2 sensitivity (zero-out); of Laplace noise
            its scale over the L1 sensitivity; of a pure mechanism 1 / epsilon. 0 where no bound was known.
        clipping_norm: the sensitivity; NaN where it is not one number.
        range, step: what the values can hold and how they are rounded from this noise on, of one client's weighted
            values.
        uncredited: why the noise of others earns no credit, apart from what `range` and `step` say; empty if it may.
        link: who added it.
    """

    mechanism: str
    noise_multiplier: float
    clipping_norm: float
    trust: str = "local"
    source: str = "secure"
    literal: bool = False
    note: str = ""
    uncredited: str = ""
    slack: float = 0.0
    calibrated_delta: float | None = None
    scored: bool = False
    range: float = math.inf
    step: float = 0.0
    link: str = ""


@dataclasses.dataclass(frozen=True)
class Clip:
    """A public bound that a client's values were scaled down to, for whoever reads them.

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
        beneath: bounds of what one client's data contributes to values that carry its noise: by so much, and the grid
            of the noise, values differ from those of a client with other data and the same noise.
        lost: why no bound holds any more, where a link said so.
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
    beneath: tuple[Bound, ...] = ()
    lost: str = ""

    @property
    def size(self) -> int:
        """The most scalars that the zone can have; 0 while no model is known."""
        return sum(self.layers)

    def norm(self, order: float = 2) -> float | None:
        """The largest norm of one client's values that the bounds leave; None where none bounds it."""
        found = [value for bound in self.bounds if (value := self._implied(bound, order)) is not None]
        return min(found, default=None)

    def layer_norms(self, order: float = 2) -> tuple[float, ...] | None:
        """The largest norm of each layer's values; None where nothing bounds layers one by one."""
        for bound in self.bounds:
            if bound.per == "layer" and bound.order == order:
                return bound.norm if isinstance(bound.norm, tuple) else (bound.norm,) * max(1, len(self.layers))
        return None

    def sensitivity(self, order: float = 2) -> float | None:
        """By how much one client's data moves the values, in a norm: what central noise is measured by.

        Noise that is independent of the data does not raise it, although it ends the bounds of the values.
        """
        found = [value for bound in self.beneath if (value := self._implied(bound, order)) is not None]
        norm = self.norm(order)
        return norm if norm is not None else min(found, default=None)

    def _implied(self, bound: Bound, order: float) -> float | None:
        if bound.per == "scalar" or bound.order == math.inf:
            largest = max(bound.norm) if isinstance(bound.norm, tuple) else bound.norm
            return largest * self.size ** (1 / order) if self.size else math.inf
        if bound.order != order:
            return None
        if bound.per == "update":
            return max(bound.norm) if isinstance(bound.norm, tuple) else bound.norm
        norms = bound.norm if isinstance(bound.norm, tuple) else (bound.norm,) * max(1, len(self.layers))
        return math.hypot(*norms) if order == 2 else math.fsum(norms)

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
        found = self.sensitivity(order) if central else self.norm(order)
        if found is None:
            because = "".join(f" ({name} states no effect, so bounds do not hold behind it)" for name in self.unstated)
            if noises := [release.link for release in self.releases if release.trust != "central"]:
                because += f" (behind the noise of {noises[-1]} no bound holds)"
            raise Misplaced(
                f"{self.link} needs a bound of the L{order:g} norm earlier in the chain of zone {self.zone}{because}; "
                f"{self.lost or remedy}"
            )
        return found

    # -- the fold ------------------------------------------------------------------------------------------------------

    def after(self, effects: Effects) -> Known:
        """What is known behind a link with these effects."""
        found = self
        for effect in effects:
            found = found._apply(effect)
        return found

    def voided(self, *, at_client: bool) -> Known:
        """What is known behind a link that states nothing.

        Args:
            at_client: it runs before the upload and has the client's data in hand, so noise added before it may have
                been undone. At a server, local noise stays: whatever a server does with noised uploads costs no more.
        """
        why = f"{self.link} states no effect, so nothing is promised behind it"
        kept = [] if at_client else [i for i, release in enumerate(self.releases) if release.trust == "local"]
        return dataclasses.replace(
            self, bounds=(), grid=0.0, releases=tuple(self.releases[i] for i in kept),
            scales=tuple(self.scales[i] for i in kept) if self.scales else (), factor=1.0, sealed=(), sealers=(),
            beneath=(),
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
                    self, bounds=tuple(_stretched(b, size) for b in self.bounds), grid=self.grid * size,
                    beneath=tuple(_stretched(b, size) for b in self.beneath),
                    scales=tuple(None if s is None else _times(s, size) for s in self.scales),
                    factor=self.factor * factor,
                    releases=tuple(replace(r, step=r.step * size, range=r.range * size) for r in self.releases),
                )  # fmt: skip
            case Shifts():
                # Without noise beneath, the sum of the shifts would show how many took part.
                beneath = (self.bounds or self.beneath) if self.releases or self.summed else ()
                return replace(self, grid=0.0, bounds=(), beneath=beneath)
            case Rounding(step):
                return self._rounded(step)
            case Changes(norms, why):
                # That no norm grows says nothing of how far two sums come apart, which is what counts behind a sum.
                kept = norms == "kept" and not self.summed
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
        raise TypeError(f"{self.link} states {effect!r}, which is no effect; see fedplug.api.effects")

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
            apart = (_stretched(bound, 2.0),)
            return dataclasses.replace(self, bounds=(), beneath=apart, clips=clips, grid=0.0, lost="")
        others = tuple(b for b in self.bounds if (b.order, b.per) != (bound.order, bound.per))
        clamps = bound.per == "scalar" or bound.order == math.inf
        found = self._saturated(_largest(bound)) if clamps else self._altered()
        return dataclasses.replace(found, bounds=(*others, bound), clips=clips, grid=0.0, lost="")

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
            apart = self._apart(self.bounds or self.beneath, step)
            return dataclasses.replace(self, bounds=(), beneath=apart, grid=step)
        bounds = tuple(self._widened(bound, step / 2) for bound in self.bounds)
        releases = tuple(dataclasses.replace(r, step=max(r.step, step)) for r in self.releases)
        beneath = self._apart(self.beneath, step)
        return dataclasses.replace(self, bounds=bounds, beneath=beneath, grid=step, releases=releases)

    def _widened(self, bound: Bound, by: float) -> Bound:
        """A bound once every value may have gone to the nearest of numbers that are twice that far apart."""
        if bound.per == "scalar" or bound.order == math.inf:
            return _plus(bound, [by])
        if bound.per == "update":
            return _plus(bound, [by * self.size ** (1 / bound.order)])
        return _plus(bound, [by * count ** (1 / bound.order) for count in self.layers] or [0.0])

    def _noised(self, noise: Noise) -> Known:
        order = 1 if noise.mechanism == "laplace" else 2
        norm = self.sensitivity(order) if noise.trust == "central" else self.norm(order)
        multiplier = noise.multiplier
        if noise.scale is not None and noise.mechanism in (*GAUSSIAN, "laplace"):
            # What is stated of noise whose size is stated holds only as far as that size bears it out.
            found = self._multiplier(noise.scale, norm, order)
            multiplier = found if multiplier is None else min(multiplier, found)
        elif multiplier is None:
            multiplier = self._multiplier(noise.scale, norm, order)
        why = self.uncredited[0] if self.uncredited else ""
        if noise.mechanism in GAUSSIAN and not isinstance(noise.scale, int | float):
            why = why or "each client's noise has sizes of its own, so others' noise earns no credit"
        release = Release(
            noise.mechanism, float(multiplier), math.nan if norm is None else norm, noise.trust, noise.source,
            noise.literal, noise.note, why, noise.slack, noise.calibrated_delta, noise.scored, step=noise.grid,
            link=self.link,
        )  # fmt: skip
        # Whoever adds no noise leaves values and bounds as they were; noise that is worth nothing still moves them.
        silent = noise.scale == 0 or (noise.scale is None and noise.multiplier == 0)
        clips = self.clips if silent else tuple(dataclasses.replace(clip, noised=True) for clip in self.clips)
        return dataclasses.replace(
            self, releases=(*self.releases, release), scales=(*self.scales, noise.scale), clips=clips,
            bounds=self.bounds if silent else (), grid=self.grid if silent else noise.grid,
            beneath=self.beneath if silent else self._apart(self.bounds or self.beneath, noise.grid),
        )  # fmt: skip

    def _apart(self, bounds: tuple[Bound, ...], step: float) -> tuple[Bound, ...]:
        """Bounds of how far values lie apart that did so by these, once both went to the nearest multiple of a step."""
        found = []
        for bound in bounds:
            norms = bound.norm if isinstance(bound.norm, tuple) else (bound.norm,)
            if bound.per == "layer" and self.layers:
                norms = norms if len(norms) == len(self.layers) else norms * len(self.layers)
                more = [step * count ** (1 / bound.order) for count in self.layers]
            else:
                root = 0.0 if bound.per == "scalar" or bound.order == math.inf else 1 / bound.order
                more = [step * max(1, self.size) ** root] * len(norms)
            wider = tuple(norm + extra for norm, extra in zip(norms, more, strict=True))
            found.append(dataclasses.replace(bound, norm=wider[0] if len(wider) == 1 else wider))
        return tuple(found)

    def _multiplier(self, scale: float | tuple[float, ...] | None, norm: float | None, order: float) -> float:
        """Scale over sensitivity; 0 where nothing bounds the values, or nobody says how large the noise is."""
        if scale is None or norm is None or not math.isfinite(norm):
            return 0.0
        if not isinstance(scale, tuple):
            return scale / norm if norm > 0 else math.inf
        norms = self.layer_norms(order)
        if norms is None:
            return min(scale, default=0.0) / norm if norm > 0 else math.inf
        if len(norms) != len(scale):
            return 0.0  # before the model is known nobody can say which belongs to which
        # One release of all layers together: (sum of (C_l / s_l)^2)^(-1/2); of Laplace noise (sum of C_l / b_l)^(-1).
        if any(s == 0 for s in scale):
            return 0.0
        shares = [c / s for c, s in zip(norms, scale, strict=True)]
        cost = math.hypot(*shares) if order == 2 else math.fsum(shares)
        return 1 / cost if cost > 0 else math.inf


def _largest(bound: Bound) -> float:
    return max(bound.norm, default=0.0) if isinstance(bound.norm, tuple) else bound.norm


def _stretched(bound: Bound, factor: float) -> Bound:
    return dataclasses.replace(bound, norm=_times(bound.norm, factor))


def _times(value: float | tuple[float, ...], factor: float) -> float | tuple[float, ...]:
    return tuple(v * factor for v in value) if isinstance(value, tuple) else value * factor


def _plus(bound: Bound, by: list[float]) -> Bound:
    """The bound with something added, one number or one a layer; never more than twice itself."""
    if isinstance(bound.norm, tuple) or len(by) > 1:
        norms = bound.norm if isinstance(bound.norm, tuple) else (bound.norm,) * len(by)
        steps = by if len(by) == len(norms) else [max(by)] * len(norms)
        return dataclasses.replace(bound, norm=tuple(min(n + b, 2 * n) for n, b in zip(norms, steps, strict=True)))
    return dataclasses.replace(bound, norm=min(bound.norm + by[0], 2 * bound.norm))


def as_effects(found: Any, link: str) -> Effects:
    """What a component gave as its effects, checked.

    Raises:
        Misplaced: it is no tuple of effects.
    """
    kinds = get_args(Effect)
    if not isinstance(found, tuple) or not all(isinstance(effect, kinds) for effect in found):
        shown = ", ".join(kind.__name__ for kind in kinds)
        raise Misplaced(f"{link} states {found!r:.80} as its effects; give a tuple of {shown}; an empty one: no change")
    return found
