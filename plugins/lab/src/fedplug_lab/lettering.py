"""Letters of a figure: how large they are, how wide a text is about, and the labels of a panel's axes."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from fedplug_lab.axis import Axis, Tick

FONT = 9.0
"""Size of the letters of a broad picture, in points like everything here."""


class Lettering(NamedTuple):
    """The labels of a panel's axes.

    Attributes:
        across, upward: places on the axes and their labels.
        turned: the labels below are slanted, to have room.
    """

    across: Sequence[Tick]
    upward: Sequence[Tick]
    turned: bool


def lettering(x: Axis, y: Axis, width: float, font: float, upward: Sequence[Tick] | None = None) -> Lettering:
    """The labels of the axes of a panel of that width: as many as there is room for.

    Args:
        x, y: the axes.
        width: between the ends of the x axis.
        font: size of the letters.
        upward: the labels of the y axis; None: all that the axis has.
    """
    if upward is None:
        upward = y.marks()
    if x.ticks is None:
        found = x.marks()
        for most in range(x.most or 8, 1, -1):
            found = x.marks(most)
            if not _crowded(found, width, font):
                break
        return Lettering(found[::2] if _crowded(found, width, font) else found, upward, False)
    found = x.marks()
    turned = x.turned or _crowded(found, width, font)
    step = 1.0 if len(found) < 2 else width * (found[-1][0] - found[0][0]) / (len(found) - 1)
    every = max(1, math.ceil(1.1 * font / step)) if turned and step > 0 else 1
    return Lettering(found[::every], upward, turned)


def _crowded(marks: Sequence[Tick], width: float, font: float) -> bool:
    """Whether a label below an axis of that width would run into its neighbour."""
    ends = [(width * place, width_of(text, font) / 2) for place, text in sorted(marks)]
    return any(right - half < left + other + 3 for (left, other), (right, half) in itertools.pairwise(ends))


def width_of(text: str, size: float = FONT) -> float:
    """About how wide a text is: which font the page has, nobody knows here."""
    return 0.62 * size * len(text)


def words(text: str, x: float, y: float, style: str = "", anchor: str = "start", turned: float = 0.0) -> str:
    """A line of text whose middle is at the height `y`."""
    turn = f' transform="rotate({turned:g} {coordinate(x)} {coordinate(y)})"' if turned else ""
    look = f' style="{style}"' if style else ""
    place = f'x="{coordinate(x)}" y="{coordinate(y)}" dy=".35em" text-anchor="{anchor}"'
    return f"<text {place}{look}{turn}>{html.escape(text, quote=False)}</text>"


def coordinate(value: float) -> str:
    """A coordinate, to a hundredth of a point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
