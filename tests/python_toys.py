"""A small recipe, and a run of it."""

from __future__ import annotations

from typing import Any

PLAIN: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "rounds": 2,
    "data": {"use": "std.digits", "clients": 4, "train_size": 400, "partition": {"use": "iid"}},
    "model": {"use": "std.mlp", "hidden": [16]},
    "train": {"use": "std.sgd", "epochs": 1, "lr": 0.05},
    "score_parameters": [{"use": "paraaegis.magnitude"}],
    "negotiate_mask": {"use": "paraaegis.vote", "ratio": 0.2},
    "protect": {
        "encrypted": [{"use": "std.bfv", "key_holder": "clients"}],
        "noised": [{"use": "std.clip", "norm": 0.1}, {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}],
    },
    "aggregate": {"use": "std.mean"},
    "postprocess": {"encrypted": ["std.bfv"]},
}
