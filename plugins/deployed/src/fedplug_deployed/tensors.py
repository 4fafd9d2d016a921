"""The model's tensors in the values of a zone: other frameworks compute tensor by tensor, in an order of names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedplug import Public


def in_zone(public: Public, size: int) -> list[tuple[str, slice]]:
    """The name of each tensor with values among the `size` of a zone, and where they are, in the order of the model.

    All values are one tensor without a name if this party does not know where they lie in the model.
    """
    parameters, where = public.layout.parameters, public.positions
    if where is None and size != public.layout.size:
        return [("", slice(0, size))]
    ends = [parameter.slice.stop for parameter in parameters]
    if where is not None:
        ends = np.searchsorted(where, ends).tolist()
    parts = zip(parameters, [0, *ends[:-1]], ends, strict=True)
    return [(parameter.name, slice(start, stop)) for parameter, start, stop in parts if stop > start]
