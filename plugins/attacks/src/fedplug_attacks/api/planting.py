"""A malicious server's planted models, which make the clients' updates reveal more.

The architecture stays as the recipe has it, since every party checks the recipe's digest; only the weights are chosen.
Clients train on them as on any global model, and protect their updates as usual.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedplug.api.blocks import Layout
    from numpy.typing import NDArray

    from fedplug_attacks.api.view import Attacker, View


class Plants(abc.ABC):
    """An attack that chooses the models that clients receive, for the adversary `malicious_server`.

    Attributes:
        for_each_target: whether it plants other models for each target, which takes a probe for each.
    """

    for_each_target: bool = False

    @abc.abstractmethod
    def plant(self, view: View, attacker: Attacker) -> NDArray[np.float32] | Mapping[int, NDArray[np.float32]]:
        """The model to hand out, (P,); or, by client, one for each of the `attacker.facts.num_clients`.

        Args:
            view: of the server before clients train: the honest `vector` and `model`, and no update. `target` is None,
                or with `for_each_target` the client that is attacked. When the attack is called afterwards,
                `view.vector` is the model that its target received.
            attacker: with the public facts.

        Raises:
            ViewError: nothing can be planted in a model like this; the attack is then not applicable.
        """


def to_target(planted: NDArray[np.float32], target: int, attacker: Attacker) -> dict[int, NDArray[np.float32]]:
    """The planted model for the target, and zeros for all others: a sum of updates is then the target's own.

    Of a model of zeros no parameter but the last bias has a gradient (Pasquini et al. 2022, Eluding Secure Aggregation
    in Federated Learning via Model Inconsistency, Sec. 4, who shut one layer).
    """
    zeros = np.zeros_like(planted)
    return {client_id: planted if client_id == target else zeros for client_id in range(attacker.facts.num_clients)}


def parameter(vector: NDArray[np.float32], layout: Layout, name: str) -> NDArray[np.float32]:
    """A parameter of a model (P,) by its name, in its shape; writing to it changes the vector."""
    found = next(each for each in layout.parameters if each.name == name)
    return vector[found.slice].reshape(found.shape)
