"""A Gaussian prior of private examples from public ones, and the most probable candidates given it.

If noise covers a gradient, the candidates that match it best match the noise. The most probable candidates given the
observation (MAP) minimise half the squared differences, each over the variance of its noise, plus the negative log
density of the candidates. Without any information the result is the mean image.

The prior is x ~ N(mu, Sigma) with the mean mu of the public examples. Few examples make a poor covariance, so theirs is
mixed with a plain one that the cosine transform makes diagonal (Sigma is then proper with any number of examples);
the share that explains held-out examples best is taken. Candidates are searched for as x = mu + L u with L L' = Sigma:
the prior of u is N(0, 1), so that all its directions are alike, and u = 0, the mean image, is where a search starts.
Imports torch: attack modules import it inside their methods.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from fedplug_std.torch_model import to_tensor

if TYPE_CHECKING:
    from fedplug import PublicData

    from fedplug_attacks import View
    from fedplug_attacks._matching import Matcher

Prior = Literal["auto", "gaussian", "none"]
# Further log density of candidates, in nats, from their distances to batch-norm statistics, (T,) to (T,).
Penalty = Callable[[torch.Tensor], torch.Tensor]

# Public values that a covariance is made from, at most: 256 MiB in float64.
_VALUES = 1 << 25
# Shares of the plain covariance that are tried, and the groups of held-out examples.
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
_FOLDS = 5
# How many examples the fall of the spectrum with frequency counts for, in addition to those of a coefficient itself.
_SMOOTHED = 10
# Standard deviation of rounding to 8 bits: no pixel is known better.
_ROUNDING = 1 / 255 / math.sqrt(12)
# Spectra of photographs fall like 1 / f^2 (Field 1987); the first frequency of an image is one half.
_FALL = 2.0
NOISY = 0.1
"""The share of noise in the observation from which on any prior is better than none."""
# Draws of a posterior, the relative error of its mean, and the steps that it may take.
_DRAWS, _SOLVED, _SOLVING = 8, 1e-5, 200


@dataclasses.dataclass(frozen=True, eq=False)
class GaussianPrior:
    """x ~ N(mean, L L'): standardised inputs as an affine map of standard normal ones.

    L = W^-1 (a I + V diag(s) V')^(1/2), where W is a rotation of the channels, a cosine transform (Ahmed et al. 1974)
    and a division by the standard deviation of each coefficient; V has orthonormal columns. Rows of a table are only
    divided by the standard deviations of their columns.

    Attributes:
        mean: (C, H, W) or (d,), of one example.
        bases: an orthonormal matrix for each axis.
        spreads: standard deviation of each coefficient.
        share: a, 0 < a <= 1.
        vectors: (d, k), V.
        variances: (k,), s.
    """

    mean: torch.Tensor
    bases: Sequence[torch.Tensor]
    spreads: torch.Tensor
    share: float
    vectors: torch.Tensor
    variances: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example."""
        return tuple(self.mean.shape)

    def to(self, device: torch.device, dtype: torch.dtype) -> GaussianPrior:
        """The same on another device and in another precision."""
        mean, spreads, vectors, variances, *bases = (
            part.to(device, dtype) for part in (self.mean, self.spreads, self.vectors, self.variances, *self.bases)
        )
        return GaussianPrior(mean, bases, spreads, self.share, vectors, variances)

    def inputs(self, latents: torch.Tensor) -> torch.Tensor:
        """mean + L u; (..., *shape) to the same."""
        return self.mean + self.spread(latents)

    def spread(self, latents: torch.Tensor) -> torch.Tensor:
        """L u; (..., *shape) to the same."""
        return _turned(self._root(latents) * self.spreads, [basis.T for basis in self.bases])

    def pulled(self, forces: torch.Tensor) -> torch.Tensor:
        """L' f; (..., *shape) to the same."""
        return self._root(_turned(forces, self.bases) * self.spreads)

    def posterior(
        self, precision: torch.Tensor, force: torch.Tensor, rng: torch.Generator | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean of x given observations with likelihood exp(-x' diag(p) x / 2 + f' x); by conjugate gradients.

        Args:
            precision: p, of an example's shape, not negative.
            force: f, likewise.
            rng: of draws, whose variance is an estimate of that of x; None: zeros instead.

        Returns:
            Mean and variance of x, of an example's shape.
        """
        right = self.pulled(force - precision * self.mean)[None]
        if rng is not None:
            # Fresh draws of observations and latents, solved like the real ones (Papandreou & Yuille 2010).
            drawn = torch.randn((2, _DRAWS, *self.shape), generator=rng, dtype=torch.float64).to(right)
            right = torch.cat([right, self.pulled(precision.sqrt() * drawn[0]) + drawn[1]])
        found = torch.zeros_like(right)
        residual, direction = right.clone(), right.clone()
        axes, tiny = tuple(range(1, right.ndim)), torch.finfo(right.dtype).tiny
        energy = residual.square().sum(axes, keepdim=True)
        goal = _SOLVED**2 * energy
        for _ in range(_SOLVING):
            if bool((energy <= goal).all()):
                break
            moved = direction + self.pulled(precision * self.spread(direction))
            size = energy / (direction * moved).sum(axes, keepdim=True).clamp_min(tiny)
            found, residual = found + size * direction, residual - size * moved
            before, energy = energy, residual.square().sum(axes, keepdim=True)
            direction = residual + energy / before.clamp_min(tiny) * direction
        spread = self.spread(found[1:]).square().sum(0) / max(1, len(found) - 1)
        return self.inputs(found[0]), spread

    def _root(self, values: torch.Tensor) -> torch.Tensor:
        """(a I + V diag(s) V')^(1/2) times the values."""
        flat = values.flatten(-len(self.shape))
        more = (self.share + self.variances) ** 0.5 - self.share**0.5
        turned: torch.Tensor = self.share**0.5 * flat + (flat @ self.vectors * more) @ self.vectors.T
        return turned.reshape(values.shape)


def gaussian(view: View, public: PublicData | None) -> GaussianPrior:
    """The prior from public examples, float64; without any, from the mean pixel and a spectrum of photographs.

    Args:
        view: with shape, mean and std of the inputs.
        public: the public facts.
    """
    shape = tuple(view.shape)
    bases = [_cosines(size) if axis else torch.eye(size, dtype=torch.float64) for axis, size in enumerate(shape)]
    least, size, count = _least(view), math.prod(shape), 0 if public is None else len(public.examples.inputs)
    mean = torch.zeros(shape, dtype=torch.float64)
    if public is not None and count:
        inputs = to_tensor(public.examples.inputs[: max(2, _VALUES // size)], view.mean, view.std).double()
        mean = inputs.mean(0)
    if count < 2:
        plain = _plain(shape).clamp_min(least).sqrt()
        return GaussianPrior(mean, bases, plain, 1.0, mean.new_zeros(size, 0), mean.new_zeros(0))
    if len(shape) > 1 and shape[0] > 1:
        channels = (inputs - mean).transpose(0, 1).flatten(1)
        bases[0] = torch.linalg.eigh(channels @ channels.T)[1].T.contiguous()
    turned = _turned(inputs - mean, bases)
    spreads = _spectrum(turned).clamp_min(least).sqrt()
    white = (turned / spreads).flatten(1) / math.sqrt(1 - 1 / len(inputs))
    share = _best_share(white)
    values, vectors = _directions(white)
    return GaussianPrior(mean, bases, spreads, share, vectors, (1 - share) * values)


def _least(view: View) -> float:
    """Variance of rounding to 8 bits, in standardised units; negligible for rows of a table."""
    return (_ROUNDING / max(view.std, default=1.0)) ** 2 if len(view.shape) > 1 else 1e-6


def _cosines(size: int) -> torch.Tensor:
    """The orthonormal cosine transform of type II, (size, size), with its waves as rows."""
    places = torch.arange(size, dtype=torch.float64)
    waves = torch.cos(math.pi / size * (places + 0.5) * places[:, None])
    waves[0] *= math.sqrt(0.5)
    return waves * math.sqrt(2 / size)


def _turned(values: torch.Tensor, bases: Sequence[torch.Tensor]) -> torch.Tensor:
    """Each of the last axes through its matrix."""
    for axis, basis in enumerate(bases, start=-len(bases)):
        values = (values.movedim(axis, -1) @ basis.T).movedim(-1, axis)
    return values


def _frequencies(shape: Sequence[int]) -> torch.Tensor:
    """Spatial frequency of each coefficient, in half waves, (*shape)."""
    squares = torch.zeros(tuple(shape), dtype=torch.float64)
    for axis, size in enumerate(shape):
        if axis:
            waves = torch.arange(size, dtype=torch.float64)
            squares = squares + waves.square().reshape(-1, *[1] * (len(shape) - axis - 1))
    return squares.sqrt()


def _plain(shape: Sequence[int]) -> torch.Tensor:
    """Variance of each coefficient of an image whose spectrum falls like that of photographs, each pixel's being 1."""
    if len(shape) == 1:
        return torch.ones(tuple(shape), dtype=torch.float64)
    fall = 1 / (1 + _frequencies(shape)) ** _FALL
    return fall / fall.mean()


def _spectrum(turned: torch.Tensor) -> torch.Tensor:
    """Variance of each coefficient of examples (n, *shape): its own, drawn to that of its channel and frequency."""
    own = turned.square().mean(0) * len(turned) / (len(turned) - 1)
    if own.ndim == 1:
        smooth = own.mean().expand_as(own)
    else:
        rings = _frequencies(own.shape).round().long()
        smooth = torch.stack([_ring_means(channel, ring) for channel, ring in zip(own, rings, strict=True)])
    return (len(turned) * own + _SMOOTHED * smooth) / (len(turned) + _SMOOTHED)


def _ring_means(values: torch.Tensor, rings: torch.Tensor) -> torch.Tensor:
    """For each value the mean of those in its ring."""
    flat = rings.flatten()
    sums = torch.bincount(flat, values.flatten()) / torch.bincount(flat).clamp_min(1)
    return sums[flat].reshape(values.shape)


def _directions(white: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvalues (k,) of the examples' covariance that are not 0, and its eigenvectors (d, k)."""
    if len(white) <= white.shape[1]:
        values, inner = torch.linalg.eigh(white @ white.T / len(white))
        kept = values > 1e-9 * values[-1].clamp_min(1e-30)
        return values[kept], white.T @ inner[:, kept] / (values[kept] * len(white)).sqrt()
    values, vectors = torch.linalg.eigh(white.T @ white / len(white))
    kept = values > 1e-9 * values[-1].clamp_min(1e-30)
    return values[kept], vectors[:, kept]


def _best_share(white: torch.Tensor) -> float:
    """The share of the plain covariance under which held-out examples are most probable; white: (n, d)."""
    count, size = white.shape
    if count < 2 * _FOLDS:
        return 0.5
    totals = np.zeros(len(_SHARES))
    shares = torch.tensor(_SHARES, dtype=white.dtype)[:, None]
    for fold in range(_FOLDS):
        held = torch.zeros(count, dtype=torch.bool)
        held[fold::_FOLDS] = True
        values, vectors = _directions(white[~held])
        along = (white[held] @ vectors).square().mean(0)
        rest = white[held].square().sum(1).mean() - along.sum()
        mixed = shares + (1 - shares) * values
        energy = (mixed.log() + along / mixed).sum(1) + (size - len(values)) * shares[:, 0].log() + rest / shares[:, 0]
        totals += energy.numpy()
    return _SHARES[int(totals.argmin())]


def chosen(option: Prior, matcher: Matcher, public: PublicData | None, auto: Sequence[str]) -> GaussianPrior | None:
    """The prior that an option asks for, on the matcher's device; None for a search without one.

    Without public examples it is a plain one (see `gaussian`).

    Args:
        option: of the attack.
        matcher: of the observed gradient.
        public: the public facts.
        auto: what makes `auto` take a prior: `noise` of more than a tenth of the observation, `public` examples.
    """
    if option == "auto":
        noisy, local = matcher.noise > NOISY, matcher.local
        # The order of the batches is searched for without a prior.
        ordered = noisy or local is None or not local.schedule.shuffled
        if not (("noise" in auto and noisy) or ("public" in auto and public is not None and ordered)):
            return None
    if option == "none":
        return None
    return gaussian(matcher.view, public).to(matcher.device, matcher.dtype)
