"""Tampered receipts: real receipts whose lines of text are tampered with, following a seed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import fedplug
import numpy as np
from fedplug import Declares, Field
from fedplug.api.errors import DataError
from fedplug.api.streams import stream

from fedplug_fedre import _crops, _files
from fedplug_fedre.tampering import CLASSES, FIELDS, KINDS, Kind, Sheet, TextBox, tamper

if TYPE_CHECKING:
    from fedplug import Dataset
    from fedplug.api.data import Examples
    from numpy.typing import NDArray

FORMATS = ("slip", "narrow", "medium", "wide")
"""Kinds of receipt, by the width of the paper: up to 0.43, 0.50, 0.56 times its height, and above."""
_WIDTHS = (0.43, 0.50, 0.56)
_WHAT = (
    "receipts of SROIE (ICDAR 2019, robust reading competition, rrc.cvc.uab.es) as annotations.jsonl, a JSON object "
    "a line with file, lines: [{box, text, field}], and the image files that it names"
)


class TamperingOptions(fedplug.Options):
    """What to tamper with, and how. `fedre.documents` has these options too."""

    train_count: int = Field(800, ge=1, description="training examples to make")
    test_count: int = Field(200, ge=1, description="test examples to make")
    untouched: float = Field(0.2, ge=0, lt=1, description="share of examples without tampering")
    tampering: Annotated[tuple[Kind, ...], Field(min_length=1)] = Field(
        KINDS, description="ways to tamper, equally likely: copy_move, splice, replace"
    )
    areas: int = Field(3, ge=1, le=20, description="most lines of text tampered with in an example; at least one")
    seed: int = Field(0, ge=0, description="seed of the data set, separate from the recipe's: same seed, same examples")
    task: Literal["pixels", "kinds"] = Field(
        "pixels",
        description="task of a model: pixels (which of them were tampered with), kinds (which kind of document an "
        "image shows: one label per image, as most attacks on gradients need)",
    )


class TamperedDocuments(fedplug.DataSource):
    """Gray images of documents, tampered with by a subclass following a seed.

    Attributes:
        formats: names of the kinds of document.
        fields: names of the privacy-sensitive fields.
    """

    formats: tuple[str, ...]
    fields: tuple[str, ...]
    options: Any

    @property
    def declares(self) -> Declares:
        """Gray images of the chosen size, with the classes of `task`."""
        size, pixels = self.options.size, self.options.task == "pixels"
        classes = CLASSES if pixels else self.formats
        return Declares(shape=(1, size, size), num_classes=len(classes), per="pixel" if pixels else "example")

    def dataset(self, train: Examples, test: Examples, tone: float) -> Dataset:
        """The data set with the answers of `task`; `tone` is the mean of the pixels."""
        from fedplug.api.data import Dataset

        if self.options.task == "kinds":
            train, test = (dataclasses.replace(part, targets=None) for part in (train, test))
            classes, kinds = self.formats, tuple[str, ...]()
        else:
            classes, kinds = CLASSES, self.formats
        return Dataset(
            train=train, test=test, classes=classes, kinds=kinds, mean=(tone,), std=(0.25,), region_names=self.fields
        )

    def stacked(self, sheets: Sequence[Sheet], formats: Sequence[int]) -> Examples:
        """Examples of these sheets, each of a format."""
        from fedplug.api.data import Examples

        return Examples(
            inputs=np.stack([sheet.image for sheet in sheets])[:, None],
            labels=np.array(formats, np.int64),
            targets=np.stack([sheet.mask for sheet in sheets]),
            regions=np.stack([sheet.regions for sheet in sheets]),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Receipt:
    """One real receipt: its file, pixels (H, W), lines of text, and format (index into `FORMATS`)."""

    file: str
    pixels: NDArray[np.uint8]
    boxes: tuple[TextBox, ...]
    format: int


class Receipts(TamperedDocuments):
    """Real receipts (SROIE) tampered with by copy-move, splice and text replacement, as square crops with masks.

    A substitute for the task in FedRE, Sec. 4, whose annotated T-SROIE is not public. Receipts are first split into
    training and test, every format in the same proportion. An example is a crop of one of them, tampered with. Labels
    are the receipt's format, so that a Dirichlet partition gives clients different formats. Nothing is written to disk.
    """

    class Options(TamperingOptions):
        """Where the receipts are and what to cut out."""

        path: str = Field("sroie_subset", description="the folder, absolute or inside the data folder")
        size: int = Field(128, ge=32, le=1024, description="width and height of the crops, in pixels")
        scale: float = Field(1.0, gt=0, le=4, description="receipts are scaled by this before they are cut")
        test_share: float = Field(0.25, gt=0, lt=1, description="share of the receipts that is for testing")

    formats, fields = FORMATS, FIELDS

    def load(self, root: str | None) -> Dataset:
        """Reads the receipts and makes the examples.

        Raises:
            DataError: there are no receipts, or fewer than four, or they are damaged.
        """
        chosen = self.options
        receipts = read_receipts(_files.folder_of(root, chosen.path, _WHAT), chosen.scale)
        train, test = split_receipts(receipts, chosen.test_share, chosen.seed)
        return self.dataset(
            self.examples(train, chosen.train_count, "train"), self.examples(test, chosen.test_count, "test"), 0.85
        )

    def examples(self, receipts: Sequence[Receipt], count: int, split: str) -> Examples:
        """`count` crops of these receipts, all receipts equally often. The first ones are the same for any count."""
        chosen, made = self.options, []
        turns = stream(chosen.seed, "fedre.receipts", split, "order")
        order = np.concatenate([turns.permutation(len(receipts)) for _ in range(-(-count // len(receipts)))])[:count]
        for number, turn in enumerate(order):
            rng = stream(chosen.seed, "fedre.receipts", split, number)
            other = receipts[(turn + 1 + int(rng.integers(max(1, len(receipts) - 1)))) % len(receipts)]
            sheet = crop(receipts[turn], chosen.size, rng)
            if rng.random() >= chosen.untouched:
                tamper(sheet, crop(other, chosen.size, rng), chosen.tampering, int(rng.integers(chosen.areas)) + 1, rng)
            made.append(sheet)
        return self.stacked(made, [receipts[turn].format for turn in order])


def crop(receipt: Receipt, size: int, rng: np.random.Generator) -> Sheet:
    """A random crop with text in view."""
    place = _crops.around(receipt.boxes, receipt.pixels.shape, size, rng)
    pixels = _crops.cut(receipt.pixels, place, size, fill=255)
    return Sheet(pixels, _crops.boxes_in_view(receipt.boxes, place, size))


def read_receipts(folder: Path, scale: float = 1.0) -> list[Receipt]:
    """The receipts of a folder, in the order of its annotations.

    Raises:
        DataError: something is missing or damaged, or there are fewer than four receipts.
    """
    file = folder / "annotations.jsonl"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}; expected {_WHAT}") from error
    receipts = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            name, rows = str(entry["file"]), [(row["box"], row.get("field"), row["text"]) for row in entry["lines"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{file}:{number} is not a receipt ({error!r}); expected {_WHAT}") from error
        pixels = _files.read_image(folder / name, name)
        boxes = tuple(_box(row, pixels.shape, scale, f"{file}:{number}") for row in rows)
        if not boxes:
            raise DataError(f"{file}:{number} lists no line of text for {name}; remove the line or complete it")
        wide = pixels.shape[1] / pixels.shape[0]
        receipts.append(Receipt(name, _files.scaled(pixels, scale), boxes, int(np.searchsorted(_WIDTHS, wide))))
    if len(receipts) < 4:
        raise DataError(f"{file} holds {len(receipts)} receipts, but 4 are needed to split them; expected {_WHAT}")
    return receipts


def _box(row: tuple[Any, Any, Any], shape: tuple[int, ...], scale: float, where: str) -> TextBox:
    """A line of text in whole pixels of the scaled receipt.

    Raises:
        DataError: the box is not inside the receipt, or the field is unknown.
    """
    box, field, text = row
    try:
        x0, y0, x1, y1 = (float(value) for value in box)
        index = len(FIELDS) - 1 if field is None else FIELDS.index(field)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{where}: box {box!r} with field {field!r} must be [x0, y0, x1, y1] with a field of {list(FIELDS[:-1])} "
            "or null"
        ) from error
    # Annotated quadrilaterals sometimes reach over the border by a pixel or two.
    if not (-3 <= x0 < x1 <= shape[1] + 3 and -3 <= y0 < y1 <= shape[0] + 3):
        raise DataError(f"{where}: box {box} must lie inside the image, {shape[1]} wide and {shape[0]} high")
    height, width = (max(1, round(n * scale)) for n in shape)
    left, top = min(max(0, round(x0 * scale)), width - 1), min(max(0, round(y0 * scale)), height - 1)
    right, bottom = (max(low + 1, min(n, round(v * scale))) for low, n, v in ((left, width, x1), (top, height, y1)))
    return TextBox(left, top, right, bottom, index, str(text))


def split_receipts(receipts: Sequence[Receipt], test_share: float, seed: int) -> tuple[list[Receipt], list[Receipt]]:
    """Training and test receipts: disjoint, and about `test_share` of each format is for testing."""
    order = stream(seed, "fedre.receipts", "split").permutation(len(receipts))
    by_format = sorted(order.tolist(), key=lambda index: receipts[index].format)  # stable: random within a format
    # Every 1/share-th of the list sorted by format, so that every format is split in the same proportion.
    marks = np.floor((np.arange(len(receipts)) + 0.5) * test_share + 0.5)
    chosen = set(np.array(by_format)[np.diff(np.concatenate([[0.0], marks])) > 0].tolist())
    if not 0 < len(chosen) < len(receipts):
        chosen = {by_format[0]} if not chosen else set(by_format[1:])
    train = [receipt for index, receipt in enumerate(receipts) if index not in chosen]
    return train, [receipt for index, receipt in enumerate(receipts) if index in chosen]
