"""Sketch: a negotiation."""

import fedplug
from fedplug import Client, Cohort, Facts, Plan, Plans, Reveals, at_client


class Thing(fedplug.Negotiation):
    """Noise the whole model in each round in which a client wishes it."""

    plans = Plans(zones=frozenset({"noised", "clear"}))

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        wished = any(wish is True for wish in cohort.ask(self.wish).values())  # clients may answer anything
        cohort.tell(self.adopt, "noised" if wished else "clear")

    @at_client
    def wish(self, client: Client) -> bool:
        return client.num_examples < 100

    @at_client
    def adopt(self, client: Client, zone: str) -> None:
        client.plan = Plan.single(zone, client.facts.layout.size, client.facts.zones)

    def reveals(self, facts: Facts) -> list[Reveals]:
        return [Reveals("mask", ("server", "client"), asked=("wish",), note="wishes follow from how many examples")]
