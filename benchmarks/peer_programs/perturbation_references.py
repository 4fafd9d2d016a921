"""The sizes of noise that APPFL and FedML compute: the numbers that plugins/deployed/tests compares with.

Only the files that hold the formulas run, from wheels that are unpacked into folders of their own:

    pip download --no-deps appfl==1.12.0 fedml==0.9.6
    python -m zipfile -e appfl-1.12.0-py3-none-any.whl appfl
    python -m zipfile -e fedml-0.9.6-py2.py3-none-any.whl fedml
    python benchmarks/peer_programs/perturbation_references.py plugins/deployed/tests/perturbation_references.json
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import torch


def loaded(path: Path, name: str) -> Any:
    """A file as a module, without the packages around it."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(path: str) -> None:
    """Writes the file."""
    appfl = loaded(Path("appfl/appfl/privacy/dp.py"), "appfl_dp")
    for name in ("fedml", "fedml.core", "fedml.core.dp", "fedml.core.dp.mechanisms", "fedml.core.dp.common"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path("fedml") / name.replace(".", "/"))]
        sys.modules[name] = package
    from fedml.core.dp.mechanisms.gaussian import Gaussian
    from fedml.core.dp.mechanisms.laplace import Laplace

    drawn: list[float] = []
    laplace, normal = torch.distributions.laplace.Laplace, torch.normal

    def noted(mean: Any, scale: Any) -> Any:
        drawn.append(float(scale.flatten()[0]))
        return laplace(mean, scale)

    def noted_normal(**given: Any) -> Any:
        drawn.append(float(given["std"]))
        return normal(**{**given, "std": float(given["std"])})

    torch.distributions.laplace.Laplace, torch.normal = noted, noted_normal
    model, found = torch.nn.Linear(1, 1, bias=False), []
    for epsilon, clip_value, lr in ((1.0, 1.0, 0.01), (0.05, 10.0, 0.1), (8.0, 0.5, 0.003)):
        for mechanism in ("laplace", "gaussian"):
            made = getattr(appfl, f"{mechanism}_mechanism_output_perturb")
            made(model, 2.0 * clip_value * lr, epsilon)  # the sensitivity as appfl's vanilla_trainer.py has it
            options = {"dp_mechanism": mechanism, "epsilon": epsilon, "clip_value": clip_value, "lr": lr}
            found.append({"of": "appfl", "options": options, "scale": drawn.pop()})
    for epsilon, delta, sensitivity in ((0.5, 1e-5, 2.0), (1.0, 0.1, 1.0), (0.1, 1e-3, 0.02)):
        for mechanism, kind in (("laplace", Laplace), ("gaussian", Gaussian)):
            scale = float(kind(epsilon, delta=delta, sensitivity=sensitivity).scale)
            options = {"mechanism_type": mechanism, "epsilon": epsilon, "delta": delta, "sensitivity": sensitivity}
            found.append({"of": "fedml", "options": options, "scale": scale})
    Path(path).write_text(json.dumps(found, indent=1) + "\n")


main(sys.argv[1])
