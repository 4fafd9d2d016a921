"""SelectiveShield's personal models: the global model, with a client's own values where it retained them (eq. 27)."""

from __future__ import annotations

from fedplug_std.by_name import PutBack


class Merge(PutBack):
    """Continue from the global model with this client's own values where it retained them (SelectiveShield, eq. 27).

    theta_n = M_pers * theta_n,local + (1 - M_pers) * theta_global (Alg. 1, line 23). A client that is left out of a
    round keeps the values that it retained in its last one.
    """

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "each client trains on with its own values where it retained them"
