"""Which role each entry-point group offers."""

from __future__ import annotations

from typing import Any

from fedplug.api.base import Component
from fedplug.api.outer_roles import (
    Accountant,
    Attack,
    DataSource,
    Extension,
    Metric,
    ModelSource,
    Partition,
)  # fmt: skip
from fedplug.api.roles import Aggregator, Groups, Negotiation, Opener, Protector, Scorer, Trainer

ROLES: dict[str, type[Component]] = {
    "score_parameters": Scorer,
    "negotiate_mask": Negotiation,
    "protect": Protector,
    "aggregate": Aggregator,
    "postprocess": Opener,
    "attack": Attack,
    "dataset": DataSource,
    "partition": Partition,
    "model": ModelSource,
    "trainer": Trainer,
    "metric": Metric,
    "accountant": Accountant,
    "groups": Groups,
    "extension": Extension,
}
"""The role of each entry-point group."""


def place_of(component: Any, method: str) -> str:
    """Where a method that runs at another party belongs, for errors: `component a.b, hook protect, method share: `.

    Empty for the protocol's own, which name themselves what they ran.
    """
    hooks = [group for group, role in ROLES.items() if isinstance(component, role)]
    return f"component {component.name}, hook {' and '.join(hooks)}, method {method}: " if hooks else ""
