"""Privacy loss distributions of many releases: epsilon is never too low, and at most 0.1% too high.

A distribution is on a grid of losses. A loss between two points is put onto both ("connect the dots", Doroshenko et al.
2022), so that probabilities keep their sum under either data set: the result is pessimistic, and wrong by the square of
the grid's width over the variance of a loss. That error adds up over releases, as the variance does. So the grid of one
release is a small part of the standard deviation of its loss, whatever their number. The composition of many moves to a
wider grid, which need not grow with their number either.

Fourier transforms compose distributions. They are wrong by about 1e-16 of the largest probability for each release,
which swamps a small delta. So distributions are tilted first (an Esscher transform: probabilities times e^(t loss),
t > 0, over their sum), which moves their mass to the losses that decide about delta. What is wrong then is a small part
of delta itself. A bound on it, from Higham's (2002, Theorem 24.2) on a transform's L2 error, is added to delta.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from fedplug_ledger.accounting import first_that_holds

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FINE = 32.0
"""Points of a grid in a standard deviation: each step onto a grid adds about 0.01% to the variance, and there are three
(one release, a block of them, all kinds together)."""
_BLOCK = 1 << 16
"""Releases that are composed on the grid of a single one; beyond, blocks of them have a separate grid."""
_MOST_POINTS = 1 << 18
"""Of the grid of one release. Where its losses span more, the large ones are rare, and shape epsilon far more coarsely
than the standard deviation of all says."""
_FROM_MEAN = 8000.0
"""Where losses hardly vary, epsilon is about their mean; a grid of the mean over so much moves it by 0.01%."""
_NARROW = 0.25
"""A grid so narrow moves a mean by the eighth part of its square at most; a wider one rounds losses up."""
_LEAST = 2.0**-40
"""The narrowest grid: losses below it can hardly be told from rounding."""
_RARE = 2.0**-14
"""A part of delta that epsilon does not notice: losses with so small a probability count as infinite."""
_CUT = 2.0**-64
"""At most so much of the mass of a composition lies outside its window, on either side."""
_CURVE = 2.0**-44
"""How far the normal and the exponential function may be off, relative to their value; Cephes says 3.4e-14."""
_UNIT = 2.0**-50
"""Eight units of rounding: what a few operations of floating point may change in a number, relative to it."""
_OF_FFT = 2.0**-49
"""The same of a Fourier transform, in the L2 norm, for each doubling of its length."""
_OVERFLOW = 600.0
"""Exponents beyond which nothing is claimed."""
_LARGEST = 1 << 23
"""Points of a composition beyond which nothing is claimed either: it would take gigabytes."""


class Release(abc.ABC):
    """One release: how it is distributed with and without a contribution. Equal releases are one kind.

    `symmetric` says whether both directions, with against without and the reverse, have one distribution of losses;
    `lumps`, whether some losses, such as the largest, have a positive probability.
    """

    symmetric, lumps = False, False

    @abc.abstractmethod
    def losses(self, cut: float) -> tuple[float, float]:
        """The smallest and the largest loss; what lies beyond either has a probability of at most `cut`."""

    @abc.abstractmethod
    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities between ascending losses, (n,), with the contribution and without: what is below the first,
        between the first two, ..., and above the last, (n + 1,) each.
        """


@dataclasses.dataclass(frozen=True)
class Gaussian(Release):
    """Gaussian noise on a Poisson sample.

    Attributes:
        multiplier: standard deviation over sensitivity, > 0.
        rate: of the sample, in (0, 1].
        replaced: whether one contribution replaces another, and does not become zero.
    """

    multiplier: float
    rate: float = 1.0
    replaced: bool = False

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        return self.replaced or self.rate == 1

    def losses(self, cut: float) -> tuple[float, float]:
        tails = math.sqrt(-2 * math.log(cut)) * self.multiplier
        high = self._loss(1 + tails)
        return (-high if self.replaced else self._loss(-tails)), high

    def _loss(self, value: float) -> float:
        sampled = _log_mixture(self.rate, (2 * value - 1) / self.multiplier / self.multiplier / 2)
        if not self.replaced:
            return sampled
        return sampled - _log_mixture(self.rate, (-2 * value - 1) / self.multiplier / self.multiplier / 2)

    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        s, q = self.multiplier, self.rate
        if self.replaced:
            # With c = q e^(-1 / 2s^2): sinh(x / s^2 - loss / 2) = (1 - q) sinh(loss / 2) / c.
            half = np.abs(losses) / 2
            with np.errstate(divide="ignore"):
                part = np.log1p(-q) + _log_sinh(half) - math.log(q) + 1 / s / s / 2
            where = np.copysign((half + _asinh_of_exp(part)) * s * s, losses)
            others = [(1 - q, 0.0), (q, -1.0)]
        else:
            where = _log_part(losses, q) * s * s + 0.5
            others = [(1.0, 0.0)]
        mine = [(1 - q, 0.0), (q, 1.0)]

        def between(parts: list[tuple[float, float]]) -> NDArray[np.float64]:
            masses = [share * _normal_between((where - centre) / s) for share, centre in parts if share]
            return np.asarray(sum(masses), np.float64)

        return between(mine), between(others)


@dataclasses.dataclass(frozen=True)
class Group(Release):
    """Gaussian noise on a Poisson sample, to which up to `records` records of one user contribute.

    How many are drawn is binomial, and in the worst case all move the sum in one direction: a mixture of Gaussians
    (Charles et al. 2024, Fine-tuning large language models with user-level differential privacy, Section 3.1, for
    example-level sampling; Choquette-Choo et al. 2024, Privacy amplification for matrix mechanisms, Lemma 4.5, which
    says that more records, and a larger rate, cost more).

    Attributes:
        multiplier: standard deviation over the bound of one record, > 0.
        rate: of the sample, in (0, 1).
        records: k, 1 or more.
    """

    multiplier: float
    rate: float
    records: int

    @property
    def _parts(self) -> NDArray[np.float64]:
        """Logarithms of the probabilities of 0 to k records, (k + 1,)."""
        k, drawn = self.records, np.arange(self.records + 1)
        ways = [math.lgamma(k + 1) - math.lgamma(j + 1) - math.lgamma(k - j + 1) for j in drawn.tolist()]
        logs: NDArray[np.float64] = np.array(ways) + drawn * math.log(self.rate) + (k - drawn) * math.log1p(-self.rate)
        return logs

    def losses(self, cut: float) -> tuple[float, float]:
        tails = math.sqrt(-2 * math.log(cut)) * self.multiplier
        low, high = self._losses(np.array([-tails, self.records + tails]))[0]
        return float(low), float(high)

    def _losses(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The loss at each value, and its derivative."""
        drawn, variance = np.arange(self.records + 1), self.multiplier * self.multiplier
        each = self._parts + (2 * drawn * values[:, None] - drawn * drawn) / (2 * variance)
        most = each.max(1, keepdims=True)
        weights = np.exp(each - most)
        total = weights.sum(1)
        return most[:, 0] + np.log(total), weights @ drawn / total / variance

    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        parts, drawn, variance = self._parts, np.arange(1, self.records + 1), self.multiplier * self.multiplier
        where = np.full(len(losses), -np.inf)  # no value has a loss so small
        inside = np.flatnonzero(losses > parts[0])
        # The loss is convex in the value. Newton's method starts where one part alone has it, to the right, and stays.
        values = ((losses[inside, None] - parts[1:]) * variance / drawn + drawn / 2).min(1, initial=np.inf)
        for _ in range(200):
            there, slope = self._losses(values)
            step = (there - losses[inside]) / slope
            values = values - step
            if (np.abs(step) <= 1e-13 * (1 + np.abs(values))).all():
                break
        where[inside] = values
        s = self.multiplier
        mine = [math.exp(part) * _normal_between((where - j) / s) for j, part in enumerate(parts.tolist())]
        return np.asarray(sum(mine), np.float64), _normal_between(where / s)


@dataclasses.dataclass(frozen=True)
class Laplace(Release):
    """Laplace noise on a Poisson sample, where a contribution becomes zero.

    Attributes:
        multiplier: scale over sensitivity, > 0. For vectors it is worst to have the whole L1 norm in one coordinate.
        rate: of the sample, in (0, 1].
    """

    multiplier: float
    rate: float = 1.0
    lumps = True

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        return self.rate == 1

    def losses(self, cut: float) -> tuple[float, float]:
        most = 1 / self.multiplier
        return _log_mixture(self.rate, -most), _log_mixture(self.rate, most)

    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        b, q = self.multiplier, self.rate
        where = _log_part(losses, q) * b / 2 + 0.5
        where = np.where(where >= 1, np.inf, np.where(where <= 0, -np.inf, where))
        base = _laplace_between(where / b)
        return (1 - q) * base + q * _laplace_between((where - 1) / b), base


@dataclasses.dataclass(frozen=True)
class Pure(Release):
    """A randomised response, of which every mechanism with this epsilon and delta 0 is a processed one.

    Attributes:
        loss: epsilon, > 0.
    """

    loss: float
    symmetric, lumps = True, True

    def losses(self, cut: float) -> tuple[float, float]:
        return -self.loss, self.loss

    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        lie = 1 / (1 + math.exp(self.loss)) if self.loss < 700 else 0.0
        shares = [np.where(losses < -self.loss, 0.0, np.where(losses < self.loss, low, 1.0)) for low in (lie, 1 - lie)]
        here, there = (np.diff(np.concatenate([[0.0], each, [1.0]])) for each in shares)
        return here, there


@dataclasses.dataclass(frozen=True)
class Reverse(Release):
    """A release in the other direction: without against with the contribution."""

    kind: Release

    @property
    def lumps(self) -> bool:  # type: ignore[override]
        return self.kind.lumps

    def losses(self, cut: float) -> tuple[float, float]:
        low, high = self.kind.losses(cut)
        return -high, -low

    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        here, there = self.kind.below(-losses[::-1])
        return there[::-1], here[::-1]


@functools.lru_cache(maxsize=256)
def _outline(kind: Release, cut: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses of one release and their probabilities with the contribution, about."""
    low, high = kind.losses(cut)
    # Wide losses are rare ones: the points lie closer the smaller they are.
    steps = np.sinh(np.linspace(-20.0, 20.0, 4001)) / math.sinh(20.0)
    edges = np.unique(np.clip(steps * max(-low, high), low, high))
    mass, _ = kind.below(edges)
    return np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]]), mass


@functools.lru_cache(maxsize=4096)
def moments(kind: Release) -> tuple[float, float]:
    """Mean and variance of one release's loss, about."""
    at, mass = _outline(kind, _CUT)
    mean = float(mass @ at)
    return max(mean, 0.0), float(mass @ np.minimum(np.abs(at - mean), 1e150) ** 2)


@functools.lru_cache(maxsize=16384)
def _cumulant(kind: Release, tilt: float, cut: float) -> float:
    """log E[e^(tilt loss)] of one release, about."""
    at, mass = _outline(kind, cut)
    with np.errstate(divide="ignore"):
        exponents = tilt * at + np.log(mass)
    most = float(exponents.max())
    return most + math.log(float(np.exp(exponents - most).sum()))


# -- composition -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Losses:
    """A distribution of losses on a grid, tilted.

    The loss `(first + i) width` has probability `masses[i] exp(scale - tilt loss)`, an infinite one has `lost`.

    Attributes:
        masses: (n,), with sum one.
        doubt: the L2 norm of what rounding may have taken from them, at most.
    """

    width: float
    first: int
    masses: NDArray[np.float64]
    tilt: float
    scale: float
    lost: float
    doubt: float

    def having(
        self, masses: NDArray[np.float64], first: int, scale: float, lost: float, doubt: float, width: float = 0.0
    ) -> Losses:
        """One with the same tilt, of masses with any sum, each wrong by few units of rounding."""
        masses = np.maximum(masses, 0.0)  # which errors alone can be below
        total = float(masses.sum())
        scale += math.log(total)
        # Relative errors of all masses, and those of the scale, are rounded up.
        scale += _UNIT * (abs(scale) + 8)
        return Losses(width or self.width, first, masses / total, self.tilt, scale, lost * (1 + _UNIT), doubt / total)

    @property
    def losses(self) -> NDArray[np.float64]:
        """The points of the grid, (n,)."""
        return np.asarray((self.first + np.arange(len(self.masses))) * self.width, np.float64)

    def delta(self, epsilon: float, unit: float = 1.0) -> float:
        """An upper bound on delta over a unit, which keeps it within floating point."""
        losses = self.losses[max(0, math.floor(epsilon / self.width) + 1 - self.first) :]
        if not len(losses):
            return self.lost / unit
        exponents = self.scale - self.tilt * losses - math.log(unit)
        rounded = _UNIT * (abs(self.scale) + self.tilt * float(np.abs(losses).max()) + len(losses) + 1024)
        if exponents[0] > _OVERFLOW or rounded > _OVERFLOW:
            return math.inf
        weights = np.exp(exponents) * -np.expm1(epsilon - losses)
        found = float(weights @ self.masses[-len(losses) :]) + self.doubt * float(np.linalg.norm(weights))
        return found * math.exp(rounded) + self.lost / unit

    def epsilon(self, delta: float) -> float:
        """The least epsilon that surely holds at a delta; infinite where none does."""
        highest = max(0.0, float(self.losses[-1]))
        if self.delta(0.0, delta) <= 1:
            return 0.0
        if not self.delta(highest, delta) <= 1:
            return math.inf
        return first_that_holds(lambda epsilon: self.delta(epsilon, delta) <= 1, 0.0, highest)

    def compose(self, other: Losses) -> Losses:
        """The distribution of the sum of both losses, which have one grid and one tilt."""
        size = len(self.masses) + len(other.masses) - 1
        length = _length(size)
        masses = _inverse(_transform(self.masses, length) * _transform(other.masses, length), length)[:size]
        doubt = self.doubt + other.doubt + self.doubt * other.doubt * math.sqrt(size)
        doubt += 2 * _OF_FFT * math.log2(length) * (_norm(self.masses) + _norm(other.masses) + _norm(masses))
        return self.having(
            masses, self.first + other.first, self.scale + other.scale, self.lost + other.lost, doubt
        )

    def times(self, count: int) -> Losses:
        """The distribution of the sum of so many of these losses."""
        if count == 1:
            return self
        low, high = self._window(count)
        if high - low > _LARGEST:
            return dataclasses.replace(self, lost=math.inf)
        length = _length(max(high - low + 1, len(self.masses)))
        powers, origin, doubt = _powers(self.masses, count, length)
        # What lies outside the window is found within it, where it does no good; above it, it is lost besides.
        masses = np.roll(_inverse(powers, length), (count * origin - low) % length)[: high - low + 1]
        first, scale = self.first * count + low, self.scale * count
        above = min(0.0, scale - self.tilt * (self.first * count + high) * self.width)
        # The errors of `count` factors, and of products of these.
        doubt += count * self.doubt * _exp(count * self.doubt * math.sqrt(len(self.masses)))
        doubt += 2 * _OF_FFT * math.log2(length) * _norm(masses)
        return self.having(masses, first, scale, count * self.lost + _CUT * math.exp(above), doubt)

    def _window(self, count: int) -> tuple[int, int]:
        """Between which steps above the lowest one nearly all of the mass of so many lies; by Chernoff's bound."""
        steps = np.arange(len(self.masses), dtype=np.float64)
        mean = float(self.masses @ steps)
        variance = count * float(self.masses @ (steps - mean) ** 2)
        if variance == 0:
            return 0, (len(steps) - 1) * count

        def reach(order: float, sign: int) -> float:
            exponents = sign * order * (steps - mean)
            most = float(exponents.max())
            parts = np.exp(exponents - most)
            log = most + math.log(float(parts @ self.masses) + self.doubt * _norm(parts))
            return (count * log - math.log(_CUT)) / order

        guess = math.sqrt(-2 * math.log(_CUT) / variance)
        low, high = (1 + _least(functools.partial(reach, sign=sign), guess)[1] for sign in (-1, 1))
        most = (len(steps) - 1) * count
        return max(0, math.floor(count * mean - low)), min(most, math.ceil(count * mean + high))

    def coarser(self, width: float) -> Losses:
        """The same distribution on a wider grid, no cheaper at any epsilon.

        What lies between two points of the wider grid is put onto both so that the sums of p and of p e^-loss stay:
        delta is the expectation under p of max(0, 1 - e^(epsilon - loss)), which is convex in e^-loss and so can only
        grow.

        Args:
            width: a multiple of that of the grid.
        """
        factor = round(width / self.width)
        if factor == 1:
            return self
        below, above = np.divmod(np.arange(len(self.masses)) + self.first, factor)
        # Between a and a + 1 wide steps, at the part t of one: w e^0 + (1 - w) e^-h = e^-th.
        upper = np.minimum(np.expm1(-above * self.width) / math.expm1(-width) + _UNIT, 1.0)
        first = int(below[0])
        size = int(below[-1]) - first + 2
        down, up = np.exp(-self.tilt * above * self.width), np.exp(self.tilt * (factor - above) * self.width)
        lower = np.bincount(below - first, self.masses * (1 - upper) * down, size)
        masses = np.asarray(lower + np.bincount(below - first + 1, self.masses * upper * up, size), np.float64)
        doubt = self.doubt * math.sqrt(factor) * (1 + math.exp(self.tilt * width))
        return self.having(masses, first, self.scale, self.lost, doubt, width)


def grid(mean: float, variance: float, parts: float) -> float:
    """The width of a grid for this number of parts with this total mean and variance; a power of two.

    Epsilon then grows by about 0.01%, or by 0.05% if the parts hardly vary.
    """
    certain = min(math.sqrt(mean / parts) / _FINE, mean / math.sqrt(parts) / _FROM_MEAN)
    width = max(math.sqrt(variance / parts) / _FINE, certain)
    # Large losses that are rare make the variance large, and lie apart.
    return _power(max(min(width, max(_NARROW, mean / parts / _FROM_MEAN)), _LEAST))


def _smooth(kind: Release, count: int) -> float:
    """The variance of one loss; less if a few of many releases have lumps, which the grid must hit exactly."""
    variance = moments(kind)[1]
    return min(variance, (kind.losses(_CUT)[1] / _FINE) ** 2 * count) if kind.lumps else variance


def epsilon_of(releases: Sequence[tuple[Release, int]], delta: float) -> float:
    """Epsilon of all releases, each a kind with its number; one at least. Never too low, and at most 0.1% too high;
    infinite where floating point leaves no bound.
    """
    back = [(kind if kind.symmetric else Reverse(kind), count) for kind, count in releases]
    directions = (releases,) if all(kind.symmetric for kind, _ in releases) else (releases, back)
    with np.errstate(all="ignore"):  # what is no number is no bound
        return max(composed(each, delta).epsilon(delta) for each in directions)


def composed(releases: Sequence[tuple[Release, int]], delta: float) -> Losses:
    """The distribution of all releases in one direction, each a kind with its number; one at least. Tilted for a delta.

    All but the last kind are remembered: noise that changes with every round adds one kind a round.
    """
    known = tuple(releases)
    mean = math.fsum(count * moments(kind)[0] for kind, count in known)
    variance = math.fsum(count * _smooth(kind, 1) for kind, count in known)
    # Rare losses count as infinite, as far as delta hardly notices: a tilt would look at nothing else.
    cut = 2.0 ** (8 * math.floor(math.log2(_RARE * delta / sum(count for _, count in known)) / 8))
    width = max(grid(mean, variance, len(known)), *(_coarse(kind, cut) for kind, _ in known))
    tilt = _tilt(known, delta, width, cut)
    before, total = _BEFORE.pop((width, tilt, cut), ((), None))
    if known[: len(before)] != before or len(before) >= len(known):
        before, total = (), None
    for number in range(len(before), len(known)):
        if number == len(known) - 1:
            while len(_BEFORE) >= 8:
                del _BEFORE[next(iter(_BEFORE))]
            _BEFORE[width, tilt, cut] = known[:-1], total
        one = repeated(*known[number], width, tilt, cut)
        total = one if total is None else total.compose(one)
    if total is None:
        raise ValueError("there must be a release at least")
    return total


_BEFORE: dict[tuple[float, float, float], tuple[tuple[tuple[Release, int], ...], Losses | None]] = {}
"""By width of grid, tilt and cut, releases that were composed last, and their distribution; a few are kept."""


def _tilt(releases: Sequence[tuple[Release, int]], delta: float, width: float, cut: float) -> float:
    """About the tilt whose mean is epsilon: where the bound on epsilon by moments is least. A power of the root of two,
    so that it stays for many rounds, and no more than e between two points of the grid.
    """

    def bound(tilt: float) -> float:
        log = math.fsum(count * _cumulant(kind, tilt, cut) for kind, count in releases)
        # Less the largest e^(-tilt x) (1 - e^-x), since of a loss 1 - e^(epsilon - loss) counts (Balle et al. 2020).
        return (log - math.log(delta) - math.log1p(tilt) - tilt * math.log1p(1 / tilt)) / tilt

    spread = math.fsum(count * moments(kind)[1] for kind, count in releases)
    return _least(bound, math.sqrt(-2 * math.log(delta) / max(spread, width * width)), 1 / width)[0]


def _coarse(kind: Release, cut: float) -> float:
    """The narrowest grid for one release whose losses span very many points."""
    low, high = kind.losses(cut)
    return _power(max((high - low) / _MOST_POINTS, _LEAST))


@functools.lru_cache(maxsize=64)
def repeated(kind: Release, count: int, width: float, tilt: float, cut: float) -> Losses:
    """The distribution of `count` equal releases on a grid of that width."""
    own = max(min(width, grid(moments(kind)[0], _smooth(kind, count), 1)), _coarse(kind, cut))
    blocks, rest = divmod(count, _BLOCK)
    if not blocks:
        return _few(kind, rest, own, tilt, cut).coarser(width)
    wide = max(own, min(width, own * 2.0 ** (math.log2(_BLOCK) // 2)))
    total = _blocks(kind, blocks, own, wide, tilt, cut)
    if rest:
        total = total.compose(_few(kind, rest, own, tilt, cut).coarser(wide))
    return total.coarser(width)


@functools.lru_cache(maxsize=16)
def _blocks(kind: Release, count: int, own: float, wide: float, tilt: float, cut: float) -> Losses:
    """Whole blocks, which stay for many rounds while the rest grows."""
    return _few(kind, _BLOCK, own, tilt, cut).coarser(wide).times(count)


@functools.lru_cache(maxsize=16)
def _few(kind: Release, count: int, width: float, tilt: float, cut: float) -> Losses:
    return _one(kind, width, tilt, cut).times(count)


@functools.lru_cache(maxsize=64)
def _one(kind: Release, width: float, tilt: float, cut: float) -> Losses:
    """The distribution of one release.

    Probabilities below, between and above neighbouring points are put onto the points so that both sums stay.
    """
    low, high = kind.losses(cut)
    numbers = np.arange(math.floor(low / width), max(math.ceil(high / width), math.floor(low / width) + 1) + 1)
    here, there = kind.below(numbers.astype(np.float64) * width)
    inside, without = here[1:-1], there[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(inside) - np.log(without)  # between the two points, as far as it can be told
        left = np.clip(numbers[1:] * width - loss, 0.0, width)
    # w e^h + (1 - w) = e^left, without what could overflow.
    lower = np.expm1(-left) / math.expm1(-width) * np.exp(left - width)
    lower = np.where(np.isfinite(lower), lower, 0.0) * inside
    found = np.zeros(len(numbers) + 1)
    found[:-2] += lower
    found[1:-1] += inside - lower
    found[0] += here[0]  # no cheaper than it is
    # A curve of delta that is off by a part of both of its terms is made up for by a part of the one and more loss.
    further = -2 * _CURVE / math.expm1(-width) * found
    found -= further
    found[1:] += further[:-1]
    losses = np.arange(numbers[0], numbers[-1] + 2) * width
    with np.errstate(divide="ignore"):
        exponents = tilt * losses + np.log(found)
    most = float(exponents.max())
    masses = np.exp(exponents - most)
    largest = float(np.abs(tilt * losses[masses > 0]).max()) + 2 * _OVERFLOW
    empty = Losses(width, 0, masses, tilt, 0.0, 0.0, 0.0)
    return empty.having(
        masses, int(numbers[0]), most + _CURVE + _UNIT * largest, float(here[-1]) * (1 + _CURVE), sys.float_info.min
    )


# -- numbers -----------------------------------------------------------------------------------------------------------


def _length(size: int) -> int:
    """Of a Fourier transform that is fast."""
    from scipy.fft import next_fast_len

    return int(next_fast_len(size, real=True))


def _transform(masses: NDArray[np.float64], length: int) -> NDArray[np.complex128]:
    from scipy.fft import rfft

    return np.asarray(rfft(masses, length), np.complex128)


def _inverse(transformed: NDArray[np.complex128], length: int) -> NDArray[np.float64]:
    from scipy.fft import irfft

    return np.asarray(irfft(transformed, length), np.float64)


def _powers(
    masses: NDArray[np.float64], count: int, length: int
) -> tuple[NDArray[np.complex128], int, float]:
    """The transform F of masses to the power of `count`, which place counts as zero, and the L2 norm of the errors.

    An error in F is multiplied by `count`. Where F is close to one it need not be as large as of a transform: with z
    the step of a frequency, F = 1 + (z - 1) mean + (z - 1)^2 T, where T is the transform of the sums of tails of tails.
    """
    origin = round(float(masses @ np.arange(len(masses))))
    below, above = _sums(masses[:origin]), _tails(masses[origin:])
    twice = np.zeros(length)
    twice[: len(above)] = _tails(above)
    twice[length - origin :] = _sums(below)
    up, down = float(above.sum()), float(below.sum())
    mean = up - down + 8 * _UNIT * (up + down)  # rounded up: what is moved is no cheaper
    turns = np.arange(length // 2 + 1) * (2 * math.pi / length)
    step = -2 * np.sin(turns / 2) ** 2 - 1j * np.sin(turns)
    square = np.abs(step) ** 2
    # Of both, the one of which a transform's error is smaller.
    error = _OF_FFT * math.log2(length)
    errors = np.minimum(square * _norm(twice), _norm(masses)) * error
    close = errors < _norm(masses) * error
    less = np.where(close, step * mean + step**2 * _transform(twice, length), 0.0)
    whole = np.where(close, 1 + less, _transform(np.roll(np.pad(masses, (0, length - len(masses))), -origin), length))
    size = np.abs(whole)
    with np.errstate(divide="ignore"):
        log = np.where(close, np.log1p(2 * less.real + np.abs(less) ** 2) / 2, np.log(size))
    log = log + 1j * np.angle(whole)
    with np.errstate(over="ignore", invalid="ignore"):  # no number means that nothing is claimed
        powers = np.where(size > 0, np.exp(count * log), 0.0)
        relative = np.expm1(count * _UNIT * np.where(size > 0, np.abs(log) + ~close, 0.0))
        rounded = np.where(close, _UNIT * (np.abs(step) * abs(mean) + 16 * square * float(twice.sum())), 0.0)
        slope = count * (size + rounded + errors * math.sqrt(length)) ** (count - 1)
        by_rounding = math.sqrt(2 / length) * _norm(relative * np.abs(powers) + slope * rounded)
        by_transform = float((slope * errors).max())
    return powers, origin, by_rounding + by_transform


def _sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of the first values up to each, by doubling, so that rounding grows with their number's logarithm alone."""
    shift = 1
    while shift < len(values):
        values = np.concatenate([values[:shift], values[shift:] + values[:-shift]])
        shift *= 2
    return values


def _tails(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of what comes after each value."""
    return np.append(_sums(values[:0:-1])[::-1], 0.0)


def _norm(values: NDArray[np.float64]) -> float:
    """The L2 norm, with room for its rounding."""
    return float(np.sqrt(np.square(values).sum())) * (1 + 1e-9)


def _exp(value: float) -> float:
    return math.exp(value) if value < _OVERFLOW else math.inf


def _least(bound: Callable[[float], float], guess: float, most: float = math.inf) -> tuple[float, float]:
    """Where a bound that falls and then grows is least, and what it is; at a power of the root of two, up to `most`."""
    last = math.floor(2 * math.log2(most)) if most < math.inf else 2000
    found: dict[int, float] = {}

    def at(power: int) -> float:
        if power not in found:
            found[power] = bound(2.0 ** (power / 2)) if abs(power) <= 2000 and power <= last else math.inf
        return found[power]

    power = max(-2000, min(last, round(2 * math.log2(max(guess, sys.float_info.min)))))
    for stride in (64, 8, 1):
        step = stride if at(power + stride) < at(power) else -stride
        while at(power + step) < at(power):
            power += step
    return 2.0 ** (power / 2), at(power)


def _power(width: float) -> float:
    """The largest power of two up to a number > 0."""
    return 2.0 ** math.floor(math.log2(width))


def _log_mixture(rate: float, loss: float) -> float:
    """log(1 - q + q e^loss)."""
    if loss > 30:
        return loss + math.log(rate) + math.log1p((1 - rate) / rate * math.exp(-loss))
    return math.log1p(rate * math.expm1(loss)) if rate < 1 else loss


def _log_part(losses: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Inverse of `_log_mixture`; -infinity for what no loss gives."""
    if rate == 1:
        return losses
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        near = np.log1p(np.maximum(np.expm1(losses) / rate, -1.0))
        far = losses + np.log1p(-(1 - rate) * np.exp(-losses)) - math.log(rate)
    return np.where(losses > 30, far, near)


def _log_sinh(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(sinh(x)) for x >= 0."""
    with np.errstate(divide="ignore"):
        return values + np.log(-np.expm1(-2 * values)) - math.log(2)


def _asinh_of_exp(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """asinh(e^x)."""
    small = np.arcsinh(np.exp(np.minimum(values, 20.0)))
    return np.where(values > 20, values + math.log(2), small)


def _normal_between(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard normal probabilities below the first of ascending points, between neighbours, and above the last."""
    from scipy.special import ndtr

    points = np.concatenate([[-np.inf], points, [np.inf]])
    # In the upper half from above, where nothing cancels.
    lower, upper = np.asarray(ndtr(points), np.float64), np.asarray(ndtr(-points), np.float64)
    return np.where(points[:-1] > 0, upper[:-1] - upper[1:], lower[1:] - lower[:-1])


def _laplace_between(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same of a Laplace distribution of scale 1."""
    points = np.concatenate([[-np.inf], points, [np.inf]])
    low, high = np.exp(np.minimum(points, 0.0)) / 2, np.exp(-np.maximum(points, 0.0)) / 2
    lower, upper = np.where(points <= 0, low, 1 - high), np.where(points > 0, high, 1 - low)
    return np.where(points[:-1] > 0, upper[:-1] - upper[1:], lower[1:] - lower[:-1])
