"""Audits of runs: canaries chosen by coin flips give a lower bound of epsilon, compared with the ledger's claim."""

from __future__ import annotations

from fedplug_audit.auditing import Audit, Shown, audit

__all__ = ["Audit", "Shown", "audit"]
