"""What the protocol itself asks of a client and of the key server; the rest is in the recipe's components."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api import codec, secrets
from fedplug.api.blocks import meet
from fedplug.api.component import at_client, at_key_server
from fedplug.api.context import Client, KeyServer, stream
from fedplug.api.errors import MessageError, OpenedBefore, ProtectionError, ViewError, of_component
from fedplug.api.links import locked, seal_of, stated_bounds
from fedplug.api.roles import Aggregator, RecordTrainer, Scorer, Trainer
from fedplug.api.types import CLEAR, RETAINED, Block, Plan
from fedplug.round import borders
from fedplug.round.buffers import buffers_problem
from fedplug.round.client_data import slice_of_test
from fedplug.round.known_model import scores_at_server
from fedplug.round.uploads import Hello, Upload
from fedplug.wire.calls import describe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.context import Context, Party
    from fedplug.api.links import Step
    from fedplug.api.types import Scores
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.parties import HostedClient

_MACHINES = 1e-4
"""By how much public scores may differ between machines, relative; whoever states noise by them leaves more room."""


@dataclasses.dataclass(frozen=True)
class OneBatch:
    """Lets clients train one step on one batch instead of their data (a probe).

    Attributes:
        batch_size: examples in it; a client with fewer takes all it has.
        number: which batch, from 0; each client draws its own.
        classes: how many classes it is drawn from; None: all.
    """

    batch_size: int
    number: int = 0
    classes: int | None = None

    def indices(self, client: Client) -> NDArray[np.int64]:
        """Which of the client's training examples are in the batch, ascending."""
        labels = client.data.train.labels
        rng = stream(client.ctx.seed, "probe", client.client_id, client.ctx.round, self.number)
        pool = np.arange(len(labels))
        if self.classes is not None:
            there = np.unique(labels)
            pool = pool[np.isin(labels, rng.permutation(there)[: self.classes])]
        return np.sort(rng.permutation(pool)[: self.batch_size])

    @contextlib.contextmanager
    def on_one_batch(self, client: Client, trainer: Trainer) -> Iterator[Trainer]:
        """Inside, the client has the batch for its data; gives a trainer that makes one step of it."""
        data = client.data
        solver = trainer.one_batch(client, client.ctx, self.batch_size)
        if solver is None:
            raise ViewError(f"{trainer.name} cannot make one step on a batch: it has no one_batch; nobody can probe it")
        solver.name = f"{trainer.name}/batch-{self.number}-of-round-{client.ctx.round + 1}"  # its own stream and cache
        client.data = dataclasses.replace(data, train=data.train.take(self.indices(client)))
        try:
            yield solver
        finally:
            client.data = data
            client.cache.pop(solver.name, None)


@dataclasses.dataclass(frozen=True, eq=False)
class _Move:
    """How a global model moved.

    Attributes:
        asked: the vector before, and what it was moved by.
        vector: after it.
        problems: by zone, why it was left as it was.
        seconds: that it took.
    """

    asked: list[Any]
    vector: NDArray[np.float32]
    problems: Mapping[str, Exception]
    seconds: float


class Steps:
    """What the protocol itself runs at the clients and at the key server."""

    name = "fedplug"

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        self.recipe, self.composition = recipe, composition
        self._public: dict[str, tuple[Any, Mapping[int, Scores]]] = {}
        self._last_move: _Move | None = None
        self.probe: OneBatch | None = None
        """Set from outside a run only, on parties that were taken back to a checkpoint; no message can set it."""

    @at_client
    def join(
        self, client: HostedClient, wants_secret: bool, wants_size: bool, wants_records: bool
    ) -> dict[str, Any]:
        """Says hello before round 1: a public key for the cohort secret, the number of examples if weights need it,
        and what training does for single records in every round, so that it is known before anything is lost.
        """
        key = None
        if wants_records:
            told = [self._record_release(client, round) for round in range(client.ctx.rounds)]
            client.remembered.records = told
        if wants_secret:
            client.cache["hpke"], key = secrets.key_pair()
        records = client.remembered.records if wants_records else None
        return Hello(records, client.num_examples if wants_size else None, key).to_plain()

    @at_client
    def deal(self, client: HostedClient, public_keys: dict[int, bytes]) -> dict[int, bytes]:
        """Draws the cohort secret and seals a copy for each client; runs at one client."""
        secret = secrets.draw()
        return {
            client_id: secrets.seal(secret, key, _secret_purpose(client.ctx.digest, client_id))
            for client_id, key in public_keys.items()
        }

    @at_client
    def take_secret(self, client: HostedClient, sealed: dict[int, bytes]) -> None:
        """Opens this client's copy of the cohort secret."""
        purpose = _secret_purpose(client.ctx.digest, client.client_id)
        secret = secrets.unseal(sealed[client.client_id], client.cache["hpke"], purpose)
        client.remembered.cohort_secret = secret

    @at_key_server
    def deal_answer_key(self, key_server: KeyServer, public_keys: dict[int, bytes]) -> dict[int, bytes]:
        """Draws the key under which sums are answered to the clients alone, and seals a copy for each client."""
        key = key_server.remembered.answer_key = secrets.draw()
        digest = key_server.ctx.digest
        return {
            client_id: secrets.seal(key, public_key, _answer_purpose(digest, client_id))
            for client_id, public_key in public_keys.items()
        }

    @at_client
    def take_answer_key(self, client: HostedClient, sealed: dict[int, bytes]) -> None:
        """Opens this client's copy of the key server's answer key."""
        purpose = _answer_purpose(client.ctx.digest, client.client_id)
        key = secrets.unseal(sealed[client.client_id], client.cache["hpke"], purpose)
        client.remembered.answer_key = key

    @at_client
    def take_weight(self, client: HostedClient, max_examples: int) -> None:
        """Learns the largest data set's size, from which the aggregator's weight of this client follows."""
        client.weight = weight_of(self.composition.aggregator, client.num_examples, max_examples)

    @at_client
    def ready(self, client: HostedClient) -> bool:
        """The end of the set-up: everything told so far has worked."""
        client.cache.pop("hpke", None)
        return True

    @at_client
    def train(self, client: HostedClient) -> None:
        """Trains the global model on this client's data and scores the update; once a round.

        Raises:
            MessageError: it has done so in this round, or the recipe plans no such round.
        """
        memory, round = client.remembered, client.ctx.round
        if not 0 <= round < client.ctx.rounds + (self.probe is not None):
            raise MessageError(f"there is no round {round + 1} to train in; the recipe has {client.ctx.rounds}")
        if memory.trained >= round:
            raise MessageError(f"client {client.client_id} has trained in round {round + 1} already; it does so once")
        memory.trained = round
        client.previous_plan, client.plan = client.plan, None
        client.scores, client.update = {}, None
        trainer = self.composition.trainer
        if isinstance(trainer, RecordTrainer) and self.probe is None:
            said, now = (memory.records or [])[round], self._record_release(client, round)
            if now != said:
                raise ProtectionError(
                    f"component {trainer.name}, record_release: round {round + 1} is {_release(now)}, and was "
                    f"{_release(said)} when the ledger was told before round 1; what it says may depend on the round, "
                    "the options and the number of examples alone"
                )
        if client.personal is None:
            self._personalise(client)
        model = client.loaded(client.start)
        learnt = contextlib.nullcontext(trainer) if self.probe is None else self.probe.on_one_batch(client, trainer)
        with client.timed("train"), client.operation("train", client.num_examples), learnt as solver:
            with of_component(trainer.name, "train"):
                numbers = solver.train(client, client.ctx)
            client.update = model.get_vector()
            client.update -= client.start
            client.update.flags.writeable = False  # so that what is cut out of it can be sent without a copy
        client.reports["train"] = {key: float(value) for key, value in numbers.items()}
        client.remembered.buffers = model.get_buffers()
        # From here on the local model is start + update, rounded as that sum is, whether or not another client uses
        # this process' model in between: otherwise results would depend on who shares a process.
        client.forget_model()
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

    @at_client
    def protect(self, client: HostedClient) -> dict[str, Any]:
        """Cuts the update into the plan's zones and protects each; what comes out is what the server sees.

        Once a round: from many uploads of one update the noise could be averaged away.

        Raises:
            ProtectionError: there is no update or no plan of this round, or it was asked for before.
        """
        memory, round = client.remembered, client.ctx.round
        if client.update is None or memory.trained != round:
            raise ProtectionError(
                f"client {client.client_id} has not trained in round {client.ctx.round + 1}: its process was started "
                "again in the middle of it"
            )
        if client.plan is None:
            raise ProtectionError(
                f"client {client.client_id} has no plan in round {client.ctx.round + 1}; the negotiation must set "
                "client.plan"
            )
        if memory.protected >= round:
            raise ProtectionError(
                f"client {client.client_id} has protected its update of round {round + 1} already; a second upload "
                "would carry other noise over the same values"
            )
        memory.protected = round
        negotiation = self.composition.negotiation
        held = negotiation.plans.zones
        if problem := borders.plan_problem(client.plan, client.ctx.layout, client.ctx.zones, held):
            raise ProtectionError(f"component {negotiation.name}, hook negotiate_mask: {problem}")
        plan = client.plan = self._in_blocks(client.plan, client.ctx)
        blocks, sizes, stated = {}, plan.sizes(), {}
        if self.recipe.postprocess.get(RETAINED):
            where = plan.positions(RETAINED)
            memory.retained = Block(RETAINED, len(where), client.local[where], where)
        with client.timed("protect"):
            for zone, size in sizes.items():
                if zone == RETAINED or not size:
                    continue
                steps = client.ctx.steps(zone)
                gathered = zone in plan.shared and not self._shows_positions(steps)
                positions = None if gathered else plan.positions(zone)
                values = client.update[plan.where(zone)]
                block = Block(zone, size, values, positions, divisor=client.weight)
                for step in steps:
                    if step.link.hook == "protect":
                        block = borders.run(self.composition, step, block, client.ctx, client=client)
                blocks[zone], stated[zone] = block, stated_bounds(steps)
        upload = Upload(blocks, stated, memory.buffers if self.recipe.buffers == "mean" else None)
        client.reports["zones"] = {zone: size / plan.labels.size for zone, size in sizes.items()}
        if (before := client.previous_plan) is not None:
            moved = 0 if before is plan else np.count_nonzero(plan.labels != before.labels)
            client.reports["churn"] = moved / plan.labels.size
        client.reports["log"] = dict(client.log)
        client.log.clear()
        return upload.to_plain()

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
                        for step in client.ctx.steps(zone):
                            if step.link.hook == "postprocess" and step.link.site == "client":
                                block = borders.run(self.composition, step, block, client.ctx)
                    opened[zone] = plan, block
                except Exception as error:
                    self._report_unopened(client, zone, error)
        vector = self._moved(client, opened)
        client.take_vector(vector)
        self._merge(client)
        self._personalise(client)
        client.forget_model()
        if self.recipe.buffers == "mean":
            wrong = buffers_problem(buffers, client.remembered.buffers)
        else:
            wrong = "" if buffers is None else "buffers: local keeps those of each client"
        if wrong:
            reason = f"cannot take the batch-norm buffers of round {client.ctx.round + 1}: {wrong}"
            client.reports.setdefault("unopened", {})["batch-norm buffers"] = reason
        elif buffers is not None:
            client.remembered.buffers = buffers

    def _report_unopened(self, client: HostedClient, zone: str, error: Exception) -> None:
        reason = f"cannot open zone {zone} in round {client.ctx.round + 1}: {describe(error)}"
        client.reports.setdefault("unopened", {})[zone] = reason
        if isinstance(error, OpenedBefore):
            client.reports.setdefault("opened_before", {}).setdefault(zone, []).append(client.ctx.round)

    def _moved(
        self, client: HostedClient, opened: Mapping[str, tuple[Plan | None, Block]]
    ) -> NDArray[np.float32]:
        """The client's global model, moved by the means of opened sums; a zone whose mean cannot be is left as it was.

        Clients of one process that hold the same vector and have opened the same sums are moved once. Each reports the
        seconds that it takes.
        """
        asked: list[Any] = [client.vector]
        for zone, (plan, block) in opened.items():
            asked += [zone, plan and plan.labels, block.values, block.positions, block.divisor]
        last = self._last_move
        if last is None or not _alike(last.asked, asked):
            started = time.perf_counter()
            vector, problems = client.vector.copy(), {}
            for zone, (plan, block) in opened.items():
                try:
                    where: Any = block.positions if plan is None else plan.where(zone)
                    mean = _mean_at(where, block, vector.size)  # before the vector is looked at there
                    steps = client.ctx.steps(zone)[-1:]
                    with np.errstate(over="ignore"):
                        moved = vector[where] + mean
                    if said := borders.mean_problem(moved, zone, steps[0] if steps else None):
                        raise ProtectionError(said)
                    vector[where] = moved
                except Exception as error:
                    problems[zone] = error
            last = self._last_move = _Move(asked, vector, problems, time.perf_counter() - started)
            client.took("open", last.seconds)
        else:
            client.took("open", last.seconds, spent=0.0)
        for zone, problem in last.problems.items():
            self._report_unopened(client, zone, problem)
        return last.vector

    def _record_release(self, client: HostedClient, round: int) -> list[float]:
        """What training in a round does for single records of this client."""
        trainer = self.composition.part(self.recipe.train.name, RecordTrainer)
        here = client.ctx
        client.ctx = dataclasses.replace(here, round=round)
        try:
            with of_component(trainer.name, "record_release"):
                return [float(number) for number in trainer.record_release(client, client.ctx)]
        finally:
            client.ctx = here

    def _in_blocks(self, plan: Plan, ctx: Context) -> Plan:
        """Zones that are encrypted in blocks of global positions take in the clear scalars of the blocks they touch."""
        for zone in self.composition.links:
            sealed = seal_of(ctx.steps(zone))
            width = sealed[1].position_block if sealed else 0
            if width and zone != CLEAR and not {zone, CLEAR} & plan.shared:
                plan = plan.widened(zone, width)
        return plan

    def _shows_positions(self, steps: Sequence[Step]) -> bool:
        """Whether the aggregator must know where the values of a zone that is not encrypted belong."""
        return self.composition.aggregator.wants.positions and seal_of(steps) is None

    def _personalise(self, client: HostedClient) -> None:
        """Lets a trainer with models of the clients' own set this client's, from the global one."""
        trainer = self.composition.trainer
        with of_component(trainer.name, "personalise"):
            trainer.personalise(client, client.ctx)

    def _merge(self, client: HostedClient) -> None:
        """Lets the recipe's `postprocess.retained` make this client's own model from what it kept to itself."""
        block = client.remembered.retained
        if block is None:
            return
        for use in self.recipe.postprocess[RETAINED]:
            block = self.composition.one("postprocess", use.name, block=block, ctx=client.ctx)

    @at_client
    def evaluate(self, client: HostedClient, members: list[int]) -> None:
        """Evaluates the global model on this client's share of the public test set, and on test data like its own.

        Where clients have models of their own, those too.
        """
        data = client.data
        public, own = client.evaluated(members)
        counts = {
            "correct": public.correct, "count": public.count, "loss": public.loss,
            "own_correct": own.correct, "own_count": own.count, **public.pixels,
        }  # fmt: skip
        if client.personal is not None or self.recipe.postprocess.get(RETAINED):
            with client.timed("evaluate"):
                model = client.loaded(client.start)
                share = slice_of_test(members.index(client.client_id), len(members), len(data.shared_test))
                counts["personal_correct"] = model.evaluate(data.shared_test.take(share), data).correct
                counts["personal_own_correct"] = model.evaluate(data.own_test, data).correct
                client.forget_model()
        client.reports["evaluation"] = counts

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

    @at_key_server
    def open(
        self,
        key_server: KeyServer,
        component: str,
        block: Block,
        plain: Sequence[Block],
        group: str,
        senders: list[int],
    ) -> Block:
        """Opens a sum. Refuses sums of fewer than `min_clients` updates, and a second one of the same round.

        Args:
            key_server: this party.
            component: what sealed the sum.
            block: the sum.
            plain: sums of other zones, which hold what some clients sent in the clear at positions that others
                encrypted; the parts meet here, after decryption.
            group: of the clients.
            senders: whose uploads are in the sum.

        Returns:
            The sum for the server to hand on; locked for the clients where the component answers to them alone.
        """
        least = key_server.ctx.min_clients
        if block.contributors < least:
            raise ProtectionError(
                f"a sum of {block.contributors} updates would show too much of each; min_clients is {least}"
            )
        steps = key_server.ctx.steps(block.zone)
        step = next((s for s in steps if s.link.site == "key_server" and s.link.name == component), None)
        if step is None:
            raise MessageError(f"{component} opens no sum of zone {block.zone} at the key server")
        with opened_once(key_server, block, group, senders):
            opened = meet([borders.run(self.composition, step, block, key_server.ctx), *plain])
        if not locked(steps):
            return opened
        # Where values belong and what they are divided by follows from the uploads, so the server knows it. Positions
        # may lie in other zones too, whose sums it knows: the divisor that all of them share is its to make.
        content = codec.encode(opened.replace(positions=None, divisor=1.0))
        box = secrets.lock(_answer_key(key_server), content, _box_purpose(key_server.ctx.round, opened.zone))
        return opened.replace(values=None, ciphertexts=(box,), sealed_by=Steps.name)


def weight_of(aggregator: Aggregator, num_examples: int, max_examples: int) -> float:
    """A client's weight in the sums, as the aggregator has it.

    Raises:
        ProtectionError: it is no number in (0, 1], which the cost of noise is reckoned with.
    """
    with of_component(aggregator.name, "client_weight"):
        given: Any = aggregator.client_weight(num_examples, max_examples)
    if not isinstance(given, int | float | np.integer | np.floating) or not 0 < given <= 1:
        raise ProtectionError(
            f"component {aggregator.name}, client_weight: it gave {given!r:.60} for {num_examples} examples, where the "
            f"most are {max_examples}; a weight is a number in (0, 1], such as num_examples / max_examples"
        )
    return float(given)


def _release(told: list[float]) -> str:
    return f"({', '.join(f'{number:g}' for number in told)})"


def _alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether arrays are the same objects, and everything else is equal."""

    def same(one: Any, other: Any) -> bool:
        return one is other or (not isinstance(one, np.ndarray) and not isinstance(other, np.ndarray) and one == other)

    return len(some) == len(others) and all(map(same, some, others))


def _mean_at(where: NDArray[np.uint32] | slice, block: Block, size: int) -> NDArray[np.float32]:
    """The mean of an opened sum, one value for each of the positions where it belongs; a slice is all of them.

    Raises:
        MessageError: it has another number of values, or values or positions that cannot be.
    """
    mean = block.mean()
    count = size if isinstance(where, slice) else where.size
    if mean.shape != (count,):
        raise MessageError(f"it has {mean.size} values for {count} positions")
    if not isinstance(where, slice) and where.size and int(where[-1]) >= size:
        raise MessageError(f"it has position {int(where[-1])}, but the model has {size} scalars")
    return mean


def needs_key_server(composition: Composition) -> bool:
    """Whether some zone is opened by the key server."""
    return any(link.site == "key_server" for links in composition.links.values() for link in links)


@contextlib.contextmanager
def opened_once(party: Client | KeyServer, block: Block, group: str, senders: Sequence[int]) -> Iterator[None]:
    """Inside, a party opens a sum with its key, and remembers it; a block that is not sealed needs no key.

    Raises:
        OpenedBefore: the party has opened another sum of that zone in this round.
        ProtectionError: the clients that are named are fewer than the updates in the sum.
    """
    if block.sealed_by is None:
        yield
        return
    if len(set(senders)) < block.contributors:
        raise ProtectionError(
            f"a sum of {block.contributors} updates came with the numbers of {len(set(senders))} clients; each update "
            "has a client"
        )
    with party.openings.once(party.ctx.round, block.zone, group, senders, block.ciphertexts):
        yield


def unsealed(block: Block, party: Party) -> Block:
    """What the key server locked for the clients; other blocks as they are.

    Raises:
        ProtectionError: the party has no key for it.
        MessageError: it does not open.
    """
    if block.sealed_by != Steps.name:
        return block
    purpose = _box_purpose(party.ctx.round, block.zone)
    inside = codec.decode(secrets.unlock(_answer_key(party), block.ciphertexts[0], purpose))
    if not isinstance(inside, Block) or (inside.zone, inside.size) != (block.zone, block.size):
        raise MessageError(f"the key server's answer for zone {block.zone} holds something else")
    return inside.replace(positions=block.positions, divisor=block.divisor)


def _answer_key(party: Party) -> bytes:
    """The key of answers to the clients alone, at the key server or at a client."""
    key = party.remembered.answer_key if isinstance(party, Client | KeyServer) else None
    if key is None:
        raise ProtectionError("this party has no key for what the key server answers to the clients")
    return key


def _box_purpose(round: int, zone: str) -> bytes:
    return f"sum of zone {zone} in round {round + 1}".encode()


def _answer_purpose(digest: str, client_id: int) -> bytes:
    return f"answer key of {digest} for client {client_id}".encode()


def _secret_purpose(digest: str, client_id: int) -> bytes:
    return f"cohort secret of {digest} for client {client_id}".encode()
