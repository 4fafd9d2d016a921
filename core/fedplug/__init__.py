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
    from fedplug.truth import Truth as Truth
    from fedplug.types import Block as Block
    from fedplug.types import ClientData as ClientData
    from fedplug.types import Dataset as Dataset
    from fedplug.types import Examples as Examples
    from fedplug.types import Layout as Layout
    from fedplug.types import Plan as Plan
    from fedplug.types import PublicData as PublicData
    from fedplug.types import Release as Release
    from fedplug.types import SideChannel as SideChannel
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
    "Truth": "fedplug.truth",
    "Block": "fedplug.types",
    "ClientData": "fedplug.types",
    "Dataset": "fedplug.types",
    "Examples": "fedplug.types",
    "Layout": "fedplug.types",
    "Plan": "fedplug.types",
    "PublicData": "fedplug.types",
    "Release": "fedplug.types",
    "SideChannel": "fedplug.types",
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
