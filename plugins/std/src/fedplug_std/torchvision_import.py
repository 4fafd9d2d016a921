"""Imports torchvision, even if its compiled operators do not fit the installed torch.

The package index offers torchvision for a CUDA build of torch. With a CPU build its compiled library cannot be loaded,
and the import fails at the description of the operator `nms`, which data sets and models do not use. Declaring the two
operators that the import describes is enough; detection operators stay unavailable.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

_SYMPTOM = "operator torchvision::nms does not exist"


@functools.cache
def torchvision() -> ModuleType:
    """The torchvision package, with `datasets`, `models` and `transforms` imported."""
    try:
        return _import()
    except RuntimeError as error:
        if _SYMPTOM not in str(error):
            raise
    _declared_operators()
    return _import()


@functools.cache
def _declared_operators() -> Any:
    # The cache keeps the object alive: torch forgets the operators of a library that is collected.
    import torch

    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for name in ("nms", "qnms"):
        library.define(f"{name}{signature}")  # type: ignore[no-untyped-call]
    return library


def _import() -> ModuleType:
    import torchvision

    return torchvision  # type: ignore[no-any-return]
