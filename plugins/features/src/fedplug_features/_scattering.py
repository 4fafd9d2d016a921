"""The scattering transform of images (Bruna & Mallat, IEEE PAMI 2013), of first and second order, with Morlet wavelets.

U1 = |x * psi_1|, U2 = |U1 * psi_2|, and the features are x, U1 and U2 after the low pass phi, at every 2^J-th pixel.
Filters, borders and the order of the channels are those of `kymatio` 0.3 (Andreux et al., JMLR 2020).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REPEATS = range(-2, 3)
"""A filter is the sum of its copies in so many neighbouring periods."""


def channels(scales: int, angles: int) -> int:
    """How many maps one channel of an image has: 1 + J L + J (J - 1) / 2 L^2."""
    pairs = scales * (scales - 1) // 2
    return 1 + scales * angles + pairs * angles * angles


def padded(side: int, scales: int) -> int:
    """A side with its border: the next multiple of 2^J, and 2^J more."""
    step: int = 2**scales
    return ((side + step) // step + 1) * step


class Scattering:
    """The transform of images of one size.

    Args:
        height, width: of the images, at least 2^J.
        scales: J.
        angles: L.
    """

    def __init__(self, height: int, width: int, scales: int, angles: int) -> None:
        self._scales = scales
        self._sides = height, width
        high, wide = padded(height, scales), padded(width, scales)
        self._border = (high - height) // 2, (wide - width) // 2
        wavelets = [
            np.stack([
                np.fft.fft2(_morlet(high, wide, 0.8 * 2**j, (angles // 2 - 1 - k) * np.pi / angles, 0.75 * np.pi / 2**j,
                                    4 / angles)).real
                for k in range(angles)
            ])
            for j in range(scales)
        ]  # fmt: skip
        # By scale and resolution, the spectra of the wavelets, (L, H, W).
        self._wavelets = [[_spectrum(each, r) for r in range(j + 1)] for j, each in enumerate(wavelets)]
        # The low pass is a product of one along each side; by resolution, and of all pixels those that are kept.
        self._low = [[_low_pass(side, scales, r) for side in (high, wide)] for r in range(scales)]

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """The features of images (n, C, H, W): (n, C * channels, H / 2^J, W / 2^J)."""
        many, colours = images.shape[:2]
        down, across = self._border
        x = torch.from_numpy(np.ascontiguousarray(images)).reshape(many * colours, 1, *self._sides)
        x = torch.nn.functional.pad(x, (across, across, down, down), mode="reflect")
        spectrum = torch.fft.fft2(x)
        found, second = [self._smooth(x, 0)], []
        for j in range(self._scales):
            first = _moduli(spectrum, self._wavelets[j][0], j)
            found.append(self._smooth(first, j))
            if j + 1 < self._scales:
                again = torch.fft.fft2(first)[:, :, None]
                # (n, L, 1, h, w) by (L, h, w): each map of the first order with each wavelet of a larger scale. As
                # kymatio has them: by angle of the first, then by scale and angle of the second.
                both = [
                    self._smooth(_moduli(again, self._wavelets[k][j], k - j), k) for k in range(j + 1, self._scales)
                ]
                second.append(torch.stack(both, 2).flatten(1, 3))
        features = torch.cat([*found, *second], 1)
        return features.reshape(many, -1, *features.shape[2:]).numpy()

    def _smooth(self, maps: torch.Tensor, resolution: int) -> torch.Tensor:
        """Maps after the low pass, at every 2^J-th pixel, without the border."""
        down, across = self._low[resolution]
        smooth: torch.Tensor = down @ (maps @ across.T)
        return smooth


def _moduli(spectrum: torch.Tensor, wavelets: torch.Tensor, halvings: int) -> torch.Tensor:
    """|U * psi| at a resolution that is halved so often: at every 2^halvings-th pixel."""
    parts = 2**halvings
    high, wide = (side // parts for side in spectrum.shape[-2:])
    # What stays of a product after halving is the mean of its parts; part by part, no large product is written.
    folded = torch.zeros(())
    for top, left in itertools.product(range(0, parts * high, high), range(0, parts * wide, wide)):
        part = ..., slice(top, top + high), slice(left, left + wide)
        folded = folded + spectrum[part] * wavelets[part]
    moduli: torch.Tensor = torch.fft.ifft2(folded).abs() / parts**2
    return moduli


def _spectrum(filters: NDArray[np.float64], resolution: int) -> torch.Tensor:
    """A filter's spectrum at a resolution that is halved so often: without the frequencies that it does not hold."""
    *_, high, wide = filters.shape
    parts = 2**resolution
    kept = _held(high, parts)[:, None] & _held(wide, parts)
    shape = (*filters.shape[:-2], parts, high // parts, parts, wide // parts)
    return torch.from_numpy((filters * kept).reshape(shape).sum((-4, -2)).astype(np.float32))


def _low_pass(side: int, scales: int, resolution: int) -> torch.Tensor:
    """What a Gaussian filter along a side gives at every 2^J-th pixel but the border's, (kept, pixels)."""
    sigma, parts = 0.8 * 2 ** (scales - 1), 2**resolution
    away = np.add.outer(np.array(_REPEATS) * side, np.arange(side))
    wave = np.exp(-(away**2) / (2 * sigma**2)).sum(0) / math.sqrt(2 * math.pi * sigma**2)
    spectrum = (np.fft.fft(wave).real * _held(side, parts)).reshape(parts, -1).sum(0)
    every = np.fft.ifft(np.fft.fft(np.eye(side // parts), axis=0) * spectrum[:, None], axis=0).real
    return torch.from_numpy(every[:: 2 ** (scales - resolution)][1:-1].astype(np.float32))


def _held(side: int, parts: int) -> NDArray[np.bool_]:
    start, count = side // (2 * parts), int(side * (1 - 1 / parts))
    held = np.ones(side, bool)
    held[start : start + count] = False
    return held


def _morlet(high: int, wide: int, sigma: float, angle: float, frequency: float, slant: float) -> NDArray[np.complex128]:
    """A Gabor filter less so much of its envelope that its mean is zero, (high, wide)."""
    wave = _gabor(high, wide, sigma, angle, frequency, slant)
    envelope = _gabor(high, wide, sigma, angle, 0.0, slant)
    morlet: NDArray[np.complex128] = wave - wave.sum() / envelope.sum() * envelope
    return morlet


def _gabor(high: int, wide: int, sigma: float, angle: float, frequency: float, slant: float) -> NDArray[np.complex128]:
    """A wave under a Gaussian of this deviation along it, and `sigma` / `slant` across, around (0, 0); periodic."""
    down, across = (np.add.outer(np.array(_REPEATS) * side, np.arange(side)) for side in (high, wide))
    x, y = down[:, None, :, None], across[None, :, None, :]
    along, beyond = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    envelope = np.exp(-(along**2 + (slant * beyond) ** 2) / (2 * sigma**2))
    wave: NDArray[np.complex128] = (envelope * np.exp(1j * frequency * along)).sum((0, 1))
    wave /= 2 * math.pi * sigma**2 / slant
    return wave
