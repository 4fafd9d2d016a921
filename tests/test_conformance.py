"""Every first-party component does what it says; and a component that does not is found out."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, Bound, Client, Context, Effects, Field, Known, Noise, hookimpl
from fedplug.catalog import Catalog
from fedplug.testing import conformance

OURS = ("fedplug-std", "fedplug-paraaegis", "fedplug-selectiveshield", "fedplug-sensecrypt", "fedplug-fas", "fedplug-fedre",
        "fedplug-baselines", "fedplug-attacks", "fedplug-borda")  # fmt: skip

NAMES = sorted({entry.name for entry in Catalog.discover() if entry.distribution in OURS and entry.group != "engine"})
GAUSSIAN = {"noise_multiplier": 1.0, "source": "reproducible"}
OPTIONS: dict[str, dict[str, Any]] = {
    "attacks.lpips": {"folder": "absent"},
    "attacks.dlg": {"iterations": 3}, "attacks.idlg": {"iterations": 3},
    "attacks.inverting": {"iterations": 5}, "attacks.gradinversion": {"iterations": 5},
    "baselines.dp_sgd": {"noise_multiplier": 1.0, "source": "reproducible"},
    "baselines.feddpa_noise": {"examples": 160, "epochs": 1, "batch_size": 4, "source": "reproducible"},
    "baselines.ldp_fed": {"bound": 0.1, "epsilon": 50, "source": "reproducible"},
    "baselines.lwe": {"noise_multiplier": 1.0},
    "baselines.nbafl": {"norm": 5.0, "epsilon": 0.5, "min_examples": 1, "source": "reproducible"},
    "fedre.layer_budgets": {"epsilon": 8, "delta": 1e-5, "norm": 0.5, "source": "reproducible", "by": "kit.layer_scores"},
    "fedre.sensitive_layers": {"layers": 1, "by": "kit.layer_scores"},
    "paraaegis.literal_noise": {"epsilon": 8},
    "selectiveshield.noise": GAUSSIAN,
    "std.central_gaussian": {**GAUSSIAN, "norm": 1.0},
    "std.clip": {"norm": 1.0}, "std.clip_l1": {"norm": 1.0},
    "std.gaussian": GAUSSIAN, "std.laplace": GAUSSIAN,
    "std.categories": {"categories": 5},
    "std.image_folder": {"path": "absent"},
}  # fmt: skip
RECIPES: dict[str, dict[str, Any]] = {}
"""What a component needs around it that the kit's own recipe has not."""
SHAPES = {"std.densenet121": (1, 32, 32), "std.alexnet": (3, 64, 64)}


@pytest.mark.parametrize("name", NAMES)
def test_a_component_does_what_it_says(name: str) -> None:
    conformance(name, OPTIONS.get(name, {}), recipe=RECIPES.get(name), shape=SHAPES.get(name, (1, 28, 28)))
