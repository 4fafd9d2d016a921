"""The simplest negotiation: the whole update is one zone."""

from __future__ import annotations

import fedplug
from fedplug import Client, Cohort, Facts, Field, Plan, Plans, at_client, hookimpl


class SingleZone(fedplug.Negotiation):
    """Put the whole model into one zone.

    `clear` gives FedAvg, `noised` gives DP-FedAvg, `encrypted` gives encrypted FedAvg. The plan is public and does not
    depend on data.
    """

    name: str

    class Options(fedplug.Options):
        zone: str = Field("clear", description="the zone that holds every scalar")

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def plans(self) -> Plans:
        """One zone, whatever the clients and the data."""
        return Plans(zones=frozenset({self.options.zone}), public=True)

    @hookimpl
    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Asks nothing; tells every client the plan."""
        cohort.tell(self.adopt)

    @at_client
    def adopt(self, client: Client) -> None:
        """Sets this round's plan."""
        client.plan = Plan.single(self.options.zone, client.facts.layout.size, client.facts.zones)

    def describe(self) -> str:
        return f"the whole model is {self.options.zone}; no ballots"
