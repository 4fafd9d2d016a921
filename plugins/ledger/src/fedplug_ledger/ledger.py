"""The privacy ledger of a run: its book, with the guarantees that follow from it."""

from __future__ import annotations

from fedplug_ledger.book import Book
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_ledger.reporting import report
from fedplug_ledger.verdict import Verdict
from fedplug_ledger.views import verdict, zone_epsilons


class Ledger(Book):
    """The privacy account of one run; see `Book`."""

    def epsilon(self) -> float | None:
        """Epsilon spent of the zones with noise: worst client, zero-out, at `delta`; None if no zone had noise.

        Toward observers of the client's uploads where noise is local, and of the released sums where it is
        central, with the credit for sampling that `accountant` grants.
        """
        figures = zone_epsilons(self)
        return None if figures is None else figures.epsilon

    def report(self) -> LedgerReport:
        """The whole account, as `ledger.json` has it."""
        return report(self)

    def verdict(self) -> Verdict:
        """The guarantee toward each party, and its assumptions."""
        return verdict(self)
