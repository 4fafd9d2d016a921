"""Audits of runs: canaries by coin flips, and the epsilon that they show, beside what the ledger claims."""

from __future__ import annotations

from fedplug_audit.auditing import Audit, Shown, audit

__all__ = ["Audit", "Shown", "audit"]
