"""Attacks on recorded messages of a run, and the metrics that measure what they learnt.

The names below are for authors of attacks and metrics. They are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedplug_attacks.api.needs import Needs as Needs
    from fedplug_attacks.api.observation import Meaning as Meaning
    from fedplug_attacks.api.observation import Observation as Observation
    from fedplug_attacks.api.observation import ObservedUpdate as ObservedUpdate
    from fedplug_attacks.api.observation import Seen as Seen
    from fedplug_attacks.api.observation import TensorView as TensorView
    from fedplug_attacks.api.planting import Plants as Plants
    from fedplug_attacks.api.report import AttackReport as AttackReport
    from fedplug_attacks.api.several import each_round as each_round
    from fedplug_attacks.api.several import of_the_same as of_the_same
    from fedplug_attacks.api.several import stacked as stacked
    from fedplug_attacks.api.truth import Truth as Truth
    from fedplug_attacks.api.view import Attacker as Attacker
    from fedplug_attacks.api.view import View as View

_HOME = {
    "Needs": "needs", "Meaning": "observation", "Observation": "observation", "ObservedUpdate": "observation",
    "Seen": "observation", "TensorView": "observation", "AttackReport": "report", "Plants": "planting",
    "each_round": "several",
    "of_the_same": "several", "stacked": "several", "Truth": "truth", "Attacker": "view", "View": "view",
}  # fmt: skip

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedplug_attacks' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedplug_attacks.api.{_HOME[name]}"), name)
