"""Clips a client's sums to what so many records can add up to, for noise that protects clients as a whole."""

from __future__ import annotations

from typing import Literal

import fedplug
from fedplug import Facts, Field, Known, Operations

from fedplug_analytics.statistics import statistics_of


class Clip(fedplug.Protector):
    """Scale a client's sums down to the largest norm that a number of its records can have.

    The norm is records times what one record adds at most, which follows from the public bounds of the statistics. Sums
    of so many records pass unchanged. The sums of a client with more may be scaled down, all by one factor: the client
    then counts less, also in numbers of records. Noise behind it protects clients as a whole.
    """

    class Options(fedplug.Options):
        """Options of `analytics.clip`."""

        records: int = Field(ge=1, description="public number of records; no client should have more")
        order: Literal[1, 2] = Field(2, description="of the norm: 2 for Gaussian noise, 1 for Laplace noise")

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A clip to the norm.

        Raises:
            Misplaced: the values are encrypted.
            ProtectionError: the recipe asks no statistics.
        """
        known.before("encryption", f"ciphertexts cannot be clipped; put {self.name} before the encryption")
        # Rounding sums to float32 lifts no norm by more than one part in 2^24.
        norm = self.options.records * statistics_of(facts).record_norm(self.options.order) * (1 + 2.0**-20)
        return (fedplug.Clip(norm, order=float(self.options.order)),)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"clip to the L{self.options.order} norm of {self.options.records} records"
