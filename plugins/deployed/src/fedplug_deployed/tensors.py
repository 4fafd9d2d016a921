"""What other frameworks filter: tensor by tensor, in an order of names, of an update or of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from fedplug import Field, Shift

if TYPE_CHECKING:
    from fedplug import Operations, Public
    from fedplug.api.operations import Operation
    from numpy.typing import NDArray

Of = Annotated[
    Literal["update", "weights"],
    Field(
        description="what is filtered: update: the difference from the global model, NVFlare's WEIGHT_DIFF; weights: "
        "the client's model, as with NVFlare's params_transfer_type FULL, its default"
    ),
]


def filtering(of: str, *operations: Operation) -> Operations:
    """The operations on a client's update, or on its model; what is sent is a difference either way.

    No `Shift.model(-1)`, which refuses a model that is large next to the noise, to keep the credit for others' noise: a
    mechanism of a plugin has none.
    """
    return operations if of == "update" else (Shift.model(1), *operations, Shift(without_model))


def without_model(public: Public) -> NDArray[np.float32]:
    """Minus the global model, (n,)."""
    assert public.start is not None  # every client has it
    return -public.start




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
