"""Membership in a trained model and in an update: what each method of `attacks.membership` finds at few false alarms.

    python benchmarks/membership.py [--seeds 1 2 3] [--only "update of round 10"] [--csv docs/numbers/membership.csv]

Fashion-MNIST, 5 clients of 1,000 images, 2,000 public ones, a perceptron that memorises much of its training data. Four
things are attacked, at two clients each: the `model` after 10 or 40 rounds of 5 epochs, by any party that gets it; the
`update` of the 10th round, by the server; and the update of `one step` on 200 images, all of them candidates. A client
has 1,000 members (200 of one step) among twice as many candidates, so one false alarm of 1,000 is 0.1%; with 200 that
rate cannot be resolved, and is left out. Areas are means over targets; intervals are Clopper-Pearson's, 95%, on the
members of all targets together. They take members as independent, which those of one model are not. Data: FEDPLUG_DATA.
About 80 seconds of processor time a seed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import fedplug
from fedplug_attacks.membership_metrics import RATES, clopper_pearson
from fedplug_attacks.workshop.results import results

METHODS = ("loss", "likelihood_ratio", "lira", "rmia", "lira, online", "rmia, online", "gradient")
SETTINGS: dict[str, dict[str, Any]] = {
    "model, 10 rounds": {"adversaries": ["released"], "rounds": [11]},
    "model, 40 rounds": {"adversaries": ["released"], "rounds": [41]},
    "update of round 10": {"adversaries": ["server"], "rounds": [10]},
    "one step": {"adversaries": ["server"], "rounds": [1], "probe": {"batch_size": 200}},
}


def recipe(setting: str, seed: int) -> dict[str, Any]:
    """A run that is attacked in one way by every method that applies."""
    sees_update = SETTINGS[setting]["adversaries"] != ["released"]
    methods = [method for method in METHODS if sees_update or method != "gradient"]
    attacks = [
        {"use": "attacks.membership", "name": method.replace(", ", "_"), "method": method.split(",")[0],
         "online": method.endswith("online")}
        for method in methods
    ]  # fmt: skip
    rounds = {"model, 10 rounds": 10, "model, 40 rounds": 40, "update of round 10": 10, "one step": 1}[setting]
    section = {"targets": [0, 1], "candidates": 2000, "attacks": attacks} | SETTINGS[setting]
    return {
        "name": "membership", "seed": seed, "rounds": rounds,
        "data": {
            "use": "std.fashion_mnist", "train_size": 7000, "clients": 5, "public": 2000,
            "partition": {"use": "std.iid"},
        },
        "model": {"use": "std.mlp", "hidden": [128]},
        "train": {"use": "std.sgd", "epochs": 5, "batch_size": 32, "lr": 0.1},
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
        "aggregate": {"use": "std.mean"}, "attack": section,
    }  # fmt: skip


def main() -> None:
    """Runs all, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="what is attacked")
    parser.add_argument("--csv", type=Path, help="write the table here, in place of printing it")
    chosen = parser.parse_args()
    found: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for setting in chosen.only:
        for seed in chosen.seeds:
            with tempfile.TemporaryDirectory() as folder:
                run = fedplug.run(recipe(setting, seed), output=folder, quiet=True, muted=["lab.report"])
                for result in results(run.folder / "attacks"):
                    (outcome,) = result.forms.values()
                    if outcome.status == "not_applicable":
                        raise SystemExit(f"{setting}, {result.attack}: {outcome.reason}")
                    method = result.options["method"] + ", online" * result.options.get("online", False)
                    found[setting, method].append(outcome.metrics | {"seconds": outcome.seconds})
    with chosen.csv.open("w", encoding="utf-8", newline="") if chosen.csv else contextlib.nullcontext(sys.stdout) as to:
        writer = csv.writer(to, lineterminator="\n")
        rates = [f"{name}{end}" for name in RATES for end in ("", "_low", "_high")]
        writer.writerow(["attacked", "method", "targets", "members", "auc", *rates, "seconds"])
        for (setting, method), rows in sorted(found.items(), key=lambda at: (list(SETTINGS).index(at[0][0]),
                                                                             METHODS.index(at[0][1]))):  # fmt: skip
            writer.writerow([setting, method, len(rows), *summed(rows)])


def summed(rows: list[dict[str, float]]) -> list[str]:
    """Members of all targets, the mean area, each rate with its interval, and the mean seconds."""
    members = sum(int(row["members"]) for row in rows)
    cells = [str(members), f"{statistics.mean(row['membership_auc'] for row in rows):.3f}"]
    for name in RATES:
        if any(name not in row for row in rows):
            cells += ["", "", ""]
            continue
        hits = round(sum(row[name] * row["members"] for row in rows))
        cells += [f"{value:.4f}" for value in (hits / members, *clopper_pearson(hits, members))]
    return [*cells, f"{statistics.mean(row['seconds'] for row in rows):.1f}"]


if __name__ == "__main__":
    main()
