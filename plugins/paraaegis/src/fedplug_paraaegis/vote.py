"""ParaAegis' negotiation: the clients vote which scalars are encrypted (paper, Sec. 3, Alg. 1 and Fig. 1)."""

from __future__ import annotations

import functools
import secrets
import time
from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, Field, Plan, Plans, Reads, Reveals, at_client
from fedplug.api.blocks import ENCRYPTED, shared_plan
from fedplug_std.options import OtherZone
from fedplug_std.replies import valid
from fedplug_std.scores import count_of, scorer_problems

from fedplug_paraaegis.secret_ballot import IndexCipher, ballot_problem, nominated, tally

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Vote(fedplug.PublicPlan):
    """Encrypt the scalars that most clients nominate (ParaAegis, Sec. 3).

    Each client nominates the share p_t of the model with its highest scores. Its ballot holds these indices, encrypted
    deterministically under a key that only the clients know. So the server can count the votes without learning the
    indices. The share p_t of indices with most votes is encrypted, the other scalars get differential privacy. In the
    dynamic variant the share decays: p_t = ratio * decay^t.

    Among indices with equally many votes, the order of the ciphertexts decides. It is random, so no part of the model
    is favoured. The ballot key is new in every negotiation, even in a round that a resumed run repeats: a client gives
    one ballot under each.
    """

    class Options(fedplug.Options):
        ratio: float = Field(0.3, ge=0, le=1, description="p_0, share of the model encrypted in the first round")
        decay: float = Field(1.0, gt=0, le=1, description="p_t = ratio * decay^t; 1 keeps the share fixed")
        by: str | None = Field(None, description="scorer that decides the nominations; the recipe's first if unset")
        other_zone: OtherZone = "noised"

    options: Options

    @property
    def cohort_secret(self) -> bool:
        """The key of the ballots follows from a secret of the clients."""
        return True

    @property
    def votes(self) -> bool:
        """Whether there is ever anything to vote on: not if the whole model is in one zone in every round."""
        return self.options.ratio > 0 and (self.options.ratio < 1 or self.options.decay < 1)

    @property
    def plans(self) -> Plans:
        """The same at all clients. They follow from the ballots, if there are any."""
        if self.votes:
            return Plans(zones=frozenset({ENCRYPTED, self.options.other_zone}))
        return Plans(zones=frozenset({ENCRYPTED if self.options.ratio else self.options.other_zone}))

    @property
    def reads(self) -> Reads | None:
        """Scores of scalars or of layers, where there is a vote."""
        return Reads(by=self.options.by) if self.votes else None

    def check(self, recipe: Any) -> list[str]:
        """Something must score the scalars."""
        if not self.votes and not recipe.score_parameters:
            return []
        missing = "the vote needs scores; add score_parameters: [{use: paraaegis.magnitude}]"
        return scorer_problems(recipe, self.options.by, missing)

    def seats(self, round: int, size: int) -> int:
        """Number of scalars encrypted in a round: floor(p_t P)."""
        # The tiny addend keeps products such as 0.29 * 100 from falling below the integer that they represent.
        return count_of(self.options.ratio * self.options.decay**round, size)

    def plan(self, facts: Facts) -> str | None:
        """The zone of the whole model, in rounds without a vote: DP-FedAvg, or fully encrypted FedAvg."""
        size = facts.layout.size
        seats = self.seats(facts.round, size)
        if self.votes and not (size and seats in (0, size)):
            return None
        return ENCRYPTED if seats or (not size and self.options.ratio) else self.options.other_zone

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Alg. 1: ballots in, count, winners out."""
        size = facts.layout.size
        seats = self.seats(facts.round, size)
        if facts.plan is not None:  # nothing to vote on
            return
        # A run that is killed and resumed repeats its round. If the key depended on the round alone, the server could
        # compare the ballots of both attempts.
        attempt = secrets.token_bytes(16)
        replies = cohort.ask(self.nominate, attempt)  # runs at every client
        ballots = valid(cohort, replies, lambda ballot: ballot_problem(ballot, size, seats))
        winners = tally(list(ballots.values()), size, seats)  # runs here, on ciphertexts
        # Clients that were not asked get the winners too, so the attempt travels with them.
        cohort.tell(self.adopt, attempt, winners)  # runs at every client before its next answer

    @at_client
    def nominate(self, client: Client, attempt: bytes) -> NDArray[np.uint8]:
        """This client's ballot: the encrypted indices of its p_t P highest scores.

        Raises:
            ProtectionError: it has given another ballot for this attempt, even before a restart.
        """
        layout = client.facts.layout
        scores = layout.per_scalar(client.scores_by(self.options.by))
        key = client.secret(self, "equal scores", client.facts.round, attempt.hex())
        chosen = nominated(scores, self.seats(client.facts.round, layout.size), key, client.saved)
        ballot = self._cipher(client, attempt).encrypt(chosen)
        # The server says which attempt it is. Under the key of an old one it could compare this ballot with that one.
        client.openings.use(client.facts.round, f"the ballot key {attempt.hex()} of {self.name}", [ballot.tobytes()])
        return ballot

    @at_client
    def adopt(self, client: Client, attempt: bytes, winners: NDArray[np.uint8]) -> None:
        """Decrypts the winners."""
        cipher, started = self._cipher(client, attempt), time.perf_counter()
        client.plan, alone = _plan(cipher, winners.tobytes(), self.options.other_zone, client.facts)
        client.saved(alone - (time.perf_counter() - started))

    def _cipher(self, client: Client, attempt: bytes) -> IndexCipher:
        """The permutation of this negotiation, kept between ballot and winners."""
        negotiation = (client.facts.round, attempt)
        kept = client.cache.get(self.name)
        if kept is None or kept[0] != negotiation:
            key, started = client.secret(self, "ballot", client.facts.round, attempt.hex()), time.perf_counter()
            cipher, alone = IndexCipher.shared(key, client.facts.layout.size)
            client.saved(alone - (time.perf_counter() - started))
            kept = client.cache[self.name] = (negotiation, cipher)
        found: IndexCipher = kept[1]
        return found

    def open_reply(
        self, client: Client, method: str, asked: tuple[Any, ...], reply: NDArray[np.uint8]
    ) -> NDArray[np.int64]:
        """The indices that a ballot names."""
        return np.sort(self._cipher(client, *asked).decrypt(reply))

    def reveals(self, facts: Facts) -> list[Reveals]:
        """What the vote reveals, and to which party."""
        if not self.votes:
            return []
        ballots = "each client's, by name: which clients nominate alike, and how many voted for each encrypted index"
        # Once decrypted, they name every class that a client has (docs/papers/insiders.md).
        opened = "each client's, by name: one colluding client decrypts the indices, which tell the classes of its data"
        return [
            Reveals("ballots", ("server",), asked=("nominate",), note=ballots),
            Reveals("what each client voted to encrypt", ("client_and_server",), voids=True, note=opened),
            Reveals("mask", ("client",), note="the winners follow from the clients' data; every client knows them"),
        ]

    def describe(self) -> str:
        decay = "" if self.options.decay == 1 else f", times {self.options.decay:g} each round"
        return f"{self.options.ratio:.1%} encrypted{decay}, the rest {self.options.other_zone}; ballots under AES-256"


@functools.lru_cache(maxsize=2)
def _plan(cipher: IndexCipher, winners: bytes, other_zone: str, facts: Facts) -> tuple[Plan, float]:
    """The plan of these winners, and the seconds it took. The clients of a process that share the permutation share one
    plan, which cannot be changed.
    """
    started = time.perf_counter()
    encrypted = cipher.decrypt(np.frombuffer(winners, np.uint8))
    plan = shared_plan(Plan.of(facts, other_zone, **{ENCRYPTED: encrypted}))
    return plan, time.perf_counter() - started
