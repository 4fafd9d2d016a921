"""A figure: panels in rows and columns, what is written around them, and the way into the page as inline SVG.

Each figure is drawn twice: for a page with room, and for a narrow one, where its panels lie below each other and its
letters are relatively larger. The page's style shows one of the two. The SVG carries no XML declaration, no metadata
and no namespace address, so the page names no address at all.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterable, Iterator, Sequence

from fedplug_lab.axis import FONT, Lettering, Tick, lettering, width_of, words
from fedplug_lab.panel import MUTED, Box, Panel

_GAP = 12.0  # between panels, and at the right edge, where the last number of an axis may reach out
_TICK_ROOM = 2.9  # height that a number next to a y axis wants for itself, in letters
_SLIM_WIDTH, _SLIM_FONT = 342.0, 11.0  # points; on the narrowest telephones a point is about a pixel
_FEW = 6  # of more panels two are side by side, in a narrow picture too
_ROW_LIMITS = 150.0, 230.0  # height of a row of a narrow picture


@dataclasses.dataclass(frozen=True)
class Sheet:
    """What a figure is drawn on, in points.

    Attributes:
        kind: `broad` or `slim`, the class of the SVG.
        width, height: of all of it.
        columns: of the grid that panels fill row by row.
        font: size of the letters.
    """

    kind: str
    width: float
    height: float
    columns: int
    font: float

    @property
    def line(self) -> float:
        """Height of a line of text with room around it."""
        return 1.45 * self.font


@dataclasses.dataclass(frozen=True)
class Chart:
    """One figure.

    Attributes:
        key: short name, used for ids in the page.
        title: what it shows.
        note: how to read it: units, what was summed.
        alt: what a person who sees it would take from it, in a sentence.
        legend: (label, colour, `line`, `thin`, `dash`, `area` or `cross`), in the order drawn.
        svg: the picture.
        wide: True where it fills the width of the page.
    """

    key: str
    title: str
    note: str
    alt: str
    legend: tuple[tuple[str, str, str], ...]
    svg: str
    wide: bool = False


class Drawing:
    """Panels of one picture. Sizes in inches, of 72 points.

    Args:
        width, height: of the picture.
        panels: how many.
        columns: of the grid that they fill row by row; None: all in one row.
        ratios: widths of the columns, relative to each other; None: all alike. Such panels belong together, and stay
            side by side in a narrow picture too.
        shared: whether the panels of a row share one y axis, which has its numbers on the left of the first.

    Attributes:
        panels: to draw in.
        x_label, y_label: below and left of all of them; empty for nothing.
    """

    def __init__(
        self,
        width: float,
        height: float,
        panels: int = 1,
        columns: int | None = None,
        ratios: Sequence[float] | None = None,
        shared: bool = True,
    ) -> None:
        self.panels = [Panel() for _ in range(panels)]
        self.x_label = self.y_label = ""
        self._width, self._height = 72 * width, 72 * height
        self._columns, self._shared, self._ratios = columns or panels, shared, ratios
        for panel in self.panels[1:] if shared else ():
            panel.y = self.panels[0].y

    def chart(
        self, key: str, title: str, alt: str, legend: Iterable[tuple[str, str, str]] = (), note: str = "",
        wide: bool = False,
    ) -> Chart:  # fmt: skip
        """The picture with its words; what these are is in `Chart`."""
        return Chart(key, title, note, alt, tuple(legend), self.svg(key, alt), wide)

    def svg(self, key: str, alt: str) -> str:
        """The picture as elements of the page, each with a text alternative: the broad one, then the slim one.

        Args:
            key: of this picture alone: ids in it begin with it, since what one picture of a page defines, no other may
                refer to.
            alt: what a person who sees it would take from it.
        """
        return "".join(self._on(sheet, key, alt) for sheet in self.sheets())

    def sheets(self) -> tuple[Sheet, Sheet]:
        """The broad one and the slim one."""
        count = len(self.panels)
        broad = Sheet("broad", self._width, self._height, self._columns, FONT)
        columns = self._columns if self._ratios else 1 if count <= _FEW else 2
        low, high = _ROW_LIMITS
        row = self._height / math.ceil(count / self._columns)
        if not self._ratios:
            row = min(max(row, low), high)
        slim = Sheet("slim", _SLIM_WIDTH, row * math.ceil(count / columns), columns, _SLIM_FONT)
        return broad, slim

    def _on(self, sheet: Sheet, key: str, alt: str) -> str:
        key = key if sheet.kind == "broad" else f"{key}-{sheet.kind}"
        seen = f'class="{sheet.kind}" viewBox="0 0 {sheet.width:g} {sheet.height:g}"'
        parts = [f'<svg {seen} role="img" aria-label="{html.escape(alt)}">',
                 f'<g style="font-size: {sheet.font:g}px; fill: {MUTED}">']  # fmt: skip
        side, low = 0.8 * sheet.font, 0.5 * sheet.line
        for number, (panel, (box, shown)) in enumerate(zip(self.panels, self.places(sheet), strict=True)):
            parts.append(panel.draw(box, f"{key}-{number}", shown))
            middle = box.y + box.height / 2
            if panel.y_label:
                parts.append(words(panel.y_label, side, middle, "", "middle", -90))
            if panel.x_label:
                bottom = box.y + box.height + self._below(panel, shown, sheet) - low
                parts.append(words(panel.x_label, box.x + box.width / 2, bottom, "", "middle"))
        if self.x_label:
            parts.append(words(self.x_label, sheet.width / 2, sheet.height - low, "", "middle"))
        if self.y_label:
            parts.append(words(self.y_label, side, sheet.height / 2, "", "middle", -90))
        return "".join([*parts, "</g></svg>\n"])

    def places(self, sheet: Sheet) -> Iterator[tuple[Box, Lettering]]:
        """Where each panel lies, between its axes, and their labels."""
        rows = math.ceil(len(self.panels) / sheet.columns)
        bottom = sheet.height - (sheet.line if self.x_label else 0)
        each = bottom / rows
        above = sheet.line + 3 if any(panel.title for panel in self.panels) else 6.0
        # The height of a y axis decides how many numbers label it, and the x axis changes the height: a first guess.
        least = max(2, int((each - above - 2 * sheet.line) / (_TICK_ROOM * sheet.font)))
        upward = [panel.y.marks(panel.y.most or least) for panel in self.panels]
        start = sheet.line + 2 if self.y_label or any(panel.y_label for panel in self.panels) else 0.0
        beside = [self._beside(column, upward, sheet) for column in range(sheet.columns)]
        room = sheet.width - start - sum(beside) - _GAP * sheet.columns
        ratios = list(self._ratios or [1.0] * sheet.columns)
        widths = [max(10.0, room * ratio / sum(ratios)) for ratio in ratios]
        letterings = []
        for number, panel in enumerate(self.panels):
            column = number % sheet.columns
            shown = upward[number] if not (self._shared and column) else ()
            letterings.append(lettering(panel.x, widths[column], sheet.font, shown))
        deepest = max(self._below(panel, found, sheet) for panel, found in zip(self.panels, letterings, strict=True))
        height = max(10.0, each - above - deepest)
        for number, written in enumerate(letterings):
            row, column = divmod(number, sheet.columns)
            x = start + sum(beside[: column + 1]) + sum(widths[:column]) + _GAP * column
            yield Box(x, row * each + above, widths[column], height, sheet.font), written

    def _beside(self, column: int, upward: Sequence[Sequence[Tick]], sheet: Sheet) -> float:
        """Room on the left of a column for the numbers of its y axes, and for the first of slanted names below it."""
        if self._shared and column:
            return 0.0
        own = range(column, len(self.panels), sheet.columns)
        numbers = [width_of(text, sheet.font) for number in own for _, text in upward[number]]
        slanted = [width_of(text, sheet.font) * 0.71 - 20 for number in own if self.panels[number].x.turned
                   for _, text in self.panels[number].x.marks()[:2]]  # fmt: skip
        return max([*numbers, *slanted, 0.0]) + 6

    def _below(self, panel: Panel, written: Lettering, sheet: Sheet) -> float:
        """Room below a panel for the numbers of its x axis, and for its label."""
        slanted = [0.71 * (width_of(text, sheet.font) + sheet.font) for _, text in written.across if written.turned]
        return max([sheet.line + 2, *slanted]) + (sheet.line if panel.x_label else 0)
