"""Rules for recipes (`fedplug.rules`): features that there are none of, where the shape of an input is known before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedplug.api.errors import DataError

from fedplug_features.base import Features, Fitted


def problems(rules: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """A transform of what is no image, more directions than numbers, text where numbers are."""
    split = rules.draft.split
    apart = split is not None and split.at == "sites"
    for use, part in rules.defined:
        path = use.path
        while isinstance(part, Features):
            if apart and isinstance(part, Fitted) and part.options.sha256 is None:
                yield (
                    (*path, "fitted_on"),
                    f"data is at sites, and nobody would notice if one of them had another {part.fitted_on.name}; "
                    f"write sha256: {'0' * 64}, and a site that loads it says which it is",
                )
            if said := part.misplaced():
                yield path, said
            elif (shape := part.of.declares.shape) is not None:
                try:
                    part.shape(shape)
                except DataError as error:
                    yield path, str(error)
            part, path = part.of, (*path, "of")
