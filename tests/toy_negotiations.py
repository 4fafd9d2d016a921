"""Small negotiations and groups that agree on known plans, or misbehave in known ways."""

from __future__ import annotations

import hashlib
from typing import Literal

import fedplug
import numpy as np
from fedplug import (
    Client,
    Clip,
    Cohort,
    Facts,
    Field,
    Noise,
    Operations,
    Plan,
    Plans,
    Reveals,
    at_client,
)
from fedplug.api.blocks import CLEAR, ENCRYPTED, NOISED, RETAINED
from fedplug.api.errors import TooFewClients
from fedplug_std.letters import Correspondent
from numpy.typing import NDArray
from toy_base import Toy

WIDTH = 10
"""Neighbouring positions that the masks of `toy.masks` and the ciphertexts of `toy.narrow_bfv` take together."""


class Own(Toy, fedplug.Negotiation):
    """Client k retains every position j with j % K == k and sends the rest in the clear."""

    plans = Plans(zones=frozenset({CLEAR, RETAINED}), own=frozenset({CLEAR, RETAINED}))

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Tells every client to make its own plan."""
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        kept = self.kept(client, np.arange(client.facts.layout.size))
        client.plan = Plan.of(client.facts, CLEAR, **{RETAINED: kept})

    def kept(self, client: Client, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which positions this client keeps to itself."""
        return positions % client.facts.num_clients == client.client_id

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Nobody is asked anything."""
        return []


class Masks(Toy, fedplug.Negotiation):
    """Client k encrypts the tens of positions whose number modulo K is k or k+1; the rest is clear."""

    class Options(fedplug.Options):
        """Where the rest goes."""

        other_zone: str = Field(CLEAR, description="zone of what a client does not encrypt")

    @property
    def plans(self) -> Plans:
        """The zones that its plans can hold."""
        zones = frozenset({ENCRYPTED, self.options.other_zone})
        return Plans(zones=zones, own=zones)

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Tells every client to make its own plan."""
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        size, count = client.facts.layout.size, client.facts.num_clients
        mine = np.isin((np.arange(size) // WIDTH - client.client_id) % count, (0, 1))
        client.plan = Plan.of(client.facts, self.options.other_zone, **{ENCRYPTED: mine})

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Nobody is asked anything."""
        return []


class Halves(Toy, fedplug.Groups, fedplug.Ballots):
    """Two groups, of clients with even and with odd numbers, formed once, when ballots with noise are in."""

    class Options(fedplug.Options):
        """Where the noise comes from."""

        source: Literal["secure", "reproducible"] = Field("secure", description="of the noise")

    def form_groups(self, cohort: Cohort, facts: Facts) -> None:
        """Asks everyone in round 1."""
        if facts.round == 0:
            cohort.ask(self.parity)
            everyone = range(facts.num_clients)
            cohort.regroup({"even": [c for c in everyone if c % 2 == 0], "odd": [c for c in everyone if c % 2]})

    @at_client
    def parity(self, client: Client) -> NDArray[np.float32]:
        """Whether this client's number is odd, under noise that hides it."""
        return client.release(self, [client.client_id % 2])

    def ballots(self, facts: Facts) -> Operations:
        """What the ballots of round 1 cost."""
        return (Clip(1.0), Noise.gaussian(2.0, source=self.options.source)) if facts.round == 0 else ()

    def reveals(self, facts: Facts) -> list[Reveals]:
        """The ballots are paid for."""
        return [Reveals("ballots", ("server",), covered_by="epsilon", asked=("parity",))]


class Silent(Own):
    """Client 0 retains everything, so it sends nothing. The others send all in the clear."""

    def kept(self, client: Client, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """All of them, or none."""
        return np.full(len(positions), client.client_id == 0)


class Groups(Toy, fedplug.PublicPlan):
    """Two groups, of clients with even and with odd numbers; everything in one zone."""

    class Options(fedplug.Options):
        """The zone."""

        zone: str = Field(CLEAR, description="the zone that holds every scalar")

    @property
    def plans(self) -> Plans:
        """The zones that its plans can hold."""
        return Plans(zones=frozenset({self.options.zone}))

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Regroups once."""
        if facts.round == 0:
            everyone = range(facts.num_clients)
            cohort.regroup({"even": [c for c in everyone if c % 2 == 0], "odd": [c for c in everyone if c % 2]})

    def plan(self, facts: Facts) -> str:
        """One zone."""
        zone: str = self.options.zone
        return zone


class MasksOfTheCohort(Toy, fedplug.Negotiation):
    """The zone of every scalar follows from the participants."""

    plans = Plans(zones=frozenset({CLEAR, NOISED}))

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Tells the sum of the numbers of those who do."""
        cohort.tell(self.choose, sum(cohort.client_ids) % 7)

    @at_client
    def choose(self, client: Client, number: int) -> None:
        """Sets the plan, the same at every client."""
        clear = np.arange(client.facts.layout.size) % 7 == number
        client.plan = Plan.of(client.facts, NOISED, **{CLEAR: clear})

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Nobody is asked anything."""
        return []


class Asks(Toy, fedplug.Negotiation):
    """Everything in the clear, after a question about a component's view at a client."""

    plans = Plans(zones=frozenset({CLEAR}))

    class Options(fedplug.Options):
        """The question."""

        question: Literal["model", "first", "unmarked", "nothing"] = Field("nothing", description="what is asked")

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Asks, and keeps the answers in the server's memory."""
        if self.options.question == "unmarked":
            cohort.ask(self.unmarked)
        elif self.options.question == "first":
            cohort.only(cohort.client_ids[:1]).ask(self.see)
        elif self.options.question == "model":
            cohort.ask(self.see)
            answers = cohort.ask(self.see)  # a separate message, after the process has served other clients
            cohort.server.memory(self)[str(facts.round)] = list(answers.values())
        if self.options.question != "nothing":
            cohort.tell(self.choose)

    @at_client
    def see(self, client: Client) -> str:
        """A digest of the local model, buffers included."""
        digest = hashlib.sha256(client.model.get_vector().tobytes())
        for name, value in sorted(client.model.get_buffers().items()):
            digest.update(name.encode() + value.tobytes())
        return digest.hexdigest()

    def unmarked(self, client: Client) -> int:
        """A method that the server may not call."""
        return client.num_examples

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        client.plan = Plan.single(CLEAR, client.facts.layout.size, client.facts.zones)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """What a component sees at a client, of which it says nothing."""
        return []


SECRET = b"a secret of 32 bytes, for one . "
"""The letters between clients of `toy.ring`."""


class Ring(Toy, Correspondent, fedplug.PublicPlan):
    """Every client writes to the next one in each round, between the negotiation and the uploads."""

    plans = Plans(zones=frozenset({CLEAR}))

    def plan(self, facts: Facts) -> str:
        """Everything is clear."""
        return CLEAR

    def prepare(self, cohort: Cohort, facts: Facts) -> None:
        """Letters go around the ring."""
        ids = cohort.client_ids
        after = dict(zip(ids, [*ids[1:], ids[0]], strict=True))
        self.introduce(cohort, facts, {each: [other for pair in after.items() for other in pair] for each in ids})
        letters = cohort.ask_each(self.send, after)
        letters = {after[sender]: {sender: letter} for sender, letter in letters.items()}
        if len(cohort.ask_each(self.receive, letters)) < len(ids):
            raise TooFewClients(f"round {facts.round + 1}: the ring is broken")

    @at_client
    def send(self, client: Client, receiver: int) -> bytes:
        """A letter to the next one."""
        assert client.plan is not None  # the negotiation came before
        return self.write_letters(client, {receiver: SECRET}, "ring")[receiver]

    @at_client
    def receive(self, client: Client, letters: dict[int, bytes]) -> bool:
        """Whether the letter holds what was written."""
        return list(self.read_letters(client, letters, "ring").values()) == [SECRET]
