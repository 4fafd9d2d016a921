"""After the sum, at a client: it adopts the aggregate, evaluates the model, and says which model it ended with."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from fedplug.api import secrets
from fedplug.api.component import at_client
from fedplug.api.errors import ProtectionError
from fedplug.api.links import Link, fold
from fedplug.api.reports import Evaluated
from fedplug.api.types import RETAINED, Block
from fedplug.mechanisms.execution import execute
from fedplug.round.base import PartySteps
from fedplug.round.buffers import BUFFERS, buffers_problem
from fedplug.round.client_data import slice_of_test
from fedplug.round.moves import Moves
from fedplug.round.opening import opened_once, unsealed
from fedplug.round.training import personalise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedplug.api.data import Examples
    from fedplug.api.types import Plan
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.hosted import HostedClient


_KEPT_BYTES = 1 << 27
"""Clients keep standardised test examples between rounds where those of all of them take at most this much memory."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Tests:
    """On what a client evaluates.

    Attributes:
        share: of the public test set.
        sets: that share, and the client's own test examples; at a site these alone.
        kept: where the model may keep what it makes of them; None: nowhere.
    """

    share: slice
    sets: list[Examples]
    kept: dict[str, Any] | None = None


class Adopting(PartySteps):
    """What a client does with an aggregate, and with the model that it gives."""

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        super().__init__(recipe, composition)
        self._moves = Moves()

    @at_client
    def adopt(
        self,
        client: HostedClient,
        blocks: dict[str, Block],
        buffers: dict[str, Any] | None,
        group: str,
        senders: dict[str, list[int]],
    ) -> None:
        """Opens the aggregate as far as this client must, and moves the global model by its mean.

        A zone that does not open is left as it was, and reported: the sum will be no better the next time, and a client
        that waited for it would never go on. So are batch-norm buffers that cannot be the mean of those of the model.

        Args:
            client: this party.
            blocks: the aggregate, by zone.
            buffers: the mean of the batch-norm buffers, where the recipe shares them.
            group: of this client.
            senders: whose uploads are in the sum, for zones that are sealed for the clients.
        """
        opened: dict[str, tuple[Plan | None, Block]] = {}
        with client.timed("open"):
            for zone, block in blocks.items():
                plan = client.plan if block.positions is None else None
                if block.positions is None and plan is None:
                    raise ProtectionError(f"client {client.client_id} does not know where the {zone} zone lies")
                try:
                    block = unsealed(block, client)
                    with opened_once(client, block, group, senders.get(zone, [])):
                        if any(map(_opens_here, client.ctx.links.get(zone, ()))):
                            for step in client.ctx.steps(zone):
                                if _opens_here(step.link):
                                    block = execute(step, block, client, client.ctx)
                    opened[zone] = plan, block
                except Exception as error:
                    client.report_unopened(zone, error)
        move = self._moves.of(client, opened)
        for zone, problem in move.problems.items():
            client.report_unopened(zone, problem)
        client.take_vector(move.vector)
        self._merge(client)
        personalise(self.composition, client)
        client.forget_model()
        if self.recipe.buffers == "mean":
            wrong = buffers_problem(buffers, client.remembered.buffers)
        else:
            wrong = "" if buffers is None else "buffers: local keeps those of each client"
        if wrong:
            reason = f"cannot take the batch-norm buffers of round {client.ctx.round + 1}: {wrong}"
            client.reports.unopened[BUFFERS] = reason
        elif buffers is not None:
            client.remembered.buffers = buffers

    def _merge(self, client: HostedClient) -> None:
        """Lets the recipe's `postprocess.retained` make this client's own model from what it kept to itself."""
        block = client.remembered.retained
        if block is None:
            return
        for step in fold(self.composition.retained, client.ctx):
            block = execute(step, block, client, client.ctx)

    @at_client
    def evaluate(self, client: HostedClient, members: list[int]) -> None:
        """Evaluates the global model on this client's share of the public test set, and on test data like its own.

        With data at sites there is no public test set: both are the site's held-out examples, and it tells shares of
        right answers in place of counts. Where clients have models of their own, those too.

        Once a round, and once after the last: what a model gets right tells of the examples it is tried on, and whoever
        could choose models without end could read them.

        Raises:
            ProtectionError: it has evaluated in this round, or the recipe has no such round.
        """
        memory, round = client.remembered, client.ctx.round
        if memory.evaluated >= round or round > client.ctx.rounds:
            raise ProtectionError(
                f"client {client.client_id} evaluates once a round, and once after the last of {client.ctx.rounds}; it "
                f"was asked in round {round + 1}, and has evaluated in round {memory.evaluated + 1} already"
            )
        memory.evaluated = round
        at_sites = self.recipe.data.at == "sites"
        with client.timed("evaluate"):
            tests = self._tests(client, members)
            found = client.loaded(client.vector).evaluate_each(tests.sets, client.data, tests.kept)
            public, own = found[0], found[-1]
            counts = Evaluated(
                public.correct, public.count, public.loss, own.correct, own.count, task=_floats(public.task)
            )
            if client.personal is not None or self.recipe.postprocess.get(RETAINED):
                found = client.loaded(client.start).evaluate_each(tests.sets, client.data, tests.kept)
                personal, own = found[0], found[-1]
                counts.personal_correct, counts.personal_own_correct = personal.correct, own.correct
                counts.personal_task = _floats(personal.task)
                client.forget_model()
        client.reports.evaluation = counts.shares() if at_sites else counts

    def _tests(self, client: HostedClient, members: list[int]) -> _Tests:
        """What a client evaluates on; the same object as long as its share of the public test set is the same."""
        data = client.data
        if self.recipe.data.at == "sites":
            return _Tests(slice(None), [data.own_test])
        share = slice_of_test(members.index(client.client_id), len(members), len(data.shared_test))
        tests: _Tests | None = client.cache.get(self.name)
        if tests is None or tests.share != share:
            # The shares of all clients are the test set, and their own test examples are no more than as many again.
            kept: Any = {} if 2 * 4 * data.shared_test.inputs.size <= _KEPT_BYTES else None
            tests = client.cache[self.name] = _Tests(share, [data.shared_test.take(share), data.own_test], kept)
        return tests

    @at_client
    def fingerprint(self, client: HostedClient) -> bytes:
        """A digest of the global model this client ended with: all clients of a group must agree.

        Keyed where the clients share a secret: only then may the model be one that the server must not test guesses at.
        """
        memory = client.remembered
        key = b""
        if memory.cohort_secret is not None:
            key = client.secret(self, "fingerprint")
        elif memory.answer_key is not None:
            key = secrets.derive(memory.answer_key, self.name, "fingerprint")
        return hashlib.blake2b(client.vector.tobytes(), key=key, digest_size=16).digest()


def _opens_here(link: Link) -> bool:
    return link.hook == "postprocess" and link.site == "client"


def _floats(counts: Mapping[str, float]) -> dict[str, float]:
    return {name: float(count) for name, count in counts.items()}
