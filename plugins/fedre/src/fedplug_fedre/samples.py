"""The examples on which layers are scored: examples with a sensitive region, or random ones where there are none."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Examples
from fedplug.api.data import PublicData
from fedplug.api.errors import DataError

from fedplug_fedre.preferences import marked, plane

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_fedre.preferences import Names, Preference

_AT_ONCE = 64
"""Number of examples whose regions are looked up at once."""


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """Examples and a model to score.

    Attributes:
        examples: at most `samples`, each with a region.
        regions: bool (n, H, W).
        data: its `mean` and `std` standardise the inputs.
        vector: float32 (P,), the model at which to score.
    """

    examples: Examples
    regions: NDArray[np.bool_]
    data: Any
    vector: NDArray[np.float32]

    def digest(self, *context: object) -> bytes:
        """A digest of everything that determines the scores, given a context for the rest."""
        digest = hashlib.blake2b(repr((context, self.data.mean, self.data.std)).encode(), digest_size=32)
        for array in (self.examples.inputs, self.examples.answers, np.packbits(self.regions), self.vector):
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()


def sensitive(
    preference: Preference, examples: Examples, data: Names, root: str | None, order: NDArray[np.int64], count: int
) -> tuple[Examples, NDArray[np.bool_]]:
    """The first `count` examples in an order that have a sensitive region, or all that have one, and their regions.

    Args:
        preference: which regions are sensitive.
        examples: all of them.
        data: names of the labels and fields.
        root: the folder of the preference's files.
        order: places in `examples`.
        count: at most so many.

    Raises:
        DataError: no example has a region, or as `marked`.
    """
    places, regions = [order[:0]], [np.zeros((0, *plane(examples.inputs)), np.bool_)]
    for start in range(0, len(order), _AT_ONCE):
        part = order[start : start + _AT_ONCE]
        found = marked(preference, examples.take(part), data, root, places=part)
        has_one = found.any((1, 2))
        places.append(part[has_one])
        regions.append(found[has_one])
        if sum(map(len, places)) >= count:
            break
    if not any(map(len, places)):
        raise DataError(
            f"the preference ({preference.marks}) marks no pixel in any of {len(examples)} examples; name regions that "
            "they have"
        )
    return examples.take(np.concatenate(places)[:count]), np.concatenate(regions)[:count]


def calibration_data(like: Any, count: int, rng: np.random.Generator) -> PublicData:
    """Random images in place of public examples: uniform values with random answers.

    Args:
        like: the `ClientData` whose shape, classes and scaling they have.
        count: number of images.
        rng: a stream that every party has.
    """
    shape, kinds = (count, *like.shape), like.kinds or like.classes
    inputs = rng.integers(0, 256, shape, np.uint8)
    labels = rng.integers(0, len(kinds), count)
    targets = None
    if like.train.targets is not None:
        targets = rng.integers(0, len(like.classes), (count, *like.shape[1:]), np.uint8)
    examples = Examples(inputs, labels, targets)
    return PublicData(examples, **(like.about | {"region_names": ()}))
