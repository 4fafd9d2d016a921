"""Which role each entry-point group offers."""

from __future__ import annotations

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
