"""fedplug: compose, run, attack and compare privacy protocols for federated learning.

The names below are the public API for plugin authors. They are imported on first use: `fedplug list` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import Field as Field

    from fedplug.accounting import gaussian_delta as gaussian_delta
    from fedplug.accounting import gaussian_epsilon as gaussian_epsilon
    from fedplug.accounting import gaussian_noise_multiplier as gaussian_noise_multiplier
    from fedplug.blocks import add_blocks as add_blocks
    from fedplug.cohort import Cohort as Cohort
    from fedplug.component import Options as Options
    from fedplug.component import at_client as at_client
    from fedplug.component import at_key_server as at_key_server
    from fedplug.component import hookimpl as hookimpl
    from fedplug.context import Attacker as Attacker
    from fedplug.context import Client as Client
    from fedplug.context import Context as Context
    from fedplug.context import KeyServer as KeyServer
    from fedplug.context import Party as Party
    from fedplug.context import Server as Server
    from fedplug.context import stream as stream
    from fedplug.effects import Adds as Adds
    from fedplug.effects import Bound as Bound
    from fedplug.effects import Changes as Changes
    from fedplug.effects import CoversSupport as CoversSupport
    from fedplug.effects import Effects as Effects
    from fedplug.effects import Known as Known
    from fedplug.effects import Learns as Learns
    from fedplug.effects import Misplaced as Misplaced
    from fedplug.effects import Noise as Noise
    from fedplug.effects import Opens as Opens
    from fedplug.effects import Reveals as Reveals
    from fedplug.effects import Rounding as Rounding
    from fedplug.effects import Scales as Scales
    from fedplug.effects import Scramble as Scramble
    from fedplug.effects import Seal as Seal
    from fedplug.effects import Shifts as Shifts
    from fedplug.effects import Uncredited as Uncredited
    from fedplug.errors import FedplugError as FedplugError
    from fedplug.errors import MetricError as MetricError
    from fedplug.errors import ViewError as ViewError
    from fedplug.model import Evaluation as Evaluation
    from fedplug.model import Model as Model
    from fedplug.observation import Meaning as Meaning
    from fedplug.observation import Needs as Needs
    from fedplug.observation import ObservedUpdate as ObservedUpdate
    from fedplug.observation import Seen as Seen
    from fedplug.observation import TensorView as TensorView
    from fedplug.roles import Accountant as Accountant
    from fedplug.roles import Aggregator as Aggregator
    from fedplug.roles import Attack as Attack
    from fedplug.roles import Component as Component
    from fedplug.roles import DataSource as DataSource
    from fedplug.roles import Extension as Extension
    from fedplug.roles import Finds as Finds
    from fedplug.roles import Groups as Groups
    from fedplug.roles import Measures as Measures
    from fedplug.roles import Metric as Metric
    from fedplug.roles import ModelSource as ModelSource
    from fedplug.roles import Negotiation as Negotiation
    from fedplug.roles import Opener as Opener
    from fedplug.roles import Partition as Partition
    from fedplug.roles import Plans as Plans
    from fedplug.roles import Protector as Protector
    from fedplug.roles import Reads as Reads
    from fedplug.roles import RecordTrainer as RecordTrainer
    from fedplug.roles import Scorer as Scorer
    from fedplug.roles import Scoring as Scoring
    from fedplug.roles import Sealer as Sealer
    from fedplug.roles import Trainer as Trainer
    from fedplug.roles import Wants as Wants
    from fedplug.sections import Around as Around
    from fedplug.sections import Section as Section
    from fedplug.truth import Truth as Truth
    from fedplug.types import Block as Block
    from fedplug.types import ClientData as ClientData
    from fedplug.types import Dataset as Dataset
    from fedplug.types import Examples as Examples
    from fedplug.types import Layout as Layout
    from fedplug.types import Plan as Plan
    from fedplug.types import PublicData as PublicData
    from fedplug.views import AttackReport as AttackReport
    from fedplug.views import View as View

_HOME = {
    "Field": "pydantic",
    "gaussian_delta": "fedplug.accounting",
    "gaussian_epsilon": "fedplug.accounting",
    "gaussian_noise_multiplier": "fedplug.accounting",
    "add_blocks": "fedplug.blocks",
    "Cohort": "fedplug.cohort",
    "Options": "fedplug.component",
    "at_client": "fedplug.component",
    "at_key_server": "fedplug.component",
    "hookimpl": "fedplug.component",
    "Client": "fedplug.context",
    "Context": "fedplug.context",
    "KeyServer": "fedplug.context",
    "Party": "fedplug.context",
    "Server": "fedplug.context",
    "stream": "fedplug.context",
    "FedplugError": "fedplug.errors",
    "Evaluation": "fedplug.model",
    "Model": "fedplug.model",
    "Attacker": "fedplug.context",
    "MetricError": "fedplug.errors",
    "ViewError": "fedplug.errors",
    "Meaning": "fedplug.observation",
    "Needs": "fedplug.observation",
    "ObservedUpdate": "fedplug.observation",
    "Seen": "fedplug.observation",
    "TensorView": "fedplug.observation",
    "Adds": "fedplug.effects",
    "Bound": "fedplug.effects",
    "Changes": "fedplug.effects",
    "CoversSupport": "fedplug.effects",
    "Effects": "fedplug.effects",
    "Known": "fedplug.effects",
    "Learns": "fedplug.effects",
    "Misplaced": "fedplug.effects",
    "Noise": "fedplug.effects",
    "Opens": "fedplug.effects",
    "Reveals": "fedplug.effects",
    "Rounding": "fedplug.effects",
    "Scales": "fedplug.effects",
    "Scramble": "fedplug.effects",
    "Seal": "fedplug.effects",
    "Shifts": "fedplug.effects",
    "Uncredited": "fedplug.effects",
    "Accountant": "fedplug.roles",
    "Aggregator": "fedplug.roles",
    "Attack": "fedplug.roles",
    "Component": "fedplug.roles",
    "DataSource": "fedplug.roles",
    "Extension": "fedplug.roles",
    "Finds": "fedplug.roles",
    "Groups": "fedplug.roles",
    "Measures": "fedplug.roles",
    "Metric": "fedplug.roles",
    "ModelSource": "fedplug.roles",
    "Negotiation": "fedplug.roles",
    "Opener": "fedplug.roles",
    "Partition": "fedplug.roles",
    "Plans": "fedplug.roles",
    "Protector": "fedplug.roles",
    "Reads": "fedplug.roles",
    "RecordTrainer": "fedplug.roles",
    "Scorer": "fedplug.roles",
    "Scoring": "fedplug.roles",
    "Sealer": "fedplug.roles",
    "Trainer": "fedplug.roles",
    "Wants": "fedplug.roles",
    "Around": "fedplug.sections",
    "Section": "fedplug.sections",
    "Truth": "fedplug.truth",
    "Block": "fedplug.types",
    "ClientData": "fedplug.types",
    "Dataset": "fedplug.types",
    "Examples": "fedplug.types",
    "Layout": "fedplug.types",
    "Plan": "fedplug.types",
    "PublicData": "fedplug.types",
    "AttackReport": "fedplug.views",
    "View": "fedplug.views",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'fedplug' has no attribute {name!r}") from None
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
