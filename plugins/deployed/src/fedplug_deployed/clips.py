"""Flower's clip of a whole update, in the arithmetic of its code.

Source: flwr 1.42.0, flwr/supercore/differential_privacy.py: `get_norm`, `clip_inputs_inplace`, which
`fixedclipping_mod`, `adaptiveclipping_mod`, `LocalDpMod` and the strategies of central differential privacy share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fedplug import Clip, Post

from fedplug_deployed.tensors import in_zone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplug import Operations, Public
    from numpy.typing import NDArray

NO_CIPHERTEXTS = "ciphertexts cannot be clipped; put {name} before the encryption"


def length(tensors: Sequence[NDArray[np.float32]]) -> float:
    """The L2 norm of all tensors, as Flower computes it: in float32, tensor by tensor."""
    lengths = [np.linalg.norm(tensor) for tensor in tensors]
    return float(np.sqrt(sum(each**2 for each in lengths)))


def scaling(tensors: Sequence[NDArray[np.float32]], norm: float) -> float:
    """The factor, at most 1, by which an update is multiplied; 1 for an update of 0, where Flower divides by 0."""
    found = length(tensors)
    return min(1.0, norm / found) if found else 1.0


def flat_clip(norm: float) -> Operations:
    """Flower's clip to an L2 norm, and the core's, which guarantees the norm that float32 may exceed in its last bits.

    Values that Flower leaves within the norm pass the core's clip unchanged, bit for bit.
    """

    def clipped(values: NDArray[np.float32], public: Public) -> NDArray[np.float32]:
        factor = scaling([values[where] for _, where in in_zone(public, len(values))], norm)
        return values * np.float32(factor)

    return Post(clipped), Clip(norm)
