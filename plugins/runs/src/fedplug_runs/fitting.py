"""Whether a model takes the examples of a data set, and fits into memory, and whether the data set's files are there:
asked before anybody builds or loads them.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from pathlib import Path

from fedplug.api.data import ClientData, Dataset, Model
from fedplug.api.errors import DataError, SetupError, cause_of
from fedplug.api.roles import DataSource, Declares, ModelSource
from fedplug.recipe.check import Complaint, Rules
from fedplug.recipe.recipe import Recipe


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


_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux tells how much a container may have, by cgroups 2 and 1."""
_FILES = ("file", "path", "test_file")
"""Options that name a file or folder, absolute or inside the folder of data sets."""


def memory() -> int | None:
    """Bytes of memory that this machine, or its container, has; None where the system does not tell."""
    try:
        there_is = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    for file in _CONTAINER:
        with contextlib.suppress(OSError, ValueError):  # it is `max` where there is no limit
            return min(there_is, int(file.read_text(encoding="ascii")))
    return there_is


def missing_files(recipe: Recipe, root: str | None) -> Iterator[str]:
    """The files of the recipe's data sets that are not there, a sentence each; data at sites lie elsewhere.

    Args:
        recipe: whose data and public examples.
        root: the folder of data sets; None: the working directory.
    """
    uses = [] if recipe.data.agreed else [recipe.data]
    for use in (*uses, *([recipe.public] if recipe.public else [])):
        for option in _FILES:
            named = getattr(use.options, option, None)
            if isinstance(named, str) and not (place := Path(root or ".") / named).exists():
                yield (
                    f"{use.place}: {option}={named} of {use.use} is not there: {place} does not exist; correct it, or "
                    "name the folder of data sets: --data DIR, or FEDPLUG_DATA"
                )


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


def tried(model: Model, data: Dataset | ClientData, name: str) -> None:
    """Tries a model on one example of whole numbers: models that take numbers alone, and no tokens, fail at it.

    Raises:
        DataError: it fails.
    """
    if data.mean or data.train.inputs.dtype.kind == "f" or not len(data.train):
        return
    one = data.train.take(slice(0, 1))
    try:
        # Of a copy: a forward pass may change what a module keeps.
        copy.deepcopy(model).evaluate(one, ClientData(one, one, one, **data.about))
    except MemoryError:
        raise
    except Exception as error:
        raise DataError(
            f"the model fails at an example of {name}, whose inputs are {data.train.inputs.dtype}: {cause_of(error)}. "
            "Whole numbers are tokens; give a table as floats, .astype('float32'), or name a model of tokens, such as "
            "std.gpt"
        ) from error


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
