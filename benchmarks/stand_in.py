"""Settings for the public-features recipes by a search on a public stand-in, so that nothing private is chosen.

    FEDPLUG_DATA=... python benchmarks/stand_in.py FOLDER [--clients 100] [--epsilon 2] [--trials 40] [--jobs 1]

Fashion-MNIST takes the place of the clients' data: 50,000 of its training images are split among clients, the other
10,000 are for tests, and whitening follows from its test images, which share none with them. The search is that of
`fedplug search`, which continues it too.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import fedplug
import fedplug_search
import numpy as np
from fedplug_std.datasets import FashionMnist

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "public-features-hundred.yaml"
OVER = {
    "data.size": [50, 75, 100, 150, 200, 300],
    "data.length": [5, 8],
    "rounds": [8, 12, 20, 30],
    "train.lr": [0.5, 1, 2, 4],
    "protect.encrypted.0.norm": [0.1, 0.25, 0.5],
    "postprocess.encrypted.1.beta1": [0.5, 0.8, 0.9],
}

MEAN, STD, TRAIN = 0.2860, 0.3530, 50_000


def main() -> None:
    """Writes the public images, and searches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=2)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    data = FashionMnist(FashionMnist.Options()).load(os.environ.get("FEDPLUG_DATA"))
    images, labels, known = data.train.inputs, data.train.labels, data.test
    files = [(chosen.folder / f"{name}.npz").resolve() for name in ("clients", "public")]
    of, public = ({"use": "std.arrays", "file": str(file), "mean": MEAN, "std": STD} for file in files)
    classes = np.array(data.classes)
    np.savez(files[0], train_images=images[:TRAIN], train_labels=labels[:TRAIN], test_images=images[TRAIN:],
             test_labels=labels[TRAIN:], classes=classes)  # fmt: skip
    np.savez(files[1], train_images=known.inputs, train_labels=known.labels, test_images=known.inputs[:1],
             test_labels=known.labels[:1], classes=classes)  # fmt: skip
    answer = fedplug_search.search(
        RECIPE, OVER, objectives=["accuracy", "bytes"], trials=chosen.trials, jobs=chosen.jobs, prune="none",
        output=chosen.folder / "search", quiet=False,
        sets={
            "data.of.of": of, "data.fitted_on": public, "data.clients": chosen.clients,
            "min_clients": round(0.9 * chosen.clients), "protect.encrypted.1.epsilon": chosen.epsilon,
        },
        settings=fedplug.Settings.load(),
    )  # fmt: skip
    print(answer.page)


if __name__ == "__main__":
    main()
