"""Tampering with text in a document image, with a mask of exactly the written pixels: copy-move, splice, replacement.

The three manipulations of tampered-text benchmarks (DocTamper: Qu et al., CVPR 2023, Sec. 3): text copied inside a
document, text brought in from another one, and text erased and printed anew. All work on a `Sheet` and write only
through `Sheet.write`. The mask is the set of written pixels, and outside it the image keeps every bit.

Regions follow the pixels. A privacy-sensitive field that is copied is just as readable at its new place, so the copy
carries the field of the text it shows, even if it comes from another document. Text that is printed anew keeps the
field of the text it replaces: it claims to be that field.
"""

from __future__ import annotations

import dataclasses
import functools
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug.api.errors import SetupError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = ("untouched", "tampered")
FIELDS = ("company", "date", "address", "total", "other text")
"""Privacy-sensitive fields of a receipt; `Examples.regions` holds 1 + the place in this list."""

Kind = Literal["copy_move", "splice", "replace"]
KINDS: tuple[Kind, ...] = ("copy_move", "splice", "replace")

_SMALLEST = 6  # pixels; a text box that is lower or narrower is not changed
_DIGITS, _LOWER, _UPPER = (np.array(list(s)) for s in (string.digits, string.ascii_lowercase, string.ascii_uppercase))


@dataclasses.dataclass(frozen=True)
class TextBox:
    """A line of text: pixels x0 to x1 - 1 and y0 to y1 - 1, its field (index into the region names), its characters."""

    x0: int
    y0: int
    x1: int
    y1: int
    field: int
    text: str = ""

    @property
    def width(self) -> int:
        return self.x1 - self.x0

    @property
    def height(self) -> int:
        return self.y1 - self.y0


class Sheet:
    """A document image that is being tampered with.

    Args:
        image: uint8 (H, W); copied.
        boxes: its lines of text, each inside the image.

    Raises:
        ValueError: a box is empty or reaches over the border.

    Attributes:
        image: uint8 (H, W), in its current state.
        mask: uint8 (H, W), 1 where a pixel was written.
        regions: uint8 (H, W), 0 or 1 + the field that the pixel shows.
        boxes: the original lines of text.
    """

    def __init__(self, image: NDArray[np.uint8], boxes: Sequence[TextBox]) -> None:
        self.image, self.boxes = image.copy(), tuple(boxes)
        self.mask, self.regions = np.zeros_like(image), np.zeros_like(image)
        height, width = image.shape
        for box in self.boxes:
            if not (0 <= box.x0 < box.x1 <= width and 0 <= box.y0 < box.y1 <= height):
                raise ValueError(f"{box} is not inside an image of {width}x{height} pixels")
            self.regions[box.y0 : box.y1, box.x0 : box.x1] = box.field + 1

    def write(self, y: int, x: int, patch: NDArray[np.uint8], regions: NDArray[np.uint8]) -> None:
        """Writes a patch (h, w) with its regions, top left corner at (y, x), and marks it as tampered."""
        place = np.s_[y : y + patch.shape[0], x : x + patch.shape[1]]
        self.image[place], self.regions[place], self.mask[place] = patch, regions, 1

    def part(self, box: TextBox) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Pixels and regions inside a box, (h, w)."""
        place = np.s_[box.y0 : box.y1, box.x0 : box.x1]
        return self.image[place], self.regions[place]

    def untouched(self) -> list[TextBox]:
        """Lines of text that are large enough to tamper with and have not been tampered with yet."""
        return [
            box for box in self.boxes
            if min(box.width, box.height) >= _SMALLEST and not self.mask[box.y0 : box.y1, box.x0 : box.x1].any()
        ]  # fmt: skip


def tamper(sheet: Sheet, other: Sheet, kinds: Sequence[Kind], areas: int, rng: np.random.Generator) -> list[Kind]:
    """Tampers with up to `areas` lines of text, each in a way drawn from `kinds`.

    Args:
        sheet: the document to tamper with.
        other: another document, the source of splices.
        kinds: ways to choose from, all equally likely.
        areas: number of lines of text.
        rng: draws everything.

    Returns:
        The kinds that were used. Fewer than `areas` where the document has too little text, or none that fits.
    """
    done: list[Kind] = []
    for _ in range(areas):
        kind = kinds[int(rng.integers(len(kinds)))]
        if kind == "replace":
            worked = replace(sheet, rng)
        else:
            worked = transplant(sheet, sheet if kind == "copy_move" else other, rng)
        if worked:
            done.append(kind)
    return done


def transplant(sheet: Sheet, source: Sheet, rng: np.random.Generator) -> bool:
    """Covers text with other text: a copy-move where `source` is the sheet itself, a splice where it is not.

    The patch is cut from a source line that is at least as wide as the text it covers, and is scaled to its height
    where the two differ. Its paper is adjusted to the tone of the place, as a forger would do to hide it.

    Returns:
        False where there is no text to cover, or none that could cover it.
    """
    targets, sources = sheet.untouched(), source.untouched()
    for target in _shuffled(targets, rng):
        target = _some_of(target, rng)
        for box in _shuffled(sources, rng):
            scale = target.height / box.height
            width = round(target.width / scale)
            if (source is sheet and _overlap(box, target)) or not 0.6 <= scale <= 1.6 or width > box.width:
                continue
            x0 = box.x0 + int(rng.integers(box.width - width + 1))
            cut = dataclasses.replace(box, x0=x0, x1=x0 + max(width, 1))
            pixels, regions = (array.copy() for array in source.part(cut))
            if pixels.shape != (target.height, target.width):
                pixels, regions = resized(pixels, target), resized(regions, target, smooth=False)
            shift = 0.0 if source is sheet else _paper(sheet, target) - _paper(source, cut)
            sheet.write(target.y0, target.x0, _to_pixels(pixels + shift), regions)
            return True
    return False


def replace(sheet: Sheet, rng: np.random.Generator) -> bool:
    """Erases text and prints other text of the same shape: digits for digits, letters for letters.

    The erased area gets the tone of the paper around it (the median of its border) and the grain of that paper. The
    text has the height of the old one and its darkest tone, in Pillow's built-in font.

    Returns:
        False where there is no text to replace.
    """
    for box in _shuffled(sheet.untouched(), rng)[:1]:
        target = _some_of(box, rng)
        old, regions = sheet.part(target)
        border = _border(sheet, target)
        tone = float(np.median(border))
        grain = min(float(np.std(border[np.abs(border - tone) < 24])), 8.0)  # without the ink on the border
        paper = np.full(old.shape, tone) + rng.normal(0, max(grain, 1e-9), old.shape)
        ink = min(float(np.percentile(old, 3)), tone - 24)
        count = max(2, round(len(box.text or "0000") * target.width / box.width))
        cover = printed(_like(box.text, count, rng), target.height, target.width)
        sheet.write(target.y0, target.x0, _to_pixels(paper + cover * (ink - paper)), regions.copy())
        return True
    return False


def printed(text: str, height: int, width: int) -> NDArray[np.float64]:
    """The amount of ink at each pixel of a line of text, float64 (height, width) in 0 to 1.

    The line is as high as the box. Where it would be wider than the box, it is squeezed into it.
    """
    from PIL import Image, ImageDraw

    size = max(6, round(0.95 * height))
    font = builtin_font(size)
    left, top, right, bottom = font.getbbox(text)
    line = Image.new("L", (max(1, int(right - left)), max(1, int(bottom - top))), 0)
    ImageDraw.Draw(line).text((-left, -top), text, fill=255, font=font)
    # Characters fill about four fifths of a text box as annotators draw it.
    high = max(1, min(height, round(0.8 * height)))
    line = line.resize((max(1, min(width, round(line.width * high / line.height))), high), Image.Resampling.BILINEAR)
    cover = np.zeros((height, width))
    y = (height - high) // 2
    cover[y : y + high, : line.width] = np.asarray(line, np.float64) / 255
    return cover


@functools.lru_cache(maxsize=64)
def builtin_font(size: int) -> Any:
    """Pillow's built-in font, `size` pixels high.

    Raises:
        SetupError: this Pillow has no scalable font.
    """
    from PIL import ImageFont

    try:
        font = ImageFont.load_default(size=size)
        # Without the shaping library that some Pillows have: the same text must look the same everywhere.
        return font.font_variant(layout_engine=ImageFont.Layout.BASIC)  # type: ignore[union-attr]
    except (ImportError, TypeError, AttributeError, OSError) as error:
        raise SetupError(
            f"Pillow cannot print text here ({error}); documents need Pillow 10.1 or newer with FreeType, as its "
            "wheels have it: pip install --upgrade pillow"
        ) from error


def _shuffled(boxes: Sequence[TextBox], rng: np.random.Generator) -> list[TextBox]:
    return [boxes[index] for index in rng.permutation(len(boxes))]


def _some_of(box: TextBox, rng: np.random.Generator) -> TextBox:
    """Part of a line: two fifths or more of it, at least twice as wide as high if the line is."""
    least = min(box.width, max(round(0.4 * box.width), 2 * box.height))
    width = int(rng.integers(least, box.width + 1))
    x0 = box.x0 + int(rng.integers(box.width - width + 1))
    return dataclasses.replace(box, x0=x0, x1=x0 + width)


def _overlap(a: TextBox, b: TextBox) -> bool:
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


def _border(sheet: Sheet, box: TextBox) -> NDArray[np.float64]:
    """The pixels of a box's outermost ring, and of the ring around it where that is inside the image."""
    image = sheet.image[max(0, box.y0 - 1) : box.y1 + 1, max(0, box.x0 - 1) : box.x1 + 1].astype(np.float64)
    return np.concatenate([image[:2].ravel(), image[-2:].ravel(), image[2:-2, :2].ravel(), image[2:-2, -2:].ravel()])


def _paper(sheet: Sheet, box: TextBox) -> float:
    """Tone of the paper in a box: text covers less than a quarter of it."""
    return float(np.percentile(sheet.part(box)[0], 75))


def resized(patch: NDArray[np.uint8], box: TextBox, smooth: bool = True) -> NDArray[np.uint8]:
    """A patch scaled to the size of a box. Use `smooth=False` for regions, which must not be mixed."""
    from PIL import Image

    how = Image.Resampling.BILINEAR if smooth else Image.Resampling.NEAREST
    return np.asarray(Image.fromarray(patch).resize((box.width, box.height), how))


def _to_pixels(values: NDArray[Any]) -> NDArray[np.uint8]:
    pixels: NDArray[np.uint8] = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return pixels


def _like(text: str, count: int, rng: np.random.Generator) -> str:
    """Text of the same shape with `count` characters: digits for digits, letters for letters."""
    model = (text or "0" * count) * (count // max(1, len(text)) + 1)
    first = int(rng.integers(max(1, len(text) - count + 1)))
    made = []
    for character in model[first : first + count]:
        choices = next((c for c in (_DIGITS, _LOWER, _UPPER) if character in c), None)
        made.append(character if choices is None else str(choices[int(rng.integers(len(choices)))]))
    return "".join(made) if "".join(made).strip() else "0" * count
