"""Histograms of oriented gradients (Dalal & Triggs, CVPR 2005, Sec. 6), of images of any size and number of channels.

They are fixed and not learned, so they are a public function of an image. A linear model on them has few weights to
noise and starts with strokes and edges. Under differential privacy that is better than networks that must learn them
(Tramer & Boneh, ICLR 2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS = 7
"""Along each side of an image."""
ORIENTATIONS = 8
"""Around the full circle: a stroke's two edges count apart."""
SIZE = ORIENTATIONS * CELLS * CELLS
_LEAST = 0.02
"""Added to the contrast that a cell is divided by, for cells without edges; of pixels in [0, 1]."""
_SCALE = 2.0
"""Brings the root mean square of the features of handwritten digits to one half."""
_CHUNK = 500
"""Images worked on at once: some megabytes, which stay in the cache."""


def of_pixels(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """The same of pixels as bytes, or of floats from 0 to 1, (n, C, H, W)."""
    bytes_ = pixels if pixels.dtype == np.uint8 else np.rint(pixels * 255).astype(np.uint8)
    return oriented_gradients(bytes_)


def oriented_gradients(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The contrast of each image by direction and cell.

    Gradients are differences of the pixels on both sides (the kernel -1, 0, 1); of several channels the one with the
    longest gradient counts, and of equally long ones the first. A pixel's gradient counts for the two nearest
    orientations and the four nearest cells, by distance. Each cell is divided by the contrast of the three by three
    cells around it.

    Args:
        images: (n, C, H, W).

    Returns:
        (n, SIZE): orientations, each with its cells in rows.
    """
    found = np.empty((len(images), SIZE), np.float32)
    down, across = (_cells(side) for side in images.shape[2:])
    for start in range(0, len(images), _CHUNK):
        some = images[start : start + _CHUNK]
        length, turn = _gradients(some)
        lower = np.floor(turn)
        above = length * (turn - lower)
        below, lower = length - above, lower % ORIENTATIONS
        cells = np.empty((len(some), ORIENTATIONS, CELLS, CELLS), np.float32)
        for orientation in range(ORIENTATIONS):
            counts = np.where(lower == orientation, below, 0)
            counts += np.where(lower == (orientation - 1) % ORIENTATIONS, above, 0)
            # The rows of all images in one product take less time than in as many small ones.
            by_row = counts.reshape(-1, images.shape[3]) @ across.T
            cells[:, orientation] = down @ by_row.reshape(len(some), -1, CELLS)
        found[start : start + len(some)] = (_SCALE * cells / _contrast(cells)).reshape(len(some), SIZE)
    return found


def _gradients(images: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Length of each pixel's gradient, and its direction in units of an orientation, both (n, H, W)."""
    x, y = _steps(images.astype(np.float32) / np.float32(255))
    length = np.hypot(x, y)
    if images.shape[1] > 1:
        # By whole numbers: of equally long gradients such as (3, 4) and (4, 3), rounding would choose one.
        right, down = _steps(images.astype(np.int32))
        longest = (right**2 + down**2).argmax(1)[:, None]
        x, y, length = (np.take_along_axis(each, longest, 1) for each in (x, y, length))
    turn = np.arctan2(y[:, 0], x[:, 0]) * np.float32(ORIENTATIONS / (2 * np.pi))
    return length[:, 0], turn


def _steps(pixels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Differences of the pixels on both sides, across and down, each (n, C, H, W)."""
    padded = np.pad(pixels, ((0, 0), (0, 0), (1, 1), (1, 1)))
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    return across, padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]


def _cells(side: int) -> NDArray[np.float32]:
    """How much each pixel of a side counts for each cell, (CELLS, side): by distance; a cell's weights add up to 1."""
    middles = (np.arange(CELLS) + 0.5) * side / CELLS
    away = np.abs(np.arange(side) + 0.5 - middles[:, None]) * CELLS / side
    weights = np.maximum(np.float64(1e-9), 1 - away)  # a side of fewer pixels than cells has cells without a pixel
    shares: NDArray[np.float64] = weights / weights.sum(1, keepdims=True)
    return shares.astype(np.float32)


def _contrast(cells: NDArray[np.float32]) -> NDArray[np.float32]:
    """Root of the mean square of the three by three cells around each, (n, 1, CELLS, CELLS)."""
    squares = np.pad(np.square(cells).sum(1), ((0, 0), (1, 1), (1, 1)))
    rows = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    around = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]
    contrast: NDArray[np.float32] = np.sqrt(around / 9)[:, None] + np.float32(_LEAST)
    return contrast
