"""FLTrust: the server trains on a few public examples, and trusts updates that point the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fedplug
from fedplug import Client, ClientData, Facts, Known, Operations, WeightedSum
from fedplug.api.errors import ProtectionError
from fedplug.api.roles import Trainer, Wants

from fedplug_robust.aggregators import require_comparable
from fedplug_robust.shares import note_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from fedplug import Block, Recipe, Server
    from numpy.typing import NDArray

    Shares = dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]


class FlTrust(fedplug.Aggregator):
    """Weigh updates by their cosine to that of public examples, scaled to its norm (FLTrust, Cao et al. 2021).

    The server trains the recipe's trainer on `public`, whatever those who lie do: half of the clients and more may. It
    needs values in the clear, zone by zone, and no client gets credit for the noise of others.
    """

    wants = Wants(model=True, positions=True)

    class Options(fedplug.Options):
        """Nothing: the examples are the recipe's."""

    options: Options

    def check(self, recipe: Recipe) -> list[str]:
        """There are public examples, and the server can keep the model."""
        if recipe.public is None and not recipe.data.public:
            return ["it trains on public examples at the server; set some aside, such as data: {public: 100}"]
        return []

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """Algorithm 2, for one zone.

        Raises:
            Misplaced: as for `Robust`.
        """
        require_comparable(self, known, facts)
        return (WeightedSum(by=self.weigh),)

    def weigh(self, blocks: Mapping[int, Block], server: Server, facts: Facts) -> Shares:
        """What each client's update counts in each layer, and what that adds to the divisor (eqs. 2 to 4).

        Where no update points the way of the server's, the model stays as it is.
        """
        import numpy as np

        from fedplug_robust import rules

        root, ids = self._root(server, facts), sorted(blocks)
        where = blocks[ids[0]].positions
        updates = np.array([blocks[client_id].plain() for client_id in ids], np.float64)
        factors, scores = rules.trust(updates, root if where is None else root[where])
        if not scores.any():
            scores = np.ones(len(ids))
        note_shares(self, server, dict(zip(ids, (updates.shape[1] * factors).tolist(), strict=True)))
        layers = np.ones(len(facts.layout.layers))
        return {c: (factor * layers, score * layers) for c, factor, score in zip(ids, factors, scores, strict=True)}

    def _root(self, server: Server, facts: Facts) -> NDArray[np.float64]:
        """The update of the server's own examples on the global model, (P,); trained once a round."""
        import numpy as np

        public, model, vector = facts.public, server.model, server.vector
        kept: tuple[int, Any, NDArray[np.float64]] | None = server.cache.get(self.name)
        if kept is not None and kept[0] == facts.round and kept[1] is vector:
            return kept[2]
        trainer = next(part for part in facts.components.values() if isinstance(part, Trainer))
        if public is None or model is None or vector is None:
            raise ProtectionError(f"{self.name} trains at the server, which has no model or no public examples")
        none = public.examples.take(slice(0))
        data = ClientData(train=public.examples, own_test=none, shared_test=none, **public.about)
        model.set_vector(vector)
        trainer.train(Client(client_id=facts.num_clients, data=data, model=model, vector=vector, facts=facts), facts)
        update = np.asarray(model.moved_from(vector), np.float64)
        server.cache[self.name] = facts.round, vector, update
        return update

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "by the server's own update on public examples"
