"""Components that make values public, and that go by what is public; in a module, since workers import them by name."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import fedplug
import numpy as np
from fedplug import (
    Client,
    Clip,
    Cohort,
    Facts,
    Field,
    Known,
    Noise,
    Operations,
    Plan,
    Plans,
    Reveals,
    Scale,
    at_client,
)
from fedplug.api.blocks import CLEAR, RETAINED
from toy_base import Toy

When = Literal["setup", "negotiate", "prepare"]
PACE = "toy.pace"


class Pace(Toy, fedplug.PublicPlan):
    """Everything in one zone, and a factor for everybody, a power of two."""

    class Options(fedplug.Options):
        """The zone, when the factor is published, and what pays for it."""

        zone: str = Field(CLEAR, description="of everything")
        when: When = Field("negotiate", description="in which hook")
        covered_by: Literal["epsilon", "nothing to pay"] | None = Field("nothing to pay", description="what pays")

    seen: ClassVar[list[tuple[str, int, float | None, float | None]]] = []
    """By hook and round, the factor in the facts that it was handed, and in those of the server behind it."""

    @property
    def plans(self) -> Plans:
        """One zone."""
        return Plans(zones=frozenset({self.options.zone}), fixed=True)

    def plan(self, facts: Facts) -> str:
        """The zone of the options."""
        zone: str = self.options.zone
        return zone

    @staticmethod
    def factor(round: int, cohort: Cohort) -> float:
        """Of the set-up or a round; smaller for the group of client 1, where there are groups."""
        small = 2.0 if len(cohort.groups) > 1 and 1 in cohort.reach else 0.0
        return float(2.0 ** -(round + 2 + small))

    def _step(self, hook: When, cohort: Cohort, facts: Facts) -> None:
        if self.options.when == hook:
            values = {"factor": self.factor(facts.round, cohort)}
            cohort.publish(self, values, covered_by=self.options.covered_by)
        now = cohort.server.facts.of(self)
        self.seen.append((hook, facts.round, facts.of(self).get("factor"), now.get("factor")))

    def setup(self, cohort: Cohort, key_server: Any, facts: Facts) -> None:
        """May publish."""
        self._step("setup", cohort, facts)

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """May publish."""
        self._step("negotiate", cohort, facts)

    def prepare(self, cohort: Cohort, facts: Facts) -> None:
        """May publish."""
        self._step("prepare", cohort, facts)


class Votes(Pace, fedplug.Ballots):
    """Publish a factor, and have clients release zeros under noise that would follow from it."""

    released: ClassVar[list[float]] = []

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Publishes first."""
        super().negotiate_mask(cohort, facts)
        cohort.ask(self.vote)

    @at_client
    def vote(self, client: Client) -> Any:
        """Zeros, under noise; notes their standard deviation."""
        noised = client.release(self, np.zeros(4000, np.float32))
        self.released.append(float(noised.std()))
        return noised

    def ballots(self, facts: Facts) -> Operations:
        """Noise of 8, or of the factor where that is known."""
        return Clip(1.0), Noise.gaussian(facts.of(self).get("factor", 8.0))

    def reveals(self, facts: Facts) -> list[Reveals]:
        """The votes."""
        return [Reveals("votes", ("server",), covered_by="epsilon", asked=("vote",))]


class Paced(Toy, fedplug.Protector, fedplug.Opener):
    """Multiply uploads by the public factor, and divide the sum by it."""

    class Options(fedplug.Options):
        """Where the sum is divided."""

        at: Literal["client", "server", "key_server"] = Field("server", description="party")

    @property
    def site(self) -> Any:
        """As the options say."""
        return self.options.at

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Times the factor."""
        return (Scale(facts.of(PACE).get("factor", 1.0)),)

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """Over the factor."""
        return (Scale(1 / facts.of(PACE).get("factor", 1.0)),)


class Bounded(Toy, fedplug.Protector):
    """Clip to the public factor, under noise of standard deviation 1: the multiplier is 1 over the factor."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A clip, and noise."""
        return Clip(facts.of(PACE).get("factor", 1.0)), Noise.gaussian(1.0)


class Turns(Toy, fedplug.PublicPlan):
    """Send one half of the scalars and keep the rest: the halves take turns, or the public number says which."""

    plans = Plans(zones=frozenset({CLEAR, RETAINED}))

    class Options(fedplug.Options):
        """What says which half."""

        published: bool = Field(False, description="whether it is published in each round, as the last thing")

    def plan(self, facts: Facts) -> Plan:
        """The half of this round."""
        return Plan.of(facts, RETAINED, clear=self.half(facts))

    def half(self, facts: Facts) -> Any:
        """Which scalars are sent, as a mask."""
        number = facts.of(self).get("half", 0) if self.options.published else facts.round % 2
        first = np.arange(facts.layout.size) < facts.layout.size // 2
        return first if number == 0 else ~first

    def prepare(self, cohort: Cohort, facts: Facts) -> None:
        """May publish."""
        if self.options.published:
            cohort.publish(self, {"half": 1 - facts.round % 2}, covered_by="nothing to pay")


class Rests(Toy, fedplug.Trainer):
    """Train on a client's examples in every second round, and on nothing in the others."""

    found: ClassVar[list[dict[str, Any]]] = []

    def reads_examples(self, facts: Facts) -> bool:
        """In rounds 1, 3, ..."""
        return facts.round % 2 == 0

    def personalise(self, client: Client, facts: Facts) -> None:
        """A model of the client's own, ahead of the global one."""
        client.personal = client.vector + np.float32(1 + client.client_id)

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Moves by the sum of the labels, and notes what it was handed."""
        memory = client.memory(self)
        labels = int(client.data.train.labels.sum())
        self.found.append({
            "client": client.client_id, "round": facts.round, "examples": len(client.data.train),
            "tests": len(client.data.own_test), "num_examples": client.num_examples, "labels": labels,
            "ahead": float((client.start - client.vector).max()), "memory": dict(memory), "scores": dict(client.scores),
            "cache": len(client.cache), "weight": client.weight,
        })  # fmt: skip
        memory[str(facts.round)] = labels
        client.cache[self.name] = labels
        client.model.set_vector(client.start + np.float32(0.001 * (1 + labels)))
        return {"loss": 0.0}


PUBLISHING: dict[str, dict[str, type]] = {
    "negotiate_mask": {PACE: Pace, "toy.turns": Turns, "toy.votes": Votes},
    "protect": {"toy.paced": Paced, "toy.bounded": Bounded},
    "postprocess": {"toy.paced": Paced},
    "trainer": {"toy.rests": Rests},
}

