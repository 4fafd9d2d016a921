"""fedplug: compose, run, attack and compare privacy protocols for federated learning.

    run = fedplug.run("recipes/paraaegis-dynamic.yaml", rounds=5)

The names below are the public API, for scripts and for plugin authors. They are imported on first use: `fedplug list`
stays fast.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # as type checkers know it: until the program handles Ctrl-C itself, every import counts

if TYPE_CHECKING:
    from typing import Any

    from pydantic import Field as Field

    from fedplug.api.base import Component as Component
    from fedplug.api.blocks import add_blocks as add_blocks
    from fedplug.api.blocks import join_sums as join_sums
    from fedplug.api.component import Options as Options
    from fedplug.api.component import at_client as at_client
    from fedplug.api.component import at_key_server as at_key_server
    from fedplug.api.component import hookimpl as hookimpl
    from fedplug.api.context import Client as Client
    from fedplug.api.context import Context as Context
    from fedplug.api.context import KeyServer as KeyServer
    from fedplug.api.context import Party as Party
    from fedplug.api.context import Server as Server
    from fedplug.api.data import ClientData as ClientData
    from fedplug.api.data import Dataset as Dataset
    from fedplug.api.data import Examples as Examples
    from fedplug.api.data import PublicData as PublicData
    from fedplug.api.effects import Adds as Adds
    from fedplug.api.effects import Bound as Bound
    from fedplug.api.effects import Changes as Changes
    from fedplug.api.effects import CoversSupport as CoversSupport
    from fedplug.api.effects import Effects as Effects
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
    from fedplug.api.known import Known as Known
    from fedplug.api.model import Evaluation as Evaluation
    from fedplug.api.model import Model as Model
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
    from fedplug.api.streams import stream as stream
    from fedplug.api.types import Block as Block
    from fedplug.api.types import Layout as Layout
    from fedplug.api.types import Plan as Plan
    from fedplug.privacy.accounting import gaussian_delta as gaussian_delta
    from fedplug.privacy.accounting import gaussian_epsilon as gaussian_epsilon
    from fedplug.privacy.accounting import gaussian_noise_multiplier as gaussian_noise_multiplier
    from fedplug.recipe.recipe import Recipe as Recipe
    from fedplug.recipe.sections import Around as Around
    from fedplug.recipe.sections import Section as Section
    from fedplug.recipe.yaml_source import KeyPath as KeyPath
    from fedplug.runs.functions import check as check
    from fedplug.runs.functions import components as components
    from fedplug.runs.functions import open_run as open_run
    from fedplug.runs.functions import resume as resume
    from fedplug.runs.functions import run as run
    from fedplug.runs.result import Run as Run
    from fedplug.runs.settings import Settings as Settings
    from fedplug.wire.cohort import Cohort as Cohort
    from fedplug.wire.key_server_line import KeyServerLine as KeyServerLine

# The names are written once, above, where type checkers read them: `from MODULE import NAME as NAME`.
_SOURCE = __loader__.get_data(__file__).decode()  # type: ignore[name-defined]
_LINES = (line.split() for line in _SOURCE.splitlines())
_HOME: dict[str, str] = {words[3]: words[1] for words in _LINES if words[:1] == ["from"] and words[4:5] == ["as"]}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'fedplug' has no attribute {name!r}") from None
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
