"""How FedRE's allocation depends on the region it protects: each layer's share of epsilon, region by region.

    python benchmarks/fedre_regions.py [--json] [--examples 10] [--size 48]

Scores the layers of four models on generated documents (PSI scores, eq. 3 to 5) for the names and totals, for all other
text, for all that is neither, and for two corners, and shares out epsilon by them (eq. 6). If the allocation could
protect one region rather than another, shares would differ between the rows of a model.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from fedplug_fedre.budgets import shares
from fedplug_fedre.documents import DOCUMENT_FIELDS, Documents
from fedplug_fedre.jacobian import psi_scores
from fedplug_fedre.unet import UNet
from fedplug_std.models import LeNet5, Mlp
from fedplug_std.torch_model import use_one_thread
from numpy.typing import NDArray

MODELS: dict[str, tuple[Any, str]] = {
    "LeNet as in DLG": (LeNet5(LeNet5.Options(variant="dlg", activation="sigmoid")), "kinds"),
    "LeNet-5": (LeNet5(LeNet5.Options()), "kinds"),
    "MLP 64-32": (Mlp(Mlp.Options(hidden=(64, 32))), "kinds"),
    "U-Net": (UNet(UNet.Options(width=4, depth=1)), "pixels"),
}
SENSITIVE = ("name", "total")


def regions(marked: NDArray[np.uint8]) -> dict[str, NDArray[np.bool_]]:
    """Regions of documents by name, each bool (n, H, W)."""
    inside = np.isin(marked, [1 + DOCUMENT_FIELDS.index(name) for name in SENSITIVE])
    corner = np.zeros(marked.shape, np.bool_)
    corner[:, :12, :12] = True
    return {
        "names and totals": inside,
        "all other text": (marked > 0) & ~inside,
        "all but names and totals": ~inside,
        "upper left corner": corner,
        "lower right corner": corner[:, ::-1, ::-1],
    }


def measure(examples: int, size: int) -> dict[str, dict[str, dict[str, float]]]:
    """By model and region, each layer's share of epsilon."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, (component, task) in MODELS.items():
        options = Documents.Options.model_validate(
            {"size": size, "train_count": examples, "test_count": 1, "task": task}
        )
        data = Documents(options).load(None)
        model = component.build(data.shape, len(data.classes), 1, "cpu")
        assert data.train.regions is not None
        found[name] = {}
        for region, mask in regions(data.train.regions).items():
            scores = psi_scores(model, data.train, mask, data).mean
            layers = model.layout.layers
            found[name][region] = dict(zip(layers, shares(scores, 1.0).tolist(), strict=True))
    return found


def main() -> None:
    """Prints a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=10)
    parser.add_argument("--size", type=int, default=48, help="width and height of the documents, in pixels")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args()
    use_one_thread()
    found = measure(options.examples, options.size)
    if options.json:
        print(json.dumps(found))
        return
    for model, rows in found.items():
        layers = list(next(iter(rows.values())))
        print(f"\n{model}: share of epsilon\n\n| region | {' | '.join(layers)} |\n|{' --- |' * (len(layers) + 1)}")
        for region, row in rows.items():
            print(f"| {region} | {' | '.join(f'{row[layer]:.3f}' for layer in layers)} |")


if __name__ == "__main__":
    main()
