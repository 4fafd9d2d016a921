"""The roles of a round: what scores, plans, protects, sums, opens and trains; one typed class each.

A component subclasses the role, or the roles, that it serves, and overrides what it needs. A role has everything that
the core may ever ask of it; what it declares is one frozen record a fact (`fedplug.api.role_records`). A name that
comes close to a member's is refused (`fedplug.api.members`).
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from fedplug.api.base import Component
from fedplug.api.component import hookimpl
from fedplug.api.errors import ProtectionError
from fedplug.api.operations import Open, Operations
from fedplug.api.role_records import Account, Learns, Plans, Reads, Scoring, Site, Wants

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.api.context import Client, Context, Server
    from fedplug.api.known import Known
    from fedplug.api.model import Model
    from fedplug.api.role_records import GroundTruth
    from fedplug.api.types import Block, Scores
    from fedplug.wire.cohort import Cohort


class Scorer(Component, role=True):
    """Says how much each scalar, or each layer, matters; at the client, after local training."""

    @property
    def scoring(self) -> Scoring:
        """What its scores are; may be a plain attribute, as every record of a role."""
        return Scoring()

    @abc.abstractmethod
    def score_parameters(self, client: Client, ctx: Context) -> Scores:
        """float32, (P,) or (L,). The core keeps it as `client.scores[name]`; it is not sent anywhere by itself."""

    def public_scores(self, model: Model, vector: NDArray[np.float32], ctx: Context) -> Mapping[int, Scores]:
        """Where `scoring.public`: the scores of a round by client id, as everybody works them out. By default none.

        Where the ledger goes by them, a client whose `score_parameters` gave others refuses to upload.

        Args:
            model: to try the vector with; left as it is.
            vector: float32 (P,), the global model that the round starts from.
            ctx: of the round, with the public examples.
        """
        return {}


class Negotiation(Component, role=True):
    """Makes sure that every client of the cohort has a plan: which scalar is in which zone."""

    @property
    @abc.abstractmethod
    def plans(self) -> Plans:
        """What its plans are."""

    @property
    def reads(self) -> Reads | None:
        """Which scores it reads; None: none."""
        return None

    @abc.abstractmethod
    def negotiate_mask(self, cohort: Cohort, ctx: Context) -> None:
        """Runs at the server, once a group, and drives the clients with methods marked `@at_client`.

        Those set `client.plan`, where plans live; nothing is returned.
        """

    def open_reply(self, client: Client, method: str, asked: tuple[Any, ...], reply: Any) -> Any:
        """What a reply says, as anybody reads it who has the clients' secret: for the views of attacks. None: as it is.

        Args:
            client: with the secret, in the round of the reply.
            method: that answered.
            asked: the payload of the question.
            reply: the answer.
        """
        return None

    def ballots(self, round: int, ctx: Context) -> Operations:
        """What is done to the values that clients release for a round's negotiation, as a clip and a noise.

        `client.release(self, name, values)` does it, or `ctx.party.release` where the server adds the noise; the ledger
        charges everybody who was asked.
        """
        return ()


class Groups(Component, role=True):
    """Forms groups of clients with a model each."""

    @property
    def reads(self) -> Reads | None:
        """Which scores it reads; None: none."""
        return None

    @abc.abstractmethod
    def form_groups(self, cohort: Cohort, ctx: Context) -> None:
        """Runs at the server in every round, after the clients were told to train and before the negotiation.

        May ask the clients and, in round 1, call `cohort.regroup({name: [client ids]})`, which stays in force.
        """

    def ballots(self, round: int, ctx: Context) -> Operations:
        """What is done to the values that clients release so that groups can be formed; see `Negotiation.ballots`."""
        return ()

    def assess(self, server: Server, truth: GroundTruth) -> Mapping[str, float]:
        """After the run, outside every party: how well the groups match what no party knows. The summary has it."""
        return {}


class Protector(Component, role=True):
    """Protects one zone of one client's update, as one link of the zone's chain; at the client."""

    @property
    def reads(self) -> Reads | None:
        """Which scores it reads; None: none."""
        return None

    @abc.abstractmethod
    def protect(self, known: Known, ctx: Context) -> Operations:
        """What is done to the zone's values, as operations (`fedplug.api.operations`), which the core executes.

        Asked before a run, at the server for the ledger, and at each client, which refuses to pay more than the server
        charges. A function alone counts as `Map(function)`.

        Args:
            known: what is known of the values; asks for order with `known.before` and `known.need_norm`.
            ctx: the round; before a run its layout may be empty and its party without memory.

        Raises:
            Misplaced: it cannot stand where it stands.
        """


class Aggregator(Component, role=True):
    """Sums one zone over the clients of one group; at the aggregation server, which holds no secret key."""

    @property
    def wants(self) -> Wants:
        """What it needs to work."""
        return Wants()

    @abc.abstractmethod
    def aggregate(self, known: Known, ctx: Context) -> Operations:
        """How the uploads become one: `WeightedSum()`, which the core adds up, or `Combine(function)`, which earns no
        credit; then what is done to the sum.
        """

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        """A client's weight, in (0, 1]; asked where `wants.num_examples`."""
        return 1.0


class Opener(Component, role=True):
    """Undoes or completes the protection of an aggregated zone, where its `site` says."""

    @property
    def site(self) -> Site:
        """The party at which `postprocess` runs."""
        return "client"

    @abc.abstractmethod
    def postprocess(self, known: Known, ctx: Context) -> Operations:
        """What is done to the sum of a zone at this site, as operations which the core executes.

        For the zone `retained` it runs at each client after the global model has moved, on the client's own values; a
        `Map(function)` there may set `client.personal`, the model that this client goes on with.

        Raises:
            Misplaced: it cannot stand where it stands.
        """


class Sealer(Protector, Opener, role=True):
    """Closes a zone's values at the clients, adds them up closed, and opens the sum: an encryption, or a scrambling."""

    @abc.abstractmethod
    def seal(self, block: Block, client: Client, ctx: Context) -> Block:
        """The block closed, with `client.weight` multiplied in: `values` None, `sealed_by` this component's name.

        Its `protect` gives the `Seal` or `Scramble` that says how. The client is handed without examples, scores and
        update.
        """

    @abc.abstractmethod
    def open(self, block: Block, ctx: Context) -> Block:
        """The sum with plain values; `ctx.party` is the party that opens it."""

    @abc.abstractmethod
    def add_blocks(self, blocks: dict[int, Block], ctx: Context) -> Block:
        """The sum of blocks that this component sealed; at the server."""

    @property
    def joins(self) -> bool:
        """Whether `join_sums` adds sums up, so that the server need not keep uploads until the last one is there."""
        return False

    def join_sums(self, sums: Sequence[Block], ctx: Context) -> Block:
        """The sum of sums that `add_blocks` gave of different clients; asked where `joins`, of sums without positions.

        Raises:
            ProtectionError: it cannot be one; or, by default, always.
        """
        raise ProtectionError(f"{self.name} does not add sums up; override join_sums, or leave joins at False")

    @hookimpl
    def postprocess(self, known: Known, ctx: Context) -> Operations:
        """It undoes its own seal."""
        return (Open(),)

    def open_upload(self, block: Block, ctx: Context) -> Block:
        """One upload, opened by a party with the key: for the views of insiders. By default as a sum of one."""
        return self.open(block, ctx)


class Trainer(Component, role=True):
    """Trains the client's model on its data."""

    @abc.abstractmethod
    def train(self, client: Client, ctx: Context) -> dict[str, float]:
        """Trains `client.model`, which holds `client.start`, on `client.data.train`; gives numbers for the metrics.

        `loss` is the mean training loss of the last epoch. Randomness comes from `client.rng(self, ...)` alone, so that
        engines agree bit for bit.
        """

    def learns(self, ctx: Context) -> Learns | None:
        """How an update of that round follows from data. None, the default: no attack can read gradients off it."""
        return None

    def personalise(self, client: Client, ctx: Context) -> None:
        """Sets `client.personal`, a model of the client's own, whenever the global model has moved."""

    def one_batch(self, client: Client, ctx: Context, batch_size: int) -> Self | None:
        """A trainer that makes one step on one batch as this one would, for probes; None where it cannot."""
        return None


class AccountKeeper(Component, role=True):
    """Protects another unit than the client, such as single records, and keeps the account of it; beside another role.

    Every client states, before round 1, what each of its rounds will release. A client that is about to train by
    another statement than it gave refuses. The ledger keeps what every client that was asked to upload has released,
    lost and repeated rounds included.
    """

    @property
    @abc.abstractmethod
    def account(self) -> Account:
        """What it keeps account of."""

    @abc.abstractmethod
    def round_release(self, client: Client, ctx: Context) -> tuple[float, ...]:
        """What the round of `ctx` releases of this client, as an `account.release`; follows from the round, the options
        and the number of examples alone.
        """

    def release_problem(self, release: Any) -> str:
        """Why no round of any client can release this, as far as the server knows; empty if one can, the default.

        Asked of what clients state, an `account.release` of finite numbers >= 0; whoever states what cannot be does not
        join. `epsilon_of` has an answer for everything that passes.
        """
        return ""

    @abc.abstractmethod
    def epsilon_of(self, releases: Sequence[Any], delta: float) -> dict[str, float]:
        """Epsilons of one unit after these releases, by method, the headline first; the methods for no releases too."""
