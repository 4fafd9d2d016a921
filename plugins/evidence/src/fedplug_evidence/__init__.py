"""Evidence of a run: a signed folder of what is protected, what is not, and what was sent; and what checks it."""

from __future__ import annotations

from fedplug_evidence.making import make_evidence
from fedplug_evidence.verifying import Verified, verify_folder

__all__ = ["Verified", "make_evidence", "verify_folder"]
