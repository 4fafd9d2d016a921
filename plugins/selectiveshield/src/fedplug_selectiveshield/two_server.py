"""SelectiveShield's aggregation: one server adds, another opens the sum (paper, Sec. 4.5, Alg. 1, lines 15-21)."""

from __future__ import annotations

from typing import Any, Literal

import fedplug
from fedplug import Facts, Field, Known, Misplaced, Operations, Seal, WeightedSum
from fedplug_std.gaussian import NoiseOptions


class TwoServer(fedplug.Aggregator):
    """Sum ciphertexts and noised values at a server without the key; the key server opens (SelectiveShield, Sec. 4.5).

    All clients have equal weight. A position that some clients retain is divided by the number of clients that sent it.
    `clients` divides by all clients that sent the zone, as eq. 26 does (as published), which shrinks the mean there.

    The step is server_lr times the mean. The paper says that server_lr = K gives FedAvg. It gives the sum of all
    updates; 1 gives FedAvg.
    """

    class Options(fedplug.Options):
        divide_by: Literal["contributors", "clients"] = Field(
            "contributors",
            description="each position by the clients that sent it, or by all clients (eq. 26, as published)",
        )
        server_lr: float = Field(
            1.0, gt=0, allow_inf_nan=False, description="eta_g of eq. 26, factor on the mean; 1 is FedAvg"
        )

    options: Options

    def check(self, recipe: Any) -> list[str]:
        """No other rule may divide the sums."""
        changed = self.options.server_lr != 1 or self.options.divide_by != "contributors"
        poisson = recipe.sampling is not None and recipe.sampling.scheme == "poisson"
        opening = [use for chain in recipe.postprocess.values() for use in chain]
        central = [use for use in opening if isinstance(use.options, NoiseOptions)]
        if not (changed and poisson and central):
            return []
        return [
            f"with poisson sampling, sums that {central[0].name} noises are divided by the expected weight, so "
            "server_lr and divide_by have no effect on them; leave both out"
        ]

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """Eqs. 23 and 24: the sum of one zone, whose divisor makes its mean the step of eq. 26.

        Raises:
            Misplaced: no key server opens what is encrypted.
        """
        closed = known.closed
        if isinstance(closed, Seal) and closed.opened_by != "key_server":
            shared = closed.opened_by == "shares"
            holder = "nobody holds" if shared else "the clients hold"
            raise Misplaced(
                f"{holder} the key of zone {known.zone}, but this aggregation needs a second server that opens sums; "
                f"write {'' if shared else 'key_holder: key_server, or '}aggregate: {{use: std.mean, weighting: "
                "uniform}"
            )
        by: Literal["sent", "all"] = "sent" if self.options.divide_by == "contributors" else "all"
        return (WeightedSum(divided_by=by, rate=self.options.server_lr),)

    def describe(self) -> str:
        divided = "those that sent it" if self.options.divide_by == "contributors" else "all clients (as published)"
        rate = "" if self.options.server_lr == 1 else f", times {self.options.server_lr:g}"
        return f"sums at a server without the key; every position divided by {divided}{rate}"
