"""A figure: panels in rows and columns, what is written around them, and the way into the page as inline SVG.

The SVG carries no XML declaration, no metadata and no namespace address, so the page names no address at all.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from fedplug_lab.panel import FONT, MUTED, Box, Panel, width_of, words

_LINE = 13.0  # a line of text with room around it
_GAP = 12.0  # between panels, and at the right edge, where the last number of an axis may stand out
_TICK_ROOM = 26.0  # height that a number beside a y axis wants for itself


class Drawing:
    """Panels of one picture. Sizes in inches, of 72 points.

    Args:
        width, height: of the picture.
        panels: how many.
        columns: of the grid that they fill row by row; None: all in one row.
        ratios: widths of the columns, relative to each other; None: all alike.
        shared: whether the panels of a row share one y axis, which has its numbers on the left of the first.

    Attributes:
        panels: to draw in.
        x_label, y_label: below and beside all of them; empty for nothing.
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
        self._columns, self._shared = columns or panels, shared
        self._ratios = list(ratios or [1.0] * self._columns)
        for panel in self.panels[1:] if shared else ():
            panel.y = self.panels[0].y

    def svg(self, key: str, alt: str) -> str:
        """The picture as an element of the page, with a text alternative.

        Args:
            key: of this picture alone: ids in it begin with it, since what one picture of a page defines, no other may
                refer to.
            alt: what a person who sees it would take from it.
        """
        parts = [f'<svg viewBox="0 0 {self._width:g} {self._height:g}" role="img" aria-label="{html.escape(alt)}">',
                 f'<g style="font-size: {FONT:g}px; fill: {MUTED}">']  # fmt: skip
        for number, (panel, box) in enumerate(zip(self.panels, self._boxes(), strict=True)):
            left = number % self._columns
            parts.append(panel.draw(box, f"{key}-{number}", beside=not (self._shared and left)))
            middle = box.y + box.height / 2
            if panel.y_label:
                parts.append(words(panel.y_label, 7, middle, "", "middle", -90))
            if panel.x_label:
                bottom = box.y + box.height + self._below(panel) - _LINE / 2
                parts.append(words(panel.x_label, box.x + box.width / 2, bottom, "", "middle"))
        if self.x_label:
            parts.append(words(self.x_label, self._width / 2, self._height - _LINE / 2, "", "middle"))
        if self.y_label:
            parts.append(words(self.y_label, 7, self._height / 2, "", "middle", -90))
        return "".join([*parts, "</g></svg>\n"])

    def _boxes(self) -> Iterator[Box]:
        """Where each panel lies, between its axes."""
        rows = math.ceil(len(self.panels) / self._columns)
        bottom = self._height - (_LINE if self.x_label else 0)
        each = bottom / rows
        above = _LINE + 3 if any(panel.title for panel in self.panels) else 6.0
        height = max(10.0, each - above - max(map(self._below, self.panels)))
        for panel in self.panels:
            panel.y.most = panel.y.most or max(2, int(height / _TICK_ROOM))
        start = _LINE + 2 if self.y_label or any(panel.y_label for panel in self.panels) else 0.0
        beside = [self._beside(column) for column in range(self._columns)]
        room = self._width - start - sum(beside) - _GAP * self._columns
        for number in range(len(self.panels)):
            row, column = divmod(number, self._columns)
            shares = [room * ratio / sum(self._ratios) for ratio in self._ratios]
            x = start + sum(beside[: column + 1]) + sum(shares[:column]) + _GAP * column
            yield Box(x, row * each + above, max(10.0, shares[column]), height)

    def _beside(self, column: int) -> float:
        """Room on the left of a column for the numbers of its y axes."""
        if self._shared and column:
            return 0.0
        numbers = [width_of(text) for panel in self.panels[column :: self._columns] for _, text in panel.y.marks()]
        slanted = [width_of(text) * 0.71 - 20 for panel in self.panels[column :: self._columns] if panel.x.turned
                   for _, text in panel.x.marks()[:2]]  # fmt: skip
        return max([*numbers, *slanted, 0.0]) + 6

    def _below(self, panel: Panel) -> float:
        """Room below a panel for the numbers of its x axis, and for its label."""
        slanted = [0.71 * (width_of(text) + FONT) for _, text in panel.x.marks()] if panel.x.turned else []
        return max([_LINE + 2, *slanted]) + (_LINE if panel.x_label else 0)
