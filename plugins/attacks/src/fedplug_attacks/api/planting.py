"""What a malicious server does: it hands out a model of its making, so that the updates made from it tell more.

The architecture stays as the recipe has it, since every party checks the recipe's digest; only the weights are chosen.
Clients train on them as on any global model, and protect their updates as ever.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

import numpy as np

from fedplug_attacks.api.needs import FIRST_WEIGHT, role

if TYPE_CHECKING:
    from fedplug import Context
    from fedplug.api.blocks import Layout
    from numpy.typing import NDArray

    from fedplug_attacks.api.view import View


class Plants(abc.ABC):
    """An attack that chooses the model which clients are handed, for the adversary `malicious_server`."""

    @abc.abstractmethod
    def plant(self, view: View, ctx: Context) -> NDArray[np.float32]:
        """The model to hand out, (P,).

        Args:
            view: of the server before clients train: the honest `vector` and `model`, and no update. When the attack
                is called afterwards, `view.vector` is what this gave.
            ctx: the public facts.
        """


def signs(planted: NDArray[np.float32], honest: NDArray[np.float32], layout: Layout) -> dict[str, float]:
    """What any client can tell of a model that it is handed, from the one before and without data.

    Args:
        planted: (P,), as it was handed out.
        honest: (P,), the model that the client had before.
        layout: of the model.

    Returns:
        `planted_change`: norm of the change relative to that of the model before. `planted_equal_rows`: the share of
        rows of the first fully connected layer that equal another one, which no training makes.
    """
    change = float(np.linalg.norm(planted.astype(np.float64) - honest) / max(float(np.linalg.norm(honest)), 1e-12))
    found = {"planted_change": change}
    name = role(layout, FIRST_WEIGHT)
    if name is not None:
        rows = parameter(planted, layout, name)
        found["planted_equal_rows"] = 1.0 - (len(np.unique(rows, axis=0)) - 1) / max(len(rows) - 1, 1)
    return found


def parameter(vector: NDArray[np.float32], layout: Layout, name: str) -> NDArray[np.float32]:
    """A parameter of a model (P,) by its name, in its shape; writing to it changes the vector."""
    found = next(each for each in layout.parameters if each.name == name)
    return vector[found.slice].reshape(found.shape)
