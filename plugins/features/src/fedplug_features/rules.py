"""Rules for recipes (`fedplug.rules`): features that cannot be of such inputs, or need not be alike at all sites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedplug.api.errors import DataError

from fedplug_features.base import Features


def problems(rules: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """No images in a transform of images, more directions than numbers, texts, and what nothing pins at sites."""
    split = rules.draft.split
    apart = split is not None and split.at == "sites"
    for use, part in rules.defined:
        path = use.path
        while isinstance(part, Features):
            if apart and (named := part.unpinned):
                yield (
                    path,
                    "data is at sites, and nobody would notice if one of them had something else in place of "
                    f"{named[0]}; write sha256: {'0' * 64}, and a site that loads it says which it is",
                )
            if said := part.misplaced():
                yield path, said
            elif (shape := part.of.declares.shape) is not None:
                try:
                    part.shape(shape)
                except DataError as error:
                    yield path, str(error)
            part, path = part.of, (*path, "of")
