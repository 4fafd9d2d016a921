"""Every component of this plugin conforms to its statements, in a small run around it."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.recipe.catalog import Catalog
from fedplug_kit.conform import conformance

CLIP = {"use": "std.clip", "norm": 0.5}
UPLINK = {"use": "baselines.nbafl", "norm": 1.0, "epsilon": 50.0, "min_examples": 1, "exposures": 1}
SEALED: dict[str, Any] = {
    "protect": {"encrypted": [{"use": "std.bfv"}], "clear": []}, "postprocess": {"encrypted": ["std.bfv"]},
}  # fmt: skip

FEW = {"model": {"use": "kit.two_layers", "hidden": 8}}
FEWER = {"model": {"use": "kit.two_layers", "hidden": 2}}  # Paillier takes milliseconds a hundred scalars
TWO_TENSORS = {"model": {"use": "std.mlp", "hidden": []}}  # each of them is a ciphertext

CASES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "adaptive_clip": [
        ({"noise_multiplier": 1.0, "source": "reproducible"}, {}),
        ({"noise_multiplier": 1.0, "estimate": "exact", "source": "reproducible"}, {}),
        ({"noise_multiplier": 1.0}, {}),
    ],
    "batchcrypt": [({"clip": "range"}, FEWER), ({"clip": "range", "rounding": "nearest"}, FEWER), ({}, FEWER)],
    "blur": [({"penalty": 1.0, "norm": 0.1}, {})],
    "ckks": [({"like": "plato"}, TWO_TENSORS), ({"like": "nvflare", "key_holder": "clients"}, TWO_TENSORS)],
    "dp_sgd": [({"noise_multiplier": 1.0, "source": "reproducible"}, {})],
    "feddpa": [
        ({"tau": 0.2}, {"protect": {"noised": []}, "postprocess": {}}),
        ({"tau": 0.2, "send_personal": True}, {}),
    ],
    "feddpa_noise": [({"examples": 1000, "source": "reproducible"}, {})],
    "fedml_he": [({"ratio": 0.3}, SEALED | {"score_parameters": [{"use": "baselines.fedml_he_sensitivity"}]})],
    "fedml_he_sensitivity": [({}, {})],
    "ldp_fed": [
        ({"bound": 0.5, "alpha": 0.1, "source": "reproducible"}, {}),
        ({"bound": 0.5, "epsilon": 8.0, "delta": 1e-5, "source": "reproducible"}, {}),
    ],
    "ldp_fed_cycle": [({}, {})],
    "lus": [
        ({"sparsity": 0.6}, {}),
        ({"noise": "kept", "by": "magnitude"}, {"protect": {"clear": [
            {"use": "baselines.lus", "noise": "kept", "by": "magnitude"}, CLIP,
            {"use": "std.gaussian", "noise_multiplier": 0.5, "source": "reproducible"}, "baselines.lus",
        ]}}),
    ],
    "lwe": [({"noise_multiplier": 0.5, "source": "reproducible"}, {})],
    "maskcrypt": [({"ratio": 0.3}, {})],
    "maskcrypt_priority": [({}, {})],
    "nbafl": [({key: value for key, value in UPLINK.items() if key != "use"} | {"source": "reproducible"}, {})],
    "nbafl_downlink": [({}, {"protect": {"clear": [UPLINK]}})],
    "ppsgd": [({}, {})],
    "random_mask": [({"ratio": 0.3}, {}), ({"ratio": 0.3, "per_round": True}, {})],
    "user_dp_sgd": [({"noise_multiplier": 1.0, "records_per_user": 2, "source": "reproducible"}, {"data": {
        "use": "std.simulated_users", "users": 30, "of": "kit.images", "clients": 4, "partition": "std.by_user",
    }})],
}  # fmt: skip


RARELY = {
    ("batchcrypt", 0), ("batchcrypt", 1), ("ckks", 1), ("adaptive_clip", 1), ("feddpa", 0), ("ldp_fed", 0), ("lus", 0),
}  # fmt: skip
"""Cases that differ from another one of the component in a number, or in how it is found."""


def test_all_are_here() -> None:
    groups = Catalog.discover().groups.values()
    assert {f"baselines.{name}" for name in CASES} == {
        name for group in groups for name in group if name.startswith("baselines.")
    }


@pytest.mark.parametrize(
    ("name", "options", "recipe"),
    [
        pytest.param(name, *case, id=f"{name}-{i}", marks=pytest.mark.slow if (name, i) in RARELY else ())
        for name, cases in CASES.items()
        for i, case in enumerate(cases)
    ],
)
def test_conforms(name: str, options: dict[str, Any], recipe: dict[str, Any]) -> None:
    conformance(f"baselines.{name}", options, recipe={**FEW, **recipe})
