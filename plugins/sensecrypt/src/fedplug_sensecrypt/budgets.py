"""SenseCrypt's encryption budgets (Sec. 3.2): the share of the model that each device can encrypt in time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def budgets(bandwidth: ArrayLike, speed: ArrayLike) -> NDArray[np.float64]:
    """alpha_i = min(r_i / max r, v_i / max v), over the largest of these; the best device gets 1.

    The budgets are relative. They do not say that any device encrypts in time, only that all take equally long, as far
    as the scarcer of the two resources decides.

    Args:
        bandwidth: r, of each client of a group, > 0, in any unit, (n,).
        speed: v, of each client, > 0, in any unit, (n,).

    Returns:
        float64 (n,), in (0, 1].
    """
    r, v = np.asarray(bandwidth, np.float64), np.asarray(speed, np.float64)
    capability = np.minimum(r / r.max(), v / v.max())
    return np.asarray(capability / capability.max(), np.float64)
