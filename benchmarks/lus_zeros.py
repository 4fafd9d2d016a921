"""What LUS hides from DLG: half of an update's values are zeroed, and an attacker may take the zeros as values or not.

    python benchmarks/lus_zeros.py [--seeds 1 2 3] [--images 3] [--epsilon 1e8] [--json]

The gradient of one generated document is sparsified as `baselines.lus` does and gets Gaussian noise. DLG attacks it
twice: directly, and with every value below four standard deviations of the noise treated as hidden. A search that
diverges counts as the mean colour. Prints the PSNR inside the names and totals and outside of them, mean and standard
deviation over seeds.
"""

from __future__ import annotations

import argparse
import json
import types
from typing import Any

import numpy as np
import torch
from fedplug import stream
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import View
from fedplug_attacks.image_metrics import Regions
from fedplug_attacks.matching import Dlg
from fedplug_baselines.lus import kept, tensors
from fedplug_fedre.documents import Documents
from fedplug_ledger.accounting import gaussian_noise_multiplier
from fedplug_std.models import LeNet5
from fedplug_std.torch_model import to_tensor, use_one_thread

NORM, DELTA, LR = 12.0, 1e-5, 0.1
"""Of `recipes/paper/fedre/attacks.grid.yaml`; the norm is above that of every gradient."""
BELOW = 4.0
"""Standard deviations of the noise below which a value counts as one that LUS zeroed."""


def measure(seed: int, images: int, epsilon: float) -> dict[str, dict[str, float]]:
    """By the attacker's treatment of small values, the numbers of `attacks.regions`, means over the images."""
    data = Documents(Documents.Options(size=48, train_count=8 * images, test_count=1, task="kinds")).load(None)
    chosen = data.train.take(stream(seed, "images").permutation(len(data.train))[:images])
    model = LeNet5(LeNet5.Options(variant="dlg", activation="sigmoid")).build(
        data.shape, len(data.classes), seed, "cpu"
    )
    std = NORM * gaussian_noise_multiplier(epsilon, DELTA)
    party = types.SimpleNamespace(device="cpu", progress=lambda *_: None)
    facts: Any = types.SimpleNamespace(party=party, public=None)
    found: dict[str, list[Any]] = {"values": [], "hidden": []}
    for index in range(images):
        one = chosen.take(np.array([index]))
        loss = torch.nn.functional.cross_entropy(
            model.module(to_tensor(one.inputs, data.mean, data.std)), torch.from_numpy(one.labels)
        )
        parts = torch.autograd.grad(loss, list(model.module.parameters()))
        update = -LR * torch.cat([part.reshape(-1) for part in parts]).numpy()
        # For one step, |gradient * update| is the square of the update, up to a factor.
        update = np.where(kept(np.square(update), tensors(model.layout), 0.5), update, 0)
        seen = (update + std * stream(seed, "noise", index).standard_normal(len(update))).astype(np.float32)
        for form, hidden in (("values", None), ("hidden", np.abs(seen) < BELOW * std)):
            meaning = Meaning(lr=LR, steps=1, batch_size=1, examples=1, epochs=1)
            view = View(
                "server", target=0, update=all_clear(0, 0, model.layout, seen, meaning, hidden, std), model=model,
                num_classes=len(data.classes), shape=data.shape, mean=data.mean, std=data.std, seed=index,
            )  # fmt: skip
            images_found = Dlg(Dlg.Options(restarts=1, iterations=20)).attack(view, facts).images
            if images_found is None:
                images_found = np.full((1, *data.shape), data.mean[0], np.float32)
            found[form].append(images_found)
    truth = Truth(
        chosen.inputs.astype(np.float32) / np.float32(255),
        chosen.labels,
        len(data.classes),
        chosen.regions,
        data.region_names,
    )
    metric = Regions(Regions.Options(fields=("name", "total")))
    return {
        form: metric.score(AttackReport("finished", images=np.concatenate(parts)), truth)
        for form, parts in found.items()
    }


def main() -> None:
    """Prints a row for each attacker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1e8)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args()
    use_one_thread()
    found = [measure(seed, options.images, options.epsilon) for seed in options.seeds]
    if options.json:
        print(json.dumps(found))
        return
    for form in ("values", "hidden"):
        numbers = {name: [row[form][name] for row in found] for name in ("psnr_inside", "psnr_outside")}
        said = ", ".join(f"{name} {np.mean(each):.1f} ± {np.std(each):.1f}" for name, each in numbers.items())
        print(f"small values taken for {form}: {said}")


if __name__ == "__main__":
    main()
