"""Training at a client: once a round, as it was stated, with the scores of the update."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.component import at_client
from fedplug.api.errors import MessageError, ProtectionError, of_component
from fedplug.api.roles import Scorer
from fedplug.round import borders
from fedplug.round.accounts import require_as_stated
from fedplug.round.base import PartySteps
from fedplug.round.server_model import scores_at_server

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.roles import Trainer
    from fedplug.api.types import Scores
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.hosted import HostedClient

_MACHINES = 1e-4
"""By how much public scores may differ between machines, relative; whoever states noise by them leaves more room."""


class Training(PartySteps):
    """What a client does when it is told to train."""

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        super().__init__(recipe, composition)
        self._public: dict[str, tuple[Any, Mapping[int, Scores]]] = {}

    @at_client
    def train(self, client: HostedClient) -> None:
        """Trains the global model on this client's data and scores the update; once a round.

        Raises:
            MessageError: it has done so in this round, or the recipe plans no such round.
        """
        memory, round = client.remembered, client.ctx.round
        if not 0 <= round < client.ctx.rounds:
            raise MessageError(f"there is no round {round + 1} to train in; the recipe has {client.ctx.rounds}")
        if memory.trained >= round:
            raise MessageError(f"client {client.client_id} has trained in round {round + 1} already; it does so once")
        memory.trained = round
        client.previous_plan, client.plan = client.plan, None
        client.scores, client.update = {}, None
        require_as_stated(self.composition, client)
        client.update = self._learn(client, self.composition.trainer)
        self._score(client)

    def _learn(self, client: HostedClient, trainer: Trainer) -> NDArray[np.float32]:
        """Has a trainer train the global model at this client; gives the update, (P,)."""
        if client.personal is None:
            personalise(self.composition, client)
        model = client.loaded(client.start)
        with client.timed("train"), client.operation("train", client.num_examples):
            with of_component(self.composition.trainer.name, "train"):
                numbers = trainer.train(client, client.ctx)
            update = model.moved_from(client.start)
        client.reports.train = {key: float(value) for key, value in numbers.items()}
        client.remembered.buffers = model.get_buffers()
        # From here on the local model is start + update, rounded as that sum is, whether or not another client uses
        # this process' model in between: otherwise results would depend on who shares a process.
        client.forget_model()
        return update

    def _score(self, client: HostedClient) -> None:
        """Has each scorer of the recipe say how much the scalars or layers of the update matter."""
        with client.timed("score"):
            for use in self.recipe.score_parameters:
                with client.operation("score", client.num_examples):
                    scores = self.composition.one("score_parameters", use.name, client=client, ctx=client.ctx)
                scorer = self.composition.part(use.name, Scorer)
                if problem := borders.scores_problem(scores, client.ctx.layout, scorer.scoring.per):
                    raise ProtectionError(f"component {use.name}, hook score_parameters: {problem}")
                if scorer.scoring.public and scores_at_server(self.composition):
                    self._require_public(scorer, scores, client)
                client.scores[use.name] = scores

    def _require_public(self, scorer: Scorer, scores: NDArray[np.floating], client: HostedClient) -> None:
        """Compares scores with those that the server works out: noise goes by the one, and the ledger by the other.

        Raises:
            ProtectionError: they differ.
        """
        asked = client.ctx.round, hashlib.blake2b(client.vector.tobytes()).digest()
        if self._public.get(scorer.name, (None, {}))[0] != asked:  # one answer has the scores of all clients
            with of_component(scorer.name, "public_scores"):
                self._public[scorer.name] = asked, scorer.public_scores(client.model, client.vector, client.ctx)
        public = self._public[scorer.name][1].get(client.client_id)
        if public is None:  # nor has the server any, and states a bound whatever they are
            return
        if public.shape != scores.shape or not np.allclose(scores, public, rtol=_MACHINES, atol=0, equal_nan=True):
            raise ProtectionError(
                f"component {scorer.name}, hook score_parameters: it gave client {client.client_id} other scores in "
                f"round {client.ctx.round + 1} than public_scores gives everybody; the ledger goes by the latter: make "
                "both the same, or state Scoring(public=False)"
            )


def personalise(composition: Composition, client: HostedClient) -> None:
    """Lets a trainer with models of the clients' own set this client's, from the global one."""
    trainer = composition.trainer
    with of_component(trainer.name, "personalise"):
        trainer.personalise(client, client.ctx)
