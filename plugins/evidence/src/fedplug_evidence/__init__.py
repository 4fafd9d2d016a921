"""Evidence of a run: a signed folder that says what was protected, what was not, and what was sent. And its check."""

from __future__ import annotations

from fedplug_evidence.making import make_evidence
from fedplug_evidence.verifying import Verified, verify_folder

__all__ = ["Verified", "make_evidence", "verify_folder"]
