"""fedplug: compose, run, attack and compare privacy protocols for federated learning.

    run = fedplug.run("recipes/paraaegis-dynamic.yaml", rounds=5)

The names below are the public API, for scripts and for plugin authors. They are imported on first use: `fedplug list`
stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import Field as Field

    from fedplug.api.base import Component as Component
    from fedplug.api.blocks import add_blocks as add_blocks
    from fedplug.api.component import Options as Options
    from fedplug.api.component import at_client as at_client
    from fedplug.api.component import at_key_server as at_key_server
    from fedplug.api.component import hookimpl as hookimpl
    from fedplug.api.context import Attacker as Attacker
    from fedplug.api.context import Client as Client
    from fedplug.api.context import Context as Context
    from fedplug.api.context import KeyServer as KeyServer
    from fedplug.api.context import Party as Party
    from fedplug.api.context import Server as Server
    from fedplug.api.context import stream as stream
    from fedplug.api.effects import Adds as Adds
    from fedplug.api.effects import Bound as Bound
    from fedplug.api.effects import Changes as Changes
    from fedplug.api.effects import CoversSupport as CoversSupport
    from fedplug.api.effects import Effects as Effects
    from fedplug.api.effects import Known as Known
    from fedplug.api.effects import Learns as Learns
    from fedplug.api.effects import Misplaced as Misplaced
    from fedplug.api.effects import Noise as Noise
    from fedplug.api.effects import Opens as Opens
    from fedplug.api.effects import Reveals as Reveals
    from fedplug.api.effects import Rounding as Rounding
    from fedplug.api.effects import Scales as Scales
    from fedplug.api.effects import Scramble as Scramble
    from fedplug.api.effects import Seal as Seal
    from fedplug.api.effects import Shifts as Shifts
    from fedplug.api.effects import Uncredited as Uncredited
    from fedplug.api.errors import FedplugError as FedplugError
    from fedplug.api.errors import MetricError as MetricError
    from fedplug.api.errors import RecipeError as RecipeError
    from fedplug.api.errors import ViewError as ViewError
    from fedplug.api.model import Evaluation as Evaluation
    from fedplug.api.model import Model as Model
    from fedplug.api.observation import Meaning as Meaning
    from fedplug.api.observation import Needs as Needs
    from fedplug.api.observation import ObservedUpdate as ObservedUpdate
    from fedplug.api.observation import Seen as Seen
    from fedplug.api.observation import TensorView as TensorView
    from fedplug.api.outer_roles import Accountant as Accountant
    from fedplug.api.outer_roles import Attack as Attack
    from fedplug.api.outer_roles import DataSource as DataSource
    from fedplug.api.outer_roles import Extension as Extension
    from fedplug.api.outer_roles import Metric as Metric
    from fedplug.api.outer_roles import ModelSource as ModelSource
    from fedplug.api.outer_roles import Partition as Partition
    from fedplug.api.role_records import Account as Account
    from fedplug.api.role_records import Finds as Finds
    from fedplug.api.role_records import GroundTruth as GroundTruth
    from fedplug.api.role_records import Measures as Measures
    from fedplug.api.role_records import Plans as Plans
    from fedplug.api.role_records import Reads as Reads
    from fedplug.api.role_records import Scoring as Scoring
    from fedplug.api.role_records import Wants as Wants
    from fedplug.api.roles import AccountKeeper as AccountKeeper
    from fedplug.api.roles import Aggregator as Aggregator
    from fedplug.api.roles import Groups as Groups
    from fedplug.api.roles import Negotiation as Negotiation
    from fedplug.api.roles import Opener as Opener
    from fedplug.api.roles import Protector as Protector
    from fedplug.api.roles import Scorer as Scorer
    from fedplug.api.roles import Sealer as Sealer
    from fedplug.api.roles import Trainer as Trainer
    from fedplug.api.truth import Truth as Truth
    from fedplug.api.types import Block as Block
    from fedplug.api.types import ClientData as ClientData
    from fedplug.api.types import Dataset as Dataset
    from fedplug.api.types import Examples as Examples
    from fedplug.api.types import Layout as Layout
    from fedplug.api.types import Plan as Plan
    from fedplug.api.types import PublicData as PublicData
    from fedplug.api.views import AttackReport as AttackReport
    from fedplug.api.views import View as View
    from fedplug.privacy.accounting import gaussian_delta as gaussian_delta
    from fedplug.privacy.accounting import gaussian_epsilon as gaussian_epsilon
    from fedplug.privacy.accounting import gaussian_noise_multiplier as gaussian_noise_multiplier
    from fedplug.recipe.recipe import Recipe as Recipe
    from fedplug.recipe.sections import Around as Around
    from fedplug.recipe.sections import Section as Section
    from fedplug.runs.functions import check as check
    from fedplug.runs.functions import components as components
    from fedplug.runs.functions import open_run as open_run
    from fedplug.runs.functions import resume as resume
    from fedplug.runs.functions import run as run
    from fedplug.runs.result import Run as Run
    from fedplug.runs.settings import Settings as Settings
    from fedplug.wire.cohort import Cohort as Cohort

_HOME = {
    "Field": "pydantic",
    "gaussian_delta": "fedplug.privacy.accounting",
    "gaussian_epsilon": "fedplug.privacy.accounting",
    "gaussian_noise_multiplier": "fedplug.privacy.accounting",
    "add_blocks": "fedplug.api.blocks",
    "Cohort": "fedplug.wire.cohort",
    "Options": "fedplug.api.component",
    "at_client": "fedplug.api.component",
    "at_key_server": "fedplug.api.component",
    "hookimpl": "fedplug.api.component",
    "Client": "fedplug.api.context",
    "Context": "fedplug.api.context",
    "KeyServer": "fedplug.api.context",
    "Party": "fedplug.api.context",
    "Server": "fedplug.api.context",
    "stream": "fedplug.api.context",
    "FedplugError": "fedplug.api.errors",
    "Evaluation": "fedplug.api.model",
    "Model": "fedplug.api.model",
    "Attacker": "fedplug.api.context",
    "MetricError": "fedplug.api.errors",
    "ViewError": "fedplug.api.errors",
    "Meaning": "fedplug.api.observation",
    "Needs": "fedplug.api.observation",
    "ObservedUpdate": "fedplug.api.observation",
    "Seen": "fedplug.api.observation",
    "TensorView": "fedplug.api.observation",
    "Adds": "fedplug.api.effects",
    "Bound": "fedplug.api.effects",
    "Changes": "fedplug.api.effects",
    "CoversSupport": "fedplug.api.effects",
    "Effects": "fedplug.api.effects",
    "Known": "fedplug.api.effects",
    "Learns": "fedplug.api.effects",
    "Misplaced": "fedplug.api.effects",
    "Noise": "fedplug.api.effects",
    "Opens": "fedplug.api.effects",
    "Reveals": "fedplug.api.effects",
    "Rounding": "fedplug.api.effects",
    "Scales": "fedplug.api.effects",
    "Scramble": "fedplug.api.effects",
    "Seal": "fedplug.api.effects",
    "Shifts": "fedplug.api.effects",
    "Uncredited": "fedplug.api.effects",
    "Account": "fedplug.api.role_records",
    "AccountKeeper": "fedplug.api.roles",
    "Accountant": "fedplug.api.outer_roles",
    "Aggregator": "fedplug.api.roles",
    "Attack": "fedplug.api.outer_roles",
    "Component": "fedplug.api.base",
    "DataSource": "fedplug.api.outer_roles",
    "Extension": "fedplug.api.outer_roles",
    "Finds": "fedplug.api.role_records",
    "GroundTruth": "fedplug.api.role_records",
    "Groups": "fedplug.api.roles",
    "Measures": "fedplug.api.role_records",
    "Metric": "fedplug.api.outer_roles",
    "ModelSource": "fedplug.api.outer_roles",
    "Negotiation": "fedplug.api.roles",
    "Opener": "fedplug.api.roles",
    "Partition": "fedplug.api.outer_roles",
    "Plans": "fedplug.api.role_records",
    "Protector": "fedplug.api.roles",
    "Reads": "fedplug.api.role_records",
    "Scorer": "fedplug.api.roles",
    "Scoring": "fedplug.api.role_records",
    "Sealer": "fedplug.api.roles",
    "Trainer": "fedplug.api.roles",
    "Wants": "fedplug.api.role_records",
    "Around": "fedplug.recipe.sections",
    "Section": "fedplug.recipe.sections",
    "Truth": "fedplug.api.truth",
    "Block": "fedplug.api.types",
    "ClientData": "fedplug.api.types",
    "Dataset": "fedplug.api.types",
    "Examples": "fedplug.api.types",
    "Layout": "fedplug.api.types",
    "Plan": "fedplug.api.types",
    "PublicData": "fedplug.api.types",
    "AttackReport": "fedplug.api.views",
    "View": "fedplug.api.views",
    "Run": "fedplug.runs.result",
    "Recipe": "fedplug.recipe.recipe",
    "Settings": "fedplug.runs.settings",
    "RecipeError": "fedplug.api.errors",
    "run": "fedplug.runs.functions",
    "resume": "fedplug.runs.functions",
    "open_run": "fedplug.runs.functions",
    "check": "fedplug.runs.functions",
    "components": "fedplug.runs.functions",
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
