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
from fedplug.api.blocks import CLEAR, RETAINED, Block, Plan, Scores, is_unchangeable, meet, unchangeable
from fedplug.api.component import at_client, at_key_server
from fedplug.api.errors import MessageError, ProtectionError, of_component
from fedplug.api.facts import Facts, in_force, published_to, with_published
from fedplug.api.links import Link, Step, fold, locked, seal_of
from fedplug.api.operations import Noise, Scramble, Seal
from fedplug.api.parties import Client, KeyServer, Party
from fedplug.api.records import is_count, shown
from fedplug.api.roles import Scorer, Trainer
from fedplug.mechanisms.closing import require_enough
from fedplug.mechanisms.execution import execute
from fedplug.recipe.catalog import service
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import NAME, PartySteps, mean_problem, plan_problem, scores_problem
from fedplug.round.hosted import HostedClient
from fedplug.round.server_model import scores_at_server
from fedplug.round.set_up import Joining, require_as_stated
from fedplug.round.uploads import BUFFERS, Upload, buffers_problem

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MACHINES = 1e-4
"""By how much public scores may differ between machines, relative; code that states noise by them leaves more room."""


class Training(PartySteps):
    """What a client does when it is told what is public, and when it is told to train."""

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        super().__init__(recipe, composition)
        self._public: dict[str, tuple[Any, Mapping[int, Scores]]] = {}

    @at_client
    def hear(self, client: HostedClient, name: str, values: dict[str, Any]) -> None:
        """Takes what a component has published for a public fact, from here on.

        Raises:
            MessageError: there is no such component, these are no values by name, or the upload of the round, which
                went by what was published before, is on its way.
        """
        self._require_published(name, values)
        if client.remembered.protected >= client.facts.round >= 0:
            raise MessageError(f"{name} publishes in round {client.facts.round + 1} after the upload went by less")
        client.hear(name, values)

    @at_key_server
    def hear_all(self, key_server: KeyServer, groups: list[str], name: str, values: dict[str, Any]) -> None:
        """The same at the key server, for groups of clients."""
        self._require_published(name, values)
        published = key_server.remembered.published
        for group in groups:
            published[group] = with_published(published_to(published, group), key_server.facts.round, name, values)

    def _require_published(self, name: Any, values: Any) -> None:
        named = isinstance(values, dict) and all(isinstance(key, str) for key in values)
        if name not in self.composition.components or not named:
            raise MessageError(f"{shown(name)} is said to publish {shown(values)}, which are no values by name")

    @at_client
    def train(self, client: HostedClient) -> None:
        """Trains the global model on this client's data and scores the update; once a round.

        Raises:
            MessageError: it has done so in this round, or the recipe plans no such round.
        """
        memory, round = client.remembered, client.facts.round
        if not 0 <= round < client.facts.rounds:
            raise MessageError(f"there is no round {round + 1} to train in; the recipe has {client.facts.rounds}")
        if memory.trained >= round:
            raise MessageError(f"client {client.client_id} has trained in round {round + 1} already; it does so once")
        memory.trained = round
        client.previous_plan, client.plan = client.plan, client.facts.plan
        client.scores, client.update = {}, None
        require_as_stated(self.composition, client)
        client.went_by = (client.facts.fingerprint, *self._model_told(client))
        if client.client_id in self.resting(round):
            client.update = client.trained = unchangeable(np.zeros(client.facts.layout.size, np.float32))
            return
        client.update = client.trained = unchangeable(self._learn(client, self.composition.trainer))
        self._score(client)

    def _model_told(self, client: HostedClient) -> Iterator[NDArray[np.float32]]:
        """The model that it trains, where the server tells that; where clients open sums, each makes its own."""
        links = (link for chain in client.facts.links.values() for link in chain)
        if not any(link.hook == "postprocess" and link.site == "client" for link in links):
            yield client.vector

    def _learn(self, client: HostedClient, trainer: Trainer) -> NDArray[np.float32]:
        """Has a trainer train the global model at this client; gives the update, (P,)."""
        if client.personal is None:
            personalise(self.composition, client)
        with of_component(trainer.name, "reads_examples"):
            trains = client if trainer.reads_examples(client.facts) else client.without_past()
        model = trains.loaded(trains.start)
        with client.timed("train"), client.operation("train", client.num_examples):
            with of_component(trainer.name, "train"):
                numbers = trainer.train(trains, client.facts)
            update = model.moved_from(trains.start)
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
                    scores = self.composition.one("score_parameters", use.name, client=client, facts=client.facts)
                scorer = self.composition.part(use.name, Scorer)
                if problem := scores_problem(scores, client.facts.layout, scorer.scoring.per):
                    raise ProtectionError(f"component {use.name}, hook score_parameters: {problem}")
                if scorer.scoring.public and scores_at_server(self.composition):
                    self._require_public(scorer, scores, client)
                client.scores[use.name] = scores

    def _require_public(self, scorer: Scorer, scores: NDArray[np.floating], client: HostedClient) -> None:
        """Compares scores with those that the server works out: noise goes by the one, and the ledger by the other.

        Raises:
            ProtectionError: they differ.
        """
        asked = client.facts.round, hashlib.blake2b(client.vector.tobytes()).digest()
        if self._public.get(scorer.name, (None, {}))[0] != asked:  # one answer has the scores of all clients
            with of_component(scorer.name, "public_scores"):
                self._public[scorer.name] = asked, scorer.public_scores(client.model, client.vector, client.facts)
        public = self._public[scorer.name][1].get(client.client_id)
        if public is None:  # nor has the server any, and states a bound whatever they are
            return
        if public.shape != scores.shape or not np.allclose(scores, public, rtol=_MACHINES, atol=0, equal_nan=True):
            raise ProtectionError(
                f"component {scorer.name}, hook score_parameters: it gave client {client.client_id} other scores in "
                f"round {client.facts.round + 1} than public_scores gives everybody; the ledger goes by the latter: "
                "make both the same, or state Scoring(public=False)"
            )


def personalise(composition: Composition, client: HostedClient) -> None:
    """Lets a trainer with models of the clients' own set this client's, from the global one."""
    trainer = composition.trainer
    if type(trainer).personalise is Trainer.personalise:
        return
    with of_component(trainer.name, "personalise"):
        trainer.personalise(client, client.facts)


class Protecting(PartySteps):
    """What a client does when it is asked for its protected update."""

    @at_client
    def goes_on(self, client: HostedClient, last: int) -> None:
        """Refuses to add correlated noise if this client has lost the noise that it added before.

        A client whose process was started again from a checkpoint does not know what it has added since, and cannot
        take it back: as if it had dropped out, for good, it is in no later sum.

        Args:
            client: this party.
            last: the last round from which its upload came, as the server knows.

        Raises:
            MessageError: that is no round.
            ProtectionError: it is later than the last one that this client knows of.
        """
        known = client.remembered.protected
        if not is_count(last):
            raise MessageError(f"the last upload is said to be of round {shown(last)}, which cannot be")
        if last > known:
            raise ProtectionError(
                f"client {client.client_id} has sent an upload in round {last + 1}, and its state is that of round "
                f"{known + 1}: it does not know the noise that it would have to take back, and stays out of this run"
            )

    @at_client
    def protect(self, client: HostedClient) -> dict[str, Any]:
        """Cuts the update into the plan's zones and protects each; what comes out is what the server sees.

        Once a round: from many uploads of one update the noise could be averaged away.

        Raises:
            ProtectionError: there is no update or no plan of this round, or it was asked for before.
        """
        memory, round = client.remembered, client.facts.round
        if memory.protected >= round:
            raise ProtectionError(
                f"client {client.client_id} has protected its update of round {round + 1} already; a second upload "
                "would carry other noise over the same values"
            )
        if client.update is None or memory.trained != round:
            raise ProtectionError(
                f"client {client.client_id} has not trained in round {client.facts.round + 1}: its process was started "
                "again in the middle of it"
            )
        if client.update is not client.trained:
            raise ProtectionError(
                f"client {client.client_id}: a component has put another update in the place of that of training; "
                "change values in a link of protect (Map), whose price is known"
            )
        negotiation, plans = self.composition.negotiation, self.composition.plans
        client.plan = client.facts.plan or client.plan  # the public one, whatever was published or set meanwhile
        if client.plan is None:
            raise ProtectionError(
                f"component {negotiation.name}, hook negotiate_mask: client {client.client_id} has no plan in round "
                f"{client.facts.round + 1}; a negotiation sets client.plan at every client, in a method marked "
                "@at_client that it asks or tells the cohort to run"
            )
        memory.protected = round
        if problem := plan_problem(client.plan, client.facts.layout, client.facts.zones, plans):
            raise ProtectionError(f"component {negotiation.name}, hook negotiate_mask: {problem}")
        plan = client.plan = self._in_blocks(client.plan, client.facts)
        blocks, sizes = {}, plan.sizes()
        alike = [plan.positions(zone) for zone in sorted(client.facts.links.keys() - plans.own)]
        client.went_by = (*client.went_by, client.facts.fingerprint, str(memory.most_examples).encode(), *alike)
        hidden = [RETAINED] if sizes.get(RETAINED) else []
        between: dict[str, list[NDArray[np.float32]]] = {}
        records, rests = bool(self.composition.keepers), client.client_id in self.resting(round)
        if self.recipe.postprocess.get(RETAINED):
            where = plan.positions(RETAINED)
            memory.retained = Block(RETAINED, len(where), client.local[where], where)
        with client.timed("protect"):
            for zone, size in sizes.items():
                if zone == RETAINED or not size:
                    continue
                steps = client.facts.steps(zone)
                # The aggregator must know where the values of a zone that is not encrypted belong.
                where_known = self.composition.aggregator.wants.positions and seal_of(steps) is None
                gathered = zone not in plans.own and not where_known
                positions = None if gathered else plan.positions(zone)
                if size != plan.labels.size:
                    values = client.update.take(plan.positions(zone), mode="clip")  # none lies beyond
                else:
                    values = client.update
                block = Block(zone, size, values, positions, divisor=client.weight)
                for step in steps:
                    if step.link.hook == "protect":
                        if client.comparison is not None and hides(steps) and not hides(steps[: steps.index(step)]):
                            between.setdefault(zone, []).append(block.plain())
                        block = execute(step, block, client, client.facts, records=records, rests=rests)
                blocks[zone] = block
                hidden += [zone] if hides(steps) else []
        buffers = memory.buffers if self.recipe.buffers == "mean" else None
        upload = Upload(blocks, client.facts.fingerprint, buffers)
        client.reports.zones = {zone: size / plan.labels.size for zone, size in sizes.items()}
        if (before := client.previous_plan) is not None:
            moved = 0 if before is plan else np.count_nonzero(plan.labels != before.labels)
            if moved and plans.fixed:
                raise ProtectionError(
                    f"component {negotiation.name}, hook negotiate_mask: it moved {moved} scalars of client "
                    f"{client.client_id} to another zone, and says Plans(fixed=True); give the same plan in every round"
                )
            client.reports.churn = moved / plan.labels.size
        client.reports.log = dict(client.log)
        client.log.clear()
        if client.comparison is not None:
            client.comparison.hold(round, client.update, {zone: plan.positions(zone) for zone in hidden}, between)
        client.update = client.trained = None
        return upload.to_plain()

    def _in_blocks(self, plan: Plan, facts: Facts) -> Plan:
        """Zones that are encrypted in blocks of global positions take in the clear scalars of the blocks they touch."""
        own = self.composition.plans.own
        for zone in self.composition.links:
            if zone == CLEAR or not {zone, CLEAR} <= own:
                continue
            sealed = seal_of(facts.steps(zone))
            if sealed and sealed[1].position_block:
                plan = plan.widened(zone, sealed[1].position_block)
        return plan


def hides(steps: Sequence[Step]) -> bool:
    """Whether a client itself hides the values that pass these links: it closes them, or adds noise to them."""
    return any(
        isinstance(operation, Seal | Scramble) or (isinstance(operation, Noise) and operation.trust != "central")
        for step in steps
        if step.link.hook == "protect"
        for operation in step.operations
    )


class Opening(PartySteps):
    """What the key server does with a sum."""

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
        """Decrypts a sum. Refuses a sum of fewer than `min_clients` updates, and a second sum for the same round.

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
        require_enough(block, key_server.facts)
        published = in_force(published_to(key_server.remembered.published, group), key_server.facts.round)
        key_server.facts = dataclasses.replace(key_server.facts, published=published)
        steps = key_server.facts.steps(block.zone)
        step = next((s for s in steps if s.link.site == "key_server" and s.link.name == component), None)
        if step is None:
            raise MessageError(f"{component} opens no sum of zone {block.zone} at the key server")
        with opened_once(key_server, block, group, senders):
            opened = meet([execute(step, block, key_server, key_server.facts, senders=senders), *plain])
        if not locked(steps):
            return opened
        # Where values belong and what they are divided by follows from the uploads, so the server knows it. Positions
        # may lie in other zones too, whose sums it knows: the divisor that all of them share is its to make.
        content = codec.encode(opened.replace(positions=None, divisor=1.0))
        box = secrets.lock(_answer_key(key_server), content, _box_purpose(key_server.facts.round, opened.zone))
        return opened.replace(values=None, ciphertexts=(box,), sealed_by=NAME)


def needs_key_server(composition: Composition) -> bool:
    """Whether some zone is opened by the key server."""
    return any(link.site == "key_server" for links in composition.links.values() for link in links)


@contextlib.contextmanager
def opened_once(party: Client | KeyServer, block: Block, group: str, senders: Sequence[int]) -> Iterator[None]:
    """Inside, a party opens a sum with its key, and remembers it; a block that is not sealed needs no key.

    Raises:
        OpenedBefore: the party has opened another sum of that zone in this round.
        ProtectionError: there are fewer updates in a sealed sum than `min_clients`, the clients that are named are
            fewer than those, or the recipe has no such round.
    """
    if block.sealed_by is None:
        yield
        return
    if not 0 <= party.facts.round < party.facts.rounds:
        raise ProtectionError(f"a sum of round {party.facts.round + 1}, and the recipe has {party.facts.rounds} rounds")
    if seal_of(party.facts.steps(block.zone)) is not None:  # what is scrambled alone, the server has seen
        require_enough(block, party.facts)
    if len(set(senders)) < block.contributors:
        raise ProtectionError(
            f"a sum of {block.contributors} updates came with the numbers of {len(set(senders))} clients; each update "
            "has a client"
        )
    with party.openings.once(party.facts.round, block.zone, group, senders, block.ciphertexts):
        yield


def unsealed(block: Block, party: Party) -> Block:
    """What the key server locked for the clients; other blocks as they are.

    Raises:
        ProtectionError: the party has no key for it.
        MessageError: it does not open.
    """
    if block.sealed_by != NAME:
        return block
    purpose = _box_purpose(party.facts.round, block.zone)
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


Opened = Mapping[str, "tuple[Plan | None, Block]"]
"""By zone, the sum that a client has opened, and the plan by which it lies; None where the sum has its positions."""


@dataclasses.dataclass(frozen=True, eq=False)
class Move:
    """How a global model moved.

    Attributes:
        vector: after it; nobody can change it.
        problems: by zone, why it was left as it was.
        seconds: that it took.
    """

    vector: NDArray[np.float32]
    problems: Mapping[str, Exception]
    seconds: float


class Moves:
    """The moves of the clients of one process; remembers the last one."""

    def __init__(self) -> None:
        self._asked: list[Any] = []
        self._last: Move | None = None

    def of(self, client: HostedClient, opened: Opened) -> Move:
        """The client's global model, moved by the means of opened sums; a zone whose mean cannot be is left as it was.

        Clients that hold equal arrays are moved once. Each reports the seconds that it takes.
        """
        asked: list[Any] = [client.facts.round, client.vector]
        for zone, (plan, block) in opened.items():
            asked += [zone, plan and plan.labels, plan and plan.zones, block.values, block.positions, block.divisor]
        if self._last is not None and _alike(self._asked, asked):
            client.took("open", self._last.seconds, spent=0.0)
            return self._last
        started = time.perf_counter()
        vector, problems = moved(client, opened)
        self._asked = [one.copy() if isinstance(one, np.ndarray) and not is_unchangeable(one) else one for one in asked]
        self._last = Move(unchangeable(vector), problems, time.perf_counter() - started)
        client.took("open", self._last.seconds)
        return self._last


def moved(client: HostedClient, opened: Opened) -> tuple[NDArray[np.float32], dict[str, Exception]]:
    """A copy of the client's global model, moved, and by zone why it was left as it was."""
    vector, problems = client.vector.copy(), {}
    for zone, (plan, block) in opened.items():
        try:
            where: Any = block.positions if plan is None else plan.where(zone)
            mean = _mean_at(where, block, vector.size)  # before the vector is looked at there
            last = client.facts.steps(zone)[-1:]
            with np.errstate(over="ignore"):
                values = vector[where] + mean
            if said := mean_problem(values, zone, last[0] if last else None):
                raise ProtectionError(said)
            vector[where] = values
        except Exception as error:
            problems[zone] = error
    return vector, problems


def _alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether everything is equal; arrays that are one object are not looked at."""

    def same(one: Any, other: Any) -> bool:
        if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
            return not isinstance(one, np.ndarray) and not isinstance(other, np.ndarray) and bool(one == other)
        alike = (one.dtype, one.shape) == (other.dtype, other.shape)
        return one is other or (alike and one.tobytes() == other.tobytes())  # to the bit, which == is not for zeros

    return len(some) == len(others) and all(map(same, some, others))


def _mean_at(where: Any, block: Block, size: int) -> NDArray[np.float32]:
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


class Adopting(PartySteps):
    """What a client does with an aggregate, and with the model that it gives."""

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        super().__init__(recipe, composition)
        self._moves, self.evaluation = Moves(), service("evaluation")

    @at_client
    def adopt(
        self,
        client: HostedClient,
        blocks: dict[str, Block],
        buffers: dict[str, Any] | None,
        group: str,
        senders: dict[str, list[int]],
    ) -> None:
        """Decrypts the zones of the aggregate that clients open, and adds the mean update to the global model.

        A zone that does not open is left as it was, and reported: the sum will be no better the next time, and a client
        that waited for it would wait forever. So are batch-norm buffers that cannot be the mean of those of the model.

        Args:
            client: this party.
            blocks: the aggregate, by zone.
            buffers: the mean of the batch-norm buffers, where the recipe shares them.
            group: of this client.
            senders: whose uploads are in the sum, for zones that are sealed for the clients.
        """
        opened: dict[str, tuple[Plan | None, Block]] = {}
        client.plan = client.facts.plan or client.plan  # whether or not this client was in the round
        with client.timed("open"):
            for zone, block in blocks.items():
                plan = client.plan if block.positions is None else None
                if block.positions is None and plan is None:
                    raise ProtectionError(f"client {client.client_id} does not know where the {zone} zone lies")
                try:
                    block, inside = unsealed(block, client), senders.get(zone, [])
                    with opened_once(client, block, group, inside):
                        if any(map(_opens_here, client.facts.links.get(zone, ()))):
                            for step in client.facts.steps(zone):
                                if _opens_here(step.link):
                                    block = execute(step, block, client, client.facts, senders=inside)
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
            reason = f"cannot take the batch-norm buffers of round {client.facts.round + 1}: {wrong}"
            client.reports.unopened[BUFFERS] = reason
        elif buffers is not None:
            client.remembered.buffers = buffers

    def _merge(self, client: HostedClient) -> None:
        """Lets the recipe's `postprocess.retained` make this client's own model from what it kept to itself."""
        block = client.remembered.retained
        if block is None:
            return
        for step in fold(self.composition.retained, client.facts):
            block = execute(step, block, client, client.facts)

    @at_client
    def evaluate(self, client: HostedClient, members: bytes) -> None:
        """Evaluates the global model, as the service `evaluation` does.

        Args:
            client: who evaluates.
            members: those of its group that do, as the service packs them.

        Once a round, and once after the last: a model's right answers tell of the examples it is tried on, and a party
        that could choose models without end could read them.

        Raises:
            ProtectionError: it has evaluated in this round, or the recipe has no such round.
        """
        memory, round = client.remembered, client.facts.round
        if memory.evaluated >= round or round > client.facts.rounds:
            raise ProtectionError(
                f"client {client.client_id} evaluates once a round, and once after the last of {client.facts.rounds}; "
                f"it was asked in round {round + 1}, and has evaluated in round {memory.evaluated + 1} already"
            )
        memory.evaluated = round
        if self.evaluation is not None:
            found = self.evaluation.evaluated(self.recipe, self.composition, client, members)
            client.reports.evaluation = found.to_plain()

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


class Steps(Joining, Training, Protecting, Adopting, Opening):
    """All that the protocol itself runs at the clients and at the key server, in the order of the modules that say it.

    Clients join before round 1, and train, protect and adopt in every round. The key server opens sums.
    """
