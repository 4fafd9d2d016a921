"""breaching's attack on updates of several local steps: reads targets from a folder, writes the recovered images.

Runs in breaching's own environment. It gets the input of breaching's user class: learning rate, steps, examples of a
step and the labels of each step; and the random start of the attack that it is compared with.
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


def grey(self: Any, setup: dict[str, Any], scale: float = 0.1, **other: Any) -> None:
    """Total variation of images with one channel, which the published class treats as three."""
    torch.nn.Module.__init__(self)
    step = torch.tensor([[0, 0, 0], [0, -1, 1], [0, 0, 0]], **setup)[None, None]
    self.register_buffer("weight", torch.cat([step.transpose(2, 3), step]))
    self.scale, self.inner_exp, self.outer_exp, self.eps, self.groups = scale, 1, 1, 1e-8, 1
    self.double_opponents = False


def attacked(target: dict[str, Any], iterations: int, tv: float) -> tuple[np.ndarray, float]:
    """Images (B, C, H, W), standardised, and CPU seconds."""
    config = OmegaConf.create({
        "type": "invertinggradients", "attack_type": "optimization", "label_strategy": None, "init": "randn",
        "objective": {"type": "cosine-similarity", "scale": 1.0, "task_regularization": 0.0},
        "restarts": {"num_trials": 1, "scoring": "cosine-similarity"}, "normalize_gradients": False,
        "optim": {
            "optimizer": "adam", "signed": "hard", "step_size": 0.1, "boxed": True, "max_iterations": iterations,
            "step_size_decay": "step-lr", "langevin_noise": 0.0, "warmup": 0, "grad_clip": None, "callback": 10**6,
        },
        "augmentations": None, "differentiable_augmentations": False,
        "regularization": {"total_variation": {"scale": tv}},
        "impl": {"dtype": "float", "mixed_precision": False, "JIT": None},
    })  # fmt: skip
    module, update = target["module"], target["update"]
    sizes = [parameter.numel() for parameter in module.parameters()]
    parts = [
        part.view(parameter.shape) for part, parameter in zip(update.split(sizes), module.parameters(), strict=True)
    ]
    about = SimpleNamespace(
        shape=tuple(target["start"].shape[1:]), mean=target["mean"], std=target["std"], modality="vision",
        task="classification", classes=10,
    )  # fmt: skip
    payload = {"parameters": [p.detach() for p in module.parameters()], "buffers": [], "metadata": about}
    steps = {key: target[key] for key in ("lr", "steps", "data_per_step")} | {"labels": target["labels_of_steps"]}
    shared = {
        "gradients": parts, "buffers": None,
        "metadata": {"num_data_points": len(target["start"]), "labels": target["labels"], "local_hyperparams": steps},
    }  # fmt: skip
    began = time.process_time()
    attack = prepare_attack(module, torch.nn.CrossEntropyLoss(), config)
    found, _ = attack.reconstruct([payload], [shared], {}, initial_data=target["start"])
    return found["data"].numpy(), time.process_time() - began


def main() -> None:
    """Attacks every target, one after the other."""
    torch.set_num_threads(1)
    TotalVariation.__init__ = grey
    work = torch.load(FOLDER / "targets.pt", weights_only=False)
    found = [attacked(target, work["iterations"], work["tv"]) for target in work["targets"]]
    torch.save(found, FOLDER / "found.pt")


if __name__ == "__main__":
    main()
