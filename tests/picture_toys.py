"""Components that draw, log and assess; in a separate module, because worker processes import them by name."""

from __future__ import annotations

from typing import Any, Literal

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, Field, GroundTruth, Plan, Plans, Reveals, at_client
from fedplug.api.blocks import CLEAR, Scores
from toy_base import Toy


class Draws(Toy, fedplug.Scorer, fedplug.Negotiation):
    """Draw the update of some clients, and log the number of clients."""

    plans = Plans(zones=frozenset({CLEAR}))

    class Options(fedplug.Options):
        """The fault."""

        how: Literal["well", "nan"] = Field("well", description="what goes wrong")

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """A histogram of the update at two clients in every round; a box in the first."""
        values = np.full(3, np.nan) if self.options.how == "nan" else np.sort(client.update)[:3]
        if client.client_id in (1, 2):
            counts, edges = np.histogram(client.update, bins=8)
            panel = {"edges": edges, "counts": counts, "mark": 0.0}
            client.figures["draws.update"] = {"kind": "histogram", "title": "update", "panels": [panel]}
            if facts.round == 0:
                box = {"labels": ["w"], "boxes": [[*values, values[-1], values[-1]]]}
                client.figures["draws.box"] = {"kind": "box", "title": "smallest", "panels": [box]}
        client.log["draws.client"] = float(client.client_id)
        client.log["draws.both"] = 1.0
        return np.zeros(facts.layout.size, np.float32)

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Everything in the clear. The server logs in the first round only."""
        cohort.tell(self.choose)
        if facts.round == 0:
            cohort.server.log["draws.server"] = np.float32(len(cohort))
            cohort.server.log["draws.both"] = 2.0
        panel = {"labels": ["clients"], "boxes": [[len(cohort)] * 5]}
        cohort.server.figures["draws.server"] = {"kind": "box", "title": "clients", "panels": [panel]}

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        client.plan = Plan.single(CLEAR, client.facts.layout.size, client.facts.zones)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Nobody is asked anything."""
        return []


class Judges(Toy, fedplug.Groups):
    """Form no group, and return its input as numbers, or fail."""

    class Options(fedplug.Options):
        """Whether it fails."""

        fails: bool = Field(False, description="raise instead of an assessment")

    def form_groups(self, cohort: Cohort, facts: Facts) -> None:
        """None."""

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Nobody is asked anything."""
        return []

    def assess(self, server: Any, truth: GroundTruth) -> dict[str, float]:
        """The input."""
        if self.options.fails:
            raise ZeroDivisionError("by the toy")
        return {
            "classes": len(truth.classes),
            "examples": np.float64(sum(map(sum, truth.examples.values()))),
            "clients": len(truth.examples),
            "first": min(truth.examples),
            "categories": -1.0 if truth.categories is None else sum(truth.categories),
            "remembered": server.weights[0],
        }


class Known(Toy, fedplug.Partition):
    """Deal the examples out in turn. Odd and even clients belong to two categories."""

    def assign(self, labels: Any, num_clients: int, rng: Any) -> list[Any]:
        """Example i goes to client i modulo K."""
        return [np.arange(k, len(labels), num_clients) for k in range(num_clients)]

    def categories(self, num_clients: int) -> list[int]:
        """0 and 1 in turn."""
        return [k % 2 for k in range(num_clients)]
