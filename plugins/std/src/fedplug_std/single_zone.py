"""The simplest plan: the whole update is one zone."""

from __future__ import annotations

import fedplug
from fedplug import Facts, Field, Plans


class SingleZone(fedplug.PublicPlan):
    """Put the whole model into one zone.

    `clear` gives FedAvg, `noised` gives DP-FedAvg, `encrypted` gives encrypted FedAvg. The plan is public and does not
    depend on data.
    """

    class Options(fedplug.Options):
        zone: str = Field("clear", description="the zone that holds every scalar")

    @property
    def plans(self) -> Plans:
        """One zone, whatever the clients and the data."""
        return Plans(zones=frozenset({self.options.zone}), fixed=True)

    def plan(self, facts: Facts) -> str:
        """The zone of the options."""
        zone: str = self.options.zone
        return zone

    def describe(self) -> str:
        return f"the whole model is {self.options.zone}; no ballots"
