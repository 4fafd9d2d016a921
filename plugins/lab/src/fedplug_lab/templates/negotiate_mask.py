"""Sketch: a negotiation."""

from __future__ import annotations

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, Field, Plan, Plans, Reveals, at_client
from numpy.typing import NDArray


class Thing(fedplug.Negotiation):
    """Noise the layers that move most at the clients together, and send the rest in the clear."""

    plans = Plans(zones=frozenset({"noised", "clear"}))

    class Options(fedplug.Options):
        layers: int = Field(1, ge=1, description="how many layers get noise")

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Runs at the server: asks the clients, then tells them what was agreed."""
        votes = np.sum(list(cohort.ask(self.vote).values()), axis=0)
        cohort.tell(self.adopt, np.argsort(-votes, kind="stable")[: self.options.layers])

    @at_client
    def vote(self, client: Client) -> NDArray[np.int64]:
        """1 for each layer that this client wants noised, (L,)."""
        assert client.update is not None, "negotiation comes after training"
        layers = client.facts.layout.layer_slices().values()
        moved = [np.mean(np.concatenate([np.abs(client.update[part]) for part in parts])) for parts in layers]
        places = np.argsort(np.argsort(-np.array(moved), kind="stable"), kind="stable")
        wanted: NDArray[np.bool_] = places < self.options.layers
        return wanted.astype(np.int64)

    @at_client
    def adopt(self, client: Client, chosen: NDArray[np.int64]) -> None:
        """Sets the plan of this round, the same at every client."""
        layout = client.facts.layout
        noised, slices = np.zeros(layout.size, np.bool_), list(layout.layer_slices().values())
        for part in (part for layer in chosen for part in slices[layer]):
            noised[part] = True
        client.plan = Plan.of(client.facts, "clear", noised=noised)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """What becomes visible and no epsilon covers; every method that clients answer must be in it."""
        return [
            Reveals("votes", ("server",), asked=("vote",), note="sent as they are; they follow from the data"),
            Reveals("mask", ("server", "client"), note="the chosen layers follow from the votes"),
        ]
