"""Every component of this plugin conforms to its statements, in a small run around it."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.recipe.catalog import Catalog
from fedplug_kit.conform import conformance

UNIFORM = {"aggregate": {"use": "std.mean", "weighting": "uniform"}}
SEALED: dict[str, Any] = {
    "protect": {"encrypted": [{"use": "std.bfv"}], "clear": []}, "postprocess": {"encrypted": ["std.bfv"]},
}  # fmt: skip
ASKED: dict[str, Any] = {
    "data": {"use": "std.diabetes", "clients": 4, "partition": {"use": "std.iid"}},
    "model": {
        "use": "analytics.statistics",
        "of": [
            {"statistic": "count"}, {"statistic": "mean", "column": "bmi", "bounds": [15, 45]},
            {"statistic": "histogram", "column": "age", "edges": [15, 50, 85]},
        ],
    },
    "task": "analytics.statistics", "rounds": 1, "answers": {}, **UNIFORM,
}  # fmt: skip
CASES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "percentile_privacy": [({}, {}), ({"of": "weights", "steps": 3}, {})],
    "svt_privacy": [({"source": "reproducible"}, {}), ({"of": "weights", "source": "reproducible"}, {}), ({}, {})],
    "local_dp_mod": [
        ({"clipping_norm": 1.0, "sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5, "source": "reproducible"}, {})
    ],
    "fixed_clipping": [
        ({"clipping_norm": 0.5, "noise_multiplier": 1.0, "source": "reproducible"}, UNIFORM),
        ({"clipping_norm": 0.5, "noise_multiplier": 1.0, "num_sampled_clients": 9, "clips": "server"}, UNIFORM),
        ({"clipping_norm": 0.5, "noise_multiplier": 1.0, "source": "reproducible"}, {}),
    ],
    "adaptive_clipping": [
        ({"noise_multiplier": 0.2, "clipped_count_stddev": 1.0, "source": "reproducible"}, UNIFORM),
        ({"noise_multiplier": 0.2, "clipped_count_stddev": 1.0, "clips": "server"}, UNIFORM),
    ],
    "appfl_output_perturbation": [({"source": "reproducible"}, {})],
    "fedml_global_dp": [({"epsilon": 1.0, "delta": 1e-5, "max_grad_norm": 1.0, "source": "reproducible"}, {})],
    "fedml_local_dp": [({"epsilon": 1.0, "delta": 1e-5, "source": "reproducible"}, {})],
    "fedbiomed_central_dp": [({"sigma": 1.0, "clip": 1.0, "source": "reproducible"}, {})],
    "statistics_privacy": [({}, ASKED)],
    "exclude_vars": [({"exclude_vars": "bias"}, {})],
    "encrypt_layers": [({"encrypt_layers": "^3"}, SEALED)],
}  # fmt: skip


def test_every_component_has_a_case() -> None:
    entries = Catalog.discover().groups.values()
    assert {f"deployed.{name}" for name in CASES} == {
        entry.name for group in entries for entry in group.values() if entry.distribution == "fedplug-deployed"
    }


RARELY = {("svt_privacy", 0), ("svt_privacy", 1), ("percentile_privacy", 1)}
"""Cases that differ from another one of the component in a number, or in how it is found."""


@pytest.mark.parametrize(
    ("name", "options", "recipe"),
    [
        pytest.param(name, *case, id=f"{name}-{i}", marks=pytest.mark.slow if (name, i) in RARELY else ())
        for name, cases in CASES.items()
        for i, case in enumerate(cases)
    ],
)
def test_conforms(name: str, options: dict[str, Any], recipe: dict[str, Any]) -> None:
    conformance(f"deployed.{name}", options, recipe={"model": {"use": "kit.two_layers", "hidden": 8}, **recipe})
