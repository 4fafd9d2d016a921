"""MaskCrypt's scores: the loss in knowledge of an adversary who sees only the clear part of a client's uploads.

Hu and Li, "MaskCrypt: Federated Learning With Selective Homomorphic Encryption" (IEEE TDSC 2024,
doi:10.1109/TDSC.2024.3392424). The exact form is that of the authors' code in TL-System/plato,
examples/secure_aggregation/maskcrypt: maskcrypt_client.py (`_compute_mask`), maskcrypt_trainer.py (the gradient),
maskcrypt_utils.py and maskcrypt_callbacks.py (the estimate, and when it is brought up to date).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Look
from fedplug.api.blocks import ENCRYPTED, RETAINED
from fedplug_std.per_sample import mean_gradient
from fedplug_std.replies import unpacked

if TYPE_CHECKING:
    from fedplug import Block, Client, Facts, Known, Operations, Recipe
    from fedplug.api.blocks import Scores
    from numpy.typing import NDArray


class MaskCryptPriority(fedplug.Scorer, fedplug.Protector):
    """Score a scalar by the cost of its exposure: (w_exposed - w_latest) * gradient (MaskCrypt).

    w_latest is the local model after training, the gradient is that of the client's mean loss there, and w_exposed is
    an adversary's estimate of this client's model, from everything but the encrypted zone. To first order, the sum of
    the products says how much worse the adversary's model is than the client's. So the largest should be hidden.

    Use it under `score_parameters` and, by its name, last in the chain of every zone that is not encrypted. There it
    records what leaves the client, and changes nothing.
    """

    def check(self, recipe: Recipe) -> list[str]:
        """The estimate must include everything that leaves unencrypted."""
        deaf = [
            zone for zone, chain in recipe.protect.items()
            if zone not in (ENCRYPTED, RETAINED) and not (chain and chain[-1].name == self.name)
        ]  # fmt: skip
        if self.name not in [use.name for use in recipe.score_parameters]:
            return [
                f"it follows what it scores, and scores nothing here; write score_parameters: [{{use: {self.name}}}], "
                "or remove it from protect"
            ]
        return [
            f"it does not hear what zone {zone} exposes, and its estimate would be stale; write {self.name} last in "
            f"protect.{zone}"
            for zone in deaf
        ]

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """(w_exposed - w_latest) * g, float32 (P,); the highest are the most urgent to encrypt.

        Raises:
            ValueError: the client has not trained in this round.
        """
        if client.update is None:
            raise ValueError("the priorities compare the local model with what is exposed; the client has not trained")
        exposed, memory = self.exposed(client), client.memory(self)
        memory.update(exposed=exposed, seen=np.packbits(np.zeros(len(exposed), np.bool_)), round=facts.round)
        # The authors' code differentiates in training mode. Here batch norm and dropout are as in evaluation, so that
        # the gradient depends neither on batches nor on chance.
        gradient = mean_gradient(client.model, client.data.train, client.data, vector=client.local)
        return (exposed - client.local) * gradient

    def protect(self, known: Known, facts: Facts) -> Operations:
        """It records what leaves, and passes it on unchanged.

        Raises:
            Misplaced: the values are encrypted, so there is nothing to record.
        """
        known.before("encryption", "what is encrypted exposes nothing; leave it out of this chain")
        return (Look(self.take_down),)

    def take_down(self, block: Block, client: Client, facts: Facts) -> None:
        """Records what this zone shows of the local model, noise included."""
        assert client.plan is not None  # nobody is asked for an upload without one
        memory, where = client.memory(self), client.plan.positions(block.zone)
        exposed = memory["exposed"].copy()
        exposed[where] = client.start[where] + block.plain()
        seen = unpacked(memory["seen"], len(exposed))
        seen[where] = True
        memory.update(exposed=exposed, seen=np.packbits(seen))

    def exposed(self, client: Client) -> NDArray[np.float32]:
        """The adversary's estimate of this client's model when a round begins, (P,).

        It starts as the global model of the client's first round, which is public. Then, wherever the client's last
        upload was readable, the aggregate was readable too, and replaces the upload.
        """
        memory = client.memory(self)
        exposed: NDArray[np.float32] = memory.get("exposed", client.vector)
        if memory.get("round") == client.facts.round - 1:  # otherwise unknown here
            exposed = np.where(unpacked(memory["seen"], len(exposed)), client.vector, exposed)
        return exposed

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "(exposed - latest) * gradient; exposed is what went out readable so far"
