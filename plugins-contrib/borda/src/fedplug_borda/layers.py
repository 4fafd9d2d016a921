"""Agree on whole layers: clients rank them, and a Borda count decides which are encrypted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, Field, Layout, Plan, Plans, Reads, Reveals, at_client
from numpy.typing import NDArray


class Layers(fedplug.Negotiation):
    """Encrypt whole layers, in the order of a Borda count over the clients' rankings.

    Each client ranks the model's L layers by a scorer's mean score. Its first layer gets L - 1 points, its last none.
    The server adds the points up and encrypts layers from the top, skipping any layer that would make the encrypted
    share exceed `ratio`. So the share varies with the winners, and is 0 where no layer is small enough.
    """

    class Options(fedplug.Options):
        ratio: float = Field(0.5, gt=0, lt=1, description="largest share of the model that may be encrypted")
        by: str | None = Field(None, description="scorer that ranks the layers; the recipe's first if unset")
        other_zone: str = Field("noised", description="zone of the layers that are not encrypted")

    options: Options

    @property
    def plans(self) -> Plans:
        """Two zones, the same at all clients. The clients' data decides which layers are in which."""
        return Plans(zones=frozenset({"encrypted", self.options.other_zone}))

    @property
    def reads(self) -> Reads:
        """Scores of scalars or of layers."""
        return Reads(by=self.options.by)

    def check(self, recipe: Any) -> list[str]:
        """Something must score the layers."""
        names = [use.name for use in recipe.score_parameters]
        if not names:
            return ["the ranking needs scores; add score_parameters: [{use: std.magnitude}]"]
        if self.options.by is not None and self.options.by not in names:
            return [f"by: {self.options.by!r} is not a scorer of this recipe; it has {names}"]
        return []

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Rankings in, count, chosen layers out."""
        count, rankings = len(facts.layout.layers), cohort.ask(self.rank)  # runs at every client
        for client_id, ranking in list(rankings.items()):
            if not is_ranking(ranking, count):  # a faulty client must not decide alone
                cohort.drop(client_id, f"its ranking is not the numbers 0 to {count - 1} in some order")
                del rankings[client_id]
        points = borda_points(rankings.values(), count)  # runs here, at the server
        cohort.tell(self.adopt, choose(points, layer_sizes(facts.layout), self.options.ratio))

    @at_client
    def rank(self, client: Client) -> NDArray[np.int64]:
        """This client's ballot: the layer numbers, highest mean score first; of equal ones the lower number first."""
        scores = client.scores_by(self.options.by)
        return np.argsort(-layer_means(scores, client.facts.layout), kind="stable")

    @at_client
    def adopt(self, client: Client, chosen: NDArray[np.int64]) -> None:
        """Sets the plan, the same at every client: the chosen layers are encrypted."""
        layout = client.facts.layout
        encrypted = np.zeros(layout.size, np.bool_)
        slices = list(layout.layer_slices().values())
        for layer in chosen:
            for part in slices[layer]:
                encrypted[part] = True
        client.plan = Plan.of(client.facts, self.options.other_zone, encrypted=encrypted)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Visible information that no epsilon covers."""
        ranked = "each client's order of the layers, sent as it is; it follows from the client's data"
        return [
            Reveals("layer rankings", ("server",), asked=("rank",), note=ranked),
            Reveals("mask", ("server", "client"), note="the chosen layers follow from the rankings"),
        ]

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"Borda count: layers up to {self.options.ratio:.0%} encrypted, the rest {self.options.other_zone}"


def layer_sizes(layout: Layout) -> NDArray[np.int64]:
    """Scalars of each layer, (L,)."""
    return np.array([sum(s.stop - s.start for s in slices) for slices in layout.layer_slices().values()])


def layer_means(scores: NDArray[np.float32], layout: Layout) -> NDArray[np.float64]:
    """Mean score of each layer, (L,), from scores given per scalar, (P,), or per layer, (L,)."""
    if len(scores) != layout.size:
        return scores.astype(np.float64)
    sums = [sum(float(scores[s].sum(dtype=np.float64)) for s in slices) for slices in layout.layer_slices().values()]
    return np.array(sums) / layer_sizes(layout)


def is_ranking(ranking: Any, count: int) -> bool:
    """Whether this is every number from 0 to `count - 1`, each once."""
    is_array = isinstance(ranking, np.ndarray) and ranking.dtype.kind in "iu"
    return is_array and np.array_equal(np.sort(ranking), np.arange(count))


def borda_points(rankings: Iterable[NDArray[np.int64]], count: int) -> NDArray[np.int64]:
    """Points of each of `count` layers: L - 1 for a first place, 0 for a last. An invalid ranking gives none."""
    points = np.zeros(count, np.int64)
    for ranking in rankings:
        if is_ranking(ranking, count):
            points[ranking] += np.arange(count)[::-1]
    return points


def choose(points: NDArray[np.int64], sizes: NDArray[np.int64], ratio: float) -> NDArray[np.int64]:
    """Layers from the most points down, each taken if it still fits into `ratio` of all scalars; ties: the first."""
    room, chosen = ratio * float(sizes.sum()), []
    for layer in np.argsort(-points, kind="stable"):
        if sizes[layer] <= room:
            room -= sizes[layer]
            chosen.append(int(layer))
    return np.array(chosen, np.int64)
