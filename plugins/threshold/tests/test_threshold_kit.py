"""The kit's checks: attempts of the server and a few clients on uploads, sums and shares."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug_kit import conformance


@pytest.mark.parametrize("options", [{}, pytest.param({"sums_visible_to": "clients"}, marks=pytest.mark.slow)])
def test_the_component_conforms(options: dict[str, Any]) -> None:
    around: dict[str, Any] = {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"}, "min_clients": 3,
        "protect": {"encrypted": [{"use": "std.clip", "norm": 1.0}, {"use": "threshold.bfv", **options}]},
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "postprocess": {"encrypted": ["threshold.bfv"]}, "model": {"use": "kit.two_layers", "hidden": 8},
    }  # fmt: skip
    conformance("threshold.bfv", options, recipe=around)
