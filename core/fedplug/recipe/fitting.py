"""Whether the model takes the examples of the data set, as far as both say so before anything is loaded or built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fedplug.api.errors import cause_of
from fedplug.api.outer_roles import DataSource, ModelSource
from fedplug.api.role_records import Declares

if TYPE_CHECKING:
    from fedplug.api.base import Component
    from fedplug.recipe.reader import Draft
    from fedplug.recipe.yaml_source import KeyPath


def misfit(model: ModelSource, data: str, holds: Declares) -> str | None:
    """Why a model takes no examples of a data set, in one sentence; None: it does, or only building it tells.

    Args:
        model: is asked.
        data: what the data set is called.
        holds: what it is known to hold.
    """
    if holds.shape is None:
        return None
    why = model.refuses(holds.shape, holds.num_classes, holds.per)
    size = "x".join(map(str, holds.shape))
    return f"{model.name} cannot take the examples of {data}, which have the shape {size}: {why}" if why else None


def model_problems(draft: Draft, parts: Mapping[str, Component]) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong with the model for the shape that the data set declares, or that sites have agreed on."""
    use, data = draft.known.get("model"), draft.known.get("data")
    if use is None or data is None or draft.split is None:
        return
    model, source = parts.get(use.name), parts.get(data.name)
    if not isinstance(model, ModelSource) or not isinstance(source, DataSource):
        return
    agreed = draft.split.agreed
    try:
        why = misfit(model, source.name, agreed.holds if agreed else source.declares)
    except Exception as error:
        why = f"component {use.use} fails to say what it refuses: {cause_of(error)}"
    if why:
        yield use.path, why
