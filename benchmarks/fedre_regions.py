"""How FedRE's allocation depends on the region it protects: each layer's share of epsilon, region by region.

    python benchmarks/fedre_regions.py [--json] [--examples 10] [--size 48] [--formats]

Scores the layers of four models on generated documents (PSI scores, eq. 3 to 5) for the names and totals, for all other
text, for all that is neither, and for two corners, and shares out epsilon by them (eq. 6). If the allocation could
protect one region rather than another, shares would differ between the rows of a model.

With --formats it compares single documents, since Sec. 3.3 takes ten of a format for all of it: by how many percent do
the scores of two documents differ, if both are of one format and if they are of two? --examples counts each format's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
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


def formats(examples: int, size: int) -> dict[str, tuple[float, float]]:
    """By model, how far apart the scores of two documents are, in %, mean over layers: of one format, and of two."""
    found: dict[str, tuple[float, float]] = {}
    for name, (component, task) in MODELS.items():
        options = Documents.Options.model_validate(
            {"size": size, "train_count": 8 * examples, "test_count": 1, "task": task}
        )
        data = Documents(options).load(None)
        model = component.build(data.shape, len(data.classes), 1, "cpu")
        assert data.train.regions is not None
        inside = regions(data.train.regions)["names and totals"]
        kinds = _kinds(options)
        scores = []
        for kind in np.unique(kinds):
            for at in np.flatnonzero((kinds == kind) & inside.any(axis=(1, 2)))[:examples]:
                one = np.array([at])
                scores.append((int(kind), np.log(psi_scores(model, data.train.take(one), inside[one], data).mean)))
        apart: dict[bool, list[float]] = {True: [], False: []}
        for (kind, score), (other, second) in itertools.combinations(scores, 2):
            apart[kind == other].append(float(np.abs(score - second).mean()))
        found[name] = (_percent(apart[True]), _percent(apart[False]))
    return found


def _kinds(options: Any) -> NDArray[np.int64]:
    """The format of each document, also where the task is to segment it: the same seed draws the same documents."""
    return np.asarray(Documents(options.model_copy(update={"task": "kinds"})).load(None).train.labels)


def _percent(logs: list[float]) -> float:
    return 100 * math.expm1(statistics.fmean(logs))


def main() -> None:
    """Prints a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=10)
    parser.add_argument("--size", type=int, default=48, help="width and height of the documents, in pixels")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--formats", action="store_true", help="compare documents of one format and of two instead")
    options = parser.parse_args()
    use_one_thread()
    if options.formats:
        print("| network | apart in one format, % | apart in two formats, % |\n| --- | --- | --- |")
        for name, (same, other) in formats(options.examples, options.size).items():
            print(f"| {name} | {same:.0f} | {other:.0f} |", flush=True)
        return
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
