"""Whether a model takes the examples of a data set, and fits into memory: asked before anybody builds it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fedplug.api.errors import DataError, SetupError, cause_of
from fedplug.api.roles import DataSource, Declares, ModelSource
from fedplug.recipe.check import Complaint, Rules


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


def memory() -> int | None:
    """Bytes of memory that this machine has; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def too_large(model: ModelSource, holds: Declares) -> str | None:
    """Why a model does not fit into this machine's memory, in one sentence; None: it may, or only building it tells.

    Every run holds at least two copies of its float32 parameters: those that it begins with, and those that change.
    """
    there_is = memory()
    count = None if holds.shape is None else model.num_parameters(holds.shape, holds.num_classes or 1)
    if count is None or there_is is None or 8 * count <= there_is:
        return None
    return (
        f"{model.name} has {count:,} parameters, and two copies of them, which is the least, are "
        f"{8 * count:,} bytes: it does not fit into this machine's memory of {there_is:,} bytes; make it "
        "smaller (fewer or narrower layers, smaller inputs), or run it on another machine"
    )


def require(model: ModelSource, data: str, holds: Declares) -> None:
    """Refuses to build a model that does not fit; a run asks, as the service `fitting`.

    Raises:
        DataError: it takes no such examples.
        SetupError: it does not fit into memory.
    """
    if why := misfit(model, data, holds):
        raise DataError(why)
    if why := too_large(model, holds):
        raise SetupError(why)


def problems(rules: Rules) -> Iterator[Complaint]:
    """The complaint about the model for the shape that the data set declares, or that sites have agreed on."""
    use, data, split = rules.draft.known.get("model"), rules.draft.known.get("data"), rules.draft.split
    model, source = (rules.parts.get(each.name) if each else None for each in (use, data))
    if use is None or split is None or not isinstance(model, ModelSource) or not isinstance(source, DataSource):
        return
    try:
        holds = split.agreed.holds if split.agreed else source.declares
        why = misfit(model, source.name, holds) or too_large(model, holds)
    except Exception as error:
        why = f"component {use.use} fails to say what it refuses: {cause_of(error)}"
    if why:
        yield use.path, why
