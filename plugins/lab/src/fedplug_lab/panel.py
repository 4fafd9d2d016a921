"""A panel of a figure: marks between two axes, as SVG text.

Drawn by hand, in a few milliseconds: importing matplotlib, and having it lay out the figures of a report, takes longer
than a short run with everything else in it. Colours may be variables of the page, so one picture serves light and dark.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedplug_lab.axis import FONT, Axis, Lettering, Values, width_of, words
from fedplug_lab.axis import coordinate as _n

INK, MUTED, GRID = "var(--ink)", "var(--muted)", "var(--grid)"
_HALO = "paint-order: stroke; stroke: var(--paper); stroke-width: 2.5px"
_EDGE = 10.0  # how far the last number below an axis may reach out at the right


class Box(NamedTuple):
    """A rectangle, its corner the upper left one, and the size of the letters in and around it."""

    x: float
    y: float
    width: float
    height: float
    font: float = FONT


class Panel:
    """Marks and two axes. What is drawn later lies on top.

    Attributes:
        x, y: the axes.
        title, x_label, y_label: the text above, below and left of it; empty for nothing.
        framed: whether the axes are drawn as lines, and horizontal lines at the ticks of `y`.
    """

    def __init__(self) -> None:
        self.x, self.y = Axis(), Axis()
        self.title = self.x_label = self.y_label = ""
        self.framed = True
        self._marks: list[Callable[[Box], str]] = []

    # -- marks ---------------------------------------------------------------------------------------------------------

    def line(self, x: Any, y: Any, colour: str, width: float = 1.8, dashed: bool = False, opacity: float = 1.0) -> None:
        """A line through points, with gaps where `y` is NaN."""
        x, y = self._see(x, y)
        look = f"fill: none; stroke: {colour}; stroke-width: {width:g}; stroke-linejoin: round{_faint(opacity)}"
        look += f"; {_dashes(width)}" if dashed else "; stroke-linecap: square"
        self._marks.append(lambda box: _path(_joined(*self._points(box, x, y)), look))

    def dots(self, x: Any, y: Any, colour: str, size: float = 3.5, opacity: float = 1.0) -> None:
        """A dot at each point."""
        x, y = self._see(x, y)
        look = f"stroke: {colour}; stroke-width: {size:g}; stroke-linecap: round{_faint(opacity)}"
        self._marks.append(lambda box: _path(_each(*self._points(box, x, y), "h0"), look))

    def crosses(self, x: Any, colour: str) -> None:
        """A cross just above the x axis at each `x`."""
        x, _ = self._see(x, [])
        look = f"fill: none; stroke: {colour}; stroke-width: 1.2"
        self._marks.append(
            lambda box: _path(_each(self._points(box, x, [])[0], 0 * x + box.y + 0.97 * box.height,
                                    "m-3 -3l6 6m0 -6l-6 6"), look)
        )  # fmt: skip

    def bars(self, x: Any, low: Any, high: Any, width: float, colour: str, opacity: float = 1.0) -> None:
        """A bar around each `x` from `low` to `high`."""
        left, right, low, high = np.asarray(x) - width / 2, np.asarray(x) + width / 2, np.asarray(low), np.asarray(high)
        self._see(np.concatenate([left, right]), np.concatenate([low, high]))
        self._marks.append(lambda box: _path(self._rectangles(box, left, right, low, high), _filled(colour, opacity)))

    def lying_bars(self, y: Any, lengths: Any, height: float, colour: str) -> None:
        """A bar from the y axis around each `y`, as long as it says."""
        low, high, start = np.asarray(y) - height / 2, np.asarray(y) + height / 2, np.zeros(len(lengths))
        self._see(np.concatenate([start, np.asarray(lengths)]), np.concatenate([low, high]))
        self._marks.append(lambda box: _path(self._rectangles(box, start, lengths, low, high), _filled(colour)))

    def area(self, x: Any, low: Any, high: Any, colour: str, opacity: float = 1.0) -> None:
        """Fills between two curves; nothing where one of them is NaN."""
        x, low, high = (np.asarray(values, np.float64) for values in (x, low, high))
        self._see(np.concatenate([x, x]), np.concatenate([low, high]))
        known = np.flatnonzero(np.isfinite(low) & np.isfinite(high))
        runs = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if known.size else []

        def draw(box: Box) -> str:
            outlines = []
            for run in runs:
                around = np.concatenate([run, run[::-1]])
                edge = np.concatenate([low[run], high[run][::-1]])
                outlines.append(_joined(*self._points(box, x[around], edge)) + "z")
            return _path("".join(outlines), _filled(colour, opacity))

        self._marks.append(draw)

    def steps(self, edges: Any, low: Any, high: Any, colour: str) -> None:
        """Fills between two values in each interval between two edges: bars without gaps, as one outline."""
        self.area(np.repeat(edges, 2)[1:-1], np.repeat(low, 2), np.repeat(high, 2), colour)

    def upright(self, x: float, colour: str) -> None:
        """A dashed line from the bottom to the top."""
        self.x.see(x)
        look = f"fill: none; stroke: {colour}; stroke-width: 1.4; {_dashes(1.4)}"
        self._marks.append(lambda box: _path(f"M{_n(box.x + self._x(box, x))} {_n(box.y)}v{_n(box.height)}", look))

    def boxes(self, left: Any, right: Any, low: Any, high: Any, fill: str, stroke: str) -> None:
        """A rectangle with an outline for each entry."""
        self._see(np.concatenate([left, right]), np.concatenate([low, high]))
        look = f"fill: {fill}; stroke: {stroke}; stroke-width: 1"
        self._marks.append(lambda box: _path(self._rectangles(box, left, right, low, high), look))

    def cells(self, opacities: Values, rgb: tuple[int, int, int]) -> None:
        """A cell of one colour for each entry of a matrix, the first row on top; as a picture, whatever its size."""
        rows, columns = opacities.shape
        pixels = np.empty((rows, columns, 4), np.uint8)
        pixels[..., :3], pixels[..., 3] = rgb, np.rint(255 * opacities)
        address = f"data:image/png;base64,{base64.b64encode(_png(pixels)).decode()}"

        def draw(box: Box) -> str:
            (left, right), (top, bottom) = self._points(box, [-0.5, columns - 0.5], [-0.5, rows - 0.5])
            size = f'x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" height="{_n(bottom - top)}"'
            look = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
            return f'<image {size} {look} href="{address}"/>'

        self._marks.append(draw)

    def notes(self, written: Sequence[tuple[float, float, str]]) -> None:
        """Small texts around points, one unit of the x axis wide at most.

        In a narrow picture they are as large as all letters, or left out: where one did not fit, all of them, since
        nothing must not look like zero.
        """

        def draw(box: Box) -> str:
            broad = box.font == FONT
            size = 0.8 * box.font if broad else box.font
            room = abs(self._x(box, 1.0) - self._x(box, 0.0))
            if not broad and any(width_of(text, size) > room + 1 for _, _, text in written):
                return ""
            across, down = self._points(box, [x for x, _, _ in written], [y for _, y, _ in written])
            look = f"font-size: {size:g}px; fill: {INK}"
            return "".join(words(text, a, b, look, "middle")
                           for a, b, (_, _, text) in zip(across, down, written, strict=True))  # fmt: skip

        self._marks.append(draw)

    def stairs(self, x: Any, y: Any, colour: str, right: bool, up: bool) -> None:
        """The border of what points reach, as steps from the first point to the last.

        Args:
            x, y: the points, from the best `x` to the worst.
            colour: of the line.
            right: whether the border continues to the right of the last point, where `x` is worse; else to the left.
            up: whether the first point is reached from below, where `y` is worse; else from above.
        """

        def draw(box: Box) -> str:
            across, down = self._points(box, x, y)
            start = box.y + box.height if up else box.y
            end = box.x + box.width * self.x.numbers_end if right else box.x
            steps = "".join(f"H{_n(a)}V{_n(b)}" for a, b in zip(across, down, strict=True))
            shape = f"M{_n(across[0])} {_n(start)}{steps}H{_n(end)}"
            return _path(shape, f"fill: none; stroke: {colour}; stroke-width: 1.3")

        self._marks.append(draw)

    def names(self, points: Sequence[tuple[float, float, str]]) -> None:
        """Names next to points, each where it covers no point and no other name; one without room is left out.

        Args:
            points: x, y and name of every point that must not be covered; the name may be empty.
        """

        def draw(box: Box) -> str:
            across, down = self._points(box, [x for x, _, _ in points], [y for _, y, _ in points])
            places = list(zip(across.tolist(), down.tolist(), strict=True))
            parts = []
            for (a, b), (x, y, anchor), text, far in named_places(box, places, [text for _, _, text in points]):
                if far:
                    parts.append(_path(f"M{_n(a)} {_n(b)}L{_n(x)} {_n(y)}", f"stroke: {MUTED}; stroke-width: .6"))
                look = f"font-size: {_name_size(box):g}px; fill: {INK}; {_HALO}"
                parts.append(words(text, x, y, look, anchor))
            return "".join(parts)

        self._marks.append(draw)

    # -- drawing -------------------------------------------------------------------------------------------------------

    def draw(self, box: Box, clip: str, shown: Lettering) -> str:
        """The panel in its place.

        Args:
            box: the rectangle between the axes.
            clip: an id that is unique in the page.
            shown: the labels of the axes.
        """
        across = "".join(
            f"M{_n(box.x)} {_n(box.y + box.height * (1 - place))}h{_n(box.width)}"
            for place, _ in shown.upward or self.y.marks()
        )
        parts = []
        if self.x.strip:
            left, wide = box.x + box.width * self.x.numbers_end, box.width * (1 - self.x.numbers_end)
            size = f'x="{_n(left)}" y="{_n(box.y)}" width="{_n(wide)}" height="{_n(box.height)}"'
            parts.append(f'<rect {size} style="fill: {GRID}; opacity: .55"/>')
        parts += [_path(across, f"stroke: {GRID}; stroke-width: .8")] if self.framed else []
        frame = f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}"/>'
        marks = "".join(mark(box) for mark in self._marks)
        parts.append(f'<clipPath id="{clip}">{frame}</clipPath><g clip-path="url(#{clip})">{marks}</g>')
        if self.framed:
            corner = f"M{_n(box.x)} {_n(box.y)}v{_n(box.height)}h{_n(box.width)}"
            parts.append(_path(corner, f"fill: none; stroke: {MUTED}; stroke-width: .8"))
        bottom = box.y + box.height
        for place, text in shown.across:
            # The first and the last may reach out a little; more would be beyond the picture.
            half = 0.0 if shown.turned else width_of(text, box.font) / 2
            at = min(box.x + place * box.width, max(box.x, box.x + box.width + _EDGE - half))
            parts.append(words(text, at + 3, bottom + 0.8 * box.font, "", "end", -45) if shown.turned else
                         words(text, at, bottom + 0.95 * box.font, "", "middle"))  # fmt: skip
        for place, text in shown.upward:
            parts.append(words(text, box.x - 4, bottom - place * box.height, "", "end"))
        if self.title:
            parts.append(words(self.title, box.x, box.y - 0.9 * box.font, f"fill: {INK}"))
        return "".join(parts)

    def _see(self, x: Any, y: Any) -> tuple[Values, Values]:
        self.x.see(x)
        self.y.see(y)
        return np.asarray(x, np.float64), np.asarray(y, np.float64)

    def _x(self, box: Box, x: float) -> float:
        return float(box.width * self.x.places([x])[0])

    def _points(self, box: Box, x: Any, y: Any) -> tuple[Values, Values]:
        return box.x + box.width * self.x.places(x), box.y + box.height * (1 - self.y.places(y))

    def _rectangles(self, box: Box, left: Any, right: Any, low: Any, high: Any) -> str:
        (x0, y0), (x1, y1) = self._points(box, left, low), self._points(box, right, high)
        known = np.isfinite(x0 + y0 + x1 + y1) & (y0 != y1) & (x0 != x1)
        corners = zip(x0[known], y0[known], x1[known], y1[known], strict=True)
        return "".join(f"M{_n(a)} {_n(b)}H{_n(c)}V{_n(d)}H{_n(a)}z" for a, b, c, d in corners)


Named = tuple[tuple[float, float], tuple[float, float, str], str, bool]
"""A point, where its name is written and how that is anchored, the name, and whether a line has to join the two."""


def named_places(box: Box, points: Sequence[tuple[float, float]], names: Sequence[str]) -> list[Named]:
    """Where names are written, each next to its point; one for which there is no room is left out."""
    size, taken, found = _name_size(box), list[Corners](), list[Named]()
    for (a, b), name in zip(points, names, strict=True):
        rooms = list(_rooms(a, b, width_of(name, size), 1.2 * size)) if name else []
        # Far from other points, so that nobody takes it for the name of one of them; where that is nowhere near, just
        # not over them. Points that hide each other share their place.
        for away, most in ((9.0, 2), (4.0, 9)):
            near = [4.0 if math.hypot(x - a, y - b) < 2 * away else away for x, y in points]
            dots = [(x - by, y - by, x + by, y + by) for (x, y), by in zip(points, near, strict=True)]
            free = [room for room in rooms
                    if room[1] < most and _inside(room[2], box) and not _meets(room[2], [*taken, *dots])]  # fmt: skip
            if free:
                at, step, room = free[0]
                taken.append(room)
                own = _distance(room, a, b)
                joined = step > 1 or any(_distance(room, x, y) < own for x, y in points)
                found.append(((a, b), at, name, joined))
                break
    return found


def _rooms(a: float, b: float, wide: float, high: float) -> Iterator[tuple[tuple[float, float, str], int, Corners]]:
    """Where the name of a point may be, the best first: where it is written, how far off, and its corners."""
    right, left, middle = (a + 6.5, 0.0, "start"), (a - 6.5, wide, "end"), (a, wide / 2, "middle")
    for step in range(9):
        for down in (b - step * high, b + step * high) if step else (b,):
            for x, before, anchor in (middle, right, left) if step == 1 else (right, left):
                start = x - before
                yield (x, down, anchor), step, (start, down - high / 2, start + wide, down + high / 2)


def _name_size(box: Box) -> float:
    """Of the letters of names: a little smaller than all others, but in a narrow picture."""
    return 0.9 * box.font if box.font == FONT else box.font


Corners = tuple[float, float, float, float]


def _inside(room: Corners, box: Box) -> bool:
    left, top, right, bottom = room
    return left >= box.x and right <= box.x + box.width and top >= box.y and bottom <= box.y + box.height


def _distance(room: Corners, x: float, y: float) -> float:
    left, top, right, bottom = room
    return math.hypot(max(left - x, 0.0, x - right), max(top - y, 0.0, y - bottom))


def _meets(room: Corners, others: Sequence[Corners]) -> bool:
    left, top, right, bottom = room
    return any(left < c and a < right and top < d and b < bottom for a, b, c, d in others)


def _path(shape: str, look: str) -> str:
    return f'<path d="{shape}" style="{look}"/>' if shape else ""


def _filled(colour: str, opacity: float = 1.0) -> str:
    return f"fill: {colour}{_faint(opacity)}"


def _faint(opacity: float) -> str:
    return f"; opacity: {opacity:g}" if opacity < 1 else ""


def _dashes(width: float) -> str:
    return f"stroke-dasharray: {3.7 * width:g} {1.6 * width:g}"


def _joined(x: Values, y: Values) -> str:
    """The points joined by lines, with gaps where one is missing."""
    shape, pen = [], "M"
    for a, b in zip(x, y, strict=True):
        if np.isfinite(b):
            shape.append(f"{pen}{_n(a)} {_n(b)}")
        pen = "L" if np.isfinite(b) else "M"
    return "".join(shape)


def _each(x: Values, y: Values, sign: str) -> str:
    return "".join(f"M{_n(a)} {_n(b)}{sign}" for a, b in zip(x, y, strict=True) if np.isfinite(b))


def _png(pixels: Any) -> bytes:
    """A picture of uint8 (height, width, 4) as a file (PNG specification, W3C 2003)."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
