"""What FedML's central differential privacy does: the numbers that plugins/deployed/tests compares with.

Only `fedml/core/dp` runs, from a wheel that is unpacked into a folder:

    pip download --no-deps fedml==0.9.6
    python -m zipfile -e fedml-0.9.6-py2.py3-none-any.whl fedml
    python benchmarks/peer_programs/fedml_references.py plugins/deployed/tests/fedml_references.json
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections import OrderedDict
from pathlib import Path

import torch


def main(path: str) -> None:
    """Writes the file."""
    for name in ("fedml", "fedml.core", "fedml.core.dp", "fedml.core.common"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path("fedml") / name.replace(".", "/"))]
        sys.modules[name] = package
    entry = importlib.import_module("fedml.core.dp.fedml_differential_privacy").FedMLDifferentialPrivacy
    arguments = {
        "enable_dp": True, "epsilon": 0.5, "delta": 1e-5, "mechanism_type": "gaussian", "sensitivity": 0.2, "C": 1.0,
        "comm_round": 50, "client_num_per_round": 4, "client_num_in_total": 4, "clipping_norm": 1.0,
        "train_data_num_in_total": 100, "noise_multiplier": 1.0, "rdp_alpha": 2.0, "sigma": 1.0, "clipping": 1.0,
    }  # fmt: skip
    asks, errors, clipped = {}, {}, []
    for kind in ("ldp", "cdp", "nbafl", "dp_clip"):
        solution = entry()
        solution.init(types.SimpleNamespace(**arguments, dp_solution_type=kind))
        asks[kind] = {"trainer": solution.is_local_dp_enabled(), "server": solution.is_global_dp_enabled()}
    try:
        entry().init(types.SimpleNamespace(**arguments, dp_solution_type="cdp", enable_rdp_accountant=True))
    except TypeError as error:
        errors["enable_rdp_accountant"] = str(error)
    torch.manual_seed(0)
    for norm, size in ((1.0, 5.0), (0.3, 0.5), (100.0, 1.0)):
        solution = entry()
        given = types.SimpleNamespace(**arguments, dp_solution_type="cdp", max_grad_norm=norm)
        solution.init(given)
        tensors = OrderedDict(a=torch.randn(3, 4) * size, b=torch.randn(7) * size, c=torch.randn(5) * size)
        model = torch.cat([each.flatten() for each in tensors.values()]).tolist()
        [(_, found)] = solution.global_clip([(3, tensors)])
        made = torch.cat([each.flatten() for each in found.values()]).tolist()
        scale = float(solution.dp_solution.cdp.dp.scale)
        clipped.append({"max_grad_norm": norm, "model": model, "clipped": made, "scale": scale})
    Path(path).write_text(json.dumps({"asks": asks, "errors": errors, "clipped": clipped}) + "\n")


main(sys.argv[1])
