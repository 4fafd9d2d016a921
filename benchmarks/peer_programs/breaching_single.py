"""breaching's attacks on the gradient of one batch: reads targets from a folder, writes the recovered images.

Runs in an environment with breaching 0.1.2. It gets the labels, and the random start of the attack that it is
compared with. It knows no mask: hidden entries are 0.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from breaching.attacks import prepare_attack
from breaching.attacks.auxiliaries.regularizers import TotalVariation
from omegaconf import OmegaConf

FOLDER = Path(sys.argv[1])
OPTIM = {"langevin_noise": 0.0, "warmup": 0, "grad_clip": None, "callback": 10**6}
ATTACKS: dict[str, dict[str, Any]] = {
    "inverting": {
        "type": "invertinggradients", "objective": {"type": "cosine-similarity", "scale": 1.0},
        "restarts": {"num_trials": 1, "scoring": "cosine-similarity"},
        "optim": {"optimizer": "adam", "signed": "hard", "step_size": 0.1, "boxed": True, "step_size_decay": "step-lr"},
    },
    "dlg": {
        "type": "deep-leakage", "objective": {"type": "euclidean", "scale": 1.0},
        "restarts": {"num_trials": 1, "scoring": "euclidean"},
        "optim": {"optimizer": "L-BFGS", "signed": None, "step_size": 1.0, "boxed": False, "step_size_decay": None},
    },
}  # fmt: skip
"""Its settings `invertinggradients` and `deepleakage`, the latter with the labels given."""


def grey(self: Any, setup: dict[str, Any], scale: float = 0.1, **other: Any) -> None:
    """Total variation of images with one channel, which the published class treats as three."""
    torch.nn.Module.__init__(self)
    step = torch.tensor([[0, 0, 0], [0, -1, 1], [0, 0, 0]], **setup)[None, None]
    self.register_buffer("weight", torch.cat([step.transpose(2, 3), step]))
    self.scale, self.inner_exp, self.outer_exp, self.eps, self.groups = scale, 1, 1, 1e-8, 1
    self.double_opponents = False


def attacked(target: dict[str, Any], attack: str, iterations: int, tv: float) -> tuple[np.ndarray, float]:
    """Images (B, C, H, W), standardised, and CPU seconds."""
    chosen = {key: dict(value) if isinstance(value, dict) else value for key, value in ATTACKS[attack].items()}
    chosen["objective"] |= {"task_regularization": 0.0}
    chosen["optim"] |= {**OPTIM, "max_iterations": iterations}
    if attack == "inverting":
        chosen["regularization"] = {"total_variation": {"scale": tv}}
    config = OmegaConf.create(chosen | {
        "attack_type": "optimization", "label_strategy": None, "init": "randn", "normalize_gradients": False,
        "augmentations": None, "differentiable_augmentations": False,
        "impl": {"dtype": "float", "mixed_precision": False, "JIT": None},
    })  # fmt: skip
    module = target["module"]
    parameters = list(module.parameters())
    parts = target["gradient"].split([parameter.numel() for parameter in parameters])
    about = SimpleNamespace(
        shape=tuple(target["start"].shape[1:]), mean=target["mean"], std=target["std"], modality="vision",
        task="classification", classes=10,
    )  # fmt: skip
    payload = {"parameters": [p.detach() for p in parameters], "buffers": [], "metadata": about}
    about_data = {"num_data_points": len(target["start"]), "labels": target["labels"], "local_hyperparams": None}
    gradients = [part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)]
    shared = {"gradients": gradients, "buffers": None, "metadata": about_data}
    began = time.process_time()
    found, _ = prepare_attack(module, torch.nn.CrossEntropyLoss(), config).reconstruct(
        [payload], [shared], {}, initial_data=target["start"]
    )
    return found["data"].numpy(), time.process_time() - began


def main() -> None:
    """Attacks every target, one after the other."""
    torch.set_num_threads(1)
    TotalVariation.__init__ = grey
    work = torch.load(FOLDER / "targets.pt", weights_only=False)
    found = [attacked(target, work["attack"], work["iterations"], work["tv"]) for target in work["targets"]]
    torch.save(found, FOLDER / "found.pt")


if __name__ == "__main__":
    main()
