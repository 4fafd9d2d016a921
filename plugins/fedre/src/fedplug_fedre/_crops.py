"""Square crops of documents with some of their text in view, for the segmentation task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug_fedre.tampering import TextBox

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A cut line of text stays in the list if at least this much of it is in view, in pixels.
_IN_VIEW = 4


def corner(wanted: tuple[float, float], shape: Sequence[int], size: int) -> tuple[int, int]:
    """Top left corner (y, x) of a crop whose middle is as near to `wanted` (y, x) as the image allows."""
    y, x = (int(np.clip(round(w - size / 2), 0, max(0, n - size))) for w, n in zip(wanted, shape, strict=False))
    return y, x


def around(boxes: Sequence[TextBox], shape: Sequence[int], size: int, rng: np.random.Generator) -> tuple[int, int]:
    """Top left corner of a random crop that shows the middle of a line of text drawn from `boxes`."""
    box = boxes[int(rng.integers(len(boxes)))]
    middle = ((box.y0 + box.y1) / 2, (box.x0 + box.x1) / 2)
    return corner((middle[0] + rng.uniform(-0.4, 0.4) * size, middle[1] + rng.uniform(-0.4, 0.4) * size), shape, size)


def cut(array: NDArray[Any], place: tuple[int, int], size: int, fill: int) -> NDArray[Any]:
    """The crop (..., size, size) at a corner. Where it reaches over a smaller image, it is filled."""
    y, x = place
    part = array[..., y : y + size, x : x + size]
    missing = [(0, 0)] * (part.ndim - 2) + [(0, size - part.shape[-2]), (0, size - part.shape[-1])]
    return np.pad(part, missing, constant_values=fill) if any(after for _, after in missing) else part


def boxes_in_view(boxes: Sequence[TextBox], place: tuple[int, int], size: int) -> list[TextBox]:
    """The lines of text that a crop shows, or the parts of them, in the crop's coordinates."""
    y, x = place
    seen = []
    for box in boxes:
        x0, y0 = max(box.x0 - x, 0), max(box.y0 - y, 0)
        x1, y1 = min(box.x1 - x, size), min(box.y1 - y, size)
        if x1 - x0 >= _IN_VIEW and y1 - y0 >= _IN_VIEW:
            # Characters are about equally wide, so the part in view shows that part of them.
            first, last = (round(len(box.text) * (edge + x - box.x0) / box.width) for edge in (x0, x1))
            seen.append(TextBox(x0, y0, x1, y1, box.field, box.text[first:last]))
    return seen
