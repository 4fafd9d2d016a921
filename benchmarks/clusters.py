"""SenseCrypt's clusters against epsilon: can sensitivity vectors be hidden and clustered at once (Fig. 16 and 17)?

    FEDPLUG_DATA=... python benchmarks/clusters.py [--data digits fashion_mnist] [--draws 10] [--train-size 6000]

Twenty clients in four categories train once, as in round 1 of `recipes/sensecrypt.yaml`; their sensitivity vectors are
taken from the run, before the clip and without noise. Then, for each epsilon and draw of the noise, the vectors are
clipped and noised as `sensecrypt.clusters` does and clustered: by affinity propagation and the merging of small
clusters as there, and by k-means with the true number of clusters, as the paper compares them. `calibrated` is the
analytic Gaussian mechanism for the sensitivity 2G, `printed` the formula of App. G. G is below the norms of all
vectors, so the ratio of noise to vector, and with it the result, does not depend on G. Both use the same draws, scaled,
so columns of one row can be compared. Rows have different draws.

Prints a Markdown table for each data set: the adjusted Rand index against the categories, where 1 is perfect and 0 is
chance, and the silhouette, each as mean ± standard deviation over the draws.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from typing import Any
from unittest.mock import patch

import fedplug
import numpy as np
from fedplug import Cohort, Facts
from fedplug.recipe.recipe import Recipe
from fedplug_sensecrypt.affinity import cluster, distances, silhouette
from fedplug_sensecrypt.clusters import Clusters, clip
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

EPSILONS: tuple[float | None, ...] = (0.01, 0.1, 0.2, 0.5, 1, 8, 30, 100, 300, 1000, 3000, None)
CATEGORIES, CLIENTS = 4, 20
TRUTH = np.repeat(np.arange(CATEGORIES), CLIENTS // CATEGORIES)
Vectors = NDArray[np.float64]


def recipe(data: dict[str, Any]) -> Recipe:
    """Round 1 of SenseCrypt on a data set, with the vectors unchanged."""
    split = {"clients": CLIENTS, "partition": {"use": "std.categories", "categories": CATEGORIES}}
    return Recipe.from_plain(
        {
            "name": "clusters", "seed": 7, "rounds": 1, "min_clients": 3, "data": {**data, **split},
            "model": {"use": "std.mlp", "hidden": [64]},
            "train": {"use": "std.sgd", "epochs": 5, "batch_size": 16, "lr": 0.05},
            "score_parameters": [{"use": "sensecrypt.sensitivity"}],
            "groups": {"use": "sensecrypt.clusters", "norm": None, "epsilon": None},
            "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
            "protect": {"clear": []}, "aggregate": {"use": "std.mean"},
        }
    )  # fmt: skip


def sensitivity_vectors(data: dict[str, Any]) -> NDArray[np.float32]:
    """The clients' messages in round 1 without clip and noise, (CLIENTS, P), in the order of their ids."""
    received: dict[int, NDArray[np.float32]] = {}

    def listen(self: Clusters, cohort: Cohort, facts: Facts) -> None:
        received.update(cohort.ask(self.vector))

    with (
        patch.object(Clusters, "form_groups", listen),
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(sys.stderr),  # only the tables are the output
    ):
        fedplug.run(recipe(data), engine="local", output=folder, quiet=True)
    return np.stack([received[client_id] for client_id in range(CLIENTS)])


def in_few_dimensions(vectors: Vectors) -> Vectors:
    """The same points in the space that they span, (n, n). All distances stay, and k-means takes a thousandth."""
    _, rotated = np.linalg.qr(vectors.T)
    return np.asarray(rotated.T)


def scores(points: Vectors, seed: int) -> list[float]:
    """Rand index, silhouette and clusters of affinity propagation; Rand index and silhouette of k-means."""
    points = in_few_dimensions(points)
    apart = distances(list(points))
    found = cluster(apart, 3)
    means = KMeans(CATEGORIES, n_init=10, random_state=seed).fit_predict(points)
    return [
        float(adjusted_rand_score(TRUTH, found.labels)),
        _or_nan(silhouette(apart, found.labels)),
        float(found.count),
        float(adjusted_rand_score(TRUTH, means)),
        _or_nan(silhouette(apart, means)),
    ]


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def measure(vectors: NDArray[np.float32], epsilon: float | None, calibration: str, draws: int) -> Vectors:
    """The scores of each draw, (draws, 5)."""
    rng = np.random.default_rng([7, 0 if epsilon is None else round(1000 * epsilon)])
    component = Clusters(Clusters.Options.model_validate({"epsilon": epsilon, "calibration": calibration}))
    norm = component.options.norm or np.inf
    clipped = np.stack([clip(vector, norm) for vector in vectors]).astype(np.float64)
    std = component.stddev()
    repeats = draws if std else 1
    return np.array([scores(clipped + std * rng.standard_normal(clipped.shape), seed) for seed in range(repeats)])


def cells(results: Vectors) -> list[str]:
    """`mean ± sd` of each score."""
    found = []
    for column in results.T:
        known = column[np.isfinite(column)]  # one cluster has no silhouette
        spread = "" if len(results) == 1 else f" ± {known.std(ddof=1):.2f}" if len(known) > 1 else ""
        # Adding 0 turns -0.00 into 0.00.
        found.append(f"{round(float(known.mean()), 2) + 0.0:.2f}{spread}" if len(known) else "–")
    return found


def table(vectors: NDArray[np.float32], draws: int) -> str:
    """The Markdown table of one data set."""
    lines = [
        "| epsilon | AP calibrated: ARI | silhouette | clusters | AP printed: ARI | silhouette | clusters "
        "| k-means calibrated: ARI | silhouette | k-means printed: ARI | silhouette |",
        "|" + " --- |" * 11,
    ]
    for epsilon in EPSILONS:
        honest, printed = (cells(measure(vectors, epsilon, how, draws)) for how in ("analytic", "classical"))
        row = ["none" if epsilon is None else f"{epsilon:g}", *honest[:3], *printed[:3], *honest[3:], *printed[3:]]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def without_noise(vectors: NDArray[np.float32]) -> str:
    """The effects of the clip and of the sign of the similarity."""
    directions = [clip(vector, Clusters.Options().norm or np.inf) for vector in vectors]
    found = {
        "as they are": cluster(distances(list(vectors)), 3),
        "clipped": cluster(distances(directions), 3),
        "clipped, similarity as printed": cluster(distances(directions), 3, as_published=True),
    }
    parts = [f"{name} {adjusted_rand_score(TRUTH, one.labels):.2f}" for name, one in found.items()]
    return "ARI of affinity propagation without noise: " + "; ".join(parts)


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=("digits", "fashion_mnist"), default=["digits", "fashion_mnist"])
    parser.add_argument("--draws", type=int, default=10, help="of the noise, for each epsilon")
    parser.add_argument("--train-size", type=int, default=6000, help="examples of Fashion-MNIST")
    options = parser.parse_args()
    for name in options.data:
        data = {"use": f"std.{name}"}
        vectors = sensitivity_vectors(data if name == "digits" else {**data, "train_size": options.train_size})
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        smallest = Clusters.Options().norm or 0.0
        assert norms.min() > smallest, "the clip must reach every vector"
        print(f"### {name}: {vectors.shape[1]:,} scalars, {options.draws} draws\n")
        print(f"Norms of the vectors {norms.min():.3g} to {norms.max():.3g}. {without_noise(vectors)}.\n")
        print(table(vectors, options.draws) + "\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
