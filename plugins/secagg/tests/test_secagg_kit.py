"""The kit's checks: what the server and few clients can do with uploads, sums and shares."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug_kit import conformance


@pytest.mark.parametrize("name", ["secagg.bonawitz", "secagg.plus"])
def test_a_component_conforms(name: str) -> None:
    around: dict[str, Any] = {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"}, "min_clients": 3,
        "protect": {"encrypted": [{"use": "std.clip", "norm": 1.0}, {"use": name}]},
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "postprocess": {"encrypted": [name]},
    }  # fmt: skip
    conformance(name, {}, recipe=around)
