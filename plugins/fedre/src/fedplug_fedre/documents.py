"""Tampered documents that need no data: printed from a seed, aged like scans, and tampered with."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from fedplug import Field
from fedplug.api.streams import stream

from fedplug_fedre.receipts import TamperedDocuments, TamperingOptions
from fedplug_fedre.tampering import Sheet, TextBox, builtin_font, tamper

if TYPE_CHECKING:
    from fedplug import Dataset
    from fedplug.api.data import Examples
    from numpy.typing import NDArray

DOCUMENT_FIELDS = ("name", "date", "address", "total", "other text")
"""Privacy-sensitive fields of a generated document; `Examples.regions` holds 1 + the place in this list."""
NAME, DATE, ADDRESS, TOTAL, OTHER = range(5)

_FIRST = ("Anna", "Ben", "Chloe", "David", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kim", "Liam", "Mei")
_LAST = ("Adler", "Brown", "Costa", "Dubois", "Evans", "Fischer", "Garcia", "Hansen", "Ito", "Jensen", "Khan", "Lopez")
_STREETS = ("Mill Lane", "High Street", "Park Road", "Station Road", "Elm Avenue", "River Walk", "Church Hill")
_TOWNS = ("Ashford", "Bexley", "Carlow", "Dunmore", "Eastham", "Formby", "Glynde", "Hartford")
_GOODS = ("Paper", "Coffee", "Cables", "Lamp", "Repair", "Delivery", "Tickets", "Flour", "Paint", "Chairs")
_WORDS = ("we", "thank", "you", "for", "the", "order", "of", "last", "week", "and", "ask", "to", "be", "paid", "soon")


class Documents(TamperedDocuments):
    """Printed documents of four formats (invoice, identity card, letter, ticket), tampered with; no data folder needed.

    Each document is printed with names, dates, addresses and totals drawn at random in Pillow's built-in font. It is
    then rotated a little, blurred, shaded and given grain. So text that is reprinted or brought in from elsewhere
    differs in sharpness and grain, as in scans. The tampering is that of `fedre.receipts`. Labels are the formats.
    """

    class Options(TamperingOptions):
        """How many documents, and how large."""

        train_count: int = Field(480, ge=1, description="training examples to make")
        test_count: int = Field(120, ge=1, description="test examples to make")
        size: int = Field(64, ge=48, le=512, description="width and height of a document, in pixels")

    fields = DOCUMENT_FIELDS

    @property
    def formats(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the formats."""
        return tuple(FORMATS)

    def load(self, root: str | None) -> Dataset:
        """Prints the documents; `root` is not needed.

        Raises:
            SetupError: Pillow has no font to print with.
        """
        train, test = self.options.train_count, self.options.test_count
        return self.dataset(self.examples(train, "train"), self.examples(test, "test"), 0.75)

    def examples(self, count: int, split: str) -> Examples:
        """`count` documents, the formats in turn. The first ones are the same for any count."""
        chosen, formats, made = self.options, self.formats, []
        # Splices come from earlier documents. Before the first there is one that is in no example.
        before = document(formats[0], chosen.size, stream(chosen.seed, "fedre.documents", split, "spare"))
        for number in range(count):
            rng = stream(chosen.seed, "fedre.documents", split, number)
            original = document(formats[number % len(formats)], chosen.size, rng)
            sheet = Sheet(original.image, original.boxes)
            if rng.random() >= chosen.untouched:
                tamper(sheet, before, chosen.tampering, int(rng.integers(chosen.areas)) + 1, rng)
            made.append(sheet)
            before = original
        return self.stacked(made, [number % len(formats) for number in range(count)])


def document(kind: str, size: int, rng: np.random.Generator) -> Sheet:
    """One document without tampering.

    Args:
        kind: a key of `FORMATS`.
        size: width and height in pixels.
        rng: draws its text, tones, angle, blur and grain.
    """
    height = int(rng.integers(8, 12)) + (size - 48) // 32  # of a line, in pixels: about five to eight lines
    ink, boxes = _print(FORMATS[kind](rng), size, height, rng)
    angle = float(rng.uniform(-2, 2))
    return Sheet(_aged(ink, angle, rng), [_turned(box, angle, size) for box in boxes])


Line = tuple[int, str]
"""A line of text and its field."""


def _invoice(rng: np.random.Generator) -> list[Line]:
    goods = [(OTHER, f"{_pick(_GOODS, rng)} {_amount(rng)}") for _ in range(3)]
    head = [(NAME, f"{_pick(_LAST, rng)} Ltd"), (ADDRESS, _street(rng)), (DATE, _date(rng))]
    return [*head, *goods, (TOTAL, f"Total {_amount(rng)}"), (OTHER, f"Tax no {_digits(6, rng)}")]


def _identity_card(rng: np.random.Generator) -> list[Line]:
    name, town = [(NAME, _pick(_FIRST, rng)), (NAME, _pick(_LAST, rng))], (ADDRESS, _pick(_TOWNS, rng))
    number = (OTHER, "".join(rng.choice(list(string.ascii_uppercase), 2)) + _digits(6, rng))
    return [(OTHER, "IDENTITY"), *name, (DATE, _date(rng)), (ADDRESS, _street(rng)), town, number]


def _letter(rng: np.random.Generator) -> list[Line]:
    body = [(OTHER, " ".join(rng.choice(_WORDS, 3))) for _ in range(4)]
    name = f"{_pick(_FIRST, rng)} {_pick(_LAST, rng)}"
    return [(ADDRESS, _street(rng)), (DATE, _date(rng)), (NAME, f"Dear {_pick(_FIRST, rng)}"), *body, (NAME, name)]


def _ticket(rng: np.random.Generator) -> list[Line]:
    way = f"{_pick(_TOWNS, rng)} to {_pick(_TOWNS, rng)}"
    paid = [(TOTAL, f"Paid {_amount(rng)}"), (OTHER, f"No {_digits(7, rng)}")]
    return [(OTHER, way), (DATE, _date(rng)), (NAME, f"{_pick(_LAST, rng)}, {_pick(_FIRST, rng)}"), *paid]


FORMATS: dict[str, Callable[[np.random.Generator], list[Line]]] = {
    "invoice": _invoice, "identity card": _identity_card, "letter": _letter, "ticket": _ticket,
}  # fmt: skip


def _pick(words: tuple[str, ...], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]


def _digits(count: int, rng: np.random.Generator) -> str:
    return "".join(map(str, rng.integers(0, 10, count)))


def _date(rng: np.random.Generator) -> str:
    return f"{rng.integers(1, 29):02d}/{rng.integers(1, 13):02d}/{rng.integers(1950, 2026)}"


def _amount(rng: np.random.Generator) -> str:
    return f"{rng.integers(1, 1000)}.{rng.integers(100):02d}"


def _street(rng: np.random.Generator) -> str:
    return f"{rng.integers(1, 200)} {_pick(_STREETS, rng)}"


def _print(
    lines: list[Line], size: int, height: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], list[TextBox]]:
    """The amount of ink at each pixel, uint8 (size, size), and the boxes of the lines that fitted."""
    from PIL import Image, ImageDraw

    canvas, boxes = Image.new("L", (size, size), 0), []
    pen, font = ImageDraw.Draw(canvas), builtin_font(height)
    margin, y = 3, 3 + int(rng.integers(3))
    for field, text in lines:
        left, top, right, bottom = (int(value) for value in font.getbbox(text))
        while right - left > size - 2 * margin and len(text) > 1:  # text that is too wide is cut off
            text = text[: min(len(text) - 1, len(text) * (size - 2 * margin) // (right - left))]
            left, top, right, bottom = (int(value) for value in font.getbbox(text))
        if y + bottom - top > size - margin:
            break
        x = margin + int(rng.integers(size - 2 * margin - (right - left) + 1))
        pen.text((x - left, y - top), text, fill=255, font=font)
        boxes.append(TextBox(x - 1, y - 1, x + right - left + 1, y + bottom - top + 1, field, text))
        y += bottom - top + 3 + int(rng.integers(3))
    return np.asarray(canvas), boxes


def _aged(ink: NDArray[np.uint8], angle: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """The print as a scan: rotated by `angle` degrees, blurred, on shaded paper, with grain."""
    from PIL import Image, ImageFilter

    printed = Image.fromarray(ink).rotate(angle, Image.Resampling.BILINEAR)
    cover = np.asarray(printed.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.2, 0.7)))), np.float64) / 255
    across, down = np.meshgrid(*[np.linspace(-1, 1, len(ink))] * 2)
    paper = rng.uniform(185, 245) + rng.uniform(-12, 12) * across + rng.uniform(-12, 12) * down
    page = paper + cover * (rng.uniform(20, 90) - paper)
    page += rng.normal(0, rng.uniform(2, 8), page.shape)
    return np.clip(np.rint(page), 0, 255).astype(np.uint8)


def _turned(box: TextBox, angle: float, size: int) -> TextBox:
    """The upright box around a box that is rotated by `angle` degrees, counter-clockwise, about the middle."""
    turn, middle = np.deg2rad(angle), size / 2
    x, y = np.array([box.x0, box.x1, box.x0, box.x1]) - middle, np.array([box.y0, box.y0, box.y1, box.y1]) - middle
    across, down = x * np.cos(turn) + y * np.sin(turn) + middle, y * np.cos(turn) - x * np.sin(turn) + middle
    x0, y0 = (max(0, round(float(v.min()))) for v in (across, down))
    x1, y1 = (min(size, round(float(v.max()))) for v in (across, down))
    return TextBox(x0, y0, x1, y1, box.field, box.text)
