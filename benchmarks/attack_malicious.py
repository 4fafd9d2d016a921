"""What a malicious server gains by planted models, through each kind of protection, and what clients could notice.

    python benchmarks/attack_malicious.py [--seeds 1 2 3 4 5] [--csv docs/numbers/attack-malicious.csv]

Digits, six clients (20 where noise is shared, 10 for SelectiveShield), a perceptron of 256 and 128 units or std.cnn
with group norm, a probe of one step on 8 images. `imprint` asks two targets per seed for all their images. `fishing`
asks five for the one of class 3; those with one such image count. `honest` is `attacks.exact_batch` by a server that
plants nothing. `others zeros` gives all clients but the target a model of zeros. Five minutes of processor time.
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
from fedplug_attacks.api.truth import wilson
from fedplug_attacks.workshop.results import results

LABEL = 3
CLIP: dict[str, Any] = {"use": "std.clip", "norm": 1.0}
LOCAL: dict[str, Any] = {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}
SHARED: dict[str, Any] = {"use": "std.distributed_gaussian", "epsilon": 8, "delta": 1e-5}
CENTRAL = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1.0}
BFV = {"use": "std.bfv", "key_holder": "key_server"}
MASKS = {"use": "secagg.bonawitz", "range": 1}


def zone(name: str, links: list[Any], behind: list[Any], clients: int = 6) -> dict[str, Any]:
    """A protocol of one zone: links at the client, and links after the sum."""
    return {
        "negotiate_mask": {"use": "std.single_zone", "zone": name}, "protect": {name: links}, "clients": clients,
        "postprocess": {name: behind} if behind else {},
    }  # fmt: skip


SELECTIVE = {
    "score_parameters": [{"use": "selectiveshield.fisher", "figure_client": 0}], "clients": 10,
    "negotiate_mask": {"use": "selectiveshield.consensus", "tau": 0.05, "rho": 0.3},
    "protect": {
        "encrypted": [{"use": "std.ckks", "key_holder": "key_server", "sums_visible_to": "clients"}], "noised": [],
    },
    "aggregate": {"use": "selectiveshield.two_server"},
    "postprocess": {"encrypted": ["std.ckks"], "retained": ["selectiveshield.merge"]},
}  # fmt: skip
CNN = {"model": {"use": "std.cnn", "norm": "group"}}
HONEST = {"honest": {"use": "attacks.exact_batch"}}
ALL: dict[str, dict[str, Any]] = {
    "imprint": {"use": "attacks.imprint"}, "fishing": {"use": "attacks.fishing", "label": LABEL}
}  # fmt: skip
APART = {f"{name}, others zeros": use | {"handed": "target"} for name, use in ALL.items()}
FEATURES = {"imprint": ALL["imprint"]}
ZEROS = {"imprint, others zeros": APART["imprint, others zeros"]}
SHARE = {"imprint, rows split": ALL["imprint"] | {"handed": "split"}}
LOUD = {"imprint, gain 100": ALL["imprint"] | {"gain": 100}}
PROTOCOLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "in the clear": (zone("clear", [], []), HONEST | ALL),
    "in the clear, convolutions": (zone("clear", [], []) | CNN, FEATURES),
    "SelectiveShield, no noise": (SELECTIVE, HONEST | ALL | LOUD),
    "central noise": (zone("noised", [CLIP], [CENTRAL]), HONEST | ALL),
    "BFV, key server": (zone("encrypted", [BFV], ["std.bfv"]), FEATURES | ZEROS),
    "BFV, sums opened at clients": (zone("encrypted", [BFV | {"sums_visible_to": "clients"}], ["std.bfv"]), FEATURES),
    "the same, and a client": (
        zone("encrypted", [BFV | {"sums_visible_to": "clients"}], ["std.bfv"]) | {"with": "+client:5"}, FEATURES
    ),
    "SecAgg": (zone("encrypted", [MASKS], ["secagg.bonawitz"]), HONEST | ALL | SHARE | APART),
    "local noise, epsilon 8": (zone("noised", [CLIP, LOCAL], []), HONEST | ALL),
    "SecAgg, shared noise, epsilon 8": (
        zone("encrypted", [CLIP, SHARED, "secagg.bonawitz"], ["secagg.bonawitz"], 20), FEATURES | ZEROS
    ),
}  # fmt: skip
"""By protection: its changes of the recipe, and the attacks on it."""


def recipe(protocol: dict[str, Any], name: str, use: dict[str, Any], seed: int) -> dict[str, Any]:
    """A run of one round that is attacked in one way."""
    changes = dict(protocol)
    clients, others = changes.pop("clients"), changes.pop("with", "")
    adversary = "server" if name == "honest" else f"malicious_server{others}"
    targets = 5 if "fishing" in name else 2
    return {
        "name": "malicious", "seed": seed, "rounds": 1, "min_clients": clients - 1, "model": "std.mlp",
        "data": {"use": "std.digits", "clients": clients, "public": 200, "partition": "std.iid"},
        "train": {"use": "std.sgd", "epochs": 1, "lr": 0.1}, "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "attack": {
            "adversaries": [adversary], "targets": list(range(targets)), "probe": {"batch_size": 8}, "attacks": [use]
        },
    } | changes  # fmt: skip


def main() -> None:
    """Runs all, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--only", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS), help="protections to measure")
    parser.add_argument("--csv", type=Path, help="write the table here, in place of printing it")
    chosen = parser.parse_args()
    rows = []
    for protection in chosen.only:
        protocol, attacks = PROTOCOLS[protection]
        for name, use in attacks.items():
            found = []
            for seed in chosen.seeds:
                with tempfile.TemporaryDirectory() as folder:
                    plain = recipe(protocol, name, use, seed)
                    run = fedplug.run(plain, output=folder, quiet=True, muted=["lab.report"])
                    found += results(run.folder / "attacks")
            rows.append([protection, name, *summed(name, found)])
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    with chosen.csv.open("w", encoding="utf-8", newline="") if chosen.csv else contextlib.nullcontext(sys.stdout) as to:
        writer = csv.writer(to, lineterminator="\n")
        writer.writerow(
            ["protection", "attack", "targets", "images recovered", "95%", "change of norm", "party notices", "seconds"]
        )
        writer.writerows(rows)


def summed(name: str, found: list[Any]) -> list[str]:
    """Targets, recovered images with their interval, visible signs of the planted model, and seconds."""
    each, asked = 8, len(found)
    if "fishing" in name:  # a target with none of the class, or several, has no single image to find
        each, found = 1, [result for result in found if result.truth.counts[LABEL] == 1]
        asked = len(found)
    outcomes = [result.forms[result.headline or next(iter(result.forms))] for result in found]
    recovered = sum(len(outcome.recovered) for outcome in outcomes)
    low, high = wilson(recovered, asked * each)
    changes = [outcome.metrics["noticed_change"] for outcome in outcomes if "noticed_change" in outcome.metrics]
    noticed = sum(outcome.metrics.get("noticed_by_party") == 1 for outcome in outcomes)
    return [
        str(asked), f"{recovered} of {asked * each}", f"{low:.0%} to {high:.0%}",
        f"{statistics.median(changes):.1f}" if changes else "", f"{noticed} of {asked}" if changes else "",
        f"{statistics.mean(outcome.seconds for outcome in outcomes):.2f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
