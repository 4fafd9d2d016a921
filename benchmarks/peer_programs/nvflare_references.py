"""What NVFlare's own filters make of some updates: the values that plugins/deployed/tests compares with.

In an environment of its own, whose pins clash with those of fedplug:

    pip install nvflare==2.9.0 tenseal
    python benchmarks/peer_programs/nvflare_references.py plugins/deployed/tests/nvflare_references.npz
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tenseal as ts
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters import svt_privacy
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_opt.he.model_encryptor import HEModelEncryptor

SHAPES = {"fc1.weight": (16, 12), "fc1.bias": (16,), "fc2.weight": (5, 16), "fc2.bias": (5,)}
PERCENTILE: list[dict[str, Any]] = [
    {"percentile": percentile, "gamma": gamma, "steps": steps}
    for percentile in (0, 10, 50, 97.5, 100)
    for gamma, steps in ((0.01, 1), (0.001, 7), (10.0, 3))
]
SVT: list[dict[str, Any]] = [
    {},
    {"replace": False},
    {"fraction": 0.5, "epsilon": 5.0, "noise_var": 2.0, "gamma": 0.01, "tau": 0.005, "steps": 7},
    {"fraction": 1.0, "epsilon_threshold": 0.03},
    {"fraction": 0.3, "epsilon_query": 0.04, "replace": False},
    {"epsilon": 400.0, "gamma": 0.02, "tau": 0.01, "epsilon_release": 3.0},
    {"fraction": 0.4, "chunk": 50},
    {"fraction": 0.4, "chunk": 50, "replace": False, "steps": 3},
]
EXCLUDED: list[Any] = ["fc1", r"\.bias$", "^bias", ["fc2.weight"], ["fc2", "fc1.bias"]]
ENCRYPTED: list[Any] = ["fc1", r"\.bias$", ["fc2.weight"]]


def update(seed: int) -> dict[str, Any]:
    """An update of the little network, float32."""
    random = np.random.default_rng(seed)
    return {name: random.normal(0, 0.01, shape).astype(np.float32) for name, shape in SHAPES.items()}


def filtered(made: Any, given: dict[str, Any], steps: int = 1) -> dict[str, Any]:
    """What a filter sends."""
    context = FLContext()
    context.set_peer_context(FLContext())
    dxo = DXO(DataKind.WEIGHT_DIFF, given, {MetaKey.NUM_STEPS_CURRENT_ROUND: steps})
    sent: dict[str, Any] = (made.process_dxo(dxo, Shareable(), context) or dxo).data
    return sent


def flat(tensors: dict[str, Any]) -> Any:
    """All values, in the order of the model."""
    return np.concatenate([tensors[name].ravel() for name in SHAPES])


def main(path: str) -> None:
    """Writes the file."""
    found: dict[str, Any] = {}
    for number, case in enumerate(PERCENTILE):
        made = PercentilePrivacy(case["percentile"], case["gamma"])
        found[f"percentile{number}"] = flat(filtered(made, update(number), case["steps"]))
    for number, case in enumerate(SVT):
        options = {key: value for key, value in case.items() if key not in ("steps", "chunk")}
        svt_privacy._SVT_CHUNK_SIZE = case.get("chunk", 1_000_000)
        np.random.seed(number)
        made = svt_privacy.SVTPrivacy(**options)
        sent = filtered(made, update(number), case.get("steps", 1))
        found[f"svt{number}"] = flat(sent)
        case["stated"] = made.get_privacy_spent()
    sent_names = [sorted(filtered(ExcludeVars(each), update(0))) for each in EXCLUDED]
    context = ts.context(ts.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40])
    context.global_scale = 2**40
    names = []
    for each in ENCRYPTED:
        encryptor = HEModelEncryptor(encrypt_layers=each)
        encryptor.tenseal_context = context
        closed = filtered(encryptor, update(0))
        names.append(sorted(name for name, values in closed.items() if isinstance(values, ts.CKKSVector)))
    about = {
        "shapes": SHAPES, "percentile": PERCENTILE, "svt": SVT, "excluded": [*zip(EXCLUDED, sent_names, strict=True)],
        "encrypted": [*zip(ENCRYPTED, names, strict=True)],
    }  # fmt: skip
    np.savez_compressed(path, about=np.array(json.dumps(about)), **found)


main(sys.argv[1])
