"""Privacy preferences: which pixels of its images a client finds sensitive (FedRE Sec. 3.1 and 3.2.1).

A preference names regions in one of five ways, or leaves the choice to the data: the privacy-sensitive fields that the
data set marks, or else whole images. Coordinates are pixels of the images as the model receives them: x to the right, y
down, from 0. A box [x0, y0, x1, y1] holds x0 <= x < x1 and y0 <= y < y1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

import fedplug
import numpy as np
from fedplug import Examples, Field
from fedplug.api.errors import DataError
from pydantic import AfterValidator, model_validator

from fedplug_fedre.region_files import boxes_in, mask_in, ordered_box

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _inside(path: str) -> str:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts:
        raise ValueError(f"path {path!r} must lie inside the folder of data sets, such as preferences/client0.json")
    return path


Box = Annotated[tuple[int, int, int, int], AfterValidator(ordered_box)]
Inside = Annotated[str, AfterValidator(_inside)]


class Preference(fedplug.Options):
    """The pixels that a client finds sensitive; at most one of the options is given.

    Without any option, the default applies: the fields that the data marks, or whole images where it marks none.
    """

    box: Box | None = Field(None, description="[x0, y0, x1, y1], the same in every image; x1 and y1 are outside")
    boxes: Inside | None = Field(
        None, description="file with the boxes of each image, .json or .csv, in the client's folder of data sets"
    )
    kinds: dict[str, Box | list[Box]] | None = Field(
        None, description="box or boxes of each kind of image (document format, or class), by its name", min_length=1
    )
    mask: Inside | None = Field(
        None, description="file with one mask for all images, .png or .npy: sensitive where it is not 0"
    )
    fields: tuple[str, ...] | None = Field(
        None, description="names of fields that the data marks, such as [company, date]; [all] for every field",
        min_length=1,
    )  # fmt: skip

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"a preference is given by one of {', '.join(type(self).model_fields)}, not by {given}")
        return self

    @property
    def marks(self) -> str:
        """The way the regions are given: the name of its option, or `default`."""
        return next((name for name in type(self).model_fields if getattr(self, name) is not None), "default")

    @property
    def in_file(self) -> bool:
        """Whether only the client knows it, because the recipe names a file in the client's own folder."""
        return self.boxes is not None or self.mask is not None


class Names(Protocol):
    """The names of the labels and the fields of examples: a `ClientData`, a `PublicData` or a `Dataset`."""

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def kinds(self) -> tuple[str, ...]: ...
    @property
    def region_names(self) -> tuple[str, ...]: ...


def marked(
    preference: Preference, examples: Examples, data: Names, root: str | None, *,
    places: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:  # fmt: skip
    """The sensitive pixels of each example, bool (n, H, W). Some examples, or all, may have none.

    Args:
        preference: which they are.
        examples: (n, C, H, W) images, with the data's marks, or (n, W) rows of a table, whose columns are the pixels.
        data: names of the labels and fields.
        root: the folder in which `boxes` and `mask` files lie.
        places: (n,), the number of each example in a `boxes` file; default 0, 1, ...

    Raises:
        DataError: a file is missing or does not parse, a box or mask does not fit the images, or the data has no such
            kind or field, or is neither images nor a table.
    """
    count, (height, width) = len(examples), plane(examples.inputs)
    regions = np.zeros((count, height, width), np.bool_)
    if preference.box is not None:
        _fill(regions, [preference.box], "box")
    elif preference.boxes is not None:
        path = _file(root, preference.boxes, "boxes")
        by_image, names = boxes_in(path), data.kinds or data.classes
        _known(by_image, names, str(path))
        numbers = np.arange(count) if places is None else places
        for region, number, label in zip(regions, numbers, examples.labels, strict=True):
            for key in (str(number), names[label]):
                _fill(region, by_image.get(key, []), f"{path}, image {key}")
    elif preference.kinds is not None:
        names = data.kinds or data.classes
        _known(preference.kinds, names, "kinds", numbers=False)
        for name, found in preference.kinds.items():
            inside = np.zeros((height, width), np.bool_)
            _fill(inside, [found] if isinstance(found, tuple) else found, f"kinds.{name}")
            regions[examples.labels == names.index(name)] = inside
    elif preference.mask is not None:
        regions[:] = mask_in(_file(root, preference.mask, "mask"), (height, width))
    elif preference.fields is not None:
        regions[:] = _fields(preference.fields, examples, data)
    else:
        regions[:] = True if examples.regions is None else examples.regions > 0
    return regions


def _file(root: str | None, name: str, option: str) -> Path:
    if root is None:
        raise DataError(
            f"{option}: {name!r} is in the client's folder of data sets, and none is known; name one with --data or "
            "FEDPLUG_DATA"
        )
    path = Path(root).expanduser() / name
    if not path.is_file():
        raise DataError(f"{option}: there is no file {path}; put it there, or correct the path in the preference")
    return path


def plane(inputs: NDArray[Any]) -> tuple[int, int]:
    """The height and width of examples in which regions lie; a row of a table is one high.

    Raises:
        DataError: they are neither images (n, C, H, W) nor rows of numbers (n, W).
    """
    if inputs.ndim == 4:
        return inputs.shape[2], inputs.shape[3]
    if inputs.ndim == 2 and inputs.dtype.kind != "i":
        return 1, inputs.shape[1]
    raise DataError(
        f"FedRE's regions lie in images or in rows of a table, and these examples are {inputs.dtype} of shape "
        f"{inputs.shape[1:]}; choose other data, or noise all layers alike with std.clip and std.gaussian"
    )


def _fill(region: NDArray[np.bool_], boxes: list[tuple[int, int, int, int]], place: str) -> None:
    """Marks boxes in (..., H, W)."""
    height, width = region.shape[-2:]
    for box in boxes:
        x0, y0, x1, y1 = box
        if x1 > width or y1 > height:
            raise DataError(
                f"{place}: the region {list(box)} ([x0, y0, x1, y1]) lies outside the image, which is {width} wide and "
                f"{height} high; x1 must be <= {width} and y1 <= {height}"
            )
        region[..., y0:y1, x0:x1] = True


def _known(named: Mapping[str, Any], names: tuple[str, ...], place: str, numbers: bool = True) -> None:
    """Every key is the name of a kind or, where images have numbers, a number."""
    for key in named:
        if key not in names and not (numbers and key.isdecimal()):
            also = "the number of an image or " if numbers else ""
            raise DataError(f"{place}: {key!r} must be {also}a kind of image of the data set: {', '.join(names)}")


def _fields(fields: tuple[str, ...], examples: Examples, data: Names) -> NDArray[np.bool_]:
    if examples.regions is None:
        raise DataError(
            f"fields: {list(fields)}: this data set marks no privacy-sensitive fields; give a box, boxes, kinds or a "
            "mask instead, or use a data set of documents"
        )
    unknown = [name for name in fields if name not in (*data.region_names, "all")]
    if unknown:
        raise DataError(f"fields: {unknown} must be among {', '.join(data.region_names)}, or all")
    if "all" in fields:
        return examples.regions > 0
    found: NDArray[np.bool_] = np.isin(examples.regions, [1 + data.region_names.index(name) for name in fields])
    return found
