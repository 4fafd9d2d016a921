"""The kit's checks: attempts of the server and a few clients on uploads, sums and shares."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug_kit import conformance


@pytest.mark.parametrize(("name", "options"), [
    ("secagg.bonawitz", {}), pytest.param("secagg.bonawitz", {"signed": True}, marks=pytest.mark.slow),
    ("secagg.plus", {}),
])  # fmt: skip
def test_a_component_conforms(name: str, options: dict[str, Any]) -> None:
    around: dict[str, Any] = {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"}, "min_clients": 4,
        "protect": {"encrypted": [{"use": "std.clip", "norm": 1.0}, {"use": name, **options}]},
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "postprocess": {"encrypted": [name]}, "model": {"use": "kit.two_layers", "hidden": 8},
    }  # fmt: skip
    conformance(name, options, recipe=around)
