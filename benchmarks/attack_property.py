"""Properties of a client's examples: how near `attacks.property` comes to the share that has an attribute.

    python benchmarks/attack_property.py [--seeds 1 2] [--settings ...] [--csv docs/numbers/attack-property.csv]

Two tables that come with scikit-learn, 150 public rows of each, and one step on 16 rows of each of five clients, twice.
`sex` of the diabetes table is a column that the model is given, or one that it is not: the recipe names it, and public
rows have it. `diagnosis` is the label of the breast cancer table. A target is one probe; shares differ from one to the
next by chance. Next to the mean error is that of the public rows' share. `nearer` counts the targets at which the
attack is nearer, with Wilson's 95% interval. The area under the ROC curve is for telling targets above the middle share
from the others. `inconclusive` counts targets that the attack itself calls so. About a minute of processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
from fedplug_attacks.api.truth import wilson
from fedplug_attacks.membership_metrics import area_under_roc
from fedplug_attacks.workshop.results import results

DIABETES = {"use": "std.table", "answer": "progression", "predict": "numbers"}
CANCER = {"use": "std.breast_cancer"}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "diabetes, sex, given": (DIABETES, {"column": "sex"}),
    "diabetes, sex, not given": (DIABETES | {"leave_out": ["sex"]}, {"column": "sex"}),
    "diabetes, bmi above the middle": (DIABETES, {"column": "bmi"}),
    "breast cancer, diagnosis": (CANCER, {"column": "label", "equals": "benign"}),
}  # fmt: skip


def table(folder: Path) -> Path:
    """The diabetes table as a file, each column in units of its spread."""
    from sklearn.datasets import load_diabetes

    read = load_diabetes(scaled=False)
    values, answers = np.asarray(read.data), np.asarray(read.target)
    values = (values - values.mean(0)) / values.std(0)
    rows = np.column_stack([np.round(values, 5), (answers - 150) / 77])
    path = folder / "diabetes.csv"
    lines = [",".join([*read.feature_names, "progression"]), *(",".join(map(str, row)) for row in rows.tolist())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def recipe(setting: str, seed: int, folder: Path) -> dict[str, Any]:
    """A run whose five clients are probed once each."""
    data, truth = SETTINGS[setting]
    data = data | ({"file": str(table(folder))} if data["use"] == "std.table" else {})
    return {
        "name": "property", "seed": seed, "rounds": 1,
        "data": data | {"clients": 5, "public": 150, "partition": {"use": "std.iid"}},
        "model": {"use": "std.mlp", "hidden": [32]}, "train": {"use": "std.sgd", "batch_size": 16, "lr": 0.05},
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
        "aggregate": {"use": "std.mean"},
        "attack": {
            "adversaries": ["server"], "probe": {"batch_size": 16, "batches": 2}, "truth": truth,
            "attacks": ["attacks.property"], "metrics": ["attacks.attribute_share"],
        },
    }  # fmt: skip


def main() -> None:
    """Runs all, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS))
    parser.add_argument("--csv", type=Path, help="write the table here, in place of printing it")
    chosen = parser.parse_args()
    with chosen.csv.open("w", encoding="utf-8", newline="") if chosen.csv else contextlib.nullcontext(sys.stdout) as to:
        writer = csv.writer(to, lineterminator="\n")
        writer.writerow([
            "attribute", "targets", "error", "error_of_public_share", "nearer", "nearer_low", "nearer_high", "auc",
            "inconclusive", "seconds",
        ])  # fmt: skip
        for setting in chosen.settings:
            rows = []
            for seed in chosen.seeds:
                with tempfile.TemporaryDirectory() as folder:
                    where = Path(folder)
                    run = fedplug.run(recipe(setting, seed, where), output=where, quiet=True, muted=["lab.report"])
                    rows += results(run.folder / "attacks")
            writer.writerow([setting, *summed(rows)])
            to.flush()


def summed(rows: list[Any]) -> list[str]:
    """The numbers of all targets of a setting."""
    outcomes = [next(iter(row.forms.values())) for row in rows]
    if away := [outcome.reason for outcome in outcomes if outcome.status == "not_applicable"]:
        raise SystemExit(away[0])
    errors = np.array([outcome.metrics["share_error"] for outcome in outcomes])
    trivial = np.array([row.baselines["public share"]["share_error"] for row in rows])
    true = np.array([outcome.metrics["true_share"] for outcome in outcomes])
    found = np.array([outcome.own["share"] for outcome in outcomes])
    above = true > np.median(true)
    nearer = int(np.count_nonzero(errors < trivial))
    area = area_under_roc(found[above], found[~above]) if above.any() else float("nan")
    numbers = [errors.mean(), trivial.mean(), nearer / len(rows), *wilson(nearer, len(rows)), area]
    unfit = sum(outcome.status == "inconclusive" and bool(outcome.reason) for outcome in outcomes)
    seconds = statistics.mean(outcome.seconds for outcome in outcomes)
    return [str(len(rows)), *(f"{number:.3f}" for number in numbers), str(unfit), f"{seconds:.1f}"]


if __name__ == "__main__":
    main()
